"""The retention of a table's log in cluster and lake together, and the errors for records that are past it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fluss_lab.client.log.range_reader import read_range
from fluss_lab.errors import FlussError
from fluss_lab.lake import FetchContext
from fluss_lab.model.names import BucketKey
from fluss_lab.model.times import format_moment
from fluss_lab.read.moment.table_state import BucketState, TableSource, TableState, surely_holds

#: Buckets that an error names; their earliest records are looked up for it.
_NAMED_MAX: Final = 8


def log_starts(source: TableSource, state: TableState) -> dict[BucketKey, int]:
    """Return, for every bucket of `state`, the first offset from which on all records are held: by cluster or lake.

    A bucket has no entry when that is not known of it: `known_start` raises why.

    Raises:
        LakeSnapshotNotFoundError: The newest snapshot was expired since.
    """
    known = [each for each in state.buckets if each.is_known]
    behind = [] if state.snapshot is None else [each for each in known if each.lake_end > 0 and _follows(each)]
    replayed = _replayed(source, state, behind)
    found = {each.key: _log_start(each, replayed.get(each.key)) for each in known}
    return {key: start for key, start in found.items() if start is not None}


def known_start(bucket: BucketState, low: Mapping[BucketKey, int]) -> int:
    """Return where a bucket's log begins, from `log_starts`.

    Raises:
        FlussError: It is not known: the server's own error.
    """
    if bucket.key in low:
        return low[bucket.key]
    bucket.check_known()
    start = bucket.start
    assert start is not None
    return start


def _replayed(source: TableSource, state: TableState, behind: Sequence[BucketState]) -> dict[BucketKey, int]:
    """Return from where on the lake can replay buckets that the cluster does not hold from their begin on."""
    behind = [each for each in behind if not surely_holds(each, 0)]
    if not behind or state.snapshot is None:
        return {}
    starts = {each.key: state.snapshot.starts.get(each.bucket, 0) for each in behind}
    if not source.info.is_log_table:
        return starts
    found: dict[BucketKey, int] = {}
    for split in source.lake_source.plan(
        state.snapshot.snapshot_id, stops={each.key: each.lake_end for each in behind}
    ):
        key = (split.partition, split.bucket)
        first = max(split.min_offset, starts[key])
        found[key] = min(found.get(key, first), first)
    return found


def _log_start(bucket: BucketState, replayed: int | None) -> int | None:
    """Return where a bucket's log begins; None when nobody knows what may be before its part on the server's disk."""
    if replayed == 0:
        return 0  # whatever else the cluster may have
    if bucket.start_error is not None:
        return 0 if bucket.local_start == 0 else None
    if bucket.is_dropped:
        return bucket.end if replayed is None else replayed
    start = bucket.start
    assert start is not None
    return start if replayed is None else min(start, replayed)


def _follows(bucket: BucketState) -> bool:
    """Tell whether what the cluster holds is known to follow what the lake holds without a hole."""
    return bucket.is_dropped or surely_holds(bucket, bucket.lake_end)


def held_ranges(source: TableSource, state: TableState, bucket: BucketState) -> list[tuple[int, int]]:
    """Return the ranges of offsets that lake and cluster hold of a bucket, ascending, with gaps between them.

    Cost: the bucket's files in the lake are planned.
    """
    found: list[tuple[int, int]] = []
    if bucket.lake_end and state.snapshot is not None:
        if source.info.is_log_table:
            stops = {bucket.key: bucket.lake_end}
            splits = source.lake_source.plan(state.snapshot.snapshot_id, stops=stops)
            found += [(split.min_offset, min(split.max_offset + 1, bucket.lake_end)) for split in splits]
        else:
            found.append((state.snapshot.starts.get(bucket.bucket, 0), bucket.lake_end))
    if bucket.is_known and bucket.start_error is None and bucket.start is not None:
        found.append((bucket.start, bucket.end))
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(found):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        elif start < stop:
            joined.append((start, stop))
    return joined


def bucket_text(key: BucketKey) -> str:
    """Return a bucket as people write it."""
    return str(key[1]) if key[0] is None else f"{key[0]}/{key[1]}"


def too_early(
    source: TableSource,
    state: TableState,
    lost: Sequence[tuple[BucketState, int]],
    low: Mapping[BucketKey, int],
    what: str,
) -> str:
    """Return what an error says about records that are gone: the earliest that is held of each bucket.

    Args:
        source: The table.
        state: From `TableSource.look`.
        lost: The buckets, and the offsets asked for.
        low: From `log_starts`.
        what: What was asked for.
    """
    named = []
    for bucket, begin in lost[:_NAMED_MAX]:
        earliest = low[bucket.key]
        asked = f", found {begin}" if begin < earliest else ""
        named.append(
            f"bucket {bucket_text(bucket.key)} from offset {earliest}{time_at(source, state, bucket, earliest)}{asked}"
        )
    more = f"; and {len(lost) - _NAMED_MAX} more buckets" if len(lost) > _NAMED_MAX else ""
    return (
        f"table {source.info.path}: {what} are not all held any more; the earliest available: "
        f"{'; '.join(named)}{more}. Start at these offsets, at a time after these, or at 'earliest'"
    )


def time_at(source: TableSource, state: TableState, bucket: BucketState, offset: int) -> str:
    """Return the time of a record for a message, as far as it can be told."""
    if offset >= bucket.end:
        return ""
    names = source.info.schema.names[:1]
    try:
        if not bucket.is_dropped:
            found = read_range(
                source.connection, source.info, bucket.bucket, offset, offset + 1,
                partition=bucket.partition, projection=names,
            )  # fmt: skip
        else:
            assert state.snapshot_id is not None
            found = source.log_source.fetch_log_records(
                FetchContext(
                    offset, offset + 1, bucket.partition, bucket.bucket.bucket, state.snapshot_id, tuple(names)
                )
            )
        records = next(iter(found))
    except (FlussError, StopIteration):
        return ""  # the error that is told is another one
    return f" ({format_moment(int(records.timestamps_ms[0].as_py()))})"
