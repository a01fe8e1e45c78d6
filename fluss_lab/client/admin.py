"""The administration of databases, tables and partitions: create, alter, list, drop, describe."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from fluss_lab.client.cluster.bucket_status import BucketStatus, lake_snapshot, list_buckets
from fluss_lab.client.cluster.list_offsets import BucketOffset, OffsetQuery, list_offsets
from fluss_lab.client.cluster.log_damage import DamagedBucket, damaged_buckets, give_up_range
from fluss_lab.client.cluster.tiering_rounds import TieringRoundRecord, tiering_rounds
from fluss_lab.client.kv.kv_snapshot_reader import (
    KvSnapshot,
    KvSnapshotMetadata,
    kv_snapshot_metadata,
    latest_kv_snapshots,
)
from fluss_lab.errors import (
    AlreadyExistsError,
    FlussError,
    InvalidPartitionError,
    InvalidSchemaError,
    NotFoundError,
    TableNotFoundError,
)
from fluss_lab.lake.format_plugin import check_format
from fluss_lab.model import (
    Column,
    DataType,
    LakeSnapshot,
    OffsetSpec,
    PartitionInfo,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
)
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.config.options import DATALAKE_FORMAT, FREE_PREFIXES, TABLE_OPTIONS, check_properties
from fluss_lab.model.names import check_name, partition_name
from fluss_lab.model.schema import make_schema
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import CoordinatorGateway
from fluss_lab.rpc.message_codec import path_message

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient

T = TypeVar("T")

_SET: Final = 0
_DELETE: Final = 1
#: Where a column is added.
_LAST: Final = 0
#: Requests stay well below a server's smallest limit (64 kB): a spec of one column and a name of 20 characters is 50 bytes.
PARTITIONS_PER_CALL: Final = 500


@check_arguments
class Admin:
    """What a person or a tool does with a cluster. Threads may share it.

    A change whose answer was lost to a server's restart is repeated, and its own earlier effect is recognised.
    """

    def __init__(self, connection: ClusterClient) -> None:
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
        self._change("create_database", lambda gateway: gateway.create_database(request), AlreadyExistsError)

    def drop_database(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a database, with `cascade` also its tables.

        Raises:
            DatabaseNotFoundError: There is none of that name.
            DatabaseNotEmptyError: It has tables.
        """
        request = pb.DropDatabaseRequest(
            database_name=check_name(name, "database"), ignore_if_not_exists=if_exists, cascade=cascade
        )
        try:
            self._change("drop_database", lambda gateway: gateway.drop_database(request), NotFoundError)
        finally:
            self._connection.kept_lookupers.forget(name)

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
            UnsupportedError: Its ``table.datalake.format`` is not installed here; the text lists what is.
        """
        if lake_format := DATALAKE_FORMAT.of(descriptor.properties):
            check_format(lake_format)
        definition = json.dumps(descriptor.to_json()).encode()
        request = pb.CreateTableRequest(
            table_path=path_message(path), table_json=definition, ignore_if_exists=if_not_exists
        )
        found = self._change("create_table", lambda gateway: gateway.create_table(request), AlreadyExistsError)
        info = self.table_info(path)
        if found is not None and not _is_as_asked(info.descriptor, descriptor):
            raise found
        return info

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
        request = pb.DropTableRequest(table_path=path_message(path), ignore_if_not_exists=if_exists, keep_lake=not lake)
        try:
            table_id = self.table_info(path).table_id
        except TableNotFoundError:
            if if_exists:
                return
            raise

        def drop(gateway: CoordinatorGateway) -> None:
            # An earlier attempt may have acted, and the name may have been used again since.
            if attempts.failures and self.table_info(path).table_id != table_id:
                return
            gateway.drop_table(request)

        attempts = self._connection.attempts("drop_table")
        try:
            self._connection.call_coordinator("drop_table", drop, attempts)
        except NotFoundError:
            if not attempts.failures:
                raise
        finally:
            self._connection.kept_lookupers.forget(path.database, path.table)

    def alter_table(
        self,
        path: TablePath,
        *,
        set: Mapping[str, object] | None = None,
        reset: Sequence[str] | None = None,
        add_columns: Mapping[str, str | pa.DataType | DataType] | None = None,
    ) -> TableInfo:
        """Set or reset properties of a table, add columns at its end, and return it as it is then.

        All of it is changed, or nothing. Rows that exist have nulls in new columns; writers made before go on.

        Args:
            path: The table.
            set: Values by property.
            reset: Properties that get their defaults.
            add_columns: Types by name, in order: Fluss type texts or Arrow types; nullable.

        Raises:
            TableNotFoundError: There is no such table.
            InvalidPropertyError: An unknown, ill-typed or fixed property. Nothing was changed.
            InvalidSchemaError, InvalidNameError: A column that exists, or cannot be. Nothing was changed.
            UnsupportedError: The lake cannot hold the table as it is.
        """
        changes = [
            pb.PbAlterConfig(config_key=key, config_value=value, op_type=_SET)
            for key, value in self._property_texts(path, set or {}).items()
        ]
        changes += [pb.PbAlterConfig(config_key=key, op_type=_DELETE) for key in reset or ()]
        added = make_schema(add_columns).columns if add_columns else ()
        if not changes and not added:
            return self.table_info(path)
        request = pb.AlterTableRequest(
            table_path=path_message(path),
            ignore_if_not_exists=False,
            config_changes=changes,
            add_columns=[_add_column_message(column) for column in added],
        )
        attempts = self._connection.attempts("alter_table")
        try:
            self._connection.call_coordinator("alter_table", lambda gateway: gateway.alter_table(request), attempts)
        except InvalidSchemaError:
            # Of several attempts an earlier one may have acted: then the columns are the last of the table.
            present = self.table_info(path).schema.columns[-len(added) :]
            if not attempts.failures or [(c.name, c.type) for c in present] != [(c.name, c.type) for c in added]:
                raise
        return self.table_info(path)

    def _property_texts(self, path: TablePath, given: Mapping[str, object]) -> dict[str, str]:
        """Return properties for an existing table as text: under its own lake format's name any key is free."""
        if all(key in TABLE_OPTIONS or str(key).startswith(FREE_PREFIXES) for key in given):
            return check_properties(given)
        lake_format = DATALAKE_FORMAT.of(self.table_info(path).descriptor.properties)
        checked = check_properties({DATALAKE_FORMAT.key: lake_format, **given})
        return {key: text for key, text in checked.items() if key in given}

    # -- partitions --------------------------------------------------------------------------------------------------

    def create_partition(self, path: TablePath, values: Mapping[str, str], if_not_exists: bool = False) -> None:
        """Create a partition by the values of all partition columns.

        Raises:
            TableNotFoundError: There is no such table.
            InvalidPartitionError: The table has no partitions, other partition columns, or a value cannot be.
            PartitionExistsError: It exists, or a dropped one of its name rests in the lake.
        """
        self.create_partitions(path, [values], if_not_exists)

    def create_partitions(
        self, path: TablePath, specs: Sequence[Mapping[str, str]], if_not_exists: bool = False
    ) -> None:
        """Create partitions in few calls, of each call all or none; see `create_partition`."""
        info = self.table_info(path)
        for start in range(0, len(specs), PARTITIONS_PER_CALL):
            first, *more = [_spec(info, values) for values in specs[start : start + PARTITIONS_PER_CALL]]
            request = pb.CreatePartitionRequest(
                table_path=path_message(path), partition_spec=first, ignore_if_not_exists=if_not_exists,
                more_partition_specs=more,
            )  # fmt: skip
            found = self._change("create_partition", partial(_create_partitions, request=request), AlreadyExistsError)
            if found is not None:
                given = (tuple(each.value for each in spec.partition_key_values) for spec in (first, *more))
                if not {*map(partition_name, given)} <= self._connection.partitions(info).keys():
                    raise found  # of one that was dropped and rests in the lake

    def drop_partition(
        self,
        path: TablePath,
        values: Mapping[str, str],
        if_exists: bool = False,
        *,
        lake: bool = False,
        discard_untiered: bool = False,
    ) -> None:
        """Drop a partition with its records in the cluster; what the lake holds of it stays readable there.

        With ``lake=True`` that goes too, also of a partition dropped before; its name is free again then. With
        ``discard_untiered=True`` records that the lake does not hold are lost.

        Raises:
            TableNotFoundError, PartitionNotFoundError: There is no such table or partition.
            UntieredRecordsError: Of a lake-enabled table: the lake does not hold all of it; the text says how many records
                of which buckets are missing.
            InvalidPartitionError: The table has no partitions, or other partition columns.
        """
        info = self.table_info(path)
        request = pb.DropPartitionRequest(
            table_path=path_message(path), partition_spec=_spec(info, values), ignore_if_not_exists=if_exists, drop_lake=lake,
            discard_untiered=discard_untiered,
        )  # fmt: skip
        try:
            self._change("drop_partition", lambda gateway: gateway.drop_partition(request), NotFoundError)
        finally:
            self._connection.forget_partitions(info)

    def partitions(self, path: TablePath) -> list[PartitionInfo]:
        """Return a table's partitions by name; empty for a table without.

        Raises:
            TableNotFoundError: There is no such table.
        """
        found = self._connection.partitions(self.table_info(path))
        return [found[name] for name in sorted(found)]

    def lost_partitions(self, path: TablePath, time_ms: int) -> dict[str, int]:
        """Return the dropped partitions of which the table as of a time had rows that are nowhere now.

        Returns:
            When each was dropped, by name.

        Raises:
            TableNotFoundError: There is no such table.
        """
        request = pb.ListPartitionInfosRequest(table_path=path_message(path), lost_at_time=time_ms)
        found = self._connection.coordinator().list_partition_infos(request).lost_partitions
        return {each.partition_name: each.dropped_time for each in found}

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
            lake: Whether to read the lake where the answer lies there.
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

    def lake_snapshot(
        self, path: TablePath, snapshot_id: int | None = None, *, table_id: int | None = None
    ) -> LakeSnapshot:
        """Return a lake snapshot as the cluster knows it; without an id the newest.

        Args:
            path: The table.
            snapshot_id: Which; None: the newest.
            table_id: The table's id, to be sure that it is this one; None: whichever has the path.

        Raises:
            TableNotFoundError: There is no such table; or another one has its path now.
            LakeSnapshotNotFoundError: There is no such snapshot, or the table was never tiered.
        """
        return lake_snapshot(self._connection, path, snapshot_id, table_id)

    def tiering_rounds(self, path: TablePath) -> list[TieringRoundRecord]:
        """Return the last tiering rounds of a table, oldest first, as many as ``lake.tiering.rounds-kept`` says.

        The one under way is among them. Of rounds with nothing to tier that follow each other the last stands for all.

        Raises:
            TableNotFoundError: There is no such table.
            UnsupportedError: The server is of an older release, which keeps none.
        """
        return tiering_rounds(self._connection, path)

    def latest_kv_snapshots(
        self, path: TablePath, partition: PartitionInfo | str | None = None
    ) -> dict[int, KvSnapshot | None]:
        """Return the latest key-value snapshot of each bucket of a primary-key table; None of one that has none yet.

        Args:
            path: The table.
            partition: Or its name; required for a partitioned table.

        Raises:
            TableNotFoundError, PartitionNotFoundError: There is none such.
            InvalidRequestError: It is a log table; or a partition is missing, or given for a table without.
        """
        return latest_kv_snapshots(self._connection, path, partition)

    def kv_snapshot_metadata(
        self, info: TableInfo, bucket: int, snapshot_id: int, partition: PartitionInfo | None = None
    ) -> KvSnapshotMetadata:
        """Return where the files of a key-value snapshot are, for `fluss_lab.client.kv.kv_snapshot_reader.read_snapshot`.

        Raises:
            KvSnapshotNotFoundError: There is no such snapshot (any more): ask for the latest one.
            InvalidPartitionError: A partition is missing, or given for a table without.
            CorruptDataError: Its manifest is damaged.
            StorageError: The coordinator cannot read its manifest.
        """
        return kv_snapshot_metadata(self._connection, info, bucket, snapshot_id, partition)

    def buckets(self, info: TableInfo, *, patient: bool = True) -> list[BucketStatus]:
        """Return how each bucket of a table is, by partition name and bucket: a `KnownBucket` or an `UnknownBucket`.

        No offset can be read without having handled the second: ``status.require()`` raises its error.

        Args:
            info: The table.
            patient: Whether to wait for servers that are away; without, their buckets are unknown.

        Raises:
            TableNotFoundError: The table was dropped.
            UnavailableError: A kind of it: servers were away for ``client.request-timeout``.
        """
        return list_buckets(self._connection, info, patient=patient)

    def damaged_buckets(self, info: TableInfo) -> list[DamagedBucket]:
        """Return every bucket of a table with what cannot be read of its log, by partition name and bucket.

        A bucket with damage takes no more records from then on.

        Raises:
            TableNotFoundError: The table was dropped.
            FlussError: Of a bucket that is not known: it could not be opened, or its remote storage is away.

        Cost: the servers read every byte of their logs.
        """
        return damaged_buckets(self._connection, info)

    def give_up_range(
        self, info: TableInfo, bucket: TableBucket, start: int, stop: int, *, discard_before: bool = False
    ) -> int:
        """Have a bucket's log begin behind its first damaged range; return where that is.

        Args:
            info: The table.
            bucket: Which.
            start: Of the damaged range, from `damaged_buckets`.
            stop: Likewise.
            discard_before: Sound records before it, which neither the lake nor remote storage holds, may be lost too.

        Raises:
            ConflictError: Another range is the first: look again.
            UntieredRecordsError: Sound records before it would be lost. Nothing was changed.
            UnsupportedError: The rows of a primary-key table need what is damaged. Nothing was changed.
            StorageError: The disk refused; ask again.
        """
        return give_up_range(self._connection, info, bucket, start, stop, discard_before=discard_before)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _change(self, what: str, call: Callable[[CoordinatorGateway], T], done: type[FlussError]) -> FlussError | None:
        """Change something once: after an attempt whose answer was lost, the error `done` may be the effect of that attempt.

        Returns:
            That error, where an earlier attempt failed: who can see whether it was its effect looks.
        """
        attempts = self._connection.attempts(what)
        try:
            self._connection.call_coordinator(what, call, attempts)
        except done as error:
            if not attempts.failures:
                raise
            return error
        return None


