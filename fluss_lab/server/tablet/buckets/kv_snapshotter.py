"""The schedule of key-value snapshots: when, of which buckets, and their report to the coordinator."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from fluss_lab.clock import Clock
from fluss_lab.errors import (
    ConflictError,
    CorruptDataError,
    FlussError,
    NotFoundError,
    NotLeaderError,
    UnavailableError,
)
from fluss_lab.model.names import TableBucket
from fluss_lab.records.kv_manifest import CompletedSnapshot
from fluss_lab.rpc.serving.grpc_server import as_fluss_error
from fluss_lab.server.kv.store_view import KvImage
from fluss_lab.server.tablet.buckets.bucket import Bucket
from fluss_lab.server.tablet.buckets.coordinator_reports import KvSnapshotReporter
from fluss_lab.server.tablet.buckets.kv_bucket import KvBucket

log = logging.getLogger(__name__)

#: After a failure the next attempt waits so long, then twice as long, up to the interval.
RETRY_MS: Final = 5_000
#: Buckets are examined so often, or a tenth of the interval if that is shorter.
LOOK_INTERVAL_MS_MAX: Final = 5_000
#: Of an interval: where within it a bucket's turn is. A prime, so that neighbours lie apart.
_TURNS: Final = 9973

Buckets: TypeAlias = Callable[[], Iterable[Bucket]]


@dataclass(slots=True)
class _Turn:
    """When a bucket is due, and what became of the last attempts."""

    due_ms: float
    failures: int = 0
    force: bool = False
    taking: threading.Lock = field(default_factory=threading.Lock)


class KvSnapshotter:
    """Takes snapshots of the primary-key buckets of a server. Safe for threads; one attempt at a time per bucket.

    Args:
        buckets: Returns the open buckets.
        clock: Says when a bucket is due, and when a snapshot was taken.
        interval_ms: Between two snapshots of a bucket; each bucket has its own turn within it.
        reporter: Reports them to the coordinator.
    """

    def __init__(self, buckets: Buckets, clock: Clock, *, interval_ms: int, reporter: KvSnapshotReporter) -> None:
        self._buckets, self._clock, self._interval_ms, self._reporter = buckets, clock, interval_ms, reporter
        self._lock = threading.Lock()
        self._turns: dict[TableBucket, _Turn] = {}

    @property
    def look_interval_ms(self) -> int:
        """Return how often `tick` should be called."""
        return max(1, min(LOOK_INTERVAL_MS_MAX, self._interval_ms // 10))

    def tick(self) -> None:
        """Take the snapshots that are due, and report to the coordinator those that are not reported. Failures are logged."""
        buckets = [bucket for bucket in self._buckets() if bucket.kv is not None]
        with self._lock:
            present = {bucket.id for bucket in buckets}
            self._turns = {each: turn for each, turn in self._turns.items() if each in present}
        self._reporter.forget_all_but(present)
        for bucket in buckets:
            turn = self._turn(bucket.id)
            if turn.due_ms <= self._clock.monotonic_ms():
                self._try(bucket, turn)
        self._report(buckets)

    def take_all(self) -> None:
        """Take a snapshot of every bucket that changed since its last one, and report them. Failures are logged."""
        buckets = [bucket for bucket in self._buckets() if bucket.kv is not None]
        for bucket in buckets:
            self._try(bucket, self._turn(bucket.id))
        self._report(buckets)

    def take(self, bucket: Bucket) -> CompletedSnapshot | None:
        """Take a snapshot of a bucket now, unless nothing changed since the last one, and report it.

        Returns:
            The bucket's newest snapshot; None of a bucket that never had a record.

        Raises:
            NotLeaderError: The bucket was closed.
            StorageError: The disk refused; the snapshot before stays.
            CorruptDataError: The log is damaged or stopped; its end is not known.
        """
        taken = self._take(bucket, self._turn(bucket.id))
        self._report([bucket])
        return taken

    def take_of_stopped(self, bucket: Bucket) -> None:
        """Take a snapshot of a bucket whose log was found damaged, but whose rows in memory are right, and report it.

        Raises:
            NotLeaderError, StorageError: As `take`.
            CorruptDataError: The rows are not those of the log.
        """
        kv = bucket.kv
        if kv is None or not kv.is_live:
            raise CorruptDataError(f"{bucket.id}: the rows in memory are not those of the log")
        with self._turn(bucket.id).taking:
            self._write(bucket, kv)
        self._report([bucket])

    def take_anew(self, bucket: Bucket, image: KvImage) -> None:
        """Write rows that were made elsewhere as the newest snapshot of a stopped bucket, and report it.

        Raises:
            NotLeaderError, StorageError: As `take`.
        """
        kv = bucket.kv
        assert kv is not None, "of a log table"
        with self._turn(bucket.id).taking:
            if (known := self._registered_snapshot(bucket)) is not None:
                kv.snapshots.skip_ids(known[0])
            writers = bucket.log.writers().to_json()
            kv.snapshots.write(image, writers=writers, created_ms=self._clock.now_ms(), anew=True)
        self._report([bucket])

    # -- inside --------------------------------------------------------------------------------------------------------

    def _turn(self, bucket: TableBucket) -> _Turn:
        with self._lock:
            turn = self._turns.get(bucket)
            if turn is None:
                number = (
                    bucket.table_id * 7919 + (bucket.partition_id or 0) * 104729 + bucket.bucket * 1299709
                ) % _TURNS
                wait_ms = self._interval_ms * (number + 1) / _TURNS
                self._turns[bucket] = turn = _Turn(self._clock.monotonic_ms() + wait_ms)
            return turn

    def _try(self, bucket: Bucket, turn: _Turn) -> None:
        if bucket.log.stopped is not None:
            return  # why was logged, and its rows may not be those of the log
        try:
            self._take(bucket, turn)
        except NotLeaderError:
            return  # it was closed meanwhile
        except Exception as error:
            turn.failures += 1
            wait_ms = min(self._interval_ms, RETRY_MS << min(turn.failures - 1, 20))
            turn.due_ms = self._clock.monotonic_ms() + wait_ms
            known = as_fluss_error(error, f"snapshot of {bucket.id}")
            log.error("event=kv_snapshot_failed bucket=%s attempts=%d retry_ms=%d error=%s",
                      bucket.id, turn.failures, wait_ms, known)  # fmt: skip

    def _take(self, bucket: Bucket, turn: _Turn) -> CompletedSnapshot | None:
        kv = bucket.kv
        assert kv is not None, "of a log table"
        with turn.taking:
            latest = kv.snapshots.latest
            log_offset = latest.log_offset if latest is not None else 0
            if kv.store.log_offset == log_offset and not turn.force:
                return self._settle(turn, latest)
            if bucket.log.stopped is not None:
                raise type(bucket.log.stopped)(f"{bucket.id}: no snapshot of a stopped log: {bucket.log.stopped}")
            completed = self._write(bucket, kv)
            log.info("event=kv_snapshot bucket=%s snapshot=%d log_offset=%d rows=%d bytes=%d new_bytes=%d",
                     bucket.id, completed.snapshot_id, completed.log_offset, completed.row_count, completed.size_bytes,
                     completed.new_bytes)  # fmt: skip
            return self._settle(turn, completed)

    def _write(self, bucket: Bucket, kv: KvBucket) -> CompletedSnapshot:
        taken_ms = self._clock.now_ms()
        try:
            image, writers = kv.capture()
            # A snapshot must never know more than the log: after a power loss it would.
            bucket.log.sync()
            return kv.snapshots.write(image, writers=writers, created_ms=taken_ms)
        except FlussError as error:
            if kv.snapshots.closed:  # whatever failed, failed because the bucket's files went
                raise NotLeaderError(f"{bucket.id} was closed while its snapshot was taken") from error
            raise

    def _settle(self, turn: _Turn, completed: CompletedSnapshot | None) -> CompletedSnapshot | None:
        turn.failures, turn.force = 0, False
        turn.due_ms = self._clock.monotonic_ms() + self._interval_ms
        return completed

    def _report(self, buckets: Iterable[Bucket]) -> None:
        for bucket in buckets:
            assert bucket.kv is not None
            latest = bucket.kv.snapshots.latest
            if latest is None:
                continue
            try:
                self._reporter.report(bucket, latest)
            except NotFoundError as error:
                log.info("event=kv_snapshot_not_wanted bucket=%s error=%s", bucket.id, error)
            except ConflictError as error:
                self._settle_conflict(bucket, latest, error)
            except UnavailableError as error:
                log.warning("event=kv_snapshot_not_reported bucket=%s error=%s", bucket.id, error)
                return  # the others would wait for nothing
            except Exception as error:
                known = as_fluss_error(error, f"report of a snapshot of {bucket.id}")
                log.warning("event=kv_snapshot_not_reported bucket=%s error=%s", bucket.id, known)

    def _settle_conflict(self, bucket: Bucket, latest: CompletedSnapshot, error: ConflictError) -> None:
        """Where the coordinator knows another snapshot by the same id or a later one, go on behind that."""
        log.warning("event=kv_snapshot_not_reported bucket=%s error=%s", bucket.id, error)
        known = self._registered_snapshot(bucket)
        if known is None or known <= (latest.snapshot_id, latest.log_offset):
            return  # it was refused for another reason, and is reported again
        assert bucket.kv is not None
        bucket.kv.snapshots.skip_ids(known[0])
        turn = self._turn(bucket.id)
        turn.force, turn.due_ms = True, self._clock.monotonic_ms()

    def _registered_snapshot(self, bucket: Bucket) -> tuple[int, int] | None:
        """Return id and log offset of the newest snapshot that the coordinator knows; None when it knows none, or cannot be asked."""
        try:
            return self._reporter.latest(bucket)
        except FlussError as error:
            log.warning("event=kv_snapshots_not_known bucket=%s error=%s", bucket.id, error)
            return None
