"""The log's part of reads: a small one as a file, a long one as a DataFrame whose tasks read from the server.

Such tasks get an address, what each reads, and a token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from fluss_lab.client import Connection
from fluss_lab.model import TableInfo
from fluss_lab.model.config.options import SPARK_TAIL_FILE_SIZE_MAX
from fluss_lab.model.json_codec import encode
from fluss_lab.read.changelog.offset_ranges import LogRange
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.row_export import ROW_GROUP_ROWS
from fluss_lab.read.union.read_parts import Plan
from fluss_lab.read.union.whole_files import TAIL_RECORDS_MAX, Tails, log_records
from fluss_lab.spark.log_source import FORMAT, PLAN, TASKS, TOKEN, LogSource
from fluss_lab.spark.log_task import LogPlan, in_spark_types, log_batches
from fluss_lab.spark.source.input_partitions import TASK_RECORDS_MAX, TASK_RECORDS_MIN, row_shares
from fluss_lab.spark.source.spark_types import arrow_schema, with_nulls
from fluss_lab.spark.source.tail_files import TailFile, tail_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T  # noqa: N812


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


def log_tail(
    session: SparkSession,
    source: TableSource,
    ranges: Sequence[LogRange],
    schema: T.StructType,
    fields: T.StructType,
) -> AbstractContextManager[TailFile | None]:
    """Return a block's file with the records of the log that a frame is made of in the block; None: tasks read them.

    Tasks do where executors are other processes than the driver, where the records are more than the option
    ``client.spark.tail-file-size-max`` and `TAIL_RECORDS_MAX` allow, and where there is no room for the file.

    Args:
        source: The table.
        ranges: Which records.
        schema: The columns wanted.
        fields: The same, as Spark finds them in files.

    Raises:
        FlussError: As `read_range`: the records cannot be read.

    Cost: the records are read and written once; of too many of them the first answer of the server.
    """
    records = sum(each.records for each in ranges)
    batches = log_batches(source.connection, source.info, ranges, schema, ROW_GROUP_ROWS)
    return _written_file(session, source, fields, batches, records, records)


def keyed_tail(
    session: SparkSession, source: TableSource, tails: Tails, schema: T.StructType, fields: T.StructType
) -> AbstractContextManager[TailFile | None]:
    """Return a block's file with the rows of a primary-key table in the log's part of a read; None: tasks read them.

    Args:
        tails: That part, with the columns of the schema.
        fields: May have further columns behind the schema's: they are null.

    All else is as in `log_tail`; what of the rows was kept is not read again, and nothing is where they are too large.
    """
    if tails.expected_bytes > SPARK_TAIL_FILE_SIZE_MAX.of(source.connection.options):
        return nullcontext()
    batches = with_nulls(in_spark_types(tails.rows(), source.info, schema, ROW_GROUP_ROWS), arrow_schema(fields))
    # How many of the records are rows is not known.
    return _written_file(session, source, fields, batches, log_records(tails.plan.parts), None)


def tail_size_max(session: SparkSession, source: TableSource, records: int) -> int:
    """Return how large a file with so many records of the log may become; 0: tasks read them."""
    size_max = SPARK_TAIL_FILE_SIZE_MAX.of(source.connection.options)
    is_written = 0 < records <= TAIL_RECORDS_MAX and size_max and tail_files(session.sparkContext) is not None
    return size_max if is_written else 0


@contextmanager
def _written_file(
    session: SparkSession,
    source: TableSource,
    fields: T.StructType,
    batches: Iterator[pa.RecordBatch],
    records: int,
    rows: int | None,
) -> Iterator[TailFile | None]:
    size_max = tail_size_max(session, source, records)
    files = tail_files(session.sparkContext) if size_max else None
    if files is None:
        yield None
        return
    with files.new(fields, size_max) as file:
        yield file if file is not None and _is_written(file, source, batches, rows) else None


def _is_written(file: TailFile, source: TableSource, batches: Iterator[pa.RecordBatch], records: int | None) -> bool:
    try:
        with source.watch("reading the log of {}"):
            return file.write(batches, records)
    except OSError:
        return False  # tasks need no disk


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
    plan = LogPlan(replace(address, token=""), connection.options, info)
    options = {PLAN: encode(plan).decode(), TASKS: json.dumps(tasks), TOKEN: address.token}
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
