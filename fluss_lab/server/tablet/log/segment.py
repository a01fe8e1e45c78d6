"""One segment of a bucket's log: a file of batches that lie one after another, and its sparse indexes.

The file is named by the offset of its first record, 20 digits. What is in it is known from what is behind it: each batch
must begin at the offset where the one before ended, with a timestamp that does not go back. Every reader here walks
that chain, so that a header that rotted on the disk is found before its batch leaves the server. Timestamps, which the batch's CRC does not cover, are also held against
the index.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Final, NamedTuple

from fluss_lab import files
from fluss_lab.errors import CorruptDataError, UnsupportedError
from fluss_lab.failpoints import failpoint
from fluss_lab.records.batch import (
    HEADER,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    BatchHeader,
    check_header,
    newer_format,
    read_header,
)
from fluss_lab.server.tablet.log.file_handles import HandlePool
from fluss_lab.server.tablet.log.previous_offsets import Offsets, PreviousOffsets
from fluss_lab.server.tablet.log.sparse_index import NO_MARK, IndexMark, SparseIndex

LOG_SUFFIX: Final = ".log"
#: Why bytes are no batch that can be served: they are damaged, or of a newer format.
UNREADABLE: Final = (CorruptDataError, UnsupportedError)
#: Buffers of one system call: Linux's IOV_MAX.
_BUFFERS_MAX: Final = 1024
#: Bytes read at once while walking headers: what lies between two index entries, and the next header.
_WALK_BYTES: Final = 8192


class BatchPosition(NamedTuple):
    """Where a batch begins: its position in the segment, its base offset, and the timestamp before it."""

    position: int
    base_offset: int
    floor_ms: int


@dataclass(frozen=True, slots=True)
class SegmentMark:
    """A segment in a checkpoint: up to here it was whole and on the device."""

    base_offset: int
    size: int
    end_offset: int
    max_timestamp_ms: int
    index: IndexMark


class Segment:
    """A segment, open for reading and, while it is the last of its log, for appending.

    One thread changes it, under the bucket's lock; any number of threads read below `size` at the same time.

    Attributes:
        base_offset: Offset of the first record.
        end_offset: Offset after the last record.
        size: Bytes of whole batches; the file may be longer by what a failed write left.
        synced_size: Bytes of them known to be on the device.
        max_timestamp_ms: Timestamp of the last batch; -1 without any.
        previous: The previous offsets of its records, if it is of a primary-key table's changelog.
    """

    def __init__(
        self, folder: Path, base_offset: int, pool: HandlePool, interval_bytes: int, *, changelog: bool = False
    ) -> None:
        self.path = folder / f"{base_offset:020d}{LOG_SUFFIX}"
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.size = 0
        self.synced_size = 0
        self.max_timestamp_ms = -1
        self._pool = pool
        self._interval_bytes = interval_bytes
        self._index = SparseIndex(self.path.with_suffix(""), interval_bytes)
        self.previous = PreviousOffsets(self.path.with_suffix(""), pool) if changelog else None
        self._unread: IndexMark | None = None
        self._index_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Segment [{self.base_offset}, {self.end_offset}) {self.size} bytes>"

    def successor(self) -> Segment:
        """Return the segment that goes on where this one ends; its files are not made yet."""
        changelog = self.previous is not None
        return Segment(self.path.parent, self.end_offset, self._pool, self._interval_bytes, changelog=changelog)

    def create(self) -> None:
        """Make the files, empty; their names are on the device when this returns.

        Raises:
            OSError: The file system refused; nothing of them is left, if it lets them go.
        """
        try:
            if self.previous is not None:
                self.previous.create()
            self._pool.create(self.path)
            files.fsync_folder(self.path.parent)
        except OSError:
            with suppress(OSError):
                self.delete()
            raise

    def restore(self, mark: SegmentMark) -> None:
        """Believe a checkpoint instead of reading the segment; the indexes are read when they are first needed."""
        self.size = self.synced_size = mark.size
        self.end_offset = mark.end_offset
        self.max_timestamp_ms = mark.max_timestamp_ms
        self._unread = mark.index

    def draft(self) -> SegmentMark:
        """Return what a checkpoint should say of the segment now; the CRCs of the index come from `index_mark`."""
        unread = self._unread
        entries = len(self._index) if unread is None else unread.entries
        return SegmentMark(self.base_offset, self.size, self.end_offset, self.max_timestamp_ms, IndexMark(entries))

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self, buffers: Sequence[bytearray | memoryview], previous: Offsets | None = None) -> None:
        """Write bytes behind the last batch. Nothing is appended before `admit`.

        Args:
            buffers: Whole batches; one batch, if it has previous offsets.
            previous: The previous offsets of its records, which are written before it.

        Raises:
            OSError: Not all bytes were written. What was is cut off again, so that later writes may succeed.
            CorruptDataError: It could not be cut off: the segment must no longer be written.
        """
        if self.previous is not None and previous is not None:
            self.previous.write(self.end_offset - self.base_offset, previous)
        handle = self._pool.get(self.path)
        try:
            failpoint("tablet.append.before_write")
            _write_all(handle.fd, buffers, self.size)
            failpoint("tablet.append.after_write")
        except BaseException:
            try:
                os.ftruncate(handle.fd, self.size)
            except OSError as error:
                raise CorruptDataError(
                    f"{self.path.name}: a failed write left bytes behind {self.size} that could not be cut off: {error}"
                ) from error
            raise

    def admit(self, size: int, next_offset: int, timestamp_ms: int) -> None:
        """Take a batch that was written into the segment: readers may find it from now on."""
        if self.previous is not None:
            self.previous.admit()
        self.index.add(self.end_offset - self.base_offset, self.size, timestamp_ms)
        self.max_timestamp_ms = timestamp_ms
        self.end_offset = next_offset
        self.size += size

    def sync(self, size: int) -> None:
        """Return when the file's first `size` bytes are on the device.

        Raises:
            OSError: The device refused: the segment must no longer be written.
        """
        handle = self._pool.get(self.path)
        files.fsync_file(handle.fd)
        self.synced_size = max(self.synced_size, size)

    def cut(self) -> None:
        """Cut off what lies behind the last whole batch, durably; in a lab's shadow it is passed over.

        Raises:
            OSError: The file system refused.
        """
        if self.path.is_symlink():
            return
        handle = self._pool.get(self.path)
        os.ftruncate(handle.fd, self.size)
        self.sync(self.size)

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def index(self) -> SparseIndex:
        """Return the indexes, read or made again if they were not yet needed."""
        if self._unread is not None:
            with self._index_lock:
                if self._unread is not None:
                    self._load_index(self._unread)
                    self._unread = None
        return self._index

    def index_mark(self, entries: int) -> IndexMark:
        """Bring the index files up to a number of entries and return what they hold.

        Raises:
            OSError: The file system refused.
        """
        unread = self._unread
        if unread is not None:
            return unread
        return self._index.write(entries)

    def _load_index(self, mark: IndexMark) -> None:
        if self._index.load(mark):
            return
        fresh = SparseIndex(self.path.with_suffix(""), self._interval_bytes)
        for place, header in self._walk(BatchPosition(0, self.base_offset, -1), self.size, repeat(NO_MARK)):
            fresh.add(place.base_offset - self.base_offset, place.position, header.timestamp_ms)
        self._index = fresh

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes in ``[start, stop)`` of the file.

        Raises:
            CorruptDataError: The file is shorter than that.
            FileNotFoundError: The segment was deleted.
        """
        handle = self._pool.get(self.path)
        data = os.pread(handle.fd, stop - start, start)
        while len(data) < stop - start:
            more = os.pread(handle.fd, stop - start - len(data), start + len(data))
            if not more:
                raise CorruptDataError(f"{self.path.name}: expected {self.size} bytes, found {start + len(data)}")
            data += more
        return data

    def first_timestamp_ms(self) -> int | None:
        """Return the timestamp of the first batch; None without any."""
        return self.index.first_timestamp_ms() if self.size else None

    def find_offset(self, offset: int, limit: int) -> BatchPosition | None:
        """Return where the batch that holds an offset begins; None when it begins at or behind a position.

        Cost: one index lookup, then the headers between two index entries.
        """
        relative, position = self.index.before_offset(offset - self.base_offset)
        for place, header in self._walk(BatchPosition(position, self.base_offset + relative, -1), limit):
            if header.next_offset > offset:
                return place
        return None

    def header(self, place: BatchPosition, limit: int) -> BatchHeader:
        """Return the header of the batch at a place, which ends at or before a position.

        Raises:
            CorruptDataError: What lies there is no batch that continues the log.
        """
        return next(header for _, header in self._walk(place, limit))

    def find_time(self, timestamp_ms: int, limit: int) -> BatchHeader | None:
        """Return the first batch with records at or after a time, before a position; None when there is none."""
        relative, position = self.index.before_time(timestamp_ms)
        for _, header in self._walk(BatchPosition(position, self.base_offset + relative, -1), limit):
            if header.timestamp_ms >= timestamp_ms and header.record_count:
                return header
        return None

    def _walk(
        self, place: BatchPosition, limit: int, marks: Iterator[tuple[int, int]] | None = None
    ) -> Iterator[tuple[BatchPosition, BatchHeader]]:
        """Yield each batch from a place on, and stop at a position. Only headers are read, and held against marks."""
        chunk, chunk_start = b"", 0
        marks = self.index.marks(place.position) if marks is None else marks
        mark, mark_ms = next(marks)
        while place.position < limit:
            at = place.position - chunk_start
            if at + HEADER_BYTES > len(chunk):
                chunk_start, at = place.position, 0
                chunk = self.read(chunk_start, min(chunk_start + _WALK_BYTES, limit))
            header = read_header(chunk, at)
            check_header(header, limit - place.position)
            timestamp_ms = header.timestamp_ms
            late = timestamp_ms > mark_ms or (place.position == mark and timestamp_ms != mark_ms)
            if header.base_offset != place.base_offset or timestamp_ms < place.floor_ms or late:
                raise self._broken_error(place, header.base_offset, timestamp_ms)
            if place.position == mark:
                mark, mark_ms = next(marks)
            yield place, header
            place = BatchPosition(place.position + header.size, header.next_offset, timestamp_ms)

    def take_whole(
        self, data: bytes, place: BatchPosition
    ) -> tuple[BatchPosition, CorruptDataError | UnsupportedError | None]:
        """Return the place behind the last good batch in bytes that were read from a place on.

        Returns:
            The place behind the last batch that is whole in the bytes, and what is wrong there: None when the bytes
            just end, an error when the header there does not continue the batch before it.

        Cost: 0.5 us a batch.
        """
        start, offset, floor_ms = place
        marks = self.index.marks(start)
        mark, mark_ms = next(marks)
        at, size, unpack = 0, len(data), HEADER.unpack_from
        while at + HEADER_BYTES <= size:
            base, length, magic, timestamp, _, _, _, delta, _, _, count = unpack(data, at)
            bad = base != offset or not floor_ms <= timestamp <= mark_ms or magic != MAGIC or count < 0
            if bad or length < HEADER_BYTES - PREFIX_BYTES or delta != max(count - 1, 0):
                here = BatchPosition(start + at, offset, floor_ms)
                if magic > MAGIC and base == offset:
                    return here, newer_format(read_header(data, at))
                return here, self._broken_error(here, base, timestamp)
            if start + at == mark:
                if timestamp != mark_ms:
                    here = BatchPosition(start + at, offset, mark_ms)
                    return here, self._broken_error(here, base, timestamp)
                mark, mark_ms = next(marks)
            if at + length + PREFIX_BYTES > size:
                break
            at, offset, floor_ms = at + length + PREFIX_BYTES, base + count, timestamp
        return BatchPosition(start + at, offset, floor_ms), None

    def _broken_error(self, place: BatchPosition, offset: int, timestamp_ms: int) -> CorruptDataError:
        return CorruptDataError(
            f"{self.path.name} at byte {place.position}: expected a batch at offset {place.base_offset} with a time from "
            f"{place.floor_ms} on, as the index has it, found offset {offset} and time {timestamp_ms}"
        )

    def delete(self) -> None:
        """Remove the files. Readers that have the segment open read on.

        Raises:
            OSError: The file system refused.
        """
        for path in (self.path, *self._index.paths()):
            path.unlink(missing_ok=True)
        self._pool.forget(self.path)
        if self.previous is not None:
            self.previous.delete()


def _write_all(fd: int, buffers: Sequence[bytearray | memoryview], position: int) -> None:
    at = 0
    while at < len(buffers):
        some = buffers[at : at + _BUFFERS_MAX]
        size = sum(len(buffer) for buffer in some)
        written = os.pwritev(fd, some, position)
        position += written
        if written < size:
            rest = memoryview(b"".join(some))[written:]
            while rest:
                written = os.pwrite(fd, rest, position)
                position, rest = position + written, rest[written:]
        at += len(some)
