"""The execution of a plan: rows by partition, bucket and offset, whatever moves from the log to the lake meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Final

import pyarrow as pa

from fluss_lab.client.log.range_reader import read_range
from fluss_lab.errors import (
    CorruptDataError,
    OffsetOutOfRangeError,
    ServerUnavailableError,
    UnavailableError,
)
from fluss_lab.model import TableBucket
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.lake_rows import lake_rows
from fluss_lab.read.union.pk_merge import keyed_rows
from fluss_lab.read.union.read_columns import LAKE, LOG, coalesce, of_records, stored_columns
from fluss_lab.read.union.read_parts import MOVED, BucketPart, Plan, Request
from fluss_lab.read.union.read_plan import make_plan

#: How often in a row a plan may fail without a row read since: each time the newest snapshot is asked again, and
#: two retentions within one look are no accident.
FAILURES_MAX: Final = 3


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
        except (*MOVED, UnavailableError) as error:
            if isinstance(error, UnavailableError) and (isinstance(error, ServerUnavailableError) or not part.live):
                raise
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
    if not source.info.is_log_table:
        return keyed_rows(source, part, request)
    return chain(lake_rows(source, part, request), _log_rows(source, part, request))


def _log_rows(source: TableSource, part: BucketPart, request: Request) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the part's records in the log of a log table."""
    position = max(part.start, part.lake_stop)
    stop = part.stop if part.row_stop is None else min(part.stop, part.row_stop)
    if position >= stop:
        return
    names = request.columns.inner(part.filter, in_lake=False)
    schema = request.columns.fields(names)
    # Without the lake: what has moved there is planned again, with its files pruned by the filter.
    found = read_range(
        source.connection, source.info, part.bucket, position, stop,
        partition=part.partition, projection=stored_columns(source.info, names), lake=False,
    )  # fmt: skip
    for records in coalesce(found, request.limit):
        batch = of_records(records, part.bucket.bucket, schema)
        if part.filter is not None:
            batch = part.filter.apply(batch)
        if batch.num_rows:
            yield batch, records.next_offset
