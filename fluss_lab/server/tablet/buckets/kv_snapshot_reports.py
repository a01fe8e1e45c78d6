"""The reports of key-value snapshots to the coordinator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from fluss_lab.errors import NotFoundError
from fluss_lab.model.names import TableBucket
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import CoordinatorGateway
from fluss_lab.rpc.message_codec import path_message
from fluss_lab.server.kv.snapshots.completed_snapshot import CompletedSnapshot
from fluss_lab.server.tablet.buckets.bucket import Bucket

#: Buckets never move, so a bucket's leader is always in its first term.
_LEADER_EPOCH = 0


class Reporter:
    """Tells the coordinator each snapshot once. Safe for threads.

    Args:
        coordinator: Returns the coordinator's gateway; None: there is nobody to tell.
        epoch: Returns the epoch of the coordinator that this server heard last.
    """

    def __init__(self, coordinator: Callable[[], CoordinatorGateway] | None, epoch: Callable[[], int]) -> None:
        self._coordinator, self._epoch = coordinator, epoch
        self._lock = threading.Lock()
        # Of each bucket what was told, and to which coordinator.
        self._told: dict[TableBucket, tuple[int, CompletedSnapshot]] = {}

    def report(self, bucket: Bucket, completed: CompletedSnapshot) -> None:
        """Tell of a bucket's newest snapshot, unless that was done.

        Raises:
            NotFoundError: The bucket was dropped; it is not told again.
            ConflictError: The coordinator has another one by that id, or a newer one; or another coordinator has come.
            FlussError: The coordinator cannot be reached, or failed.
        """
        if self._coordinator is None:
            return
        epoch = self._epoch()
        with self._lock:
            if self._told.get(bucket.id) == (epoch, completed):
                return
        request = pb.CommitKvSnapshotRequest(
            completed_snapshot=completed.to_json(),
            coordinator_epoch=epoch,
            bucket_leader_epoch=_LEADER_EPOCH,
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
        """Forget what was told of other buckets."""
        with self._lock:
            self._told = {bucket: told for bucket, told in self._told.items() if bucket in buckets}

    def _note(self, bucket: TableBucket, epoch: int, completed: CompletedSnapshot) -> None:
        with self._lock:
            self._told[bucket] = (epoch, completed)
