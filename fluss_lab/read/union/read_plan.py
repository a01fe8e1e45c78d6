"""The plan of a read at a read point, files of the lake and ranges of the log; and its rows, whatever moves meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from math import prod
from typing import Any, Final

import pyarrow as pa

from fluss_lab.client.cluster.metadata_cache import check_table_id
from fluss_lab.client.log.range_reader import FirstAnswers, read_range
from fluss_lab.errors import (
    BucketNotFoundError,
    CorruptDataError,
    InvalidPartitionError,
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    ServerUnavailableError,
    TableNotFoundError,
    UnavailableError,
)
from fluss_lab.lake import LakeSplit
from fluss_lab.model import LakeSnapshot, TableBucket, TableInfo
from fluss_lab.model.bucketing import bucket_ids
from fluss_lab.model.names import BucketKey, partition_values
from fluss_lab.read.filter.filter_compiler import Filter
from fluss_lab.read.filter.predicates import bounds, equal_values
from fluss_lab.read.moment.log_retention import check_gaps
from fluss_lab.read.moment.read_point import PointBucket, ReadPoint
from fluss_lab.read.moment.table_state import LOOKS_MAX, TableSource
from fluss_lab.read.union.lake_rows import lake_rows
from fluss_lab.read.union.pk_merge import LiveTail, Tail, is_long, keyed_rows
from fluss_lab.read.union.pk_plan import place_part
from fluss_lab.read.union.read_columns import LAKE, LOG, OFFSET, coalesce, of_records, stored_columns
from fluss_lab.read.union.read_parts import MOVED, BucketPart, Plan, Request, Selection, TimesGoneError
from fluss_lab.read.union.tails_ahead import TailsAhead

#: Combinations of values of a bucket key that are hashed to find its buckets: more are in about all of them.
KEYS_MAX: Final = 10_000
#: How often in a row a plan may fail without a row read since: each time the newest snapshot is asked again, and
#: two retentions within one look are no accident.
FAILURES_MAX: Final = 3


def check_selection(info: TableInfo, selection: Selection) -> None:
    """Check what can be checked without a read point.

    Raises:
        InvalidPartitionError: Partitions asked of a table that has none.
        BucketNotFoundError: A bucket that the table does not have.
    """
    if selection.partitions is not None and not info.descriptor.partitioned_by:
        raise InvalidPartitionError(
            f"table {info.path} has no partitions; found partitions={list(selection.partitions)}"
        )
    count = info.descriptor.buckets
    for bucket in selection.buckets or ():
        if isinstance(bucket, bool) or not isinstance(bucket, int) or not 0 <= bucket < count:
            raise BucketNotFoundError(f"table {info.path}: expected buckets in [0, {count}), found {bucket!r}")


def wanted_parts(source: TableSource, point: ReadPoint, selection: Selection) -> list[BucketPart]:
    """Return the buckets that can hold rows wanted, without deciding yet where their records come from.

    Raises:
        PartitionNotFoundError: A partition asked for did not exist at the read point.
        FlussError: How far a bucket that can hold such rows went was not known at the read point.
    """
    known = {partition for partition, _ in point.keys} if selection.partitions else set()
    for name in selection.partitions or ():
        if name not in known:
            raise PartitionNotFoundError(f"table {point.path}: no partition {name!r} at {point!r}")
    hashed = _hashed_buckets(source.info, selection.filter)
    parts = []
    for missing in point.unknown:
        place = (missing.partition, missing.bucket)
        if _is_selected(*place, selection, hashed) and _may_match(source.info, *place, selection.filter):
            raise missing.error
    for each in point.buckets:
        if not _is_selected(each.partition, each.bucket, selection, hashed):
            continue
        if (part := _wanted_part(source.info, point, each, selection.filter)) is not None:
            parts.append(part)
    return parts


def _is_selected(partition: str | None, bucket: int, selection: Selection, hashed: Collection[int] | None) -> bool:
    """Return whether a bucket can hold rows wanted, as far as its name tells."""
    if hashed is not None and bucket not in hashed:
        return False
    if selection.partitions is not None and partition not in selection.partitions:
        return False
    return selection.buckets is None or bucket in selection.buckets


def _may_match(info: TableInfo, partition: str | None, bucket: int, where: Filter | None) -> bool:
    return where is None or where.decide(known_values(info, partition, bucket)) is not False


def _hashed_buckets(info: TableInfo, where: Filter | None) -> set[int] | None:
    """Return the buckets of the bucket keys that a filter asks for; None when it asks for no certain ones."""
    key = info.descriptor.bucket_key
    if where is None or not key:
        return None
    asked = []
    for name in key:
        values = equal_values(where.predicate, name)
        if values is None:
            return None
        asked.append(_as_hashed([value.as_py() for value in values]))
    count = prod(len(values) for values in asked)
    if count > KEYS_MAX:
        return None
    if not count:
        return set()
    columns = [
        pa.array(values, info.schema.column(name).type.arrow())
        for name, values in zip(key, zip(*product(*asked), strict=True), strict=True)
    ]
    return set(bucket_ids(info.descriptor.bucketing, columns, info.descriptor.buckets).to_pylist())


def _as_hashed(values: list[Any]) -> list[Any]:
    """Return values with both zeros where one is: they are equal, but lie in two buckets."""
    return [*values, 0.0, -0.0] if any(isinstance(value, float) and value == 0 for value in values) else values


def _wanted_part(info: TableInfo, point: ReadPoint, each: PointBucket, where: Filter | None) -> BucketPart | None:
    start, stop = each.start, each.stop
    left: Filter | bool = True
    if where is not None:
        left = where.decide(known_values(info, each.partition, each.bucket))
        if isinstance(left, Filter) and OFFSET in left.columns:
            low, high = bounds(left.predicate, OFFSET)
            start = start if low is None else max(start, low)
            stop = stop if high is None else min(stop, high + 1)
    if left is False or start >= stop:
        return None
    bucket = TableBucket(point.table_id, each.partition_id, each.bucket)
    part = BucketPart(bucket, each.partition, start, start, stop, left if isinstance(left, Filter) else None)
    if info.is_log_table or stop == each.stop:
        return part
    # All records of a bucket say which are its rows, also by those whose own rows are not wanted.
    return replace(part, stop=each.stop, row_stop=stop)


def known_values(info: TableInfo, partition: str | None, bucket: int) -> dict[str, object]:
    """Return the columns that have one value in all rows of a bucket."""
    values: dict[str, object] = {"__bucket": bucket}
    if partition is not None:
        values |= dict(zip(info.descriptor.partitioned_by, partition_values(partition), strict=True))
    return values


def make_plan(
    source: TableSource, parts: list[BucketPart], where: Filter | None, snapshot_id: int | None, *, newest: bool = False
) -> Plan:
    """Decide for each bucket what comes from which files, and what from the log.

    Args:
        source: The table.
        parts: From `wanted_parts`, or the rest of an earlier plan's.
        where: The whole filter, to prune files by.
        snapshot_id: The lake snapshot to begin with; when it is gone, or with `newest`, the newest one is taken.
        newest: Whether to look at the newest snapshot whatever the hint says.

    Raises:
        OffsetOutOfRangeError: Records are known to be gone for good; the text names them.
    """
    # What the last look does not know was dropped, from the lake too: of that a snapshot tells only who asks for it by its id.
    is_gone = source.is_looked_at and any(source.known_state(part.bucket) is None for part in parts)
    hint = None if newest or snapshot_id is None else source.snapshot(snapshot_id, whole=is_gone)
    if hint is not None and _joins(source, parts, hint):
        try:
            return _plan_files(source, parts, where, hint)
        except LakeSnapshotNotFoundError:
            pass  # expired in the lake though the cluster still knows it
        except OffsetOutOfRangeError:
            if source.info.is_log_table:
                raise
            # The hint does not have the rows; a newer snapshot, or the cluster as it is now, may.
    if newest or hint is not None:
        source.look()
    for attempt in range(LOOKS_MAX):
        try:
            return _plan_files(source, parts, where, source.newest_snapshot())
        except OffsetOutOfRangeError:
            # What was tiered, and left the cluster, between the two questions of one look is no gap.
            if not source.info.is_log_table or attempt == LOOKS_MAX - 1:
                raise
            source.look()
    raise AssertionError


def _joins(source: TableSource, parts: list[BucketPart], snapshot: LakeSnapshot) -> bool:
    """Return whether the log still follows what a snapshot holds of each part, as far as is known without a call."""
    for part in parts:
        end = _lake_end(snapshot, part.bucket)
        if end < part.stop and not source.may_hold(part.bucket, max(end, part.start)):
            return False
    return True


def _plan_files(
    source: TableSource, parts: list[BucketPart], where: Filter | None, snapshot: LakeSnapshot | None
) -> Plan:
    divided = _divide(source, parts, snapshot)
    if source.info.is_log_table and not _is_whole(source, divided, snapshot):
        check_gaps(source, divided, snapshot)
    stops: dict[BucketKey, int] = {}
    for part in divided:
        if part.lake_stop > part.start:  # a bucket with a gap has a part on either side of it
            key = (part.partition, part.bucket.bucket)
            stops[key] = max(part.lake_stop, stops.get(key, 0))
    if not stops or snapshot is None:
        return Plan(tuple(divided), None)
    try:
        splits = _splits(source, snapshot.snapshot_id, stops, where)
    except OffsetOutOfRangeError:
        known = None if source.info.is_log_table else source.with_lake_starts(snapshot)
        if known is None or known.starts == snapshot.starts:
            raise
        # The lake holds less than the cluster believed.
        return _plan_files(source, parts, where, known)
    return Plan(
        tuple(
            replace(
                part,
                splits=tuple(
                    each for each in splits.get((part.partition, part.bucket.bucket), ()) if _reaches(part, each)
                ),
            )
            for part in divided
        ),
        snapshot.snapshot_id,
    )


def _is_whole(source: TableSource, parts: list[BucketPart], snapshot: LakeSnapshot | None) -> bool:
    """Return whether lake and cluster are known to hold all of a log table's parts, without a look at what may be missing."""
    lake_starts = {} if snapshot is None else snapshot.starts
    return all(
        lake_starts.get(part.bucket, 0) <= part.start and source.cluster_holds(part.bucket, part.log_start, part.stop)
        for part in parts
    )


