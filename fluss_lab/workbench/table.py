"""A table of a lab: written, tiered and read by one object."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.client import AppendWriter, LogScanner, Lookuper, UpsertWriter, WriteResult
from fluss_lab.display import Waiting
from fluss_lab.errors import InvalidPartitionError
from fluss_lab.model import TableDescriptor, TableInfo, TablePath
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.times import Moment
from fluss_lab.model.values.row_input import spark_as_arrow
from fluss_lab.read.changelog.changelog import Changelog
from fluss_lab.read.changelog.row_history import RowHistory
from fluss_lab.read.changelog.table_diff import Diff
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.table_reader import TableReader
from fluss_lab.read.union.scan import Scan
from fluss_lab.workbench.cards.listing import Listing
from fluss_lab.workbench.cards.round_progress_view import write_waiting
from fluss_lab.workbench.cards.table_card import known_columns, table_html, table_text
from fluss_lab.workbench.cards.table_listings import bucket_listing
from fluss_lab.workbench.lake_upkeep import LakeUpkeep, TableContext, to_spark
from fluss_lab.workbench.table_plot import TablePlot

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _delegate(part: Callable[[Table], T], method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Table, P], R]:
    """Return a method of tables that a part of them has, with its contract."""

    @functools.wraps(method)
    def call(table: Table, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(part(table), *args, **kwargs)

    return call


def _of_upkeep(method: Callable[Concatenate[LakeUpkeep, P], R]) -> Callable[Concatenate[Table, P], R]:
    return _delegate(lambda table: table._upkeep, method)


def _of_reader(method: Callable[Concatenate[TableReader, P], R]) -> Callable[Concatenate[Table, P], R]:
    return _delegate(lambda table: table._reader(), method)


@check_arguments
class Table:
    """A table of a lab, by its path. Cheap to make; every call asks the cluster anew."""

    def __init__(self, lab: TableContext, path: TablePath) -> None:
        self.lab = lab
        self.path = path
        self._upkeep = LakeUpkeep(lab, path)

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def info(self) -> TableInfo:
        """Return path, ids and definition as the cluster has them now.

        Raises:
            TableNotFoundError: It was dropped.
        """
        return self.lab.connection.admin().table_info(self.path)

    @property
    def descriptor(self) -> TableDescriptor:
        """Return the definition."""
        return self.info.descriptor

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the table's rows."""
        return self.info.schema.arrow_schema

    def buckets(self, *, patient: bool = True) -> Listing:
        """Return, per bucket: offsets in the cluster, what the lake holds of it, lag in records, bytes, leader.

        ``start`` and ``end`` are those of the cluster's log, ``local_start`` where its part on the server's disk begins,
        ``remote_start`` that in remote storage (None: nothing is there). The lake holds every record of ``[lake_start,
        lake_end)``; both are None while it holds nothing.

        What is not known is None, and ``error`` says why: which file is damaged, and what to do. ``warning`` is of what
        makes no offset doubtful: a copy to remote storage that failed, a disk that refuses writes.

        Args:
            patient: Whether to wait for servers that are away; without, their buckets are not known.
        """
        return bucket_listing(self.lab.connection, self.info, patient=patient)

    def partitions(self) -> list[str]:
        """Return the names of the partitions in the cluster, sorted.

        Raises:
            InvalidPartitionError: The table has no partition columns.
        """
        return sorted(partition.name for partition in self.lab.connection.admin().partitions(self.path))

    def add_partition(
        self, partition: Mapping[str, str] | None = None, /, *, if_not_exists: bool = False, **values: str
    ) -> None:
        """Create the partition with these column values.

        Args:
            partition: Values of the partition columns as a dict: of columns that are called as arguments here are, too.
            if_not_exists: Whether it may be there already.
            values: Of the partition columns.

        Raises:
            InvalidPartitionError: Values of other columns, or that cannot be.
            PartitionExistsError: It exists, and `if_not_exists` is false.
        """
        self.lab.connection.admin().create_partition(self.path, self._partition(partition, values), if_not_exists)

    def drop_partition(
        self, partition: Mapping[str, str] | None = None, /, *, lake: bool = False, discard_untiered: bool = False,
        if_exists: bool = False, **values: str,
    ) -> None:  # fmt: skip
        """Drop a partition from the cluster; the lake keeps what it holds of it, and its name stays taken.

        With ``lake=True`` the lake's rows go too, also those of a partition dropped before; the name is free again then.

        Args:
            partition: As `add_partition` has it.
            lake: Whether the lake's rows go too.
            discard_untiered: Whether records that the lake does not hold may be lost. Reads then go on with what the lake
                holds, of a primary-key table the rows as they were when they were tiered.
            if_exists: Whether it may be gone already.
            values: Of the partition columns.

        Raises:
            PartitionNotFoundError: There is none, and `if_exists` is false.
            UntieredRecordsError: The lake does not hold all of it: tier the table first. Nothing was dropped.
        """
        self.lab.connection.admin().drop_partition(
            self.path, self._partition(partition, values), if_exists, lake=lake, discard_untiered=discard_untiered
        )

    def _partition(self, partition: Mapping[str, str] | None, values: Mapping[str, str]) -> dict[str, str]:
        if twice := (partition or {}).keys() & values.keys():
            raise InvalidPartitionError(f"{self.path}: expected one value of {min(twice)}, found two")
        return {**(partition or {}), **values}

    def alter(
        self,
        *,
        set: Mapping[str, object] | None = None,
        reset: Sequence[str] | None = None,
        add_columns: Mapping[str, str | pa.DataType] | None = None,
    ) -> None:
        """Set properties, reset them to their defaults, or add columns, on the live table: all of it or nothing.

        Args:
            set: Values by property.
            reset: Properties that get their defaults.
            add_columns: Types by name; they come after the present columns, nullable, null in the rows that exist.

        Raises:
            InvalidPropertyError: An unknown key or ill-typed value; nothing was changed.
            InvalidSchemaError, InvalidNameError: A column that exists, or cannot be; nothing was changed.
            UnsupportedError: A property that a live table cannot change; the text says why.
        """
        self.lab.connection.admin().alter_table(self.path, set=set, reset=reset, add_columns=add_columns)
        self.lab.compute.expect(self.descriptor)

    # -- writing -------------------------------------------------------------------------------------------------------

    def append(self, rows: Any) -> WriteResult:
        """Append rows and return when the cluster has acknowledged them all.

        Args:
            rows: An Arrow table or batch, a pandas or Spark DataFrame, a list of dicts, or a dict of columns; columns by
                name, absent nullable ones become null.

        Returns:
            Row count, and per bucket the offsets ``[base, end)`` that the rows got, in their order.

        Raises:
            UnsupportedError: It is a primary-key table: call `upsert`.
            InvalidRecordError: The rows do not fit; the text names column, expected and found. None was appended.
            RecordTooLargeError: A row is larger than the cluster takes (``server.request-size-max``). None was appended.
            ServerUnavailableError: No server answered in time. Rows may have been appended.
        """
        with self.lab.connection.append_writer(self.path) as writer, write_waiting(self.path, writer):
            return writer.append(spark_as_arrow(rows)).result()

    def upsert(self, rows: Any, columns: Sequence[str] | None = None) -> WriteResult:
        """Insert rows, or replace those of the same key, and return when the cluster has acknowledged them all.

        Args:
            rows: As for `append`. Of two rows of one key the later one counts.
            columns: A partial update: only these columns, the primary key's among them, each of which the rows must
                have; the others keep their value. None: all.

        Returns:
            How many rows were given, and per bucket where their changes lie in the changelog.

        Raises:
            UnsupportedError: It is a log table, or one that cannot be updated partially.
            InvalidRecordError, InvalidSchemaError: Rows or columns do not fit; the text says where. Nothing was written.
            RecordTooLargeError, ServerUnavailableError: As `append`.
        """
        with self.lab.connection.upsert_writer(self.path, columns) as writer, write_waiting(self.path, writer):
            return writer.upsert(spark_as_arrow(rows)).result()

    def delete(self, keys: Any) -> WriteResult:
        """Delete the rows of keys, and return when the cluster has acknowledged it. Keys without a row change nothing.

        Args:
            keys: Rows, or just their key columns, in any form that `append` takes.

        Raises:
            UnsupportedError: It is a log table, or one that forbids deletes; or a key is of a partition that was dropped and
                whose rows the lake keeps.
            InvalidRecordError: The keys do not fit; the text says where. Nothing was deleted.
            ServerUnavailableError: No server answered in time. Rows may have been deleted.
        """
        with self.lab.connection.upsert_writer(self.path) as writer, write_waiting(self.path, writer):
            return writer.delete(spark_as_arrow(keys)).result()

    def writer(self, columns: Sequence[str] | None = None) -> AppendWriter | UpsertWriter:
        """Return a writer for a stream of calls: batched, pipelined, idempotent, back-pressured. Close it.

        Its methods are ``append`` for a log table, ``upsert`` and ``delete`` for a primary-key table.

        Args:
            columns: Of a primary-key table: for a partial update.
        """
        if self.info.is_log_table and columns is None:
            return self.lab.connection.append_writer(self.path)
        return self.lab.connection.upsert_writer(self.path, columns)

    # -- rows by key ---------------------------------------------------------------------------------------------------

    def lookup(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the row of each key, in the order asked, with nulls where there is none.

        Args:
            keys: A list of dicts, one dict, or any other form that `append` takes; each names every key column.
            columns: Only these columns, in this order.

        Raises:
            UnsupportedError: It is a log table.
            PartitionNotFoundError: A key is of a partition that was dropped and whose rows the lake keeps: `scan` reads them.
            InvalidRecordError: The keys do not fit; the text says where.
        """
        connection = self.lab.connection
        return connection.kept_lookupers.lookup(
            connection.lookuper, self.path, columns, spark_as_arrow(keys), Lookuper.lookup
        )

    def prefix_lookup(self, prefix: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows whose key begins with a prefix: with the values of the table's bucket key.

        Args:
            prefix: One dict, or several in any form that `append` takes: the bucket key's columns, and the partition
                columns.
            columns: Only these columns, in this order.

        Raises:
            UnsupportedError: It is a log table, or its bucket key is not a proper prefix of its primary key.
            InvalidRecordError: The prefix does not fit; the text says where.
        """
        connection = self.lab.connection
        return connection.kept_lookupers.lookup(
            connection.lookuper, self.path, columns, spark_as_arrow(prefix), Lookuper.prefix_lookup
        )

    # -- the lake: the contracts are those of `LakeUpkeep` -------------------------------------------------------------

    tier = _of_upkeep(LakeUpkeep.tier)
    compact = _of_upkeep(LakeUpkeep.compact)
    expire_snapshots = _of_upkeep(LakeUpkeep.expire_snapshots)
    remove_orphan_files = _of_upkeep(LakeUpkeep.remove_orphan_files)
    snapshots = _of_upkeep(LakeUpkeep.snapshots)
    files = _of_upkeep(LakeUpkeep.files)
    lake_schemas = _of_upkeep(LakeUpkeep.lake_schemas)
    rounds = _of_upkeep(LakeUpkeep.rounds)
    lag_history = _of_upkeep(LakeUpkeep.lag_history)

    @property
    def plot(self) -> TablePlot:
        """Return the table's pictures: ``plot.offsets()``, ``plot.snapshots()``, ``plot.lag()``, ``plot.files()``."""
        return TablePlot(self.lab.connection, self.path, self._upkeep)

    # -- reading across ------------------------------------------------------------------------------------------------

    def head(self, n: int = 10) -> pd.DataFrame:
        """Return the first rows of `scan`, by partition, bucket and offset, as a pandas frame."""
        return self.scan(limit=n).to_pandas()

    def count(self) -> int:
        """Return how many rows there are; see `Scan.count` for its cost."""
        return self.scan().count()

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas frame; `scan` reads a part of them, or an earlier moment."""
        return self.scan().to_pandas()

    def __getitem__(self, columns: str | list[str]) -> Any:
        """Return a column to make conditions of (``where=flights["delay"] > 60``), or a scan of some (``flights[["delay"]]``)."""
        if isinstance(columns, str) or columns is None:
            return pc.field(self.info.schema.column(columns).name)
        return self.scan(columns)

    __iter__ = None  # neither rows nor columns: `scan().to_batches()`, `schema.names`

    def _ipython_key_completions_(self) -> list[str]:
        return known_columns(self.lab.connection, self.path)

    def read_point(self, as_of: Moment | None = None) -> ReadPoint:
        """Return a moment of the table, to read it there again and again: also kept as JSON, and in another process.

        Args:
            as_of: None for now; a time: every record with a timestamp up to it; the id of a lake snapshot: what that holds.
                A time is a datetime, a date, ISO-8601 text, ``"yesterday"``, ``"10 minutes ago"``, or epoch milliseconds;
                without a zone it is in that of ``client.time-zone``, which the lab's repr shows.

        Raises:
            InvalidTimestampError: The time cannot be read, is before the table was made, or after the servers' clock.
            LakeSnapshotNotFoundError: There is no such lake snapshot any more.
            OffsetOutOfRangeError: Of a primary-key table: its rows at that moment are no longer available; the text says
                from when on they are.
        """
        return self._reader().read_point(as_of)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        *,
        limit: int | None = None,
        as_of: Moment | None = None,
        read_point: ReadPoint | None = None,
        partitions: Sequence[str] | None = None,
        buckets: Sequence[int] | None = None,
        with_source: bool = False,
        gaps: str = "error",
    ) -> Scan:
        """Return a read of the whole table across lake and log, at one moment; nothing is read yet.

        Of a primary-key table the rows are those that lived at that moment, each with the offset and time of the record
        that wrote it. Rows come by partition, bucket and offset.

        Args:
            columns: User's columns, and ``__bucket``, ``__offset``, ``__timestamp`` by name; None: the user's.
            where: A SQL condition (`fluss_lab.read.filter.where_clause` has its grammar), a pyarrow or a pyiceberg expression.
            limit: At most so many rows, the first ones.
            as_of: A past time, or a lake snapshot's id, instead of now.
            read_point: A moment taken before, instead of now.
            partitions: Only these partitions, by name.
            with_source: Add ``_source``: ``lake`` or ``log``.
            gaps: Of a log table: ``"skip"`` leaves out, with a warning, what neither lake nor cluster holds any more.

        Raises:
            InvalidFilterError, InvalidSchemaError: The condition or a column cannot be.
        """
        return self._reader().scan(
            columns=columns, where=where, limit=limit, as_of=as_of, read_point=read_point,
            partitions=partitions, buckets=buckets, with_source=with_source, gaps=gaps,
        )  # fmt: skip

    seek = _of_reader(TableReader.seek)
    locate = _of_reader(TableReader.locate)

    def changelog(
        self,
        start: Any = "earliest",
        end: Any = None,
        *,
        buckets: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        net: bool = False,
    ) -> Changelog:
        """Return the log itself, from lake and cluster together: each record with its offset and time.

        Args:
            start: ``"earliest"``, ``"latest"``, offsets by bucket, a `Seek`, a time, or a lake snapshot id.
            end: The same; None: now.
            columns: Only these of the user's columns.
            net: For primary-key tables: only what has changed in effect, by key; ``_change_type`` is ``INSERT``, ``DELETE``,
                or ``UPDATE_BEFORE`` and ``UPDATE_AFTER``.
        """
        return self._reader().changelog(start=start, end=end, buckets=buckets, columns=columns, net=net)

    def history(self, key: Any, columns: Sequence[str] | None = None) -> RowHistory:
        """Return every change of one row, in order: records as `changelog` has them, from lake and log; nothing is read yet.

        Args:
            key: One dict, or one row in any form that `append` takes; it names every key column.
            columns: Only these of the user's columns, in the order wanted; None: all.

        Raises:
            UnsupportedError: It is a log table.
            InvalidRecordError, InvalidPartitionError, InvalidRequestError: The key does not fit, or there are several.
            PartitionNotFoundError: The key is of a partition that does not exist.
            InvalidSchemaError: There is no such column.

        What is no longer available is said: see `RowHistory.starts_late` and `RowHistory.ends_early`. Only the key's own bucket is read.
        """
        return self._reader().history(spark_as_arrow(key), columns)

    def diff(self, before: Moment | ReadPoint, after: Moment | ReadPoint | None = None) -> Diff:
        """Return the rows added, removed and changed from one moment to another; read when called.

        Args:
            before: A time, a lake snapshot id, or a read point.
            after: The same, earlier or later; None: now.

        Raises:
            OffsetOutOfRangeError: What happened in between is no longer all available; the text names the earliest that is.
        """
        return self._reader().diff(before, after)

    def subscribe(self, start: Any = "latest", *, columns: Sequence[str] | None = None) -> LogScanner:
        """Return a scanner of every bucket, existing and new partitions', that follows the table. Close it.

        Args:
            start: What `changelog` takes: ``"earliest"`` (in lake or cluster), ``"latest"``, offsets by bucket (others are
                not read then), a `Seek`, a `ReadPoint`, a time, or a lake snapshot id.
            columns: Only these columns, in this order.

        Raises:
            OffsetOutOfRangeError: Records asked for are held nowhere any more, or are not written yet.
            InvalidRequestError: A start that is none.
        """
        return self._reader().subscribe(start, columns)

    def stream(
        self,
        start: Any = "earliest",
        columns: Sequence[str] | None = None,
        *,
        max_rows_per_trigger: int | None = None,
        fail_on_data_loss: bool = True,
    ) -> DataFrame:
        """Return the table's log as a frame of Structured Streaming, with the columns of `changelog`.

        A query of it follows the table: lake, remote storage and servers, whichever holds a record; new partitions from
        their beginning. It goes on from its checkpoint, with every record once at a sink that knows batches by their
        number (``writeStream.format("fluss")`` does). It has the columns that the table has now.

        Args:
            start: Where a query without checkpoint starts: ``"earliest"``, ``"latest"``, offsets by bucket or (partition,
                bucket) (buckets left out are not read), a `Seek`, a `ReadPoint`, a time, or a lake snapshot id.
            columns: Only these of the user's columns.
            max_rows_per_trigger: At most so many records in a batch, taken from all buckets evenly.
            fail_on_data_loss: Whether a query ends with an error when records that it has not read are held nowhere any
                more, expired or dropped with their partition; else it goes on from the first that is held, with a warning.

        Raises:
            InvalidRequestError, InvalidTimestampError: A start that is none.
            BucketNotFoundError: Offsets of a bucket that the table cannot have.
            OffsetOutOfRangeError, PartitionNotFoundError, LakeSnapshotNotFoundError: A start that is held nowhere any more,
                or not written yet. A query that goes on from its checkpoint is given another one, which it does not use.
            InvalidSchemaError: There is no such column.
        """
        from fluss_lab.spark.source.table_frame import stream_frame, stream_options

        options = stream_options(
            self._reader(), start, columns, self.lab.connection.time_zone, max_rows_per_trigger, fail_on_data_loss
        )  # what cannot be is refused here, before Spark is started, and not by its planner
        return stream_frame(self.lab.spark, options)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _reader(self) -> TableReader:
        return TableReader(self.lab.connection, self.path, spark=functools.partial(to_spark, self.lab), waiting=Waiting)

    def __repr__(self) -> str:
        return f"<{table_text(self.lab.connection, self.path)}>"

    def _repr_html_(self) -> str:
        return table_html(self.lab.connection, self.path)
