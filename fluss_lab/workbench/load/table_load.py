"""The load of a source into a table: the table made, its rows written in batches."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pyarrow as pa

from fluss_lab.client import AppendWriter, Connection, UpsertWriter
from fluss_lab.client.write.unsettled_write import UnsettledWrite
from fluss_lab.client.write.write_result import WriteFuture
from fluss_lab.display import Waiting, html_table
from fluss_lab.errors import (
    DatabaseNotFoundError,
    FlussError,
    InvalidRequestError,
    InvalidSchemaError,
    TableExistsError,
    TableNotFoundError,
    WriteInterruptedError,
)
from fluss_lab.model import DataType, TableDescriptor, TableInfo, TablePath, make_descriptor
from fluss_lab.model.schema import Column, Schema, make_schema
from fluss_lab.workbench.load.load_columns import ColumnPlan, LoadColumn, RowSource
from fluss_lab.workbench.load.load_source import SourceOptions, open_source, table_name

#: Where a table goes whose database is not named.
DEFAULT_DATABASE: Final = "default"
_NO_WORD: Final = re.compile(r"[^A-Za-z0-9_]+")
#: What conversions say when they refuse a value; of a load that writes in batches it would not be true.
_NOTHING_SENT: Final = ("; nothing was sent", "; nothing of it was loaded")


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """What a table is made with, beside its columns; see `fluss_lab.Lab.create_table`."""

    primary_key: Iterable[str] | None = None
    partitioned_by: Iterable[str] | None = None
    buckets: int | None = None
    properties: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What was loaded.

    Attributes:
        path: The table.
        source: What its rows came from.
        rows: How many were written.
        created: Whether the table was made for them.
        columns: The columns loaded: name in the source, name in the table, type.
        seconds: How long it took.
    """

    path: TablePath
    source: str
    rows: int
    created: bool
    columns: tuple[tuple[str, str, DataType], ...]
    seconds: float

    @property
    def title(self) -> str:
        """Return it as one line."""
        table = f"new table {self.path}" if self.created else f"table {self.path}"
        return f"{self.rows:,} rows of {self.source} in {table}, {self.seconds:.1f} s"

    def __repr__(self) -> str:
        types = ", ".join(f"{name} {dtype}" for _, name, dtype in self.columns)
        return f"<LoadReport {self.title}: {types}>"

    def _repr_html_(self) -> str:
        if all(source == name for source, name, _ in self.columns):
            return html_table(self.title, ("column", "type"), [(name, str(dtype)) for _, name, dtype in self.columns])
        rows = [(name, str(dtype), source) for source, name, dtype in self.columns]
        return html_table(self.title, ("column", "type", "in the source"), rows)


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What is loaded into which table; see `fluss_lab.Lab.load`."""

    source: Any
    table: TablePath | None
    definition: TableDefinition
    columns: Sequence[str] | None
    rename: Mapping[str, str] | Sequence[str] | None
    types: Mapping[str, Any] | None
    if_exists: str
    options: SourceOptions


def load_table(connection: Connection, request: LoadRequest) -> LoadReport:
    """Load a source into a table; see `fluss_lab.Lab.load`."""
    started = time.monotonic()
    if request.if_exists not in {"fail", "append"}:
        raise InvalidRequestError(f"load: expected if_exists='fail' or 'append', found {request.if_exists!r}")
    path = request.table or _path_of(request.source)
    info = _existing(connection, path)
    if info is not None:
        _check_existing(info, request)
    source, columns = _examine(request, _plan(request, info))
    if 0 < source.count.total < request.options.start_row:
        raise InvalidRequestError(
            f"load: start_row: expected at most {source.count.total:,}, the rows of {source.title}, found "
            f"{request.options.start_row:,}; nothing was loaded"
        )
    if info is None:
        info = _create(connection, path, request.definition, columns)
        created = True
    else:
        created = False
    rows = _write(connection, info, source, columns, request.options.start_row, created)
    shown = tuple((column.source_name, column.name, column.known_type) for column in columns)
    return LoadReport(path, source.title, rows, created, shown, time.monotonic() - started)


def _examine(request: LoadRequest, plan: ColumnPlan) -> tuple[RowSource, list[LoadColumn]]:
    with Waiting("reading the rows to be loaded"):  # of a Spark frame, that is when they are computed
        source = open_source(request.source, request.options)
    with Waiting(f"examining {source.title}", count=lambda: (source.count.read, source.count.total)):
        return source, source.examine(plan)


def _path_of(source: object) -> TablePath:
    name = table_name(source)
    if name is None:
        raise InvalidRequestError("load: say which table the rows go into: load(rows, 'database.table')")
    word = _NO_WORD.sub("_", name).strip("_").lower()
    return TablePath(DEFAULT_DATABASE, word if word and not word[0].isdigit() else f"_{word}")


def _existing(connection: Connection, path: TablePath) -> TableInfo | None:
    try:
        return connection.admin().table_info(path)
    except (TableNotFoundError, DatabaseNotFoundError):
        return None


def _check_existing(info: TableInfo, request: LoadRequest) -> None:
    if request.if_exists == "fail":
        verb = "adds the rows to it" if info.is_log_table else "replaces rows of the same key and adds the others"
        raise TableExistsError(
            f"load: table {info.path} exists; if_exists='append' {verb}, drop_table({str(info.path)!r}) removes it first"
        )
    given, held = request.definition, info.descriptor
    for name, wanted, found in (
        ("primary_key", given.primary_key, held.schema.primary_key),
        ("partitioned_by", given.partitioned_by, held.partitioned_by),
    ):
        if wanted is not None and tuple(wanted) != tuple(found):
            raise InvalidSchemaError(f"load: table {info.path} exists with {name}={list(found)}, found {list(wanted)}")
    if request.types:
        raise InvalidSchemaError(f"load: table {info.path} exists with types of its own; leave out types=")


def _plan(request: LoadRequest, info: TableInfo | None) -> ColumnPlan:
    if info is not None:
        return ColumnPlan(request.columns, request.rename, existing=info.schema)
    given = request.definition
    parts = frozenset(given.partitioned_by or ())
    types = make_schema(request.types).columns if request.types else ()
    return ColumnPlan(
        request.columns,
        request.rename,
        {column.name: column.type for column in types},
        texts=parts,
        required=parts | frozenset(given.primary_key or ()),
    )


def _create(
    connection: Connection, path: TablePath, definition: TableDefinition, columns: Sequence[LoadColumn]
) -> TableInfo:
    """Make the table, and its database when that is missing."""
    schema = Schema(tuple(Column(column.name, column.known_type, at + 1) for at, column in enumerate(columns)), ())
    descriptor: TableDescriptor = make_descriptor(
        schema,
        primary_key=definition.primary_key,
        partitioned_by=definition.partitioned_by,
        buckets=definition.buckets,
        properties=definition.properties,
    )
    admin = connection.admin()
    admin.create_database(path.database, True)
    admin.create_table(path, descriptor, False)
    return admin.table_info(path)


# -- rows ------------------------------------------------------------------------------------------------------------


def _write(
    connection: Connection,
    info: TableInfo,
    source: RowSource,
    columns: Sequence[LoadColumn],
    start_row: int,
    created: bool,
) -> int:
    """Write the rows from one on; return how many. Memory is bounded by the writer's buffer."""
    path = info.path
    writer = connection.append_writer(path) if info.is_log_table else connection.upsert_writer(path)
    what = f"load {source.title} into {path}"

    def count() -> tuple[int, int]:
        return writer.progress().rows_acknowledged, max(0, source.count.total - start_row)

    try:
        with Waiting(f"loading {source.title} into {path}", count=count), writer:
            _give(writer, _rows_from(source.batches(columns), start_row))
    except WriteInterruptedError as error:
        raise type(error)(f"{what}: {error}. {_rest(writer, info, start_row)}", error) from error
    except FlussError as error:
        said = str(error)
        for promise in _NOTHING_SENT:
            said = said.removesuffix(promise)
        if writer.progress().rows_acknowledged:
            text = f"{what}: {said}. {_rest(writer, info, start_row)}"
            raise WriteInterruptedError(text, UnsettledWrite(writer)) from error
        if created:
            _say(
                error, f"{said}; nothing was written, table {path} is there and empty: drop it before you load it again"
            )
        raise
    return writer.progress().rows


def _give(writer: AppendWriter | UpsertWriter, batches: Iterator[pa.RecordBatch]) -> None:
    """Give batches to a writer until one fails: what comes after a lost batch is not sent."""
    waiting: deque[WriteFuture] = deque()
    for batch in batches:
        waiting.append(writer.append(batch) if isinstance(writer, AppendWriter) else writer.upsert(batch))
        while waiting and waiting[0].done():
            waiting.popleft().result()


def _rows_from(batches: Iterator[pa.RecordBatch], start_row: int) -> Iterator[pa.RecordBatch]:
    left = start_row
    for batch in batches:
        if left < batch.num_rows:
            yield batch.slice(left)
        left = max(0, left - batch.num_rows)


def _rest(writer: AppendWriter | UpsertWriter, info: TableInfo, start_row: int) -> str:
    stop = start_row + writer.progress().rows
    again = "" if info.is_log_table else ", or load it all again: rows of the same key are replaced"
    return (
        f"Of the source, rows [{start_row:,}, {stop:,}) were given to the table; when they are settled, "
        f"load(..., if_exists='append', start_row={stop}) goes on with the rest{again}"
    )


def _say(error: FlussError, text: str) -> NoReturn:
    raise type(error)(text) from error