def _reaches(part: BucketPart, split: LakeSplit) -> bool:
    return part.start <= split.max_offset and split.min_offset < part.lake_stop


def _divide(source: TableSource, parts: list[BucketPart], snapshot: LakeSnapshot | None) -> list[BucketPart]:
    """Return the parts with where lake and log meet, still without files."""
    if not source.info.is_log_table:
        return [place_part(source, part, snapshot) for part in parts]
    ends = [_lake_end(snapshot, part.bucket) for part in parts]
    return [
        replace(part, lake_stop=max(part.start, min(end, part.stop)), splits=())
        for part, end in zip(parts, ends, strict=True)
    ]


def _lake_end(snapshot: LakeSnapshot | None, bucket: TableBucket) -> int:
    offset = None if snapshot is None else snapshot.offsets.get(bucket)
    return 0 if offset is None else offset.end


def _splits(
    source: TableSource, snapshot_id: int, stops: Mapping[BucketKey, int], where: Filter | None
) -> dict[BucketKey, list[LakeSplit]]:
    pruning = None if where is None else where.prune()
    found: dict[BucketKey, list[LakeSplit]] = {}
    try:
        for split in source.lake_source.plan(snapshot_id, stops=stops, where=pruning):
            found.setdefault((split.partition, split.bucket), []).append(split)
    except TableNotFoundError:
        # With its table a lake table goes too; only where the cluster still has the table is it lost.
        _check_exists(source)
        raise
    for splits in found.values():
        splits.sort(key=lambda each: (each.min_offset, each.max_offset, each.path))
    return found


