"""A segment of the remote log as a file, and the index of its blocks: what writers make and every reader checks.

A segment that was copied has a folder named by its id, a UUID, with these files (little endian)::

    <base offset, 20 digits>.log     batches, one after another, in blocks of whole ones
    <base offset>.prev               previous offsets, int64 a record at 8 x its relative offset (of changelogs)
    <base offset>.blocks             what follows

    magic "FLRB" | version uint16 | flags uint16 (1: there are previous offsets) | segment id 16 bytes
    | base offset int64 | end offset int64 | size int64 | largest timestamp int64 | blocks int32
    for each block: position int64 | base offset int64 | timestamp of its first batch int64
                    | CRC-32C of its bytes uint32 | CRC-32C of its records' previous offsets uint32
    CRC-32C of all before

A batch's own CRC covers neither its offset nor its timestamp; a block's covers both. So a reader that checks blocks
serves what was copied, or nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast
from uuid import UUID

import google_crc32c
import numpy as np
import numpy.typing as npt

from fluss_lab.closing import Closing
from fluss_lab.errors import CorruptDataError, UnsupportedError
from fluss_lab.model.format_versions import check_format
from fluss_lab.records.batch import BatchHeader, split_headers
from fluss_lab.storage.file_store import FileReader, P, Place
from fluss_lab.storage.store_location import store_of

LOG_SUFFIX: Final = ".log"
PREVIOUS_SUFFIX: Final = ".prev"
INDEX_SUFFIX: Final = ".blocks"
VERSION: Final = 1
VALUE_BYTES: Final = 8
_MAGIC: Final = b"FLRB"
_HAS_PREVIOUS: Final = 1
_HEADER: Final = struct.Struct("<4sHH16sqqqqi")
_CRC: Final = struct.Struct("<I")
_DAMAGED: Final = "the file is damaged. Restore it from a copy, or read from an offset behind it"
_ENTRIES: Final = np.dtype(
    [("position", "<i8"), ("base_offset", "<i8"), ("timestamp_ms", "<i8"), ("crc", "<u4"), ("previous_crc", "<u4")]
)


@dataclass(frozen=True, slots=True)
class Block:
    """Some whole batches of a segment.

    Attributes:
        position: Where they begin in the file.
        base_offset: Offset of their first record.
        timestamp_ms: Of the first batch.
        crc: CRC-32C of their bytes.
        previous_crc: CRC-32C of their records' previous offsets; 0 where there are none.
    """

    position: int
    base_offset: int
    timestamp_ms: int
    crc: int
    previous_crc: int = 0


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """The identity of one remote segment: its id, its offsets ``[base_offset, end_offset)``, the bytes of its batches."""

    segment_id: str
    base_offset: int
    end_offset: int
    size_bytes: int

    def path(self, folder: P, suffix: str) -> P:
        """Return the place of one of its files, in the bucket's remote folder."""
        return cast(P, folder / self.segment_id / f"{self.base_offset:020d}{suffix}")


class BlockIndex:
    """The blocks of one segment.

    Attributes:
        key: Which segment.
        max_timestamp_ms: Of its last batch.
        has_previous: Whether there are previous offsets.
    """

    def __init__(self, key: SegmentKey, max_timestamp_ms: int, has_previous: bool, entries: npt.NDArray[Any]) -> None:
        self.key = key
        self.max_timestamp_ms = max_timestamp_ms
        self.has_previous = has_previous
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    @staticmethod
    def of(key: SegmentKey, max_timestamp_ms: int, has_previous: bool, blocks: Iterable[Block]) -> BlockIndex:
        """Return the index of blocks that lie one after another."""
        rows = [(b.position, b.base_offset, b.timestamp_ms, b.crc, b.previous_crc) for b in blocks]
        return BlockIndex(key, max_timestamp_ms, has_previous, np.array(rows, dtype=_ENTRIES))

    def to_bytes(self) -> bytes:
        """Return the content of the index file."""
        key = self.key
        header = _HEADER.pack(
            _MAGIC, VERSION, _HAS_PREVIOUS if self.has_previous else 0, UUID(key.segment_id).bytes, key.base_offset,
            key.end_offset, key.size_bytes, self.max_timestamp_ms, len(self),
        )  # fmt: skip
        body = header + self._entries.tobytes()
        return body + _CRC.pack(google_crc32c.value(body))

    @staticmethod
    def from_bytes(data: bytes, where: str) -> BlockIndex:
        """Read an index file.

        Args:
            data: Its content.
            where: Its path, for messages.

        Raises:
            CorruptDataError: It is damaged.
            UnsupportedError: A newer version wrote it.
        """
        if len(data) < _HEADER.size + _CRC.size or data[:4] != _MAGIC:
            raise CorruptDataError(
                f"{where}: not the index of a remote segment, or only {len(data)} bytes of one; {_DAMAGED}"
            )
        body, crc = data[: -_CRC.size], _CRC.unpack(data[-_CRC.size :])[0]
        _, version, flags, uuid, base, end, size, max_timestamp_ms, count = _HEADER.unpack_from(body)
        if (found := google_crc32c.value(body)) != crc or len(body) != _HEADER.size + count * _ENTRIES.itemsize:
            raise CorruptDataError(
                f"{where}: expected CRC {crc:08x} and {count} blocks, found CRC {found:08x}; {_DAMAGED}"
            )
        check_format(where, version, VERSION)
        if version != VERSION:
            raise UnsupportedError(f"{where}: expected version {VERSION}, found {version}; use a newer fluss_lab")
        key = SegmentKey(str(UUID(bytes=uuid)), base, end, size)
        entries = np.frombuffer(body, _ENTRIES, count, _HEADER.size)
        return BlockIndex(key, max_timestamp_ms, bool(flags & _HAS_PREVIOUS), entries)

    def block(self, at: int) -> Block:
        """Return one block."""
        position, base_offset, timestamp_ms, crc, previous_crc = self._entries[at].item()
        return Block(position, base_offset, timestamp_ms, crc, previous_crc)

    def positions(self, at: int) -> tuple[int, int]:
        """Return where a block begins and ends in the file."""
        stop = self.key.size_bytes if at + 1 == len(self) else self._entries["position"][at + 1]
        return int(self._entries["position"][at]), int(stop)

    def offsets(self, at: int) -> tuple[int, int]:
        """Return the first offset of a block, and the one after its last."""
        stop = self.key.end_offset if at + 1 == len(self) else self._entries["base_offset"][at + 1]
        return int(self._entries["base_offset"][at]), int(stop)

    def at_offset(self, offset: int) -> int:
        """Return the number of the block that holds an offset of the segment."""
        return max(0, int(np.searchsorted(self._entries["base_offset"], offset, side="right")) - 1)

    def before_time(self, timestamp_ms: int) -> int:
        """Return the number of a block such that the first batch at or after a time is in it or the next with records."""
        return max(0, int(np.searchsorted(self._entries["timestamp_ms"], timestamp_ms, side="left")) - 1)


