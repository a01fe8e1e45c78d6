"""The check of another engine's rows before they are adopted: each offset of the lake table belongs to one record.

A row whose offset another row of its bucket has is read as neither: merged files no longer ascend, a replay has one record
where there are two, a delete does not determine which row it ends. One at or behind the end of what is tiered takes the offset
of a record that is still to come. And one below zero is in no range of a bucket's log: no read would give it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from fluss_lab.lake.iceberg.maintenance.orphans import is_ours_by_name
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache, LakeFile, live_state, snapshot_of
from fluss_lab.lake.iceberg.read.data_file_reader import DataFileReader
from fluss_lab.lake.iceberg.table.layout import LakeColumns, known_layout
from fluss_lab.lake.maintenance_interfaces import TakenOffsets
from fluss_lab.lake.system_columns import OFFSET_COLUMN
from fluss_lab.model.names import BucketKey

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyiceberg.table import Table

    from fluss_lab.model import TableInfo

#: Offsets that are named of a bucket.
_NAMED_MAX: Final = 5


def taken_offsets(
    lake: Table, table: TableInfo, entries: EntryCache, ends: Mapping[BucketKey, int]
) -> list[TakenOffsets]:
    """Return, by bucket, offsets of the newest snapshot that more than one row has, that are of records to come, or of none.

    Args:
        lake: The lake table.
        table: The table.
        entries: Decoded manifests.
        ends: How far each bucket is tiered; of one that is not named, only repeated offsets are looked for.

    Raises:
        FileNotFoundError: A file is gone.
        CorruptDataError, UnsupportedError: The table was damaged or changed from outside.

    Cost: the offset column of files that others wrote, and of those whose ranges of offsets overlap.
    """
    if (newest := lake.metadata.current_snapshot_id) is None:
        return []
    layout = known_layout(table, lake)
    columns = LakeColumns.of(table, layout, lake.name_mapping())
    found = []
    for key, state in live_state(lake, table.path, layout, snapshot_of(lake, table.path, newest), entries).items():
        repeated, late, early = _of_bucket(lake, columns, state.data, ends.get(key))
        if count := len(repeated) + len(late) + len(early):
            found.append(
                TakenOffsets(*key, _first_offsets(repeated), _first_offsets(late), count, _first_offsets(early))
            )
    return found


def _first_offsets(offsets: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(int(each) for each in offsets[:_NAMED_MAX])


def _of_bucket(
    lake: Table, columns: LakeColumns, files: Sequence[LakeFile], end: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the offsets of a bucket that are repeated, and those of others' rows at or behind its end, and below zero; ascending."""
    foreign = {file.file.file_path for file in files if not is_ours_by_name(file.file.file_path)}
    looked_at = [
        _offsets(lake, columns, file) for file in files if file.file.file_path in foreign | _overlapping(files)
    ]
    values, counts = np.unique(np.concatenate(looked_at or [np.empty(0, np.int64)]), return_counts=True)
    others = [_offsets(lake, columns, file) for file in files if file.file.file_path in foreign]
    theirs = np.unique(np.concatenate(others or [np.empty(0, np.int64)]))
    late = theirs[:0] if end is None else theirs[theirs >= end]
    return values[counts > 1], late, theirs[theirs < 0]


def _overlapping(files: Sequence[LakeFile]) -> set[str]:
    """Return the files that may have an offset in common with another; given ascending by first offset."""
    found: set[str] = set()
    widest: LakeFile | None = None
    for file in files:
        if widest is not None and file.min_offset <= widest.max_offset:
            found |= {file.file.file_path, widest.file.file_path}
        if widest is None or file.max_offset > widest.max_offset:
            widest = file
    return found


def _offsets(lake: Table, columns: LakeColumns, file: LakeFile) -> NDArray[np.int64]:
    with DataFileReader(lake.io, file.file.file_path, columns) as reader:
        offsets: NDArray[np.int64] = reader.read(reader.groups, [OFFSET_COLUMN]).column(0).to_numpy()
        return offsets
