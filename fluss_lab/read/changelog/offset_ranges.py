"""The offset ranges of a changelog, from offsets, a seek, a read point, a time, a lake snapshot or a word."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from fluss_lab.errors import (
    BucketNotFoundError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
)
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.model.names import BucketKey
from fluss_lab.model.times import parse_moment, shown_moment, whole_number
from fluss_lab.read.changelog.dropped_records import check_dropped
from fluss_lab.read.moment.as_of import last_time, snapshot_moment
from fluss_lab.read.moment.log_retention import (
    Gap,
    bucket_text,
    gap_error,
    held_ranges,
    log_starts,
    too_early,
)
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.moment.table_state import BucketState, TableSource, TableState, known_start, surely_holds
from fluss_lab.read.moment.time_seek import Seek

EARLIEST = "earliest"
LATEST = "latest"
OTHER_EDGES = "'earliest', 'latest', offsets by bucket, a Seek, a ReadPoint or a lake snapshot's id"


@dataclass(frozen=True, slots=True)
class LogRange:
    """Offsets ``[start, stop)`` of one bucket's log, by identity: whatever becomes of the bucket meanwhile."""

    bucket: TableBucket
    partition: str | None
    start: int
    stop: int

    @property
    def key(self) -> BucketKey:
        """Return partition name and bucket."""
        return (self.partition, self.bucket.bucket)

    @property
    def records(self) -> int:
        """Return how many records there are."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class _Lost:
    """Offsets asked for that begin before the log that is held without a gap; without a stop they are lost for sure."""

    bucket: BucketState
    start: int
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class _Edge:
    """What a start or an end means.

    Attributes:
        offsets: By bucket.
        reaches_back: Buckets of which records before the earliest that is held may belong to what was asked for.
        checked: Whether offsets may lie outside of what is held, which is an error then.
        stated: Whether the offsets are the caller's own, and not the cluster's answer.
    """

    offsets: Mapping[BucketKey, int]
    reaches_back: frozenset[BucketKey] = frozenset()
    checked: bool = True
    stated: bool = False


def resolve_ranges(
    source: TableSource, start: Any, end: Any, buckets: Collection[int | BucketKey] | None = None
) -> list[LogRange]:
    """Return the range of each bucket, by partition name and bucket; buckets without records in it are left out.

    Args:
        source: The table.
        start: ``"earliest"``, ``"latest"``, offsets by bucket or (partition, bucket), a `Seek`, a `ReadPoint`, a time
            (the first offset at or after it), or a lake snapshot's id (the end of what it holds).
        end: The same, exclusive; None: the latest.
        buckets: Numbers, or (partition, bucket); None: all.

    ``"earliest"`` is the first offset from which on every record is held: of a primary-key table the replay start, where
    the cluster does not reach further back. A bucket that offsets do not name is not read. One that did not exist yet at
    a seek, a read point or a snapshot is read from its beginning where that is the start, and not at all where it is the
    end.

    Raises:
        OffsetOutOfRangeError: Records asked for are held nowhere any more, or are not written yet. Of the first kind the
            text names the earliest offset and time that there is in each bucket. A time up to that of the earliest record
            reaches back too far, unless that is the very first one: others at or after it may be gone. Or they were lost with a
            dropped partition.
        BucketNotFoundError: An offset of a bucket that there is not.
        InvalidRequestError: A start or end that is none of these.
        LakeSnapshotNotFoundError: The table has no such lake snapshot.
        FlussError: The cluster does not know how far a bucket goes that is asked for, and the question does not say it
            itself by offsets.
    """
    with _dropped_records(source, start, end, buckets):
        return source.answer(
            lambda state: _resolve_ranges(source, _asked_buckets(source, state, start, end, buckets), start, end)
        )


@contextmanager
def _dropped_records(
    source: TableSource, start: Any, end: Any = None, buckets: Collection[int | BucketKey] | None = None
) -> Iterator[None]:
    """Raise behind the block where records asked for were lost with a dropped partition; also instead of what that led to.

    Raises:
        OffsetOutOfRangeError: There are such.
    """

    def check() -> None:
        last = LATEST if end is None else end
        if not _is_of_now(start) and (last == LATEST or not _is_of_now(last)):
            check_dropped(source, start, None if last == LATEST else last, buckets)

    try:
        yield
    except OffsetOutOfRangeError:
        check()
        raise
    check()


def _is_of_now(edge: Any) -> bool:
    """Return whether an edge is of the buckets that there are: of those that were dropped it means nothing."""
    if isinstance(edge, Mapping):
        return not isinstance(edge, Seek)
    return isinstance(edge, str) and edge in {EARLIEST, LATEST}


def _asked_buckets(
    source: TableSource, state: TableState, start: Any, end: Any, buckets: Collection[int | BucketKey] | None
) -> TableState:
    """Return the table with those of its buckets that are asked for: what is wrong with others does not matter."""
    present = {each.key for each in state.buckets}
    if gone := [each for each in buckets or () if isinstance(each, tuple) and each not in present]:
        raise BucketNotFoundError(f"table {source.info.path}: no bucket {bucket_text(gone[0])} (partition/bucket)")
    for edge in (start, end):
        if isinstance(edge, Mapping) and not isinstance(edge, Seek):
            _check_offsets(source, state, edge)
    named = [
        dict(_named_offsets(edge)) for edge in (start, end) if isinstance(edge, Mapping) and not isinstance(edge, Seek)
    ]
    state = state.only(lambda each: all(each.key in offsets for offsets in named))
    if buckets is None:
        return state
    return state.only(lambda each: each.key in buckets or each.bucket.bucket in buckets)


def checked_buckets(info: TableInfo, buckets: Collection[int | BucketKey] | None) -> tuple[int | BucketKey, ...] | None:
    """Return buckets that a table can have, as numbers or (partition, bucket); None: all.

    Raises:
        BucketNotFoundError: It can not have one of them.
    """
    if buckets is None:
        return None
    found: list[int | BucketKey] = []
    for each in buckets:
        partition, bucket = each if isinstance(each, tuple) and _is_key(each) else (None, each)
        number = whole_number(bucket)
        if number is None or not 0 <= number < info.descriptor.buckets:
            shape = " or (partition, bucket)" if info.descriptor.partitioned_by else ""
            raise BucketNotFoundError(
                f"table {info.path}: expected buckets in [0, {info.descriptor.buckets}){shape}, found {each!r}"
            )
        found.append((partition, number) if isinstance(each, tuple) else number)
    return tuple(found)


def resolve_starts(source: TableSource, start: Any) -> tuple[TableState, dict[BucketKey, int]]:
    """Return the table as it is now, and the offset that a start means in each bucket; for reads without an end.

    Args:
        source: The table.
        start: As for `resolve_ranges`. A bucket that offsets do not name has no entry.

    Raises:
        As `resolve_ranges`.
    """
    with _dropped_records(source, start):
        return source.answer(
            lambda state: (state, _starts(source, _asked_buckets(source, state, start, None, None), start))
        )


def ranges_between(
    source: TableSource, wanted: Mapping[TableBucket, tuple[int, int]], what: str, edges: Collection[ReadPoint] = ()
) -> list[LogRange]:
    """Return ranges of offsets ``[start, stop)``, by partition name and bucket; empty ones are left out.

    Args:
        source: The table.
        wanted: By bucket.
        what: What is in them, for messages.
        edges: The points that the ranges lead from and to: see `_unsure_buckets`.

    Raises:
        OffsetOutOfRangeError: Some are not held any more, or not written yet.
        PartitionNotFoundError: A bucket is gone with its partition.
    """
    return source.answer(lambda state: _check_ranges(source, state, wanted, what, edges))


def _unsure_buckets(source: TableSource, state: TableState, point: ReadPoint) -> frozenset[TableBucket]:
    """Return the buckets that a read point may have put too late: the record before its stop is gone, and with it its time.

    Those are of log tables. (Of a primary-key table there is no read point then.)
    """
    if not (source.info.is_log_table and point.as_of):
        return frozenset()
    found = set()
    for each in point.buckets:
        bucket = TableBucket(point.table_id, each.partition_id, each.bucket)
        known = state.by_bucket.get(bucket)
        if known is not None and not known.is_known:
            known = None
        if known is not None and each.stop == known.end and last_time(state, known) <= point.moment_ms:
            continue  # all records are from before
        if 0 < each.start == each.stop or (known is not None and _follows_gap(source, state, known, each.stop)):
            found.add(bucket)
    return frozenset(found)


def _follows_gap(source: TableSource, state: TableState, bucket: BucketState, offset: int) -> bool:
    """Return whether records before an offset are held, but not the one right before it."""
    if not bucket.lake_end or state.snapshot is None:
        return False
    joins = offset <= bucket.lake_end or bucket.is_dropped or surely_holds(bucket, bucket.lake_end)
    if joins and state.snapshot.starts.get(bucket.bucket, 0) == 0:
        return False
    ranges = held_ranges(source, state, bucket)
    return any(stop < offset for _, stop in ranges) and not any(start < offset <= stop for start, stop in ranges)


def _check_ranges(
    source: TableSource,
    state: TableState,
    wanted: Mapping[TableBucket, tuple[int, int]],
    what: str,
    edges: Collection[ReadPoint],
) -> list[LogRange]:
    low, known = _log_starts(source, state), {each.bucket for each in state.buckets}
    if gone := [bucket for bucket, (start, stop) in wanted.items() if start < stop and bucket not in known]:
        raise PartitionNotFoundError(
            f"table {source.info.path}: bucket {gone[0]} was dropped, with its partition and all of its rows: {what} are not "
            "available there"
        )
    unsure = {bucket for edge in edges for bucket in _unsure_buckets(source, state, edge)}
    found, lost = [], []
    for bucket in state.buckets:
        start, stop = wanted.get(bucket.bucket, (0, 0))
        if bucket.bucket in unsure:
            lost.append(_Lost(bucket, start))
            continue
        if start >= stop:
            continue
        if bucket.is_known:
            if stop > bucket.end:
                raise _outside(source, bucket, low, "offsets", f"[{start}, {stop})")
            if start < low.get(bucket.key, 0):
                lost.append(_Lost(bucket, start, stop))
        # Of one that is not known, reading finds out: it gives every offset or an error.
        found.append(LogRange(bucket.bucket, bucket.partition, start, stop))
    _check_held(source, state, lost, low, what)
    return found


def _log_starts(source: TableSource, state: TableState) -> dict[BucketKey, int]:
    """Return `log_starts`, without a look at what may be missing where nothing is."""
    return {each.key: 0 for each in state.buckets} if state.is_whole else log_starts(source, state)


def _outside(
    source: TableSource, bucket: BucketState, low: Mapping[BucketKey, int], expected: str, found: str
) -> OffsetOutOfRangeError:
    """Return the error of offsets that are not written yet."""
    return OffsetOutOfRangeError(
        f"table {source.info.path}, bucket {bucket_text(bucket.key)}: expected {expected} in "
        f"[{low.get(bucket.key, bucket.local_start)}, {bucket.end}], found {found}"
    )


def _check_held(
    source: TableSource,
    state: TableState,
    lost: Sequence[_Lost],
    low: Mapping[BucketKey, int],
    what: str,
) -> None:
    """Raise when offsets asked for are lost: the text names the gap that they reach into, or the earliest that are held.

    What lies between two gaps is held: a range there is not lost.
    """
    missing: list[tuple[BucketState, int]] = []
    for each in lost:
        ranges = [] if each.stop is None else held_ranges(source, state, each.bucket)
        held = next(((start, stop) for start, stop in ranges if start <= each.start < stop), None)
        if held is None or each.stop is None:
            missing.append((each.bucket, each.start))
        elif each.stop > held[1]:
            onward = min([each.stop, *(start for start, _ in ranges if start >= held[1])])
            raise gap_error(source, Gap(each.bucket.partition, each.bucket.bucket.bucket, held[1], onward))
    if missing:
        raise OffsetOutOfRangeError(too_early(source, state, missing, low, what))


def _resolve_ranges(source: TableSource, state: TableState, start: Any, end: Any) -> list[LogRange]:
    low = _log_starts(source, state)
    first = _resolve_start(source, state, start, low)
    last = _resolve(source, state, LATEST if end is None else end, low)
    found, lost = [], []
    for bucket in state.buckets:
        begin, stop = first.offsets.get(bucket.key), last.offsets.get(bucket.key)
        if not (first.stated and last.stated):
            bucket.check_known()
        if begin is None or stop is None:
            continue
        if first.checked and bucket.is_known and begin > bucket.end and not _is_rest_gone(bucket, start):
            raise _outside(source, bucket, low, "a start", str(begin))
        if bucket.key in first.reaches_back:
            lost.append(_Lost(bucket, begin))
            continue
        if begin >= stop:
            continue
        if bucket.is_known:
            if last.checked and stop > bucket.end:
                raise _outside(source, bucket, low, "offsets", f"[{begin}, {stop})")
            if begin < low.get(bucket.key, 0):
                lost.append(_Lost(bucket, begin, stop))
        found.append(LogRange(bucket.bucket, bucket.partition, begin, stop))
    if lost:
        _check_held(source, state, lost, low, f"the records from {shown_moment(start)} on")
    return found


def _starts(source: TableSource, state: TableState, start: Any) -> dict[BucketKey, int]:
    low = _log_starts(source, state)
    first = _resolve_start(source, state, start, low)
    found, lost = {}, []
    for bucket in state.buckets:
        bucket.check_known()
        begin = first.offsets.get(bucket.key)
        if begin is None:
            continue
        if first.checked and begin > bucket.end and not _is_rest_gone(bucket, start):
            raise _outside(source, bucket, low, "a start", str(begin))
        if begin < low.get(bucket.key, 0) or bucket.key in first.reaches_back:
            lost.append(_Lost(bucket, begin))
        found[bucket.key] = begin
    if lost:
        _check_held(source, state, lost, low, f"the records from {shown_moment(start)} on")
    return found


def _is_rest_gone(bucket: BucketState, start: Any) -> bool:
    """Return whether a start may lie behind a bucket: what was between was lost with its partition. See `check_dropped`."""
    return bucket.is_dropped and not _is_of_now(start)


def _resolve_start(source: TableSource, state: TableState, start: Any, low: Mapping[BucketKey, int]) -> _Edge:
    """Return the offset that a start means in each bucket: 0 in those that were made after a moment."""
    first = _resolve(source, state, start, low)
    if isinstance(start, Seek | ReadPoint | int):
        return replace(first, offsets={**dict.fromkeys((each.key for each in state.buckets), 0), **first.offsets})
    return first


def _resolve(source: TableSource, state: TableState, edge: Any, low: Mapping[BucketKey, int]) -> _Edge:
    """Return the offset that an edge means in each bucket that it can know of."""
    if isinstance(edge, str) and edge in {EARLIEST, LATEST}:
        if edge == EARLIEST:
            return _Edge({each.key: known_start(each, low) for each in state.buckets})
        return _Edge({each.key: each.end for each in state.buckets})
    if isinstance(edge, Seek):
        source.check_table(edge.path, edge.table_id, edge.created_ms, "seek")
        return _Edge(
            _of_these(state, [(each.partition, each.partition_id, each.bucket, each.offset) for each in edge.buckets]),
            stated=True,
        )
    if isinstance(edge, ReadPoint):
        source.check_table(edge.path, edge.table_id, edge.created_ms, "read point")
        edge.check_known()
        late = _unsure_buckets(source, state, edge)
        return _Edge(
            _of_these(state, [(each.partition, each.partition_id, each.bucket, each.stop) for each in edge.buckets]),
            frozenset(each.key for each in state.buckets if each.bucket in late),
            stated=True,
        )
    if isinstance(edge, Mapping):
        known = {each.key for each in state.buckets}
        return _Edge({key: offset for key, offset in _named_offsets(edge) if key in known}, stated=True)
    if isinstance(edge, int) and not isinstance(edge, bool) and (moment := snapshot_moment(source, edge)) is not None:
        places = moment.stops.values()
        found = _of_these(state, [(each.partition, each.partition_id, each.bucket, each.stop) for each in places])
        return _Edge(found, stated=True)
    if isinstance(edge, str | datetime | int) and not isinstance(edge, bool):
        return _by_time(source, state, parse_moment(edge, source.connection.time_zone), low)
    raise InvalidRequestError(f"expected {OTHER_EDGES}, or a time, found {edge!r}")


def _by_time(source: TableSource, state: TableState, moment_ms: int, low: Mapping[BucketKey, int]) -> _Edge:
    answers = source.offsets_by_time(state, moment_ms)
    back = set()
    for each in state.buckets:
        answer = answers[each.key]
        first = low.get(each.key, 0)
        if first and answer.offset <= first and not _is_first(source, state, each, answer.offset, first):
            # The record before is gone, and with it the knowledge of its time: up to that of the next one it may count.
            next_ms = last_time(state, each) if answer.timestamp_ms is None else answer.timestamp_ms
            if moment_ms <= next_ms:
                back.add(each.key)
    return _Edge({key: answer.offset for key, answer in answers.items()}, frozenset(back), checked=False)


def _is_first(source: TableSource, state: TableState, bucket: BucketState, offset: int, low: int) -> bool:
    """Return whether a record before a gap is known to be the first at or after a time: the one before it is held too."""
    if offset >= low:
        return False
    return any(start < offset < stop or offset == start == 0 for start, stop in held_ranges(source, state, bucket))


def _named_offsets(given: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield offsets with the buckets that they are of."""
    for name, offset in given.items():
        key = name if isinstance(name, tuple) else (None, name)
        yield (key[0], whole_number(key[1])) if _is_key(key) else key, whole_number(offset)


