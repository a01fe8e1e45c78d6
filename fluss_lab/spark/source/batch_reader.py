"""The reader of a table in Spark by the data source ``fluss``: planned on the driver's machine, read by tasks in Arrow.

A frame's first query is planned by a process that Spark starts on the driver's machine: it takes the read point (unless
one was given), decides what comes from which files and ranges of the log, and divides that among tasks
(`fluss_lab.spark.source.input_partitions`). Spark keeps that plan for later queries of the frame. A task has a connection of its own. It
gives the same rows however often it is run, on whatever executor: what moves meanwhile is planned again, for its share
alone.

Spark's filters are not taken over (`DataSourceReader.pushFilters`), though much would be pruned by them: Spark 4.3 keeps
the plan of a query with filters for every later use of the frame, so that its next query, or the other side of a
self-join, loses rows without a word. Filters that shall prune go into the option ``where``.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from fluss_lab.client import Connection
from fluss_lab.client.cluster.metadata_cache import check_table_id
from fluss_lab.errors import InvalidPropertyError, InvalidSchemaError
from fluss_lab.model import Schema, TableInfo
from fluss_lab.model.json_codec import decode, encode
from fluss_lab.read.changelog.changelog import BUCKET, CHANGE_TYPE, COMMIT_TIMESTAMP, LOG_OFFSET, PARTITION, Changelog
from fluss_lab.read.changelog.net_changes import NetChangelog
from fluss_lab.read.changelog.offset_ranges import LogRange, ranges_between
from fluss_lab.read.filter.filter_compiler import Filter, compile_filter
from fluss_lab.read.filter.filter_json import filter_from_json, filter_to_json
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.table_reader import TableReader
from fluss_lab.read.union.read_columns import SOURCE_COLUMN, limit_rows, make_columns, rebatch
from fluss_lab.read.union.read_parts import Request
from fluss_lab.read.union.read_plan import read_rows
from fluss_lab.read.union.scan import Scan
from fluss_lab.spark.source import source_options
from fluss_lab.spark.source.input_partitions import Share, change_shares, ranges_from_json, ranges_to_json, row_shares
from fluss_lab.spark.source.source_options import SourceOptions
from fluss_lab.spark.source.spark_types import arrow_schema, cast_batch, stored_schema, wanted_schema
from fluss_lab.spark.source.task_lake import TaskLake, changelog_lake, pin_lake, task_lake

if TYPE_CHECKING:
    from pyspark.sql import types as T  # noqa: N812

#: Said where a column is none of the table: Spark alters tables of its catalog without asking what they are made of.
_ALTERED: Final = "; ALTER TABLE of a CREATE TABLE ... USING fluss changes Spark's catalog alone: drop that table there, alter this one, and create it again"
_CHANGE_COLUMNS: Final = (CHANGE_TYPE, PARTITION, BUCKET, LOG_OFFSET, COMMIT_TIMESTAMP)
#: Options that only one of the two kinds of reads has.
_OF_SCANS: Final = (
    source_options.WHERE,
    source_options.AS_OF,
    source_options.READ_POINT,
    source_options.PARTITIONS,
    source_options.LIMIT,
    source_options.WITH_SOURCE,
)
_OF_CHANGELOGS: Final = (source_options.START, source_options.END, source_options.NET, source_options.RANGES)


def source_schema(options: SourceOptions) -> T.StructType:
    """Return the schema of what the options ask for, as it is now; TIME always to the microsecond.

    Raises:
        FlussError: As the options, or the read itself, would.
    """
    # Spark does not say whether it is for a batch or for a stream: what one of them refuses, its reader does.
    options.check(source_options.READ_OPTIONS | source_options.STREAM_OPTIONS, "reading")
    with options.connect() as connection:
        reader = TableReader(connection, options.table)
        if options.flag(source_options.CHANGELOG):
            log = _changelog(options, reader, options.names(source_options.COLUMNS))
            return stored_schema(wanted_schema(log.source.info.schema, log.schema.names))
        scan = _scan(options, reader, options.names(source_options.COLUMNS), options.flag(source_options.WITH_SOURCE))
        return stored_schema(wanted_schema(scan.source.info.schema, scan.schema.names))


def make_reader(options: SourceOptions, schema: T.StructType) -> DataSourceReader:
    """Return the reader of what the options ask for.

    Args:
        options: Of the data source.
        schema: The columns wanted, in Spark's types: all, or those named by ``.schema(...)``.

    Raises:
        InvalidPropertyError: Options that do not go together.
    """
    _check(options)
    if options.flag(source_options.CHANGELOG):
        return ChangelogReader(options, schema)
    return TableRowsReader(options, schema)


def _check(options: SourceOptions) -> None:
    options.check(source_options.READ_OPTIONS, "reading")
    is_changelog = options.flag(source_options.CHANGELOG)
    for name in _OF_SCANS if is_changelog else _OF_CHANGELOGS:
        if name in options.values:
            kind = "a changelog" if is_changelog else f"a read without {source_options.CHANGELOG}=true"
            raise InvalidPropertyError(f"format fluss: {kind} has no option {name!r}")


# -- readers ----------------------------------------------------------------------------------------------------------


class TaskPartition(InputPartition):
    """What one task reads: what all tasks of the read share, and its own part, both as JSON."""

    def __init__(self, head: str, share: str) -> None:
        super().__init__(share)
        self.head = head
        self.share = share

    def __repr__(self) -> str:
        # A stream's head has a token in it.
        return f"{type(self).__name__}({self.share})"


class _Head(msgspec.Struct):
    """What all tasks of a read share.

    Attributes:
        table: As planned.
        columns: In the order wanted.
        where: Of rows: the filter as JSON.
        limit: Of rows: how many are wanted at most; None: all.
        net: Of changes: whether they are net ones.
        lake: What the lake's part is read with; None: nothing of it is, as far as is known.
    """

    table: TableInfo
    columns: list[str]
    where: str | None = None
    limit: int | None = None
    net: bool = False
    lake: TaskLake | None = None


class _Reader(DataSourceReader):
    """A read that is planned on the driver's machine, and carried out by tasks with a connection each."""

    def __init__(self, options: SourceOptions, schema: T.StructType) -> None:
        # Found here, on the driver's machine: executors may not see the lab's folder.
        self._address = options.place.address()
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Plan the read; return a partition for each task."""
        with self._options.connect() as connection:
            head, shares = self._plan(TableReader(connection, self._options.table))
        text = encode(head).decode()
        # Spark makes a partition of its own, None, of no partitions.
        return [TaskPartition(text, share) for share in shares] or [TaskPartition("", "")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield what a task's share has, in Spark's Arrow types."""
        assert isinstance(partition, TaskPartition)
        if not partition.head:
            return
        head = decode(_Head, partition.head, "read of a table")
        with Connection(lambda: self._address, self._options.client) as connection:
            pin_lake(connection, head.table, head.lake)
            source = TableSource(connection, head.table, None)
            batches, schema = self._carry_out(source, head, partition.share)
            target = arrow_schema(self._schema)
            for batch in rebatch(batches, schema):
                yield cast_batch(batch.select(target.names), target)

    @abstractmethod
    def _plan(self, reader: TableReader) -> tuple[_Head, list[str]]:
        """Return what all tasks share, and the share of each."""

    @abstractmethod
    def _carry_out(self, source: TableSource, head: _Head, share: str) -> tuple[Iterator[pa.RecordBatch], pa.Schema]:
        """Return the batches of a share, in the table's own types, and their schema."""