def _check_exists(source: TableSource) -> None:
    """See that the cluster still has the table, as far as it answers at once.

    Raises:
        TableNotFoundError: It was dropped, or dropped and made again.
    """
    connection, path = source.connection, source.info.path
    try:
        found = connection.table_info(path, connection.attempts(f"read {path}", 0))
    except UnavailableError:
        return
    check_table_id(path, source.info.table_id, found.table_id)


# -- execution ---------------------------------------------------------------------------------------------------------


def read_rows(
    source: TableSource, plan: Plan, request: Request, looked: Sequence[Tail | LiveTail] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a plan by partition, bucket and offset.

    Where a part has moved from the log to the lake since planning, or a lake snapshot was expired, what is left is
    planned again from the newest snapshot: the rows are the same.

    Args:
        source: The table.
        plan: The parts to read.
        request: What is wanted of them.
        looked: Tails of some of the parts that were looked at before, for the same request.

    Raises:
        OffsetOutOfRangeError: Records of the read point are held neither in the cluster nor in the lake any more.
        UnsupportedError: ``__timestamp`` is asked of rows that have changed since, and whose records are held by neither.
        CorruptDataError: Bytes failed their checks.
    """
    plan = with_first_answers(source, plan, request, looked)
    if source.info.is_log_table:
        yield from _read_parts(source, plan, request)
        return
    with TailsAhead(source, plan.parts, request, looked) as ahead:
        yield from _read_parts(source, plan, request, ahead)


def with_first_answers(
    source: TableSource, plan: Plan, request: Request, looked: Sequence[Tail | LiveTail] = ()
) -> Plan:
    """Return a plan whose parts have the first answers of their logs, many by one call: short ends of logs are all there.

    A reader of some rows only may never come to the next part: nothing is fetched for it.

    Args:
        source: The table.
        plan: The parts, which are going to be read in their order.
        request: What is wanted of them.
        looked: Tails of some of the parts that were looked at before.
    """
    if request.limit is not None or request.step_rows is not None:
        return plan
    known = {tail.part.key for tail in looked}
    is_keyed = not source.info.is_log_table
    starts: dict[TableBucket, int] = {}
    names: list[str] | None = None
    for part in plan.parts:
        if part.live or part.row_stop is not None or part.log_start >= part.stop:
            continue
        if part.key in known or part.first is not None or (is_keyed and is_long(part)):
            continue
        wanted = request.columns.inner(part.filter, in_lake=False, offset=is_keyed)
        names = wanted if names is None else names
        if wanted == names:  # what a filter needs may differ from partition to partition
            starts[part.bucket] = part.log_start
    if names is None or len(starts) < 2:
        return plan
    first = FirstAnswers(
        source.connection, source.info, starts, projection=stored_columns(source.info, names), previous_offsets=True
    )
    # Other parts stay the same objects: tails that were looked at are known by them.
    parts = (replace(part, first=first) if part.bucket in starts else part for part in plan.parts)
    return replace(plan, parts=tuple(parts))


def _read_parts(
    source: TableSource, plan: Plan, request: Request, ahead: TailsAhead | None = None
) -> Iterator[pa.RecordBatch]:
    pending = list(plan.parts)
    failures = 0
    while pending:
        part = pending[0]
        try:
            for batch, position in _read_part(source, part, request, ahead):
                failures = 0 if position > part.start else failures
                # Before the rows go out: the consumer may never come back.
                pending[0] = part = replace(part, start=position)
                yield request.columns.finish(batch, LAKE if position <= part.lake_stop else LOG)
            pending.pop(0)
        except (*MOVED, UnavailableError) as error:
            if isinstance(error, UnavailableError) and (isinstance(error, ServerUnavailableError) or not part.live):
                raise
            failures += 1
            if failures >= FAILURES_MAX:
                raise gone_error(source, part.bucket, part.partition, part.start, part.stop) from error
            plan = make_plan(source, pending, request.filter, None, newest=True)
            pending = list(plan.parts)
        except TimesGoneError:
            # The plan's snapshot ended before these rows; they left the cluster because a newer one has them.
            plan = make_plan(source, pending, request.filter, None, newest=True)
            pending = list(plan.parts)
            if pending[0].live:
                raise
        except CorruptDataError:
            # A file that is missing looks like damage, unless its snapshot has been replaced since.
            renewed = make_plan(source, pending, request.filter, None, newest=True)
            if renewed.snapshot_id in {None, plan.snapshot_id}:
                raise
            plan, pending = renewed, list(renewed.parts)


def gone_error(
    source: TableSource, bucket: TableBucket, partition: str | None, start: int, stop: int
) -> OffsetOutOfRangeError:
    """Return the error that says which records are held nowhere any more."""
    where = "" if partition is None else f" of partition {partition!r}"
    return OffsetOutOfRangeError(
        f"table {source.info.path}, bucket {bucket}{where}: the records with offsets [{start}, {stop}) are held neither in "
        "the cluster nor in the lake any more, or not all of them; take a new read point or start"
    )


def _read_part(
    source: TableSource, part: BucketPart, request: Request, ahead: TailsAhead | None
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield rows, and the offset up to which the bucket is read with them."""
    if ahead is not None:
        return keyed_rows(source, part, request, ahead.take(part))
    return chain(lake_rows(source, part, request), _log_rows(source, part, request))


def _log_rows(source: TableSource, part: BucketPart, request: Request) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the part's records in the log of a log table."""
    position = part.log_start
    stop = part.stop if part.row_stop is None else min(part.stop, part.row_stop)
    if position >= stop:
        return
    names = request.columns.inner(part.filter, in_lake=False, offset=False)
    schema = request.columns.fields(names)
    # Without the lake: what has moved there is planned again, with its files pruned by the filter.
    found = read_range(
        source.connection, source.info, part.bucket, position, stop,
        partition=part.partition, projection=stored_columns(source.info, names), lake=False, first=part.first_answer(),
    )  # fmt: skip
    for records in coalesce(found, request.limit):
        batch = of_records(records, part.bucket.bucket, schema)
        if part.filter is not None:
            batch = part.filter.apply(batch)
        if batch.num_rows or request.step_rows is not None:
            yield batch, records.next_offset
