"""A table's log as a source of Structured Streaming: ``spark.readStream.format("fluss")``.

With ``changelog=true`` (as `Table.stream` does) the stream has the columns of a changelog, then the user's; without, of a
log table, the user's columns, and ``__bucket``, ``__offset``, ``__timestamp`` by name. Offsets are kept by Spark in the
query's checkpoint, and nowhere else: the cluster and the lake do not wait for a stream that has stopped.

Options: ``start`` (where a new query starts: ``earliest``, ``latest``, a time, a lake snapshot's id, offsets or a read
point in JSON), ``columns``, ``maxRowsPerTrigger``, ``minRowsPerTrigger``, ``failOnDataLoss`` (default true), ``tasks``.

A batch is planned by a process that Spark keeps on the driver's machine for the query; records are read by tasks, from
wherever they are by then. A query has the columns that its frame was made with: those added to the table while it runs
are seen by a frame that is made afterwards. A limit of rows may part the ``-U`` and ``+U`` of an update, which then come in
two batches, one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.client.cluster.metadata_cache import check_table_id
from fluss_lab.errors import (
    FlussError,
    InvalidPropertyError,
    InvalidSchemaError,
    PartitionNotFoundError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.model import TableInfo
from fluss_lab.model.json_codec import decode, encode
from fluss_lab.model.times import format_moment
from fluss_lab.read.changelog.changelog import (
    BUCKET,
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    LOG_OFFSET,
    PARTITION,
    ChangelogRange,
    changelog_batch,
    changelog_schema,
)
from fluss_lab.read.changelog.stream_offsets import StreamOffset
from fluss_lab.read.changelog.table_stream import TableStream
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.read_columns import OFFSET, TIMESTAMP, rebatch
from fluss_lab.spark.source import source_options
from fluss_lab.spark.source.batch_reader import TaskPartition
from fluss_lab.spark.source.input_partitions import change_shares, ranges_from_json, ranges_to_json
from fluss_lab.spark.source.source_options import ClusterPlace, SourceOptions
from fluss_lab.spark.source.spark_types import arrow_schema, cast_batch
from fluss_lab.spark.source.task_lake import TaskLake, changelog_lake, pin_lake

if TYPE_CHECKING:
    from pyspark.sql import types as T  # noqa: N812

#: Spark asks again after 10 ms when there was nothing; a query that waits shall cost next to nothing. Meanwhile its stop
#: waits too, and new partitions are not seen.
_IDLE_S: Final = 0.5
#: Of so many waits in which nothing came one is followed by a look at the whole table: whether it is still there.
_WAITS_PER_LOOK: Final = 4
_KNOWN: Final = source_options.STREAM_OPTIONS | {
    source_options.COLUMNS,
    source_options.CHANGELOG,
    source_options.START,
    source_options.TASKS,
}
_CHANGE_COLUMNS: Final = frozenset({CHANGE_TYPE, PARTITION, BUCKET, LOG_OFFSET, COMMIT_TIMESTAMP})
#: What scans call the same.
_SCAN_NAMES: Final = {"__bucket": BUCKET, OFFSET: LOG_OFFSET, TIMESTAMP: COMMIT_TIMESTAMP}


class _Head(msgspec.Struct):
    """What all tasks of a batch share. It holds the token, and credentials of the lake's files where it is read."""

    table: TableInfo
    address: ServerAddress
    lake: TaskLake | None = None


class FlussStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one table's log for one streaming query. Spark calls it; see the module for the options.

    Args:
        options: Of the data source.
        schema: The columns wanted, in Spark's types.

    Raises:
        InvalidPropertyError: An option that a stream does not have, or a value that cannot be.
    """

    def __init__(self, options: SourceOptions, schema: T.StructType) -> None:
        options.check(_KNOWN, "a stream")
        self._options = options
        self._schema = schema
        self._rows_max = _positive(options, source_options.ROWS_MAX)
        self._rows_min = _positive(options, source_options.ROWS_MIN)
        if self._rows_max is not None and self._rows_min is not None:
            raise InvalidPropertyError("format fluss: expected maxRowsPerTrigger or minRowsPerTrigger, found both")
        self._fails = options.flag(source_options.FAIL_ON_DATA_LOSS, True)
        self._connection: Connection | None = None
        self._stream: TableStream | None = None
        self._source: TableSource | None = None
        self._info: TableInfo | None = None
        self._last: StreamOffset | None = None
        #: How often there was nothing since there was something.
        self._idle_count = 0

    def __getstate__(self) -> dict[str, Any]:
        # Spark sends the reader to the tasks.
        return self.__dict__ | {"_connection": None, "_stream": None, "_source": None, "_info": None, "_last": None}

    # -- offsets, in a process on the driver's machine ----------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's names, here and below
        """Return where a new query starts.

        One that goes on from a checkpoint asks too while its first batch is not done: where that began is in its end.
        """
        start = self._options.edge(source_options.START) if source_options.START in self._options.values else "earliest"
        offset = self._open().initial(start)
        if (meant := self._options.numbers(source_options.START_PARTITIONS)) is not None:
            _check_partitions(offset, meant)
        return offset.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the options say."""
        if self._rows_max is not None:
            return ReadMaxRows(self._rows_max)
        return ReadAllAvailable() if self._rows_min is None else ReadMinRows(self._rows_min)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends, within a limit; `start` when there is nothing to read."""
        rows_max, rows_min = None, 0
        if isinstance(limit, ReadMaxRows):
            rows_max = int(limit.max_rows)
        elif isinstance(limit, ReadMinRows):
            rows_min = int(limit.min_rows)
        elif not isinstance(limit, ReadAllAvailable):
            raise UnsupportedError(f"format fluss: a stream is limited by rows, found {limit!r}")
        before, self._last = self._last, StreamOffset.from_json(start)
        stream = self._open()
        # Not the first time: whoever waits for the query to be through sees the end, or the error, at once.
        if self._idle_count and before == self._last and not stream.pinned and self._is_quiet(stream):
            self._idle_count += 1
            return start
        end = stream.latest(self._last, rows_max, rows_min)
        self._idle_count = self._idle_count + 1 if end == self._last else 0
        return end.to_json()

    def _is_quiet(self, stream: TableStream) -> bool:
        """Wait for records; return whether none have come, and nothing else can have: a partition, another table."""
        assert self._info is not None
        is_quiet = stream.wait(_IDLE_S)
        return is_quiet and not self._info.descriptor.partitioned_by and self._idle_count % _WAITS_PER_LOOK != 0

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return where the table ends, as it was when the last batch was planned: for people who watch the query."""
        end = None if self._stream is None else self._stream.end(self._last)
        return None if end is None else end.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the stream end at what there is now."""
        self._open().pin()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return what each task of a batch reads; nothing for a batch without records."""
        stream = self._open()
        buckets = stream.buckets(StreamOffset.from_json(start), StreamOffset.from_json(end))
        if not buckets:
            return []
        tasks = self._options.number(source_options.TASKS) or os.cpu_count() or 1
        found = stream.ranges(buckets)
        shares = change_shares(found, tasks, whole=False)
        assert self._info is not None
        assert self._source is not None
        head = encode(_Head(self._info, self._options.place.address(), changelog_lake(self._source, found))).decode()
        return [TaskPartition(head, ranges_to_json(ranges)) for ranges in shares]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: how long records are held is the table's to say, not a reader's."""

    def stop(self) -> None:
        """Let go of the cluster."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._stream = self._source = None

    def _open(self) -> TableStream:
        if self._stream is None:
            self._connection = connection = self._options.connect()
            self._info = info = connection.table_info(self._options.table)
            if (expected := self._options.number(source_options.TABLE_ID)) is not None:
                check_table_id(info.path, expected, info.table_id)
            if (created := self._options.number(source_options.TABLE_CREATED)) is not None:
                _check_created(info, created)
            user_columns(info, self._schema)
            self._source = TableSource(connection, info, None)
            self._stream = TableStream(self._source, fail_on_data_loss=self._fails)
        return self._stream

    # -- records, in tasks --------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task's ranges, in Spark's Arrow types."""
        assert isinstance(partition, TaskPartition)
        head = decode(_Head, partition.head, "batch of a stream")
        with Connection(lambda: _present(self._options.place, head.address), self._options.client) as connection:
            pin_lake(connection, head.table, head.lake)
            stream = TableStream(TableSource(connection, head.table, None), fail_on_data_loss=self._fails)
            yield from stream_batches(stream, head.table, ranges_from_json(partition.share), self._schema)