class TableRowsReader(_Reader):
    """Reads the rows of a table at one moment: the latest when it is planned, unless the options say which."""

    def _plan(self, reader: TableReader) -> tuple[_Head, list[str]]:
        columns = [name for name in self._schema.names if name != SOURCE_COLUMN]
        try:
            scan = _scan(self._options, reader, columns, SOURCE_COLUMN in self._schema.names)
        except InvalidSchemaError as error:
            raise InvalidSchemaError(f"table {reader.info.path}: {error}{_ALTERED}") from error
        plan, info, where = scan.plan(), scan.source.info, scan.selection.filter
        # The first rows in reading order are one task's to find.
        shares = (
            row_shares(plan, _tasks(self._options), keyed=not info.is_log_table)
            if scan.limit is None
            else [Share(plan.parts, plan.snapshot_id)]
        )
        text = None if where is None else filter_to_json(where)
        lake = None if plan.snapshot_id is None else task_lake(scan.source, plan.snapshot_id)
        head = _Head(info, columns or [info.schema.names[0]], where=text, limit=scan.limit, lake=lake)
        return head, [share.to_json() for share in shares]

    def _carry_out(self, source: TableSource, head: _Head, share: str) -> tuple[Iterator[pa.RecordBatch], pa.Schema]:
        info = source.info
        where = None if head.where is None else filter_from_json(head.where, info.schema)
        columns = make_columns(info.schema, head.columns, SOURCE_COLUMN in self._schema.names)
        plan = Share.from_json(share, info, where).plan()
        return limit_rows(read_rows(source, plan, Request(columns, where)), head.limit), columns.schema()


