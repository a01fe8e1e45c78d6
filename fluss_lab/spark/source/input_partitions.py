"""The input partitions of a read: pieces of a plan, as JSON, so that every core gets some and any task may be run again.

A piece of a bucket is a range of its offsets. Of a primary-key table every piece is of the bucket as it is at the plan's
stop, so each looks through the log's tail for what ended rows; a bucket is cut only as long as that is the smaller part
of the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Final, TypeVar

import msgspec

from fluss_lab.lake import LakeSplit, splits_from_json, splits_to_json
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.model.json_codec import Whole, decode, encode
from fluss_lab.read.changelog.changelog import ChangelogRange
from fluss_lab.read.filter.filter_compiler import Filter
from fluss_lab.read.union.read_parts import BucketPart, Plan
from fluss_lab.read.union.read_plan import known_values

T = TypeVar("T")

#: Records of one task: enough to be worth one (some 100 ms), few enough that all cores get some and one may fail.
TASK_RECORDS_MIN: Final = 100_000
TASK_RECORDS_MAX: Final = 2_000_000
#: A task may have so much more than its share before another one is made for a small piece.
_OVERFULL: Final = 1.25


@dataclass(frozen=True, slots=True)
class Share:
    """What one task reads of a scan: some buckets' parts, of one lake snapshot."""

    parts: tuple[BucketPart, ...]
    snapshot_id: int | None

    def to_json(self) -> str:
        """Return the share as text. Filters stay out: the whole one goes with the task."""
        parts = [
            _TaskPart(
                part.bucket,
                part.partition,
                part.start,
                part.lake_stop,
                part.stop,
                part.row_stop,
                part.live,
                len(part.splits),
            )
            for part in self.parts
        ]
        splits = splits_to_json(split for part in self.parts for split in part.splits)
        return encode(_TaskShare(self.snapshot_id, parts, splits)).decode()

    @staticmethod
    def from_json(text: str, info: TableInfo, where: Filter | None) -> Share:
        """Read what `to_json` gave.

        Args:
            where: The whole filter; what is left of it in each bucket is decided anew.

        Raises:
            CorruptDataError: The text is none.
        """
        value = decode(_TaskShare, text, "share of a scan", shown=True)
        splits = iter(splits_from_json(value.splits))
        parts = (
            BucketPart(
                each.bucket, each.partition, each.start, each.lake_stop, each.stop,
                _left_filter(info, where, each.partition, each.bucket.bucket), tuple(islice(splits, each.files)),
                each.row_stop, each.live,
            )
            for each in value.parts
        )  # fmt: skip
        return Share(tuple(parts), value.snapshot_id)

    def plan(self) -> Plan:
        """Return the share as a plan of its own."""
        return Plan(self.parts, self.snapshot_id)


class _TaskPart(msgspec.Struct, array_like=True):
    """A part as it travels: without its filter, and with the number of its files."""

    bucket: TableBucket
    partition: str | None
    start: Whole
    lake_stop: Whole
    stop: Whole
    row_stop: Whole | None
    live: bool
    files: Whole


class _TaskShare(msgspec.Struct):
    """A share as it travels; the files of all parts in a row."""

    snapshot_id: int | None
    parts: list[_TaskPart]
    splits: str


def _left_filter(info: TableInfo, where: Filter | None, partition: str | None, bucket: int) -> Filter | None:
    left = where.decide(known_values(info, partition, bucket)) if where is not None else None
    return left if isinstance(left, Filter) else None


def row_shares(plan: Plan, tasks: int, *, keyed: bool, records_min: int = TASK_RECORDS_MIN) -> list[Share]:
    """Return a plan divided among tasks, in reading order.

    Args:
        plan: The whole.
        tasks: How many are wanted at least, when there is enough to read.
        keyed: Whether it is a primary-key table's.
        records_min: How many are enough for a task.
    """
    size = _size(sum(_rows(part) for part in plan.parts), tasks, records_min)
    pieces = [piece for part in plan.parts for piece in _pieces(part, size, keyed)]
    packed = _pack([(piece, _rows(piece)) for piece in pieces], size)
    return [Share(tuple(parts), plan.snapshot_id) for parts in packed]


