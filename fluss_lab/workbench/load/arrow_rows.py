"""Parquet files, frames and Arrow data as rows to be loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from fluss_lab.errors import FlussError, InvalidRecordError, InvalidSchemaError
from fluss_lab.model import DataType
from fluss_lab.model.schema import make_schema
from fluss_lab.model.values.row_input import record_batches
from fluss_lab.model.values.schema_inference import schema_of
from fluss_lab.workbench.load.load_columns import (
    BATCH_ROWS,
    ColumnPlan,
    LoadColumn,
    RowCount,
    cast_batches,
    file_error,
)


class ParquetFiles:
    """Rows of Parquet files with the same columns. The types are the files' own; where one may not fit, all is read once.

    Args:
        paths: The files, in the order of their rows.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self.count = RowCount()

    @property
    def title(self) -> str:
        """Return the file's name."""
        return self._paths[0].name if len(self._paths) == 1 else f"{self._paths[0].parent.name}/"

    def examine(self, plan: ColumnPlan) -> list[LoadColumn]:
        """Return the columns; values that may not fit their type are read."""
        first, self.count.total = _footer(self._paths[0])
        for path in self._paths[1:]:
            other, rows = _footer(path)
            self.count.total += rows
            if not other.equals(first):
                raise InvalidSchemaError(
                    f"{path.name}: its columns are {_fields(other)}, those of {self._paths[0].name} {_fields(first)}; load "
                    "them one by one"
                )
        columns = typed_columns(plan.of(first.names, self.title), first, self.title)
        if any(_may_misfit(column, first.field(column.position).type) for column in columns):
            for _ in self.batches(columns):
                pass  # found now, not when rows are written
        return columns

    def batches(self, columns: Sequence[LoadColumn]) -> Iterator[pa.RecordBatch]:
        """Yield all rows in the columns' names and types."""
        self.count.read = 0
        for path in self._paths:
            with _named(path):
                for batch in cast_batches(self._stored_rows(path, columns), columns, _at_position):
                    self.count.read += batch.num_rows
                    yield batch

    def _stored_rows(self, path: Path, columns: Sequence[LoadColumn]) -> Iterator[pa.RecordBatch]:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            wanted = {column.position for column in columns}
            # Files may have a name twice; then all columns are read.
            chosen = [name for at, name in enumerate(names) if at in wanted] if len(set(names)) == len(names) else None
            for batch in file.iter_batches(BATCH_ROWS, columns=chosen):
                if chosen is None or len(chosen) == len(names):
                    yield batch
                else:
                    at = {name: batch.column(name) for name in chosen}
                    spare = pa.nulls(batch.num_rows)
                    yield pa.RecordBatch.from_arrays([at.get(name, spare) for name in names], names)


def _footer(path: Path) -> tuple[pa.Schema, int]:
    """Return the schema of a file, and how many rows it has."""
    with _named(path):
        found = parquet.read_metadata(path)
        return found.schema.to_arrow_schema().remove_metadata(), found.num_rows


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file in errors of reading it."""
    try:
        yield
    except InvalidRecordError as error:
        raise file_error(path, error) from error
    except (pa.ArrowException, OSError) as error:
        raise InvalidRecordError(f"{path.name}: it cannot be read as Parquet: {error}") from error


class FrameRows:
    """Rows that are in memory: a pandas frame, Arrow data, a list of dicts, a dict of columns.

    Args:
        rows: They.
        title: What they are, for messages.
    """

    def __init__(self, rows: Any, title: str) -> None:
        self._rows = rows
        self._title = title
        self._made: list[pa.RecordBatch] = []
        self.count = RowCount()

    @property
    def title(self) -> str:
        """Return what the rows are."""
        return self._title

    def examine(self, plan: ColumnPlan) -> list[LoadColumn]:
        """Return the columns with the types of their values, all of which are converted here."""
        columns = plan.of(_names(self._rows, self._title), self._title)
        chosen = _choose(self._rows, columns)
        if isinstance(self._rows, pa.Table | pa.RecordBatch):
            typed = typed_columns(columns, self._rows.schema, self._title)
        else:
            untyped = [column for column in columns if column.type is None]
            made = make_schema(schema_of(_choose(self._rows, untyped))).columns if untyped else ()
            types = {column.name: column.type for column in made}
            typed = [column.with_type(column.type or types[column.name]) for column in columns]
        self._made = record_batches(chosen, make_schema({column.name: column.known_type for column in typed}))
        self.count.total = sum(batch.num_rows for batch in self._made)
        return typed

    def batches(self, columns: Sequence[LoadColumn]) -> Iterator[pa.RecordBatch]:
        """Yield all rows in the columns' names and types."""
        del columns
        for batch in self._made:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS)


