"""The log of a table itself, from lake and cluster together: each record with its offset and time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from fluss_lab.client.log.range_reader import FirstAnswer, FirstAnswers, checked_lake_records, read_range
from fluss_lab.display import Grid, card, short
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.errors import (
    FlussError,
    InvalidSchemaError,
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
)
from fluss_lab.lake import FetchContext
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.changes import CHANGE_SYMBOLS
from fluss_lab.model.names import BucketKey
from fluss_lab.model.times import shown_moment
from fluss_lab.read.changelog.offset_ranges import LogRange, resolve_ranges
from fluss_lab.read.moment.log_retention import log_starts
from fluss_lab.read.moment.table_state import TableSource, TableState
from fluss_lab.read.row_export import TableRead
from fluss_lab.read.union.read_columns import BATCH_ROWS, conform, rebatch, stored_columns, timestamps
from fluss_lab.read.union.read_explanation import ExplainedBucket, Explanation
from fluss_lab.read.union.read_parts import MOVED
from fluss_lab.read.union.read_plan import FAILURES_MAX, gone_error
from fluss_lab.records import LogRecords

CHANGE_TYPE: Final = "_change_type"
PARTITION: Final = "_partition"
BUCKET: Final = "_bucket"
LOG_OFFSET: Final = "_log_offset"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
#: Offsets of more buckets are counted where a changelog is shown.
_OFFSETS_NAMED_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class ChangelogRange:
    """A range of one bucket's log: ``[start, lake_stop)`` from the lake, then ``[lake_stop, stop)`` from the cluster."""

    bucket: TableBucket
    partition: str | None
    start: int
    lake_stop: int
    stop: int
    snapshot_id: int | None

    @property
    def key(self) -> BucketKey:
        """Return partition name and bucket."""
        return (self.partition, self.bucket.bucket)


