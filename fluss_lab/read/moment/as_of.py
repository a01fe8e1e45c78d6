"""Read points taken: of now, of a time, of a lake snapshot."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from fluss_lab.client import BucketOffset, UnknownBucket
from fluss_lab.client.cluster.bucket_status import NO_LEADER
from fluss_lab.errors import (
    InvalidTimestampError,
    LakeNotConfiguredError,
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
    TableNotFoundError,
    error_code,
)
from fluss_lab.lake import SupportsMaintenance
from fluss_lab.lake.snapshot_summary import BUCKETS_NAMED_MAX
from fluss_lab.model import LakeSnapshot, TableBucket
from fluss_lab.model.names import BucketKey
from fluss_lab.model.offsets import newest_ms
from fluss_lab.model.times import TIMESTAMP_MS_MAX, SnapshotId, format_moment
from fluss_lab.read.moment.read_point import PointBucket, ReadPoint, UnknownPointBucket
from fluss_lab.read.moment.table_state import BucketState, TableSource, TableState
from fluss_lab.read.union.pk_plan import earliest_available


@dataclass(frozen=True, slots=True)
class SnapshotMoment:
    """A lake snapshot as a moment of the table.

    Attributes:
        snapshot_id: Its id.
        stops: How far it holds each bucket, by identity of partition and bucket.
        time_ms: Timestamp of the newest record in it, where that is known.
    """

    snapshot_id: int
    stops: Mapping[BucketKey, PointBucket]
    time_ms: int | None = None


def point_now(source: TableSource) -> ReadPoint:
    """Return the table as it is; buckets that the cluster does not know are among its `unknown`.

    Raises:
        PartitionNotFoundError: A partition was dropped between two questions; ask again.
    """
    now_ms = _now_ms()
    state = source.look()
    stops = {each.key: each.end for each in state.buckets if each.is_known}
    return _point(source, state, now_ms, stops)


def point_at_time(source: TableSource, as_of_ms: int) -> ReadPoint:
    """Return the table with all records up to a time.

    Args:
        source: The table.
        as_of_ms: Epoch milliseconds; from then on no record gets a timestamp up to it.

    Raises:
        InvalidTimestampError: It is after the servers' clock.
        OffsetOutOfRangeError: Of a primary-key table: the rows at that time are no longer available; or a partition was
            dropped since, with records that the lake does not hold.
        PartitionNotFoundError: A partition was dropped between two questions; ask again.
    """
    state = source.look()
    if source.info.descriptor.partitioned_by:
        _check_losses(source, as_of_ms)
    known = state.only(lambda each: each.is_known)
    try:
        answers = source.offsets_by_time(known, as_of_ms + 1, raise_clock=True)
    except InvalidTimestampError as error:
        raise InvalidTimestampError(f"table {source.info.path} as of {format_moment(as_of_ms)}: {error}") from error
    if not source.info.is_log_table:
        early = [each for each in known.buckets if _is_early(state, each, answers[each.key], as_of_ms)]
        if early:
            starts = {each.bucket: _earliest_before(state, each, answers[each.key].offset) for each in early}
            raise _too_early(source, early[0], starts, format_moment(as_of_ms))
    stops = {key: answer.offset for key, answer in answers.items()}
    return _point(source, state, as_of_ms, stops, as_of=True)


def point_at_snapshot(source: TableSource, moment: SnapshotMoment) -> ReadPoint:
    """Return the table as a lake snapshot holds it.

    Raises:
        OffsetOutOfRangeError: Of a primary-key table: its rows are no longer available.
        PartitionNotFoundError: A partition was dropped between two questions; ask again.
    """
    state = source.look()
    known = {each.key: each for each in state.buckets}
    # What was made since had nothing then. What is gone from the cluster and from the newest snapshot may still be read.
    stops = dict.fromkeys(known, 0)
    others = []
    for key, place in moment.stops.items():
        if key in known and known[key].bucket.partition_id == place.partition_id:
            stops[key] = place.stop
        else:
            stops.pop(key, None)
            others.append(place)
    if not source.info.is_log_table:
        early = [known[key] for key, stop in stops.items() if 0 < stop < earliest_available(known[key], state.snapshot)]
        if early:
            starts = {each.bucket: earliest_available(each, state.snapshot) for each in early}
            raise _too_early(source, early[0], starts, f"offset {stops[early[0].key]}")
    state = TableState(tuple(each for each in state.buckets if each.key in stops), state.snapshot)
    found = _point(source, state, moment.time_ms or _now_ms(), stops, snapshot_id=moment.snapshot_id)
    buckets = sorted([*found.buckets, *others], key=lambda each: (each.partition or "", each.bucket))
    return ReadPoint(
        found.path, found.table_id, found.schema_id, found.moment_ms, False, found.snapshot_id, tuple(buckets),
        created_ms=found.created_ms,
    )  # fmt: skip


def snapshot_moment(source: TableSource, number: int) -> SnapshotMoment | None:
    """Return the lake snapshot of an id; None when the number is a time instead.

    The cluster is asked, and where it has forgotten the snapshot, the lake: of a partitioned table, and of one with more
    buckets than a snapshot names, what the lake says is not enough.

    Raises:
        LakeSnapshotNotFoundError: The number is too large for a time, or said to be none, and neither cluster nor lake knows such a snapshot.
    """
    snapshot = source.snapshot(number, whole=True)
    if snapshot is not None:
        stops = {place.key: place for place in _places(snapshot)}
        return SnapshotMoment(number, stops, newest_ms(snapshot.offsets.values()))
    if number <= TIMESTAMP_MS_MAX and not isinstance(number, SnapshotId):
        return None
    found = _moment_in_lake(source, number)
    if found is None:
        raise LakeSnapshotNotFoundError(
            f"table {source.info.path}: neither the cluster nor the lake knows lake snapshot {number}: it has expired, or "
            "never was; give a time instead (a number of milliseconds, not of micro- or nanoseconds)"
        )
    return found


def _places(snapshot: LakeSnapshot) -> list[PointBucket]:
    return [
        PointBucket(offset.partition, bucket.partition_id, bucket.bucket, 0, offset.end)
        for bucket, offset in snapshot.offsets.items()
    ]


def _moment_in_lake(source: TableSource, snapshot_id: int) -> SnapshotMoment | None:
    descriptor = source.info.descriptor
    if descriptor.partitioned_by or descriptor.buckets > BUCKETS_NAMED_MAX:
        return None
    try:
        storage = source.storage
    except LakeNotConfiguredError:
        return None
    if not isinstance(storage, SupportsMaintenance):
        return None
    try:
        with storage.create_lake_maintenance(source.info) as lake:
            snapshots = lake.snapshots()
    except TableNotFoundError:
        return None  # never lake-enabled
    for each in snapshots:
        if each.snapshot_id == snapshot_id and each.ours and each.complete:
            stops = {key: PointBucket(None, None, key[1], 0, offset.end) for key, offset in each.offsets.items()}
            return SnapshotMoment(snapshot_id, stops, newest_ms(each.offsets.values()))
    return None


def _point(
    source: TableSource,
    state: TableState,
    moment_ms: int,
    stops: Mapping[BucketKey, int],
    *,
    as_of: bool = False,
    snapshot_id: int | None = None,
) -> ReadPoint:
    if source.info.is_log_table:
        state = _mark_unknown(state)
    # A lake snapshot says itself how far it goes; elsewhere what is not known is no row and no end.
    taken = state.only(lambda each: each.key in stops and (each.is_known or snapshot_id is not None))
    left = {each.key for each in state.buckets} - {each.key for each in taken.buckets}
    unknown = [each.status for each in state.buckets if each.key in left and isinstance(each.status, UnknownBucket)]
    starts = source.starts(taken)
    buckets = tuple(
        PointBucket(
            each.partition,
            each.bucket.partition_id,
            each.bucket.bucket,
            min(starts[each.key], stops[each.key]),
            stops[each.key],
        )
        for each in taken.buckets
    )
    info = source.info
    hint = state.snapshot_id if snapshot_id is None else snapshot_id
    return ReadPoint(
        info.path, info.table_id, info.schema_id, moment_ms, as_of, hint, buckets,
        tuple(_unknown(each) for each in unknown), info.created_ms,
    )  # fmt: skip


def _mark_unknown(state: TableState) -> TableState:
    """Return the table with those buckets as unknown whose first row is not known."""
    buckets = []
    for each in state.buckets:
        if each.start_error is not None and not each.is_whole_in(state.snapshot):
            status = UnknownBucket(each.bucket, each.partition, NO_LEADER, each.start_error)
            each = BucketState(each.bucket, each.partition, status, each.lake_end)  # noqa: PLW2901 - the same bucket
        buckets.append(each)
    return TableState(tuple(buckets), state.snapshot)


def _unknown(each: UnknownBucket) -> UnknownPointBucket:
    return UnknownPointBucket(
        each.partition, each.bucket.partition_id, each.bucket.bucket, error_code(each.error), str(each.error)
    )


def _check_losses(source: TableSource, as_of_ms: int) -> None:
    """Raise unless every partition that the table had at a time is there, or was dropped when the lake held all of it."""
    lost = source.connection.admin().lost_partitions(source.info.path, as_of_ms)
    if not lost:
        return
    name, dropped_ms = min(lost.items(), key=lambda item: (item[1], item[0]))
    others = f" (and {len(lost) - 1} more partitions)" if len(lost) > 1 else ""
    error = OffsetOutOfRangeError(
        f"table {source.info.path}: its rows as of {format_moment(as_of_ms)} are no longer available: partition {name!r} was "
        f"dropped at {format_moment(dropped_ms)} with records that the lake does not hold{others}; take a time at or after "
        f"{format_moment(max(lost.values()))}"
    )
    error.earliest_ms = max(lost.values())
    raise error


def _is_early(state: TableState, bucket: BucketState, answer: BucketOffset, as_of_ms: int) -> bool:
    """Return whether the rows of a bucket at a time are no longer available: records before the first one held may be newer than it."""
    earliest = _earliest_before(state, bucket, answer.offset)
    if answer.offset > earliest or not earliest:
        return False
    return not (answer.offset == earliest and answer.timestamp_ms is None and as_of_ms >= last_time(state, bucket))


def _earliest_before(state: TableState, bucket: BucketState, offset: int) -> int:
    """Return the first offset from which on the rows of a bucket are available up to an offset, without a gap in between.

    Raises:
        FlussError: The cluster does not know where the bucket begins, and it matters.
    """
    local_start = bucket.local_start
    if local_start is not None and bucket.lake_end <= offset <= local_start and not bucket.holds_from(bucket.lake_end):
        # What was between the lake's end and the log is gone, and with it the times that would tell.
        assert bucket.start is not None
        return bucket.start
    return earliest_available(bucket, state.snapshot)


def _too_early(
    source: TableSource, first: BucketState, starts: Mapping[TableBucket, int], moment: str
) -> OffsetOutOfRangeError:
    """Return the error for rows as of a moment, with the first moment at which all buckets have them.

    Args:
        source: The table.
        first: The bucket that is named.
        starts: From where on the rows of each bucket that does not have them are available.
        moment: The moment.
    """
    error = OffsetOutOfRangeError(
        f"{_name(source, first)}: its rows as of {moment} are no longer available: "
        f"{source.availability(first.bucket, starts[first.bucket])}"
    )
    times = source.available_from_ms(starts).values()
    known = [each for each in times if each is not None]
    error.earliest_ms = max(known) if len(known) == len(times) else None
    return error


def last_time(state: TableState, bucket: BucketState) -> int:
    """Return the time of a bucket's last record, in cluster or lake; a time after all others when it is not known."""
    offset = None if state.snapshot is None else state.snapshot.offsets.get(bucket.bucket)
    in_lake = -1 if offset is None or offset.end < bucket.end else offset.max_timestamp_ms
    known = max(in_lake, -1 if bucket.max_timestamp_ms is None else bucket.max_timestamp_ms)
    return known if known >= 0 else TIMESTAMP_MS_MAX


def _name(source: TableSource, bucket: BucketState) -> str:
    where = "" if bucket.partition is None else f" of partition {bucket.partition!r}"
    return f"table {source.info.path}, bucket {bucket.bucket.bucket}{where}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
