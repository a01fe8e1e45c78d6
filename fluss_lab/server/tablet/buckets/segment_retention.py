"""The retention of a bucket's segments: which expire by the table's ttl, and which go because remote storage holds them."""

from __future__ import annotations

from fluss_lab.failpoints import failpoint
from fluss_lab.server.tablet.buckets.bucket import Bucket


def apply_retention(bucket: Bucket, now_ms: int) -> int:
    """Drop a bucket's segments past the table's ttl, here and in remote storage; return how many here.

    Of a lake-enabled table only what the lake holds is dropped; of a primary-key table's log here, only what no
    retained snapshot needs. What a primary-key table has before the first offset that the lake can replay is in the
    lake as rows, and will not be tiered as events: it expires like the rest.

    Raises:
        StorageError: The disk or remote storage refused.
        FlussError: The bucket's first or last offset is not known; nothing was dropped.
    """
    bucket.check_known()
    offset_max: int | None = None
    if bucket.table.lake_enabled:
        lake = bucket.lake
        # What left the log must be found in the lake without a hole in front of it.
        if lake is None or (bucket.kv is None and lake.start > bucket.start):
            return 0
        offset_max = lake.end
    time_ms = now_ms - bucket.table.log_ttl_ms
    dropped = bucket.log.drop_before(time_ms, _local_max(bucket, offset_max))
    if bucket.remote is not None and bucket.remote.known is not None:
        bucket.remote.expire(time_ms, offset_max)
    return dropped


def drop_copied(bucket: Bucket) -> int:
    """Drop a bucket's segments here that remote storage holds, beyond the newest few that the table keeps; return how many.

    Raises:
        StorageError: The disk refused.
    """
    if bucket.log.stopped is not None:
        return 0
    held = None if bucket.remote is None else bucket.remote.known
    if bucket.remote is None or held is None or not held.start <= bucket.log.start < held.end:
        return 0  # what is there does not lead up to the log
    offset_max, keep = _local_max(bucket, held.end), bucket.table.local_segments
    beyond = [each for each in bucket.log.segments.rolled if offset_max is None or each.end_offset <= offset_max]
    beyond = beyond[: max(0, len(bucket.log.segments) - keep)]
    if not beyond:
        return 0
    bucket.remote.note_dropped(beyond[-1].end_offset)
    failpoint("remote.local.before_drop")
    return bucket.log.drop_copied(beyond[-1].end_offset, keep)


def _local_max(bucket: Bucket, offset_max: int | None) -> int | None:
    """Return the offset from which on records must stay here: the bound given, or what rows are restored from."""
    if bucket.kv is None:
        return offset_max
    floor = bucket.kv.snapshots.retained_floor() or 0
    return floor if offset_max is None else min(offset_max, floor)
