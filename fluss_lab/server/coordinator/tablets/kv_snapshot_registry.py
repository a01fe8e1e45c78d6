"""The key-value snapshots that tablet servers have completed, as rows of the metadata file, and the calls about them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from fluss_lab.errors import (
    BucketNotFoundError,
    ConflictError,
    InvalidRequestError,
    KvSnapshotNotFoundError,
    PartitionNotFoundError,
    StorageError,
    UnsupportedError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.model import PartitionInfo, TableInfo, TablePath
from fluss_lab.records.kv_manifest import FORMAT, CompletedSnapshot, SnapshotManifest, manifest_name, read_manifest
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.coordinator import coordinator_messages
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore
from fluss_lab.server.coordinator.metadata.table_catalog import LEADER_EPOCH, NO_PARTITION, TableCatalog
from fluss_lab.storage.file_store import ObjectPath, Place
from fluss_lab.storage.store_errors import reason_of
from fluss_lab.storage.store_location import local_place

log = logging.getLogger(__name__)

#: A report has some hundred bytes, and ten for each snapshot retained.
REPORT_BYTES_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class _Bucket:
    """A bucket as the rows have it; its partition is `NO_PARTITION` for a table without partitions."""

    table_id: int
    partition_id: int
    bucket: int

    @property
    def key(self) -> tuple[int, int, int]:
        return self.table_id, self.partition_id, self.bucket

    def __str__(self) -> str:
        partition = "" if self.partition_id == NO_PARTITION else f"partition {self.partition_id}, "
        return f"table {self.table_id}, {partition}bucket {self.bucket}"


class KvSnapshotRegistry:
    """The key-value snapshots of all buckets. Threads may share it.

    Args:
        store: The metadata file.
        catalog: What exists.
        coordinator_epoch: Of this run; reports that name another one are refused.
        remote: ``remote.data.dir``.

    Raises:
        UnsupportedError: A newer version wrote a snapshot's row, which must not be replaced.
    """

    def __init__(self, store: MetadataStore, catalog: TableCatalog, coordinator_epoch: int, remote: Place) -> None:
        self._store = store
        self._remote = remote
        self._catalog = catalog
        self._coordinator_epoch = coordinator_epoch
        self._check_formats()

    # -- the calls -----------------------------------------------------------------------------------------------------

    def commit(self, request: pb.CommitKvSnapshotRequest) -> pb.CommitKvSnapshotResponse:
        """Register a snapshot that a tablet server has completed, and forget those that it does not retain.

        Repeating the request changes nothing. A snapshot older than the latest one is taken only when the report says that
        the latest one is broken.

        Raises:
            InvalidRequestError: It is no report.
            TableNotFoundError, PartitionNotFoundError, BucketNotFoundError: There is no such bucket, or no longer.
            ConflictError: The report is for another coordinator, or leader, or its id was used for another snapshot, or
                is older than the latest one.
            StorageError: The disk refused.
        """
        failpoint("coordinator.kv_commit.before")
        self._check_epochs(request)
        completed = _decode_completed(request.completed_snapshot)
        bucket = self._bucket_of(completed)
        with self._store.write():
            self._check_exists(bucket)
            if self._is_new(bucket, completed):
                self._replace(bucket, completed)
                log.info(
                    "event=kv_snapshot_committed bucket=%s snapshot=%d log_offset=%d rows=%d bytes=%d",
                    completed.bucket, completed.snapshot_id, completed.log_offset, completed.row_count, completed.size_bytes,
                )  # fmt: skip
        failpoint("coordinator.kv_commit.after")
        return pb.CommitKvSnapshotResponse()

    def latest(self, request: pb.GetLatestKvSnapshotsRequest) -> pb.GetLatestKvSnapshotsResponse:
        """Return the latest snapshot of each bucket of a table, or of one of its partitions.

        Raises:
            TableNotFoundError, PartitionNotFoundError: There is no such table or partition.
            InvalidRequestError: A partition is missing, or given for a table without; or the table has no primary key.
        """
        name = request.partition_name if request.HasField("partition_name") else None
        with self._store.read():
            info = self._catalog.table(coordinator_messages.path_of(request.table_path))
            partition = self._partition_of(info, name)
            partition_id = NO_PARTITION if partition is None else partition.partition_id
            found = self._latest(info.table_id, partition_id)
        response = pb.GetLatestKvSnapshotsResponse(table_id=info.table_id)
        if partition is not None:
            response.partition_id = partition.partition_id
        for number in range(info.descriptor.buckets):
            entry = response.latest_snapshots.add(bucket_id=number)
            if number in found:
                entry.snapshot_id, entry.log_offset = found[number]
        return response

    def metadata(self, request: pb.GetKvSnapshotMetadataRequest) -> pb.GetKvSnapshotMetadataResponse:
        """Return where the files of a snapshot are; the first one is its manifest.

        Raises:
            KvSnapshotNotFoundError: The bucket has no such snapshot, or no longer.
            CorruptDataError: Its manifest is damaged.
            StorageError: Its manifest cannot be read.
        """
        partition_id = request.partition_id if request.HasField("partition_id") else NO_PARTITION
        bucket = _Bucket(request.table_id, partition_id, request.bucket_id)
        completed = self._find(bucket, request.snapshot_id)
        folder = self._folder(completed.location)
        manifest = _read_manifest(folder / manifest_name(completed.snapshot_id), bucket)
        names = [manifest.name, manifest.live.name, *(each.file.name for each in manifest.files)]
        return pb.GetKvSnapshotMetadataResponse(
            log_offset=completed.log_offset,
            snapshot_files=[
                pb.PbRemotePathAndLocalFile(remote_path=str(folder / name), local_file_name=name) for name in names
            ],
        )

    def _folder(self, location: str) -> Place:
        """Return a snapshot's folder: below ``remote.data.dir`` when that is in an object store; any path is one."""
        root = str(self._remote)
        if isinstance(self._remote, ObjectPath) and location.startswith(f"{root}/"):
            return replace(self._remote, key=f"{self._remote.key}{location.removeprefix(root)}")
        return local_place(location)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check_epochs(self, request: pb.CommitKvSnapshotRequest) -> None:
        if request.coordinator_epoch != self._coordinator_epoch:
            raise ConflictError(
                f"coordinator epoch {request.coordinator_epoch}: this coordinator has epoch {self._coordinator_epoch}; "
                "register the tablet server again"
            )
        if request.bucket_leader_epoch != LEADER_EPOCH:
            raise ConflictError(
                f"leader epoch {request.bucket_leader_epoch} of the bucket: expected {LEADER_EPOCH}; another server leads it"
            )

    def _bucket_of(self, completed: CompletedSnapshot) -> _Bucket:
        bucket = completed.bucket
        partition_id = NO_PARTITION if bucket.partition_id is None else bucket.partition_id
        return _Bucket(bucket.table_id, partition_id, bucket.bucket)

    def _check_exists(self, bucket: _Bucket) -> None:
        info = self._catalog.table_by_id(bucket.table_id)
        groups = self._catalog.bucket_groups(bucket.table_id)
        group = next((each for each in groups if each.partition_id == bucket.partition_id), None)
        if group is None:
            raise PartitionNotFoundError(
                f"{bucket}: table {info.path} has no such partition: it was dropped, or never existed"
            )
        if bucket.bucket >= len(group.leaders):
            raise BucketNotFoundError(f"{bucket}: expected a bucket in [0, {len(group.leaders)})")

    def _is_new(self, bucket: _Bucket, completed: CompletedSnapshot) -> bool:
        known = self._latest(bucket.table_id, bucket.partition_id).get(bucket.bucket)
        if known is None:
            return True
        newest, log_offset = known
        if completed.snapshot_id == newest:
            before = self._find(bucket, newest)
            if before.log_offset != completed.log_offset:
                raise ConflictError(
                    f"{bucket}: snapshot {newest} was committed with log offset {log_offset}, found "
                    f"{completed.log_offset}: use an id above {newest}"
                )
            return replace(before, new_bytes=0) != replace(completed, new_bytes=0)
        if completed.snapshot_id < newest and newest not in completed.broken:
            raise ConflictError(
                f"{bucket}: snapshot {newest} was committed before snapshot {completed.snapshot_id}: use an id above {newest}"
            )
        return True

    def _replace(self, bucket: _Bucket, completed: CompletedSnapshot) -> None:
        text = completed.to_json().decode()
        with self._store.write() as db:
            query = "SELECT snapshot_id FROM kv_snapshots WHERE table_id = ? AND partition_id = ? AND bucket = ?"
            known = [int(row[0]) for row in db.execute(query, bucket.key)]
            for gone in set(known) - set(completed.retained):
                query = "DELETE FROM kv_snapshots WHERE table_id = ? AND partition_id = ? AND bucket = ? AND snapshot_id = ?"
                db.execute(query, (*bucket.key, gone))
            values = (*bucket.key, completed.snapshot_id, completed.log_offset, text)
            db.execute("INSERT OR REPLACE INTO kv_snapshots VALUES (?, ?, ?, ?, ?, ?)", values)

    def _latest(self, table_id: int, partition_id: int) -> Mapping[int, tuple[int, int]]:
        """Return id and log offset of each bucket's latest snapshot."""
        query = (
            "SELECT bucket, max(snapshot_id), log_offset FROM kv_snapshots WHERE table_id = ? AND partition_id = ? "
            "GROUP BY bucket"
        )
        with self._store.read() as db:
            return {int(row[0]): (int(row[1]), int(row[2])) for row in db.execute(query, (table_id, partition_id))}

    def _find(self, bucket: _Bucket, snapshot_id: int) -> CompletedSnapshot:
        query = "SELECT completed FROM kv_snapshots WHERE table_id = ? AND partition_id = ? AND bucket = ? AND snapshot_id = ?"
        with self._store.read() as db:
            row = db.execute(query, (*bucket.key, snapshot_id)).fetchone()
        if row is None:
            raise KvSnapshotNotFoundError(
                f"{bucket} has no snapshot {snapshot_id}, or no longer: request the latest one"
            )
        return self._read(bucket, row[0])

    def _read(self, bucket: _Bucket, text: str) -> CompletedSnapshot:
        with self._store.parse_guard(f"a key-value snapshot of {bucket}"):
            return CompletedSnapshot.from_json(text)

    def _check_formats(self) -> None:
        query = "SELECT table_id, partition_id, bucket, completed FROM kv_snapshots WHERE completed NOT LIKE ?"
        with self._store.read() as db:
            rows = db.execute(query, (f'{{"version": {FORMAT},%',)).fetchall()
        for *key, text in rows:
            self._read(_Bucket(*key), text)

    def _partition_of(self, info: TableInfo, name: str | None) -> PartitionInfo | None:
        if not info.descriptor.schema.primary_key:
            raise InvalidRequestError(f"table {info.path} has no primary key, and so no key-value snapshots")
        if (name is not None) != bool(info.descriptor.partitioned_by):
            expected = "a partition's name" if name is None else "no partition"
            raise InvalidRequestError(f"key-value snapshots of table {info.path}: expected {expected}, found {name!r}")
        return None if name is None else self._partition(info.table_id, info.path, name)

    def _partition(self, table_id: int, path: TablePath, name: str) -> PartitionInfo:
        found = self._catalog.find_partition(table_id, name)
        if found is None or found.dropped_ms is not None:
            raise PartitionNotFoundError(f"table {path} has no partition {name!r}")
        return found.info


def _decode_completed(data: bytes) -> CompletedSnapshot:
    if len(data) > REPORT_BYTES_MAX:
        raise InvalidRequestError(f"completed snapshot: expected at most {REPORT_BYTES_MAX} bytes, found {len(data)}")
    try:
        completed = CompletedSnapshot.from_json(data)
    except UnsupportedError as error:
        raise InvalidRequestError(str(error)) from error
    if completed.snapshot_id not in completed.retained:
        raise InvalidRequestError(f"snapshot {completed.snapshot_id} is not among those retained, {completed.retained}")
    return completed


def _read_manifest(path: Place, bucket: _Bucket) -> SnapshotManifest:
    try:
        return read_manifest(path)
    except FileNotFoundError as error:
        raise KvSnapshotNotFoundError(f"{bucket}: {path} is gone: request the latest snapshot") from error
    except OSError as error:
        raise StorageError(f"{bucket}: {path} cannot be read: {reason_of(error)}") from error
