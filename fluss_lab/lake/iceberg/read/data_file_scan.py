"""Rows of data files, one file after another: side by side where files lie as tiering lays them, else each by itself.

Most files have the columns asked for under their names and in the lake's types, and say that they ascend by offset: of
these a good number at a time goes through one scan of Arrow's, with the filter pushed down to row groups. Others are read
by `DataFileReader`, which finds columns by field id and sorts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.iceberg.files.file_faults import reading_fault
from fluss_lab.lake.iceberg.files.file_locations import arrow_place
from fluss_lab.lake.iceberg.files.file_seals import check_parquet_bytes
from fluss_lab.lake.iceberg.files.lake_errors import library_errors
from fluss_lab.lake.iceberg.files.parquet_input import (
    check_footer,
    in_order,
    open_parquet,
    parquet_errors,
    side_by_side,
)
from fluss_lab.lake.iceberg.read.data_file_reader import PARQUET
from fluss_lab.lake.iceberg.read.dead_rows import DeadRows
from fluss_lab.lake.iceberg.read.lake_table import LakeTable
from fluss_lab.lake.iceberg.read.small_files import SmallFile, SmallFileReader, check_ascending, packs
from fluss_lab.lake.system_columns import OFFSET_COLUMN

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyiceberg.io import FileIO

#: So many files should be asked for at a time: they are opened before the first is read.
FILES_AT_ONCE: Final = 64
#: A file of no more bytes is read whole, in one request.
SMALL_BYTES: Final = 256 * 1024
#: What is decoded ahead of the reader is about this many bytes: a row group or so, several where they are small.
AHEAD_BYTES: Final = 64 * 1024 * 1024
AHEAD_MAX: Final = 4
#: Bytes that a stored byte becomes when it is decoded: five or so of what tiering writes.
_DECODED_BYTES: Final = 5
_BATCH_ROWS: Final = 128 * 1024
#: A file as it can be read fast: for Arrow's scan, or in memory; None of one that cannot.
_Opened: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class WantedFile:
    """A data file that is read.

    Attributes:
        path: Where it is.
        snapshot_id: The snapshot that it was found in; None: not known.
        rows: Rows in it.
        size_bytes: Its size.
        ascends: Whether it says that its rows ascend by offset.
        dead: What of it is left out; None: nothing.
    """

    path: str
    snapshot_id: int | None
    rows: int
    size_bytes: int
    ascends: bool
    dead: DeadRows | None

    @property
    def stop(self) -> int | None:
        """Return the offset from which on rows are left out; None: none are by it."""
        return None if self.dead is None else self.dead.stop

    @property
    def positions(self) -> NDArray[np.int64] | None:
        """Return the positions of rows that are left out, ascending; None: none are by theirs."""
        return self.dead.positions if self.dead is not None and len(self.dead.positions) else None

    @property
    def dead_columns(self) -> list[str]:
        """Return the columns by which `live_rows` finds what is left out."""
        return [] if self.dead is None else self.dead.columns

    def live_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of the file, ascending by offset, without those left out, positions apart."""
        return rows if self.dead is None else self.dead.without(rows)


