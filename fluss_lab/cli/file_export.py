"""Rows written as one file, Parquet, CSV or JSON lines: all of it is there at the end, or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
from pyarrow import csv, parquet

from fluss_lab import files
from fluss_lab.cli.json_rows import json_line, json_objects, json_values
from fluss_lab.errors import AlreadyExistsError, InvalidRequestError, NotFoundError, StorageError
from fluss_lab.interrupts import Held
from fluss_lab.model.values.required_fields import as_written
from fluss_lab.read.export_part import claimed, part_of, through_link

PARQUET: Final = "parquet"
CSV: Final = "csv"
JSON: Final = "json"
#: Formats by the ends of file names.
_FORMATS: Final = {
    ".parquet": PARQUET, ".pq": PARQUET, ".csv": CSV, ".json": JSON, ".jsonl": JSON, ".ndjson": JSON,
}  # fmt: skip
_PLAIN: Final = (
    pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_date,
)  # fmt: skip
#: Rows of a row group of Parquet, and of a step of the others.
_ROWS: Final = 122_880


class ReadRows(Protocol):
    """A read whose rows are written."""

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the rows."""

    def to_batches(self, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""


def export_format(path: Path, name: str | None) -> str:
    """Return the format of a file: the one named, else that of its name's end.

    Raises:
        InvalidRequestError: The name has another end.
    """
    found = name or _FORMATS.get(path.suffix.lower())
    if found is None:
        raise InvalidRequestError(
            f"export: {path.name!r} does not say its format: end it in {', '.join(_FORMATS)}, or give --format"
        )
    return found


def check_target(path: Path, *, overwrite: bool) -> Path:
    """Return the absolute path of a file that may be written.

    Raises:
        AlreadyExistsError: Something is there: a folder, or a file and `overwrite` is false.
        NotFoundError: There is no such folder that it could lie in.
        InvalidRequestError: There can be no file of that name, or what is there is none.
    """
    try:
        target = path.expanduser().absolute()
        if not path.name or target.name in {"", ".."} or "\0" in str(path):
            raise InvalidRequestError(f"export: {str(path)!r} is no name of a file")
        if target.is_dir():
            raise AlreadyExistsError(f"export: {target} is a folder; expected the name of a file")
        if os.path.lexists(target) and not overwrite:
            raise AlreadyExistsError(f"export: {target} exists; --overwrite replaces it")
        if target.exists() and not target.is_file():
            # It would be gone: a program's pipe, or /dev/stdout of the whole machine.
            raise InvalidRequestError(f"export: {target} is a device, a pipe or a socket; expected the name of a file")
        if not target.parent.is_dir():
            raise NotFoundError(f"export: there is no folder {target.parent}: make it first")
    except (OSError, RuntimeError) as error:  # a name that is too long, a home that is not known
        raise InvalidRequestError(
            f"export: {str(path)[:200]!r}: {getattr(error, 'strerror', None) or error}"
        ) from error
    return through_link(target)


def export_rows(rows: ReadRows, target: Path, name: str) -> int:
    """Write rows as a file of a format; return how many. Memory is bounded.

    A process that is killed leaves a hidden file beside the target, which the next export into that folder removes.

    Raises:
        StorageError: The disk refused; nothing was left, and a file that was there before stays.
    """
    writers: Mapping[str, Callable[[ReadRows, Path], int]] = {PARQUET: _parquet, CSV: _csv, JSON: _json}
    with _put_when_whole(target) as temporary:
        return writers[name](rows, temporary)


@contextmanager
def _put_when_whole(target: Path) -> Iterator[Path]:
    temporary = part_of(target)
    try:
        with claimed(temporary):
            yield temporary
            with Held():
                files.fsync_path(temporary)
                files.replace(temporary, target)
    except OSError as error:
        with suppress(OSError):  # on a read-only disk also of what is not there
            temporary.unlink(missing_ok=True)
        raise StorageError(f"export: {target}: {error.strerror or error}; nothing was left there") from error
    except BaseException:
        with Held():
            temporary.unlink(missing_ok=True)
        raise


def _parquet(rows: ReadRows, path: Path) -> int:
    with parquet.ParquetWriter(path, rows.schema, compression="zstd") as writer:
        return _each(rows.to_batches(_ROWS), lambda batch: writer.write_batch(as_written(batch), row_group_size=_ROWS))


def _json(rows: ReadRows, path: Path) -> int:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        return _each(
            rows.to_batches(_ROWS), lambda batch: file.writelines(f"{json_line(row)}\n" for row in json_objects(batch))
        )


def _csv(rows: ReadRows, path: Path) -> int:
    schema = pa.schema([pa.field(field.name, _csv_type(field.type)) for field in rows.schema])
    with path.open("wb") as file, csv.CSVWriter(file, schema) as writer:
        return _each(rows.to_batches(_ROWS), lambda batch: writer.write_batch(_csv_batch(batch, schema)))


def _csv_type(found: pa.DataType) -> pa.DataType:
    """Return a type that Arrow writes as it should be: other values are written as texts of their JSON."""
    return found if any(is_plain(found) for is_plain in _PLAIN) else pa.string()


def _csv_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        if column.type == field.type:
            columns.append(column)
        else:
            texts = [_csv_text(value) for value in json_values(column, field.name)]
            columns.append(pa.array(texts, pa.string()))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _csv_text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json_line(value) if isinstance(value, list | dict) else repr(value)


def _each(batches: Iterable[pa.RecordBatch], write: Callable[[pa.RecordBatch], object]) -> int:
    count = 0
    for batch in batches:
        write(batch)
        count += batch.num_rows
    return count
