"""Position deletes: the positions that delete files delete in each data file, and how a delete file is opened.

Positions are kept as sorted arrays of 64-bit numbers by data file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fluss_lab.errors import CorruptDataError
from fluss_lab.lake.iceberg.files.parquet_input import check_footer, open_parquet, parquet_errors
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


class PositionDeletes:
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


@contextmanager
def open_delete_file(io: FileIO, path: str) -> Iterator[tuple[pq.ParquetFile, dict[int, str]]]:
    """Open a delete file; with it come the names of its columns by field id."""
    with parquet_errors(io, path, "delete file"), io.new_input(path).open() as stream:
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