class DataFileScan:
    """Reads columns of data files for a filter. Used by one thread.

    Args:
        table: The table.
        names: User's and system columns, in the order wanted.
        where: Rows for which it is not true are left out; None: none.
    """

    def __init__(self, table: LakeTable, names: Sequence[str], where: pc.Expression | None) -> None:
        self._table = table
        self._columns = table.columns()
        self._names = list(names)
        self._where = where
        filtered = [] if where is None else self._columns.names_in(where)
        types = self._columns.stored
        #: What a filter computes may depend on the width of its types: it is pushed down where they are the table's own.
        self._pushed = where if all(types[n].type == self._columns.schema.field(n).type for n in filtered) else None
        self._filtered = filtered
        self._types = types

    def read(self, files: Sequence[WantedFile]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows with the index of their file, file after file, each ascending by offset; no empty batch.

        Raises:
            LakeSnapshotNotFoundError: A file is gone, and its snapshot too.
            CorruptDataError: A file is missing, or is not what the lake's metadata says.
        """
        near = self._table.is_near
        opened = [self._open(file) for file in files] if near else side_by_side(_path, self._open, files)
        for _, group in groupby(range(len(files)), key=lambda at: _group_key(files[at], opened[at])):
            for at, rows in self._read_group(files, list(group), opened):
                if rows.num_rows:
                    yield at, rows

    def _read_group(
        self, files: Sequence[WantedFile], numbers: list[int], opened: list[_Opened]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        first = opened[numbers[0]]
        if isinstance(first, ds.ParquetFileFragment):
            yield from self._read_together(files, numbers, [opened[at] for at in numbers])
        elif isinstance(first, pq.ParquetFile):
            yield from self._read_small(files, numbers, opened)
        else:
            for at in numbers:
                yield from ((at, rows) for rows in self._read_alone(files[at]))

    def _open(self, file: WantedFile) -> _Opened:
        """Return a file as it can be read fast; None of one that cannot."""
        if not file.ascends or file.positions is not None:
            return None
        io = self._table.io()
        try:
            with parquet_errors(io, file.path, "Parquet file"):
                if file.size_bytes <= SMALL_BYTES and (found := _in_memory(io, file.path)) is not None:
                    physical = found.schema_arrow
                elif (found := _fragment(io, file.path)) is not None:
                    physical = found.physical_schema
                else:
                    return None
                _check_rows(file, found.metadata.num_rows)
        except FileNotFoundError as error:
            raise self._table.missing(file.snapshot_id, error) from error
        needed = {*self._names, *self._filtered, *file.dead_columns}
        return found if needed <= self._columns.match(physical).direct else None

    def _read_together(
        self, files: Sequence[WantedFile], numbers: Sequence[int], fragments: Sequence[ds.ParquetFileFragment]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        chosen = [files[at] for at in numbers]
        extra = [name for file in chosen for name in file.dead_columns]
        late = [] if self._pushed is self._where else self._filtered
        names = list(dict.fromkeys([*self._names, *late, *extra]))
        schema = pa.schema([self._types[name] for name in dict.fromkeys([*names, *self._filtered])])
        by_path = {fragment.path: at for at, fragment in zip(numbers, fragments, strict=True)}
        where = self._pushed
        if (stop := chosen[0].stop) is not None:
            below = pc.field(OFFSET_COLUMN) < pa.scalar(stop, pa.int64())
            where = below if where is None else where & below
            schema = schema if OFFSET_COLUMN in names else schema.append(self._types[OFFSET_COLUMN])
        try:
            scanner = ds.FileSystemDataset(fragments, schema, PARQUET, fragments[0].filesystem).scanner(
                columns=names, filter=where, batch_size=_BATCH_ROWS, **_ahead(chosen)
            )

            def finish(batch: ds.TaggedRecordBatch) -> tuple[int, pa.RecordBatch]:
                at = by_path[batch.fragment.path]
                rows = self._columns.conform(batch.record_batch, files[at].path)
                return at, self._finish(files[at], rows, late=bool(late))

            # To leave rows out costs as much as to decode them; to leave out none, nothing.
            is_filtered = bool(late) or any(file.dead is not None for file in chosen)
            yield from (in_order if is_filtered else map)(finish, scanner.scan_batches())
        except library_errors(pa.ArrowException, OSError, ValueError, LookupError) as error:
            what = f"lake table {self._table.info.path}: one of the files {chosen[0].path} ... {chosen[-1].path}"
            found = reading_fault(self._table.io(), chosen[0].path, "file of the table's columns", error, what=what)
            raise (self._missing(chosen, found) if isinstance(found, OSError) else found) from error

    def _finish(self, file: WantedFile, rows: pa.RecordBatch, *, late: bool) -> pa.RecordBatch:
        if OFFSET_COLUMN in rows.schema.names:
            check_ascending(rows.column(OFFSET_COLUMN).to_numpy(), file.path)
        found = file.live_rows(rows)
        if late and found.num_rows:
            found = found.filter(self._where)
        return found.select(self._names)

    def _missing(self, files: Sequence[WantedFile], error: OSError) -> Exception:
        """Return what it means that one of some files is not there."""
        meaning: Exception = error
        for snapshot_id in dict.fromkeys(file.snapshot_id for file in files):
            meaning = self._table.missing(snapshot_id, error)
            if not isinstance(meaning, CorruptDataError):
                break
        return meaning

    def _read_small(
        self, files: Sequence[WantedFile], numbers: Sequence[int], opened: list[_Opened]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of files that are in memory: of such a scan costs twice what reading them does."""
        reader = SmallFileReader(self._columns, self._names, self._filtered, self._where)
        small = [SmallFile(at, files[at].path, files[at].size_bytes, files[at].dead, opened[at]) for at in numbers]
        for found in in_order(reader.read, packs(small)):
            yield from found

    # -- by itself -----------------------------------------------------------------------------------------------------

    def _read_alone(self, file: WantedFile) -> Iterator[pa.RecordBatch]:
        names = list(dict.fromkeys([*self._names, *file.dead_columns]))
        stop = file.stop
        with self._table.open(file.path, file.snapshot_id) as reader:
            groups = [group for group in reader.groups if stop is None or group.min_offset < stop]
            groups = groups if self._pushed is None else reader.matching(groups, self._pushed)
            for run in reader.runs(groups):
                rows = reader.read(run, names, self._where, file.positions)
                for batch in rows.combine_chunks().to_batches():
                    yield file.live_rows(batch).select(self._names)


def _check_rows(file: WantedFile, found: int) -> None:
    if found != file.rows:
        raise CorruptDataError(f"lake file {file.path}: expected {file.rows} rows, as its manifest says, found {found}")


def _path(file: WantedFile) -> str:
    return file.path


def _in_memory(io: FileIO, location: str) -> pq.ParquetFile | None:
    """Return a file that was read whole; None of one of several row groups, of which a filter may want but some."""
    with io.new_input(location).open() as stream:
        data = stream.read()
    check_parquet_bytes(data, location.rpartition("/")[2])
    found = open_parquet(pa.BufferReader(data))
    return found if found.num_row_groups == 1 else None


def _fragment(io: FileIO, location: str) -> ds.ParquetFileFragment | None:
    """Return a file for Arrow's scan; None where Arrow does not open it by itself."""
    if (place := arrow_place(io, location)) is None:
        return None
    check_footer(location)
    return PARQUET.make_fragment(place[1], place[0])


def _group_key(file: WantedFile, opened: _Opened) -> tuple[str, int | None]:
    """Return what files that are read in the same way have in common."""
    if isinstance(opened, ds.ParquetFileFragment):
        return (opened.filesystem.type_name, file.stop)
    return ("", None) if opened is None else ("in memory", None)


def _ahead(files: Sequence[WantedFile]) -> dict[str, int]:
    """Return how much is decoded ahead, for memory that does not depend on the number of files or their size."""
    decoded = max(file.size_bytes for file in files) * _DECODED_BYTES + 1
    batch = max(file.size_bytes * min(_BATCH_ROWS / (file.rows + 1), 1) for file in files) * _DECODED_BYTES + 1
    return {
        "fragment_readahead": max(1, min(AHEAD_MAX, int(AHEAD_BYTES // decoded))),
        "batch_readahead": max(1, min(AHEAD_MAX, int(AHEAD_BYTES // batch))),
    }
