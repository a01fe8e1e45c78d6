"""Seals of the files that tiering writes: what a file says of its own bytes, so that bytes that changed are not read.

Iceberg's formats have few checks of their own: a byte that changed in a manifest may still decode, to another file list or
other bounds. So each kind of file carries a digest where readers that do not know of it look past it:

* Avro files (manifests and their lists): the marker between blocks, which is any 16 bytes, is the digest of the rest; a key
  in the header says so.
* Table metadata: one more key at the end of the JSON object.
* Parquet files: a key in the footer holds the checksum of the footer; the pages have Parquet's own checksums. The footer is
  complete when the last byte is written, so its key is filled in afterwards: on this machine's file systems only.

Files that others wrote have no seal and are checked as far as their format allows.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, cast

from pyiceberg.io import InputFile, OutputFile, OutputStream

from fluss_lab.lake.iceberg.files.file_locations import OUR_DATA_NAME

#: Key in the header of sealed Avro files, and its value: the way in which the digest is made.
AVRO_KEY: Final = "fluss.seal"
AVRO_FORM: Final = b"blake2b-128"
#: Of the marker between the blocks of an Avro file, and so of a digest.
_MARKER_BYTES: Final = 16
#: Key of the seal in a JSON object, its last one.
JSON_KEY: Final = "fluss-seal"
_JSON_SEAL: Final = re.compile(rb',"fluss-seal":"([0-9a-f]{32})"\}\Z')
#: Key in the footer of sealed Parquet files. The value names the file: who copies rows copies keys of the footer too, and
#: what they say of another file says nothing, unless the file has one of tiering's own names: then that other one is in its place.
PARQUET_KEY: Final = "fluss.seal"
_MARK: Final = "crc32 of the footer of {}: "
#: Stands for the checksum while it is made, and stays where it was not filled in.
_OPEN: Final = b"--------"
_CHECKSUM: Final = re.compile(rb"[0-9a-f]{8}")
_ANY_MARK: Final = re.compile(_MARK.format("([^:]+)").encode())
_PARQUET_MAGIC: Final = b"PAR1"
#: At the end of a Parquet file: the footer's length, and the magic.
_TAIL_BYTES: Final = 8
#: Footers are read together with what lies before them; most are smaller.
_GUESS_BYTES: Final = 16 * 1024


# -- Avro --------------------------------------------------------------------------------------------------------------


def avro_digest(data: bytes, marker: bytes) -> bytes:
    """Return the digest of an Avro file: of all but the markers between its blocks."""
    return blake2b(b"".join(data.split(marker)), digest_size=_MARKER_BYTES).digest()


def seal_avro(data: bytes) -> bytes:
    """Return an Avro file whose header has `AVRO_KEY`, with its marker exchanged for the digest."""
    # A file ends in its marker: the header does, and each block.
    marker = data[-_MARKER_BYTES:]
    return avro_digest(data, marker).join(data.split(marker))


def check_avro(data: bytes, header: Mapping[str, bytes], marker: bytes) -> None:
    """Check the seal of an Avro file, if it has one.

    Raises:
        ValueError: The bytes are not those that were sealed.
    """
    if header.get(AVRO_KEY) == AVRO_FORM and avro_digest(data, marker) != marker:
        raise ValueError("its bytes are not those that were written: the digest differs")


class SealedOutput(OutputFile):
    """A file for pyiceberg's Avro writers, whose header is to have the key of a seal.

    Args:
        file: Where the file goes.
    """

    def __init__(self, file: OutputFile) -> None:
        super().__init__(file.location)
        self._file = file
        self._size_bytes = 0

    def __len__(self) -> int:
        return self._size_bytes

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self._file.exists()

    def to_input_file(self) -> InputFile:
        """Return the file to be read."""
        return self._file.to_input_file()

    def create(self, overwrite: bool = False) -> OutputStream:
        """Return a stream whose closing writes the file; one that is not closed leaves nothing behind."""
        return cast(OutputStream, _Stream(self, overwrite))

    def write(self, data: bytes, overwrite: bool) -> None:
        """Write the file, sealed."""
        sealed = seal_avro(data)
        with self._file.create(overwrite) as stream:
            stream.write(sealed)
        self._size_bytes = len(sealed)


class _Stream:
    """What is written, in memory."""

    def __init__(self, file: SealedOutput, overwrite: bool) -> None:
        self._file = file
        self._overwrite = overwrite
        self._held: BytesIO | None = BytesIO()

    def write(self, data: bytes) -> int:
        assert self._held is not None
        return self._held.write(data)

    def tell(self) -> int:
        assert self._held is not None
        return self._held.tell()

    def close(self) -> None:
        if (held := self._held) is not None:
            self._held = None
            self._file.write(held.getvalue(), self._overwrite)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()


# -- JSON --------------------------------------------------------------------------------------------------------------


def seal_json(text: bytes) -> bytes:
    """Return a JSON object, of one key or more and without space at its end, with a seal as its last key."""
    digest = blake2b(text, digest_size=_MARKER_BYTES).hexdigest().encode()
    return text[:-1] + b',"fluss-seal":"' + digest + b'"}'


def check_json(text: bytes) -> None:
    """Check the seal of a JSON object, if it has one.

    Raises:
        ValueError: The bytes are not those that were sealed.
    """
    if (found := _JSON_SEAL.search(text[-128:])) is None:
        return
    sealed = text[: -len(found.group())] + b"}"
    if blake2b(sealed, digest_size=_MARKER_BYTES).hexdigest().encode() != found.group(1):
        raise ValueError(
            f"its bytes are not those that were written: the digest differs (who changed it on purpose removes {JSON_KEY!r})"
        )


# -- Parquet -----------------------------------------------------------------------------------------------------------


def open_seal(name: str) -> str:
    """Return the value of `PARQUET_KEY` in the footer of a file of a name, to be filled in by `seal_parquet`."""
    return _MARK.format(name) + _OPEN.decode()


def seal_parquet(path: Path, name: str) -> None:
    """Fill in the checksum of a Parquet file's footer, if it has the key. Not durable before the caller makes it so.

    Args:
        path: The file.
        name: Its name, as `open_seal` was given it.

    Raises:
        OSError: The file cannot be read or written.
        ValueError: It is no Parquet file.
    """
    with path.open("r+b") as file:
        start, footer = _footer(file)
        mark = _MARK.format(name).encode()
        if (at := footer.find(mark + _OPEN)) >= 0:
            file.seek(start + at + len(mark))
            file.write(b"%08x" % zlib.crc32(footer))


def check_parquet(path: Path) -> None:
    """Check the seal of a local Parquet file's footer, if it has one.

    Raises:
        FileNotFoundError, OSError: It cannot be read.
        ValueError: It is no Parquet file, the bytes of the footer are not those that were written, or it is another file of
            tiering's.

    Cost: some 30 microseconds.
    """
    with path.open("rb") as file:
        _check_footer(_footer(file)[1], path.name)


def check_parquet_bytes(data: bytes | memoryview, name: str) -> None:
    """Check the seal of the footer of a Parquet file in memory, of a name, if it has one.

    Raises:
        ValueError: As `check_parquet`.
    """
    start = _footer_start(bytes(data[-_TAIL_BYTES:]), len(data))
    _check_footer(bytes(data[start:-_TAIL_BYTES]), name)


def _footer(file: BinaryIO) -> tuple[int, bytes]:
    """Return where the footer of a Parquet file begins, and the footer."""
    size = file.seek(0, 2)
    before = max(size - _GUESS_BYTES, 0)
    file.seek(before)
    tail = file.read()
    start = _footer_start(tail[-_TAIL_BYTES:], size)
    if start < before:
        file.seek(start)
        return start, file.read(size - _TAIL_BYTES - start)
    return start, tail[start - before : -_TAIL_BYTES]


def _footer_start(tail: bytes, size: int) -> int:
    """Return where the footer begins, by the last bytes of a file of a size."""
    start = size - _TAIL_BYTES - int.from_bytes(tail[:4], "little")
    if len(tail) < _TAIL_BYTES or tail[4:] != _PARQUET_MAGIC or start < len(_PARQUET_MAGIC):
        raise ValueError(f"expected a Parquet file, found {size} bytes that end in {tail!r}")
    return start


def _check_footer(footer: bytes, name: str) -> None:
    mark = _MARK.format(name).encode()
    if (found := footer.find(mark)) < 0:
        if OUR_DATA_NAME.fullmatch(name) and (other := _ANY_MARK.search(footer)):
            raise ValueError(f"in its place is {other.group(1).decode(errors='replace')}, another file of tiering's")
        return
    at = found + len(mark)
    checksum = footer[at : at + len(_OPEN)]
    if _CHECKSUM.fullmatch(checksum) and zlib.crc32(footer[:at] + _OPEN + footer[at + len(_OPEN) :]) != int(
        checksum, 16
    ):
        raise ValueError("the bytes of its footer are not those that were written: the checksum differs")
