"""The retention of a table's log in cluster and lake together: where it begins, its gaps, and the errors for records past it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fluss_lab.client.log.range_reader import read_range
from fluss_lab.errors import FlussError, OffsetOutOfRangeError
from fluss_lab.lake import FetchContext
from fluss_lab.model.names import BucketKey
from fluss_lab.model.times import format_moment
from fluss_lab.read.moment.table_state import BucketState, TableSource, TableState, surely_holds

if TYPE_CHECKING:
    from fluss_lab.model import LakeSnapshot
    from fluss_lab.read.union.read_parts import BucketPart

#: Buckets that an error names; their earliest records are looked up for it.
_NAMED_MAX: Final = 8


def log_starts(source: TableSource, state: TableState) -> dict[BucketKey, int]:
    """Return, for every bucket of `state`, the first offset from which on all records are held: by cluster or lake.

    A bucket has no entry when that is not known of it: `table_state.known_start` raises why.

    Raises:
        LakeSnapshotNotFoundError: The newest snapshot was expired since.
    """
    known = [each for each in state.buckets if each.is_known]
    behind = [] if state.snapshot is None else [each for each in known if each.lake_end > 0 and _follows(each)]
    replayed = _replay_starts(source, state, behind)
    found = {each.key: _log_start(each, replayed.get(each.key)) for each in known}
    return {key: start for key, start in found.items() if start is not None}


def _replay_starts(source: TableSource, state: TableState, behind: Sequence[BucketState]) -> dict[BucketKey, int]:
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
    """Return where a bucket's log begins; None when it is not known what is before its part on the server's disk."""
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
    """Return whether what the cluster holds is known to follow what the lake holds without a gap."""
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
        f"table {source.info.path}: {what} are no longer all available; the earliest available: "
        f"{'; '.join(named)}{more}. Start at these offsets, at a time after these, or at 'earliest'"
    )


def time_at(source: TableSource, state: TableState, bucket: BucketState, offset: int) -> str:
    """Return the time of a record for a message; "" when it cannot be read."""
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
        return ""  # the caller raises another error
    return f" ({format_moment(int(records.timestamps_ms[0].as_py()))})"


class GapWarning(UserWarning):
    """Records were left out of a read because they are no longer available, as ``gaps="skip"`` asked."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets ``[start, stop)`` of one bucket that neither cluster nor lake holds."""

    partition: str | None
    bucket: int
    start: int
    stop: int

    @property
    def key(self) -> BucketKey:
        """Return partition name and bucket."""
        return (self.partition, self.bucket)

    def __str__(self) -> str:
        return f"bucket {bucket_text(self.key)} [{self.start}, {self.stop})"


def gap_of(source: TableSource, part: BucketPart) -> Gap | None:
    """Return what of a log table's part neither lake nor cluster held at the last look; None when nothing is known to be gone.

    Raises:
        FlussError: The cluster does not know where the bucket begins, and it matters.
    """
    known, begin = source.known_state(part.bucket), part.log_start
    if known is None or not known.is_known or begin >= part.stop:
        return None
    if known.is_dropped:
        return Gap(part.partition, part.bucket.bucket, begin, part.stop)
    if known.holds_from(begin):
        return None
    assert known.start is not None
    return Gap(part.partition, part.bucket.bucket, begin, min(known.start, part.stop))


def is_vouched(source: TableSource, part: BucketPart) -> bool:
    """Return whether the cluster said at the last look that it holds all of a part that the lake does not."""
    return source.cluster_holds(part.bucket, part.log_start, part.stop)


def check_gaps(source: TableSource, parts: Sequence[BucketPart], snapshot: LakeSnapshot | None) -> None:
    """Raise where records of a log table's parts are known to be gone for good.

    Args:
        source: The table; what the cluster lost is known of one that was looked at, else reading finds out.
        parts: With where their lake's part ends.
        snapshot: The lake's, of which those parts are read.

    Raises:
        OffsetOutOfRangeError: The text names bucket, offsets, times as far as they are known, and what can be read.
    """
    for part, early in zip(parts, gaps_before_lake(source, parts, snapshot), strict=True):
        if (gap := early or gap_of(source, part)) is not None:
            raise gap_error(source, gap)


