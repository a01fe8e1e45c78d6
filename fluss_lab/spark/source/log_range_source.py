"""The log's part of reads as a DataFrame whose tasks read from the server, where it is no file (`tail_files`).

The tasks get an address, what each reads, and a token.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fluss_lab.client import Connection
from fluss_lab.model import TableInfo
from fluss_lab.model.json_codec import encode
from fluss_lab.read.changelog.offset_ranges import LogRange
from fluss_lab.read.union.read_parts import Plan
from fluss_lab.spark.log_source import FORMAT, PLAN, TASKS, TOKEN, LogSource
from fluss_lab.spark.log_task import LogPlan
from fluss_lab.spark.source.input_partitions import TASK_RECORDS_MAX, TASK_RECORDS_MIN, row_shares

if TYPE_CHECKING:
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
