"""The secret that every call brings along, and its file."""

from __future__ import annotations

import hmac
import secrets
import stat
from pathlib import Path
from typing import Final

from fluss_lab.errors import AuthenticationError
from fluss_lab.files import write_atomic

HEADER: Final = "authorization"
_SCHEME: Final = "Bearer "
#: Every call brings it along, in a header whose size servers bound.
TOKEN_BYTES_MAX: Final = 4_096


def make_token() -> str:
    """Return a new token of 256 random bits."""
    return secrets.token_urlsafe(32)


def write_token(path: Path, token: str) -> None:
    """Write a token file that only its owner may read."""
    write_atomic(path, token.encode(), mode=0o600)


def read_token(path: Path) -> str:
    """Return the token in a file.

    Raises:
        AuthenticationError: The file is missing, empty, too large, no token, or readable by others.
    """
    try:
        mode = path.stat().st_mode
        with path.open("rb") as file:
            content = file.read(TOKEN_BYTES_MAX + 1)
    except OSError as error:
        raise AuthenticationError(
            f"token file {path}: {error.strerror}; expected the file the server wrote: put it back, or stop the server and start "
            "another one (`fluss-lab down`, `fluss-lab up`), which makes a new one where there is none"
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise AuthenticationError(f"token file {path}: others may read it (mode {mode & 0o777:o}); expected 600")
    if len(content) > TOKEN_BYTES_MAX:
        raise AuthenticationError(
            f"token file {path}: expected at most {TOKEN_BYTES_MAX} bytes, found more: it is another file; name the one that the server "
            "wrote"
        )
    token = content.strip().decode("ascii", "replace")
    if not token:
        raise AuthenticationError(
            f"token file {path} is empty: remove it while no server runs, and the next one makes a new one"
        )
    if not token.isascii() or not token.isprintable():
        raise AuthenticationError(
            f"token file {path}: expected a token of printable ASCII characters, found others: it is damaged; remove it while no "
            "server runs, and the next one makes a new one"
        )
    return token


def header_of(token: str) -> tuple[str, str]:
    """Return the metadata entry that carries a token."""
    return (HEADER, _SCHEME + token)


def is_valid(value: str | bytes | None, token: str) -> bool:
    """Return, in constant time, whether a metadata value carries the token."""
    given = value.encode() if isinstance(value, str) else value or b""
    return hmac.compare_digest(given, (_SCHEME + token).encode())
