"""Creating, altering, listing and dropping: databases, tables, partitions; and asking how they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from fluss_lab.client.offsets import BucketOffset, OffsetQuery, list_offsets
from fluss_lab.errors import (
    AlreadyExistsError,
    InvalidPartitionError,
    NotFoundError,
    TableNotFoundError,
)
from fluss_lab.model import (
    LakeOffset,
    LakeSnapshot,
    OffsetSpec,
    PartitionInfo,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
)
from fluss_lab.model.names import check_name, partition_name
from fluss_lab.model.options import check_properties
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import CoordinatorGateway, TabletServerGateway

if TYPE_CHECKING:
    from fluss_lab.client.connection import Connection

T = TypeVar("T")

_SET: Final = 0
_DELETE: Final = 1


@dataclass(frozen=True, slots=True)
class BucketStatus:
    """How one bucket is.

    Attributes:
        bucket: Its identity.
        partition: Name of its partition; None without partitions.
        start_offset: First offset that the cluster holds.
        end_offset: Offset that the next record gets.
        high_watermark: Offsets below are readable.
        durable_offset: Offsets below are on the device.
        size_bytes: Of its log in the cluster.
        segments: Files of its log.
        max_timestamp_ms: Of its last record; None before the first.
        lake_end_offset: Offsets below are in the lake; None when it was never tiered.
        lake_snapshot_id: The lake snapshot that says so.
        error: Why the bucket stopped; None when it is well.
        leader: Id of the server that holds it.
    """

    bucket: TableBucket
    partition: str | None
    start_offset: int
    end_offset: int
    high_watermark: int
    durable_offset: int
    size_bytes: int
    segments: int
    max_timestamp_ms: int | None
    lake_end_offset: int | None
    lake_snapshot_id: int | None
    error: str | None
    leader: int


class Admin:
    """What a person or a tool does with a cluster. Threads may share it.

    A change whose answer was lost to a server's restart is asked again, and its own earlier effect is recognised.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"<Admin of {self._connection!r}>"

    # -- databases ---------------------------------------------------------------------------------------------------

    def create_database(self, name: str, if_not_exists: bool = False) -> None:
        """Create a database.

        Raises:
            InvalidNameError: The name breaks the rule.
            DatabaseExistsError: There is one of that name.
        """
        request = pb.CreateDatabaseRequest(database_name=check_name(name, "database"), ignore_if_exists=if_not_exists)
        self._create("create_database", lambda gateway: gateway.create_database(request))

    def drop_database(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a database, with `cascade` also its tables.

        Raises:
            DatabaseNotFoundError: There is none of that name.
            DatabaseNotEmptyError: It has tables.
        """
        request = pb.DropDatabaseRequest(
            database_name=check_name(name, "database"), ignore_if_not_exists=if_exists, cascade=cascade
        )
        self._drop("drop_database", lambda gateway: gateway.drop_database(request))

    def databases(self) -> list[str]:
        """Return the names of all databases, sorted."""
        return sorted(self._connection.coordinator().list_databases(pb.ListDatabasesRequest()).database_name)

    # -- tables ------------------------------------------------------------------------------------------------------

    def create_table(self, path: TablePath, descriptor: TableDescriptor, if_not_exists: bool = False) -> TableInfo:
        """Create a table (and its lake table, when it is lake-enabled), and return it.

        Raises:
            DatabaseNotFoundError: There is no such database.
            TableExistsError: There is a table of that path.
            LakeTableExistsError: The lake holds another table of that name.
            InvalidError: The definition cannot be.
        """
        definition = json.dumps(descriptor.to_json()).encode()
        request = pb.CreateTableRequest(table_path=_path(path), table_json=definition, ignore_if_exists=if_not_exists)
        self._create("create_table", lambda gateway: gateway.create_table(request))
        return self.table_info(path)

    def table_info(self, path: TablePath) -> TableInfo:
        """Return a table as it is now.

        Raises:
            TableNotFoundError: There is no such table.
        """
        return self._connection.table_info(path)

    def tables(self, database: str) -> list[str]:
        """Return the names of a database's tables, sorted.

        Raises:
            DatabaseNotFoundError: There is no such database.
        """
        request = pb.ListTablesRequest(database_name=check_name(database, "database"))
        return sorted(self._connection.coordinator().list_tables(request).table_name)

    def drop_table(self, path: TablePath, *, if_exists: bool = False, lake: bool = True) -> None:
        """Drop a table with all its records; with ``lake=False`` the lake table stays, renamed by its table id.

        Raises:
            TableNotFoundError: There is no such table.
        """
        request = pb.DropTableRequest(table_path=_path(path), ignore_if_not_exists=if_exists, keep_lake=not lake)
        try:
            table_id = self.table_info(path).table_id
        except TableNotFoundError:
            if if_exists:
                return
            raise

        def drop(gateway: CoordinatorGateway) -> None:
            # Of several attempts an earlier one may have acted, and somebody may have used the name again since.
            if attempts.failures and self.table_info(path).table_id != table_id:
                return
            gateway.drop_table(request)

        attempts = self._connection.attempts("drop_table")
        try:
            self._connection.ask_coordinator("drop_table", drop, attempts)
        except NotFoundError:
            if not attempts.failures:
                raise

    def alter_table(
        self, path: TablePath, *, set: Mapping[str, object] | None = None, reset: Sequence[str] | None = None
    ) -> TableInfo:
        """Set or reset properties of a table, and return it as it is then.

        Raises:
            TableNotFoundError: There is no such table.
            InvalidPropertyError: An unknown, ill-typed or fixed property. Nothing was changed.
            UnsupportedError: The lake cannot hold the table as it is.
        """
        changes = [
            pb.PbAlterConfig(config_key=key, config_value=value, op_type=_SET)
            for key, value in check_properties(set or {}).items()
        ]
        changes += [pb.PbAlterConfig(config_key=key, op_type=_DELETE) for key in reset or ()]
        if changes:
            request = pb.AlterTableRequest(table_path=_path(path), ignore_if_not_exists=False, config_changes=changes)
            self._connection.coordinator().alter_table(request)
        return self.table_info(path)

    # -- partitions --------------------------------------------------------------------------------------------------

    def create_partition(self, path: TablePath, values: Mapping[str, str], if_not_exists: bool = False) -> None:
        """Create a partition by the values of all partition columns.

        Raises:
            TableNotFoundError: There is no such table.
            InvalidPartitionError: The table has no partitions, other partition columns, or a value cannot be.
            PartitionExistsError: It exists, or a dropped one of its name rests in the lake.
        """
        info = self.table_info(path)
        request = pb.CreatePartitionRequest(
            table_path=_path(path), partition_spec=_spec(info, values), ignore_if_not_exists=if_not_exists
        )
        self._create("create_partition", lambda gateway: gateway.create_partition(request))

    def drop_partition(self, path: TablePath, values: Mapping[str, str], if_exists: bool = False) -> None:
        """Drop a partition with its records in the cluster; what the lake holds of it stays readable there.

        Raises:
            TableNotFoundError, PartitionNotFoundError: There is no such table or partition.
            InvalidPartitionError: The table has no partitions, or other partition columns.
        """
        info = self.table_info(path)
        request = pb.DropPartitionRequest(
            table_path=_path(path), partition_spec=_spec(info, values), ignore_if_not_exists=if_exists
        )
        self._drop("drop_partition", lambda gateway: gateway.drop_partition(request))

    def partitions(self, path: TablePath) -> list[PartitionInfo]:
        """Return a table's partitions by name; empty for a table without.

        Raises:
            TableNotFoundError: There is no such table.
        """
        found = self._connection.partitions(self.table_info(path))
        return [found[name] for name in sorted(found)]

    # -- offsets and the lake ----------------------------------------------------------------------------------------

    def list_offsets(
        self,
        info: TableInfo,
        spec: OffsetSpec,
        *,
        partition: PartitionInfo | None = None,
        buckets: Sequence[int] | None = None,
        lake: bool = True,
        durable: bool = False,
        raise_clock: bool = False,
        local_only: bool = False,
    ) -> dict[int, BucketOffset]:
        """Return an offset of each bucket of a table, or of one partition.

        By time: the first offset whose record's timestamp is at or after it, wherever that record lies; the high
        watermark when every record is older.

        Args:
            info: The table.
            spec: Earliest, latest, or by time.
            partition: Required for a partitioned table.
            buckets: Which; None: all.
            lake: Whether the lake may be asked, where the answer lies there.
            durable: With latest: only what is on the device, put there before the answer.
            raise_clock: With a time: no record appended later gets a timestamp below it.
            local_only: Only what the cluster itself holds; offsets are clipped to it.

        Raises:
            TableNotFoundError, PartitionNotFoundError, BucketNotFoundError: There is none such (any more).
            InvalidPartitionError: A partition is missing, or given for a table without.
            InvalidTimestampError: The time is negative or, with `raise_clock`, after the servers' clock.
            CorruptDataError: The bucket stopped.
        """
        if (partition is not None) != bool(info.descriptor.partitioned_by):
            expected = f"one by {', '.join(info.descriptor.partitioned_by)}" if partition is None else "none"
            raise InvalidPartitionError(f"{info.path}: expected {expected}, found partition {partition}")
        query = OffsetQuery(spec, lake, durable, raise_clock, local_only)
        return list_offsets(self._connection, info, query, partition, buckets)

    def lake_snapshot(self, path: TablePath, snapshot_id: int | None = None) -> LakeSnapshot:
        """Return a lake snapshot as the cluster knows it; without an id the newest.

        Raises:
            TableNotFoundError: There is no such table.
            LakeSnapshotNotFoundError: There is no such snapshot, or the table was never tiered.
        """
        request = pb.GetLakeSnapshotRequest(table_path=_path(path))
        if snapshot_id is not None:
            request.snapshot_id = snapshot_id
        response = self._connection.coordinator().get_lake_snapshot(request)
        offsets = {}
        for entry in response.bucket_snapshots:
            partition_id = entry.partition_id if entry.HasField("partition_id") else None
            name = entry.partition_name if entry.HasField("partition_name") else None
            timestamp_ms = entry.log_max_timestamp if entry.HasField("log_max_timestamp") else -1
            bucket = TableBucket(response.table_id, partition_id, entry.bucket_id)
            offsets[bucket] = LakeOffset(entry.log_offset, timestamp_ms, name)
        return LakeSnapshot(response.snapshotId, offsets)

    def buckets(self, info: TableInfo) -> list[BucketStatus]:
        """Return how each bucket of a table is, by partition name and bucket.

        Raises:
            TableNotFoundError: The table is gone.
        """
        names: dict[int | None, str | None] = {None: None}
        if info.descriptor.partitioned_by:
            names = {each.partition_id: each.name for each in self._connection.partitions(info).values()}
        wanted = [
            TableBucket(info.table_id, partition_id, bucket)
            for partition_id in names
            for bucket in range(info.descriptor.buckets)
        ]
        self._connection.remember(info)
        found = []
        request = pb.DescribeBucketsRequest(table_id=info.table_id)

        def describe(gateway: TabletServerGateway) -> pb.DescribeBucketsResponse:
            return gateway.describe_buckets(request)

        for server, asked in _by_server(self._connection.leaders(wanted)).items():
            response = self._connection.ask_leader(asked[0], "describe_buckets", describe)
            found += [_status(entry, names, server) for entry in response.buckets if _bucket(entry) in asked]
        return sorted(found, key=lambda status: (status.partition or "", status.bucket.bucket))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _create(self, what: str, call: Callable[[CoordinatorGateway], T]) -> None:
        """Create once: after an attempt of ours whose answer was lost, "exists already" is that attempt's effect."""
        attempts = self._connection.attempts(what)
        try:
            self._connection.ask_coordinator(what, call, attempts)
        except AlreadyExistsError:
            if not attempts.failures:
                raise

    def _drop(self, what: str, call: Callable[[CoordinatorGateway], T]) -> None:
        attempts = self._connection.attempts(what)
        try:
            self._connection.ask_coordinator(what, call, attempts)
        except NotFoundError:
            if not attempts.failures:
                raise


def _path(path: TablePath) -> pb.PbTablePath:
    return pb.PbTablePath(database_name=path.database, table_name=path.table)


def _spec(info: TableInfo, values: Mapping[str, str]) -> pb.PbPartitionSpec:
    columns = info.descriptor.partitioned_by
    if not columns:
        raise InvalidPartitionError(f"{info.path}: the table has no partitions")
    if set(values) != set(columns):
        raise InvalidPartitionError(f"{info.path}: expected values of {', '.join(columns)}, found {dict(values)}")
    partition_name(tuple(values[name] for name in columns))
    return pb.PbPartitionSpec(partition_key_values=[pb.PbKeyValue(key=name, value=values[name]) for name in columns])


def _by_server(leaders: Mapping[TableBucket, int]) -> dict[int, list[TableBucket]]:
    servers: dict[int, list[TableBucket]] = {}
    for bucket, server in leaders.items():
        servers.setdefault(server, []).append(bucket)
    return servers


def _bucket(entry: pb.PbBucketDescription) -> TableBucket:
    found = entry.table_bucket
    return TableBucket(found.table_id, found.partition_id if found.HasField("partition_id") else None, found.bucket_id)


def _status(entry: pb.PbBucketDescription, names: Mapping[int | None, str | None], leader: int) -> BucketStatus:
    bucket = _bucket(entry)
    return BucketStatus(
        bucket=bucket,
        partition=names.get(bucket.partition_id),
        start_offset=entry.log_start_offset,
        end_offset=entry.log_end_offset,
        high_watermark=entry.high_watermark,
        durable_offset=entry.durable_offset,
        size_bytes=entry.size_in_bytes,
        segments=entry.segments,
        max_timestamp_ms=entry.max_timestamp if entry.max_timestamp >= 0 else None,
        lake_end_offset=entry.lake_log_end_offset if entry.HasField("lake_log_end_offset") else None,
        lake_snapshot_id=entry.lake_snapshot_id if entry.HasField("lake_snapshot_id") else None,
        error=entry.error_message if entry.HasField("error_message") else None,
        leader=leader,
    )
