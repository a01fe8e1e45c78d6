"""Buckets that a server should hold and could not open: why, and when each is tried again."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from fluss_lab.clock import Clock
from fluss_lab.errors import FlussError, StorageError
from fluss_lab.model.names import TableBucket
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import bucket_of
from fluss_lab.rpc.serving.grpc_server import as_fluss_error

#: After the first failure a bucket is tried again so soon, then after twice as long, up to the limit.
FIRST_WAIT_MS: Final = 200


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The last attempt to open a bucket."""

    request: pb.PbNotifyLeaderAndIsrReqForBucket
    error: FlussError
    failures: int
    due_ms: float


class UnopenedBuckets:
    """What could not be opened. Safe for threads.

    Args:
        clock: Says when a bucket is due.
        wait_max_ms: Longest wait between two attempts.
    """

    def __init__(self, clock: Clock, wait_max_ms: int) -> None:
        self._clock, self._wait_max_ms = clock, wait_max_ms
        self._lock = threading.Lock()
        self._attempts: dict[TableBucket, _Attempt] = {}

    def __contains__(self, bucket: TableBucket) -> bool:
        return bucket in self._attempts

    def note(self, request: pb.PbNotifyLeaderAndIsrReqForBucket, error: Exception) -> FlussError:
        """Note that a bucket could not be opened; return the error for those that want it."""
        bucket = bucket_of(request.table_bucket)
        with self._lock:
            before = self._attempts.get(bucket)
            failures = 1 if before is None else before.failures + 1
            wait_ms = min(FIRST_WAIT_MS << min(failures - 1, 20), self._wait_max_ms)
            known = _describe_error(request, error, self._wait_max_ms)
            self._attempts[bucket] = _Attempt(request, known, failures, self._clock.monotonic_ms() + wait_ms)
            return known

    def request(self, bucket: TableBucket) -> pb.PbNotifyLeaderAndIsrReqForBucket | None:
        """Return what a bucket was to be opened with; None: it is open, or not wanted."""
        attempt = self._attempts.get(bucket)
        return None if attempt is None else attempt.request

    def forget(self, bucket: TableBucket) -> None:
        """Forget a bucket: it is open now, or wanted no more."""
        with self._lock:
            self._attempts.pop(bucket, None)

    def check(self, bucket: TableBucket) -> None:
        """Raise why a bucket could not be opened, if that is so."""
        if (attempt := self._attempts.get(bucket)) is not None:
            raise type(attempt.error)(str(attempt.error))

    def of_table(self, table_id: int | None) -> dict[TableBucket, FlussError]:
        """Return the buckets of a table, or of all, that could not be opened, and why."""
        with self._lock:
            found = {each: attempt.error for each, attempt in self._attempts.items()}
        return {each: error for each, error in found.items() if table_id in {None, each.table_id}}

    def due(self) -> list[pb.PbNotifyLeaderAndIsrReqForBucket]:
        """Return the requests of the buckets that are to be tried again now."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            return [attempt.request for attempt in self._attempts.values() if attempt.due_ms <= now_ms]


def partition_of(request: pb.PbNotifyLeaderAndIsrReqForBucket) -> str | None:
    """Return the name of the partition of the bucket that a request is about; None without partitions."""
    path = request.physical_table_path
    return path.partition_name if path.HasField("partition_name") else None


def durable_offset_of(request: pb.PbNotifyLeaderAndIsrReqForBucket) -> int | None:
    """Return up to where the log of the bucket that a request is about was on the device; None of a new bucket."""
    return request.durable_offset if request.HasField("durable_offset") else None


def _describe_error(request: pb.PbNotifyLeaderAndIsrReqForBucket, error: Exception, wait_max_ms: int) -> FlussError:
    """Return an error that names the bucket, the cause and the remedy; of the class of the cause."""
    bucket = bucket_of(request.table_bucket)
    if isinstance(error, OSError) and error.filename is not None:
        error = StorageError(f"{error.filename}: {error.strerror or error}")
    cause = as_fluss_error(error, f"open bucket {bucket}")
    path = request.physical_table_path
    partition = "" if (name := partition_of(request)) is None else f"({name})"
    return type(cause)(
        f"{path.database_name}.{path.table_name}{partition} bucket {bucket.bucket} [{bucket}] could not be opened: {cause}. "
        f"Repair that; the server tries again by itself, at least every {wait_max_ms / 1000:g} s"
    )
