"""The secrets among options: which values are hidden, and what of them may turn up in other texts.

Names decide it: options of a lake's own catalog or format are not known beforehand, so whatever is called like a secret is one.
In the environment a dot stands for what their names part words by, so all signs between two words are alike. Addresses of
databases and proxies have passwords within them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote, unquote_plus

from fluss_lab.model.config.lake_options import LAKE_PREFIX

#: What is shown in the place of a secret.
MASK: Final = "********"
#: Shorter values would be found in ordinary text.
SECRET_LENGTH_MIN: Final = 6
_WORDS: Final = (
    r"secret|passw|passphrase|pwd|credential|token(?!.?expires|s?.?endpoint)|"
    r"(?:access|account|private|api|encryption)[^a-z]?key|sas|connection[^a-z]?string|session[^a-z]?kwargs|kerberos[^a-z]?ticket|"
    r"signature"
)
_SECRET: Final = re.compile(rf"{_WORDS}|\.(?:header|auth)\.|[^a-z]pass$", re.IGNORECASE)
#: Of ``remote.s3.client-credentials`` the value is a choice.
_REMOTE_PREFIXES: Final = ("remote.s3.access-", "remote.s3.secret-", "remote.s3.session-")
#: A password of an address: up to the last ``@``, since those who read it do not agree where one ends that has ``/`` or ``@`` in it. What
#: is a number up to a slash is a port.
_USER: Final = r"(?<=://)([^/:@?#\s]*):(?!\d+[/?#])"
#: An argument of an address that is called like a secret, or has such within it.
_ARGUMENT: Final = rf"([?&;][^=&?;\s]*(?:{_WORDS}|\bsig\b|odbc_connect)[^=&?;\s]*=)"
#: In running text a space ends an address, and a quote its last argument; in an option's value they may be within a secret.
_IN_TEXT: Final = (re.compile(rf"{_USER}(\S*)@"), re.compile(rf"{_ARGUMENT}([^&\s'\"]*)", re.IGNORECASE))
_IN_VALUE: Final = (re.compile(rf"{_USER}(.*)@", re.DOTALL), re.compile(rf"{_ARGUMENT}([^&]*)", re.IGNORECASE))
#: Within values that are several, as connection strings are.
_NAMED: Final = re.compile(r"(?:key|pwd|password|signature|secret|token)\s*=\s*([^;&]+)", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """Return whether an option's value is a secret, judged by its key: lake options and those of remote storage hold some."""
    return key.startswith((LAKE_PREFIX, *_REMOTE_PREFIXES)) and _SECRET.search(key) is not None


def mask_secret(key: str, value: str) -> str:
    """Return an option's value as it may be shown: secrets hidden, passwords within addresses too.

    Args:
        key: The option's; empty: the value is any text, an error's for instance.
    """
    if is_secret(key):
        return MASK if value else value
    password, argument = _IN_VALUE if key else _IN_TEXT
    hidden = password.sub(lambda found: f"{found[1]}:{MASK}@", value)
    return argument.sub(lambda found: f"{found[1]}{MASK}", hidden)


def secrets_of(key: str, value: str) -> list[str]:
    """Return what of an option's value no output may have: the value if it is a secret, its passwords, parts that stand for it.

    Passwords in addresses come as they are written and as their readers decode them.
    """
    return list(dict.fromkeys(part for part in _parts(key, value) if part))


def secrets_among(options: Mapping[str, str]) -> list[str]:
    """Return `secrets_of` all of some options."""
    return [part for key, value in options.items() for part in secrets_of(key, value)]


def secrets_pattern(values: Iterable[str]) -> re.Pattern[str] | None:
    """Return what finds secrets in text, also as reprs and JSON write them, and single lines of those that have several.

    None: there are none of at least `SECRET_LENGTH_MIN` characters.
    """
    parts = {part.strip() for value in values for part in (value, *value.splitlines())}
    known = sorted((part for part in parts if len(part) >= SECRET_LENGTH_MIN), key=len, reverse=True)
    forms = dict.fromkeys(form for part in known for form in (part, repr(part)[1:-1], json.dumps(part)[1:-1]))
    return re.compile("|".join(map(re.escape, forms))) if forms else None


def conceal(error: BaseException, pattern: re.Pattern[str] | None) -> None:
    """Mask secrets in an error's text, and in what it came from, which tracebacks show too.

    What it came from is forgotten where its text is not made of its arguments, and has a secret.
    """
    if pattern is None:
        return
    masked = tuple(pattern.sub(MASK, each) if isinstance(each, str) else each for each in error.args)
    if masked != error.args:
        error.args = masked
    for link in ("__cause__", "__context__"):
        if (inner := getattr(error, link)) is not None:
            conceal(inner, pattern)
            if pattern.search(str(inner)):
                setattr(error, link, None)


def _parts(key: str, value: str) -> Iterator[str]:
    if is_secret(key):
        yield value
        # "id:secret", "Bearer token": who refuses one quotes the part.
        yield value.partition(":")[2]
        if ".header." in key:
            yield from value.split()[-1:]
        yield from _NAMED.findall(value)
        return
    for _, password in _IN_VALUE[0].findall(value):
        ends = [at for at, character in enumerate(password) if character in "@/"]
        for end in (*ends, len(password)):
            yield from (password[:end], unquote(password[:end]))
    for _, argument in _IN_VALUE[1].findall(value):
        yield from (argument, unquote(argument), unquote_plus(argument))
        yield from _NAMED.findall(unquote_plus(argument))
