"""The expiry of a lake table's snapshots: metadata first, durably, then the files that nothing refers to any more.

A process that ends between the two leaves orphan files, never a snapshot without its files. Which files go: not every
snapshot that stays has to be looked at. What a snapshot consists of it has from its parent, or it made it. So a manifest or
file made by a snapshot that stays is in use, and one made by another is in use by a snapshot that stays only if it is in use
by one that stays and whose parent does not: there are few of these, the oldest of each line. The newest of every branch and
whatever a tag names are looked at beside, for engines that bring old files back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestEntry, ManifestFile

from fluss_lab.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    FlussError,
)
from fluss_lab.failpoints import FailpointError, failpoint
from fluss_lab.lake.iceberg.commit.commit_attempts import RETRY, Retries
from fluss_lab.lake.iceberg.commit.replay_start_tags import REPLAY_START_PROPERTY, table_starts, tagged_snapshots
from fluss_lab.lake.iceberg.maintenance.expiry_plan import ExpiryLimits, ExpiryPlan, expiry_requirements, plan_expiry
from fluss_lab.lake.iceberg.maintenance.maintenance_state import MaintenanceState, Retirement
from fluss_lab.lake.iceberg.metadata.partition_history import PartitionHistory, drops_property
from fluss_lab.lake.iceberg.metadata.snapshot_files import BucketFiles, EntryCache, snapshot_of, snapshot_state
from fluss_lab.lake.iceberg.metadata.snapshot_history import ancestors, number_of, summaries
from fluss_lab.lake.iceberg.table.catalog_access import NOT_DONE, CatalogAccess, CatalogLockedError
from fluss_lab.lake.iceberg.table.table_folders import is_within, may_remove_files, remove_all, table_folders
from fluss_lab.lake.iceberg.write.delete_schema import event_range
from fluss_lab.lake.maintenance_interfaces import ExpiredSnapshots
from fluss_lab.lake.snapshot_summary import ReplayStart, merge_starts, newest_committed, write_starts
from fluss_lab.model import TableInfo
from fluss_lab.model.names import BucketKey

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_LOG: Final = logging.getLogger(__name__)


class SnapshotExpiry:
    """Expires snapshots of one table. Used by one thread.

    Args:
        access: The catalog.
        entries: Decoded manifests.
        table: The table.
        partition_ids: Id of each partition that the cluster knows, by name.
    """

    def __init__(
        self, access: CatalogAccess, entries: EntryCache, table: TableInfo, partition_ids: Mapping[str, int]
    ) -> None:
        self._access = access
        self._entries = entries
        self._table = table
        self._partition_ids = partition_ids
        self._what = f"lake table {table.path}, expiry"

    def run(self, lake: Table, now_ms: int, *, fewest: int, **limits: Any) -> ExpiredSnapshots:
        """Expire what the limits allow: see `ExpiryLimits.of`, `LakeMaintenance.expire_snapshots`.

        Args:
            lake: The lake table as it was lately.
            now_ms: The time.
            fewest: Nothing is done for fewer snapshots, unless a tag's time is over.
            limits: Of `ExpiryLimits.of`.

        Raises:
            CommitConflictError: Others keep changing the table; nothing was expired.
            CommitOutcomeUnknownError: It may have happened; files that it left are orphans then.
            FileNotFoundError: A manifest is gone already.
        """
        pauses = Retries.of(lake.properties, RETRY).pauses_s()
        while True:
            plan = plan_expiry(lake, ExpiryLimits.of(self._table, lake, now_ms, **limits))
            starts = self._starts(lake, plan)
            known = table_starts(lake)
            if not plan.tags and starts == known and len(plan.snapshot_ids) < max(fewest, 1):
                return ExpiredSnapshots((), 0, 0, _offsets(starts))
            unused = unused_files(lake, frozenset(plan.snapshot_ids), self._entries)
            failpoint("maintenance.expire.before")
            before = self._present(lake)
            if before is None:
                refusal: Exception | None = CommitFailedException("branches or tags were changed meanwhile")
            elif (refusal := self._send(lake, plan, starts)) is None:
                break
            if (pause_s := next(pauses, None)) is None:
                raise CommitConflictError(f"{self._what}: nothing was expired: {refusal}; try again") from refusal
            time.sleep(pause_s)
            lake = self._access.load_table(self._table.path)
        failpoint("maintenance.expire.after_commit")
        if not self._may_remove(before):
            return ExpiredSnapshots(plan.snapshot_ids, 0, 0, _offsets(starts))
        self._remove(before, unused)
        return ExpiredSnapshots(plan.snapshot_ids, len(list(unused)), unused.size_bytes, _offsets(starts))

    def _send(self, lake: Table, plan: ExpiryPlan, starts: Mapping[BucketKey, ReplayStart]) -> Exception | None:
        """Send the change of metadata; return why it certainly was not made.

        Raises:
            CommitOutcomeUnknownError: It may have been made.
        """
        properties = {} if starts == table_starts(lake) else {REPLAY_START_PROPERTY: write_starts(starts)}
        state = MaintenanceState.of(lake.properties)
        if over := {*plan.tags.values(), *_untagged_compactions(lake, state)} & set(state.retired):
            properties |= state.without(over).to_properties()
        if not self._table.is_log_table:
            left = {snapshot_id for name, snapshot_id in tagged_snapshots(lake).items() if name not in plan.tags}
            properties |= drops_property(lake, left)
        properties = {key: value for key, value in properties.items() if lake.properties.get(key) != value}
        requirements = expiry_requirements(lake, is_rest=self._access.is_rest)
        try:
            self._access.commit(self._what, lake, requirements, plan.updates(properties))
        except (CommitFailedException, CatalogLockedError) as error:
            return error
        except (*NOT_DONE, FailpointError):
            raise
        except Exception as error:
            if self._is_done(plan, properties):
                return None
            raise CommitOutcomeUnknownError(
                f"{self._what}: {type(error).__name__}: {error}; snapshots may be gone, their files are still there: they are "
                "orphans if so, see remove_orphan_files"
            ) from error
        return None

    def _is_done(self, plan: ExpiryPlan, properties: Mapping[str, str]) -> bool:
        """Return whether the change was made after all; no also when that cannot be looked up."""
        try:
            lake = self._access.load_table(self._table.path)
        except (FlussError, OSError) as error:
            _LOG.warning("%s: looking whether it was done: %s", self._what, error)
            return False
        left = {snapshot.snapshot_id for snapshot in lake.metadata.snapshots}
        return (
            left.isdisjoint(plan.snapshot_ids)
            and lake.metadata.refs.keys().isdisjoint(plan.tags)
            and all(lake.properties.get(key) == value for key, value in properties.items())
        )

    # -- branches and tags ---------------------------------------------------------------------------------------------

    def _present(self, lake: Table) -> Table | None:
        """Return the table as it is now if a plan made of an earlier load still holds; None: branches or tags changed.

        Asked where a REST server has the table: it does not compare them.
        """
        if not self._access.is_rest:
            return lake
        now = self._access.load_table(self._table.path)
        return now if now.metadata.refs == lake.metadata.refs else None

    def _may_remove(self, before: Table) -> bool:
        """Return whether the files of expired snapshots may go: nobody else uses them.

        Not where a REST server took anything between the look at branches and tags and the expiry: a tag that was made
        then may have gone with its snapshot. The files stay, and are orphans if nothing names them.

        Args:
            before: The table at that look.
        """
        if not may_remove_files(before):
            return False
        if not self._access.is_rest:
            return True
        try:
            log = self._access.load_table(self._table.path).metadata.metadata_log
        except (FlussError, OSError) as error:
            _LOG.warning("%s: its files stay, as the table cannot be read: %s", self._what, error)
            return False
        if log and log[-1].metadata_file == before.metadata_location:
            return True
        _LOG.warning(
            "%s: its files stay, as others changed the table meanwhile, or the catalog does not say", self._what
        )
        return False

    # -- replay starts -------------------------------------------------------------------------------------------------

    def _starts(self, lake: Table, plan: ExpiryPlan) -> dict[BucketKey, ReplayStart]:
        """Return where replay of each bucket starts afterwards; buckets that it can replay from 0 on are left out."""
        starts = table_starts(lake)
        if self._table.is_log_table:
            return starts
        state = MaintenanceState.of(lake.properties)
        partitions = PartitionHistory.read_history(
            lake, self._table.path, lake.metadata.current_snapshot(), self._partition_ids
        )
        for snapshot_id in plan.tags.values():
            found = state.retired.get(snapshot_id)
            # Of another engine's compaction it is not known which buckets it was.
            buckets = None if found is None else found.buckets
            starts = merge_starts(starts, self._ends_at(lake, snapshot_id, buckets, partitions))
        for retirement in _untagged_compactions(lake, state).values():
            if (later := _first_since(lake, retirement.sequence_number)) is not None:
                starts = merge_starts(starts, self._ends_at(lake, later, retirement.buckets, partitions))
        # What is known of a partition that was dropped does not count for another of its name.
        return {
            (name, bucket): start
            for (name, bucket), start in starts.items()
            if name is None or partitions.ids.get(name, start.partition_id) == start.partition_id
        }

    def _ends_at(
        self, lake: Table, snapshot_id: int, buckets: set[BucketKey] | None, partitions: PartitionHistory
    ) -> dict[BucketKey, ReplayStart]:
        """Return how far buckets were tiered in a snapshot, after which something of theirs was dropped.

        Args:
            lake: The table.
            snapshot_id: The snapshot.
            buckets: Which; None: all that it has files of. What a later snapshot has is never less.
            partitions: Those of now: what the snapshot has of others of their names is none of theirs.
        """
        snapshot = snapshot_of(lake, self._table.path, snapshot_id)
        state = snapshot_state(self._table, lake, snapshot_id, self._entries)
        newest = newest_committed(summaries(self._table.path, ancestors(lake.metadata, snapshot_id)))
        ends: dict[BucketKey, ReplayStart] = {}
        for key in state if buckets is None else buckets:
            partition = key[0]
            if partition is not None and (partition not in partitions.ids or not partitions.has(partition, snapshot)):
                continue
            end = _end_of(state.get(key))
            if newest is not None and key in newest.offsets:
                end = max(end, newest.offsets[key].end)
            ends[key] = ReplayStart(end, None if partition is None else partitions.ids[partition])
        return ends

    # -- files ---------------------------------------------------------------------------------------------------------

    def _remove(self, lake: Table, unused: UnusedFiles) -> None:
        """Remove files, data before what names it; those that cannot be removed stay as orphans.

        What lies outside of the table's folders stays: a manifest may name any file, and another table may own it.
        """
        folders = table_folders(lake)
        for paths in (unused.data, unused.manifests, unused.lists):
            own = [path for path in paths if is_within(lake, path, folders)]
            remove_all(lake.io, own, self._what, passed="maintenance.expire.after_file")
            if outside := [path for path in paths if not is_within(lake, path, folders)]:
                _LOG.warning(
                    "%s: %d file(s) outside of the table's folders are no longer used and stay, as %s",
                    self._what, len(outside), outside[0],
                )  # fmt: skip


def _untagged_compactions(lake: Table, state: MaintenanceState) -> dict[int, Retirement]:
    """Return the compactions whose tag is gone and not by us: another engine's expiry removes tags whose time is over."""
    tagged = tagged_snapshots(lake).values()
    return {snapshot_id: each for snapshot_id, each in state.retired.items() if snapshot_id not in tagged}


