"""The answers about grids: pages of rows at a read point, their number, facts of columns, one row with its place."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa

from fluss_lab.errors import InvalidRequestError, TableNotFoundError
from fluss_lab.explorer.explorer_answers import Answer, Steps, cut_to_size
from fluss_lab.explorer.explorer_requests import (
    PAGE_COLUMNS_MAX,
    CountRequest,
    FactsRequest,
    PageRequest,
    RowRequest,
    RowsRequest,
)
from fluss_lab.explorer.screens.column_facts import SAMPLE_BUCKETS, SAMPLE_BYTES, SAMPLE_ROWS, column_facts
from fluss_lab.explorer.screens.grid_rows import GridRows
from fluss_lab.explorer.screens.row_place import row_place
from fluss_lab.explorer.screens.shown_tables import ShownTables, given_moment
from fluss_lab.explorer.screens.table_answers import column_kind
from fluss_lab.explorer.texts import code_lines
from fluss_lab.explorer.texts.cell_texts import CELL_LENGTH_MAX, WHOLE_LENGTH_MAX, cell_texts
from fluss_lab.explorer.texts.typed_numbers import typed_number
from fluss_lab.model import TableInfo
from fluss_lab.read.filter.filter_compiler import compile_filter, prepare_sql
from fluss_lab.read.union.row_pages import RowPage

FoundT = TypeVar("FoundT")

#: Grids whose read points are kept: the present one, and those that a person goes back to.
GRIDS_MAX: Final = 6
#: Columns of a page that names none.
_COLUMNS_FIRST: Final = 30
#: What there is of a page is said after so long, and again each time after twice as long.
_PART_AFTER_S: Final = 0.3
#: How many rows are known is said so often while they are counted.
_COUNT_SAID_S: Final = 0.25


class RowAnswers:
    """What a view shows of rows. For one thread.

    Args:
        tables: Those that requests mean.

    Attributes:
        grids: What is kept, by the name of its read point; the last used is the last.
    """

    def __init__(self, tables: ShownTables) -> None:
        self._tables = tables
        self.grids: dict[str, GridRows] = {}
        self._points = 0

    def _grid(self, request: RowsRequest) -> tuple[str, GridRows]:
        """Return the read that a request means, and the name of its read point: a new one for a point that is not known.

        Raises:
            InvalidFilterError: The condition is none, or looks at what is hidden.
        """
        if request.point is not None and (known := self.grids.pop(request.point, None)) is not None:
            self.grids[request.point] = known
            return request.point, known
        info = self._tables.info(request)
        compile_filter(request.where or None, self._tables.mask.visible_schema(info.schema))
        grid = GridRows(self._tables.table(info), request.where, given_moment(request.as_of))
        if grid.point.table_id != info.table_id:
            raise TableNotFoundError(f"table {info.path} was dropped; the one of that path now is another")
        self._points += 1
        name = f"p{self._points}"
        self.grids[name] = grid
        while len(self.grids) > GRIDS_MAX:
            self.grids.pop(next(iter(self.grids))).close()
        return name, grid

    def _columns(self, info: TableInfo, asked: Sequence[str] | None) -> list[str]:
        """Return the names asked for, in their order, without what is hidden or is not there."""
        names = self._tables.visible_names(info)
        if asked is None:
            return names[:_COLUMNS_FIRST]
        known = set(names)
        return [name for name in dict.fromkeys(asked) if name in known][:PAGE_COLUMNS_MAX]

    def page(self, request: PageRequest) -> Steps:
        """Yield what a page takes, then the page: cells cut to what a message holds, and where each row is from.

        Of a page that takes long, its first rows are an answer too, marked ``partial``.
        """
        name, grid = self._grid(request)
        columns = self._columns(grid.info, request.columns)
        if not request.count:
            yield self._page(name, grid, request, columns, None)
            return
        begun_s, wait_s, sent = time.monotonic(), _PART_AFTER_S, 0
        for page in grid.page(request.first, request.count, columns):
            if page is not None:
                yield self._page(name, grid, request, columns, page)
                return
            known = grid.at_least - request.first
            if not sent < known < request.count or time.monotonic() - begun_s < wait_s:
                yield None
                continue
            part = yield from _last(grid.page(request.first, known, columns))
            yield self._page(name, grid, request, columns, part) | {"partial": True}
            wait_s, sent = 2 * wait_s, known

    def _page(
        self, name: str, grid: GridRows, request: PageRequest, columns: list[str], page: RowPage | None
    ) -> Answer:
        info = grid.info
        shown = self._tables.code_columns(info, request.shown)
        made = _page_maker(page, columns, self._tables.time_zone)
        answer = {
            "point": _point(name, grid),
            "from": request.first,
            "columns": columns,
            "code": code_lines.rows_code(info.path, shown, request.where, given_moment(request.as_of)),
            **_number(grid),
        }
        return cut_to_size(lambda length: answer | made(length), CELL_LENGTH_MAX)

    def count(self, request: CountRequest) -> Steps:
        """Yield how many rows a grid has, as far as is known, until all are counted."""
        name, grid = self._grid(request)
        said_s = time.monotonic()
        for _ in grid.count():
            if time.monotonic() - said_s < _COUNT_SAID_S:
                yield None
                continue
            yield {"point": _point(name, grid), **_number(grid)}
            said_s = time.monotonic()
        yield {"point": _point(name, grid), **_number(grid)}

    def facts(self, request: FactsRequest) -> Steps:
        """Yield what the facts of columns take, then the facts."""
        name, grid = self._grid(request)
        info = grid.info
        columns = self._columns(info, request.columns)
        sample: pa.Table | None = None
        if columns:
            sample = yield from _last(grid.sample(columns, SAMPLE_ROWS, SAMPLE_BYTES, SAMPLE_BUCKETS))
        rows = 0 if sample is None else sample.num_rows
        facts = []
        for column, values in zip(columns, [] if sample is None else sample.columns, strict=False):
            kind = column_kind(info.schema.column(column).type.name)
            facts.append(column_facts(column, kind, values, is_sample=grid.total is None or grid.total > rows))
            yield None
        yield {"point": _point(name, grid), "columns": facts, "rows": rows}
        prepare_sql()  # what is typed next is a condition, and nobody waits now

    def row(self, request: RowRequest) -> Steps:
        """Yield what one row takes, then all its values, and where it came from."""
        name, grid = self._grid(request)
        info = grid.info
        columns = self._tables.visible_names(info)
        offset = typed_number(request.offset, "row")
        found = yield from _last(grid.row((request.partition, request.bucket), offset, columns))
        if found is None or not len(found):
            raise InvalidRequestError(
                f"table {info.path}, bucket {request.bucket}: the record with offset {offset} is no row at {grid.point!r}"
            )
        zone = self._tables.time_zone
        place = row_place(grid.table, request.partition, request.bucket, offset)
        shown = self._tables.code_columns(info)
        time_column = found.places.column("__timestamp").combine_chunks()
        answer: Answer = {
            "point": _point(name, grid),
            "partition": request.partition,
            "bucket": request.bucket,
            "offset": str(offset),
            "timestamp": cell_texts(time_column, zone)[0][0],
            "place": place | {"source": str(found.places.column("_source")[0].as_py())},
            "code": code_lines.row_code(
                info.path, request.partition, request.bucket, offset, shown, is_held=place["unknown"] is None
            ),
        }
        arrays = {column: found.rows.column(column).combine_chunks() for column in columns}

        def with_values(length: int) -> Answer:
            texts = {column: cell_texts(array, zone, length) for column, array in arrays.items()}
            return answer | {"values": [[column, found[0], bool(cut)] for column, (found, cut) in texts.items()]}

        yield cut_to_size(with_values, WHOLE_LENGTH_MAX)


def _last(steps: Iterator[FoundT | None]) -> Generator[None, None, FoundT | None]:
    """Yield between steps; return what the last one gives."""
    last = None
    for found in steps:
        last = found
        yield None
    return last


def _point(name: str, grid: GridRows) -> dict[str, Any]:
    point = grid.point
    return {
        "name": name,
        "moment_ms": point.moment_ms,
        "snapshot_id": None if point.snapshot_id is None else str(point.snapshot_id),
        "table_id": str(point.table_id),
        "schema_id": point.schema_id,
        "records": str(point.records),
    }


def _number(grid: GridRows) -> dict[str, Any]:
    return {"total": grid.total, "at_least": grid.at_least}


def _page_maker(page: RowPage | None, columns: Sequence[str], zone: Any) -> Callable[[int], Answer]:
    """Return what makes the cells of a page, each of at most so many characters."""
    count = 0 if page is None else len(page)
    arrays = [] if page is None else [page.rows.column(column).combine_chunks() for column in columns]
    places = {} if page is None else {name: page.places.column(name) for name in page.places.column_names}
    times = places["__timestamp"].cast(pa.int64()).to_pylist() if places else []
    rows = [
        [partition, bucket, str(offset), None if each is None else each // 1000]
        for partition, bucket, offset, each in zip(
            *(places[name].to_pylist() for name in ("_partition", "__bucket", "__offset")), times, strict=True
        )
    ] if places else []  # fmt: skip
    source = "".join("L" if each == "lake" else "g" for each in places["_source"].to_pylist()) if places else ""

    def make(length: int) -> Answer:
        texts, cut = [], []
        for number, array in enumerate(arrays):
            found, shortened = cell_texts(array, zone, length)
            texts.append(found)
            cut += [[row, number] for row in shortened]
        cells = [list(row) for row in zip(*texts, strict=True)] if arrays else [[] for _ in range(count)]
        return {"cells": cells, "cut": cut, "rows": rows, "source": source}

    return make
