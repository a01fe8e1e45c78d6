"""The rows that a task leaves in a folder for the task of the next micro-batch: Arrow files, memory-mapped, and what they are of.

The head names its files and has a checksum of each; it is replaced last, at once. What cannot be read, is damaged or of something else
is not there.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import google_crc32c
import msgspec
import pyarrow as pa

from fluss_lab.errors import FlussError
from fluss_lab.files import make_folder, write_atomic
from fluss_lab.model.json_codec import check_checksum, decode, from_plain, to_plain, with_checksum
from fluss_lab.model.json_codec import encode as encode_json

_VERSION: Final = 1
_HEAD: Final = "head.json"
_SUFFIX: Final = ".arrow"
#: So much is copied at a time to be checked.
_CHECKED_BYTES: Final = 1 << 20


class _File(msgspec.Struct, frozen=True):
    name: str
    checksum: int


class _Head(msgspec.Struct, frozen=True):
    """What is kept.

    Attributes:
        of: What the rows are of: they are used for the same only.
        point: The read point that they are at.
        files: By what they are.
    """

    of: str
    point: str
    files: dict[str, _File]


class KeptRows:
    """A folder with Arrow batches at a read point. Nothing in it is needed: what is lost is read again.

    Args:
        folder: May not be there.
        of: What the rows are of: table, columns, buckets.
    """

    def __init__(self, folder: Path, of: str) -> None:
        self._folder, self._of = folder, of

    def read(self) -> tuple[str, dict[str, pa.RecordBatch]] | None:
        """Return the read point, and the batches by name, memory-mapped; None where there are none to be used.

        Cost: a pass over the files, for their checksums.
        """
        try:
            head = self._head()
            if head is None or head.of != self._of:
                return None
            found = {name: _read(self._folder / each.name, each.checksum) for name, each in head.files.items()}
        except (OSError, FlussError, ValueError, KeyError, pa.ArrowException):
            return None
        return head.point, found

    def write(self, point: str, batches: Mapping[str, pa.RecordBatch | None]) -> None:
        """Replace what is kept.

        Args:
            point: The read point that the rows are at.
            batches: By name; None: as it was written before.

        Raises:
            OSError, ValueError, KeyError: It could not be written, or what was written before is gone; what was kept is as it
                was, or not there.
        """
        make_folder(self._folder)
        known = self._known_files() if None in batches.values() else {}
        files = {
            name: known[name] if batch is None else _write(self._folder, name, batch) for name, batch in batches.items()
        }
        plain = with_checksum(to_plain(_Head(self._of, point, files), version=_VERSION))
        write_atomic(self._folder / _HEAD, encode_json(plain), durable=False)
        used = {each.name for each in files.values()}
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path.name not in used:
                with suppress(OSError):  # it is not read any more, whether it goes or not
                    path.unlink()

    def _known_files(self) -> dict[str, _File]:
        return {} if (head := self._head()) is None else head.files

    def _head(self) -> _Head | None:
        path = self._folder / _HEAD
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        plain = decode(dict, data, path, version=_VERSION)
        check_checksum(path, plain)
        return from_plain(_Head, plain, path)


def _write(folder: Path, name: str, batch: pa.RecordBatch) -> _File:
    path = folder / f"{name}-{secrets.token_hex(8)}{_SUFFIX}"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    os.chmod(path, 0o600)
    with pa.memory_map(str(path)) as mapped:
        return _File(path.name, _checksum(mapped.read_buffer()))


def _read(path: Path, checksum: int) -> pa.RecordBatch:
    with pa.memory_map(str(path)) as mapped:
        data = mapped.read_buffer()
    if _checksum(data) != checksum:
        raise ValueError(f"{path}: its checksum does not fit")
    reader = pa.ipc.open_file(data)
    if reader.num_record_batches != 1:
        raise ValueError(f"{path}: expected one batch, found {reader.num_record_batches}")
    return reader.get_batch(0)


def _checksum(data: pa.Buffer) -> int:
    found = 0
    for start in range(0, data.size, _CHECKED_BYTES):
        found = google_crc32c.extend(found, data.slice(start, min(_CHECKED_BYTES, data.size - start)).to_pybytes())
    return int(found)
