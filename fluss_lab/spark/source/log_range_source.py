"""Ranges of the log as a Spark data source: tasks get an address, ranges and a token, and read from the server.

Of a log table they are its records. Of a primary-key table a range is the end of a bucket's log, and of its records those
are read that write rows which no later one ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.client.log.range_reader import read_range
from fluss_lab.model import TableInfo
from fluss_lab.model.json_codec import decode, encode
from fluss_lab.read.changelog.offset_ranges import LogRange
from fluss_lab.read.filter.filter_compiler import SYSTEM_TYPES
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.read_columns import make_columns, of_records, rebatch
from fluss_lab.read.union.read_parts import Plan, Request
from fluss_lab.read.union.read_plan import read_rows
from fluss_lab.spark.source.input_partitions import TASK_RECORDS_MAX, TASK_RECORDS_MIN, Share, row_shares
from fluss_lab.spark.source.spark_types import arrow_schema, cast_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T  # noqa: N812

#: The name under which the source is registered with a session.
FORMAT: Final = "fluss_lab_log"


def log_frame(
    session: SparkSession, connection: Connection, info: TableInfo, ranges: Sequence[LogRange], schema: T.StructType
) -> DataFrame:
    """Return records of the log as a DataFrame.

    Args:
        connection: Has the address and token that the tasks use.
        ranges: Which records; what leaves the cluster before the frame is used is read from the lake.
        schema: The user's and system columns wanted, in Spark's types.
    """
    tasks = [encode(task).decode() for task in divide_ranges(ranges, _parallelism(session))]
    return _frame(session, connection, info, tasks, schema)


def keyed_log_frame(
    session: SparkSession, connection: Connection, info: TableInfo, plan: Plan, schema: T.StructType
) -> DataFrame:
    """Return rows of a primary-key table that are in the log's part of a read as a DataFrame.

    Args:
        connection: Has the address and token that the tasks use.
        plan: That part alone; what moves before the frame is used is planned again, by each task for its own.
        schema: The user's and system columns wanted, in Spark's types.
    """
    tasks = [share.to_json() for share in row_shares(plan, _parallelism(session), keyed=True)]
    return _frame(session, connection, info, tasks, schema)


def _frame(
    session: SparkSession, connection: Connection, info: TableInfo, tasks: list[str], schema: T.StructType
) -> DataFrame:
    session.dataSource.register(LogSource)
    address = connection.address
    plan = _LogPlan(replace(address, token=""), connection.options, info, tasks)
    # Spark shows no option whose name speaks of a token.
    options = {"plan": encode(plan).decode(), "token": address.token}
    return session.read.format(FORMAT).schema(schema).options(**options).load()


def _parallelism(session: SparkSession) -> int:
    return max(1, int(session.sparkContext.defaultParallelism))


def divide_ranges(ranges: Sequence[LogRange], parallelism: int) -> list[list[LogRange]]:
    """Return ranges packed into tasks: small ones together, long ones cut."""
    total = sum(each.records for each in ranges)
    size = min(max(-(-total // parallelism), TASK_RECORDS_MIN), TASK_RECORDS_MAX)
    tasks: list[list[LogRange]] = []
    room = 0
    for each in ranges:
        start = each.start
        while start < each.stop:
            if not room:
                tasks.append([])
                room = size
            stop = min(each.stop, start + room)
            tasks[-1].append(LogRange(each.bucket, each.partition, start, stop))
            room -= stop - start
            start = stop
    return tasks


class _LogPlan(msgspec.Struct):
    """What is read, as JSON for tasks; `address` has no token.

    Attributes:
        tasks: What each reads, as JSON: ranges of a log table, or a share of a primary-key table's plan.
    """

    address: ServerAddress
    options: Mapping[str, str]
    table: TableInfo
    tasks: list[str]


class LogSource(DataSource):
    """The data source; made by `log_frame` only."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._plan = options.get("plan", "")
        self._token = options.get("token", "")

    @classmethod
    def name(cls) -> str:
        """Return the name it is registered under."""
        return FORMAT

    def reader(self, schema: T.StructType) -> DataSourceReader:
        """Return the reader of the plan given in the options."""
        return LogReader(self._plan, self._token, schema)


class LogPartition(InputPartition):
    """What one task reads, as JSON."""

    def __init__(self, task: str) -> None:
        super().__init__(task)
        self.task = task


class LogReader(DataSourceReader):
    """Reads ranges from the server."""

    def __init__(self, plan: str, token: str, schema: T.StructType) -> None:
        self._plan = plan
        self._token = token
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return one partition a task."""
        plan = decode(_LogPlan, self._plan, "read of a log")
        return [LogPartition(task) for task in plan.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task's ranges, in Spark's Arrow types."""
        assert isinstance(partition, LogPartition)
        plan = decode(_LogPlan, self._plan, "read of a log")
        address, info = replace(plan.address, token=self._token), plan.table
        target = arrow_schema(self._schema)
        with Connection(lambda: address, plan.options) as connection:
            batches = _batches(connection, info, partition.task, self._schema.names)
            for batch in rebatch(batches, _table_schema(info, self._schema.names)):
                yield cast_batch(batch, target)


def _table_schema(info: TableInfo, names: Sequence[str]) -> pa.Schema:
    fields = [
        pa.field(name, SYSTEM_TYPES[name], nullable=False)
        if name in SYSTEM_TYPES
        else info.schema.column(name).type.arrow_field(name)
        for name in names
    ]
    return pa.schema(fields)


def _batches(connection: Connection, info: TableInfo, task: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if info.is_log_table:
        return _records(connection, info, decode(list[LogRange], task, "ranges of a log"), names)
    columns = make_columns(info.schema, names or [info.schema.names[0]])
    return read_rows(
        TableSource(connection, info, None), Share.from_json(task, info, None).plan(), Request(columns, None)
    )


def _records(
    connection: Connection, info: TableInfo, ranges: Sequence[LogRange], names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    schema = _table_schema(info, names)
    user = [name for name in names if name not in SYSTEM_TYPES]
    for each in ranges:
        found = read_range(
            connection, info, each.bucket, each.start, each.stop, partition=each.partition, projection=user
        )
        for records in found:
            yield of_records(records, each.bucket.bucket, schema)