def _is_as_asked(found: TableDescriptor, asked: TableDescriptor) -> bool:
    """Return whether a table may be the one that was asked for: properties and buckets have defaults of the server's."""
    return [(each.name, each.type) for each in found.schema.columns] == [
        (each.name, each.type) for each in asked.schema.columns
    ] and (found.schema.primary_key, found.partitioned_by) == (asked.schema.primary_key, asked.partitioned_by)


def _add_column_message(column: Column) -> pb.PbAddColumn:
    data_type = json.dumps(column.type.to_json()).encode()
    return pb.PbAddColumn(column_name=column.name, data_type_json=data_type, column_position_type=_LAST)


def _create_partitions(gateway: CoordinatorGateway, request: pb.CreatePartitionRequest) -> pb.CreatePartitionResponse:
    return gateway.create_partition(request)


def _spec(info: TableInfo, values: Mapping[str, str]) -> pb.PbPartitionSpec:
    columns = info.descriptor.partitioned_by
    if not columns:
        raise InvalidPartitionError(f"{info.path}: the table has no partitions")
    if set(values) != set(columns):
        raise InvalidPartitionError(f"{info.path}: expected values of {', '.join(columns)}, found {dict(values)}")
    partition_name(tuple(values[name] for name in columns))
    return pb.PbPartitionSpec(partition_key_values=[pb.PbKeyValue(key=name, value=values[name]) for name in columns])
