"""The recovery of a bucket's log: trusted up to its recovery point, read and checked behind it.

What is found decides:

* batches that continue one another to the end of the last file: the log is whole;
* a bad place in the last file, behind the recovery point and with no valid batch after it: a torn tail, cut off;
* a whole batch of a newer format: the log ends there for this version, and nothing is cut off;
* any other bad place: corruption. Nothing is changed on the disk, the log is readable up to there and cannot be
  written. (A segment is on the device before the next one is made, so only the last one can have a torn tail.)

The beginning is held against what was noted when segments were last dropped, the end against the recovery point and
against what the coordinator knows to have been on the device: what lacks there was lost, and is an error.

Every step may be interrupted and repeated.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fluss_lab import files
from fluss_lab.errors import CorruptDataError, FlussError
from fluss_lab.failpoints import failpoint
from fluss_lab.records.batch import (
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    BatchHeader,
    check_header,
    checksum,
    newer_format,
    read_header,
)
from fluss_lab.server.tablet.log import recovery_point
from fluss_lab.server.tablet.log.batch_admission import WriterStates, WrittenBatch
from fluss_lab.server.tablet.log.file_handles import HandlePool
from fluss_lab.server.tablet.log.fsync_guard import SUSPECT_FILE
from fluss_lab.server.tablet.log.previous_offsets import MARKS_SUFFIX, VALUES_SUFFIX
from fluss_lab.server.tablet.log.recovery_point import Checkpoint
from fluss_lab.server.tablet.log.segment import LOG_SUFFIX, UNREADABLE, Segment
from fluss_lab.server.tablet.log.sparse_index import OFFSET_SUFFIX, TIME_SUFFIX

log = logging.getLogger(__name__)

#: Bytes read at once; a batch that is larger is read by itself.
_CHUNK_BYTES: Final = 4 << 20
#: What to do about records that are gone.
RESTORE: Final = "restore the bucket's folder from a copy and start the server again"
#: Bytes searched for a header at once: ten arrays of this length are alive in between.
_SEARCH_BYTES: Final = 1 << 20
#: How far ahead of the expected offset a batch can be. A tail holds less than 2 GB, so no more records than bits.
_OFFSET_SPAN: Final = 1 << 34
#: Files beside a segment that go with it.
_BESIDE: Final = frozenset({OFFSET_SUFFIX, TIME_SUFFIX, VALUES_SUFFIX, MARKS_SUFFIX})


@dataclass(slots=True)
class RecoveredLog:
    """A log as recovery found it.

    Attributes:
        segments: Oldest first; at least one. The last one is for appending, unless the log is corrupt.
        writers: The writers at the log's end.
        recovery_point: Offset up to which the log was known to be on the device.
        floor_ms: No later record may have an earlier timestamp.
        corruption: Why the log must not be written, and its end is not known; None when it may.
        lost_start: Why its first offset is not known: segments in front of those found are missing. None when it is.
    """

    segments: list[Segment] = field(default_factory=list)
    writers: WriterStates = field(default_factory=WriterStates)
    recovery_point: int = 0
    floor_ms: int = 0
    corruption: FlussError | None = None
    lost_start: CorruptDataError | None = None


class Recovery:
    """One recovery of one bucket's folder.

    Args:
        folder: The bucket's; it exists.
        pool: Opens files.
        interval_bytes: Of the indexes.
        changelog: Whether the log is of a primary-key table; its previous offsets are left to the replay.
        durable_offset: Up to where the log was on the device, as the coordinator remembers; None: it does not.
    """

    def __init__(
        self,
        folder: Path,
        pool: HandlePool,
        interval_bytes: int,
        *,
        changelog: bool = False,
        durable_offset: int | None = None,
    ) -> None:
        self._folder = folder
        self._durable_offset = durable_offset
        self._pool = pool
        self._interval_bytes = interval_bytes
        self._changelog = changelog
        self._result = RecoveredLog()
        self._floor = 0
        self._last_ms = -1

    def run(self) -> RecoveredLog:
        """Return the log of the folder, cut or stopped where it must be.

        Raises:
            OSError: The file system refused to read or to cut.
            CorruptDataError: Nothing is left of a log that had records.
            UnsupportedError: A newer version wrote what is known of the log beside it.
        """
        failpoint("tablet.recover.before")
        result = self._result
        known = recovery_point.load(self._folder)
        if known is not None:
            result.writers, result.recovery_point, result.floor_ms = known.writers, known.recovery_point, known.floor_ms
        self._floor = max(result.recovery_point, self._durable_offset or 0)
        bases = segment_bases(self._folder)
        if not bases:
            self._check_new(known)
        self._tidy(bases)
        for base_offset, after in zip(bases, [*bases[1:], None], strict=False):
            if not self._take(base_offset, known, after):
                break
        if not result.segments:
            segment = self._segment(0)
            segment.create()
            result.segments.append(segment)
        if bases:
            self._check_start(known)
        end = result.segments[-1].end_offset
        if result.corruption is None and end < self._floor:
            problem = f"the log ends at offset {end}, but was on the device up to {self._floor}: bytes are missing"
            self._end_by(result.segments[-1].path, problem, self._floor)
        result.recovery_point = min(result.recovery_point, end)
        if result.corruption is None and (self._folder / SUSPECT_FILE).exists():
            self._rewrite(result.segments[-1])
        return result

    def _tidy(self, bases: list[int]) -> None:
        """Remove what a crash left: half-written files, and indexes of segments that were deleted."""
        stems = {f"{base:020d}" for base in bases}
        for path in self._folder.iterdir():
            is_orphan = path.suffix in _BESIDE and path.stem not in stems
            if is_orphan or path.name.startswith("."):
                path.unlink(missing_ok=True)

    def _check_new(self, known: Checkpoint | None) -> None:
        """Refuse to start a new log where there was one: offsets would be given twice, and records be forgotten."""
        if known is None and self._durable_offset is None and not recovery_point.load_start(self._folder):
            return
        first = recovery_point.expected_start(self._folder, None if known is None else known.segments[0].base_offset)
        raise CorruptDataError(
            f"{self._folder}: offsets [{first}, {max(first, self._floor)}) cannot be read: no segment is left of a log that was "
            f"on the device up to offset {self._floor}: files are missing; {RESTORE}; or see what it would come to to do without: "
            "fluss-lab repair TABLE --skip-corrupt"
        )

    def _check_start(self, known: Checkpoint | None) -> None:
        """Check that no segment in front of those found is missing: a log may begin later only when that was noted."""
        first = self._result.segments[0].base_offset
        expected = recovery_point.expected_start(self._folder, None if known is None else known.segments[0].base_offset)
        if first > expected:
            self._result.lost_start = CorruptDataError(
                f"{self._folder}: offsets [{expected}, {first}) cannot be read: the first segment is of offset {first}, expected "
                f"one of {expected}: files with the records in between are missing; {RESTORE}"
            )

    def _end_by(self, path: Path, problem: str, stop: int) -> None:
        """End the log before records that cannot be read, up to an offset: the next that can, or that was on the device."""
        start = self._result.segments[-1].end_offset
        lost = f"offsets [{start}, {stop}) cannot be read: " if start < stop else ""
        self._result.corruption = CorruptDataError(f"{path}: {lost}{problem}; {RESTORE}")

    def _segment(self, base_offset: int) -> Segment:
        return Segment(self._folder, base_offset, self._pool, self._interval_bytes, changelog=self._changelog)

    def _take(self, base_offset: int, known: Checkpoint | None, after: int | None) -> bool:
        """Add a segment to the log; return whether the next one, at the offset `after`, can continue it."""
        result = self._result
        if result.segments and (expected := result.segments[-1].end_offset) != base_offset:
            gap = f"it ends there: expected a segment at offset {expected}, found {base_offset:020d}{LOG_SUFFIX}"
            self._end_by(result.segments[-1].path, gap, base_offset)
            return False
        segment = self._segment(base_offset)
        result.segments.append(segment)
        size = segment.path.stat().st_size
        if known is not None and (mark := known.mark_of(base_offset)) is not None:
            sealed = base_offset != known.segments[-1].base_offset
            if size == mark.size or (size > mark.size and not sealed):
                segment.restore(mark)
                self._last_ms = max(self._last_ms, mark.max_timestamp_ms)
        problem = self._scan(segment, size)
        if problem is None:
            return True
        self._judge(segment, problem, after)
        return False

    def _judge(self, segment: Segment, problem: str, after: int | None) -> None:
        """Decide whether a bad place is a torn tail, and cut it if it is; `after` is where the next segment begins."""
        result = self._result
        where = f"at byte {segment.size}: {problem}"
        if (newer := self._other_format(segment)) is not None:
            result.corruption = newer
            return
        valid = find_batch(segment.path, segment.size + 1, segment.end_offset)
        stop = valid.base_offset if valid is not None else after if after is not None else self._floor
        if segment.end_offset < self._floor:
            self._end_by(segment.path, f"{where}; the log was on the device up to offset {self._floor}", stop)
        elif after is not None:
            self._end_by(segment.path, f"{where}; another segment lies behind it", stop)
        elif valid is not None:
            self._end_by(segment.path, f"{where}; a valid batch at offset {valid.base_offset} lies behind it", stop)
        else:
            log.warning("%s: torn tail cut off: %s", segment.path, where)
            segment.cut()

    def _other_format(self, segment: Segment) -> FlussError | None:
        """Return what to say of a bad place that is a whole batch of another format; None when it is none.

        All formats keep length, format and checksum where they are, so that a newer one is never taken for a torn tail.
        """
        size = segment.path.stat().st_size
        if size - segment.size < HEADER_BYTES:
            return None
        header = read_header(segment.read(segment.size, segment.size + HEADER_BYTES))
        if header.magic == MAGIC or header.base_offset != segment.end_offset or header.size > size - segment.size:
            return None
        whole = memoryview(segment.read(segment.size, segment.size + max(header.size, HEADER_BYTES)))
        if checksum(whole[CRC_START : header.size]) != header.crc:
            return None
        if header.magic > MAGIC:
            return newer_format(header)
        return CorruptDataError(f"{segment.path.name} at byte {segment.size}: batch format {header.magic}; {RESTORE}")

    def _scan(self, segment: Segment, size: int) -> str | None:
        """Admit the batches behind what is believed of a segment; return what is wrong with the first bad one."""
        data, start = b"", segment.size
        while segment.size < size:
            at, left = segment.size - start, size - segment.size
            try:
                if at + min(HEADER_BYTES, left) > len(data):
                    start, at = segment.size, 0
                    data = segment.read(start, start + min(_CHUNK_BYTES, left))
                header = read_header(data, at)
                check_header(header, left)
                if at + header.size > len(data):
                    start, at = segment.size, 0
                    data = segment.read(start, start + min(max(_CHUNK_BYTES, header.size), left))
                self._check(segment, header, memoryview(data)[at : at + header.size])
            except UNREADABLE as error:
                return str(error)
            self._admit(segment, header)
        return None

    def _check(self, segment: Segment, header: BatchHeader, whole: memoryview) -> None:
        offset = header.base_offset
        if offset != segment.end_offset:
            raise CorruptDataError(f"expected a batch at offset {segment.end_offset}, found one at {offset}")
        if header.timestamp_ms < self._last_ms:
            raise CorruptDataError(
                f"batch at offset {offset}: expected a time of at least {self._last_ms}, found {header.timestamp_ms}"
            )
        if (found := checksum(whole[CRC_START:])) != header.crc:
            raise CorruptDataError(f"batch at offset {offset}: expected CRC {header.crc:08x}, found {found:08x}")

    def _admit(self, segment: Segment, header: BatchHeader) -> None:
        writers, writer_id = self._result.writers, header.writer_id
        # A batch without records at the recovery point itself may be in the checkpoint already.
        is_new = header.base_offset >= self._result.recovery_point
        if writer_id >= 0 and is_new and writers.find(writer_id, header.batch_sequence) is None:
            # A changelog is not what its writers sent.
            crc = None if self._changelog else header.crc
            batch = WrittenBatch(header.batch_sequence, header.base_offset, header.next_offset, crc)
            writers.add(writer_id, batch, header.timestamp_ms)
        segment.admit(header.size, header.next_offset, header.timestamp_ms)
        self._last_ms = header.timestamp_ms
        self._result.floor_ms = max(self._result.floor_ms, header.timestamp_ms)

    def _rewrite(self, segment: Segment) -> None:
        """Give the last segment new pages: those that a failed fsync left behind would never be written again."""
        log.warning("%s: written again after a failed fsync", segment.path)
        files.write_atomic(segment.path, segment.read(0, segment.size))
        self._pool.forget(segment.path)
        if segment.previous is not None:
            segment.previous.renew()
        segment.synced_size = segment.size
        (self._folder / SUSPECT_FILE).unlink()
        files.fsync_folder(self._folder)


def segment_bases(folder: Path) -> list[int]:
    """Return the base offsets of the segments in a bucket's folder, ascending."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    stems = (name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX))
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdigit())


