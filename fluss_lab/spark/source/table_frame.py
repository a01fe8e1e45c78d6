"""Scans, changelogs and streams of a table as Spark DataFrames.

Where the lake is in an object store, tasks of the data source ``fluss`` read lake and log: a JVM from PyPI opens no ``s3://``.
In a file system the lake's part stays in the JVM's Parquet reader, over the exact files of the plan, so that Spark prunes
columns and pushes filters as it does for any Parquet; the log's part is read from the server, here into a file beside them
(`tail_files`), or where it is long by tasks in Python. Which rows belong to which part, and which rows of a primary-key table's files later ones ended, is fixed when the frame is made: it
reads the same however often it is used, as long as the files last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any

from fluss_lab.errors import LakeNotConfiguredError, LakeSnapshotNotFoundError, NotFoundError, OffsetOutOfRangeError
from fluss_lab.lake import LakeSplit
from fluss_lab.model import TableInfo
from fluss_lab.model.json_codec import encode
from fluss_lab.model.names import PARTITION_SEPARATOR, partition_values
from fluss_lab.read.changelog.changelog import BUCKET, CHANGE_TYPE, COMMIT_TIMESTAMP, LOG_OFFSET, PARTITION, Changelog
from fluss_lab.read.changelog.offset_ranges import LogRange, checked_buckets
from fluss_lab.read.changelog.table_stream import start_text
from fluss_lab.read.filter.filter_compiler import SYSTEM_TYPES, column_types
from fluss_lab.read.filter.filter_json import filter_to_json
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.moment.time_seek import Seek
from fluss_lab.read.table_reader import TableReader
from fluss_lab.read.union.read_columns import LAKE, LOG, OFFSET, SOURCE_COLUMN
from fluss_lab.read.union.read_parts import BucketPart, Plan
from fluss_lab.read.union.read_plan import make_plan
from fluss_lab.read.union.scan import Scan
from fluss_lab.spark.registration import ensure_registered
from fluss_lab.spark.session.spark_errors import spark_loss
from fluss_lab.spark.session.spark_session import as_active
from fluss_lab.spark.source import source_options
from fluss_lab.spark.source.keyed_frame import FramePart, keyed_frames, keyed_read
from fluss_lab.spark.source.parquet_frame import file_fields, finds_fields, parquet_frame
from fluss_lab.spark.source.spark_columns import quote
from fluss_lab.spark.source.spark_conditions import spark_condition
from fluss_lab.spark.source.spark_types import allow_time, has_time, stored_schema, wanted_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import types as T  # noqa: N812


def scan_to_spark(session: SparkSession, scan: Scan) -> DataFrame:
    """Return a scan's rows as a DataFrame, in the table's own types and the scan's column order.

    Where files and offsets are not enough to read a primary-key table (`keyed_frame`), or files may call fields within its columns
    by other names, lake and log are read by tasks, bucket by bucket; see `scan_by_tasks`. Of a log table, with a limit and no
    filter only the rows wanted are planned; with both, or where others deleted rows in the lake, rows are sorted to give those that
    `Scan.to_arrow` gives.

    Args:
        session: From `spark_session`: it maps columns of Parquet files by field id.
        scan: The scan; its read point is taken now if it was not yet.

    Raises:
        UnsupportedError: A column finer than microseconds.
        UnavailableError: The session's JVM ended, or it was stopped.
    """
    with spark_loss(session, "to_spark"):
        with suppress(LakeSnapshotNotFoundError):
            return _scan_frame(session, scan)
        return scan_by_tasks(session, scan)  # they plan again where files were replaced meanwhile


def _scan_frame(session: SparkSession, scan: Scan) -> DataFrame:
    source, keyed = scan.source, None
    if not _is_in_files(source):
        return scan_by_tasks(session, scan)
    from pyspark.sql import functions as F  # noqa: N812

    names = list(scan.columns.names)
    where = scan.selection.filter
    plan = scan.plan() if source.info.is_log_table else None
    limited = scan.limit is not None and (where is not None or plan is None or not _is_within(plan, scan.limit))
    helpers = [] if where is None else sorted(where.columns)
    if limited:
        helpers += ["__bucket", OFFSET, *source.info.descriptor.partitioned_by]
    inner = list(dict.fromkeys([*names, *helpers]))
    if plan is None and (keyed := keyed_read(session, scan, inner)) is None:
        return scan_by_tasks(session, scan)
    if plan is not None and not _is_found(source, plan, inner):
        return scan_by_tasks(session, scan)

    def parts(schema: T.StructType) -> list[FramePart]:
        if plan is not None:
            return _log_table_frames(session, source, plan, schema, with_source=scan.columns.with_source)
        assert keyed is not None
        return keyed_frames(session, source, keyed, schema, with_source=scan.columns.with_source)

    frame = _frame(session, source.info, inner, parts, with_source=scan.columns.with_source)
    if where is not None:
        frame = frame.where(spark_condition(where, column_types(source.info.schema)))
    if limited:
        assert scan.limit is not None
        frame = frame.orderBy(*_reading_order(scan.source.info)).limit(scan.limit)
    if scan.columns.with_source:
        names.append(SOURCE_COLUMN)
    return frame if frame.columns == names else frame.select(*[F.col(quote(name)) for name in names])


def _is_within(plan: Plan, limit: int) -> bool:
    """Return whether a log table's plan without a filter surely has no more rows than a limit."""
    counts = [part.record_count for part in plan.parts]
    return None not in counts and sum(filter(None, counts)) <= limit


