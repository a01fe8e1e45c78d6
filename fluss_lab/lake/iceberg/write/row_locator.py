"""The locator of rows by log offset: file and position, from the offset columns of data files alone.

Rows keep their ``__offset`` whatever compaction does, and files are written sorted by it; so a row of a bucket is found
by a binary search in the one file whose offset range admits it. Files of others may overlap: then each is looked into.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fluss_lab.errors import CommitConflictError, CorruptDataError
from fluss_lab.lake.iceberg.files.parquet_input import opened_parquet
from fluss_lab.lake.iceberg.table.type_mapping import FIELD_ID_KEY
from fluss_lab.lake.system_columns import OFFSET_COLUMN

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyiceberg.io import FileIO

    from fluss_lab.lake.iceberg.metadata.snapshot_files import LakeFile

#: What stands for "in no file", as file and as position.
NOWHERE = -1


class OffsetFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A data file of a bucket, as far as rows are sought in it.

    Attributes:
        path: Its location.
        min_offset: No row has a smaller offset (inclusive).
        max_offset: No row has a larger offset (inclusive).
        rows: Rows in the file.
    """

    path: str
    min_offset: int
    max_offset: int
    rows: int


def offset_files(files: Sequence[LakeFile]) -> list[OffsetFile]:
    """Return data files as rows are sought in them."""
    return [OffsetFile(each.file.file_path, each.min_offset, each.max_offset, each.file.record_count) for each in files]


class RowLocator:
    """Finds rows in the live data files of one bucket. Used by one thread.

    Args:
        io: Access to the files.
        files: All of them, in any order; their offset ranges may overlap.
        offset_id: Field id of the column ``__offset``.
    """

    def __init__(self, io: FileIO, files: Sequence[OffsetFile], offset_id: int) -> None:
        self.files = tuple(files)
        self._io = io
        self._offset_id = offset_id

    def locate(self, offsets: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return where the rows with some offsets lie.

        Args:
            offsets: int64, in any order; the same one may be there several times.

        Returns:
            For each offset the index of its file among `files` and the row's position in that file, both -1 for a row
            that is in none.

        Raises:
            CorruptDataError: A row is in two live files, or twice in one; or a file is not what the lake's metadata says.
            CommitConflictError: A file is gone: it was rewritten and expired. Plan the round again.

        Cost: each file whose range admits an offset is opened once, and the offset column of the row groups that can
        hold one is read; memory is that of one row group's offsets.
        """
        order = np.argsort(offsets, kind="stable")
        wanted = offsets[order]
        found = np.full(len(wanted), NOWHERE, dtype=np.int32)
        positions = np.full(len(wanted), NOWHERE, dtype=np.int64)
        for index, file in enumerate(self.files):
            low, high = _value_range(wanted, file.min_offset, file.max_offset)
            if low < high:
                self._search(index, wanted[low:high], found[low:high], positions[low:high])
        file_of, position_of = np.empty_like(found), np.empty_like(positions)
        file_of[order], position_of[order] = found, positions
        return file_of, position_of

    def _search(
        self, index: int, wanted: NDArray[np.int64], found: NDArray[np.int32], positions: NDArray[np.int64]
    ) -> None:
        """Look for ascending offsets in one file; what is found is written into the last two."""
        for first, values in _offset_groups(self._io, self.files[index], self._offset_id, wanted):
            ascends = bool((values[1:] > values[:-1]).all())
            ranks = None if ascends else np.argsort(values, kind="stable")
            ascending = values if ranks is None else values[ranks]
            left = np.searchsorted(ascending, wanted, side="left")
            right = np.searchsorted(ascending, wanted, side="right")
            hits = np.flatnonzero(left < right)
            twice = hits[(right[hits] - left[hits] > 1) | (found[hits] != NOWHERE)]
            if len(twice):
                raise self._in_two_places(index, int(wanted[twice[0]]), int(found[twice[0]]))
            places = left[hits] if ranks is None else ranks[left[hits]]
            found[hits] = index
            positions[hits] = first + places

    def _in_two_places(self, index: int, offset: int, earlier: int) -> CorruptDataError:
        file = self.files[index].path
        other = file if earlier in {NOWHERE, index} else self.files[earlier].path
        where = f"twice in {file}" if other == file else f"in {other} and in {file}"
        return CorruptDataError(
            f"offset {offset}: expected one live row, found it {where}: another program copied rows in the lake; remove one of them"
        )


def _value_range(ascending: NDArray[np.int64], smallest: int, largest: int) -> tuple[int, int]:
    """Return the half-open range of values in ``[smallest, largest]``, both inclusive."""
    low = np.searchsorted(ascending, smallest, side="left")
    return int(low), int(np.searchsorted(ascending, largest, side="right"))


def _offset_groups(
    io: FileIO, file: OffsetFile, offset_id: int, wanted: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the first position and the offsets of each row group of a file that can hold one of the wanted, ascending."""
    try:
        with opened_parquet(io, file.path, "Parquet file") as parquet:
            footer = parquet.metadata
            if footer.num_rows != file.rows:
                raise CorruptDataError(f"lake file {file.path}: expected {file.rows} rows, found {footer.num_rows}")
            name, leaf = _offset_column(file, parquet, offset_id)
            first = 0
            for number in range(footer.num_row_groups):
                group = footer.row_group(number)
                if _admits(group.column(leaf).statistics, wanted):
                    values = parquet.read_row_group(number, columns=[name], use_threads=False).column(0)
                    if values.null_count:
                        raise CorruptDataError(f"lake file {file.path}: {name!r} holds nulls")
                    yield first, values.cast(pa.int64()).to_numpy()
                first += group.num_rows
    except FileNotFoundError as error:
        raise CommitConflictError(
            f"lake file {file.path} is missing: its snapshot was expired, or another program removed the file; plan the round again"
        ) from error


def _admits(statistics: Any, wanted: NDArray[np.int64]) -> bool:
    if statistics is None or not statistics.has_min_max:
        return True
    low, high = _value_range(wanted, int(statistics.min), int(statistics.max))
    return low < high


def _offset_column(file: OffsetFile, parquet: pq.ParquetFile, offset_id: int) -> tuple[str, int]:
    """Return path and index of the leaf column that holds the offsets: by field id, by name in a file without ids."""
    fields = parquet.schema_arrow
    ids = {int(raw): field.name for field in fields if (raw := (field.metadata or {}).get(FIELD_ID_KEY)) is not None}
    name = ids.get(offset_id) if ids else OFFSET_COLUMN
    schema = parquet.metadata.schema
    for leaf in range(parquet.metadata.num_columns):
        if schema.column(leaf).path == name:
            return str(name), leaf
    raise CorruptDataError(f"lake file {file.path}: no column has field id {offset_id}, that of {OFFSET_COLUMN!r}")
