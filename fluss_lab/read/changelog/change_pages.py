"""The pages of a changelog in the order of times: records of all buckets, before or after those that are there already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fluss_lab.model.names import BucketKey
from fluss_lab.read.changelog.changelog import BUCKET, COMMIT_TIMESTAMP, LOG_OFFSET, PARTITION

#: By bucket, offsets ``[start, stop)``.
Offsets = Mapping[BucketKey, tuple[int, int]]
#: Where a record is in the order: its time, partition, bucket and offset.
Place = tuple[int, str, int, int]


@dataclass(frozen=True, slots=True)
class ChangeWindow:
    """Records that follow each other in the order of times (then partition, bucket, offset), as pages.

    Attributes:
        low: By bucket, the first offset of it, also where no record is in the window: older ones are below.
        pages: Oldest first, each with the buckets that have records in it.
    """

    low: Mapping[BucketKey, int]
    pages: tuple[Offsets, ...] = ()

    @property
    def shown(self) -> dict[BucketKey, tuple[int, int]]:
        """Return the offsets of each bucket that has records in the window."""
        found: dict[BucketKey, tuple[int, int]] = {}
        for page in self.pages:
            for key, (start, stop) in page.items():
                found[key] = (found.get(key, (start, stop))[0], stop)
        return dict(sorted(found.items(), key=lambda each: (each[0][0] or "", each[0][1])))

    @property
    def records(self) -> int:
        """Return how many records there are in the window."""
        return sum(map(_count, self.pages))

    def room(self, limits: Offsets, *, older: bool) -> dict[BucketKey, tuple[int, int]]:
        """Return what there is before the window, or after it, of each bucket that has any.

        Args:
            limits: Offsets that are held. A bucket that the window does not know was empty when it began.
            older: Whether before it.
        """
        shown, found = self.shown, {}
        for key, (least, most) in limits.items():
            low = self.low.get(key, least)
            high = shown[key][1] if key in shown else low
            start, stop = (least, min(low, most)) if older else (max(high, least), most)
            if start < stop:
                found[key] = (start, stop)
        return found

    def with_page(self, page: Offsets, *, older: bool, records_max: int) -> ChangeWindow:
        """Return the window with a page before or after it, without the pages at its other end that are too many."""
        if not page:
            return self
        low = dict(self.low)
        pages = (page, *self.pages) if older else (*self.pages, page)
        for key, (start, _) in page.items():
            low[key] = min(start, low.get(key, start))
        while len(pages) > 1 and sum(map(_count, pages)) > records_max:
            gone, pages = (pages[-1], pages[:-1]) if older else (pages[0], pages[1:])
            if not older:
                low |= {key: stop for key, (_, stop) in gone.items()}
        return ChangeWindow(low, pages)


def read_page(
    read: Callable[[Offsets], Iterable[pa.Table]], room: Offsets, records: int, *, older: bool
) -> Iterator[tuple[dict[BucketKey, tuple[int, int]], pa.Table] | None]:
    """Yield None between steps, then a page: its offsets by bucket, and its records in the order of times.

    Times never go back within a bucket, so that each bucket is read from its end of the room only as far as its records
    may be among those wanted.

    Args:
        read: Yields the records of some ranges, with the columns of a changelog; at least one table, of no records perhaps.
        room: Offsets that the page is taken from: from their ends when it is older, else from their begins.
        records: At most so many.
        older: Whether the page is the newest ones of the room, else the oldest.

    Cost: a read of each bucket of the room, and of some of them a few more; at most some multiple of `records`.
    """
    rest, edges = dict(room), dict[BucketKey, Place]()
    pieces: list[pa.Table] = []
    found: list[tuple[Place, int]] = []
    due, size, count = list(rest), max(1, -(-records // max(1, len(rest)))), 0
    while due:
        ranges = {key: _part(rest[key], size, older=older) for key in due}
        for piece in read(ranges):
            for at, place in enumerate(places(piece), count):
                found.append((place, at))
                key = (place[1] or None, place[2])
                edges[key] = min(edges.get(key, place), place) if older else max(edges.get(key, place), place)
            pieces.append(piece)
            count += piece.num_rows
            yield None
        for key, (start, stop) in ranges.items():
            rest[key] = (rest[key][0], start) if older else (stop, rest[key][1])
        found.sort(reverse=older)
        del found[records:]
        due = [key for key, (start, stop) in rest.items() if start < stop]
        if len(found) == records:
            last = found[-1][0]
            due = [key for key in due if (edges[key] > last if older else edges[key] < last)]
        size *= 2
    if older:
        found.reverse()
    rows = pa.concat_tables(pieces or read({})).take(pa.array([at for _, at in found], pa.int64()))
    yield _ranges(place for place, _ in found), rows


def places(records: pa.Table) -> list[Place]:
    """Return the place of each record of a changelog in the order of times; times in epoch milliseconds."""
    partitions: Sequence[str] = [""] * records.num_rows
    if PARTITION in records.schema.names:
        partitions = records.column(PARTITION).to_pylist()
    times = records.column(COMMIT_TIMESTAMP).cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
    buckets, offsets = records.column(BUCKET).to_pylist(), records.column(LOG_OFFSET).to_pylist()
    return list(zip(times, partitions, buckets, offsets, strict=True))


def _part(span: tuple[int, int], size: int, *, older: bool) -> tuple[int, int]:
    start, stop = span
    return (max(start, stop - size), stop) if older else (start, min(stop, start + size))


def _count(page: Offsets) -> int:
    return sum(stop - start for start, stop in page.values())


def _ranges(found: Iterator[Place]) -> dict[BucketKey, tuple[int, int]]:
    ranges: dict[BucketKey, tuple[int, int]] = {}
    for _, partition, bucket, offset in found:
        key = (partition or None, bucket)
        ranges[key] = (ranges.get(key, (offset, 0))[0], offset + 1)
    return ranges
