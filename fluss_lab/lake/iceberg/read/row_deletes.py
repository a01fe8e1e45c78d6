"""The deleted rows of a bucket: by position and by key, whoever wrote the delete files.

Positions are kept as sorted arrays of 64-bit numbers by data file; keys as one index that knows of each key the largest
data sequence number that deletes it, so that one look-up serves every data file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fluss_lab.errors import CorruptDataError, UnsupportedError
from fluss_lab.lake.iceberg.files.parquet_input import check_footer, open_parquet, parquet_errors
from fluss_lab.lake.iceberg.metadata.snapshot_files import LakeDelete
from fluss_lab.lake.iceberg.read.data_file_rows import LakeColumns
from fluss_lab.lake.iceberg.table.type_mapping import FIELD_ID_KEY
from fluss_lab.lake.iceberg.write.delete_schema import (
    CHANGE_TYPE_ID,
    PATH_COLUMN,
    PATH_ID,
    POSITION_COLUMN,
    POSITION_ID,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyiceberg.io import FileIO

_NO_POSITIONS: Final = np.empty(0, dtype=np.int64)
_NEVER: Final = -1


@dataclass(slots=True)
class PositionFile:
    """What a position-delete file refers to.

    Attributes:
        path: Where it is.
        has_events: Whether it carries the rows that it deletes.
        counts: How many positions it deletes in each data file.
    """

    path: str
    has_events: bool
    counts: dict[str, int] = field(default_factory=dict)


class DeletedPositions:
    """The positions that position-delete files delete.

    Args:
        io: Access to the files.
        deletes: Position-delete files of a bucket.
        wanted: Paths of the data files whose positions are kept; those of others are only counted. None: all.

    Raises:
        FileNotFoundError: A delete file is gone.
        CorruptDataError: One is no delete file.

    Cost: paths and positions of every delete file are read, a row group at a time; eight bytes a position are kept.
    """

    def __init__(self, io: FileIO, deletes: Iterable[str], wanted: Collection[str] | None) -> None:
        parts: defaultdict[str, list[NDArray[np.int64]]] = defaultdict(list)
        self.files: list[PositionFile] = []
        for path in deletes:
            found = PositionFile(path, has_events=False)
            with open_delete_file(io, path) as (parquet, names):
                found.has_events = CHANGE_TYPE_ID in names
                for data_path, positions in _positions(path, parquet, names):
                    found.counts[data_path] = found.counts.get(data_path, 0) + len(positions)
                    if wanted is None or data_path in wanted:
                        parts[data_path].append(positions)
            self.files.append(found)
        self._by_file = {path: np.unique(np.concatenate(arrays)) for path, arrays in parts.items()}

    def of(self, path: str) -> NDArray[np.int64]:
        """Return the deleted positions of a data file, ascending, each once."""
        return self._by_file.get(path, _NO_POSITIONS)


class DeletedKeys:
    """The keys that equality-delete files delete, and up to which data sequence number.

    Values are compared as Iceberg does: null equals null.

    Args:
        io: Access to the files.
        deletes: Equality-delete files that may apply to a bucket.
        columns: The table's columns, for names and types.

    Raises:
        FileNotFoundError: A delete file is gone.
        CorruptDataError: One is no delete file.
        UnsupportedError: One deletes by columns that the table does not have.

    Cost: the key columns of every delete file are in memory.
    """

    def __init__(self, io: FileIO, deletes: Iterable[LakeDelete], columns: LakeColumns) -> None:
        by_ids: defaultdict[tuple[int, ...], list[tuple[pa.Table, int]]] = defaultdict(list)
        for delete in deletes:
            ids = tuple(sorted(delete.file.equality_ids or ()))
            names = _key_names(delete, ids, columns)
            keys = _read_keys(io, delete.file.file_path, ids, names, columns)
            by_ids[ids].append((keys, delete.data_sequence_number))
        self._indexes = [_KeyIndex(parts) for parts in by_ids.values()]

    @property
    def names(self) -> list[str]:
        """Return the columns that are needed to tell whether a row is deleted."""
        return list(dict.fromkeys(name for index in self._indexes for name in index.names))

    def deleted(self, rows: pa.Table, data_sequence_number: int) -> NDArray[np.bool_]:
        """Tell of each row whether it is deleted.

        Args:
            rows: Rows of one data file, with the columns `names`.
            data_sequence_number: Of that file: deletes of larger ones apply to it.
        """
        dead = np.zeros(len(rows), dtype=bool)
        for index in self._indexes:
            dead |= index.sequence_numbers(rows) > data_sequence_number
        return dead


class _KeyIndex:
    """Tuples of values, each with the largest of the numbers given with it."""

    def __init__(self, parts: Sequence[tuple[pa.Table, int]]) -> None:
        keys = pa.concat_tables([table for table, _ in parts]).combine_chunks()
        numbers = np.concatenate([np.full(len(table), number, dtype=np.int64) for table, number in parts])
        self.names: list[str] = list(keys.schema.names)
        #: Of each column its values, and the combined codes of the tuples up to it, ascending.
        self._steps: list[tuple[pa.Array, NDArray[np.int64]]] = []
        codes = np.zeros(len(keys), dtype=np.int64)
        for column in keys.columns:
            values = column.unique()
            found = _codes(column, values)
            distinct, codes = np.unique(codes * (len(values) + 1) + found, return_inverse=True)
            self._steps.append((values, distinct))
        self._numbers = np.full(int(codes.max()) + 1 if len(codes) else 0, _NEVER, dtype=np.int64)
        np.maximum.at(self._numbers, codes, numbers)

    def sequence_numbers(self, rows: pa.Table) -> NDArray[np.int64]:
        """Return the number of each row's tuple; `_NEVER` for one that is not among them."""
        if not len(self._numbers):
            return np.full(len(rows), _NEVER, dtype=np.int64)
        codes = np.zeros(len(rows), dtype=np.int64)
        known = np.ones(len(rows), dtype=bool)
        for name, (values, distinct) in zip(self.names, self._steps, strict=True):
            found = _codes(rows.column(name), values)
            combined = codes * (len(values) + 1) + found
            places = np.minimum(np.searchsorted(distinct, combined), len(distinct) - 1)
            known &= (found >= 0) & (distinct[places] == combined)
            codes = np.where(known, places, 0)
        return np.where(known, self._numbers[codes], _NEVER)


