"""The reading of the log's part of a frame by a task, from the server: of a log table ranges of records.

Of a primary-key table it is the end of a bucket's log, and of its records those that write rows which no later one ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.client.log.range_reader import read_range
from fluss_lab.model import TableInfo
from fluss_lab.model.json_codec import decode
from fluss_lab.read.changelog.offset_ranges import LogRange
from fluss_lab.read.filter.filter_compiler import SYSTEM_TYPES
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.read_columns import BATCH_ROWS, make_columns, of_records, rebatch
from fluss_lab.read.union.read_parts import Plan, Request
from fluss_lab.read.union.read_plan import read_rows
from fluss_lab.spark.source.input_partitions import Share
from fluss_lab.spark.source.spark_types import arrow_schema, cast_batch

if TYPE_CHECKING:
    from pyspark.sql import types as T  # noqa: N812


class LogPlan(msgspec.Struct):
    """What all tasks share; `address` has no token."""

    address: ServerAddress
    options: Mapping[str, str]
    table: TableInfo


def read_task(plan_text: str, task: str, token: str, schema: T.StructType) -> Iterator[pa.RecordBatch]:
    """Yield what a task reads, in Spark's Arrow types.

    Args:
        plan_text: A `LogPlan` as JSON.
        task: As JSON, ranges of a log table, or a share of a primary-key table's plan.
        token: Of the cluster.
        schema: The columns wanted.
    """
    plan = decode(LogPlan, plan_text, "read of a log")
    address, info = replace(plan.address, token=token), plan.table
    with Connection(lambda: address, plan.options) as connection:
        if info.is_log_table:
            ranges = decode(list[LogRange], task, "ranges of a log")
            yield from log_batches(connection, info, ranges, schema)
        else:
            part = Share.from_json(task, info, None).plan()
            yield from _keyed_batches(TableSource(connection, info, None), part, schema)


def log_batches(
    connection: Connection,
    info: TableInfo,
    ranges: Sequence[LogRange],
    schema: T.StructType,
    rows_max: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Yield exactly the records of some ranges of a log table, in Spark's Arrow types and batches of up to `rows_max`.

    Raises:
        FlussError: As `read_range`.
    """
    return in_spark_types(_records(connection, info, ranges, schema.names), info, schema, rows_max)


def _keyed_batches(source: TableSource, plan: Plan, schema: T.StructType) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a primary-key table's plan, in Spark's Arrow types.

    Raises:
        FlussError: As `read_rows`.
    """
    columns = make_columns(source.info.schema, schema.names or [source.info.schema.names[0]])
    return in_spark_types(read_rows(source, plan, Request(columns, None)), source.info, schema)


def in_spark_types(
    batches: Iterator[pa.RecordBatch], info: TableInfo, schema: T.StructType, rows_max: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield rows of a table's columns in Spark's Arrow types and batches of up to `rows_max`.

    Raises:
        UnsupportedError: A value that Spark's type does not hold.
    """
    target = arrow_schema(schema)
    for batch in rebatch(batches, _table_schema(info, schema.names), rows_max):
        yield cast_batch(batch, target)


def _table_schema(info: TableInfo, names: Sequence[str]) -> pa.Schema:
    fields = [
        pa.field(name, SYSTEM_TYPES[name], nullable=False)
        if name in SYSTEM_TYPES
        else info.schema.column(name).type.arrow_field(name)
        for name in names
    ]
    return pa.schema(fields)


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