@check_arguments
class Changelog(TableRead):
    """A range of a table's log. Nothing is read until its records are asked for.

    Where it starts and ends is decided once, at first use. Records come by partition name, bucket and offset; every
    offset of the range exactly once. Those that the cluster holds come from there, older ones from the lake.

    Columns: ``_change_type`` (``+A``; of primary-key tables ``+I -U +U -D``), ``_partition`` (partitioned tables),
    ``_bucket``, ``_log_offset``, ``_commit_timestamp``, then the user's.

    Made by `Table.changelog`.
    """

    #: Whether it has the net changes of the range instead of every change: see `NetChangelog`.
    net: ClassVar[bool] = False
    #: Whether every record of the range is one of its own, so that they can be counted beforehand.
    is_whole: ClassVar[bool] = True

    def __init__(
        self,
        source: TableSource,
        start: Any,
        end: Any,
        buckets: Collection[int | BucketKey] | None,
        columns: Sequence[str] | None,
        spark: Callable[[Changelog], Any] | None = None,
    ) -> None:
        self.source = source
        self.start = start
        self.end = end
        self.buckets = buckets
        self.columns = _check_columns(source.info, columns)
        self._spark = spark

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the records."""
        return changelog_schema(self.source.info, self.columns)

    @cached_property
    def offset_ranges(self) -> list[LogRange]:
        """Return the range of each bucket, decided at first use."""
        return resolve_ranges(self.source, self.start, self.end, self.buckets)

    # -- records ------------------------------------------------------------------------------------------------------

    def to_batches(self, rows_max: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the records as they are read, in batches of up to `rows_max`, and of about 64 MB; memory stays bounded.

        Raises:
            OffsetOutOfRangeError: Records of the range are held nowhere any more.
        """
        return rebatch(self._batches(), self.schema, rows_max)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batches in self._reads(self.plan()):
            yield from batches

    def _reads(self, plan: Sequence[ChangelogRange]) -> Iterator[Iterator[pa.RecordBatch]]:
        """Yield the records of each range; where several are short, they come with one call."""
        first = self._first_answers(plan)
        for each in plan:
            answer = None if first is None else first.take(each.bucket)
            yield self.read(each) if answer is None else self._records(each, answer)

    def _first_answers(self, plan: Sequence[ChangelogRange]) -> FirstAnswers | None:
        """Return what the servers of several buckets hold at the begin of their parts: short ones are whole then."""
        starts = {each.bucket: each.lake_stop for each in plan if each.lake_stop < each.stop}
        if not self.is_whole or len(starts) < 2:
            return None
        info = self.source.info
        return FirstAnswers(self.source.connection, info, starts, projection=stored_columns(info, self.columns))

    def _fix(self) -> None:
        self.offset_ranges  # noqa: B018

    def _watched_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the records, with their number shown where a person watches."""
        with self.source.watch("reading the changelog of {}") as waiting:
            if waiting is None:
                yield from self._batches()
                return
            plan = self.plan()
            waiting.plan(sum(each.stop - each.start for each in plan) if self.is_whole else 0)
            for batches in self._reads(plan):
                for batch in batches:
                    waiting.add(batch.num_rows, batch.nbytes)
                    yield batch

    def read(self, part: ChangelogRange) -> Iterator[pa.RecordBatch]:
        """Yield the records of one of the ranges of `plan`. For those who carry it out elsewhere."""
        return self._records(part, None)

    def _records(self, part: ChangelogRange, first: FirstAnswer | None) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        for records in read_changes(self.source, part, self.columns, first=first):
            yield changelog_batch(records, part, schema)

    # -- planning -----------------------------------------------------------------------------------------------------

    def plan(self) -> list[ChangelogRange]:
        """Return what is read from where now. For those who carry it out elsewhere."""
        is_new = "offset_ranges" not in vars(self)
        return divide(self.source, self.offset_ranges, looks=not is_new)

    def explain(self) -> Explanation:
        """Return what will be read from where, without reading it."""
        for attempt in range(FAILURES_MAX):
            plan = self.plan()
            snapshots = [
                each.snapshot_id for each in plan if each.snapshot_id is not None and each.lake_stop > each.start
            ]
            try:
                buckets = [self._explain_bucket(each) for each in plan]
            except LakeSnapshotNotFoundError:
                if attempt == FAILURES_MAX - 1:
                    raise
                continue  # expired since the plan was made
            return Explanation(repr(self).strip("<>"), snapshots[0] if snapshots else None, buckets)
        raise AssertionError

    def _explain_bucket(self, each: ChangelogRange) -> ExplainedBucket:
        lake = (each.start, each.lake_stop) if each.lake_stop > each.start else None
        files = None
        if lake is not None and each.snapshot_id is not None:
            context = FetchContext(*lake, each.partition, each.bucket.bucket, each.snapshot_id, self.columns)
            files = self.source.log_source.log_files(context)
        return ExplainedBucket(
            each.partition,
            each.bucket.bucket,
            lake,
            0 if files is None else files.data_files,
            0 if files is None else files.rows,
            0 if files is None else files.size_bytes,
            (max(each.start, each.lake_stop), each.stop) if each.stop > each.lake_stop else None,
            0 if files is None else files.delete_files,
        )

    # -- for people ---------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        start, end = _edge_text(self.start), _edge_text(self.end)
        return f"<Changelog {self.source.info.path}: {len(self.columns)} columns, from {start} to {end}>"

    def _repr_html_(self) -> str:
        schema = self.schema
        rows = [[field.name, str(field.type)] for field in list(schema)[:CARD_ROWS_MAX]]
        edges = [("from", _edge_text(self.start)), ("to", _edge_text(self.end))]
        chosen = None if self.buckets is None else ", ".join(map(str, self.buckets))
        return card(
            "Net changelog" if self.net else "Changelog",
            self.source.info.path,
            [("columns", len(schema)), *edges, ("buckets", chosen)],
            grid=Grid(["column", "type"], rows),
            total=len(schema),
            noun="column",
            last="Nothing is read yet.",
            calls=[".to_pandas()", ".to_arrow()", ".to_batches()", ".explain()"],
        )


def _edge_text(edge: Any) -> str:
    """Return where a changelog starts or ends, in words: the offsets of many buckets are counted."""
    if edge is None:
        return "now"
    if isinstance(edge, dict) and len(edge) > _OFFSETS_NAMED_MAX:
        return f"offsets of {len(edge):,} buckets"
    return short(shown_moment(edge).strip("<>"), 120)


def _check_columns(info: TableInfo, columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        return tuple(info.schema.arrow_schema.names)
    if isinstance(columns, str):
        raise InvalidSchemaError(f"columns: expected a list of names, found the text {columns!r}")
    names = tuple(info.schema.column(name).name for name in columns)
    if twice := [name for name in names if names.count(name) > 1]:
        raise InvalidSchemaError(f"column {twice[0]!r} is asked for twice")
    return names


def changelog_schema(info: TableInfo, columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of a table's changelog with some of its columns."""
    fields = [pa.field(CHANGE_TYPE, pa.string(), nullable=False)]
    if info.descriptor.partitioned_by:
        fields.append(pa.field(PARTITION, pa.string(), nullable=False))
    fields += [
        pa.field(BUCKET, pa.int32(), nullable=False),
        pa.field(LOG_OFFSET, pa.int64(), nullable=False),
        pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", "UTC"), nullable=False),
    ]
    return pa.schema(fields + [info.schema.arrow_schema.field(name) for name in columns])


def changelog_batch(
    records: LogRecords, part: ChangelogRange, schema: pa.Schema, change: str | None = None
) -> pa.RecordBatch:
    """Return records with their changelog columns; `change` is the change type of all, None: each has its own."""
    count = len(records)
    if change is None and records.change_types is None:
        change = CHANGE_SYMBOLS[0]
    system = {
        CHANGE_TYPE: pa.repeat(change, count)
        if change is not None
        else pa.array(CHANGE_SYMBOLS, pa.string()).take(records.change_types),
        PARTITION: pa.repeat(part.partition or "", count),
        BUCKET: pa.array(np.full(count, part.bucket.bucket, dtype=np.int32)),
        LOG_OFFSET: records.offsets,
        COMMIT_TIMESTAMP: timestamps(records),
    }
    user = {name: records.rows.column(name) for name in records.rows.schema.names}
    arrays = {**user, **system}
    names = [field.name for field in schema]
    return conform(pa.RecordBatch.from_arrays([arrays[name] for name in names], names), schema)


