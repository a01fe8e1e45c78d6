"""Gaps: offsets that neither the lake nor the cluster holds any more, found before a row is read, and named."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fluss_lab.errors import FlussError, OffsetOutOfRangeError
from fluss_lab.model.names import BucketKey
from fluss_lab.model.times import format_moment
from fluss_lab.read.moment.log_retention import bucket_text, time_at
from fluss_lab.read.moment.table_state import BucketState, TableSource, surely_holds

if TYPE_CHECKING:
    from fluss_lab.model import LakeSnapshot
    from fluss_lab.read.union.read_parts import BucketPart


class GapWarning(UserWarning):
    """Records were left out of a read because nobody holds them any more, as ``gaps="skip"`` asked."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets ``[start, stop)`` of one bucket that nobody holds any more."""

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
    known, begin = source.known_state(part.bucket), max(part.start, part.lake_stop)
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
    begin = max(part.start, part.lake_stop)
    if begin >= part.stop:
        return True
    known = source.known_state(part.bucket)
    return known is not None and surely_holds(known, begin)


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
    before, after = _before(source, state, gap), _after(source, state, gap)
    key = repr(gap.bucket if gap.partition is None else gap.key)
    text = (
        f"table {info.path}, bucket {bucket_text(gap.key)}: the records with offsets [{gap.start}, {gap.stop}) are held neither in "
        f"the cluster nor in the lake any more{before}{after}"
    )
    can = [f"changelog(start={{{key}: {state.start}}})"] if state is not None and after else []
    if not before:
        return OffsetOutOfRangeError(f"{text}; take a new read point or start" + "".join(f": {each}" for each in can))
    can.insert(0, f"changelog(start={{{key}: 0}}, end={{{key}: {gap.start}}})")
    text += f". They left the cluster before they were tiered. What is there can be read: {', '.join(can)}, scan(gaps='skip')"
    if info.descriptor.lake_enabled and after:
        text += f". To tier on without them run 'fluss-lab repair {info.path} --adopt --accept-gaps'"
    return OffsetOutOfRangeError(text)


def _before(source: TableSource, state: BucketState | None, gap: Gap) -> str:
    """Return what the lake holds before a gap."""
    if state is None or not 0 < state.lake_end <= gap.start:
        return ""
    snapshot = source.newest_snapshot()
    offset = None if snapshot is None else snapshot.offsets.get(state.bucket)
    until = (
        "" if offset is None or offset.max_timestamp_ms < 0 else f" (up to {format_moment(offset.max_timestamp_ms)})"
    )
    return f"; the lake holds those below {state.lake_end}{until}"


def _after(source: TableSource, state: BucketState | None, gap: Gap) -> str:
    """Return what the cluster holds after a gap."""
    try:
        if state is None or state.is_dropped or state.start is None or state.start < gap.stop:
            return ""
        return f"; the cluster holds those from {state.start}{time_at(source, source.look(), state, state.start)} on"
    except FlussError:
        return ""  # the gap is the news


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
    """Say that records are left out."""
    named = ", ".join(map(str, gaps))
    if named:
        warnings.warn(
            f"table {source.info.path}: left out, because nobody holds them any more: {named}", GapWarning, stacklevel=4
        )
