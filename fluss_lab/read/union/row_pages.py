"""Pages of a scan at any row: rows stream on, and marks of where they lay lead back to any that was seen.

Every row of a scan has a number, its place in reading order. Where files' metadata say how many rows there are, and each
offset is one row, a row's number is its offset; elsewhere numbers are found by reading on, and a mark is kept for each so
many rows: the part and the offset where a read finds them again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fluss_lab.closing import Closing
from fluss_lab.display import Grid, card
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.errors import InvalidRequestError
from fluss_lab.model.argument_checks import checked
from fluss_lab.model.values.pandas_frames import to_pandas
from fluss_lab.read.filter.filter_compiler import SYSTEM_TYPES
from fluss_lab.read.moment.log_retention import is_vouched
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.read_columns import OFFSET, SOURCE_COLUMN, TIMESTAMP, make_columns
from fluss_lab.read.union.read_parts import BucketPart, Plan, Request
from fluss_lab.read.union.read_plan import read_rows

if TYPE_CHECKING:
    import pandas as pd

#: A page of more rows is what `Scan.to_batches` is for.
PAGE_ROWS_MAX: Final = 10_000
#: A mark is kept for each so many rows at first, and where a filter leaves few, for each so many offsets: reading so many
#: again takes some milliseconds.
MARK_ROWS: Final = 512
MARK_OFFSETS: Final = 65_536
#: Of more marks every second one is dropped, again and again: 100 bytes each.
MARKS_MAX: Final = 8_192
#: Rows that were read last are kept up to so many bytes, and at least one batch, for pages that go back a little.
WINDOW_BYTES: Final = 16 * 1024 * 1024
#: A row that is further ahead than this is read up to as a whole scan is read; a nearer one with nothing read ahead.
NEAR_ROWS: Final = 65_536
#: Of a log table so many offsets are read at once for pages: a file's row groups behind them are not decoded ahead.
PIECE_ROWS: Final = 32_768
#: Where a filter leaves few rows, up to so many.
PIECE_ROWS_MAX: Final = 262_144
#: What a part's name is in the places of rows; the other columns are those of a scan.
PARTITION: Final = "_partition"

_PLACES: Final = pa.schema([
    pa.field(SOURCE_COLUMN, pa.string(), nullable=False),
    pa.field(PARTITION, pa.string()),
    pa.field("__bucket", SYSTEM_TYPES["__bucket"], nullable=False),
    pa.field(OFFSET, SYSTEM_TYPES[OFFSET], nullable=False),
    pa.field(TIMESTAMP, SYSTEM_TYPES[TIMESTAMP]),
])  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class RowPage:
    """Some rows of a scan, one after another, each with where it came from.

    Attributes:
        first_row: Number of the first, from 0.
        rows: The rows, in the scan's columns; fewer than asked for at the end, none behind it.
        places: As many rows: ``_source`` (``lake`` or ``log``), ``_partition`` (null without partitions), ``__bucket``,
            ``__offset``, ``__timestamp`` (null if it was not asked for).
        total: How many rows the scan has; None while that is not known.
        at_least: How many it has at least.
    """

    first_row: int
    rows: pa.Table
    places: pa.Table
    total: int | None
    at_least: int

    def __len__(self) -> int:
        return len(self.rows)

    def to_arrow(self) -> pa.Table:
        """Return the rows."""
        return self.rows

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas frame."""
        return to_pandas(self.rows)

    def __repr__(self) -> str:
        return f"<RowPage [{self.first_row}, {self.first_row + len(self)}) of {_total_text(self.total, self.at_least)}>"

    def _repr_html_(self) -> str:
        shown = self.rows.slice(0, CARD_ROWS_MAX)
        rows = [list(row) for row in zip(*(column.to_pylist() for column in shown.columns), strict=True)]
        return card(
            "RowPage",
            f"rows {self.first_row:,} to {self.first_row + len(self):,} of {_total_text(self.total, self.at_least)}",
            grid=Grid(shown.column_names, rows),
            total=len(self),
            calls=[".rows", ".places", ".to_pandas()"],
        )