def _first_since(lake: Table, sequence_number: int) -> int | None:
    """Return the first snapshot, of those left, that is as new as one of a sequence number."""
    left = [snapshot for snapshot in lake.metadata.snapshots if number_of(snapshot) >= sequence_number]
    first = min(left, key=number_of, default=None)
    return None if first is None else int(first.snapshot_id)


def _end_of(state: BucketFiles | None) -> int:
    """Return the offset after the last that a bucket's files hold; 0 without any."""
    if state is None:
        return 0
    ends = [file.max_offset + 1 for file in state.data]
    ends += [found.max_offset + 1 for each in state.deletes if (found := event_range(each.file.file_path)) is not None]
    return max(ends, default=0)


def _offsets(starts: Mapping[BucketKey, ReplayStart]) -> dict[BucketKey, int]:
    return {key: start.offset for key, start in starts.items()}


@dataclass(slots=True)
class UnusedFiles:
    """Files that nothing refers to once some snapshots are gone, in the order in which they may be removed.

    Attributes:
        data: Data and delete files, with their sizes in bytes.
        manifests: Manifests, with theirs.
        lists: Manifest lists, and statistics files.
    """

    data: dict[str, int] = field(default_factory=dict)
    manifests: dict[str, int] = field(default_factory=dict)
    lists: list[str] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all but the manifest lists."""
        return sum(self.data.values()) + sum(self.manifests.values())

    def __iter__(self) -> Iterator[str]:
        yield from self.data
        yield from self.manifests
        yield from self.lists


def unused_files(lake: Table, gone: Collection[int], cache: EntryCache) -> UnusedFiles:
    """Return the files that nothing refers to without some snapshots.

    Args:
        lake: The table, from which they are not gone yet.
        gone: Ids of the snapshots.
        cache: Decoded manifests.

    Raises:
        FileNotFoundError: A manifest or manifest list is gone already: another program removes files too.

    Cost: the manifest lists of the snapshots that go, and of one or two that stay; the manifests that are only in the
    former, and those of the latter as far as they were not decoded.
    """
    unused = UnusedFiles()
    candidates: dict[str, ManifestFile] = {}
    staying = {
        snapshot.snapshot_id: snapshot for snapshot in lake.metadata.snapshots if snapshot.snapshot_id not in gone
    }
    lists = {snapshot.manifest_list for snapshot in staying.values()}
    for snapshot in lake.metadata.snapshots:
        if snapshot.snapshot_id not in staying and snapshot.manifest_list not in lists:
            unused.lists.append(snapshot.manifest_list)
            candidates |= {manifest.manifest_path: manifest for manifest in cache.manifests(lake.io, snapshot)}
    kept: dict[str, ManifestFile] = {}
    for snapshot in _witnesses(lake, staying):
        kept |= {manifest.manifest_path: manifest for manifest in cache.manifests(lake.io, snapshot)}
    unused_manifests = [
        manifest
        for path, manifest in candidates.items()
        if path not in kept and manifest.added_snapshot_id not in staying
    ]
    unused.manifests = {manifest.manifest_path: int(manifest.manifest_length) for manifest in unused_manifests}
    for entry in _entries(lake, unused_manifests, cache):
        if entry.snapshot_id not in staying:
            unused.data[entry.data_file.file_path] = int(entry.data_file.file_size_in_bytes)
    for entry in _entries(lake, kept.values(), cache) if unused.data else ():
        unused.data.pop(entry.data_file.file_path, None)
    unused.lists += _statistics(lake, gone)
    return unused


def _witnesses(lake: Table, staying: Mapping[int, Snapshot]) -> list[Snapshot]:
    """Return which of the snapshots that stay have to be looked at."""
    heads = {ref.snapshot_id for ref in lake.metadata.refs.values()}
    return [
        snapshot
        for snapshot_id, snapshot in staying.items()
        if snapshot_id in heads or snapshot.parent_snapshot_id not in staying
    ]


def _entries(lake: Table, manifests: Collection[ManifestFile], cache: EntryCache) -> Iterator[ManifestEntry]:
    for manifest in manifests:
        yield from cache.entries(lake.io, manifest)


def _statistics(lake: Table, gone: Collection[int]) -> list[str]:
    """Return the statistics files of snapshots that go."""
    found = [*lake.metadata.statistics, *lake.metadata.partition_statistics]
    staying = {each.statistics_path for each in found if each.snapshot_id not in gone}
    return sorted({each.statistics_path for each in found if each.snapshot_id in gone} - staying)
