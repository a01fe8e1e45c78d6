"""The model of an explorer: each request of a view answered from the lab, without a widget and without a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from fluss_lab.errors import InvalidRequestError, TableNotFoundError
from fluss_lab.explorer.texts import code_lines
from fluss_lab.explorer.texts.cell_texts import CELL_LENGTH_MAX, WHOLE_LENGTH_MAX, cell_texts
from fluss_lab.explorer.screens.change_answers import ChangeAnswers
from fluss_lab.explorer.screens.column_facts import SAMPLE_BUCKETS, SAMPLE_ROWS, column_facts
from fluss_lab.explorer.texts.column_mask import ColumnMask
from fluss_lab.explorer.explorer_requests import (
    ANSWER_BYTES_MAX,
    PAGE_COLUMNS_MAX,
    AnyRequest,
    BucketRequest,
    BucketsRequest,
    ChangesRequest,
    CountRequest,
    FactsRequest,
    HeadRequest,
    PageRequest,
    RowRequest,
    RowsRequest,
    SchemaRequest,
    SnapshotsRequest,
    TableRequest,
    TailRequest,
    TreeRequest,
    error_answer,
    size_bytes,
)
from fluss_lab.explorer.screens.grid_rows import GridRows, Piece
from fluss_lab.explorer.screens.live_tail import LiveTail
from fluss_lab.explorer.request_worker import Answer, Steps
from fluss_lab.explorer.screens.row_place import row_place
from fluss_lab.explorer.screens.table_answers import TableAnswers, column_kind
from fluss_lab.model import TableInfo, TablePath
from fluss_lab.read.filter.filter_compiler import compile_filter
from fluss_lab.workbench.lake_upkeep import TableContext
from fluss_lab.workbench.table import Table

#: Grids whose read points are kept: the present one, and those that a person goes back to.
GRIDS_MAX: Final = 6
#: Columns of a page that names none.
_COLUMNS_FIRST: Final = 30
#: Bytes of a row's values: each is cut further when they are more together.
_ROW_VALUE_MIN: Final = 200


class ExplorerModel:
    """Answers the requests of one view. Each kind of request is answered on one thread.

    Args:
        lab: Whose tables are shown.
        name: What the lab is called.
        mask: Columns that no answer names or shows.
    """

    def __init__(self, lab: TableContext, name: str, mask: Iterable[str] = ()) -> None:
        self._lab = lab
        self._mask = ColumnMask(mask)
        self._tables = TableAnswers(lab.connection, name, self._mask)
        self._changes = ChangeAnswers(lab.connection.time_zone)
        self._tail = LiveTail(lab.connection.time_zone)
        #: By the name of its read point; the last used is the last.
        self._grids: dict[str, GridRows] = {}
        self._points = 0

    def steps(self, request: AnyRequest) -> Steps:
        """Yield what answering takes: None between steps, answers when they are there. Errors are answers too."""
        try:
            yield from self._steps(request)
        except Exception as error:  # whatever it is, the view shows it
            answer = error_answer(error)
            answer["text"] = self._mask.visible_error(error, answer["text"])
            yield {"kind": _kind_of(request), "error": answer}

    def _steps(self, request: AnyRequest) -> Steps:
        kind = _kind_of(request)
        for answer in self._answering(request):
            yield None if answer is None else _bounded({"kind": kind, **answer})

    def _answering(self, request: AnyRequest) -> Iterator[Answer | None]:
        match request:
            case TreeRequest():
                tree = self._tables.tree()
                yield tree | {
                    "code": [] if any(each["tables"] for each in tree["databases"]) else code_lines.empty_lab_code()
                }
            case HeadRequest():
                yield self._head(request)
            case SchemaRequest():
                yield self._tables.schema(self._info(request))
            case BucketsRequest():
                info = self._info(request)
                yield self._tables.buckets(info) | {"code": code_lines.buckets_code(info.path)}
            case BucketRequest():
                info = self._info(request)
                columns = self._shown(info, None)
                yield {
                    "code": code_lines.fresh_code(
                        info.path, request.partition, request.bucket, int(request.start), columns
                    )
                }
            case ChangesRequest():
                info = self._info(request)
                columns = [column.name for column in self._mask.columns(info.schema)][:PAGE_COLUMNS_MAX]
                hides = len(columns) < len(info.schema.columns)
                yield self._changes.answer(Table(self._lab, info.path), request, columns, hides=hides)
            case TailRequest():
                yield from self._follow(request)
            case SnapshotsRequest():
                yield self._tables.snapshots(Table(self._lab, self._info(request).path))
            case PageRequest():
                yield from self._page(request)
            case CountRequest():
                yield from self._count(request)
            case FactsRequest():
                yield from self._facts(request)
            case RowRequest():
                yield self._row(request)

    def _info(self, request: TableRequest) -> TableInfo:
        """Return the table that a request means.

        Raises:
            TableNotFoundError: There is none of the path, or it is another one than the view shows.
        """
        connection = self._lab.connection
        info = connection.table_info(TablePath.parse(request.table), connection.attempts(f"show {request.table}", 0))
        if request.table_id is not None and request.table_id != str(info.table_id):
            raise TableNotFoundError(f"table {request.table} was dropped; the one of that path now is another")
        self._mask.check(info)
        return info

    def close(self) -> None:
        """End what is followed. No request is answered meanwhile."""
        self._tail.close()

    def _follow(self, request: TailRequest) -> Iterator[Answer | None]:
        if request.op == "stop":
            self._tail.close()
            yield {"state": "ended"}
            return
        code: list[str] = []
        if request.op == "start":
            info = self._info(request)
            columns = [column.name for column in self._mask.columns(info.schema)][:PAGE_COLUMNS_MAX]
            table = Table(self._lab, info.path)
            self._tail.start(lambda: table.subscribe("latest", columns=columns), columns)
            code = code_lines.tail_code(info.path, self._shown(info, None))
        for answer in self._tail.answers(paused=request.op == "pause"):
            yield answer | {"code": code} if code else answer

    def _head(self, request: HeadRequest) -> Answer:
        head = self._tables.head(request.table)
        if request.table_id is not None and request.table_id != head["table_id"]:
            raise TableNotFoundError(f"table {request.table} was dropped; the one of that path now is another")
        return head

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _grid(self, request: RowsRequest) -> tuple[str, GridRows]:
        """Return the read that a request means, and the name of its read point: a new one for a point that is not known.

        Raises:
            InvalidFilterError: The condition is none, or looks at what is hidden.
        """
        if request.point is not None and (known := self._grids.pop(request.point, None)) is not None:
            self._grids[request.point] = known
            return request.point, known
        info = self._info(request)
        compile_filter(request.where or None, self._mask.visible_schema(info.schema))
        table = Table(self._lab, info.path)
        pages = GridRows(table, table.read_point(_moment(request.as_of)), request.where)
        if pages.point.table_id != info.table_id:
            raise TableNotFoundError(f"table {info.path} was dropped; the one of that path now is another")
        self._points += 1
        name = f"p{self._points}"
        self._grids[name] = pages
        while len(self._grids) > GRIDS_MAX:
            del self._grids[next(iter(self._grids))]
        return name, pages

    def _columns(self, info: TableInfo, asked: Sequence[str] | None) -> list[str]:
        """Return the names asked for, in their order, without what is hidden or is not there."""
        names = [column.name for column in self._mask.columns(info.schema)]
        if asked is None:
            return names[:_COLUMNS_FIRST]
        known = set(names)
        return [name for name in dict.fromkeys(asked) if name in known][:PAGE_COLUMNS_MAX]

    def _page(self, request: PageRequest) -> Iterator[Answer | None]:
        name, pages = self._grid(request)
        info = pages.table.info
        columns = self._columns(info, request.columns)
        pieces: list[Piece] | None = None
        for pieces in pages.page(request.first, request.count, columns):
            if pieces is None:
                yield None
        shown = self._shown(info, request.shown)
        code = code_lines.rows_code(info.path, shown, request.where, _moment(request.as_of))
        made = _page_maker(pieces or [], columns, self._lab.connection.time_zone)
        answer = {
            "point": _point(name, pages),
            "from": request.first,
            "columns": columns,
            "code": code,
            **_number(pages),
        }
        yield _cut_to_size(lambda length: answer | made(length))

    def _shown(self, info: TableInfo, chosen: Sequence[str] | None) -> list[str] | None:
        """Return the columns that the lines name; None where all are shown."""
        if chosen is None and not self._mask.hides_any(info.schema):
            return None
        names = [column.name for column in self._mask.columns(info.schema)]
        if chosen is not None:
            names = [name for name in names if name in set(chosen)]
        return None if len(names) == len(info.schema.columns) else names

    def _count(self, request: CountRequest) -> Iterator[Answer | None]:
        name, pages = self._grid(request)
        for number, _ in enumerate(pages.count()):
            yield {"point": _point(name, pages), **_number(pages)} if number % 16 == 15 else None
        yield {"point": _point(name, pages), **_number(pages)}

    def _facts(self, request: FactsRequest) -> Iterator[Answer | None]:
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

    def _row(self, request: RowRequest) -> Answer:
        name, pages = self._grid(request)
        info = pages.table.info
        columns = [column.name for column in self._mask.columns(info.schema)]
        offset = int(request.offset)
        found = pages.row((request.partition, request.bucket), offset, columns)
        if found is None:
            raise InvalidRequestError(
                f"table {info.path}, bucket {request.bucket}: the record with offset {offset} is no row at {pages.point!r}"
            )
        zone = self._lab.connection.time_zone
        place = row_place(
            pages.table, request.partition, request.bucket, offset, str(found.column("_source")[0].as_py())
        )
        shown = None if len(columns) == len(info.schema.columns) else columns
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

        return _cut_to_size(with_values, WHOLE_LENGTH_MAX)


def _kind_of(request: AnyRequest) -> str:
    return str(type(request).__struct_config__.tag)


def _moment(as_of: str | None) -> str | int | None:
    """Return a moment as reads take it: digits are a snapshot's id or epoch milliseconds."""
    if as_of is None or not as_of.strip():
        return None
    text = as_of.strip()
    return int(text) if text.isascii() and text.isdecimal() else text


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


def _cut_to_size(made: Callable[[int], Answer], length: int = CELL_LENGTH_MAX) -> Answer:
    """Return an answer whose cells are cut as short as it takes to keep it bounded."""
    while size_bytes(answer := made(length)) > ANSWER_BYTES_MAX - 1_000 and length > 1:
        length //= 2
    return answer


def _bounded(answer: Answer) -> Answer:
    """Return an answer as it is, or an error where it is larger than a message may be: what is shown is never a part."""
    if size_bytes(answer) <= ANSWER_BYTES_MAX:
        return answer
    raise InvalidRequestError(f"explorer: the answer to {answer['kind']!r} is larger than {ANSWER_BYTES_MAX:,} bytes")
