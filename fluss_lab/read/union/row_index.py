"""The index of a scan's rows: which numbers they have, and where a read finds them, as far as was seen or metadata tell."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from fluss_lab.read.moment.log_retention import is_vouched
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.read_parts import BucketPart, Plan

#: A mark is kept for each so many rows at first, and where a filter leaves few, for each so many offsets: reading so many
#: again takes some milliseconds.
MARK_ROWS: Final = 512
MARK_OFFSETS: Final = 65_536
#: Of more marks every second one is dropped, again and again: 100 bytes each.
MARKS_MAX: Final = 8_192


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A row, and where a read finds it: the part, and the first offset that is read of it."""

    row: int
    part: int
    offset: int


def _row_of(mark: Mark) -> int:
    return mark.row


class RowIndex:
    """Where the rows of a planned read are. Used by one thread.

    Args:
        source: The table.
        plan: What is read.
        limit: So many rows are wanted; None: all.
    """

    def __init__(self, source: TableSource, plan: Plan, limit: int | None) -> None:
        self._parts, self._limit = plan.parts, limit
        self._counts = [_row_count(source, part) for part in plan.parts]
        #: Number of the first row of each part, as far as it is known; behind the last, of the rows in all.
        self._firsts: list[int | None] = [0, *[None] * len(plan.parts)]
        self._marks: list[Mark] = []
        self._mark_rows, self._mark_offsets = MARK_ROWS, MARK_OFFSETS
        #: Rows up to the last that was seen.
        self.seen = 0
        self._learn(0)

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def total(self) -> int | None:
        """Return how many rows there are; None while that is not known."""
        total = self._firsts[-1]
        if self._limit is None:
            return total
        if total is not None:
            return min(total, self._limit)
        return self._limit if self.at_least >= self._limit else None

    @property
    def at_least(self) -> int:
        """Return how many rows there are at least."""
        known = max(self.seen, *(first for first in self._firsts if first is not None))
        return known if self._limit is None else min(known, self._limit)

    def nearest(self, row: int) -> Mark:
        """Return the last row known that is not behind one."""
        number = max(at for at, first in enumerate(self._firsts[:-1]) if first is not None and first <= row)
        part, first = self._parts[number], self._firsts[number]
        assert first is not None
        start = Mark(first, number, part.start)
        if self._counts[number] == part.stop - part.start:  # each offset is a row
            start = Mark(row, number, part.start + row - first)
        mark = self._nearest_mark(row)
        return start if mark is None else max(start, mark)

    def reach(self, part: int, row: int) -> None:
        """Learn that a part begins with a row: what is before it was read."""
        self._firsts[part] = row
        self._learn(part)

    def note(self, part: int, first_row: int, offsets: pa.Array) -> None:
        """Learn where rows of a part are, from `first_row` on; they follow what was known. Marks are kept of some."""
        step, stop_row = self._mark_rows, first_row + len(offsets)
        self.seen = max(self.seen, stop_row)
        before = self._nearest_mark(first_row)
        begin = int(offsets[0].as_py())
        if before is None or before.part != part or begin - before.offset >= self._mark_offsets:
            self._add(Mark(first_row, part, begin))
        for row in range(-(-first_row // step) * step, stop_row, step):
            self._add(Mark(row, part, int(offsets[row - first_row].as_py())))
        while len(self._marks) > MARKS_MAX:
            self._mark_rows, self._mark_offsets = 2 * self._mark_rows, 2 * self._mark_offsets
            self._marks = self._marks[::2]

    def _learn(self, part: int) -> None:
        """Follow the numbers of first rows from a part on, as far as the parts' counts are known."""
        for number in range(part, len(self._counts)):
            first, count = self._firsts[number], self._counts[number]
            if first is None or count is None:
                return
            self._firsts[number + 1] = first + count

    def _add(self, mark: Mark) -> None:
        at = bisect_left(self._marks, mark.row, key=_row_of)
        if at == len(self._marks) or self._marks[at].row != mark.row:
            self._marks.insert(at, mark)

    def _nearest_mark(self, row: int) -> Mark | None:
        at = bisect_right(self._marks, row, key=_row_of)
        return self._marks[at - 1] if at else None


def _row_count(source: TableSource, part: BucketPart) -> int | None:
    """Return how many rows a part has, where metadata tell it; None else."""
    if not source.info.is_log_table or not is_vouched(source, part):
        return None
    return part.record_count
