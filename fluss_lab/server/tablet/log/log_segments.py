"""The segments of a log: the one that entries are written into, the rolled ones before it, the dropped ones until they are gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fluss_lab import files
from fluss_lab.errors import StorageError
from fluss_lab.failpoints import failpoint
from fluss_lab.records.batch import HEADER_BYTES, BatchHeader, Buffer, place, read_header
from fluss_lab.server.folder.disk_reserve import refusal
from fluss_lab.server.tablet.log import recovery_point
from fluss_lab.server.tablet.log.log_reader import Frontier, LogView
from fluss_lab.server.tablet.log.payload_validation import CheckedBatch
from fluss_lab.server.tablet.log.previous_offsets import Offsets
from fluss_lab.server.tablet.log.segment import Segment

#: Positions and relative offsets in the indexes are int32.
_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log is kept: see the cluster options of the same names.

    Attributes:
        check_disk: Called with what is not done then; raises `StorageError` while the rest of the disk is reserved.
    """

    segment_bytes: int
    index_interval_bytes: int
    fsync: bool
    writer_expiration_ms: int
    check_disk: Callable[[str], None] = lambda what: None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A batch on its way into the log.

    Attributes:
        header: As its maker made it.
        sent_crc: Of the batch as its writer sent it.
        head: The bytes of the header, to be placed.
        rest: The bytes behind it.
        previous: The previous offsets of its records, if the log keeps them.
    """

    header: BatchHeader
    sent_crc: int
    head: bytearray
    rest: tuple[memoryview, ...]
    previous: Offsets | None = None

    @staticmethod
    def of(batch: CheckedBatch) -> LogEntry:
        """Return the entry of a batch that came as it will be written."""
        head, rest = batch.data[:HEADER_BYTES], batch.data[HEADER_BYTES:]
        return LogEntry(batch.header, batch.header.crc, bytearray(head), (rest,))

    @staticmethod
    def encode(buffers: Sequence[Buffer], previous: Offsets, sent_crc: int) -> LogEntry:
        """Return the entry of a batch that `records.batch.encode` made of one that a writer sent."""
        head, *rest = buffers
        parts = tuple(memoryview(part).cast("B") for part in rest)
        return LogEntry(read_header(head), sent_crc, bytearray(head), parts, previous)


@dataclass(frozen=True, slots=True)
class DerivedEntry:
    """What a batch leads to.

    Attributes:
        entry: What is to be appended; None when nothing is.
        commit: Called with the timestamp once it is in the log, under the log's lock; it must not fail.
    """

    entry: LogEntry | None
    commit: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class LogAppendInfo:
    """Where a payload's records are: ``[base_offset, end_offset)``; and what `BucketLog.acknowledge` needs."""

    base_offset: int
    end_offset: int
    ticket: int


class LogSegments:
    """The segments of one log. Changes are guarded by the log's locks; what it returns of them needs none.

    Args:
        folder: The bucket's.
        title: How errors call the bucket.
        found: What recovery found, oldest first; at least one.

    Attributes:
        held: Oldest first; the last one is written. Replaced as a whole, never changed in place.
    """

    def __init__(self, folder: Path, title: str, found: Sequence[Segment]) -> None:
        self._folder, self._title = folder, title
        self.held = tuple(found)
        self._dropped: list[Segment] = []

    def __len__(self) -> int:
        return len(self.held)

    @property
    def active(self) -> Segment:
        """Return the segment that is written."""
        return self.held[-1]

    @property
    def rolled(self) -> tuple[Segment, ...]:
        """Return the segments that no longer change, oldest first: all but the last. They are on the device."""
        return self.held[:-1]

    @property
    def end(self) -> int:
        """Return the log end offset."""
        return self.held[-1].end_offset

    @property
    def frontier(self) -> Frontier:
        """Return the place behind the last record."""
        active = self.held[-1]
        return Frontier(active.base_offset, active.size, active.end_offset)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all segments, without indexes."""
        return sum(segment.size for segment in self.held)

    @property
    def max_timestamp_ms(self) -> int:
        """Return the last record's timestamp; -1 without any record."""
        return max(segment.max_timestamp_ms for segment in self.held)

    def view(self, frontier: Frontier) -> LogView:
        """Return what readers see of the segments up to a place."""
        return LogView(self.held, tuple(segment.base_offset for segment in self.held), frontier)

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, entries: Sequence[LogEntry], timestamp_ms: int) -> None:
        """Write entries behind the last record, all or none; readers see them once a view reaches behind them.

        Raises:
            OSError, CorruptDataError: As `Segment.write`.
        """
        segment = self.held[-1]
        offset = segment.end_offset
        buffers: list[bytearray | memoryview] = []
        for entry in entries:
            place(entry.head, offset, timestamp_ms)
            offset += entry.header.record_count
            buffers += (entry.head, *entry.rest)
        segment.write(buffers, entries[0].previous)
        for entry in entries:
            segment.admit(entry.header.size, segment.end_offset + entry.header.record_count, timestamp_ms)

    def sync_active(self) -> None:
        """Return when the written segment and its previous offsets are on the device.

        Raises:
            OSError: The device refused: the log must no longer be written.
        """
        self.active.sync(self.active.size)
        self.sync_previous()

    def sync_previous(self) -> None:
        """Return when the previous offsets of the written segment are on the device. It raises as `sync_active`."""
        if (previous := self.active.previous) is not None:
            previous.sync()

    def fits(self, size: int, records: int, limit_bytes: int) -> bool:
        """Return whether batches of so many bytes and records may be appended, or must go to a new segment."""
        held, held_bytes = self.active.end_offset - self.active.base_offset, self.active.size
        if held + records > _INT32_MAX or held_bytes + size > _INT32_MAX:
            return False
        # Without records the next segment would have this one's name, however many empty batches are in it.
        return held == 0 or held_bytes + size <= limit_bytes

    def roll(self) -> None:
        """Go on in a new segment; the old one is on the device already.

        Raises:
            StorageError: The disk refused; the log goes on in the old one.
        """
        segment = self.active.successor()
        try:
            failpoint("tablet.roll.before")
            segment.create()
        except OSError as error:
            raise StorageError(f"{self._title}: no new segment: {refusal(error)}") from error
        self.held = (*self.held, segment)

    # -- dropping ------------------------------------------------------------------------------------------------------

    def drop(self, is_over: Callable[[Segment], bool], keep: int) -> int:
        """Take the oldest segments that are over out of the log, but not the newest few; return how many."""
        dropped = 0
        while dropped < len(self.held) - keep and is_over(self.held[dropped]):
            dropped += 1
        self._dropped += self.held[:dropped]
        self.held = self.held[dropped:]
        return dropped

    @property
    def has_dropped(self) -> bool:
        """Return whether there are dropped segments whose files are not deleted yet."""
        return bool(self._dropped)

    def delete_dropped(self) -> None:
        """Delete the files of dropped segments, the oldest first, so that what is left never has a hole.

        Before, it is noted durably where the log begins.

        Raises:
            StorageError: The disk refused; those that are left are tried again next time.
        """
        try:
            recovery_point.save_start(self._folder, self.held[0].base_offset)
        except OSError as error:
            raise StorageError(f"{self._title}: nothing was deleted: {error.strerror or error}") from error
        while self._dropped:
            try:
                failpoint("tablet.retention.before_delete")
                self._dropped[0].delete()
                files.fsync_folder(self._folder)
            except OSError as error:
                raise StorageError(f"{self._title}: could not delete {self._dropped[0].path}: {error}") from error
            del self._dropped[0]