def find_batch(path: Path, start: int, offset_min: int) -> BatchHeader | None:
    """Return the header that `find_place` finds. It raises and costs the same."""
    found = find_place(path, start, offset_min)
    return None if found is None else found[1]


def find_place(path: Path, start: int, offset_min: int) -> tuple[int, BatchHeader] | None:
    """Return the first batch with a right CRC at or behind a position, of an offset at or above one; None without any.

    Every byte position is tried, since a bad length does not say where the next batch begins.

    Returns:
        Its position and its header.

    Raises:
        OSError: The file cannot be read.

    Cost: 30 ms a megabyte, and a CRC for each place that looks like a header.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        while size - start >= HEADER_BYTES:
            data = os.pread(fd, _SEARCH_BYTES + HEADER_BYTES - 1, start)
            for at in _candidates(data, size - start, offset_min):
                if (found := _check_batch(fd, start + at, data, at)) is not None:
                    return start + at, found
            start += _SEARCH_BYTES
        return None
    finally:
        os.close(fd)


def _candidates(data: bytes, available: int, offset_min: int) -> list[int]:
    """Return the places in the bytes where a header could be."""
    places = len(data) - HEADER_BYTES + 1
    if places <= 0:
        return []

    def field(kind: str, offset: int) -> npt.NDArray[Any]:
        # One value at every byte: the strides overlap.
        return np.ndarray((places,), kind, data, offset, (1,))

    base, length, count = field("<i8", 0), field("<i4", 8).astype(np.int64), field("<i4", 44)
    likely = (field("i1", 12) == MAGIC) & (base >= offset_min) & (base - offset_min < _OFFSET_SPAN)
    likely &= (length >= HEADER_BYTES - PREFIX_BYTES) & (length + PREFIX_BYTES <= available - np.arange(places))
    likely &= (count >= 0) & (field("<i4", 28) == np.maximum(count - 1, 0))
    return [int(at) for at in np.flatnonzero(likely)]


def _check_batch(fd: int, position: int, data: bytes, at: int) -> BatchHeader | None:
    header = read_header(data, at)
    body = memoryview(os.pread(fd, header.size, position))
    if len(body) == header.size and checksum(body[CRC_START:]) == header.crc:
        return header
    return None
