"""Small files that say whether they are whole: JSON, a newline, and the CRC-32C of the JSON in hexadecimal."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar

import google_crc32c

from fluss_lab import files
from fluss_lab.errors import CorruptDataError
from fluss_lab.model.json_codec import Forms, decode, encode

T = TypeVar("T")
_NO_FORMS: Final[Forms] = {}


def seal_content(body: bytes) -> bytes:
    """Return the bytes of a file with a content."""
    return b"%s\n%08x" % (body, google_crc32c.value(body))


def unseal_content(data: bytes) -> bytes | None:
    """Return the content of a file; None when it is not as it was sealed."""
    body = data.rpartition(b"\n")[0]
    return body if seal_content(body) == data else None


def save_sealed(
    path: Path, value: object, *, version: int, indent: int = -1, durable: bool = True, forms: Forms = _NO_FORMS
) -> None:
    """Replace a sealed file with a value: see `encode`.

    Raises:
        OSError: The file system refused; the old one stands.
    """
    files.write_atomic(path, seal_content(encode(value, version=version, indent=indent, forms=forms)), durable=durable)


def load_sealed(kind: type[T], path: Path, *, version: int, remedy: str, forms: Forms = _NO_FORMS) -> T | None:
    """Return the value of a type in a sealed file; None where there is no file. Arguments are those of `decode`.

    Raises:
        CorruptDataError: It is damaged, or no such value.
        UnsupportedError: A newer version wrote it.
        OSError: It cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return read_sealed(kind, data, str(path), version=version, remedy=remedy, forms=forms)


def read_sealed(kind: type[T], data: bytes, where: str, *, version: int, remedy: str, forms: Forms = _NO_FORMS) -> T:
    """Return the value of a type in the bytes of a sealed file; it raises as `load_sealed`."""
    if (body := unseal_content(data)) is None:
        raise CorruptDataError(f"{where}: the checksum does not agree; {remedy}")
    return decode(kind, body, where, version=version, remedy=remedy, forms=forms)
