"""Records between the edges of a changelog that were lost with a dropped partition: an error, not a shorter answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fluss_lab.client.cluster.lossy_drops import LostRecords, lossy_drops
from fluss_lab.errors import OffsetOutOfRangeError
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.model.names import BucketKey
from fluss_lab.model.times import format_moment, parse_moment, shown_moment, whole_number
from fluss_lab.read.moment.as_of import snapshot_moment
from fluss_lab.read.moment.read_point import PointBucket, ReadPoint
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.moment.time_seek import Seek, SeekBucket


@dataclass(frozen=True)
class _Edge:
    """What a start or an end says of a bucket whose partition was dropped since, or before.

    Attributes:
        from_ms: Records with this timestamp or a later one are behind it, where nothing better is known.
        offsets: Those that it has.
        drops: The number of the newest lossy drop before it: of a later one, of buckets that it does not have, all is behind
            it. None: it is not known.
        kind: ``seek`` (its offset in a bucket whose records were lost already is that of what was left), ``snapshot`` (of
            the lake: lost records were never in it), or ``moment``.
    """

    from_ms: int
    offsets: Mapping[TableBucket, int] = field(default_factory=dict)
    drops: int | None = None
    kind: str = "moment"

    def leaves(self, lost: LostRecords) -> bool:
        """Return whether some of the records are at or behind it."""
        offset = self._offset(lost)
        if offset is not None:
            return lost.reach(offset)
        if self.drops is not None:
            return lost.number > self.drops
        return lost.last_ms is None or lost.last_ms >= self.from_ms

    def takes(self, lost: LostRecords, begin: int) -> bool:
        """Return whether some of the records, from an offset on, are before it, or may be."""
        if self._follows(lost):
            return True
        offset = self._offset(lost)
        if offset is not None:
            return offset > max(begin, lost.start)
        # A partition that a point does not have was made later.
        return self.drops is None and lost.from_ms < self.from_ms

    def _follows(self, lost: LostRecords) -> bool:
        """Return whether the records were lost before its moment."""
        if self.drops is not None:
            return lost.number <= self.drops
        return self.kind != "snapshot" and lost.dropped_ms < self.from_ms

    def _offset(self, lost: LostRecords) -> int | None:
        offset = self.offsets.get(lost.bucket)
        return None if offset is not None and self.kind == "seek" and offset <= lost.start else offset


def check_dropped(
    source: TableSource, start: Any, end: Any = None, buckets: Collection[int | BucketKey] | None = None
) -> None:
    """Raise where records between two edges were lost with a dropped partition.

    Args:
        source: The table, looked at: of a partition that is dropped later, reading says that it is gone.
        start: A `Seek`, a `ReadPoint`, a time, or a lake snapshot's id.
        end: The same; None: now.
        buckets: Those asked for, as numbers or (partition, bucket); None: all.

    Raises:
        OffsetOutOfRangeError: There are such.

    Cost: for a table with partitions one call; for each lake snapshot's id one more.
    """
    if not source.info.descriptor.partitioned_by:
        return
    first, last = _edge(source, start), None if end is None else _edge(source, end)
    since = (1, first.from_ms - 1) if first.drops is None else (first.drops + 1, 0)
    lost = [
        each
        for each in lossy_drops(source.connection, source.info, *since).lost
        if buckets is None or each.bucket.bucket in buckets or (each.partition, each.bucket.bucket) in buckets
        if first.leaves(each) and (last is None or last.takes(each, first.offsets.get(each.bucket, 0)))
    ]
    if lost:
        raise _error(source, start, lost)


def _edge(source: TableSource, edge: Any) -> _Edge:
    if isinstance(edge, Seek):
        return _Edge(edge.moment_ms, {_bucket(edge, each): each.offset for each in edge.buckets}, kind="seek")
    if isinstance(edge, ReadPoint):
        stops = {_bucket(edge, each): each.stop for each in edge.buckets}
        return _Edge(edge.moment_ms + 1, stops, edge.lossy_drops)
    number = whole_number(edge)
    if number is not None and (moment := snapshot_moment(source, number)) is not None:
        stops = {_bucket(source.info, each): each.stop for each in moment.stops.values()}
        return _Edge(0 if moment.time_ms is None else moment.time_ms + 1, stops, kind="snapshot")
    return _Edge(parse_moment(edge, source.connection.time_zone))


def _bucket(table: Seek | ReadPoint | TableInfo, place: SeekBucket | PointBucket) -> TableBucket:
    return TableBucket(table.table_id, place.partition_id, place.bucket)


def _error(source: TableSource, start: Any, lost: Sequence[LostRecords]) -> OffsetOutOfRangeError:
    first, names = lost[0], {each.partition for each in lost}
    others = f" (and {len(names) - 1} more partitions)" if len(names) > 1 else ""
    latest_ms = max(each.dropped_ms for each in lost)
    return OffsetOutOfRangeError(
        f"table {source.info.path}: the records from {shown_moment(start)} on are no longer available: partition {first.partition!r} "
        f"was dropped at {format_moment(first.dropped_ms)} with some of them that the lake does not hold{others}; start after "
        f"{format_moment(latest_ms)}, or give the offsets of the buckets to be read"
    )
