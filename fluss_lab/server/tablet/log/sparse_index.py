"""The sparse indexes of a segment: where batches begin, by offset and by time.

Two files beside the segment, little endian, both with one entry for the same batches: the first of the segment, then
the next after every `log.index.interval-size` bytes::

    .index      relative offset int32 | position int32
    .timeindex  timestamp int64 | relative offset int32

An index is a shortcut, never an authority: its files are believed only where their CRC is the one in the bucket's
checkpoint, and are otherwise made again from the segment.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final

import google_crc32c

OFFSET_ENTRY: Final = Struct("<ii")
TIME_ENTRY: Final = Struct("<qi")
#: A mark where there is no entry: at no position, and later than every time.
NO_MARK: Final = (-1, 2**63 - 1)
OFFSET_SUFFIX: Final = ".index"
TIME_SUFFIX: Final = ".timeindex"


@dataclass(frozen=True, slots=True)
class IndexMark:
    """What the files of an index hold: how many entries, and the CRC-32C of each file up to there."""

    entries: int = 0
    offsets_crc: int = 0
    times_crc: int = 0


class SparseIndex:
    """The indexes of one segment, in memory; their files follow when `write` is called.

    One thread adds, under the bucket's lock; any number of threads look up at the same time.

    Args:
        stem: Path of the segment without suffix.
        interval_bytes: Bytes of log between two entries, at least.
    """

    def __init__(self, stem: Path, interval_bytes: int) -> None:
        self.offsets_path = stem.with_suffix(OFFSET_SUFFIX)
        self.times_path = stem.with_suffix(TIME_SUFFIX)
        self._interval_bytes = interval_bytes
        self._offsets = bytearray()
        self._times = bytearray()
        # Both halves of the offset entries by themselves, to be searched at the speed of C.
        self._relatives, self._positions = array("i"), array("i")
        self._next_position = 0
        self._written = IndexMark()

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, relative_offset: int, position: int, timestamp_ms: int) -> None:
        """Note a batch; it becomes an entry when the last one is far enough behind."""
        if position < self._next_position:
            return
        self._next_position = position + self._interval_bytes
        # Lookups count the positions, so all else is there first.
        self._times += TIME_ENTRY.pack(timestamp_ms, relative_offset)
        self._offsets += OFFSET_ENTRY.pack(relative_offset, position)
        self._relatives.append(relative_offset)
        self._positions.append(position)

    def before_offset(self, relative_offset: int) -> tuple[int, int]:
        """Return (relative offset, position) of the last entry at or before an offset; of the segment's start if none."""
        return self._entry(bisect_right(self._relatives, relative_offset, 0, len(self)) - 1)

    def before_time(self, timestamp_ms: int) -> tuple[int, int]:
        """Return (relative offset, position) of the last entry older than a time; of the segment's start if none."""
        times = self._times
        at = bisect_left(range(len(self)), timestamp_ms, key=lambda i: TIME_ENTRY.unpack_from(times, i * 12)[0])
        return self._entry(at - 1)

    def marks(self, position: int) -> Iterator[tuple[int, int]]:
        """Yield (position, timestamp) of the entries at and behind a position, and do not end.

        Timestamps are not under a batch's CRC, but these are under the checkpoint's: readers compare. Behind the last
        entry follow marks that no batch can miss.
        """
        positions, times = self._positions, self._times
        entries = len(self)
        for i in range(bisect_left(positions, position, 0, entries), entries):
            yield positions[i], TIME_ENTRY.unpack_from(times, i * 12)[0]
        while True:
            yield NO_MARK

    def relatives(self) -> list[int]:
        """Return the relative offsets of all entries."""
        return list(self._relatives)

    def first_timestamp_ms(self) -> int | None:
        """Return the timestamp of the segment's first batch; None without any."""
        return None if not self._times else int(TIME_ENTRY.unpack_from(self._times, 0)[0])

    def _entry(self, at: int) -> tuple[int, int]:
        return (0, 0) if at < 0 else (self._relatives[at], self._positions[at])

    def write(self, entries: int) -> IndexMark:
        """Bring the files up to a number of entries and return what they hold. Nothing is made durable: see above.

        Raises:
            OSError: The file system refused; the files are tried again from the same place next time.
        """
        done = self._written
        if entries > done.entries:
            offsets = bytes(self._offsets[done.entries * OFFSET_ENTRY.size : entries * OFFSET_ENTRY.size])
            times = bytes(self._times[done.entries * TIME_ENTRY.size : entries * TIME_ENTRY.size])
            _write_at(self.offsets_path, done.entries * OFFSET_ENTRY.size, offsets)
            _write_at(self.times_path, done.entries * TIME_ENTRY.size, times)
            self._written = IndexMark(
                entries, google_crc32c.extend(done.offsets_crc, offsets), google_crc32c.extend(done.times_crc, times)
            )
        return self._written

    def load(self, mark: IndexMark) -> bool:
        """Take the entries from the files, if they are what the mark says; return whether they were."""
        offsets = _read(self.offsets_path, mark.entries * OFFSET_ENTRY.size)
        times = _read(self.times_path, mark.entries * TIME_ENTRY.size)
        if google_crc32c.value(offsets) != mark.offsets_crc or google_crc32c.value(times) != mark.times_crc:
            return False
        if len(offsets) != mark.entries * OFFSET_ENTRY.size or len(times) != mark.entries * TIME_ENTRY.size:
            return False
        self._offsets, self._times, self._written = bytearray(offsets), bytearray(times), mark
        entries = list(OFFSET_ENTRY.iter_unpack(offsets))
        self._relatives = array("i", [relative for relative, _ in entries])
        self._positions = array("i", [position for _, position in entries])
        self._next_position = self._entry(mark.entries - 1)[1] + self._interval_bytes if mark.entries else 0
        return True

    def paths(self) -> tuple[Path, Path]:
        """Return the paths of both files."""
        return self.offsets_path, self.times_path


def _read(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""


def _write_at(path: Path, position: int, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, position)
        while data:
            written = os.pwrite(fd, data, position)
            position, data = position + written, data[written:]
    finally:
        os.close(fd)
