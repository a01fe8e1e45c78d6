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


def make_token() -> str:
    """Return a new token of 256 random bits."""
    return secrets.token_urlsafe(32)


def write_token(path: Path, token: str) -> None:
    """Write a token file that only its owner may read."""
    write_atomic(path, token.encode(), mode=0o600)


def read_token(path: Path) -> str:
    """Return the token in a file.

    Raises:
        AuthenticationError: The file is missing, empty, no token, or readable by others.
    """
    try:
        mode = path.stat().st_mode
        token = path.read_bytes().strip().decode("ascii", "replace")
    except OSError as error:
        raise AuthenticationError(
            f"token file {path}: {error.strerror}; expected the file the server wrote: put it back, or stop the server and start "
            "another one (`fluss-lab down`, `fluss-lab up`), which makes a new one where there is none"
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise AuthenticationError(f"token file {path}: others may read it (mode {mode & 0o777:o}); expected 600")
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
