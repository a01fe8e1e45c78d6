"""CSV files as rows to be loaded: read as texts, their types found over all rows, in blocks."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from fluss_lab.errors import InvalidRecordError, InvalidRequestError, InvalidSchemaError
from fluss_lab.model import DataType
from fluss_lab.model.values.casts import CellPosition
from fluss_lab.workbench.load.load_columns import ColumnPlan, LoadColumn, RowCount, file_error
from fluss_lab.workbench.load.text_types import NAN, TextTypes, parsed_texts

#: Bytes read at a time; no row is longer.
_BLOCK_BYTES: Final = 4 << 20
#: As many as the longest header that a table may have.
_HEAD_CHARACTERS: Final = 1 << 19
_DELIMITERS: Final = ",;\t|"
#: What stands for no value in a column of another type than text; in texts it is the empty text alone.
_NULLS: Final = tuple(arrow_csv.ConvertOptions().null_values)
#: What any encoding of text files has, a byte at a time too.
_PROBE: Final = 'a,b\n"1",..\n'
_ROW: Final = re.compile(r"(?:CSV parse error: )?Row #(\d+): ")


class CsvFiles:
    """Rows of CSV files with the same header. The types are those that every value has; all is read once for that.

    A number with leading zeros is a text, and so are digits that no type holds exactly. Nothing between two delimiters is null, and
    so is an empty line of a file of one column; ``""`` is an empty text, in a column of another type null.

    Args:
        paths: The files, in the order of their rows.
        delimiter: Between values; None: the most frequent of comma, semicolon, tab and bar in the header.
        encoding: Of the bytes.
        null_values: Texts that are null, in columns of any type, quoted or not; None: nothing, and where a column is of no text,
            also ``NA``, ``NULL``, ``NaN`` and their like. ``nan``, as an export and Arrow write it, is NaN in a column of floats.
    """

    def __init__(
        self, paths: Sequence[Path], delimiter: str | None, encoding: str, null_values: Sequence[str] | None
    ) -> None:
        self._paths = paths
        self._encoding = encoding
        #: As Python calls it.
        self._codec = _codec_of(encoding)
        self._given_nulls = null_values
        self._nulls = pa.array([*(_NULLS if null_values is None else null_values)], pa.string())
        self._nulls_of_floats = (
            self._nulls if null_values is not None else self._nulls.filter(pc.not_equal(self._nulls, NAN))
        )
        head = self._head(paths[0])
        if delimiter is not None and (len(delimiter.encode()) != 1 or delimiter in '"\r\n'):
            raise InvalidRequestError(f"delimiter: expected one character, found {delimiter!r}")
        self._delimiter = delimiter or _guessed_delimiter(head)
        self._names = self._header(paths[0])
        self.count = RowCount()

    @property
    def title(self) -> str:
        """Return the file's name."""
        return self._paths[0].name if len(self._paths) == 1 else f"{self._paths[0].parent.name}/"

    def examine(self, plan: ColumnPlan) -> list[LoadColumn]:
        """Read all rows; return the columns with the types that every value has."""
        for path in self._paths:
            self._check_quotes(path)
            if (names := self._header(path)) != self._names:
                raise InvalidSchemaError(
                    f"{path.name}: its columns are {', '.join(names)}, those of {self._paths[0].name} "
                    f"{', '.join(self._names)}; load them one by one"
                )
        columns = plan.of(self._names, self.title)
        judges = [None if column.type else TextTypes() for column in columns]
        for batch, path, base in self._blocks(columns):
            for index, (column, judge) in enumerate(zip(columns, judges, strict=True)):
                if judge is None:
                    self._cast(column, batch.column(index), path, base)
                else:
                    judge.add(*self._without_nulls(batch.column(index)))
        self.count.total = self.count.read
        typed = [
            c.with_type(DataType("STRING") if j is None else j.type()) for c, j in zip(columns, judges, strict=True)
        ]
        if any(column.required and judge is not None for column, judge in zip(typed, judges, strict=True)):
            for _ in self.batches(typed):
                pass  # a null where none may be is found now, not when rows are written
        return typed

    def batches(self, columns: Sequence[LoadColumn]) -> Iterator[pa.RecordBatch]:
        """Yield all rows in the columns' names and types."""
        schema = pa.schema([column.known_type.arrow_field(column.name) for column in columns])
        for batch, path, base in self._blocks(columns):
            arrays = [self._cast(column, batch.column(at), path, base) for at, column in enumerate(columns)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    # -- texts ---------------------------------------------------------------------------------------------------------

    def _blocks(self, columns: Sequence[LoadColumn]) -> Iterator[tuple[pa.RecordBatch, Path, int]]:
        """Yield the texts of columns, with their file and the number of the first row in it."""
        self.count.read = 0
        for path in self._paths:
            base = 0
            for batch in self._file_blocks(path, [str(column.position) for column in columns]):
                self.count.read += batch.num_rows
                yield batch, path, base
                base += batch.num_rows

    def _file_blocks(self, path: Path, wanted: list[str]) -> Iterator[pa.RecordBatch]:
        names = [str(position) for position in range(len(self._names))]
        # The header is left out here: where Arrow skips a row, an empty line before it is one, and otherwise none.
        lines_before = self._lines_before_header(path) if len(names) == 1 else 0
        odd: list[Any] = []

        def refuse(row: Any) -> str:
            odd.append(row)
            return "error"

        try:
            with arrow_csv.open_csv(
                path,
                arrow_csv.ReadOptions(
                    use_threads=False, block_size=_BLOCK_BYTES, column_names=names, encoding=self._encoding,
                ),
                arrow_csv.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=refuse,
                    ignore_empty_lines=len(names) > 1,
                ),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), include_columns=wanted, null_values=[""],
                    strings_can_be_null=self._given_nulls is None, quoted_strings_can_be_null=False,
                ),
            ) as reader:  # fmt: skip
                header_rows = 1 + lines_before
                for batch in reader:
                    yield batch.slice(header_rows)
                    header_rows = max(0, header_rows - batch.num_rows)
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise InvalidRecordError(
                f"{path.name}: {self._reason(error, odd, lines_before)}; nothing of it was loaded"
            ) from error

    def _reason(self, error: Exception, odd: list[Any], lines_before: int = 0) -> str:
        text = str(error)
        first = 2 + lines_before
        if odd:
            row = odd[0]
            where = f"row {row.number - first}" if row.number is not None else "a row"
            return (
                f"{where} has {row.actual_columns} values, expected {row.expected_columns} (columns between "
                f"{self._delimiter!r}): {str(row.text)[:100]!r}"
            )
        if "straddl" in text:
            return f"a row is longer than {_BLOCK_BYTES >> 20} MB: is a quotation mark open?"
        if "UTF8" in text or "codec" in text:
            return f"its bytes are not {self._encoding} ({text}); say which they are, for instance encoding='latin-1'"
        return _ROW.sub(lambda found: f"row {int(found[1]) - first}: ", text)

    def _without_nulls(self, values: pa.StringArray) -> tuple[pa.StringArray, bool]:
        """Return the texts that are not null, and whether there is a ``nan`` beside them."""
        trimmed = pc.utf8_trim_whitespace(values.drop_null())
        has_nan = self._given_nulls is None and pc.any(pc.equal(trimmed, NAN)).as_py()
        return pc.filter(trimmed, pc.invert(pc.is_in(trimmed, self._nulls))), bool(has_nan)

    def _cast(self, column: LoadColumn, values: pa.StringArray, path: Path, base: int) -> pa.Array:
        dtype = column.known_type
        try:
            if dtype.name in {"STRING", "CHAR"}:
                texts = values if self._given_nulls is None else pc.if_else(pc.is_in(values, self._nulls), None, values)
                return column.cast(texts, base)
            trimmed = pc.utf8_trim_whitespace(values)
            nulls = self._nulls_of_floats if dtype.name in {"FLOAT", "DOUBLE"} else self._nulls
            present = pc.if_else(pc.is_in(trimmed, nulls), None, trimmed)
            return column.cast(parsed_texts(present, dtype, CellPosition(column.name, lambda at: base + at)), base)
        except InvalidRecordError as error:
            raise file_error(path, error) from error

    def _check_quotes(self, path: Path) -> None:
        """Refuse a file whose last quotation mark opens a value that nothing closes: the rest of the file would be the value."""
        count, before, last = 0, "\n", ""
        for part in self._parts(path):
            count += part.count('"')
            if (at := part.rfind('"')) >= 0:
                last = part[at - 1] if at else before
            before = part[-1]
        if count % 2 and last in {"\n", "\r", self._delimiter}:
            raise InvalidRecordError(
                f"{path.name}: a quotation mark is opened and not closed; nothing of it was loaded"
            )

    def _parts(self, path: Path) -> Iterator[str]:
        """Yield a file's text; in UTF-8, where a mark is a byte of its own, not decoded: three times as fast."""
        with self._refusal(path):
            if self._codec == "utf-8":
                with pa.input_stream(str(path)) as file:
                    while data := bytes(file.read(_BLOCK_BYTES)):
                        yield data.decode("latin-1")
                return
            with self._text(path) as text:
                while part := text.read(_BLOCK_BYTES):
                    yield part

    @contextmanager
    def _refusal(self, path: Path) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, UnicodeError, OSError) as error:
            raise InvalidRecordError(f"{path.name}: {self._reason(error, [])}; nothing of it was loaded") from error

    # -- the header ----------------------------------------------------------------------------------------------------

    def _head(self, path: Path) -> str:
        with self._refusal(path), self._text(path) as file:
            return file.read(_HEAD_CHARACTERS)

    def _text(self, path: Path) -> io.TextIOWrapper:
        encoding = "utf-8-sig" if self._codec == "utf-8" else self._codec
        return io.TextIOWrapper(pa.input_stream(str(path)), encoding=encoding, newline="")

    def _lines_before_header(self, path: Path) -> int:
        head = csv.reader(io.StringIO(self._head(path), newline=""), delimiter=self._delimiter)
        return next((count for count, row in enumerate(head) if row), 0)

    def _header(self, path: Path) -> list[str]:
        rows = csv.reader(io.StringIO(self._head(path), newline=""), delimiter=self._delimiter)
        try:
            names = next((row for row in rows if row), None)
        except csv.Error as error:
            raise InvalidRecordError(f"{path.name}: its header cannot be read: {error}") from error
        if names is None:
            raise InvalidRecordError(f"{path.name} is empty: expected a header with the names of the columns")
        return [name.strip() for name in names]


def _codec_of(encoding: str) -> str:
    """Return what Python calls an encoding.

    Raises:
        InvalidRequestError: There is none of that name, or it is none of text files, as ``hex`` and ``punycode``.
    """
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=encoding).close()
        codec = codecs.lookup(encoding)
        decoder, data = codecs.getincrementaldecoder(encoding)(), _PROBE.encode(encoding)
        found = "".join(decoder.decode(data[at : at + 1]) for at in range(len(data))) + decoder.decode(b"", True)
        if found != _PROBE:
            raise LookupError("it is not for text files")
    except (LookupError, ValueError) as error:  # also of a name that can be none
        raise InvalidRequestError(f"encoding {encoding[:60]!r}: {error}") from error
    return codec.name


def _guessed_delimiter(head: str) -> str:
    line = re.split(r"[\r\n]", re.sub(r'"[^"]*"', "", head).lstrip("\r\n"), maxsplit=1)[0]
    return max(_DELIMITERS, key=line.count) if any(each in line for each in _DELIMITERS) else ","