def gap_error(source: TableSource, gap: Gap) -> OffsetOutOfRangeError:
    """Return the error that names a gap and what to do."""
    info = source.info
    state = next((each for each in source.look().buckets if each.key == gap.key), None)
    before, after = _lake_side(source, state, gap), _cluster_side(source, state, gap)
    key = repr(gap.bucket if gap.partition is None else gap.key)
    text = (
        f"table {info.path}, bucket {bucket_text(gap.key)}: the records with offsets [{gap.start}, {gap.stop}) are held neither in "
        f"the cluster nor in the lake any more{before}{after}"
    )
    can = [f"changelog(start={{{key}: {state.start}}})"] if state is not None and after else []
    if not before:
        return OffsetOutOfRangeError(f"{text}; take a new read point or start" + "".join(f": {each}" for each in can))
    can.insert(0, f"changelog(start={{{key}: 0}}, end={{{key}: {gap.start}}})")
    if info.is_log_table:
        can.append("scan(gaps='skip')")
    text += f". They left the cluster before they were tiered. What is there can be read: {', '.join(can)}"
    if info.descriptor.lake_enabled and after:
        text += f". To tier on without them run 'fluss-lab repair {info.path} --adopt --accept-gaps'"
    return OffsetOutOfRangeError(text)


def _lake_side(source: TableSource, state: BucketState | None, gap: Gap) -> str:
    """Return what the lake holds before a gap."""
    if state is None or not 0 < state.lake_end <= gap.start:
        return ""
    snapshot = source.newest_snapshot()
    offset = None if snapshot is None else snapshot.offsets.get(state.bucket)
    until = (
        "" if offset is None or offset.max_timestamp_ms < 0 else f" (up to {format_moment(offset.max_timestamp_ms)})"
    )
    return f"; the lake holds those below {state.lake_end}{until}"


def _cluster_side(source: TableSource, state: BucketState | None, gap: Gap) -> str:
    """Return what the cluster holds after a gap."""
    try:
        if state is None or state.is_dropped or state.start is None or state.start < gap.stop:
            return ""
        return f"; the cluster holds those from {state.start}{time_at(source, source.look(), state, state.start)} on"
    except FlussError:
        return ""  # the caller raises the gap's error


def gaps_before_lake(
    source: TableSource, parts: Sequence[BucketPart], snapshot: LakeSnapshot | None
) -> list[Gap | None]:
    """Return, for each of a log table's parts, what of it was gone when the lake's first record of its bucket was tiered.

    Args:
        source: The table.
        parts: With where their lake's part ends.
        snapshot: The lake's, of which those parts are read.

    Cost: none, unless a part begins before the bucket's replay start; then the bucket's files are planned.
    """
    starts = [0 if snapshot is None else min(snapshot.starts.get(each.bucket, 0), each.lake_stop) for each in parts]
    doubtful = {each.key: each.lake_stop for each, start in zip(parts, starts, strict=True) if each.start < start}
    if snapshot is None or not doubtful:
        return [None] * len(parts)
    firsts = doubtful.copy()
    for split in source.lake_source.plan(snapshot.snapshot_id, stops=doubtful):
        key = (split.partition, split.bucket)
        firsts[key] = min(firsts[key], split.min_offset)
    found: list[Gap | None] = []
    for part, start in zip(parts, starts, strict=True):
        stop = min(start, firsts.get(part.key, 0))
        found.append(Gap(part.partition, part.bucket.bucket, part.start, stop) if part.start < stop else None)
    return found


def without_gaps(source: TableSource, parts: Sequence[BucketPart]) -> tuple[list[BucketPart], list[Gap]]:
    """Return a log table's parts without what is gone for good, and the gaps between them.

    Args:
        source: The table, looked at.
        parts: From `wanted_parts`.
    """
    kept: list[BucketPart] = []
    gaps: list[Gap] = []
    snapshot = source.newest_snapshot()
    stops = {} if snapshot is None else {bucket: offset.end for bucket, offset in snapshot.offsets.items()}
    parts = [replace(each, lake_stop=max(each.start, min(stops.get(each.bucket, 0), each.stop))) for each in parts]
    for each, early in zip(parts, gaps_before_lake(source, parts, snapshot), strict=True):
        part = each
        if early is not None:
            gaps.append(early)
            part = replace(each, start=early.stop)
        gap = gap_of(source, part)
        if gap is None:
            if part.start < part.stop:
                kept.append(part)
            continue
        gaps.append(gap)
        pieces = (replace(part, stop=gap.start), replace(part, start=gap.stop, lake_stop=gap.stop))
        kept += [piece for piece in pieces if piece.start < piece.stop]
    return kept, gaps


def warn_of_gaps(source: TableSource, gaps: Iterable[Gap]) -> None:
    """Warn that records are left out."""
    named = ", ".join(map(str, gaps))
    if named:
        warnings.warn(
            f"table {source.info.path}: left out, because they are no longer available: {named}",
            GapWarning,
            stacklevel=4,
        )
