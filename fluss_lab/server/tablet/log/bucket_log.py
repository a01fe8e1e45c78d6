"""The log of one bucket: segments, writers, and how far it is readable and durable."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fluss_lab.clock import Clock
from fluss_lab.errors import (
    CorruptDataError,
    FlussError,
    NotLeaderError,
    RecordTooLargeError,
    StorageError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.model.times import future_error
from fluss_lab.records.batch import BatchHeader
from fluss_lab.server.folder.disk_reserve import refusal
from fluss_lab.server.tablet.buckets.bucket_logger import BucketLogger
from fluss_lab.server.tablet.log import recovery_point
from fluss_lab.server.tablet.log.batch_admission import Admission, Seal, WriterStates, WrittenBatch
from fluss_lab.server.tablet.log.file_handles import HandlePool
from fluss_lab.server.tablet.log.fsync_guard import FsyncGuard
from fluss_lab.server.tablet.log.log_reader import BucketLogReader, Frontier, LogView
from fluss_lab.server.tablet.log.log_recovery import Recovery
from fluss_lab.server.tablet.log.log_segments import DerivedEntry, LogAppendInfo, LogEntry, LogOptions, LogSegments
from fluss_lab.server.tablet.log.payload_validation import CheckedBatch
from fluss_lab.server.tablet.log.segment import UNREADABLE, Segment


class BucketLog:
    """One bucket's log, open.

    Safe for threads. Appends, rolls and drops hold the log's lock, for one write at most; reads take none; fsyncs have a
    lock of their own.

    Args:
        folder: The bucket's; it exists.
        options: How to keep it.
        pool: Opens files.
        clock: Gives the timestamps.
        logger: Knows the bucket's name.
        waiting: Bounds the appends that wait for a predecessor, over all logs that share it.
        changelog: Whether it is of a primary-key table, and keeps previous offsets.
        durable_offset: Up to where it was on the device, as the coordinator remembers; None: it does not.

    Attributes:
        reader: Reads the log.
        segments: Its segments.
        lock: Held by an append; what it guards does not move while it is held. It may be taken again.
        floor_ms: No later record has an earlier timestamp.
        stopped: Why the log cannot be written; None when it can.
        written_bytes: Bytes appended since the log was opened.

    Raises:
        OSError, StorageError, CorruptDataError: The file system refused to read or repair it, or nothing is left of it.
    """

    def __init__(
        self,
        folder: Path,
        options: LogOptions,
        pool: HandlePool,
        clock: Clock,
        logger: BucketLogger,
        waiting: threading.Semaphore,
        *,
        changelog: bool = False,
        durable_offset: int | None = None,
    ) -> None:
        self._folder, self._options, self._clock, self._log = folder, options, clock, logger
        self.lock = self._changed = threading.Condition()
        self._sync_lock = threading.Lock()
        self._fsyncs = FsyncGuard(folder)
        self._retention_lock = threading.Lock()
        self.reader = BucketLogReader(logger.title, self.stop_for)
        self.stopped: FlussError | None = None
        self._sound: Frontier | None = None
        self._closed = False
        # How many of the bytes written are on the device.
        self.written_bytes = self._synced = 0
        self._checkpoints = recovery_point.CheckpointSchedule(clock)
        interval = options.index_interval_bytes
        found = Recovery(folder, pool, interval, changelog=changelog, durable_offset=durable_offset).run()
        self.segments = LogSegments(folder, logger.title, found.segments)
        self.reader.lost_start = found.lost_start
        self._admission = Admission(found.writers, self._changed, waiting)
        self.floor_ms = self._last_ms = found.floor_ms
        self._durable = Frontier(-1, 0, found.recovery_point)
        if found.corruption is not None:
            self._end_by(found.corruption)
        elif found.lost_start is not None:
            self._stop(found.lost_start)
        self._settle_found()
        self._log.info("open: [%d, %d) in %d segments", self.start, self.end, len(self.segments))

    def _settle_found(self) -> None:
        """Make durable what recovery found, so that what is readable now stays so."""
        for segment in self.segments.held:
            if segment.synced_size < segment.size:
                self._checkpoints.is_wanted = True
                self._fsync(partial(segment.sync, segment.size))
        try:
            _ = self.segments.active.index
        except UNREADABLE as error:
            self._end_by(error)
        self._durable = self.segments.frontier
        self._publish()

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def start(self) -> int:
        """Return the log start offset."""
        return self.reader.view.start

    @property
    def end(self) -> int:
        """Return the log end offset."""
        return self.segments.end

    @property
    def high_watermark(self) -> int:
        """Return the offset after the last readable record."""
        return self.reader.view.end

    @property
    def durable_offset(self) -> int:
        """Return the offset below which all records are on the device."""
        return self._durable.offset

    @property
    def max_timestamp_ms(self) -> int:
        """Return the last record's timestamp, -1 before the first; of a log that was opened when it was empty, its floor of then."""
        held = self.segments.max_timestamp_ms
        return self._last_ms if held < 0 < self.end else held

    @property
    def seal(self) -> Seal:
        """Return whether the log is closed to writes; read and changed under `lock`."""
        return self._admission.seal

    def _publish(self) -> None:
        """Show readers what they may read now, and wake those that wait for it."""
        frontier = self._durable if self._options.fsync else self.segments.frontier
        self.reader.publish(self._view(frontier))

    def _view(self, frontier: Frontier) -> LogView:
        return self.segments.view(frontier if self._sound is None else min(frontier, self._sound))

    def whole(self) -> LogView:
        """Return all that is appended, as far as the log is sound, readable already or not; under `lock`."""
        return self._view(self.segments.frontier)

    def _stop(self, reason: FlussError) -> FlussError:
        """Refuse all appends from now on, for a reason; the first one stays."""
        if self.stopped is None:
            self.stopped = reason
            self._log.error("stopped: %s", reason)
        return self.stopped

    def _end_by(self, reason: FlussError) -> None:
        """Refuse all appends from now on, and reads at the end, since nothing will follow."""
        self._stop(reason)
        self.reader.ended_by = reason

    def end_by(self, reason: FlussError, sound: Frontier | None = None) -> None:
        """Stop the log for good: its rows no longer agree with it, or it is `sound` up to a place only."""
        with self._changed:
            self._sound = sound or self._sound
            self._end_by(reason)
            self._publish()

    def stop_for(self, reason: FlussError) -> None:
        """Refuse all appends from now on."""
        with self._changed:
            self._stop(reason)

    # -- appending -----------------------------------------------------------------------------------------------------

    def append(self, batches: Sequence[CheckedBatch], wait_ms: int = 0) -> LogAppendInfo:
        """Append batches, all new ones or none, and return the offsets; those of a retry are where it was appended before.

        Args:
            batches: Checked, at least one.
            wait_ms: How long to wait for a writer's earlier batch that is still on its way.

        Returns:
            The offsets. Pass it to `acknowledge` before the append is answered.

        Raises:
            OutOfOrderSequenceError: An earlier batch of the writer did not come; send that first.
            DuplicateSequenceError: See `Admission.admit`.
            StorageError: The disk refused; nothing was appended.
            CorruptDataError, NotLeaderError: The log cannot be written.
        """
        with self._changed:
            known = self._admission.admit(batches, wait_ms, self._check_writable)
            base_offset = self.end if known[0] is None else known[0].base_offset
            fresh = [batch for batch, before in zip(batches, known, strict=True) if before is None]
            if fresh:
                self._append([LogEntry.of(batch) for batch in fresh])
            end_offset = self.end if known[-1] is None else known[-1].end_offset
            return LogAppendInfo(base_offset, end_offset, self.written_bytes)

    def append_derived(self, batch: CheckedBatch, wait_ms: int, derive: Callable[[int], DerivedEntry]) -> LogAppendInfo:
        """Append what is derived from a batch: as `append`, which says what is returned and raised.

        Args:
            batch: Checked; its writer and sequence are those of what is appended.
            wait_ms: As `append`.
            derive: Called with the base offset, under the log's lock, if the batch is new. What it raises is raised.
        """
        with self._changed:
            known = self._admission.admit([batch], wait_ms, self._check_writable)[0]
            if known is not None:
                return LogAppendInfo(known.base_offset, known.end_offset, self.written_bytes)
            base_offset = self.end
            derived = derive(base_offset)
            if derived.entry is not None:
                timestamp_ms = self._append([derived.entry])
                derived.commit(timestamp_ms)
            return LogAppendInfo(base_offset, self.end, self.written_bytes)

    def find(self, headers: Sequence[BatchHeader]) -> LogAppendInfo | None:
        """Return where batches are, if all were appended before and are remembered; else None. Of a log that is written."""
        with self._changed:
            self._check_writable()
            found = self._admission.find(headers)
            return None if found is None else LogAppendInfo(*found, self.written_bytes)

    def acknowledge(self, appended: LogAppendInfo) -> None:
        """Return when an append is as durable as the log's option promises. It raises as `sync`."""
        if self._options.fsync:
            self.sync(appended.ticket)

    def settle(self) -> None:
        """Return when everything appended so far is readable. It raises as `sync`."""
        if self._options.fsync:
            self.sync(self.written_bytes)

    def writers(self) -> WriterStates:
        """Return a copy of the writers; under `lock`, as they are at the log's end."""
        with self._changed:
            return self._admission.snapshot()

    def adopt_writers(self, older: WriterStates) -> None:
        """Add what is known elsewhere of batches before those that this log knows of."""
        with self._changed:
            self._admission.adopt(older)

    def seal_at(self, offset: int, number: int) -> int:
        """Return where the log ends, and close it to writes if that is at an offset: nothing is appended in between.

        Raises:
            FlussError: The log has stopped, so where it ends is not known.
            ConflictError: That seal was taken back already.
        """
        with self._changed:
            if self.stopped is not None:
                raise type(self.stopped)(str(self.stopped))
            if (end := self.end) == offset:
                self.seal.close(number)
            return end

    def unseal(self, number: int) -> None:
        """Open the log to writes again that a seal, or an earlier one, has closed."""
        with self._changed:
            self.seal.open(number)

    def _check_writable(self) -> None:
        if self._closed:
            raise self._is_closed()
        if self.stopped is not None:
            raise type(self.stopped)(f"{self._log.title} cannot be written: {self.stopped}")

    def _is_closed(self) -> NotLeaderError:
        return NotLeaderError(f"{self._log.title}: the bucket was closed; refresh the metadata and retry")

    def _append(self, entries: list[LogEntry]) -> int:
        """Write entries behind one another, all or none, and return their timestamp."""
        self._options.check_disk(f"{self._log.title}: nothing was appended")
        size = sum(entry.header.size for entry in entries)
        records = sum(entry.header.record_count for entry in entries)
        if not self.segments.fits(size, records, self._options.segment_bytes):
            self._roll()
        timestamp_ms = max(self._clock.now_ms(), self.floor_ms)
        base_offset = self.end
        try:
            self.segments.write(entries, timestamp_ms)
        except CorruptDataError as error:
            raise self._stop(StorageError(str(error))) from error
        except OSError as error:
            self._log.error("nothing was appended: %s", error)
            raise StorageError(f"{self._log.title}: nothing was appended: {refusal(error)}") from error
        self.floor_ms = self._last_ms = timestamp_ms
        self.written_bytes += size
        for entry in entries:
            end_offset = base_offset + entry.header.record_count
            written = WrittenBatch(entry.header.batch_sequence, base_offset, end_offset, entry.sent_crc)
            self._admission.add(entry.header.writer_id, written, timestamp_ms)
            base_offset = end_offset
        if not self._options.fsync:
            self._publish()
        return timestamp_ms

    def _roll(self) -> None:
        """Go on in a new segment; the old one is on the device before the new one exists."""
        old = self.segments.active
        if old.end_offset == old.base_offset:
            raise RecordTooLargeError(f"{self._log.title}: the segment is full of batches without records")
        self._fsync(self.segments.sync_active)
        self.segments.roll()
        self._durable = self.segments.frontier
        self._checkpoints.is_wanted = True
        self._publish()

    def raise_floor(self, timestamp_ms: int) -> None:
        """Give all later records timestamps from a time on.

        Raises:
            InvalidTimestampError: The time is after the server's clock.
        """
        with self._changed:
            if timestamp_ms > (now_ms := self._clock.now_ms()):
                raise future_error(timestamp_ms, now_ms)
            if timestamp_ms > self.floor_ms:
                self.floor_ms = timestamp_ms
                self._checkpoints.is_wanted = True

    # -- durability ----------------------------------------------------------------------------------------------------

    def sync(self, ticket: int | None = None) -> int:
        """Return the durable offset when everything appended so far, or up to a ticket, is on the device.

        Threads that come during an fsync share the next one. Previous offsets are on the device too, unless there is a
        ticket: an acknowledgement does not need them, because a replay restores them.

        Raises:
            StorageError: The device refused, now or before: records may be lost, and the log is no longer written.
            NotLeaderError: The log was closed before.
        """
        with self._sync_lock:
            if ticket is None or ticket > self._synced:
                if self._closed:  # the folder may be gone, or belong to another log
                    raise self._is_closed()
                self._sync()
            if ticket is None:
                self._fsync(self.segments.sync_previous)
            return self._durable.offset

    def _sync(self) -> None:
        with self._changed:
            if isinstance(self.stopped, StorageError):
                raise StorageError(f"{self._log.title}: {self.stopped}")
            segment, frontier, written = self.segments.active, self.segments.frontier, self.written_bytes
        if segment.synced_size < frontier.position:
            self._fsync(partial(_flush, segment, frontier.position))
        with self._changed:
            self._synced = written
            if frontier > self._durable:
                self._durable = frontier
                if self._options.fsync:
                    self._publish()

    def _fsync(self, sync: Callable[[], object]) -> None:
        """Have something brought to the device. After one failure nothing is: the log stops, whatever stopped it before."""
        try:
            self._fsyncs.run(sync, self._durable.offset)
        except StorageError as error:
            with self._changed:
                reason = self._stop(error)
            raise StorageError(f"{self._log.title}: {error}") from reason

    def flush(self) -> None:
        """Make the log durable, and write the recovery point when it is due. It raises as `sync` and `checkpoint`."""
        if self._closed or self.stopped is not None:
            return
        self.sync()
        if self._checkpoints.is_due(self.written_bytes):
            self.checkpoint(durable=False)

    def checkpoint(self, *, durable: bool) -> None:
        """Write the recovery point, above everything appended before the call.

        Args:
            durable: Whether it is on the device when this returns.

        Raises:
            StorageError: The disk refused; the old recovery point stands, and the next flush tries again.
        """
        with self._sync_lock:
            if not self._closed:  # else the folder may belong to another log
                self._checkpoint(durable=durable)

    def _checkpoint(self, *, durable: bool) -> None:
        with self._changed:
            self._admission.expire(self._clock, self._options.writer_expiration_ms)
            drafts = [(segment, segment.draft()) for segment in self.segments.held]
            writers, floor_ms, written = self._admission.snapshot(), self.floor_ms, self.written_bytes
            self._checkpoints.is_wanted = False
        try:
            if written > self._synced:
                self._sync()
            self._fsync(self.segments.sync_previous)
            marks = tuple(replace(draft, index=each.index_mark(draft.index.entries)) for each, draft in drafts)
            found = recovery_point.Checkpoint(marks[-1].end_offset, floor_ms, marks, writers)
            recovery_point.save(self._folder, found, durable=durable)
        except BaseException as error:
            self._checkpoints.is_wanted = True
            if isinstance(error, OSError):
                raise StorageError(f"{self._log.title}: no recovery point: {error.strerror or error}") from error
            raise
        self._checkpoints.note(written)

    # -- ending --------------------------------------------------------------------------------------------------------

    def drop_before(self, time_ms: int, offset_max: int | None) -> int:
        """Drop the oldest segments whose records are all older than a time and below an offset; return how many.

        When that is true of all records, the log goes on in an empty segment, so its end offset stays.

        Args:
            time_ms: Records at or after it stay.
            offset_max: Records at or above it stay; None for no such bound.

        Raises:
            StorageError: The disk refused a new segment or a deletion; the next call tries again to delete.
        """

        def is_over(segment: Segment) -> bool:
            below = offset_max is None or segment.end_offset <= offset_max
            return segment.max_timestamp_ms < time_ms and below and segment.end_offset > segment.base_offset

        return self._drop(is_over, 1, may_roll=True)

    def drop_copied(self, offset_max: int, keep: int) -> int:
        """Drop the oldest segments whose records are all below an offset, held elsewhere; return how many.

        Args:
            offset_max: Records at or above it stay.
            keep: How many of the newest segments stay, the one being written included.

        Raises:
            StorageError: As `drop_before`.
        """
        return self._drop(lambda segment: offset_max >= segment.end_offset, keep, may_roll=False)

    def _drop(self, is_over: Callable[[Segment], bool], keep: int, *, may_roll: bool) -> int:
        with self._retention_lock:
            dropped = self._drop_first(is_over, keep, may_roll=may_roll)
            if self.segments.has_dropped:
                # The recovery point must know their writers before they go.
                self.checkpoint(durable=True)
                self.segments.delete_dropped()
            return dropped

    def _drop_first(self, is_over: Callable[[Segment], bool], keep: int, *, may_roll: bool) -> int:
        with self._changed:
            if self.stopped is not None or self._closed:
                return 0
            if may_roll and all(is_over(segment) for segment in self.segments.held):
                self._roll()
            if dropped := self.segments.drop(is_over, keep):
                self._checkpoints.is_wanted = True
                self._publish()
                self._log.info("dropped %d segments; the log starts at %d", dropped, self.start)
            return dropped

    def close(self, *, save: bool = True) -> None:
        """End all use of the log; those that wait in it get `NotLeaderError`. Closing again does nothing.

        Args:
            save: Whether to make it durable and write a recovery point at its end; not before its deletion.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self.reader.close()
            self._changed.notify_all()
        with self._retention_lock, self._sync_lock:  # deletions and fsyncs under way end before
            if not save or self.stopped is not None or not self._checkpoints.is_owed(self.written_bytes):
                return
            try:
                self._checkpoint(durable=True)
            except StorageError as error:
                self._log.error("not closed cleanly: %s", error)


def _flush(segment: Segment, size: int) -> None:
    failpoint("tablet.flush.before")
    segment.sync(size)
    failpoint("tablet.flush.after")