def _codes(column: pa.ChunkedArray, values: pa.Array) -> NDArray[np.int64]:
    """Return where each value is among distinct ones; -1 for one that is not. A null is a value."""
    found = pc.fill_null(pc.index_in(column, value_set=values), -1)
    codes: NDArray[np.int64] = found.to_numpy().astype(np.int64)
    return codes


def _key_names(delete: LakeDelete, ids: Sequence[int], columns: LakeColumns) -> list[str]:
    known = {each.field_id: each.name for each in columns.layout.schema.fields}
    if not ids or any(field_id not in known for field_id in ids):
        raise UnsupportedError(
            f"lake file {delete.file.file_path}: somebody deleted rows by the fields {list(ids)}; expected columns of the "
            "table. Rewrite the table's files in the lake so that these deletes are applied"
        )
    return [known[field_id] for field_id in ids]


def _read_keys(io: FileIO, path: str, ids: Sequence[int], names: Sequence[str], columns: LakeColumns) -> pa.Table:
    """Return the key columns of an equality-delete file, in the table's types; columns that it lacks are null."""
    fields = [columns.schema.field(name) for name in names]
    with open_delete_file(io, path) as (parquet, found):
        present = [found[field_id] for field_id in ids if field_id in found]
        rows = parquet.read(columns=present, use_threads=False)
    arrays: list[Any] = []
    for field_id, column in zip(ids, fields, strict=True):
        if field_id in found:
            try:
                arrays.append(rows.column(found[field_id]).cast(column.type))
            except pa.ArrowException as error:
                raise CorruptDataError(f"lake file {path}: column {column.name!r}: {error}") from error
        else:
            arrays.append(pa.chunked_array([pa.nulls(len(rows), column.type)]))
    return pa.Table.from_arrays(arrays, names=list(names))


@contextmanager
def open_delete_file(io: FileIO, path: str) -> Iterator[tuple[pq.ParquetFile, dict[int, str]]]:
    """Open a delete file; with it come the names of its columns by field id."""
    with parquet_errors(path, "delete file"), io.new_input(path).open() as stream:
        check_footer(path)
        parquet = open_parquet(stream, pre_buffer=True)
        if PATH_COLUMN in parquet.schema_arrow.names:
            # Few paths, each thousands of times.
            parquet = open_parquet(stream, metadata=parquet.metadata, read_dictionary=[PATH_COLUMN], pre_buffer=True)
        named = [(each.metadata or {}, each.name) for each in parquet.schema_arrow]
        yield parquet, {int(ids[FIELD_ID_KEY]): name for ids, name in named if FIELD_ID_KEY in ids}


def _positions(path: str, parquet: pq.ParquetFile, names: Mapping[int, str]) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield data files and positions, as they come."""
    columns = [names.get(PATH_ID, PATH_COLUMN), names.get(POSITION_ID, POSITION_COLUMN)]
    if missing := [name for name in columns if name not in parquet.schema_arrow.names]:
        raise CorruptDataError(
            f"lake file {path}: expected a position-delete file, but column {missing[0]!r} is missing"
        )
    for group in range(parquet.metadata.num_row_groups):
        rows = parquet.read_row_group(group, columns=columns, use_threads=False)
        for batch in rows.to_batches():
            paths = batch.column(columns[0])
            if not pa.types.is_dictionary(paths.type):
                paths = paths.dictionary_encode()
            codes = paths.indices.to_numpy(zero_copy_only=False)
            positions = batch.column(columns[1]).cast(pa.int64()).to_numpy(zero_copy_only=False)
            yield from _runs(paths.dictionary, codes, positions)


def _runs(
    paths: pa.Array, codes: NDArray[Any], positions: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield the runs of one path each: files are sorted by path, so they are few."""
    if not len(codes):
        return
    firsts = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist()]
    for first, stop in zip(firsts, [*firsts[1:], len(codes)], strict=True):
        yield paths[int(codes[first])].as_py(), positions[first:stop]