class SegmentFile(Closing):
    """A segment in remote storage, open for reading. Use it as a context manager.

    In a file system it can be read to its end though it is deleted meanwhile; of an object store, what is read then raises
    `FileNotFoundError`.

    Args:
        folder: The bucket's remote folder.

    Raises:
        FileNotFoundError: It is not there.
        OSError: It cannot be read.
        CorruptDataError: Its index is damaged, or of another segment. The text names the file.
    """

    def __init__(self, folder: Place, key: SegmentKey) -> None:
        self._store = store_of(folder)
        self.path = key.path(folder, LOG_SUFFIX)
        self._previous_path = key.path(folder, PREVIOUS_SUFFIX)
        path = key.path(folder, INDEX_SUFFIX)
        self.index = BlockIndex.from_bytes(self._store.read(path), str(path))
        if self.index.key != key:
            raise CorruptDataError(f"{path}: expected the index of {key}, found that of {self.index.key}")
        self._file = self._store.open(self.path, key.size_bytes)
        self._previous_file: FileReader | None = None
        self._block_end = 0

    def close(self) -> None:
        """Close the files. Closing again does nothing."""
        self._file.close()
        if self._previous_file is not None:
            self._previous_file.close()

    def read_ahead(self, stop: int | None) -> None:
        """Expect that blocks are read one after another, up to the one before an offset; None: up to the end."""
        self._block_end = len(self.index)
        if stop is not None and stop < self.index.key.end_offset:
            self._block_end = self.index.at_offset(stop - 1) + 1

    def block(self, at: int) -> bytes:
        """Return the bytes of a block: whole batches, as they were copied.

        Raises:
            CorruptDataError: They are damaged or missing.
            OSError: They cannot be read.
        """
        start, stop = self.index.positions(at)
        until = self.index.positions(self._block_end - 1)[1] if at < self._block_end else stop
        data = self._file.read(start, stop, until)
        _check(self.path, start, stop, data, self.index.block(at).crc)
        return data

    def batches(self, at: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield header and whole bytes of each batch of a block; their own CRCs are not checked.

        Raises:
            CorruptDataError: As `block`; or it is not made of batches.
            UnsupportedError: A batch is of a newer format.
            OSError: They cannot be read.
        """
        data = self.block(at)
        try:
            yield from split_headers(data)
        except (CorruptDataError, UnsupportedError) as error:
            raise type(error)(f"{self.path}: {error}") from error

    def previous(self, at: int) -> bytes:
        """Return the previous offsets of a block's records, little-endian int64.

        Raises:
            CorruptDataError: They are damaged or missing, or the segment has none.
            FileNotFoundError: Their file is not there.
            OSError: They cannot be read.
        """
        if not self.index.has_previous:
            raise CorruptDataError(f"{self.path}: the segment was copied without previous offsets")
        key = self.index.key
        if self._previous_file is None:
            size = VALUE_BYTES * (key.end_offset - key.base_offset)
            self._previous_file = self._store.open(self._previous_path, size)
        start, stop = (VALUE_BYTES * (each - key.base_offset) for each in self.index.offsets(at))
        last = self.index.offsets(self._block_end - 1)[1] if at < self._block_end else 0
        data = self._previous_file.read(start, stop, max(stop, VALUE_BYTES * (last - key.base_offset)))
        _check(self._previous_path, start, stop, data, self.index.block(at).previous_crc)
        return data


def _check(path: Place, start: int, stop: int, data: bytes, crc: int) -> None:
    if len(data) != stop - start or google_crc32c.value(data) != crc:
        problem = "the CRC does not agree" if len(data) == stop - start else f"found {len(data)} bytes"
        raise CorruptDataError(f"{path}: bytes [{start}, {stop}): {problem}; {_DAMAGED}")