def changelog_to_spark(session: SparkSession, log: Changelog) -> DataFrame:
    """Return a changelog's records as a DataFrame. Its rows are in no order; sort by ``_bucket, _log_offset``.

    Args:
        session: From `spark_session`.
        log: The changelog; its range is decided now if it was not yet.

    Raises:
        UnsupportedError: A column finer than microseconds.
        UnavailableError: The session's JVM ended, or it was stopped.
    """
    with spark_loss(session, "to_spark"):
        with suppress(LakeSnapshotNotFoundError):
            return _changelog_frame(session, log)
        return changelog_by_tasks(session, log)  # as a scan


def _changelog_frame(session: SparkSession, log: Changelog) -> DataFrame:
    if not log.source.info.is_log_table or not _is_in_files(log.source):
        return changelog_by_tasks(session, log)
    from pyspark.sql import functions as F  # noqa: N812

    source = log.source
    parts = [
        BucketPart(each.bucket, each.partition, each.start, each.start, each.stop, None) for each in log.offset_ranges
    ]
    plan = make_plan(source, parts, None, None)
    partitions = list(source.info.descriptor.partitioned_by)
    inner = list(dict.fromkeys([*log.columns, *SYSTEM_TYPES, *partitions]))
    if not _is_found(source, plan, inner):
        return changelog_by_tasks(session, log)
    frame = _frame(session, source.info, inner, partial(_log_table_frames, session, source, plan))
    columns = [F.lit("+A").alias(CHANGE_TYPE)]
    if partitions:
        columns.append(_partition_name(source.info).alias(PARTITION))
    columns += [
        F.col("__bucket").alias(BUCKET),
        F.col("__offset").alias(LOG_OFFSET),
        F.col("__timestamp").alias(COMMIT_TIMESTAMP),
    ]
    return frame.select(*columns, *[F.col(quote(name)) for name in log.columns])


def stream_options(
    reader: TableReader,
    start: Any,
    columns: Sequence[str] | None,
    time_zone: tzinfo | None,
    max_rows_per_trigger: int | None,
    fail_on_data_loss: bool,
) -> dict[str, str]:
    """Return the options under which Structured Streaming reads a table's log; see `fluss_lab.workbench.table.Table.stream`.

    Raises:
        FlussError: A start or column that cannot be, as `Table.stream` says.
    """
    info, log = reader.info, reader.changelog(columns=columns)
    wanted, connection = log.columns, log.source.connection
    if isinstance(start, Mapping) and not isinstance(start, Seek):
        checked_buckets(info, list(start))
    try:
        starts = reader.starts(start)
    except (OffsetOutOfRangeError, NotFoundError) as error:
        raise type(error)(
            f'{error}. A query that goes on from its checkpoint does not use the start: give it start="earliest"'
        ) from error
    # Of this very cluster: the session may have another one by now.
    options = {
        **source_options.connection_options(connection),
        source_options.TABLE: str(info.path),
        source_options.TABLE_ID: str(info.table_id),
        source_options.TABLE_CREATED: str(info.created_ms),
        source_options.CHANGELOG: "true",
        source_options.START: start_text(info, start, time_zone),
        "failOnDataLoss": str(fail_on_data_loss).lower(),
    }
    if isinstance(start, Mapping) and not isinstance(start, Seek) and info.descriptor.partitioned_by:
        ids = {each.partition_id for each in starts if each.partition_id is not None}
        options[source_options.START_PARTITIONS] = ",".join(map(str, sorted(ids)))
    if max_rows_per_trigger is not None:
        options["maxRowsPerTrigger"] = str(max_rows_per_trigger)
    return options if columns is None else options | {source_options.COLUMNS: json.dumps(wanted)}


