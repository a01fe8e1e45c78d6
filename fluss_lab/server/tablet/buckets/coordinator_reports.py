"""The reports of a tablet server to its coordinator: how far its logs are on the device, and its key-value snapshots."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Final

from fluss_lab.errors import FlussError, NotFoundError
from fluss_lab.model.names import TableBucket
from fluss_lab.records.kv_manifest import CompletedSnapshot
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import CoordinatorGateway
from fluss_lab.rpc.message_codec import path_message
from fluss_lab.server.tablet.buckets.bucket import Bucket

log = logging.getLogger(__name__)

#: Buckets of one report: 30 kB.
_BUCKETS_MAX: Final = 1_000
#: Buckets never move, so a bucket's leader is always in its first term.
_LEADER_EPOCH: Final = 0


class DurableReporter:
    """Reports the durable offsets that changed, which a later start must find again. Safe for threads; one report at a time.

    Args:
        buckets: Returns the open buckets.
        coordinator: Returns the coordinator's gateway; None: there is no coordinator.
        epoch: Returns the epoch of the coordinator that this server heard last.
    """

    def __init__(
        self,
        buckets: Callable[[], Iterable[Bucket]],
        coordinator: Callable[[], CoordinatorGateway] | None,
        epoch: Callable[[], int],
    ) -> None:
        self._buckets, self._coordinator, self._epoch = buckets, coordinator, epoch
        self._lock = threading.Lock()
        self._reported: dict[TableBucket, int] = {}

    def report(self) -> None:
        """Report the durable offsets that changed. A failure is logged; the next report makes up for it."""
        if self._coordinator is None:
            return
        with self._lock:
            found = {each.id: each.log.durable_offset for each in self._buckets() if each.log.stopped is None}
            self._reported = {bucket: offset for bucket, offset in self._reported.items() if bucket in found}
            changed = [bucket for bucket, offset in found.items() if self._reported.get(bucket) != offset]
            try:
                for at in range(0, len(changed), _BUCKETS_MAX):
                    some = {bucket: found[bucket] for bucket in changed[at : at + _BUCKETS_MAX]}
                    self._coordinator().report_buckets(_request(self._epoch(), some))
                    self._reported.update(some)
            except FlussError as error:
                log.info("event=not_reported buckets=%d error=%s", len(changed), error)


def _request(epoch: int, offsets: dict[TableBucket, int]) -> pb.ReportBucketsRequest:
    request = pb.ReportBucketsRequest(coordinator_epoch=epoch)
    for bucket, offset in offsets.items():
        request.buckets.add(
            table_bucket=pb.PbTableBucket(
                table_id=bucket.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket
            ),
            durable_offset=offset,
        )
    return request


class KvSnapshotReporter:
    """Reports each key-value snapshot to the coordinator once. Safe for threads.

    Args:
        coordinator: Returns the coordinator's gateway; None: there is no coordinator.
        epoch: Returns the epoch of the coordinator that this server heard last.
    """

    def __init__(self, coordinator: Callable[[], CoordinatorGateway] | None, epoch: Callable[[], int]) -> None:
        self._coordinator, self._epoch = coordinator, epoch
        self._lock = threading.Lock()
        # Of each bucket what was reported, and to which coordinator.
        self._snapshots: dict[TableBucket, tuple[int, CompletedSnapshot]] = {}

    def report(self, bucket: Bucket, completed: CompletedSnapshot) -> None:
        """Report a bucket's newest snapshot, unless that was done.

        Raises:
            NotFoundError: The bucket was dropped; it is not reported again.
            ConflictError: The coordinator has another one by that id, or a newer one; or another coordinator has come.
            FlussError: The coordinator cannot be reached, or failed.
        """
        if self._coordinator is None:
            return
        epoch = self._epoch()
        with self._lock:
            if self._snapshots.get(bucket.id) == (epoch, completed):
                return
        request = pb.CommitKvSnapshotRequest(
            completed_snapshot=completed.to_json(), coordinator_epoch=epoch, bucket_leader_epoch=_LEADER_EPOCH
        )
        try:
            self._coordinator().commit_kv_snapshot(request)
        except NotFoundError:
            self._note(bucket.id, epoch, completed)
            raise
        self._note(bucket.id, epoch, completed)

    def latest(self, bucket: Bucket) -> tuple[int, int] | None:
        """Return id and log offset of the newest snapshot of a bucket that the coordinator knows; None: it knows none.

        Raises:
            FlussError: The coordinator cannot be reached, or failed.
        """
        if self._coordinator is None:
            return None
        path = path_message(bucket.table.path)
        request = pb.GetLatestKvSnapshotsRequest(table_path=path)
        if bucket.partition is not None:
            request.partition_name = bucket.partition
        response = self._coordinator().get_latest_kv_snapshots(request)
        if response.table_id != bucket.id.table_id:
            return None
        for entry in response.latest_snapshots:
            if entry.bucket_id == bucket.id.bucket and entry.HasField("snapshot_id"):
                return entry.snapshot_id, entry.log_offset
        return None

    def forget_all_but(self, buckets: Collection[TableBucket]) -> None:
        """Forget what was reported of other buckets."""
        with self._lock:
            self._snapshots = {bucket: reported for bucket, reported in self._snapshots.items() if bucket in buckets}

    def _note(self, bucket: TableBucket, epoch: int, completed: CompletedSnapshot) -> None:
        with self._lock:
            self._snapshots[bucket] = (epoch, completed)