def stream_batches(
    stream: TableStream, info: TableInfo, ranges: Sequence[ChangelogRange], schema: T.StructType
) -> Iterator[pa.RecordBatch]:
    """Yield the records of ranges with a Spark schema's columns, in the one form in which Spark takes them."""
    columns = user_columns(info, schema)
    own = changelog_schema(info, columns)
    target = arrow_schema(schema)
    given = [_SCAN_NAMES.get(name, name) for name in schema.names]
    found = (changelog_batch(records, part, own) for part in ranges for records in stream.read(part, columns))
    for batch in rebatch(found, own):
        yield cast_batch(batch.select(given), target)


def user_columns(info: TableInfo, schema: T.StructType) -> list[str]:
    """Return the user's columns among those of a stream.

    Raises:
        InvalidSchemaError: The table has no such column, or a stream none such.
        UnsupportedError: A primary-key table without change types: a delete would look like an insert.
    """
    columns = []
    for name in schema.names:
        if name == PARTITION and not info.descriptor.partitioned_by:
            raise InvalidSchemaError(f"stream of table {info.path}: it has no partitions, so no column {name!r}")
        if name not in _CHANGE_COLUMNS and name not in _SCAN_NAMES:
            columns.append(info.schema.column(name).name)
    if not info.is_log_table and CHANGE_TYPE not in schema.names:
        raise UnsupportedError(
            f"stream of table {info.path}: it has a primary key, so the stream is of changes: add option "
            f"{source_options.CHANGELOG}=true, which adds the column {CHANGE_TYPE}"
        )
    return columns


def _check_created(info: TableInfo, expected_ms: int) -> None:
    """See that a table is the one that was made at a time.

    Raises:
        TableNotFoundError: It was made at another one.
    """
    if info.created_ms != expected_ms:
        raise TableNotFoundError(
            f"stream of table {info.path}: expected the one that was made at {format_moment(expected_ms)}, found one of the same id that "
            f"was made at {format_moment(info.created_ms)}: it is another lab's; ask for the stream anew"
        )


def _check_partitions(offset: StreamOffset, meant: Collection[int]) -> None:
    """See that the partitions which a start names are those that it named when the stream was asked for.

    Raises:
        PartitionNotFoundError: One was dropped, and another one has its name now.
    """
    for number, name in offset.partitions.items():
        if number not in meant:
            raise PartitionNotFoundError(
                f"stream of table {offset.table}: partition {name!r}, in which its start says offsets, was dropped and made again "
                "since: they are of records that are no more; ask for the stream anew, with offsets of the partition as it is now"
            )


def _present(place: ClusterPlace, found: ServerAddress) -> ServerAddress:
    """Return where the cluster is: a lab's folder, where it is seen, knows of a server that was started again since."""
    if place.folder is not None and Path(place.folder).is_dir():
        try:
            return place.address()
        except (FlussError, OSError):
            return found
    return found


def _positive(options: SourceOptions, name: str) -> int | None:
    number = options.number(name)
    if number == 0:
        raise InvalidPropertyError(f"option {name}: expected at least 1, found 0")
    return number