def stream_frame(session: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the frame of Structured Streaming that `stream_options` describe."""
    from fluss_lab.spark.data_source import FORMAT

    with spark_loss(session, "stream"):
        tasks = str(session.sparkContext.defaultParallelism)
        return session.readStream.format(FORMAT).options(**options, tasks=tasks).load()


def _reading_order(info: TableInfo) -> list[Column]:
    from pyspark.sql import functions as F  # noqa: N812

    order = [F.col("__bucket"), F.col("__offset")]
    return [_partition_name(info), *order] if info.descriptor.partitioned_by else order


def _partition_name(info: TableInfo) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.concat_ws(PARTITION_SEPARATOR, *[F.col(quote(name)) for name in info.descriptor.partitioned_by])


# -- the two parts ----------------------------------------------------------------------------------------------------


def _no_rows(session: SparkSession, schema: T.StructType) -> DataFrame:
    with as_active(session):  # pyspark makes it that, and leaves it so
        return session.createDataFrame([], schema)


def _frame(
    session: SparkSession,
    info: TableInfo,
    names: Sequence[str],
    parts: Callable[[T.StructType], list[FramePart]],
    *,
    with_source: bool = False,
) -> DataFrame:
    """Return the rows of a read with some of the user's and system columns.

    Args:
        parts: Returns them as frames of a schema.
    """
    from pyspark.sql import functions as F  # noqa: N812

    wanted = _spark_schema(session, info, names)
    schema = stored_schema(wanted)
    frames = parts(schema) or [FramePart(LAKE, _no_rows(session, schema))]
    whole: DataFrame | None = None
    for part in frames:
        frame = _label(part) if with_source else part.frame
        whole = frame if whole is None else whole.union(frame)
    assert whole is not None
    casts = {
        field.name: F.col(quote(field.name)).cast(field.dataType)
        for field, stored in zip(wanted.fields, schema.fields, strict=True)
        if field.dataType != stored.dataType
    }
    return whole.withColumns(casts) if casts else whole


def _label(part: FramePart) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return part.frame.withColumn(SOURCE_COLUMN, F.lit(part.source))


def _spark_schema(session: SparkSession, info: TableInfo, names: Sequence[str]) -> T.StructType:
    user = {column.name: column.type for column in info.schema.columns}
    if any(name in user and has_time(user[name]) for name in names):
        allow_time(session)
    return wanted_schema(info.schema, names)


def _log_table_frames(
    session: SparkSession, source: TableSource, plan: Plan, schema: T.StructType, *, with_source: bool = False
) -> list[FramePart]:
    """Return the rows of a log table: in one frame, unless those of lake and log are to be kept apart."""
    from fluss_lab.spark.source.log_range_source import log_frame
    from fluss_lab.spark.source.tail_files import log_tail

    whole, clipped = _lake_files(plan)
    # Spark leaves empty files out without a word, and believes footers.
    if whole or clipped:
        source.lake_source.check_files([*whole, *clipped])
    ranges = _log_ranges(plan)
    apart = with_source or not whole
    frames = []
    fields = file_fields(source, schema, in_lake=not apart)
    with log_tail(session, source, ranges, schema, fields) as tail:
        if whole:
            lake = parquet_frame(session, source, whole, schema, None if apart else tail)
            frames.append(FramePart(LAKE, lake))
        if clipped:
            frames.append(FramePart(LAKE, _clipped_frame(session, source, plan, clipped, schema)))
        if tail is not None and apart:
            frames.append(FramePart(LOG, parquet_frame(session, source, (), schema, tail)))
        elif tail is None and ranges:
            frames.append(FramePart(LOG, log_frame(session, source.connection, source.info, ranges, schema)))
    return frames


def _log_ranges(plan: Plan) -> list[LogRange]:
    return [
        LogRange(part.bucket, part.partition, part.log_start, part.stop)
        for part in plan.parts
        if part.log_start < part.stop
    ]


def _lake_files(plan: Plan) -> tuple[list[LakeSplit], list[LakeSplit]]:
    """Return the files that are wanted whole, and those that reach beyond the range wanted."""
    whole: list[LakeSplit] = []
    clipped: list[LakeSplit] = []
    for part in plan.parts:
        for split in part.splits:
            if not _reaches_beyond(split, part):
                whole.append(split)
            elif split not in clipped:  # the two sides of a gap may share one
                clipped.append(split)
    return whole, clipped


def _reaches_beyond(split: LakeSplit, part: BucketPart) -> bool:
    return split.min_offset < part.start or split.max_offset >= part.lake_stop


def _clipped_frame(
    session: SparkSession, source: TableSource, plan: Plan, files: Sequence[LakeSplit], schema: T.StructType
) -> DataFrame:
    """Return the rows wanted of files that have others too."""
    conditions = [
        _range_condition(source.info, part)
        for part in plan.parts
        if any(_reaches_beyond(split, part) for split in part.splits)
    ]
    names = list(dict.fromkeys([*schema.names, *SYSTEM_TYPES, *source.info.descriptor.partitioned_by]))
    wider = stored_schema(_spark_schema(session, source.info, names))
    frame = parquet_frame(session, source, files, wider).where(" or ".join(conditions))
    return frame.select(*[quote(name) for name in schema.names])


def _range_condition(info: TableInfo, part: BucketPart) -> str:
    terms = [f"`__bucket` = {part.bucket.bucket}", f"`{OFFSET}` >= {part.start}", f"`{OFFSET}` < {part.lake_stop}"]
    if part.partition is not None:
        pairs = zip(info.descriptor.partitioned_by, partition_values(part.partition), strict=True)
        # Hexadecimal: whatever characters a value has, and however the session reads text literals.
        terms += [f"{quote(name)} = decode(X'{value.encode().hex()}', 'UTF-8')" for name, value in pairs]
    return "(" + " and ".join(terms) + ")"


# -- the data source -------------------------------------------------------------------------------------------------


def _is_in_files(source: TableSource) -> bool:
    """Return whether the JVM can open the table's files: in a file system, or none."""
    try:
        return source.storage.local_folder is not None
    except LakeNotConfiguredError:
        return source.info.is_log_table


def _is_found(source: TableSource, plan: Plan, names: Sequence[str]) -> bool:
    """Return whether Spark's own reader finds columns of a log table, in their types, in the files of a plan."""
    return not any(part.splits for part in plan.parts) or finds_fields(source, names)


def scan_by_tasks(session: SparkSession, scan: Scan) -> DataFrame:
    """Return a scan's rows, read and merged by tasks in Python at the scan's read point, wherever the lake is.

    Columns, filter, partitions and buckets of the scan prune files and row groups; what Spark filters afterwards, or
    leaves out, is read all the same. See `fluss_lab.spark.source.batch_reader`.
    """
    selection = scan.selection
    options = {source_options.READ_POINT: scan.read_point.to_json()}
    if selection.filter is not None:
        options[source_options.WHERE] = filter_to_json(selection.filter)
    if selection.partitions is not None:
        options[source_options.PARTITIONS] = json.dumps(list(selection.partitions))
    if selection.buckets is not None:
        options[source_options.BUCKETS] = json.dumps(list(selection.buckets))
    if scan.limit is not None:
        options[source_options.LIMIT] = str(scan.limit)
    return _source_frame(session, scan.source, scan.schema.names, options)


def changelog_by_tasks(session: SparkSession, log: Changelog) -> DataFrame:
    """Return a changelog's records, read by tasks in Python in its ranges of this very table, wherever the lake is."""
    options = {
        source_options.CHANGELOG: "true",
        source_options.RANGES: encode(log.offset_ranges).decode(),
        source_options.NET: str(log.net).lower(),
    }
    return _source_frame(session, log.source, log.schema.names, options)


def _source_frame(
    session: SparkSession, source: TableSource, columns: Sequence[str], asked: Mapping[str, str]
) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    from fluss_lab.spark.data_source import FORMAT

    ensure_registered(session)
    wanted = wanted_schema(source.info.schema, columns)
    stored = stored_schema(wanted)
    types = {column.name: column.type for column in source.info.schema.columns}
    if any(name in types and has_time(types[name]) for name in columns):
        allow_time(session)
    options = {
        **source_options.place_options(source.connection.address),
        **source.connection.options,
        source_options.TABLE: str(source.info.path),
        source_options.TASKS: str(max(1, int(session.sparkContext.defaultParallelism))),
        **asked,
    }
    frame = session.read.format(FORMAT).schema(stored).options(**options).load()
    casts = {
        field.name: F.col(quote(field.name)).cast(field.dataType)
        for field, given in zip(wanted.fields, stored.fields, strict=True)
        if field.dataType != given.dataType
    }
    return frame.withColumns(casts) if casts else frame
