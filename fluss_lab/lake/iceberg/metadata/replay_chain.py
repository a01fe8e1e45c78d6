"""The snapshots that hold the log of a primary-key bucket for replay, each with its offset range.

A compaction that drops rows tags the snapshot before it (see `replay_start_tags`). So of the snapshots kept, the oldest holds all that
the bucket's log had below that snapshot's end, the next one what came up to its end, and so on, the rest being in the
snapshot asked for. What is below a bucket's replay start is in none of them.

Snapshots are ordered by sequence number: ids are not ordered, and expiry cuts the line of parents. Of a partition that was
dropped and made again under its name a kept snapshot may hold files of the first one: they do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from fluss_lab.errors import FlussError
from fluss_lab.lake.iceberg.commit.replay_start_tags import table_starts, tagged_snapshots
from fluss_lab.lake.iceberg.metadata.partition_history import PartitionHistory
from fluss_lab.lake.iceberg.metadata.snapshot_files import BucketFiles, EntryCache, LakeDelete, live_state, snapshot_of
from fluss_lab.lake.iceberg.metadata.snapshot_history import ancestors, is_ours, keeps_rows, number_of, summary_of
from fluss_lab.lake.iceberg.read.delete_event_reader import EventRanges
from fluss_lab.lake.iceberg.table.layout import LakeColumns, known_layout
from fluss_lab.lake.iceberg.write.delete_schema import EventRange
from fluss_lab.lake.snapshot_summary import REPLAY_START_KEY, read_starts
from fluss_lab.model.names import BucketKey

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from fluss_lab.model import TableInfo

#: Snapshots asked for whose chains are kept: a scanner follows one, a union read and a seek use another two.
CHAINS_KEPT: Final = 4


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A piece of a bucket's log, and what holds all of it.

    Attributes:
        snapshot_id: The snapshot.
        start: First offset of the piece. The snapshot may hold older records too, some or all.
        stop: Offset after its last one: what the bucket's files in the snapshot reach to.
        state: What the bucket consists of in the snapshot.
        events: Its delete files that carry events, each with what lies in it, ascending by first offset.
    """

    snapshot_id: int
    start: int
    stop: int
    state: BucketFiles
    events: Sequence[tuple[EventRange, LakeDelete]] = ()