def _check_offsets(source: TableSource, state: TableState, given: Mapping[Any, Any]) -> None:
    known = {each.key for each in state.buckets}
    for (name, offset), (key, number) in zip(given.items(), _named_offsets(given), strict=True):
        if key not in known:
            raise _unknown_bucket_error(source.info, name, key)
        if number is None or number < 0:
            raise InvalidRequestError(f"bucket {name!r}: expected an offset of at least 0, found {offset!r}")


def _unknown_bucket_error(info: TableInfo, name: Any, key: Any) -> BucketNotFoundError:
    is_partitioned, count = bool(info.descriptor.partitioned_by), info.descriptor.buckets
    if is_partitioned and _is_key(key) and key[0] is not None and 0 <= key[1] < count:
        return BucketNotFoundError(
            f"table {info.path}: no bucket {bucket_text(key)}: there is no partition {key[0]!r}, or it was dropped, and the lake has no "
            "record of this bucket; leave it out"
        )
    shape = (
        f"(partition, bucket) as the key, the bucket in [0, {count})"
        if is_partitioned
        else f"a bucket's number in [0, {count})"
    )
    return BucketNotFoundError(f"table {info.path}: no bucket {name!r}; expected {shape}")


def _is_key(key: Any) -> bool:
    return len(key) == 2 and isinstance(key[0], str | None) and whole_number(key[1]) is not None


def _of_these(state: TableState, places: Iterable[tuple[str | None, int | None, int, int]]) -> dict[BucketKey, int]:
    """Return the offsets in buckets that there are: of a partition made again under its name the first one says nothing."""
    now = {each.key: each.bucket.partition_id for each in state.buckets}
    return {
        (partition, bucket): offset
        for partition, partition_id, bucket, offset in places
        if now.get((partition, bucket), -1) == partition_id
    }
