"""How far back a table's log is held, by cluster and lake together, and what is said of records that are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fluss_lab.client.ranges import read_range
from fluss_lab.errors import FlussError
from fluss_lab.lake import FetchContext
from fluss_lab.model.times import format_moment
from fluss_lab.read.points import BucketKey
from fluss_lab.read.state import BucketState, TableSource, TableState

#: Buckets that an error names; their earliest records are looked up for it.
_NAMED_MAX: Final = 8


def log_starts(source: TableSource, state: TableState) -> dict[BucketKey, int]:
    """Return, for every bucket of `state`, the first offset from which on all records are held: by cluster or lake.

    Raises:
        LakeSnapshotNotFoundError: The newest snapshot was expired since.
    """
    found = {each.key: each.end if each.start is None else each.start for each in state.buckets}
    behind = [each for each in state.buckets if each.lake_end > 0 and found[each.key] and _follows(each)]
    if not behind or state.snapshot is None:
        return found
    replayed = {each.key: state.snapshot.starts.get(each.bucket, 0) for each in behind}
    if not source.info.is_log_table:
        return found | {key: min(found[key], start) for key, start in replayed.items()}
    stops = {each.key: each.lake_end for each in behind}
    for split in source.lake_source.plan(state.snapshot.snapshot_id, stops=stops):
        key = (split.partition, split.bucket)
        found[key] = min(found[key], max(split.min_offset, replayed[key]))
    return found


def _follows(bucket: BucketState) -> bool:
    """Tell whether what the cluster holds follows what the lake holds without a hole."""
    return bucket.start is None or bucket.start <= bucket.lake_end


def shown(key: BucketKey) -> str:
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
            f"bucket {shown(bucket.key)} from offset {earliest}{_when(source, state, bucket, earliest)}{asked}"
        )
    more = f"; and {len(lost) - _NAMED_MAX} more buckets" if len(lost) > _NAMED_MAX else ""
    return (
        f"table {source.info.path}: {what} are not all held any more; the earliest available: "
        f"{'; '.join(named)}{more}. Start at these offsets, at a time after these, or at 'earliest'"
    )


def _when(source: TableSource, state: TableState, bucket: BucketState, offset: int) -> str:
    """Return the time of a record, as far as it can be told."""
    if offset >= bucket.end:
        return ""
    names = source.info.schema.names[:1]
    try:
        if bucket.start is not None:
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
