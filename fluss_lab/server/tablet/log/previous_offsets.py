"""The previous offsets of a changelog segment: for each record the offset of the row that it ends or replaces.

Two files beside the segment, little endian::

    .prev       int64 a record, at 8 x its relative offset; -1 where there was no row
    .prevcrc    a mark for each batch with records: relative offset int32 | records int32 | CRC-32C uint32

The CRC is that of the mark's own first eight bytes and the batch's values. Both are written before the batch, so that
what is in the log has its previous offsets; what a failed write left of them is overwritten by the next batch, or cut
off at the next start.

They follow from the log: replaying it gives them again. So they wait for the device only where no replay will follow:
when a segment is rolled, and before a key-value snapshot or a remote copy is taken (`BucketLog.sync`).
"""

from __future__ import annotations

import os
from bisect import bisect_left
from pathlib import Path
from struct import Struct
from typing import Final

import google_crc32c
import numpy as np
import numpy.typing as npt

from fluss_lab import files
from fluss_lab.errors import CorruptDataError
from fluss_lab.failpoints import failpoint
from fluss_lab.server.tablet.log.file_handles import HandlePool

VALUES_SUFFIX: Final = ".prev"
MARKS_SUFFIX: Final = ".prevcrc"
VALUE_BYTES: Final = 8
_MARK: Final = Struct("<iiI")
_SPAN: Final = Struct("<ii")
_MARKS: Final = np.dtype([("relative", "<i4"), ("count", "<i4"), ("crc", "<u4")])

Offsets = npt.NDArray[np.int64]


