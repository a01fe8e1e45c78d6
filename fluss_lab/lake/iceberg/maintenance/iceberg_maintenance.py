"""The maintenance of one Iceberg table: compaction, expiry, orphan files, and what is shown of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate

from fluss_lab.clock import Clock, SystemClock
from fluss_lab.errors import CorruptDataError, StorageError, UnsupportedError
from fluss_lab.failpoints import failpoint
from fluss_lab.lake.iceberg.commit.adoption_check import taken_offsets
from fluss_lab.lake.iceberg.commit.commit_attempts import SnapshotCommits
from fluss_lab.lake.iceberg.commit.replay_start_tags import REPLAY_START_PROPERTY, changelog_retention_ms
from fluss_lab.lake.iceberg.files.durable_io import delete_quietly
from fluss_lab.lake.iceberg.files.lake_errors import library_errors, store_error
from fluss_lab.lake.iceberg.maintenance.compaction_commit import ReplaceCommit
from fluss_lab.lake.iceberg.maintenance.compaction_plan import CompactionPolicy, compaction_tasks
from fluss_lab.lake.iceberg.maintenance.compaction_task import CompactedBucket
from fluss_lab.lake.iceberg.maintenance.expiry_plan import is_expiry_due
from fluss_lab.lake.iceberg.maintenance.maintenance_state import MaintenanceState
from fluss_lab.lake.iceberg.maintenance.orphans import list_files, orphans
from fluss_lab.lake.iceberg.maintenance.snapshot_expiry import SnapshotExpiry
from fluss_lab.lake.iceberg.maintenance.table_inspection import file_infos, schema_infos, snapshot_infos
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache, referenced_files, snapshot_state
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from fluss_lab.lake.iceberg.table.layout import known_layout
from fluss_lab.lake.iceberg.table.table_folders import GC_PROPERTY, is_own, may_remove_files, own_folders, remove_all
from fluss_lab.lake.maintenance_interfaces import (
    CompactedFiles,
    CompactionPlan,
    ExpiredSnapshots,
    LakeFileInfo,
    LakeMaintenance,
    LakeSnapshotInfo,
    TakenOffsets,
)
from fluss_lab.model import TableInfo
from fluss_lab.model.names import BucketKey

if TYPE_CHECKING:
    from pyiceberg.table import Table


_LOG: Final = logging.getLogger(__name__)
#: How often, in the time for which the changelog is kept, a compaction may drop rows: each time leaves a tag behind.
DROPS_A_RETENTION: Final = 100
#: The same where an equality delete has to be applied, which is rare, and slows every reader down.
FOLDS_A_RETENTION: Final = 1000


class IcebergLakeMaintenance(LakeMaintenance):
    """Keeps one Iceberg table in shape. Used by one thread, by the holder of the table's tiering."""

    def __init__(self, access: CatalogAccess, entries: EntryCache, table: TableInfo, clock: Clock | None) -> None:
        self._access = access
        self._entries = entries
        self._table = table
        self._clock = clock or SystemClock()
        self._loaded: Table | None = None
        self._begun: Table | None = None

    def begin_after(self, snapshot_id: int | None) -> None:
        """Begin with the table as the round left it, if its newest snapshot was the given one."""
        self._begun = self._access.rounds.left_table(self._table.path, snapshot_id)

    # -- compaction ----------------------------------------------------------------------------------------------------

    def plan_compaction(self, *, force: bool) -> CompactionPlan | None:
        """Return what is worth compacting; None for nothing. See `compaction_plan` for the policy.

        Rows of a primary-key table's deleted rows are dropped at most once in a hundredth of
        ``table.datalake.changelog-retention``, since each time a tag keeps what replay needs; not so by hand.

        Raises:
            UnsupportedError: The table is not as fluss_lab made it, and there is something to do.
            CommitConflictError: Its newest snapshot was expired meanwhile.
            TableNotFoundError, UnavailableError: The catalog has no such table, or does not answer.

        Cost: the manifests that were not decoded before; no data.
        """
        lake, self._begun = self._begun or self._load(), None
        self._loaded = lake
        snapshot_id = lake.metadata.current_snapshot_id
        state = snapshot_state(self._table, lake, snapshot_id, self._entries)
        if snapshot_id is None or not state:
            return None
        policy = CompactionPolicy.of(
            self._table,
            lake,
            force=force,
            may_drop=self._may_drop(lake, force, DROPS_A_RETENTION),
            may_fold=self._may_drop(lake, force, FOLDS_A_RETENTION),
        )
        tasks = compaction_tasks(self._table, lake, state, policy)
        return CompactionPlan(snapshot_id, tasks) if tasks else None

    def _may_drop(self, lake: Table, force: bool, times: int) -> bool:
        """Return whether rows may be dropped now, so that it happens so many times in the changelog's retention."""
        if self._table.is_log_table or force:
            return force and not self._table.is_log_table
        last_ms = MaintenanceState.of(lake.properties).dropped_ms
        return last_ms is None or self._is_past(last_ms, changelog_retention_ms(self._table) // times)

    def _is_past(self, last_ms: int, interval_ms: int) -> bool:
        """Return whether something was done so long ago; also where it is as far ahead, by a clock that was wrong then."""
        return abs(self._clock.now_ms() - last_ms) >= interval_ms

    def commit_compaction(
        self, plan: CompactionPlan, results: Sequence[bytes], properties: Mapping[str, str]
    ) -> CompactedFiles:
        """Commit all results of a plan's tasks: see `LakeMaintenance.commit_compaction`.

        Raises:
            CommitConflictError: The table moved on; nothing was committed.
            ForeignCommitError: It moved on by another engine's change of rows; nothing was committed.
            CommitOutcomeUnknownError: It may have happened.
            UnsupportedError, StorageError, UnavailableError: Nothing was committed.
        """
        done = [CompactedBucket.from_bytes(data) for data in results]
        done = [each for each in done if each.removed or each.written.all_files]
        if not done:
            return CompactedFiles(None)
        self._loaded = None
        failpoint("maintenance.commit.before")
        commit = ReplaceCommit(self._table, self._entries, plan.snapshot_id, done, self._clock.now_ms())
        commits = SnapshotCommits(self._access, self._table.path, f"lake table {self._table.path}, compaction")
        stage = partial(commit.stage, properties=properties)
        snapshot_id = commits.commit(stage, plan.snapshot_id, properties)
        return commit.report(snapshot_id)

    def abort_compaction(self, results: Sequence[bytes]) -> None:
        """Remove the files of results that will not be committed, unless a snapshot refers to them. Never raises."""
        try:
            written = [CompactedBucket.from_bytes(data).written for data in results]
            files = [file.file_path for each in written for file in each.all_files]
            lake = self._load()
            used = referenced_files(lake, self._entries) if files else set()
            for file in files:
                if file not in used and not delete_quietly(lake.io, file):
                    _LOG.warning("lake table %s: file %s could not be removed", self._table.path, file)
        except Exception as error:
            _LOG.warning("lake table %s: files of a compaction stay: %s", self._table.path, error)

    def taken_offsets(self, ends: Mapping[BucketKey, int]) -> list[TakenOffsets]:
        """Return offsets that cannot be those of their rows: see `adoption_check.taken_offsets`.

        Raises:
            CorruptDataError: A file of the newest snapshot is missing, or is not what it should be.
            UnsupportedError: The table is not as fluss_lab made it.
        """
        try:
            return taken_offsets(self._load(), self._table, self._entries, ends)
        except FileNotFoundError as error:
            raise self._missing(error) from error

    # -- expiry and orphan files ---------------------------------------------------------------------------------------

    def expire_snapshots(
        self,
        *,
        older_than_ms: int | None,
        keep: int | None,
        protected: frozenset[int],
        partition_ids: Mapping[str, int],
        fewest: int = 1,
    ) -> ExpiredSnapshots:
        """Expire old snapshots and remove their files: see `LakeMaintenance.expire_snapshots`, and `expiry_plan`.

        Raises:
            CommitConflictError: Others keep changing the table; nothing was expired.
            CommitOutcomeUnknownError: It may have happened; files that it left are orphans then.
            CorruptDataError: A manifest is gone already, or the table's replay starts cannot be read.
            TableNotFoundError, UnavailableError: The catalog has no such table, or does not answer.
        """
        expiry = SnapshotExpiry(self._access, self._entries, self._table, partition_ids)
        try:
            # As it was when a compaction was planned, if none was made: should it have changed, the expiry is refused.
            lake, self._loaded = self._loaded or self._load(), None
            done = expiry.run(
                lake, self._clock.now_ms(), fewest=fewest, older_than_ms=older_than_ms, keep=keep, protected=protected
            )
            self._loaded = None if done.snapshot_ids else lake
            return done
        except FileNotFoundError as error:
            raise self._missing(error) from error

    def expiry_due(self, fewest: int) -> bool:
        """Return whether an expiry may have anything to do: see `LakeMaintenance.expiry_due`, and `is_expiry_due`.

        Yes of a table with replay starts, or with compactions whose tags are gone: the cluster may not know of them yet.
        """
        lake = self._loaded = self._loaded or self._load()
        properties = lake.properties
        if properties.get(REPLAY_START_PROPERTY, "[]") != "[]" or (
            not self._table.is_log_table and MaintenanceState.of(properties).retired
        ):
            return True
        return is_expiry_due(self._table, lake, self._clock.now_ms(), fewest)

    def remove_orphan_files(self, *, older_than_ms: int, dry_run: bool, ours_only: bool = False) -> list[str]:
        """Remove files that nothing refers to: see `LakeMaintenance.remove_orphan_files`, and `orphans`.

        Raises:
            CorruptDataError: A manifest is gone, so that what is in use is not known; nothing was removed.
            UnsupportedError: The table's files are reached in a way that offers no listing, or its location may be shared.
            StorageError: The folder cannot be listed.
            TableNotFoundError, UnavailableError: The catalog has no such table, or does not answer.
        """
        try:
            lake = self._load()
            files = list_files(lake, self._own_folders(lake))
            lake = self._load()
            found = orphans(lake, files, older_than_ms, self._entries, ours_only=ours_only)
        except FileNotFoundError as error:
            raise self._missing(error) from error
        except library_errors(OSError) as error:
            what = f"lake table {self._table.path}: its folder cannot be listed"
            raise store_error(what, error) or StorageError(f"{what}: {error}") from error
        if dry_run:
            return found
        removed = remove_all(lake.io, found, f"lake table {self._table.path}", passed="maintenance.orphans.after_file")
        self._note_orphans(lake)
        return removed

    def _own_folders(self, lake: Table) -> list[str]:
        """Return the folders in which orphan files are looked for.

        Raises:
            UnsupportedError: The catalog chose the table's location, so that other tables may have files there; or the
                table says that nobody may remove files.
        """
        if not may_remove_files(lake):
            raise UnsupportedError(
                f"lake table {self._table.path}: orphan files are not looked for, as its property {GC_PROPERTY}=false says: its "
                "catalog has uses for files that the table's metadata does not show, and a clean-up of its own"
            )
        if not is_own(self._access, self._table.path, lake):
            raise UnsupportedError(
                f"lake table {self._table.path}: orphan files are not looked for at {lake.location()}: the catalog chose that "
                "location by the table's name, and a table that was dropped and kept may have its files there too"
            )
        return own_folders(self._access, self._table.path, lake)

    def orphans_due(self, interval_ms: int) -> bool:
        """Return whether orphan files were last looked for so long ago, or, if never, whether the table is as old.

        Never of a table whose location the catalog chose, or whose files only the catalog may remove.
        """
        lake = self._loaded or self._load()
        last_ms = MaintenanceState.of(lake.properties).orphans_ms
        if last_ms is None:
            last_ms = min((snapshot.timestamp_ms for snapshot in lake.metadata.snapshots), default=None)
        if last_ms is None or not self._is_past(last_ms, interval_ms):
            return False
        return may_remove_files(lake) and is_own(self._access, self._table.path, lake)

    def _note_orphans(self, lake: Table) -> None:
        """Remember when they were looked for. Not being able to means that they are looked for again soon."""
        state = replace(MaintenanceState.of(lake.properties), orphans_ms=self._clock.now_ms())
        # The property says also what compactions retired: one that came in between must not be forgotten.
        newest = {"ref": MAIN_BRANCH, "snapshot-id": lake.metadata.current_snapshot_id}
        requirements = (AssertTableUUID(uuid=lake.metadata.table_uuid), AssertRefSnapshotId.model_validate(newest))
        try:
            what = f"lake table {self._table.path}, orphan files"
            self._access.commit(what, lake, requirements, (SetPropertiesUpdate(updates=state.to_properties()),))
        except Exception as error:
            _LOG.warning("lake table %s: that orphan files were looked for is not noted: %s", self._table.path, error)

    def _missing(self, error: FileNotFoundError) -> CorruptDataError:
        return CorruptDataError(
            f"lake table {self._table.path}: {error}: a manifest is missing; another program removed files of snapshots that the "
            "table still has. Nothing was changed"
        )

    # -- what is shown -------------------------------------------------------------------------------------------------

    def snapshots(self) -> list[LakeSnapshotInfo]:
        """Return the snapshots of the main line, oldest first; see `table_inspection.snapshot_infos`."""
        return snapshot_infos(self._load(), self._table.path)

    def files(self, snapshot_id: int | None = None) -> list[LakeFileInfo]:
        """Return the live files of a snapshot; see `table_inspection.file_infos`."""
        lake = self._load()
        layout = known_layout(self._table, lake)
        try:
            return file_infos(lake, self._table.path, layout, snapshot_id, self._entries)
        except FileNotFoundError as error:
            raise self._missing(error) from error

    def schemas(self) -> list[dict[str, Any]]:
        """Return the schemas that the lake table has had; see `table_inspection.schema_infos`."""
        return schema_infos(self._load())

    def _load(self) -> Table:
        return self._access.load_table(self._table.path)
