"""Rows of a read handed to others: to Arrow, pandas and Spark, as an Arrow C stream, as Parquet files, to DuckDB."""

from __future__ import annotations

import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from fluss_lab import files
from fluss_lab.display import Grid, card
from fluss_lab.display.card import CARD_ROWS_MAX
from fluss_lab.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    InvalidSchemaError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from fluss_lab.interrupts import Held
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.named_paths import absolute_path
from fluss_lab.model.values.pandas_frames import to_pandas
from fluss_lab.model.values.required_fields import as_written
from fluss_lab.read.export_part import claimed, part_of, through_link

if TYPE_CHECKING:
    import pandas as pd

#: Rows of a row group: what DuckDB takes in a vectorized step, and 1/8 of what Spark does.
ROW_GROUP_ROWS: Final = 122_880
_PART: Final = re.compile(r"part-\d{5,}\.parquet")
_FILE_ENDS: Final = (".parquet", ".pq")


class RowsRead(Protocol):
    """A read whose rows are handed on."""

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the rows."""

    def to_batches(self, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""


@check_arguments
class TableRead(ABC):
    """A read of a table that hands its rows on in whatever form. Nothing is read until they are asked for."""

    #: Makes a Spark DataFrame of it; None: there is no session.
    _spark: Callable[[Any], Any] | None

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows."""

    @abstractmethod
    def to_batches(self, rows_max: int = ROW_GROUP_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they are read, in batches of up to `rows_max`; memory stays bounded."""

    @abstractmethod
    def _watched_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with their number shown where a person watches."""

    @abstractmethod
    def _fix(self) -> None:
        """Decide what is read, if it is not decided yet."""

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table, in the table's own types."""
        return pa.Table.from_batches(self._watched_rows(), self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas frame."""
        return to_pandas(self.to_arrow())

    def to_spark(self) -> Any:
        """Return the rows as a Spark DataFrame; see `fluss_lab.spark.source.table_frame`.

        Raises:
            UnsupportedError: The read was made without a Spark session.
        """
        if self._spark is None:
            raise UnsupportedError(
                f"to_spark: this {type(self).__name__} has no Spark session; make it from a Lab's table"
            )
        return self._spark(self)

    def to_parquet(
        self, path: str | Path, *, rows_per_file: int | None = None, overwrite: bool = False
    ) -> ParquetExport:
        """Write the rows as Parquet, bounded in memory: all of it is there at the end, or nothing.

        Args:
            path: Of a file when it ends in ``.parquet`` or ``.pq``, else of a folder, made for files ``part-00000.parquet``, ....
            rows_per_file: Of a folder: at most so many rows a file; None: one file.
            overwrite: Whether what such a call wrote before is replaced.

        Raises:
            AlreadyExistsError: Something is there.
            InvalidRequestError, NotFoundError, StorageError: It cannot be written there; nothing was left.
        """
        return write_parquet(self, path, rows_per_file=rows_per_file, overwrite=overwrite)

    def to_duckdb(self, connection: Any = None) -> Any:
        """Return the rows as a DuckDB relation, which reads them in batches whenever it is executed.

        Args:
            connection: Of DuckDB; None: its default one.

        Raises:
            UnsupportedError: DuckDB is not installed.
        """
        return duckdb_relation(self, connection)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as Arrow's C stream, for ``polars.DataFrame``, DuckDB and whoever else takes it; read as the stream is.

        Raises:
            InvalidSchemaError: A schema is requested that theirs cannot be cast to.
        """
        self._fix()  # now: what is wrong with it is an error of ours
        return arrow_stream(self, requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema for those who ask for it alone."""
        return self.schema.__arrow_c_schema__()


def arrow_stream(rows: RowsRead, requested: object | None) -> object:
    """Return rows as a capsule of Arrow's C stream; they are read as the stream is.

    Args:
        rows: The read.
        requested: A capsule with the schema that is wanted: the same columns in types that theirs can be cast to; None: theirs.

    Raises:
        InvalidSchemaError: It is another schema.
    """
    reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(ROW_GROUP_ROWS))
    try:
        return reader.__arrow_c_stream__(requested)
    except (pa.ArrowException, ValueError, TypeError) as error:
        found = ", ".join(f"{field.name} {field.type}" for field in rows.schema)
        raise InvalidSchemaError(f"the schema requested is not that of the rows ({found}): {error}") from error


def duckdb_relation(rows: object, connection: Any) -> Any:
    """Return a DuckDB relation that reads rows whenever it is executed.

    Args:
        rows: What has ``__arrow_c_stream__``.
        connection: Of DuckDB; None: its default one.

    Raises:
        UnsupportedError: DuckDB is not installed.
        InvalidRequestError: That is no connection.
    """
    try:
        import duckdb
    except ImportError as error:
        raise UnsupportedError("to_duckdb: the package duckdb is not installed: pip install duckdb") from error
    if connection is None:
        return duckdb.from_arrow(rows)
    if not isinstance(connection, duckdb.DuckDBPyConnection):
        raise InvalidRequestError(f"to_duckdb: connection: expected a DuckDB connection, found {connection!r:.80}")
    return connection.from_arrow(rows)


@dataclass(frozen=True, slots=True)
class ParquetExport:
    """Parquet files that were written.

    Attributes:
        paths: The files, in the order of their rows.
        rows: How many rows they have.
        size_bytes: How large they are.
    """

    paths: tuple[Path, ...]
    rows: int
    size_bytes: int

    def __repr__(self) -> str:
        where = self.paths[0] if len(self.paths) == 1 else f"{len(self.paths)} files of {self.paths[0].parent}"
        return f"<ParquetExport {self.rows:,} rows in {where}, {self.size_bytes / 1e6:,.1f} MB>"

    def _repr_html_(self) -> str:
        return card(
            "ParquetExport",
            self.paths[0].parent,
            [("rows", self.rows), ("size", f"{self.size_bytes / 1e6:,.1f} MB")],
            grid=Grid(["file"], [[path.name] for path in self.paths[:CARD_ROWS_MAX]]),
            total=len(self.paths),
            noun="file",
            calls=[".paths"],
        )


def write_parquet(
    rows: RowsRead, path: str | Path, *, rows_per_file: int | None = None, overwrite: bool = False
) -> ParquetExport:
    """Write rows as Parquet: one file, or a folder of files. What was there before is replaced at the end, or not at all.

    Memory is bounded. A process that is killed leaves a hidden file or folder beside the path, never a part of it; the next export
    into that folder removes it. A path that is a link is that of what it leads to.

    Args:
        rows: The read.
        path: Of a file when it ends in ``.parquet`` or ``.pq``, else of a folder, made with files ``part-00000.parquet``, ....
            The folder that it lies in exists.
        rows_per_file: Of a folder: at most so many rows a file; None: one file.
        overwrite: Whether a file, or a folder that was written so, may be there, and is replaced.

    Raises:
        AlreadyExistsError: Something is there, and `overwrite` is false; or a folder with other files.
        InvalidRequestError, NotFoundError: There can be no file of that path.
        StorageError: The disk refused. Nothing was left.
    """
    target = _checked_target(path)
    is_file = target.suffix in _FILE_ENDS
    target = through_link(target)
    if is_file and rows_per_file is not None:
        raise InvalidRequestError(
            f"to_parquet: rows_per_file is for a folder; {target.name} is a file: leave its ending out"
        )
    _check_free(target, is_file=is_file, overwrite=overwrite)
    temporary = part_of(target)
    with _removed_on_failure(temporary, target), claimed(temporary, is_folder=not is_file):
        if is_file:
            count = _write_file(rows.schema, rows.to_batches(ROW_GROUP_ROWS), temporary)
        else:
            count = _write_folder(rows, temporary, rows_per_file)
        with Held():
            _put(temporary, target)
    paths = (target,) if is_file else tuple(sorted(target.iterdir()))
    return ParquetExport(paths, count, sum(each.stat().st_size for each in paths))


def _checked_target(path: str | Path) -> Path:
    text = os.fspath(path)
    if not text or "\0" in text:
        raise InvalidRequestError(f"to_parquet: expected the path of a file or folder, found {text!r}")
    target = absolute_path(text, f"to_parquet: {text[:200]!r}")
    if not target.name or target.name == "..":
        raise InvalidRequestError(f"to_parquet: {text!r} is no name of a file or folder to be made")
    try:
        is_there = target.parent.is_dir()
        with suppress(FileNotFoundError, NotADirectoryError):
            target.lstat()  # a name that is too long is found now, and not when all is written
    except OSError as error:
        raise InvalidRequestError(f"to_parquet: {text[:200]!r}: {error.strerror}") from error
    if not is_there:
        raise NotFoundError(f"to_parquet: there is no folder {target.parent}: make it first")
    return target


def _check_free(target: Path, *, is_file: bool, overwrite: bool) -> None:
    try:
        if not os.path.lexists(target):
            return
    except OSError as error:
        raise InvalidRequestError(f"to_parquet: {target}: {error.strerror}") from error
    if target.is_dir():
        others = sorted(each.name for each in target.iterdir() if is_file or not _PART.fullmatch(each.name))
        if is_file or others:
            what = f"a folder with other files ({', '.join(others[:3])})" if others else "a folder"
            raise AlreadyExistsError(f"to_parquet: {target} is {what}: choose another path")
    elif not is_file:
        raise AlreadyExistsError(f"to_parquet: {target} is a file: end the path in .parquet, or choose another one")
    if not overwrite and (is_file or any(target.iterdir())):
        raise AlreadyExistsError(f"to_parquet: {target} exists; overwrite=True replaces it")


@contextmanager
def _removed_on_failure(temporary: Path, target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _remove(temporary)
        raise StorageError(f"to_parquet: {target}: {error.strerror or error}; nothing was left there") from error
    except BaseException:
        with Held():
            _remove(temporary)
        raise


def _remove(path: Path) -> None:
    """Remove what was written, by the names that were given: to list a folder takes a descriptor, which there may be none of."""
    with suppress(OSError):  # the error that ended the write says more
        if not path.is_dir():
            path.unlink(missing_ok=True)
            return
        number = 0
        while (part := _part(path, number)).exists():
            part.unlink()
            number += 1
        path.rmdir()


def _part(folder: Path, number: int) -> Path:
    return folder / f"part-{number:05}.parquet"


def _put(temporary: Path, target: Path) -> None:
    """Give what was written its name; a folder that has it is removed."""
    if not target.is_dir():
        files.replace(temporary, target)
        return
    files.exchange(temporary, target)
    shutil.rmtree(temporary, ignore_errors=True)


def _write_file(schema: pa.Schema, batches: Iterator[pa.RecordBatch], path: Path) -> int:
    from pyarrow import parquet

    count = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(as_written(batch), row_group_size=ROW_GROUP_ROWS)
            count += batch.num_rows
    files.fsync_path(path)
    return count


def _write_folder(rows: RowsRead, folder: Path, rows_per_file: int | None) -> int:
    total, number = 0, 0
    pieces = _Pieces(rows.to_batches(ROW_GROUP_ROWS))
    while number == 0 or pieces.has_more():
        total += _write_file(rows.schema, pieces.take(rows_per_file), _part(folder, number))
        number += 1
    files.fsync_folder(folder)
    return total


class _Pieces:
    """Batches cut where a file is full."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._held: pa.RecordBatch | None = None

    def has_more(self) -> bool:
        """Return whether there are rows left."""
        while self._held is None or not self._held.num_rows:
            if (batch := next(self._batches, None)) is None:
                return False
            self._held = batch
        return True

    def take(self, count: int | None) -> Iterator[pa.RecordBatch]:
        """Yield the next rows; None: all."""
        left = count
        while left != 0 and self.has_more():
            assert self._held is not None
            piece = self._held if left is None else self._held.slice(0, left)
            self._held = self._held.slice(piece.num_rows)
            left = None if left is None else left - piece.num_rows
            yield piece
