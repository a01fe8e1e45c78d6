"""Scans and changelogs as frames of the data source ``fluss``: read by tasks in Arrow, planned at the first query."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fluss_lab.read.changelog.changelog import Changelog
from fluss_lab.read.filter.filter_json import filter_to_json
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.scan import Scan
from fluss_lab.spark.registration import ensure_registered
from fluss_lab.spark.source import source_options
from fluss_lab.spark.source.source_options import FORMAT
from fluss_lab.spark.source.spark_types import allow_time, has_time, stored_schema, wanted_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def scan_frame(session: SparkSession, scan: Scan) -> DataFrame:
    """Return a scan's rows as a frame, at the scan's read point.

    Raises:
        UnsupportedError: A column finer than microseconds.
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
    return _frame(session, scan.source, scan.schema.names, options)


def changelog_frame(session: SparkSession, log: Changelog) -> DataFrame:
    """Return a changelog's records as a frame, in the ranges of the changelog.

    Raises:
        UnsupportedError: A column finer than microseconds.
    """
    starts, ends = {}, {}
    for each in log.offset_ranges:
        partition, bucket = each.bucket.key
        key = str(bucket) if partition is None else f"{partition}/{bucket}"
        starts[key], ends[key] = each.start, each.stop
    options = {
        source_options.CHANGELOG: "true",
        source_options.START: json.dumps(starts),
        source_options.END: json.dumps(ends),
        source_options.NET: str(log.net).lower(),
    }
    return _frame(session, log.source, log.schema.names, options)


def _frame(session: SparkSession, source: TableSource, columns: Sequence[str], asked: Mapping[str, str]) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

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
        field.name: F.col(f"`{field.name}`").cast(field.dataType)
        for field, given in zip(wanted.fields, stored.fields, strict=True)
        if field.dataType != given.dataType
    }
    return frame.withColumns(casts) if casts else frame