class StreamRows:
    """Rows of a stream of Arrow batches, which are read once: a value that does not fit is found when it comes.

    Args:
        reader: The stream.
        title: What it is, for messages.
    """

    def __init__(self, reader: pa.RecordBatchReader, title: str) -> None:
        self._reader = reader
        self._title = title
        self.count = RowCount()

    @property
    def title(self) -> str:
        """Return what the stream is."""
        return self._title

    def examine(self, plan: ColumnPlan) -> list[LoadColumn]:
        """Return the columns with the stream's types."""
        schema = self._reader.schema
        return typed_columns(plan.of(schema.names, self._title), schema, self._title)

    def batches(self, columns: Sequence[LoadColumn]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the columns' names and types, as they come."""
        try:
            yield from cast_batches(self._pieces(), columns, _at_position)
        except FlussError:
            raise
        except Exception as error:  # whatever its maker raises
            raise InvalidRecordError(f"{self._title}: it failed: {type(error).__name__}: {error}") from error

    def _pieces(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS)


def typed_columns(columns: Sequence[LoadColumn], schema: pa.Schema, title: str) -> list[LoadColumn]:
    """Return columns with the types of Arrow fields; unsigned integers and nanoseconds as the nearest that a table has."""
    made = []
    for column in columns:
        found = schema.field(column.position).type
        try:
            made.append(
                column.with_type(DataType.from_arrow(_table_type(found)) if column.type is None else column.type)
            )
        except InvalidSchemaError as error:
            raise InvalidSchemaError(
                f"{title}: column {column.source_name!r}: {error}; or leave it out by columns=[...]"
            ) from error
    return made


def _table_type(found: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(found):
        return _table_type(found.value_type)
    if types.is_null(found):
        return pa.string()
    if types.is_timestamp(found) and found.unit == "ns":
        return pa.timestamp("us", found.tz)
    if types.is_unsigned_integer(found):
        return {8: pa.int16(), 16: pa.int32()}.get(found.bit_width, pa.int64())
    return found


def _may_misfit(column: LoadColumn, found: pa.DataType) -> bool:
    return column.required or column.known_type.arrow() != found


def _at_position(batch: pa.RecordBatch, column: LoadColumn) -> pa.Array:
    return batch.column(column.position)


def _fields(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _names(rows: Any, title: str) -> list[Any]:
    if hasattr(rows, "columns") and hasattr(rows, "iloc"):
        return list(rows.columns)
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return list(rows.schema.names)
    if isinstance(rows, Mapping):
        return list(rows)
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise InvalidRecordError(f"{title}: expected at least one dict, and nothing else")
    return list(dict.fromkeys(name for row in rows for name in row))


def _choose(rows: Any, columns: Sequence[LoadColumn]) -> Any:
    """Return the columns wanted, in the same form, under their names in the table."""
    names = [column.name for column in columns]
    if hasattr(rows, "iloc"):
        chosen = rows.iloc[:, [column.position for column in columns]]
        return chosen.set_axis(names, axis=1)
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return pa.table([rows.column(column.position) for column in columns], names)
    if isinstance(rows, Mapping):
        return {column.name: rows[column.source_name] for column in columns}
    return [{c.name: row[c.source_name] for c in columns if c.source_name in row} for row in rows]
