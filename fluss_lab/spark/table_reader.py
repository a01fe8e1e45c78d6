"""Reading a table in Spark by the data source ``fluss``: planned on the driver's machine, read by tasks in Arrow.

A frame's first query is planned by a process that Spark starts on the driver's machine: it takes the read point (unless
one was given), decides what comes from which files and ranges of the log, and divides that among tasks
(`fluss_lab.spark.shares`). Spark keeps that plan for later queries of the frame. A task has a connection of its own. It
gives the same rows however often it is run, on whatever executor: what moves meanwhile is planned again, for its share
alone.

Spark's filters are not taken over (`DataSourceReader.pushFilters`), though much would be pruned by them: Spark 4.3 keeps
the plan of a query with filters for every later use of the frame, so that its next query, or the other side of a
self-join, loses rows without a word. Filters that shall prune go into the option ``where``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from fluss_lab.client import Connection
from fluss_lab.errors import InvalidPropertyError
from fluss_lab.model import Schema, TableInfo
from fluss_lab.read.changelog import (
    BUCKET,
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    LOG_OFFSET,
    PARTITION,
    Changelog,
)
from fluss_lab.read.columns import SOURCE_COLUMN, evened, make_columns
from fluss_lab.read.filter_json import filter_from_json, filter_to_json
from fluss_lab.read.filters import Filter, compile_filter
from fluss_lab.read.net import NetChangelog
from fluss_lab.read.reader import TableReader
from fluss_lab.read.rows import Request, read_rows
from fluss_lab.read.scan import Scan
from fluss_lab.read.state import TableSource
from fluss_lab.spark import source_options as names
from fluss_lab.spark.shares import Share, change_shares, ranges_from_json, ranges_to_json, row_shares
from fluss_lab.spark.source_options import SourceOptions
from fluss_lab.spark.types import arrow_schema, cast_batch, stored_schema, wanted_schema

if TYPE_CHECKING:
    from pyspark.sql import types as T  # noqa: N812

_CHANGE_COLUMNS: Final = (CHANGE_TYPE, PARTITION, BUCKET, LOG_OFFSET, COMMIT_TIMESTAMP)
#: Options that only one of the two kinds of reads has.
_OF_SCANS: Final = (names.WHERE, names.AS_OF, names.READ_POINT, names.PARTITIONS, names.LIMIT, names.WITH_SOURCE)
_OF_CHANGELOGS: Final = (names.START, names.END, names.NET)


def source_schema(options: SourceOptions) -> T.StructType:
    """Return the schema of what the options ask for, as it is now; TIME always to the microsecond.

    Raises:
        FlussError: As the options, or the read itself, would.
    """
    # Whether it is for a batch or for a stream is not told: what one of them refuses, its reader does.
    options.check(names.READ_OPTIONS | names.STREAM_OPTIONS, "reading")
    with options.connect() as connection:
        reader = TableReader(connection, options.table)
        if options.flag(names.CHANGELOG):
            log = _changelog(options, reader, options.names(names.COLUMNS))
            return stored_schema(wanted_schema(log.source.info.schema, log.schema.names))
        scan = _scan(options, reader, options.names(names.COLUMNS), options.flag(names.WITH_SOURCE))
        return stored_schema(wanted_schema(scan.source.info.schema, scan.schema.names))


def make_reader(options: SourceOptions, schema: T.StructType) -> DataSourceReader:
    """Return the reader of what the options ask for.

    Args:
        options: Of the data source.
        schema: The columns wanted, in Spark's types: all, or those that somebody named by ``.schema(...)``.

    Raises:
        InvalidPropertyError: Options that do not go together.
    """
    _check(options)
    if options.flag(names.CHANGELOG):
        return ChangelogReader(options, schema)
    return TableRowsReader(options, schema)


def _check(options: SourceOptions) -> None:
    options.check(names.READ_OPTIONS, "reading")
    is_changelog = options.flag(names.CHANGELOG)
    for name in _OF_SCANS if is_changelog else _OF_CHANGELOGS:
        if name in options.values:
            kind = "a changelog" if is_changelog else f"a read without {names.CHANGELOG}=true"
            raise InvalidPropertyError(f"format fluss: {kind} has no option {name!r}")


# -- readers ----------------------------------------------------------------------------------------------------------


class TaskPartition(InputPartition):
    """What one task reads: what all tasks of the read share, and its own part, both as JSON."""

    def __init__(self, head: str, share: str) -> None:
        super().__init__(share)
        self.head = head
        self.share = share


class TableRowsReader(DataSourceReader):
    """Reads the rows of a table at one moment: the latest when it is planned, unless the options say which."""

    def __init__(self, options: SourceOptions, schema: T.StructType) -> None:
        # Found here, on the driver's machine: executors may not see the lab's folder.
        self._address = options.place.address()
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Plan the read; return a partition for each task."""
        options = self._options
        with options.connect() as connection:
            columns = [name for name in self._schema.names if name != SOURCE_COLUMN]
            reader = TableReader(connection, options.table)
            scan = _scan(options, reader, columns, SOURCE_COLUMN in self._schema.names)
            plan = scan.plan()
            info, where = scan.source.info, scan.selection.filter
        # The first rows in reading order are one task's to find.
        shares = (
            row_shares(plan, _tasks(options), keyed=not info.is_log_table)
            if scan.limit is None
            else [Share(plan.parts, plan.snapshot_id)]
        )
        head = {
            "table": info.to_json(),
            "columns": columns or [info.schema.names[0]],
            "where": None if where is None else filter_to_json(where),
            "limit": scan.limit,
        }
        return [TaskPartition(json.dumps(head), share.to_json()) for share in shares] or [TaskPartition("", "")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task's share, in Spark's Arrow types."""
        assert isinstance(partition, TaskPartition)
        if not partition.head:
            return
        head = json.loads(partition.head)
        info = TableInfo.from_json(head["table"])
        where = None if head["where"] is None else filter_from_json(head["where"], info.schema)
        share = Share.from_json(partition.share, info, where)
        columns = make_columns(info.schema, head["columns"], SOURCE_COLUMN in self._schema.names)
        with Connection(lambda: self._address, self._options.client) as connection:
            source = TableSource(connection, info, None)
            rows = _first(read_rows(source, share.plan(), Request(columns, where)), head["limit"])
            yield from _in_spark_types(evened(rows, columns.schema()), self._schema)


class ChangelogReader(DataSourceReader):
    """Reads a range of a table's changelog; without an end, up to the latest when it is planned."""

    def __init__(self, options: SourceOptions, schema: T.StructType) -> None:
        self._address = options.place.address()
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Plan the read; return a partition for each task."""
        options = self._options
        columns = [name for name in self._schema.names if name not in _CHANGE_COLUMNS]
        with options.connect() as connection:
            log = _changelog(options, TableReader(connection, options.table), columns)
            # What a range comes to, nobody can tell of pieces of it.
            shares = change_shares(log.plan(), _tasks(options), whole=log.net)
            head = json.dumps({"table": log.source.info.to_json(), "columns": columns, "net": log.net})
        return [TaskPartition(head, ranges_to_json(ranges)) for ranges in shares] or [TaskPartition("", "")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task's ranges, in Spark's Arrow types."""
        assert isinstance(partition, TaskPartition)
        if not partition.head:
            return
        head = json.loads(partition.head)
        info = TableInfo.from_json(head["table"])
        with Connection(lambda: self._address, self._options.client) as connection:
            kind = NetChangelog if head["net"] else Changelog
            log = kind(TableSource(connection, info, None), None, None, None, head["columns"])
            batches = (batch for part in ranges_from_json(partition.share) for batch in log.read(part))
            yield from _in_spark_types(evened(batches, log.schema), self._schema)


# -- what readers share -----------------------------------------------------------------------------------------------


def _scan(
    options: SourceOptions,
    reader: TableReader,
    columns: Sequence[str] | None,
    with_source: bool,
) -> Scan:
    point = options.read_point()
    scan = reader.scan(
        columns if columns is None or columns else [reader.info.schema.names[0]],
        limit=options.number(names.LIMIT),
        as_of=options.moment(names.AS_OF),
        read_point=point,
        partitions=options.names(names.PARTITIONS),
        buckets=options.numbers(names.BUCKETS),
        with_source=with_source,
    )
    where = _where(options.text(names.WHERE), scan.source.info.schema)
    if where is not None:
        scan.selection = replace(scan.selection, filter=where)
    return scan


def _where(text: str | None, schema: Schema) -> Filter | None:
    # No SQL begins so: it is a filter that was compiled already.
    return filter_from_json(text, schema) if text and text.startswith("{") else compile_filter(text, schema)


def _changelog(options: SourceOptions, reader: TableReader, columns: Sequence[str] | None) -> Changelog:
    return reader.changelog(
        options.edge(names.START) if names.START in options.values else "earliest",
        options.edge(names.END),
        buckets=options.numbers(names.BUCKETS),
        columns=columns,
        net=options.flag(names.NET),
    )


def _tasks(options: SourceOptions) -> int:
    return options.number(names.TASKS) or os.cpu_count() or 1


def _first(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)


def _in_spark_types(batches: Iterator[pa.RecordBatch], schema: T.StructType) -> Iterator[pa.RecordBatch]:
    """Yield batches with a schema's columns, found by name, in the one form in which Spark takes them."""
    target = arrow_schema(schema)
    for batch in batches:
        yield cast_batch(batch.select(target.names), target)