class PreviousOffsets:
    """The previous offsets of one segment.

    One thread changes them, under the bucket's lock; any number of threads read at the same time what was admitted.

    Args:
        stem: Path of the segment without suffix.
        pool: Opens files.
    """

    def __init__(self, stem: Path, pool: HandlePool) -> None:
        self.values_path = stem.with_suffix(VALUES_SUFFIX)
        self.marks_path = stem.with_suffix(MARKS_SUFFIX)
        self._pool = pool
        #: Marks that belong to batches in the log; None until they are read.
        self._entries: int | None = None
        self._pending = 0
        # Writes so far, and how many of them are on the device.
        self._written = self._synced = 0

    def __len__(self) -> int:
        if self._entries is None:
            self._entries = _size_of(self.marks_path) // _MARK.size
        return self._entries

    def paths(self) -> tuple[Path, Path]:
        """Return the paths of both files."""
        return self.values_path, self.marks_path

    def create(self) -> None:
        """Make the files, empty.

        Raises:
            OSError: The file system refused.
        """
        for path in self.paths():
            self._pool.create(path)
        self._entries = 0

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, relative_offset: int, values: Offsets) -> None:
        """Write the previous offsets of the batch that is about to be written. They count once it is admitted.

        Raises:
            OSError: The file system refused; the next batch is written over what was written.
        """
        self._pending = 0
        if not len(values):
            return
        failpoint("tablet.previous.before_write")
        entries, data = len(self), _bytes_of(values)
        self._written += 1
        _write_at(self._pool, self.values_path, relative_offset * VALUE_BYTES, data)
        _write_at(self._pool, self.marks_path, entries * _MARK.size, _mark(relative_offset, data))
        self._pending = 1
        failpoint("tablet.previous.after_write")

    def admit(self) -> None:
        """Take in what was last written: its batch is in the log."""
        if self._pending:
            self._entries = len(self) + self._pending
            self._pending = 0

    def sync(self) -> None:
        """Return when everything that was written before is on the device.

        Raises:
            OSError: The device refused: the segment must no longer be written.
        """
        if (written := self._written) == self._synced:
            return
        for path in self.paths():
            handle = self._pool.get(path)
            files.fsync_file(handle.fd)
        self._synced = written

    def renew(self) -> None:
        """Give the files new pages, durably: those that a failed fsync left behind would never be written again."""
        for path in self.paths():
            if path.exists():
                files.write_atomic(path, path.read_bytes())
                self._pool.forget(path)

    def delete(self) -> None:
        """Remove the files. Readers that have them open read on.

        Raises:
            OSError: The file system refused.
        """
        for path in self.paths():
            path.unlink(missing_ok=True)
            self._pool.forget(path)

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, start: int, stop: int) -> bytes:
        """Return the values of the records with relative offsets in ``[start, stop)``: whole batches, of the log.

        Raises:
            CorruptDataError: They are not here, or damaged. (The log itself need not be.)
            FileNotFoundError: A file is not there: the segment was deleted, or the file was lost.
        """
        if start >= stop:
            return b""
        marks, values = self._pool.get(self.marks_path), self._pool.get(self.values_path)
        found = _marks_from(marks.fd, len(self), start, stop - start)
        data = os.pread(values.fd, (stop - start) * VALUE_BYTES, start * VALUE_BYTES)
        view, relative = memoryview(data), start
        for mark in range(0, len(found), _MARK.size):
            if relative >= stop:
                break
            count = _SPAN.unpack_from(found, mark)[1]
            batch = view[(relative - start) * VALUE_BYTES : (relative - start + count) * VALUE_BYTES]
            if count <= 0 or found[mark : mark + _MARK.size] != _mark(relative, batch):
                break
            relative += count
        if relative != stop or len(data) != (stop - start) * VALUE_BYTES:
            raise CorruptDataError(
                f"{self.values_path.name}: the previous offsets from relative offset {relative} on are damaged or "
                "missing; the records themselves can be fetched without them"
            )
        return data

    # -- recovery ------------------------------------------------------------------------------------------------------

    def split_off(self, relative_offset: int, stem: Path) -> None:
        """Write the values from a record on, as far as they are whole, for a segment that begins there; durably.

        Args:
            relative_offset: Of the record here, at the begin of a batch.
            stem: Path of the other segment without suffix.

        Raises:
            OSError: The file system refused.
        """
        if not all(path.exists() for path in self.paths()):
            return
        other = PreviousOffsets(stem, self._pool)
        values, data = self.values_path.read_bytes(), self.marks_path.read_bytes()
        marks = b""
        for relative, count, crc in np.frombuffer(data, _MARKS, len(data) // _MARK.size).tolist():
            if relative >= relative_offset and self._is_right(relative, count, crc):
                batch = values[relative * VALUE_BYTES : (relative + count) * VALUE_BYTES]
                marks += _mark(relative - relative_offset, batch)
        files.write_atomic(other.values_path, values[relative_offset * VALUE_BYTES :])
        files.write_atomic(other.marks_path, marks)

    def resume(self, relative_offset: int) -> None:
        """Begin to hold the files against a replay of the log from an offset on: `confirm` each batch, then `finish`.

        Marks of batches below the offset stay; where their order shows damage, those that are wrong are taken out.

        Raises:
            OSError: The file system refused.
        """
        for path in self.paths():
            if not path.exists():
                self._pool.create(path)
            elif path.is_symlink():  # of a lab's shadow: what it leads to is only read
                files.write_atomic(path, path.read_bytes(), durable=False)
                self._pool.forget(path)
        data = self.marks_path.read_bytes()
        marks = np.frombuffer(data, _MARKS, len(data) // _MARK.size)
        ends = marks["relative"].astype(np.int64) + marks["count"]
        at = int(np.searchsorted(ends, relative_offset, side="right")) if relative_offset else 0
        is_whole = bool(np.all(marks["relative"][1:] == ends[:-1])) and (not at or not marks["relative"][0])
        if is_whole and (ends[at - 1] if at else 0) == relative_offset:
            self._entries = at
            return
        good = [mark for mark in marks.tolist() if mark[0] + mark[1] <= relative_offset and self._is_right(*mark)]
        files.write_atomic(self.marks_path, b"".join(_MARK.pack(*mark) for mark in sorted(set(good))), durable=False)
        self._pool.forget(self.marks_path)
        self._entries = len(set(good))
        self._written += 1

    def _is_right(self, relative: int, count: int, crc: int) -> bool:
        if relative < 0 or count <= 0:
            return False
        handle = self._pool.get(self.values_path)
        data = os.pread(handle.fd, count * VALUE_BYTES, relative * VALUE_BYTES)
        return len(data) == count * VALUE_BYTES and _mark(relative, data) == _MARK.pack(relative, count, crc)

    def confirm(self, relative_offset: int, values: Offsets) -> bool:
        """Compare the next batch's previous offsets with those of a replay of the log; rewrite what is not whole.

        Returns:
            Whether they were there and the same; else they were written again.

        Raises:
            CorruptDataError: They are there, whole, and others: the replay does not repeat what was done.
            OSError: The file system refused.
        """
        if not len(values):
            return True
        entries, data = len(self), _bytes_of(values)
        marks, file = self._pool.get(self.marks_path), self._pool.get(self.values_path)
        there = os.pread(marks.fd, _MARK.size, entries * _MARK.size)
        before = os.pread(file.fd, len(data), relative_offset * VALUE_BYTES)
        mark = _mark(relative_offset, data)
        if there == mark and before == data:
            self._entries = entries + 1
            return True
        if there == _mark(relative_offset, before) and len(before) == len(data):
            raise CorruptDataError(
                f"{self.values_path.name} at relative offset {relative_offset}: the log, replayed, gives other previous "
                "offsets than those written with it: key-value state and log do not agree"
            )
        self.write(relative_offset, values)
        self.admit()
        return False

    def finish(self, relative_offset: int) -> None:
        """End what `resume` began: nothing stays of batches that are not in the log.

        Raises:
            OSError: The file system refused.
        """
        for path, size in zip(self.paths(), (relative_offset * VALUE_BYTES, len(self) * _MARK.size), strict=True):
            handle = self._pool.get(path)
            os.ftruncate(handle.fd, size)
        # What a killed process wrote need not be on the device.
        self._written += 1


def _mark(relative_offset: int, data: bytes | memoryview) -> bytes:
    span = _SPAN.pack(relative_offset, len(data) // VALUE_BYTES)
    return _MARK.pack(
        relative_offset, len(data) // VALUE_BYTES, google_crc32c.extend(google_crc32c.value(span), bytes(data))
    )


def _marks_from(fd: int, entries: int, relative_offset: int, limit: int) -> bytes:
    """Return up to some marks from the one of a relative offset on; nothing when there is none."""

    def relative_of(index: int) -> int:
        return int(_SPAN.unpack(os.pread(fd, _SPAN.size, index * _MARK.size))[0])

    entries = min(entries, os.fstat(fd).st_size // _MARK.size)  # a file that was cut has fewer than were written
    at = bisect_left(range(entries), relative_offset, key=relative_of)
    if at == entries or relative_of(at) != relative_offset:
        # A damaged mark on the way leads astray; it must not hide the others.
        marks = np.frombuffer(os.pread(fd, entries * _MARK.size, 0), _MARKS)
        exact = np.flatnonzero(marks["relative"] == relative_offset)
        at = int(exact[0]) if len(exact) else entries
    return os.pread(fd, min(entries - at, limit) * _MARK.size, at * _MARK.size)


def _bytes_of(values: Offsets) -> bytes:
    return np.ascontiguousarray(values, dtype="<i8").tobytes()


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _write_at(pool: HandlePool, path: Path, position: int, data: bytes) -> None:
    handle = pool.get(path)
    while data:
        written = os.pwrite(handle.fd, data, position)
        position, data = position + written, data[written:]
