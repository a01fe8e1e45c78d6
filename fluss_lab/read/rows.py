"""Carrying out a plan: rows by partition, bucket and offset, whatever moves from the log to the lake meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.client.ranges import read_range
from fluss_lab.errors import (
    BucketNotFoundError,
    CorruptDataError,
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
)
from fluss_lab.lake import LakeSplit
from fluss_lab.model import TableBucket
from fluss_lab.read.columns import BATCH_ROWS, LAKE, LOG, OFFSET, Columns, conform, of_records
from fluss_lab.read.filters import SYSTEM_TYPES, Filter
from fluss_lab.read.plan import BucketPart, Plan, make_plan
from fluss_lab.read.state import TableSource

#: Files are read together up to this many stored bytes, so that many small ones cost what one costs, and a run of them
#: (with its rows decoded, some five times that) fits in memory. A single larger file is streamed.
RUN_BYTES: Final = 32 * 1024 * 1024
#: How often in a row a plan may fail without a row read since: each time the newest snapshot is asked again, and
#: two retentions within one look are no accident.
FAILURES_MAX: Final = 3

#: What a reader meets when records have moved on since it planned.
MOVED: Final = (
    OffsetOutOfRangeError,
    LakeSnapshotNotFoundError,
    PartitionNotFoundError,
    BucketNotFoundError,
    FileNotFoundError,
)


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted of the rows.

    Attributes:
        columns: Which columns.
        filter: The whole filter, to prune files by.
    """

    columns: Columns
    filter: Filter | None


def read_rows(source: TableSource, plan: Plan, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a plan by partition, bucket and offset.

    Where a part has moved from the log to the lake since planning, or a lake snapshot was expired, what is left is
    planned again from the newest snapshot: the rows are the same.

    Raises:
        OffsetOutOfRangeError: Records of the read point are held neither in the cluster nor in the lake any more.
        CorruptDataError: Bytes failed their checks.
    """
    pending = list(plan.parts)
    failures = 0
    while pending:
        part = pending[0]
        try:
            for batch, position in _read_part(source, part, request):
                failures = 0
                # Before the rows go out: the consumer may never come back.
                pending[0] = part = replace(part, start=position)
                yield request.columns.finish(batch, LAKE if position <= part.lake_stop else LOG)
            pending.pop(0)
        except MOVED as error:
            failures += 1
            if failures >= FAILURES_MAX:
                raise gone(source, part.bucket, part.partition, part.start, part.stop) from error
            plan = make_plan(source, pending, request.filter, None, newest=True)
            pending = list(plan.parts)
        except CorruptDataError:
            # A file that is missing looks like damage, unless its snapshot has been replaced since.
            renewed = make_plan(source, pending, request.filter, None, newest=True)
            if renewed.snapshot_id in {None, plan.snapshot_id}:
                raise
            plan, pending = renewed, list(renewed.parts)


def gone(
    source: TableSource, bucket: TableBucket, partition: str | None, start: int, stop: int
) -> OffsetOutOfRangeError:
    """Return the error that says which records are held nowhere any more."""
    where = "" if partition is None else f" of partition {partition!r}"
    return OffsetOutOfRangeError(
        f"table {source.info.path}, bucket {bucket}{where}: the records with offsets [{start}, {stop}) are held neither in "
        "the cluster nor in the lake any more, or not all of them; take a new read point or start"
    )


def _read_part(source: TableSource, part: BucketPart, request: Request) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield rows, and the offset up to which the bucket is read with them."""
    for run in _runs(part.splits):
        yield from _read_run(source, part, run, request)
    position = max(part.start, part.lake_stop)
    if position >= part.stop:
        return
    names = request.columns.inner(part.filter, in_lake=False)
    schema = request.columns.fields(names)
    user = [name for name in names if name not in SYSTEM_TYPES] or source.info.schema.names[:1]
    # Without the lake: what has moved there is planned again, with its files pruned by the filter.
    found = read_range(
        source.connection, source.info, part.bucket, position, part.stop,
        partition=part.partition, projection=user, lake=False,
    )  # fmt: skip
    for records in found:
        batch = of_records(records, part.bucket.bucket, schema)
        if part.filter is not None:
            batch = part.filter.apply(batch)
        if batch.num_rows:
            yield batch, records.next_offset


def _runs(splits: Sequence[LakeSplit]) -> Iterator[list[LakeSplit]]:
    """Yield files in groups: overlapping ones together, and small ones together."""
    run: list[LakeSplit] = []
    size = high = 0
    for split in splits:
        if run and split.min_offset > high and size + split.size_bytes > RUN_BYTES:
            yield run
            run, size, high = [], 0, 0
        run.append(split)
        size += split.size_bytes
        high = max(high, split.max_offset)
    if run:
        yield run


def _read_run(
    source: TableSource, part: BucketPart, run: list[LakeSplit], request: Request
) -> Iterator[tuple[pa.RecordBatch, int]]:
    names = request.columns.inner(part.filter, in_lake=True)
    where = _lake_where(part, run)
    found = source.lake_source.read(run, names, where=where)
    batches = _filtered(part, request.columns.fields(names), found)
    if len(run) == 1:
        for batch in batches:
            yield batch, int(batch.column(OFFSET)[-1].as_py()) + 1
        return
    table = pa.Table.from_batches(list(batches), request.columns.fields(names))
    if not table.num_rows:
        return
    # Each file ascends; those of somebody else's compaction may overlap.
    if not ascends(table.column(OFFSET)):
        table = table.take(pc.sort_indices(table.column(OFFSET)))
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        yield batch, int(batch.column(OFFSET)[-1].as_py()) + 1


def _filtered(
    part: BucketPart, schema: pa.Schema, found: Iterator[tuple[LakeSplit, pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    for _, stored in found:
        batch = conform(stored, schema)
        if part.filter is not None and part.filter.left_over:
            batch = part.filter.apply(batch)
        if batch.num_rows:
            yield batch


def _lake_where(part: BucketPart, run: Sequence[LakeSplit]) -> pc.Expression | None:
    """Return the filter of the rows wanted: by offset only where a file reaches beyond."""
    terms: list[pc.Expression] = []
    if min(split.min_offset for split in run) < part.start:
        terms.append(pc.field(OFFSET) >= pc.scalar(pa.scalar(part.start, pa.int64())))
    if max(split.max_offset for split in run) >= part.lake_stop:
        terms.append(pc.field(OFFSET) < pc.scalar(pa.scalar(part.lake_stop, pa.int64())))
    if part.filter is not None and (pushed := part.filter.pushed) is not None:
        terms.append(pushed)
    where = None
    for term in terms:
        where = term if where is None else where & term
    return where


def ascends(offsets: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether offsets ascend strictly."""
    values = offsets.to_numpy()
    return bool(np.all(values[1:] > values[:-1]))
