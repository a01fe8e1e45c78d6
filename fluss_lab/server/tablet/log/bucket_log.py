"""The log of one bucket: segments, writers, and how far it is readable and durable."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from fluss_lab import files
from fluss_lab.clock import Clock
from fluss_lab.errors import (
    CorruptDataError,
    FlussError,
    InvalidTimestampError,
    NotLeaderError,
    RecordTooLargeError,
    StorageError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.records.batch import place
from fluss_lab.server.folder.disk_reserve import refusal
from fluss_lab.server.tablet.append.batch_admission import Admission
from fluss_lab.server.tablet.append.payload_validation import CheckedBatch
from fluss_lab.server.tablet.append.writer_state import WriterStates, WrittenBatch
from fluss_lab.server.tablet.buckets.bucket_logger import BucketLogger
from fluss_lab.server.tablet.log import recovery_point
from fluss_lab.server.tablet.log.append_types import Appended, Derived, Entry, LogOptions
from fluss_lab.server.tablet.log.dropped_segments import DroppedSegments
from fluss_lab.server.tablet.log.file_handles import HandlePool
from fluss_lab.server.tablet.log.log_reader import LogReader
from fluss_lab.server.tablet.log.log_recovery import SUSPECT_FILE, Recovery
from fluss_lab.server.tablet.log.log_state import LogState
from fluss_lab.server.tablet.log.log_view import Frontier, LogView
from fluss_lab.server.tablet.log.segment import UNREADABLE, Segment

#: A checkpoint is due after so many bytes: recovery then reads and checks the rest in 3 ms.
_CHECKPOINT_BYTES: Final = 8 << 20
#: Or after so long: what an idle bucket leaves to check is small anyway.
_CHECKPOINT_AFTER_MS: Final = 10_000


class BucketLog(LogState):
    """One bucket's log, open.

    Safe for threads. Appends, rolls and drops take the log's lock, for a write at most; reads take none; waiting for
    the device is done under a lock of its own.

    Args:
        folder: The bucket's; it exists.
        options: How to keep it.
        pool: Opens files.
        clock: Gives the timestamps.
        logger: Knows the bucket's name.
        waiting: Bounds the appends that wait for a predecessor, over all logs that share it.
        changelog: Whether it is of a primary-key table, and keeps previous offsets.
        durable_offset: Up to where it was on the device, as somebody else remembers; None: nobody does.

    Attributes:
        reader: Reads the log.
        lock: Held by whoever appends; what it guards does not move while it is held. It may be taken again.

    Raises:
        OSError, StorageError, CorruptDataError: The file system refused to read or mend it, or nothing is left of it.
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
        self._folder, self._options, self._pool = folder, options, pool
        self._clock, self._log, self._changelog = clock, logger, changelog
        self.lock = self._changed = threading.Condition()
        self._sync_lock = threading.Lock()
        self._retention_lock = threading.Lock()
        self.reader = LogReader(logger.title, self.stop_for)
        self._doomed = DroppedSegments(folder, logger.title)
        self._stopped: FlussError | None = None
        self._sound: Frontier | None = None
        self._closed = False
        # Bytes appended since the log was opened; how many of them are on the device, and how many below the checkpoint.
        self._written = self._synced = self._checkpointed = 0
        self._checkpoint_ms = clock.monotonic_ms()
        self._checkpoint_due = False
        interval = options.index_interval_bytes
        found = Recovery(folder, pool, interval, changelog=changelog, durable_offset=durable_offset).run()
        self.reader.lost_start = found.lost_start
        self._admission = Admission(found.writers, self._changed, waiting)
        self._segments = tuple(found.segments)
        self._floor_ms = found.floor_ms
        self._durable = Frontier(-1, 0, found.recovery_point)
        if found.corruption is not None:
            self._end_by(found.corruption)
        elif found.lost_start is not None:
            self._stop(found.lost_start)
        self._settle_found()
        self._log.info("open: [%d, %d) in %d segments", self.start, self.end, self.segment_count)

    def _settle_found(self) -> None:
        """Make durable what recovery found, so that what is readable now stays so."""
        try:
            for segment in self._segments:
                if segment.synced_size < segment.size:
                    self._checkpoint_due = True
                    segment.sync(segment.size)
        except OSError as error:
            raise self._fail_sync(error) from error
        try:
            _ = self._active.index
        except UNREADABLE as error:
            self._end_by(error)
        self._durable = self._frontier()
        self._publish()

    # -- what it shows -------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Show readers what they may read now, and wake those who wait for it."""
        frontier = self._durable if self._options.fsync else self._frontier()
        frontier = frontier if self._sound is None else min(frontier, self._sound)
        bases = tuple(segment.base_offset for segment in self._segments)
        self.reader.publish(LogView(self._segments, bases, frontier))

    def _stop(self, reason: FlussError) -> FlussError:
        """Accept no append any more, for a reason; the first one stays."""
        if self._stopped is None:
            self._stopped = reason
            self._log.error("stopped: %s", reason)
        return self._stopped

    def _end_by(self, reason: FlussError) -> None:
        """Accept no append any more, and tell readers who reach the end that nothing will follow."""
        self._stop(reason)
        self.reader.ended_by = reason

    def end_by(self, reason: FlussError, sound: Frontier | None = None) -> None:
        """Stop the log for good: it no longer agrees with what is made of it, or is `sound` up to a place only."""
        with self._changed:
            self._sound = sound or self._sound
            self._end_by(reason)
            self._publish()

    def stop_for(self, reason: FlussError) -> None:
        """Accept no append any more."""
        with self._changed:
            self._stop(reason)

    # -- appending -----------------------------------------------------------------------------------------------------

    def append(self, batches: Sequence[CheckedBatch], wait_ms: int = 0) -> Appended:
        """Append batches one after another, or answer where they are already. All new ones are written, or none.

        Args:
            batches: Checked, at least one.
            wait_ms: How long to wait for a writer's earlier batch that is still on its way.

        Returns:
            The offsets. Hand it to `acknowledge` before telling anybody that the records are there.

        Raises:
            OutOfOrderSequenceError: An earlier batch of the writer did not come; send that first.
            DuplicateSequenceError: See `Admission.admit`.
            StorageError: The disk refused; nothing was appended.
            CorruptDataError, NotLeaderError: The log cannot be written (any more).
        """
        with self._changed:
            known = self._admission.admit(batches, wait_ms, self._check_writable)
            base_offset = self.end if known[0] is None else known[0].base_offset
            fresh = [batch for batch, before in zip(batches, known, strict=True) if before is None]
            if fresh:
                self._append([Entry.of(batch) for batch in fresh])
            end_offset = self.end if known[-1] is None else known[-1].end_offset
            return Appended(base_offset, end_offset, self._written)

    def append_derived(self, batch: CheckedBatch, wait_ms: int, derive: Callable[[int], Derived]) -> Appended:
        """Append what a batch leads to, or answer where that is already. All of it happens, or nothing.

        Args:
            batch: Checked; its writer and sequence are those of what is appended.
            wait_ms: As `append`.
            derive: Called with the base offset, under the log's lock, if the batch is new. What it raises is raised.

        Returns:
            As `append`.

        Raises:
            OutOfOrderSequenceError, DuplicateSequenceError, StorageError, CorruptDataError, NotLeaderError: As `append`.
        """
        with self._changed:
            known = self._admission.admit([batch], wait_ms, self._check_writable)[0]
            if known is not None:
                return Appended(known.base_offset, known.end_offset, self._written)
            base_offset = self.end
            derived = derive(base_offset)
            if derived.entry is not None:
                timestamp_ms = self._append([derived.entry])
                derived.commit(timestamp_ms)
            return Appended(base_offset, self.end, self._written)

    def acknowledge(self, appended: Appended) -> None:
        """Return when an append is as durable as the log's option promises.

        Raises:
            StorageError: The device refused: the records may be lost, and the log cannot be written any more.
        """
        if self._options.fsync:
            self.sync(appended.ticket)

    def settle(self) -> None:
        """Return when everything appended so far is readable.

        Raises:
            StorageError: It never will be, because the device refused.
        """
        if self._options.fsync:
            self.sync(self._written)

    def writers(self) -> WriterStates:
        """Return a copy of the writers; under `lock`, as they are at the log's end."""
        with self._changed:
            return self._admission.snapshot()

    def adopt_writers(self, older: WriterStates) -> None:
        """Take in what is known elsewhere of batches before those that this log knows of."""
        with self._changed:
            self._admission.adopt(older)

    def _check_writable(self) -> None:
        if self._closed:
            raise NotLeaderError(f"{self._log.title}: the bucket was closed; refresh the metadata and retry")
        if self._stopped is not None:
            raise type(self._stopped)(f"{self._log.title} cannot be written: {self._stopped}")

    def _append(self, entries: list[Entry]) -> int:
        """Write entries behind one another, all or none, and return their timestamp."""
        self._options.check_disk(f"{self._log.title}: nothing was appended")
        size = sum(entry.header.size for entry in entries)
        records = sum(entry.header.record_count for entry in entries)
        if not self._active.fits(size, records, self._options.segment_bytes):
            self._roll()
        segment = self._active
        timestamp_ms = max(self._clock.now_ms(), self._floor_ms)
        offset = segment.end_offset
        buffers: list[bytearray | memoryview] = []
        for entry in entries:
            place(entry.head, offset, timestamp_ms)
            offset += entry.header.record_count
            buffers += (entry.head, *entry.rest)
        try:
            segment.write(buffers, entries[0].previous)
        except CorruptDataError as error:
            raise self._stop(StorageError(str(error))) from error
        except OSError as error:
            self._log.error("nothing was appended: %s", error)
            raise StorageError(f"{self._log.title}: nothing was appended: {refusal(error)}") from error
        self._floor_ms = timestamp_ms
        self._written += size
        for entry in entries:
            base_offset, end_offset = segment.end_offset, segment.end_offset + entry.header.record_count
            segment.admit(entry.header.size, end_offset, timestamp_ms)
            written = WrittenBatch(entry.header.batch_sequence, base_offset, end_offset, entry.sent_crc)
            self._admission.add(entry.header.writer_id, written, timestamp_ms)
        if not self._options.fsync:
            self._publish()
        return timestamp_ms

    def _roll(self) -> None:
        """Go on in a new segment; the old one is on the device before the new one exists."""
        old = self._active
        if old.end_offset == old.base_offset:
            raise RecordTooLargeError(f"{self._log.title}: the segment is full of batches without records")
        interval_bytes = self._options.index_interval_bytes
        segment = Segment(self._folder, old.end_offset, self._pool, interval_bytes, changelog=self._changelog)
        try:
            old.sync(old.size)
        except OSError as error:
            raise self._fail_sync(error) from error
        self._sync_previous()
        try:
            failpoint("tablet.roll.before")
            segment.create()
        except OSError as error:
            raise StorageError(f"{self._log.title}: no new segment: {refusal(error)}") from error
        self._segments = (*self._segments, segment)
        self._durable = self._frontier()
        self._checkpoint_due = True
        self._publish()

    def raise_floor(self, timestamp_ms: int) -> None:
        """Give no later record a timestamp before a time.

        Raises:
            InvalidTimestampError: The time is after the server's clock.
        """
        with self._changed:
            if timestamp_ms > (now_ms := self._clock.now_ms()):
                raise InvalidTimestampError(
                    f"time {timestamp_ms} is after the server's clock ({now_ms}): what will be then is not yet known"
                )
            if timestamp_ms > self._floor_ms:
                self._floor_ms = timestamp_ms
                self._checkpoint_due = True

    # -- durability ----------------------------------------------------------------------------------------------------

    def sync(self, ticket: int | None = None) -> int:
        """Return the durable offset when everything appended so far, or up to a ticket, is on the device.

        Threads that come while another one waits for the device are served together by the next wait. Previous offsets
        are on it too, unless there is a ticket: acknowledging does not need them, because a replay gives them again.

        Raises:
            StorageError: The device refused, now or before. The log cannot be written any more.
        """
        with self._sync_lock:
            if ticket is None or ticket > self._synced:
                self._sync()
            if ticket is None:
                self._sync_previous()
            return self._durable.offset

    def _sync(self) -> None:
        with self._changed:
            if isinstance(self._stopped, StorageError):
                raise StorageError(f"{self._log.title}: {self._stopped}")
            segment, frontier, written = self._active, self._frontier(), self._written
        if segment.synced_size < frontier.position:
            try:
                failpoint("tablet.flush.before")
                segment.sync(frontier.position)
                failpoint("tablet.flush.after")
            except OSError as error:
                raise self._fail_sync(error) from error
        with self._changed:
            self._synced = written
            if frontier > self._durable:
                self._durable = frontier
                if self._options.fsync:
                    self._publish()

    def _sync_previous(self) -> None:
        try:
            if (previous := self._active.previous) is not None:
                previous.sync()
        except OSError as error:
            raise self._fail_sync(error) from error

    def _fail_sync(self, error: OSError) -> StorageError:
        """Stop the log after a failed fsync, and leave word of it for the next start."""
        with self._changed:
            reason = self._stop(StorageError(
                f"fsync failed ({error.strerror or error}): what was appended from offset {self._durable.offset} on may "
                "not survive a power loss. Mend the disk and start the server again"
            ))  # fmt: skip
        with suppress(OSError):
            files.write_atomic(self._folder / SUSPECT_FILE, str(error).encode())
        return StorageError(f"{self._log.title}: {reason}")

    def flush(self) -> None:
        """Do what is owed in the background: make the log durable, and write the recovery point when it is due.

        Raises:
            StorageError: As `sync` and `checkpoint`.
        """
        if self._closed or self._stopped is not None:
            return
        self.sync()
        fresh = self._written - self._checkpointed
        waited_ms = self._clock.monotonic_ms() - self._checkpoint_ms
        if self._checkpoint_due or fresh >= _CHECKPOINT_BYTES or (fresh and waited_ms >= _CHECKPOINT_AFTER_MS):
            self.checkpoint(durable=False)

    def checkpoint(self, *, durable: bool) -> None:
        """Write the recovery point: everything appended before the call is below it.

        Args:
            durable: Whether it is on the device when this returns.

        Raises:
            StorageError: The disk refused; the old recovery point stands, and another is tried with the next flush.
        """
        with self._sync_lock:
            if not self._closed:  # else the folder may belong to another log
                self._checkpoint(durable=durable)

    def _checkpoint(self, *, durable: bool) -> None:
        with self._changed:
            self._admission.expire(self._clock.now_ms() - self._options.writer_expiration_ms)
            drafts = [(segment, segment.draft()) for segment in self._segments]
            writers, floor_ms, written = self._admission.snapshot(), self._floor_ms, self._written
            self._checkpoint_due = False
        try:
            if written > self._synced:
                self._sync()
            self._sync_previous()
            marks = tuple(replace(draft, index=each.index_mark(draft.index.entries)) for each, draft in drafts)
            found = recovery_point.Checkpoint(marks[-1].end_offset, floor_ms, marks, writers)
            recovery_point.save(self._folder, found, durable=durable)
        except BaseException as error:
            self._checkpoint_due = True
            if isinstance(error, OSError):
                raise StorageError(f"{self._log.title}: no recovery point: {error.strerror or error}") from error
            raise
        self._checkpointed, self._checkpoint_ms = written, self._clock.monotonic_ms()

    # -- ending --------------------------------------------------------------------------------------------------------

    def drop_before(self, time_ms: int, offset_max: int | None) -> int:
        """Drop the oldest segments whose records are all older than a time and below an offset.

        When that is true of all records, the log goes on in an empty segment, so its end offset stays.

        Args:
            time_ms: Records at or after it stay.
            offset_max: Records at or above it stay; None for no such bound.

        Returns:
            How many segments were dropped.

        Raises:
            StorageError: The disk refused a new segment or a removal; what could not be removed is tried again.
        """

        def is_over(segment: Segment) -> bool:
            below = offset_max is None or segment.end_offset <= offset_max
            return segment.max_timestamp_ms < time_ms and below and segment.end_offset > segment.base_offset

        return self._drop(is_over, 1, may_roll=True)

    def drop_copied(self, offset_max: int, keep: int) -> int:
        """Drop the oldest segments whose records are all below an offset: they are held elsewhere.

        Args:
            offset_max: Records at or above it stay.
            keep: How many of the newest segments stay, the one being written included.

        Returns:
            How many segments were dropped.

        Raises:
            StorageError: As `drop_before`.
        """
        return self._drop(lambda segment: offset_max >= segment.end_offset, keep, may_roll=False)

    def _drop(self, is_over: Callable[[Segment], bool], keep: int, *, may_roll: bool) -> int:
        with self._retention_lock:
            dropped = self._drop_first(is_over, keep, may_roll=may_roll)
            if self._doomed:
                # What they say of writers must be known elsewhere before they go.
                self.checkpoint(durable=True)
                self._doomed.delete(self.start)
            return dropped

    def _drop_first(self, is_over: Callable[[Segment], bool], keep: int, *, may_roll: bool) -> int:
        with self._changed:
            if self._stopped is not None or self._closed:
                return 0
            if may_roll and all(is_over(segment) for segment in self._segments):
                self._roll()
            dropped = 0
            while dropped < len(self._segments) - keep and is_over(self._segments[dropped]):
                dropped += 1
            if dropped:
                self._doomed.add(self._segments[:dropped])
                self._segments = self._segments[dropped:]
                self._checkpoint_due = True
                self._publish()
                self._log.info("dropped %d segments; the log starts at %d", dropped, self._segments[0].base_offset)
            return dropped

    def close(self, *, save: bool = True) -> None:
        """End all use of the log; those who wait in it get `NotLeaderError`. Closing again does nothing.

        Args:
            save: Whether to make it durable and write a recovery point at its end; not when it is to be deleted.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self.reader.close()
            self._changed.notify_all()
        with self._retention_lock, self._sync_lock:  # who is deleting, or making it durable, ends before
            is_owed = self._written > self._checkpointed or self._checkpoint_due
            if not save or self._stopped is not None or not is_owed:
                return
            try:
                self._checkpoint(durable=True)
            except StorageError as error:
                self._log.error("not closed cleanly: %s", error)
