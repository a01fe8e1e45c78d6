"""JSON files as rows to be loaded: an object a line, or one array of objects; read in blocks."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import json as arrow_json

from fluss_lab.errors import InvalidError, InvalidRecordError, InvalidSchemaError
from fluss_lab.model import DataType
from fluss_lab.model.values.casts import CellPosition, first_failing
from fluss_lab.workbench.load.json_floats import has_float_texts, mixed_paths, number_paths, with_floats
from fluss_lab.workbench.load.json_nesting import ROW_NESTING_MAX, row_nested_too_deeply
from fluss_lab.workbench.load.json_values import (
    FoundTypes,
    check_numbers,
    has_floats,
    has_key,
    json_rows,
    read_type,
    refusal_of_key,
    with_times,
)
from fluss_lab.workbench.load.load_columns import ColumnPlan, LoadColumn, RowCount, cast_batches, file_error

_BLOCK_BYTES: Final = 4 << 20
#: No row is longer.
_ROW_BYTES_MAX: Final = 16 << 20
_SPACE: Final = re.compile(r"\s*")
_SPACES: Final = b" \t\r\n"
_ROW: Final = re.compile(r"in row (\d+)")
_LINE_ENDS: Final = str.maketrans("\r\n", "  ")


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some rows of a file, an object a line.

    Attributes:
        path: The file.
        base: The number of the first row in it.
        data: The lines.
    """

    path: Path
    base: int
    data: bytes

    def parse(self, schema: pa.Schema | None) -> pa.Table:
        """Return the rows; `schema`: only these columns, in these types.

        Raises:
            InvalidRecordError: A row is none, or not of the types; the text names it.
        """
        paths = {path for field in schema or () for path in number_paths(field.name, field.type)}
        return replace(self, data=with_floats(self.data, paths))._parse(schema)

    def parse_any(self, found: FoundTypes) -> pa.Table:
        """Return the rows in the types that they have; texts like ``NaN`` are numbers where all else is, here or in what was found before.

        Raises:
            InvalidRecordError: A row is none, or a column has values of types that no type has together.
        """
        if not has_float_texts(self.data):
            return self._parse(None)
        known = replace(self, data=with_floats(self.data, found.numbers()))
        try:
            return known._parse(None)
        except InvalidRecordError:
            try:
                paths = mixed_paths(json_rows(known.data))
            except ValueError:  # no JSON
                paths = set()
            if not paths:
                raise
        return replace(known, data=with_floats(known.data, paths))._parse(None)

    def _parse(self, schema: pa.Schema | None) -> pa.Table:
        try:
            return _parse(self.data, schema)
        except (pa.ArrowException, OSError) as error:
            text = str(error).removeprefix("JSON parse error: ")
            if _ROW.search(text):
                text = _ROW.sub(lambda found: f"in row {int(found[1]) + self.base}", text)
            else:
                text = f"{text} in row {self._failing(schema)}"
            raise InvalidRecordError(f"{self.path.name}: {text}; nothing of it was loaded") from error

    def _failing(self, schema: pa.Schema | None) -> int:
        lines = [line for line in self.data.split(b"\n") if line.strip(_SPACES)]
        try:
            index = first_failing(len(lines), lambda start, stop: _parse(b"\n".join(lines[start:stop]), schema))
        except ValueError:
            return self.base  # no row fails alone
        return self.base + index


def _parse(data: bytes, schema: pa.Schema | None) -> pa.Table:
    return arrow_json.read_json(
        pa.BufferReader(data),
        arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        arrow_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
        ),
    )


class JsonFiles:
    """Rows of JSON files. Columns are the keys of all objects; what an object does not have is null. All is read once for that.

    Texts that are times become times if all of a column are. The texts ``NaN``, ``Infinity`` and ``-Infinity`` are numbers in a column
    of floats, and where all other values are numbers.

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
        """Read all rows; return the columns with the types that all values have."""
        found = FoundTypes()
        for chunk in self._chunks():
            if texts := found.add(chunk.parse_any(found), chunk.path.name, chunk.base):
                found.add_texts(chunk.parse(texts))
        self.count.total = self.count.read
        if not found.names:
            raise InvalidRecordError(
                f"{self.title} has no rows: expected JSON objects, one a line, or an array of them"
            )
        columns = plan.of(found.names, self.title)
        made = []
        for column in columns:
            try:
                made.append(column.with_type(column.type or DataType.from_arrow(found.type(column.source_name))))
                read_type(made[-1].known_type)
            except InvalidError as error:
                raise InvalidSchemaError(f"{self.title}: column {column.source_name!r}: {error}") from error
        self._check_keys(found, made)
        large = [column.source_name in found.large and has_floats(column.known_type) for column in made]
        if any(column.type or column.required for column in columns) or any(large):
            for _ in self.batches(made):
                pass  # what is not of the type asked for is found now, not when rows are written
        return made

    def _check_keys(self, found: FoundTypes, columns: Sequence[LoadColumn]) -> None:
        """Refuse keys within values that the columns' types do not name: Arrow would pass over them."""
        for column in columns:
            if (path := found.unknown(column.source_name, column.known_type)) is None:
                continue
            for chunk in self._chunks():
                for index, row in enumerate(json_rows(chunk.data)):
                    if has_key(row, (column.source_name, *path)):
                        title, number = chunk.path.name, chunk.base + index
                        raise refusal_of_key(title, number, column.name, path, column.known_type)

    def batches(self, columns: Sequence[LoadColumn]) -> Iterator[pa.RecordBatch]:
        """Yield all rows in the columns' names and types."""
        schema = pa.schema([pa.field(c.source_name, read_type(c.known_type)) for c in columns])
        for chunk in self._chunks():
            yield from self._cast(chunk, chunk.parse(schema).combine_chunks(), columns)

    def _cast(self, chunk: _Chunk, rows: pa.Table, columns: Sequence[LoadColumn]) -> Iterator[pa.RecordBatch]:
        def column_of(batch: pa.RecordBatch, column: LoadColumn) -> pa.Array:
            place = CellPosition(column.name, lambda at: chunk.base + at)
            return with_times(batch.column(column.source_name), column.known_type, place)

        try:
            check_numbers(rows, columns, chunk.data, chunk.base)
            yield from cast_batches(iter(rows.to_batches()), columns, column_of, base=chunk.base)
        except InvalidRecordError as error:
            raise file_error(chunk.path, error) from error

    def _chunks(self) -> Iterator[_Chunk]:
        self.count.read = 0
        for path in self._paths:
            base = 0
            for data, rows in _file_lines(path):
                if (row := row_nested_too_deeply(data)) is not None:
                    raise _nests_too_deeply(path, base + row)
                self.count.read += rows
                yield _Chunk(path, base, data)
                base += rows