def change_shares(
    ranges: Sequence[ChangelogRange], tasks: int, *, whole: bool, records_min: int = TASK_RECORDS_MIN
) -> list[list[ChangelogRange]]:
    """Return ranges of a changelog divided among tasks.

    Args:
        ranges: The whole.
        tasks: How many are wanted at least, when there is enough to read.
        whole: Whether a range must not be cut.
        records_min: How many are enough for a task.
    """
    size = _size(sum(each.stop - each.start for each in ranges), tasks, records_min)
    pieces: list[tuple[ChangelogRange, int]] = []
    for each in ranges:
        count = 1 if whole else -(-(each.stop - each.start) // size)
        for start, stop in _even(each.start, each.stop, count):
            lake_stop = min(max(each.lake_stop, start), stop)
            pieces.append((replace(each, start=start, lake_stop=lake_stop, stop=stop), stop - start))
    return _pack(pieces, size)


def ranges_to_json(ranges: Iterable[ChangelogRange]) -> str:
    """Return ranges of a changelog as text that `ranges_from_json` reads."""
    return encode(list(ranges)).decode()


def ranges_from_json(text: str) -> list[ChangelogRange]:
    """Read what `ranges_to_json` gave.

    Raises:
        CorruptDataError: The text is none.
    """
    return decode(list[ChangelogRange], text, "ranges of a changelog", shown=True)


# -- cutting and packing ----------------------------------------------------------------------------------------------


def _size(total: int, tasks: int, records_min: int) -> int:
    return min(max(-(-total // max(1, tasks)), records_min), TASK_RECORDS_MAX)


def _rows(part: BucketPart) -> int:
    """Return about how many rows reading a part comes to."""
    tail = part.stop - part.log_start
    return sum(_rows_within(split, part.start, part.row_stop) for split in part.splits) + tail


def _rows_within(split: LakeSplit, start: int, row_stop: int | None) -> int:
    """Return about how many rows of a file lie in a range: as if its offsets were spread evenly."""
    width = split.max_offset - split.min_offset + 1
    high = split.max_offset + 1 if row_stop is None else min(row_stop, split.max_offset + 1)
    return split.rows * max(0, high - max(start, split.min_offset)) // width


def _pieces(part: BucketPart, size: int, keyed: bool) -> list[BucketPart]:
    count = -(-_rows(part) // size)
    if count <= 1:
        return [part]
    if not keyed:
        return [_clip(part, start, stop) for start, stop in _even(part.start, part.stop, count)]
    lake = sum(_rows_within(split, part.start, part.row_stop) for split in part.splits)
    tail = part.stop - part.log_start
    edges = _row_edges(part, min(count, max(1, lake // max(1, tail))))
    return [
        replace(
            part,
            start=start,
            row_stop=part.row_stop if stop == edges[-1] else stop,
            splits=tuple(each for each in part.splits if each.max_offset >= start and each.min_offset < stop),
        )
        for start, stop in pairwise(edges)
    ]


def _clip(part: BucketPart, start: int, stop: int) -> BucketPart:
    """Return a range of a log table's part."""
    lake_stop = min(max(part.lake_stop, start), stop)
    splits = tuple(each for each in part.splits if each.max_offset >= start and each.min_offset < lake_stop)
    return replace(part, start=start, lake_stop=lake_stop, stop=stop, splits=splits)


def _row_edges(part: BucketPart, count: int) -> list[int]:
    """Return the offsets between which pieces with about as many of the files' rows each lie; the last is the stop."""
    counted = [(max(each.min_offset, part.start), each, _rows_within(each, part.start, None)) for each in part.splits]
    total = sum(rows for _, _, rows in counted)
    edges, done = [part.start], 0
    for low, split, rows in counted:
        while len(edges) < count and rows and (wanted := total * len(edges) // count) < done + rows:
            edge = low + (split.max_offset + 1 - low) * (wanted - done) // rows
            # Files may overlap, and an edge may fall on the one before it: then there is a piece less.
            if edge <= edges[-1] or edge >= part.lake_stop:
                count -= 1
                continue
            edges.append(edge)
        done += rows
    return [*edges, part.stop]


def _even(start: int, stop: int, count: int) -> list[tuple[int, int]]:
    """Return a range cut into so many of about the same length."""
    edges = [start + (stop - start) * number // count for number in range(count + 1)]
    return list(pairwise(edges))


def _pack(pieces: Sequence[tuple[T, int]], size: int) -> list[list[T]]:
    """Return pieces in order, small ones together."""
    tasks: list[list[T]] = []
    filled = 0
    for piece, rows in pieces:
        if not tasks or filled + rows > size * _OVERFULL:
            tasks.append([])
            filled = 0
        tasks[-1].append(piece)
        filled += rows
    return tasks