def _total_text(total: int | None, at_least: int) -> str:
    return f"at least {at_least:,}" if total is None else f"{total:,}"


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows that were read: `batch` begins with row `first_row`, and is of one part."""

    first_row: int
    part: int
    batch: pa.RecordBatch

    @property
    def stop_row(self) -> int:
        return self.first_row + int(self.batch.num_rows)


@dataclass(frozen=True, slots=True, order=True)
class _Mark:
    """A row, and where a read finds it: the part, and the first offset that is read of it."""

    row: int
    part: int
    offset: int


def _row_of(mark: _Mark) -> int:
    return mark.row


@checked
class RowPages(Closing):
    """Pages of one scan, at one read point, in its order: by partition name, bucket and offset. Close it.

    Of a primary-key table a row has the offset of the record that wrote it: so the rows of a bucket come by when they were
    last changed. Used by one thread. Made by `Scan.pages`.

    Attributes:
        read_point: The moment that is read.
        total: How many rows there are: at once of a log table without a filter that looks into rows; of others once the
            end was reached, None before.
        at_least: How many there are at least: those that were seen, or that metadata tell.

    Memory: marks of about a megabyte, `WINDOW_BYTES` of rows, and what a scan itself holds.
    """

    def __init__(
        self,
        source: TableSource,
        plan: Plan,
        point: ReadPoint,
        request: Request,
        *,
        timestamps: bool,
    ) -> None:
        self.read_point = point
        self._source, self._plan, self._request = source, plan, request
        extra = [OFFSET, TIMESTAMP] if timestamps else [OFFSET]
        self._read_columns = make_columns(
            source.info.schema, [*dict.fromkeys([*request.columns.names, *extra])], with_source=True
        )
        self._timestamps = timestamps
        self._counts = [_row_count(source, part) for part in plan.parts]
        #: Number of the first row of each part, as far as it is known; behind the last, of the rows in all.
        self._firsts: list[int | None] = [0, *[None] * len(plan.parts)]
        self._marks: list[_Mark] = []
        self._mark_rows, self._mark_offsets = MARK_ROWS, MARK_OFFSETS
        self._window: deque[_Piece] = deque()
        self._window_bytes = 0
        self._stream: Generator[tuple[int, pa.RecordBatch], None, None] | None = None
        #: The part that the stream is in, and the number of the next row that it yields.
        self._part, self._row = 0, 0
        self._seen = 0
        self._learn(0)

    def close(self) -> None:
        """Let go of the files that are open and of the rows that are held. Twice is fine."""
        self._restart(None)

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows."""
        return self._request.columns.schema()

    @property
    def total(self) -> int | None:
        """Return how many rows there are; None while that is not known."""
        total = self._firsts[-1]
        if self._request.limit is None:
            return total
        if total is not None:
            return min(total, self._request.limit)
        return self._request.limit if self.at_least >= self._request.limit else None

    @property
    def at_least(self) -> int:
        """Return how many rows there are at least."""
        known = max(self._seen, *(first for first in self._firsts if first is not None))
        return known if self._request.limit is None else min(known, self._request.limit)

    def page(self, first_row: int, count: int, *, on_batch: Callable[[int], object] | None = None) -> RowPage:
        """Return rows ``[first_row, first_row + count)``, those of them that there are.

        Args:
            first_row: Number of the first, from 0.
            count: How many, at most 10,000.
            on_batch: Called between batches with how many rows are known so far; what it raises ends the call. What was
                passed until then stays known.

        Raises:
            InvalidRequestError: A number that cannot be.
            OffsetOutOfRangeError: Records of the read point are held nowhere any more.

        Cost: a page behind the last one reads on. Elsewhere: from the nearest row before that is known, which of a log
        table without a filter is the page's own, and of rows that were seen at most some thousands before it; of rows that
        were not seen, all between.
        """
        if first_row < 0 or not 0 < count <= PAGE_ROWS_MAX:
            raise InvalidRequestError(
                f"page: expected a first row of at least 0 and 1 to {PAGE_ROWS_MAX:,} rows, found {first_row} and {count}"
            )
        stop = first_row + count if self._request.limit is None else min(first_row + count, self._request.limit)
        pieces: list[_Piece] = []
        row = first_row
        if self.total is None or first_row < self.total:
            self._go_to(min(first_row, stop - 1), count)
            if first_row >= stop:
                self._holding(stop - 1, on_batch)  # behind the limit: whether there are so many is to be known
            while row < stop and (piece := self._holding(row, on_batch)) is not None:
                part = piece.batch.slice(row - piece.first_row, stop - row)
                pieces.append(replace(piece, first_row=row, batch=part))
                row += part.num_rows
        return RowPage(first_row, self._rows(pieces), self._places(pieces), self.total, self.at_least)

    def __repr__(self) -> str:
        return f"<RowPages of {self.read_point!r}: {_total_text(self.total, self.at_least)} rows>"

    def _repr_html_(self) -> str:
        return card(
            "RowPages",
            self._source.info.path,
            [
                ("rows", _total_text(self.total, self.at_least)),
                ("columns", len(self.schema)),
                ("parts", len(self._plan.parts)),
            ],
            last=f"At {self.read_point!r}.",
            calls=[".page(0, 100)"],
        )

    # -- where rows are ------------------------------------------------------------------------------------------------

    def _learn(self, part: int) -> None:
        """Follow the numbers of first rows from a part on, as far as the parts' counts are known."""
        for number in range(part, len(self._counts)):
            first, count = self._firsts[number], self._counts[number]
            if first is None or count is None:
                return
            self._firsts[number + 1] = first + count

    def _nearest(self, row: int) -> _Mark:
        """Return the last row known that is not behind one."""
        number = max(at for at, first in enumerate(self._firsts[:-1]) if first is not None and first <= row)
        part, first = self._plan.parts[number], self._firsts[number]
        assert first is not None
        start = _Mark(first, number, part.start)
        if self._is_dense(number):
            start = _Mark(row, number, part.start + row - first)
        mark = self._nearest_mark(row)
        return start if mark is None else max(start, mark)

    def _mark(self, piece: _Piece) -> None:
        """Keep marks of rows that have none."""
        step, first = self._mark_rows, piece.first_row
        before = self._nearest_mark(first)
        begin = int(piece.batch.column(OFFSET)[0].as_py())
        if before is None or before.part != piece.part or begin - before.offset >= self._mark_offsets:
            self._add_mark(piece, first)
        for row in range(-(-first // step) * step, piece.stop_row, step):
            self._add_mark(piece, row)
        while len(self._marks) > MARKS_MAX:
            self._mark_rows, self._mark_offsets = 2 * self._mark_rows, 2 * self._mark_offsets
            self._marks = self._marks[::2]

    def _add_mark(self, piece: _Piece, row: int) -> None:
        at = bisect_left(self._marks, row, key=_row_of)
        if at == len(self._marks) or self._marks[at].row != row:
            offset = int(piece.batch.column(OFFSET)[row - piece.first_row].as_py())
            self._marks.insert(at, _Mark(row, piece.part, offset))

    def _nearest_mark(self, row: int) -> _Mark | None:
        at = bisect_right(self._marks, row, key=_row_of)
        return self._marks[at - 1] if at else None

    # -- the stream ----------------------------------------------------------------------------------------------------

    def _go_to(self, row: int, count: int) -> None:
        """Have the stream begin at a row or before, unless the rows held or to come have it."""
        if self._window and self._window[0].first_row <= row < self._row:
            return
        mark = self._nearest(row)
        if self._stream is not None and mark.row <= self._row <= row <= self._row + NEAR_ROWS:
            return
        self._restart(mark, count if row - mark.row <= NEAR_ROWS else None)

    def _restart(self, mark: _Mark | None, limit: int | None = None) -> None:
        stream, self._stream = self._stream, None
        self._window.clear()
        self._window_bytes = 0
        if stream is not None:
            stream.close()
        if mark is not None:
            self._part, self._row = mark.part, mark.row
            self._stream = self._batches(mark, limit)

    def _batches(self, mark: _Mark, limit: int | None) -> Generator[tuple[int, pa.RecordBatch], None, None]:
        request = replace(self._request, columns=self._read_columns, limit=limit)
        for number in range(mark.part, len(self._plan.parts)):
            part = self._plan.parts[number]
            if number == mark.part:
                part = replace(part, start=max(mark.offset, part.start))
            for piece in self._pieces(number, part, limit):
                for batch in read_rows(self._source, replace(self._plan, parts=(piece,)), request):
                    yield number, batch

    def _pieces(self, number: int, part: BucketPart, limit: int | None) -> Iterator[BucketPart]:
        """Yield what is read of a part at once: of a log table where pages are wanted, some pages of it.

        Where a filter leaves rows out, pieces grow, so that one that leaves few ends soon too.
        """
        step = PIECE_ROWS if limit is not None and self._source.info.is_log_table else part.stop
        start = part.start
        while start < part.stop:
            stop = min(start + step, part.stop)
            yield replace(part, start=start, stop=stop, lake_stop=max(start, min(part.lake_stop, stop)))
            start = stop
            if not self._is_dense(number):
                step = min(2 * step, PIECE_ROWS_MAX)

    def _is_dense(self, number: int) -> bool:
        """Return whether each offset of a part is one row."""
        part = self._plan.parts[number]
        return self._counts[number] == part.stop - part.start

    def _holding(self, row: int, on_batch: Callable[[int], object] | None) -> _Piece | None:
        """Return what has a row, read if need be; None behind the end."""
        while self._row <= row:
            if not self._advance():
                return None
            if on_batch is not None:
                on_batch(self._seen)
        return next(piece for piece in reversed(self._window) if piece.first_row <= row)

    def _advance(self) -> bool:
        """Take the next batch; return whether there was one."""
        if self._stream is None:
            return False
        try:
            found = next(self._stream, None)
            if found is None:
                self._reach(len(self._plan.parts))
                self._stream = None
            else:
                self._take(*found)
        except BaseException:
            self._restart(None)
            raise
        return found is not None

    def _take(self, number: int, batch: pa.RecordBatch) -> None:
        """Take rows of a part that follow those taken last."""
        self._reach(number)
        piece = _Piece(self._row, number, batch)
        self._mark(piece)
        self._row = piece.stop_row
        self._seen = max(self._seen, self._row)
        self._window.append(piece)
        self._window_bytes += batch.nbytes
        while len(self._window) > 1 and self._window_bytes > WINDOW_BYTES:
            self._window_bytes -= self._window.popleft().batch.nbytes

    def _reach(self, number: int) -> None:
        """Learn where the parts up to one begin: the stream has come to it."""
        for part in range(self._part + 1, number + 1):
            self._firsts[part] = self._row
        if number > self._part:
            self._part = number
            self._learn(number)

    # -- pages ---------------------------------------------------------------------------------------------------------

    def _rows(self, pieces: list[_Piece]) -> pa.Table:
        schema = self.schema
        rows = pa.Table.from_batches([piece.batch.select(schema.names) for piece in pieces], schema)
        return rows.take(pa.array(range(len(rows)), pa.int64()))  # a copy: a slice would keep its whole batch in memory

    def _places(self, pieces: list[_Piece]) -> pa.Table:
        places = pa.Table.from_batches([self._place(piece) for piece in pieces], _PLACES)
        return places.take(pa.array(range(len(places)), pa.int64()))

    def _place(self, piece: _Piece) -> pa.RecordBatch:
        part, batch = self._plan.parts[piece.part], piece.batch
        count = batch.num_rows
        times = batch.column(TIMESTAMP) if self._timestamps else pa.nulls(count, SYSTEM_TYPES[TIMESTAMP])
        arrays = [
            batch.column(SOURCE_COLUMN),
            pa.nulls(count, pa.string()) if part.partition is None else pa.repeat(part.partition, count),
            pa.repeat(pa.scalar(part.bucket.bucket, SYSTEM_TYPES["__bucket"]), count),
            batch.column(OFFSET),
            times,
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=_PLACES)


def _row_count(source: TableSource, part: BucketPart) -> int | None:
    """Return how many rows a part has, where metadata tell it; None else."""
    if not source.info.is_log_table or not is_vouched(source, part):
        return None
    return part.record_count