def _nests_too_deeply(path: Path, row: int) -> InvalidRecordError:
    return InvalidRecordError(
        f"{path.name}: row {row}: its values nest deeper than {ROW_NESTING_MAX}; nothing of it was loaded"
    )


# -- rows ------------------------------------------------------------------------------------------------------------


def _file_lines(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield parts of a file as lines of one object each, with how many they are."""
    try:
        with pa.input_stream(str(path)) as file:
            first = bytes(file.read(_BLOCK_BYTES)).removeprefix(codecs.BOM_UTF8).lstrip(_SPACES)
            if first[:1] == b"[":
                yield from _array_lines(path, _parts(file, first[1:]))
            elif first[:1] in {b"{", b""}:
                yield from _object_lines(path, _parts(file, first))
            else:
                raise InvalidRecordError(
                    f"{path.name}: expected JSON objects, one a line, or one array of objects; it begins with "
                    f"{first[:20].decode(errors='replace')!r}"
                )
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise InvalidRecordError(f"{path.name}: {error}; nothing of it was loaded") from error


def _parts(file: Any, first: bytes) -> Iterator[bytes]:
    yield first
    while part := bytes(file.read(_BLOCK_BYTES)):
        yield part


def _object_lines(path: Path, parts: Iterator[bytes]) -> Iterator[tuple[bytes, int]]:
    held, row = b"", 0
    for part in parts:
        head, end, tail = part.rpartition(b"\n")
        whole = held + head if end else b""
        held = tail if end else held + part
        if whole.strip(_SPACES):
            rows = sum(bool(line.strip(_SPACES)) for line in whole.split(b"\n"))
            yield whole + b"\n", rows
            row += rows
        if len(held) > _ROW_BYTES_MAX:
            raise InvalidRecordError(f"{path.name}: row {row} is longer than {_ROW_BYTES_MAX >> 20} MB")
    if held.strip(_SPACES):
        yield held, 1


def _array_lines(path: Path, parts: Iterator[bytes]) -> Iterator[tuple[bytes, int]]:
    elements = _Elements(path, parts)
    held: list[str] = []
    size = 0
    for element in elements:
        held.append(element)
        size += len(element)
        if size >= _BLOCK_BYTES:
            yield "\n".join(held).encode(), len(held)
            held, size = [], 0
    if held:
        yield "\n".join(held).encode(), len(held)


class _Elements:
    """The objects of a JSON array as text, one after another; the file is held in parts."""

    def __init__(self, path: Path, parts: Iterator[bytes]) -> None:
        self._path = path
        self._parts = parts
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._row = 0

    def __iter__(self) -> Iterator[str]:
        if self._next_sign("a row or ']'") == "]":
            self._check_end()
            return
        while True:
            if (sign := self._next_sign("a row")) != "{":
                raise self._error(f"expected an object, found {sign!r}...")
            yield self._object().translate(_LINE_ENDS)
            self._row += 1
            sign = self._next_sign("',' or ']'")
            if sign == "]":
                self._check_end()
                return
            if sign != ",":
                raise self._error(f"expected ',' or ']' before it, found {sign!r}")
            self._at += 1

    def _check_end(self) -> None:
        self._at += 1
        while True:
            if rest := self._text[self._at :].strip():
                raise self._error(f"expected the end of the file after ']', found {rest[:20]!r}")
            self._at = len(self._text)
            if not self._more():
                return

    def _next_sign(self, expected: str) -> str:
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                raise self._error(f"the file ends where {expected} is expected")

    def _object(self) -> str:
        while True:
            try:
                _, stop = json.JSONDecoder().raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if len(self._text) - self._at > _ROW_BYTES_MAX or not self._more():
                    raise self._error(f"no JSON: {error.msg}") from error
            except RecursionError as error:
                raise _nests_too_deeply(self._path, self._row) from error
            else:
                found, self._at = self._text[self._at : stop], stop
                return found

    def _more(self) -> bool:
        part = next(self._parts, None)
        if part is None:
            return False
        self._text = self._text[self._at :] + self._decoder.decode(part)
        self._at = 0
        return True

    def _error(self, why: str) -> InvalidRecordError:
        return InvalidRecordError(f"{self._path.name}: row {self._row}: {why}; nothing of it was loaded")