def divide(source: TableSource, ranges: Sequence[LogRange], *, looks: bool = True) -> list[ChangelogRange]:
    """Decide what comes from the lake: that which the cluster does not hold any more.

    Args:
        source: The table.
        ranges: What is wanted.
        looks: Whether to look at the table now; else the ranges have just been resolved, and it is as it was then.
    """
    if not ranges:
        return []
    state = source.look() if looks else source.last_look()
    return [locate_range(each, state) for each in ranges]


def locate_range(wanted: LogRange, state: TableState) -> ChangelogRange:
    """Return a range with what of it comes from the lake, in a state of the table; reading divides again when that is over."""
    bucket = state.by_bucket.get(wanted.bucket)
    lake_stop = wanted.start if bucket is None else bucket.lake_stop(wanted.start, wanted.stop)
    return ChangelogRange(wanted.bucket, wanted.partition, wanted.start, lake_stop, wanted.stop, state.snapshot_id)


def read_changes(
    source: TableSource,
    part: ChangelogRange,
    columns: Sequence[str],
    *,
    previous_offsets: bool = False,
    first: FirstAnswer | None = None,
) -> Iterator[LogRecords]:
    """Yield the records of a range in order, every offset once, wherever they move meanwhile.

    Args:
        source: The table.
        part: From `divide`; where it says that records are is where they are looked for first.
        columns: User's columns, in the order wanted; none at all gives rows of one column, to be counted.
        previous_offsets: Of a primary-key table: whether records have their previous offsets.
        first: What the cluster holds at the begin of its part, fetched in the same way, if anything was.

    Raises:
        OffsetOutOfRangeError: Some are held nowhere any more; the text names the earliest that are.
        CorruptDataError: A record is missing, or there twice.
    """
    projection = tuple(stored_columns(source.info, columns))

    def read_once(part: ChangelogRange, position: int) -> Iterator[LogRecords]:
        if position < part.lake_stop and part.snapshot_id is not None:
            context = FetchContext(
                position, part.lake_stop, part.partition, part.bucket.bucket, part.snapshot_id, projection
            )
            what = f"table {source.info.path}, bucket {part.bucket}"
            yield from checked_lake_records(
                source.log_source, context, what, keyed=not source.info.is_log_table, previous_offsets=previous_offsets
            )
        yield from read_log_part(source, part, position, projection, previous_offsets=previous_offsets, first=first)

    return follow_range(source, part, read_once)


def follow_range(
    source: TableSource,
    part: ChangelogRange,
    read_once: Callable[[ChangelogRange, int], Iterator[LogRecords]],
    *,
    is_whole: bool = True,
) -> Iterator[LogRecords]:
    """Yield the records of a range in order, wherever they move meanwhile.

    Args:
        source: The table.
        part: The range.
        read_once: Yields its records from an offset on, from where they were when the range was divided.
        is_whole: Whether every offset has a record: fewer are a loss then.

    Raises:
        OffsetOutOfRangeError: Some are held nowhere any more; the text names the earliest that are.
    """
    failures, position = 0, part.start
    while position < part.stop:
        try:
            for records in read_once(part, position):
                failures, position = 0, records.next_offset
                yield records
            if not is_whole:
                return
            if position < part.stop:
                raise _lost_error(source, part, position)
        except MOVED as error:
            failures += 1
            if failures >= FAILURES_MAX:
                raise _lost_error(source, part, position) from error
            part = _divide_again(source, part)


def read_log_part(
    source: TableSource,
    part: ChangelogRange,
    position: int,
    names: tuple[str, ...],
    *,
    previous_offsets: bool,
    first: FirstAnswer | None = None,
) -> Iterator[LogRecords]:
    """Yield what of a range the cluster holds, from an offset on; see `read_changes`."""
    start = max(position, part.lake_stop)
    if start < part.stop:
        yield from read_range(
            source.connection, source.info, part.bucket, start, part.stop,
            partition=part.partition, projection=names, lake=False, previous_offsets=previous_offsets, first=first,
        )  # fmt: skip


def _lost_error(source: TableSource, part: ChangelogRange, position: int) -> OffsetOutOfRangeError:
    """Return the error that says which records of a range are held nowhere any more, and the earliest that are."""
    error = gone_error(source, part.bucket, part.partition, position, part.stop)
    try:
        state = source.look()
        earliest = log_starts(source, state)
    except FlussError:
        return error  # the loss is what the caller must know
    low = next((earliest.get(each.key, 0) for each in state.buckets if each.bucket == part.bucket), 0)
    return OffsetOutOfRangeError(f"{error}. The earliest available is offset {low}") if position < low else error


def _divide_again(source: TableSource, part: ChangelogRange) -> ChangelogRange:
    """Return a range with what of it comes from the lake now."""
    state = source.look()
    if (bucket := state.by_bucket.get(part.bucket)) is None:
        return part
    return replace(part, lake_stop=bucket.lake_stop(part.start, part.stop), snapshot_id=state.snapshot_id)