class ReplayChain:
    """The pieces of the logs of one table, which was loaded once: make another one when it is loaded again.

    Args:
        lake: The lake table as it was loaded.
        table: The table, with a primary key.
        entries: Decoded manifests.
        missing: Returns the error to raise for a snapshot of which a file is gone.

    Used by one thread.
    """

    def __init__(
        self,
        lake: Table,
        table: TableInfo,
        entries: EntryCache,
        missing: Callable[[int, OSError], FlussError],
    ) -> None:
        self.lake = lake
        self._missing = missing
        self._table = table
        self._entries = entries
        self._layout = known_layout(table, lake)
        self._ranges = EventRanges(lake.io, LakeColumns.of(table, self._layout))
        self._kept: LRUCache[int, dict[BucketKey, list[ChainLink]]] = LRUCache(CHAINS_KEPT)
        self._partitions: dict[int, PartitionHistory] = {}

    def links(self, snapshot_id: int, key: BucketKey) -> list[ChainLink]:
        """Return the pieces of a bucket's log, ascending, one after another without a hole.

        The first one begins at 0: what of it is below `replay_start` is not there. The last one is that of the snapshot
        asked for, maybe empty. So the bucket as it was at an offset is in the first link whose stop is not smaller.

        Args:
            snapshot_id: The snapshot asked for. Newer ones are not used, kept or not.
            key: Partition name and bucket.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot; or one that was kept was expired since the table was loaded.
            UnsupportedError, CorruptDataError: The table was changed or damaged from outside.

        Cost: one pass over the files of each snapshot that is kept, for all buckets at once; then none. Delete files
        whose names do not say what is in them are opened.
        """
        if (found := self._kept.get(snapshot_id)) is None:
            found = self._links(snapshot_id)
            self._kept[snapshot_id] = found
        return found.get(key) or [ChainLink(snapshot_id, 0, 0, BucketFiles())]

    def replay_start(self, snapshot_id: int, key: BucketKey) -> int:
        """Return the first offset from which on the links hold a bucket's log; 0 unless said otherwise.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot.
            CorruptDataError: The table's property or the snapshot's summary is not what tiering writes.
        """
        snapshot = snapshot_of(self.lake, self._table.path, snapshot_id)
        what = f"lake table {self._table.path}, snapshot {snapshot_id}"
        start = 0
        for starts in (table_starts(self.lake), read_starts(summary_of(snapshot).get(REPLAY_START_KEY, "[]"), what)):
            if (found := starts.get(key)) is None:
                continue
            partition_id = found.partition_id
            if key[0] is None or self._partitions_at(snapshot).ids.get(key[0], partition_id) == partition_id:
                start = max(start, found.offset)
        return start

    # -- links ---------------------------------------------------------------------------------------------------------

    def _links(self, snapshot_id: int) -> dict[BucketKey, list[ChainLink]]:
        asked = snapshot_of(self.lake, self._table.path, snapshot_id)
        found: dict[BucketKey, list[ChainLink]] = {}
        retained = self._retained_snapshots(asked)
        is_partitioned = bool(self._table.descriptor.partitioned_by)
        partitions = self._partitions_at(asked) if retained and is_partitioned else PartitionHistory()
        for snapshot in [*retained, asked]:
            is_asked = snapshot is asked
            for key, state in self._states(snapshot).items():
                if is_asked or partitions.has(key[0], snapshot):
                    links = found.setdefault(key, [])
                    start = links[-1].stop if links else 0
                    events = self._events(state, snapshot.snapshot_id)
                    stop = max(_end_of(state, events), start)
                    if is_asked or stop > start:
                        links.append(ChainLink(snapshot.snapshot_id, start, stop, state, events))
        for key, links in found.items():
            if links[-1].snapshot_id != snapshot_id:
                end = links[-1].stop
                links.append(ChainLink(snapshot_id, end, end, BucketFiles()))
            found[key] = _join_links(links)
        return found

    def _retained_snapshots(self, asked: Snapshot) -> list[Snapshot]:
        """Return the snapshots before one that are kept for replay, oldest first."""
        metadata = self.lake.metadata
        ids = set(tagged_snapshots(self.lake).values())
        # What others compacted since the newest of ours, the next round is going to tag.
        for snapshot in ancestors(metadata, asked.snapshot_id):
            if is_ours(snapshot):
                break
            if keeps_rows(snapshot) and snapshot.parent_snapshot_id is not None:
                ids.add(snapshot.parent_snapshot_id)
        if not ids:
            return []
        found = [each for each in metadata.snapshots if each.snapshot_id in ids and number_of(each) < number_of(asked)]
        return sorted(found, key=number_of)

    def _states(self, snapshot: Snapshot) -> dict[BucketKey, BucketFiles]:
        try:
            return live_state(self.lake, self._table.path, self._layout, snapshot, self._entries)
        except FileNotFoundError as error:
            raise self._missing(snapshot.snapshot_id, error) from error

    def _events(self, state: BucketFiles, snapshot_id: int) -> list[tuple[EventRange, LakeDelete]]:
        try:
            known = [(found, each) for each in state.deletes if (found := self._ranges.of(each)) is not None]
        except FileNotFoundError as error:
            raise self._missing(snapshot_id, error) from error
        return sorted(known, key=lambda pair: pair[0].min_offset)

    # -- partitions ----------------------------------------------------------------------------------------------------

    def _partitions_at(self, snapshot: Snapshot) -> PartitionHistory:
        """Return what the snapshots up to one say of partitions."""
        if (known := self._partitions.get(snapshot.snapshot_id)) is None:
            known = PartitionHistory.read_history(self.lake, self._table.path, snapshot)
            self._partitions[snapshot.snapshot_id] = known
        return known


def _end_of(state: BucketFiles, events: Sequence[tuple[EventRange, LakeDelete]]) -> int:
    """Return the offset after the last that a bucket's files hold; 0 without any."""
    ends = [file.max_offset + 1 for file in state.data]
    ends += [found.max_offset + 1 for found, _ in events]
    return max(ends, default=0)


def _join_links(links: Sequence[ChainLink]) -> list[ChainLink]:
    """Return links without those whose files are all in the next one's snapshot too: others were compacted there."""
    kept = list(links)
    for at in range(len(kept) - 2, -1, -1):
        link, after = kept[at], kept[at + 1]
        if _paths(link.state) <= _paths(after.state):
            kept[at : at + 2] = [replace(after, start=link.start)]
    assert all(one.stop == other.start for one, other in pairwise(kept))
    return kept


def _paths(state: BucketFiles) -> set[str]:
    return {each.file.file_path for each in state.data} | {each.file.file_path for each in state.deletes}
