"""Where a changelog starts and ends: offsets, a seek, a read point, a time, a lake snapshot, a word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fluss_lab.errors import (
    BucketNotFoundError,
    InvalidRequestError,
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
)
from fluss_lab.model.times import TIMESTAMP_MS_MAX, parse_moment
from fluss_lab.read.points import BucketKey, ReadPoint
from fluss_lab.read.seek import Seek
from fluss_lab.read.state import BucketState, TableSource, TableState

EARLIEST = "earliest"
LATEST = "latest"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``[start, stop)`` of one bucket."""

    bucket: BucketState
    start: int
    stop: int


def resolve_ranges(source: TableSource, start: Any, end: Any) -> list[OffsetRange]:
    """Return the range of each bucket, by partition name and bucket; buckets without records in it are left out.

    Args:
        source: The table.
        start: ``"earliest"``, ``"latest"``, offsets by bucket or (partition, bucket), a `Seek`, a `ReadPoint`, a time
            (the first offset at or after it), or a lake snapshot's id (the end of what it holds).
        end: The same, exclusive; None: the latest.

    A bucket that offsets do not name is not read. One that did not exist yet at a seek, a read point or a snapshot is
    read from its beginning where that is the start, and not at all where it is the end.

    Raises:
        OffsetOutOfRangeError: Offsets given are held nowhere any more, or are not written yet.
        InvalidRequestError: A start or end that is none of these.
        LakeSnapshotNotFoundError: The table has no such lake snapshot.
    """
    state = source.look()
    low, high = source.starts(state, log=True), {each.key: each.end for each in state.buckets}
    starts = _resolve(source, state, start, low, high, absent=low)
    ends = _resolve(source, state, LATEST if end is None else end, low, high, absent={})
    found = []
    for bucket in state.buckets:
        begin, stop = starts.get(bucket.key), ends.get(bucket.key)
        if begin is None or stop is None or begin >= stop:
            continue
        if begin < low[bucket.key] or stop > high[bucket.key]:
            raise OffsetOutOfRangeError(
                f"table {source.info.path}, bucket {_shown(bucket.key)}: expected offsets in "
                f"[{low[bucket.key]}, {high[bucket.key]}], found [{begin}, {stop})"
            )
        found.append(OffsetRange(bucket, begin, stop))
    return found


def _shown(key: BucketKey) -> str:
    return str(key[1]) if key[0] is None else f"{key[0]}/{key[1]}"


def _resolve(
    source: TableSource,
    state: TableState,
    edge: Any,
    low: Mapping[BucketKey, int],
    high: Mapping[BucketKey, int],
    absent: Mapping[BucketKey, int],
) -> dict[BucketKey, int]:
    """Return the offset that an edge means in each bucket; `absent` is for buckets that it cannot know of."""
    if isinstance(edge, str) and edge in {EARLIEST, LATEST}:
        return dict(low if edge == EARLIEST else high)
    if isinstance(edge, Seek):
        return {**absent, **edge.offsets}
    if isinstance(edge, ReadPoint):
        source.check_table(edge.table_id)
        return {**absent, **edge.stops}
    if isinstance(edge, Mapping):
        return _offsets(source, state, edge)
    if isinstance(edge, int) and not isinstance(edge, bool) and (snapshot := _snapshot(source, edge)) is not None:
        return {**absent, **snapshot}
    if isinstance(edge, str | datetime | int) and not isinstance(edge, bool):
        return {key: each.offset for key, each in source.offsets_by_time(state, parse_moment(edge)).items()}
    raise InvalidRequestError(
        f"expected 'earliest', 'latest', offsets by bucket, a Seek, a ReadPoint, a time or a lake snapshot id, found {edge!r}"
    )


def _offsets(source: TableSource, state: TableState, given: Mapping[Any, Any]) -> dict[BucketKey, int]:
    known = {each.key for each in state.buckets}
    found: dict[BucketKey, int] = {}
    for name, offset in given.items():
        key = name if isinstance(name, tuple) else (None, name)
        if key not in known:
            shape = "(partition, bucket)" if source.info.descriptor.partitioned_by else "a bucket's number"
            raise BucketNotFoundError(f"table {source.info.path}: no bucket {name!r}; expected {shape} as the key")
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise InvalidRequestError(f"bucket {name!r}: expected an offset of at least 0, found {offset!r}")
        found[key] = offset
    return found


def _snapshot(source: TableSource, number: int) -> dict[BucketKey, int] | None:
    """Return how far a lake snapshot holds each bucket; None when the number is a time instead."""
    snapshot = source.snapshot(number)
    if snapshot is not None:
        return {(each.partition, bucket.bucket): each.end for bucket, each in snapshot.offsets.items()}
    if number > TIMESTAMP_MS_MAX:
        raise LakeSnapshotNotFoundError(f"table {source.info.path}: the cluster knows no lake snapshot {number}")
    return None
