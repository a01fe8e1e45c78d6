"""Small data files in memory: decoded one by one, checked and freed of dead rows together.

What follows decoding costs a batch of a few thousand rows what it costs one of ten times as many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.iceberg.files.parquet_input import parquet_errors
from fluss_lab.lake.iceberg.read.dead_rows import DeadRows
from fluss_lab.lake.system_columns import OFFSET_COLUMN
from fluss_lab.records.row_removal import boolean_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fluss_lab.lake.iceberg.table.layout import LakeColumns

#: A pack ends at so many rows: enough that what a step costs by itself does not count, few enough for packs side by side,
PACK_ROWS: Final = 32 * 1024
#: or at so many stored bytes, some ten million when decoded.
PACK_BYTES: Final = 2 * 1024 * 1024
#: While a pack is filtered, the column of which file a row is of. No column of a table is called so.
_FILE: Final = ""


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A small file that has the columns wanted where tiering lays them, and says that it ascends by offset.

    Attributes:
        place: Which one it is, for who reads several.
        path: Where it is, for messages.
        size_bytes: Its size.
        dead: What of it is left out; None: nothing. No positions.
        parquet: The file, in memory.
    """

    place: int
    path: str
    size_bytes: int
    dead: DeadRows | None
    parquet: pq.ParquetFile

    @property
    def rows(self) -> int:
        """Return how many rows are in it."""
        return int(self.parquet.metadata.num_rows)

    @property
    def has_dead_keys(self) -> bool:
        """Return whether rows of it are left out by key."""
        return self.dead is not None and self.dead.keys is not None


def packs(files: Sequence[SmallFile]) -> Iterator[list[SmallFile]]:
    """Yield files in packs, which `SmallFileReader` reads at once."""
    pack: list[SmallFile] = []
    rows = size = 0
    for file in files:
        rows, size = rows + file.rows, size + file.size_bytes
        if pack and (rows > PACK_ROWS or size > PACK_BYTES or file.has_dead_keys or pack[-1].has_dead_keys):
            yield pack
            pack, rows, size = [], file.rows, file.size_bytes
        pack.append(file)
    if pack:
        yield pack


@dataclass(frozen=True, slots=True)
class SmallFileReader:
    """Reads packs. Safe in any thread.

    Attributes:
        columns: The table's columns.
        names: Those wanted, in order.
        filtered: Those that the filter needs.
        where: Rows for which it is not true are left out; None: none.
    """

    columns: LakeColumns
    names: Sequence[str]
    filtered: Sequence[str]
    where: pc.Expression | None

    def read(self, pack: Sequence[SmallFile]) -> list[tuple[int, pa.RecordBatch]]:
        """Return the rows wanted of each file with its place, ascending by offset; of a file without any, no batch.

        Raises:
            CorruptDataError: A file is not what it says.
        """
        try:
            return self._read(pack)
        except CorruptDataError:
            if len(pack) == 1:
                raise
        # What is wrong is said of the file that it is wrong with.
        return [found for file in pack for found in self._read([file])]

    def _read(self, pack: Sequence[SmallFile]) -> list[tuple[int, pa.RecordBatch]]:
        extra = [name for file in pack if file.dead is not None for name in file.dead.columns]
        names = list(dict.fromkeys([*self.names, *self.filtered, *extra]))
        tables = [_decode(file, names) for file in pack]
        edges: NDArray[np.int64] = np.cumsum([0, *(table.num_rows for table in tables)])
        rows = self.columns.conform(_join(tables, names, self.columns.stored), pack[0].path)
        if OFFSET_COLUMN in names:
            offsets = rows.column(OFFSET_COLUMN).to_numpy()
            check_ascending(offsets, pack[0].path, edges)
            alive = _alive(offsets, edges, pack)
            if not alive.all():
                rows = rows.filter(boolean_array(alive))
                edges = np.concatenate((np.zeros(1, np.int64), np.cumsum(alive, dtype=np.int64)))[edges]
        if pack[0].dead is not None and pack[0].dead.keys is not None:
            rows = pack[0].dead.without(rows)
            edges = np.array([0, rows.num_rows], dtype=np.int64)
        rows, edges = self._filter_rows(rows, edges)
        rows = rows.select(self.names)
        spans = zip(pack, edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        return [(file.place, rows.slice(low, high - low)) for file, low, high in spans if low < high]

    def _filter_rows(self, rows: pa.RecordBatch, edges: NDArray[np.int64]) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Return the rows for which the filter is true, and where those of each file begin and end."""
        if self.where is None or not rows.num_rows:
            return rows, edges
        files = pa.array(np.repeat(np.arange(len(edges) - 1, dtype=np.int32), np.diff(edges)))
        numbered = pa.RecordBatch.from_arrays([*rows.columns, files], names=[*rows.schema.names, _FILE])
        found = numbered.filter(self.where)
        counts = np.bincount(found.column(rows.num_columns).to_numpy(), minlength=len(edges) - 1)
        return found, np.cumsum([0, *counts])


def check_ascending(offsets: NDArray[np.int64], path: str, edges: NDArray[np.int64] | None = None) -> None:
    """Check that offsets ascend strictly, as the metadata of their file says.

    Args:
        offsets: Of rows of a file, or of several one after another.
        path: The file, for the message.
        edges: Where rows of several files begin and end: at these they need not.

    Raises:
        CorruptDataError: They do not.
    """
    ascends = offsets[1:] > offsets[:-1]
    if edges is not None:
        inner = edges[(edges > 0) & (edges < len(offsets))]
        ascends[inner - 1] = True
    if not ascends.all():
        raise CorruptDataError(
            f"lake file {path}: the table's metadata says that it is sorted by {OFFSET_COLUMN!r}, but it is not; "
            "its writer has to write it again"
        )


def _decode(file: SmallFile, names: Sequence[str]) -> pa.Table:
    with parquet_errors(None, file.path, "Parquet file"):
        present = file.parquet.schema_arrow.names
        return file.parquet.read(columns=[name for name in names if name in present], use_threads=False)


def _join(tables: Sequence[pa.Table], names: Sequence[str], stored: Mapping[str, pa.Field]) -> pa.RecordBatch:
    """Return the rows of files one after another, in the lake's types; a column that a file lacks is null in its rows."""
    arrays = []
    for name in names:
        chunks: list[pa.Array] = []
        for table in tables:
            index = table.schema.get_field_index(name)
            chunks += table.column(index).chunks if index >= 0 else [pa.nulls(len(table), stored[name].type)]
        arrays.append(pa.concat_arrays(chunks))
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _alive(offsets: NDArray[np.int64], edges: NDArray[np.int64], pack: Sequence[SmallFile]) -> NDArray[np.bool_]:
    """Return which rows of files are not left out by their offsets."""
    alive = np.ones(len(offsets), dtype=bool)
    for file, low, high in zip(pack, edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if file.dead is not None:
            own = offsets[low:high]
            alive[low + file.dead.places(own)] = False
            if file.dead.stop is not None:
                alive[low + int(own.searchsorted(file.dead.stop)) : high] = False
    return alive