class ChangelogReader(_Reader):
    """Reads a range of a table's changelog; without an end, up to the latest when it is planned."""

    def _plan(self, reader: TableReader) -> tuple[_Head, list[str]]:
        columns = [name for name in self._schema.names if name not in _CHANGE_COLUMNS]
        log = _changelog(self._options, reader, columns)
        if (ranges := self._options.text(source_options.RANGES)) is not None:
            log.offset_ranges = _same_ranges(log.source, ranges)
        # The net changes of a range do not follow from those of its parts.
        plan = log.plan()
        shares = change_shares(plan, _tasks(self._options), whole=log.net)
        head = _Head(log.source.info, columns, net=log.net, lake=changelog_lake(log.source, plan))
        return head, [ranges_to_json(ranges) for ranges in shares]

    def _carry_out(self, source: TableSource, head: _Head, share: str) -> tuple[Iterator[pa.RecordBatch], pa.Schema]:
        kind = NetChangelog if head.net else Changelog
        log = kind(source, None, None, None, head.columns)
        return (batch for part in ranges_from_json(share) for batch in log.read(part)), log.schema


# -- what readers share -----------------------------------------------------------------------------------------------


def _scan(options: SourceOptions, reader: TableReader, columns: Sequence[str] | None, with_source: bool) -> Scan:
    point = options.read_point()
    scan = reader.scan(
        columns if columns is None or columns else [reader.info.schema.names[0]],
        limit=options.number(source_options.LIMIT),
        as_of=options.moment(source_options.AS_OF),
        read_point=point,
        partitions=options.names(source_options.PARTITIONS),
        buckets=options.numbers(source_options.BUCKETS),
        with_source=with_source,
    )
    where = _where(options.text(source_options.WHERE), scan.source.info.schema)
    if where is not None:
        scan.selection = replace(scan.selection, filter=where)
    return scan


def _where(text: str | None, schema: Schema) -> Filter | None:
    # No SQL begins so: it is a filter that was compiled already.
    return filter_from_json(text, schema) if text and text.startswith("{") else compile_filter(text, schema)


def _changelog(options: SourceOptions, reader: TableReader, columns: Sequence[str] | None) -> Changelog:
    return reader.changelog(
        options.edge(source_options.START) if source_options.START in options.values else "earliest",
        options.edge(source_options.END),
        buckets=options.numbers(source_options.BUCKETS),
        columns=columns,
        net=options.flag(source_options.NET),
    )


def _same_ranges(source: TableSource, text: str) -> list[LogRange]:
    """Return ranges that were decided before, of the very table and partitions that they were decided of.

    Raises:
        TableNotFoundError: Another table has its path by now.
        PartitionNotFoundError: A partition was dropped; also when another one has its name now.
        OffsetOutOfRangeError: Some records are held nowhere any more.
    """
    ranges = decode(list[LogRange], text, "ranges of a changelog", shown=True)
    for each in ranges:
        check_table_id(source.info.path, each.bucket.table_id, source.info.table_id)
    wanted = {each.bucket: (each.start, each.stop) for each in ranges}
    return ranges_between(source, wanted, "records of the changelog")


def _tasks(options: SourceOptions) -> int:
    return options.number(source_options.TASKS) or os.cpu_count() or 1
