"""Pages of a scan at any row: rows stream on, and marks of where they lay lead back to any that was seen.

Every row of a scan has a number, its place in reading order. Where files' metadata say how many rows there are, and each
offset is one row, a row's number is its offset; elsewhere numbers are found by reading on, and a mark is kept for each so
many rows: the part and the offset where a read finds them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fluss_lab.closing import Closing
from fluss_lab.display import Grid, card
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.errors import InvalidRequestError
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.values.pandas_frames import to_pandas
from fluss_lab.read.filter.filter_compiler import SYSTEM_TYPES
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.lake_rows import STEP_ROWS_MAX
from fluss_lab.read.union.read_columns import OFFSET, SOURCE_COLUMN, TIMESTAMP, make_columns
from fluss_lab.read.union.read_parts import Plan, Request
from fluss_lab.read.union.read_plan import read_rows
from fluss_lab.read.union.row_index import Mark, RowIndex

if TYPE_CHECKING:
    import pandas as pd

#: A page of more rows is what `Scan.to_batches` is for.
PAGE_ROWS_MAX: Final = 10_000
#: Rows that were read last are kept up to so many bytes, and at least one batch, for pages that go back a little.
WINDOW_BYTES: Final = 16 * 1024 * 1024
#: A row that is further ahead than this is read up to as a whole scan is read; a nearer one with nothing read ahead.
NEAR_ROWS: Final = 65_536
#: Rows of the lake's files that are read at once for a page near by: row groups behind them are not decoded ahead.
STEP_ROWS: Final = 32_768
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


@check_arguments
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
        index: RowIndex | None = None,
    ) -> None:
        self.read_point = point
        self._source, self._plan, self._request = source, plan, request
        extra = [OFFSET, TIMESTAMP] if timestamps else [OFFSET]
        self._read_columns = make_columns(
            source.info.schema, [*dict.fromkeys([*request.columns.names, *extra])], with_source=True
        )
        self._timestamps = timestamps
        self._index = RowIndex(source, plan, request.limit) if index is None else index
        self._window: deque[_Piece] = deque()
        self._window_bytes = 0
        self._stream: Generator[tuple[int, pa.RecordBatch], None, None] | None = None
        #: The part that the stream is in, the number of the next row that it yields, and whether it reads far ahead.
        self._part, self._row, self._is_far = 0, 0, False
        #: Whose steps the stream was last moved for.
        self._turn: object = None

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
        return self._index.total

    @property
    def at_least(self) -> int:
        """Return how many rows there are at least."""
        return self._index.at_least

    def select(self, columns: Sequence[str], *, timestamps: bool = True) -> RowPages:
        """Return the same rows in other columns, as pages of their own, to close by themselves.

        What either learns of how many rows there are and where they lie, both know: one may be read on in few columns, to
        count, while pages of the other are looked at. Both are for one thread.

        Args:
            columns: User's columns, and ``__bucket``, ``__offset``, ``__timestamp``, in the order wanted.
            timestamps: Whether the places of rows have their times.

        Raises:
            InvalidSchemaError, InvalidRequestError: A column cannot be, or there is none.

        Cost: nothing is read.
        """
        before = self._request.columns
        chosen = make_columns(self._source.info.schema, columns, before.with_source)
        return RowPages(
            self._source, self._plan, self.read_point, replace(self._request, columns=chosen),
            timestamps=timestamps, index=self._index,
        )  # fmt: skip

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
        for found in self.steps(first_row, count):
            if found is not None:
                return found
            if on_batch is not None:
                on_batch(self._index.seen)
        raise AssertionError

    def steps(self, first_row: int, count: int) -> Iterator[RowPage | None]:
        """Yield None between steps of some tenths of a second at most, and at last the page; see `page`.

        It can be given up after any step, and other pages may be asked for between two: what was passed stays known.

        Raises:
            As `page`.
        """
        if first_row < 0 or not 0 < count <= PAGE_ROWS_MAX:
            raise InvalidRequestError(
                f"page: expected a first row of at least 0 and 1 to {PAGE_ROWS_MAX:,} rows, found {first_row} and {count}"
            )
        return self._steps(first_row, count)

    def _steps(self, first_row: int, count: int) -> Iterator[RowPage | None]:
        limit = self._request.limit
        stop = first_row + count if limit is None else min(first_row + count, limit)
        pieces: list[_Piece] = []
        # Behind a limit nothing is wanted, but whether there are so many is to be known.
        row = max(0, min(first_row, stop - 1))
        turn = object()
        while row < stop and (self.total is None or row < self.total):
            if self._turn is not turn:
                self._go_to(row, count)
                self._turn = turn
            piece = self._held_piece(row)
            if piece is None:
                if not self._advance():
                    break
                yield None
                continue
            part = piece.batch.slice(row - piece.first_row, stop - row)
            pieces.append(replace(piece, first_row=row, batch=part))
            row += part.num_rows
        if first_row >= stop:
            pieces.clear()
        yield RowPage(first_row, self._rows(pieces), self._places(pieces), self.total, self.at_least)

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

    # -- the stream ----------------------------------------------------------------------------------------------------

    def _go_to(self, row: int, count: int) -> None:
        """Have the stream begin at a row or before, unless the rows held or to come have it."""
        if self._window and self._window[0].first_row <= row < self._row:
            return
        mark = self._index.nearest(row)
        is_ahead = self._stream is not None and mark.row <= self._row <= row
        if is_ahead and (self._is_far or row <= self._row + NEAR_ROWS):
            return
        self._restart(mark, count if row - mark.row <= NEAR_ROWS else None)

    def _restart(self, mark: Mark | None, limit: int | None = None) -> None:
        stream, self._stream = self._stream, None
        self._window.clear()
        self._window_bytes = 0
        self._turn = None
        if stream is not None:
            stream.close()
        if mark is not None:
            self._part, self._row, self._is_far = mark.part, mark.row, limit is None
            self._stream = self._batches(mark, limit)

    def _batches(self, mark: Mark, limit: int | None) -> Generator[tuple[int, pa.RecordBatch], None, None]:
        step = STEP_ROWS_MAX if limit is None else STEP_ROWS
        request = replace(self._request, columns=self._read_columns, limit=limit, step_rows=step)
        for number in range(mark.part, len(self._plan.parts)):
            part = self._plan.parts[number]
            if number == mark.part:
                start = max(mark.offset, part.start)
                part = replace(part, start=start, lake_stop=max(start, part.lake_stop))
            for batch in read_rows(self._source, replace(self._plan, parts=(part,)), request):
                yield number, batch

    def _held_piece(self, row: int) -> _Piece | None:
        """Return what has a row, if it was read; None else."""
        return next((piece for piece in reversed(self._window) if piece.first_row <= row < piece.stop_row), None)

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
        """Take rows of a part that follow those taken last; none of a step in which there were none."""
        self._reach(number)
        if not batch.num_rows:
            return
        piece = _Piece(self._row, number, batch)
        self._index.note(number, self._row, batch.column(OFFSET))
        self._row = piece.stop_row
        self._window.append(piece)
        self._window_bytes += batch.nbytes
        while len(self._window) > 1 and self._window_bytes > WINDOW_BYTES:
            self._window_bytes -= self._window.popleft().batch.nbytes

    def _reach(self, number: int) -> None:
        """Learn where the parts up to one begin: the stream has come to it."""
        for part in range(self._part + 1, number + 1):
            self._index.reach(part, self._row)
        self._part = max(self._part, number)

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
