"""The live files of each bucket of a primary-key table: one pass over a snapshot serves all buckets."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from fluss_lab.errors import CommitConflictError
from fluss_lab.lake.iceberg.metadata.snapshot_files import BucketFiles, EntryCache, LakeFile, live_state, snapshot_of
from fluss_lab.lake.iceberg.table.layout import known_layout
from fluss_lab.lake.iceberg.write.row_locator import OffsetFile
from fluss_lab.model.json_codec import to_plain
from fluss_lab.model.names import BucketKey

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from fluss_lab.model import TableInfo

#: Snapshots kept: the newest of so many tables that are tiered at once. One of 2,000 files holds a megabyte.
SNAPSHOTS_KEPT: Final = 16


class BucketStates:
    """States of snapshots, the least recently used dropped first. A snapshot never changes. Safe in any thread."""

    def __init__(self, entries: EntryCache) -> None:
        self.entries = entries
        self._kept: OrderedDict[tuple[int, int], dict[BucketKey, BucketFiles]] = OrderedDict()
        self._lock = threading.Lock()

    def at(self, table: TableInfo, lake: Table, snapshot_id: int | None) -> Mapping[BucketKey, BucketFiles]:
        """Return what a snapshot's buckets consist of; nothing for None. Not to be changed.

        Raises:
            LakeSnapshotNotFoundError: The table has no such snapshot.
            UnsupportedError: As `live_state`.
            CommitConflictError: A manifest is gone, as of a snapshot that was expired: plan again.
        """
        if snapshot_id is None:
            return {}
        key = (table.table_id, snapshot_id)
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return kept
        snapshot = snapshot_of(lake, table.path, snapshot_id)
        try:
            state = live_state(lake, table.path, known_layout(table, lake), snapshot, self.entries)
        except FileNotFoundError as error:
            raise CommitConflictError(
                f"lake table {table.path}, snapshot {snapshot_id}: {error}: it was expired meanwhile, plan again; or somebody "
                "removed the file"
            ) from error
        with self._lock:
            self._kept[key] = state
            if len(self._kept) > SNAPSHOTS_KEPT:
                self._kept.popitem(last=False)
        return state


def offset_files(files: Sequence[LakeFile]) -> list[OffsetFile]:
    """Return data files as rows are sought in them."""
    return [OffsetFile(each.file.file_path, each.min_offset, each.max_offset, each.file.record_count) for each in files]


def bucket_json(state: BucketFiles | None) -> dict[str, Any]:
    """Return a bucket as its writers are told of it, as JSON; empty without data files."""
    if state is None or not state.data:
        return {}
    return {"files": to_plain(offset_files(state.data))}
