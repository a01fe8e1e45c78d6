"""The answers about grids: pages of rows at a read point, their number, facts of columns, one row with its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

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
from fluss_lab.explorer.screens.column_facts import SAMPLE_BUCKETS, SAMPLE_ROWS, column_facts
from fluss_lab.explorer.screens.grid_rows import GridRows, Piece
from fluss_lab.explorer.screens.row_place import row_place
from fluss_lab.explorer.screens.shown_tables import ShownTables, given_moment
from fluss_lab.explorer.screens.table_answers import column_kind
from fluss_lab.explorer.texts import code_lines
from fluss_lab.explorer.texts.cell_texts import CELL_LENGTH_MAX, WHOLE_LENGTH_MAX, cell_texts
from fluss_lab.model import TableInfo
from fluss_lab.read.filter.filter_compiler import compile_filter

#: Grids whose read points are kept: the present one, and those that a person goes back to.
GRIDS_MAX: Final = 6
#: Columns of a page that names none.
_COLUMNS_FIRST: Final = 30


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
        table = self._tables.table(info)
        pages = GridRows(table, table.read_point(given_moment(request.as_of)), request.where)
        if pages.point.table_id != info.table_id:
            raise TableNotFoundError(f"table {info.path} was dropped; the one of that path now is another")
        self._points += 1
        name = f"p{self._points}"
        self.grids[name] = pages
        while len(self.grids) > GRIDS_MAX:
            del self.grids[next(iter(self.grids))]
        return name, pages

    def _columns(self, info: TableInfo, asked: Sequence[str] | None) -> list[str]:
        """Return the names asked for, in their order, without what is hidden or is not there."""
        names = self._tables.visible_names(info)
        if asked is None:
            return names[:_COLUMNS_FIRST]
        known = set(names)
        return [name for name in dict.fromkeys(asked) if name in known][:PAGE_COLUMNS_MAX]

    def page(self, request: PageRequest) -> Steps:
        """Yield what a page takes, then the page: cells cut to what a message holds, and where each row is from."""
        name, pages = self._grid(request)
        info = pages.table.info
        columns = self._columns(info, request.columns)
        pieces: list[Piece] | None = None
        for pieces in pages.page(request.first, request.count, columns):
            if pieces is None:
                yield None
        shown = self._tables.code_columns(info, request.shown)
        code = code_lines.rows_code(info.path, shown, request.where, given_moment(request.as_of))
        made = _page_maker(pieces or [], columns, self._tables.time_zone)
        answer = {
            "point": _point(name, pages),
            "from": request.first,
            "columns": columns,
            "code": code,
            **_number(pages),
        }
        yield cut_to_size(lambda length: answer | made(length), CELL_LENGTH_MAX)

    def count(self, request: CountRequest) -> Steps:
        """Yield how many rows a grid has, as far as is known, until all are counted."""
        name, pages = self._grid(request)
        for number, _ in enumerate(pages.count()):
            yield {"point": _point(name, pages), **_number(pages)} if number % 16 == 15 else None
        yield {"point": _point(name, pages), **_number(pages)}

    def facts(self, request: FactsRequest) -> Steps:
        """Yield what the facts of columns take, then the facts."""
        name, pages = self._grid(request)
        info = pages.table.info
        columns = self._columns(info, request.columns)
        sample: Any = None
        for found in pages.sample(columns, SAMPLE_ROWS, SAMPLE_BUCKETS):
            sample = found
            yield None
        rows = 0 if sample is None else sample.num_rows
        facts = []
        for column in columns if sample is not None else []:
            kind = column_kind(info.schema.column(column).type.name)
            facts.append(
                column_facts(column, kind, sample.column(column), is_sample=pages.total is None or pages.total > rows)
            )
            yield None
        yield {"point": _point(name, pages), "columns": facts, "rows": rows}

    def row(self, request: RowRequest) -> Answer:
        """Return one row: all its values, and where it came from."""
        name, pages = self._grid(request)
        info = pages.table.info
        columns = self._tables.visible_names(info)
        offset = int(request.offset)
        found = pages.row((request.partition, request.bucket), offset, columns)
        if found is None:
            raise InvalidRequestError(
                f"table {info.path}, bucket {request.bucket}: the record with offset {offset} is no row at {pages.point!r}"
            )
        zone = self._tables.time_zone
        place = row_place(
            pages.table, request.partition, request.bucket, offset, str(found.column("_source")[0].as_py())
        )
        shown = self._tables.code_columns(info)
        answer: Answer = {
            "point": _point(name, pages),
            "partition": request.partition,
            "bucket": request.bucket,
            "offset": str(offset),
            "timestamp": cell_texts(found.column("__timestamp").combine_chunks(), zone)[0][0],
            "place": place,
            "code": code_lines.row_code(info.path, request.partition, request.bucket, offset, shown),
        }
        arrays = {column: found.column(column).combine_chunks() for column in columns}

        def with_values(length: int) -> Answer:
            texts = {column: cell_texts(array, zone, length) for column, array in arrays.items()}
            return answer | {"values": [[column, found[0], bool(cut)] for column, (found, cut) in texts.items()]}

        return cut_to_size(with_values, WHOLE_LENGTH_MAX)


def _point(name: str, pages: GridRows) -> dict[str, Any]:
    point = pages.point
    return {
        "name": name,
        "moment_ms": point.moment_ms,
        "snapshot_id": None if point.snapshot_id is None else str(point.snapshot_id),
        "table_id": str(point.table_id),
        "records": str(point.records),
    }


def _number(pages: GridRows) -> dict[str, Any]:
    return {"total": pages.total, "at_least": pages.at_least}


def _page_maker(pieces: Sequence[Piece], columns: Sequence[str], zone: Any) -> Callable[[int], Answer]:
    """Return what makes the cells of a page, each of at most so many characters."""

    def made(length: int) -> Answer:
        cells: list[list[str | None]] = []
        cut: list[list[int]] = []
        rows: list[list[Any]] = []
        source: list[str] = []
        for piece in pieces:
            begin = len(rows)
            texts = []
            for number, column in enumerate(columns):
                found, shortened = cell_texts(_array(piece.rows, column), zone, length)
                texts.append(found)
                cut += [[begin + row, number] for row in shortened]
            cells += (
                [list(row) for row in zip(*texts, strict=True)] if columns else [[] for _ in range(piece.rows.num_rows)]
            )
            offsets = _array(piece.rows, "__offset").to_pylist()
            times = _array(piece.rows, "__timestamp").cast(pa.int64()).to_pylist()
            rows += [[*piece.key, str(offset), time // 1000] for offset, time in zip(offsets, times, strict=True)]
            source += ["L" if each == "lake" else "g" for each in _array(piece.rows, "_source").to_pylist()]
        return {"cells": cells, "cut": cut, "rows": rows, "source": "".join(source)}

    return made


def _array(rows: pa.Table | pa.RecordBatch, column: str) -> pa.Array:
    found = rows.column(column)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
