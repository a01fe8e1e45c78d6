"""Equality deletes: the keys that delete files delete, and up to which data sequence number.

One index knows of each key the largest data sequence number that deletes it, so that one look-up serves every data file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import CorruptDataError, UnsupportedError
from fluss_lab.lake.iceberg.metadata.snapshot_files import LakeDelete
from fluss_lab.lake.iceberg.read.position_deletes import open_delete_file
from fluss_lab.lake.iceberg.table.layout import LakeColumns

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyiceberg.io import FileIO

_NEVER: Final = -1


class EqualityDeletes:
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
        """Return the columns that decide whether a row is deleted."""
        return list(dict.fromkeys(name for index in self._indexes for name in index.names))

    def deleted_mask(self, rows: pa.Table, data_sequence_number: int) -> NDArray[np.bool_]:
        """Return of each row whether it is deleted.

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
            f"lake file {delete.file.file_path}: another engine deleted rows by the fields {list(ids)}; expected columns of the "
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
