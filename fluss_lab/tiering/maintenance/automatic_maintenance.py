"""Maintenance of a lake table by the holder of its tiering: compaction, expiry of snapshots, orphan files.

It runs while the table is held, after the round's commits and not beside its writing: the deletes of a round are then
always placed in files that are committed, and a compaction that fails never costs a round. What it costs is that the next
round begins later, by the time of a stage that is bounded: see the lake's policy of what is worth compacting.

A compaction is fenced as a round is: the lake's newest snapshot is read first, then the coordinator confirms that the table
is held, and the commit is conditional on that snapshot.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from fluss_lab.client import Connection
from fluss_lab.client.cluster.bucket_status import lake_snapshot
from fluss_lab.clock import Clock, SystemClock
from fluss_lab.errors import (
    CommitOutcomeUnknownError,
    FencedTieringEpochError,
    FlussError,
    LakeSnapshotNotFoundError,
    UnsupportedError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.lake import (
    CompactedFiles,
    CompactionPlan,
    LakeMaintenance,
    LakeStorage,
    SupportsMaintenance,
)
from fluss_lab.lake.snapshot_summary import commit_properties
from fluss_lab.model import LakeSnapshot, TableBucket, TableInfo
from fluss_lab.model.config.options import DATALAKE_AUTO_MAINTENANCE
from fluss_lab.model.names import BucketKey
from fluss_lab.tiering.round.round_report import (
    CompactionReport,
    ExpiryReport,
    MaintenanceReport,
    OrphanReport,
)
from fluss_lab.tiering.round.source_enumerator import TieringAssignment
from fluss_lab.tiering.round.tiering_committer import FlussTableLakeSnapshotCommitter
from fluss_lab.tiering.task.tiering_task import MaintenanceTask, TaskProgress, TaskResult, TieringExecutor

log = logging.getLogger(__name__)

ReportT = TypeVar("ReportT")
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
#: Stock orphan removal's age: whatever writes a file and refers to it later has done so by then.
ORPHAN_AGE_MS: Final = 3 * _DAY_MS
#: How often automatic maintenance lists the table's folder.
ORPHAN_INTERVAL_MS: Final = _DAY_MS
#: An expiry writes table metadata: rounds that come every few seconds do it for several snapshots at once.
EXPIRED_AT_ONCE: Final = 10

#: Where a process may be killed; nothing is lost at any of them, and what is left behind `remove_orphan_files` finds.
FAILPOINTS: Final = (
    "maintenance.plan.after",
    "maintenance.compact.after_group",
    "maintenance.compact.after_file",
    "maintenance.compact.after_deletes",
    "maintenance.task.after",
    "maintenance.write.after",
    "maintenance.commit.before",
    "maintenance.commit.after",
    "maintenance.fluss_commit.after",
    "maintenance.expire.before",
    "maintenance.expire.after_commit",
    "maintenance.expire.after_file",
    "maintenance.expire.after",
    "maintenance.orphans.after_file",
)


@dataclass(frozen=True, slots=True)
class MaintenanceScene:
    """Where maintenance works.

    Attributes:
        connection: To the cluster.
        storage: The lake.
        executor: Where files are rewritten.
        assignment: The table, held.
        clock: By which ages are measured.
        check_held: Raises `FencedTieringEpochError` when the coordinator does not confirm that the table is held.
        progress: Called while files are rewritten.
    """

    connection: Connection
    storage: LakeStorage
    executor: TieringExecutor
    assignment: TieringAssignment
    check_held: Callable[[], None]
    clock: Clock | None = None
    progress: TaskProgress | None = None


class TableMaintenance:
    """Maintenance of one table that is held. Used by one thread.

    Args:
        scene: Where it works.
        table: The table as it is now.
    """

    def __init__(self, scene: MaintenanceScene, table: TableInfo) -> None:
        if not isinstance(scene.storage, SupportsMaintenance):
            raise UnsupportedError(
                f"table {table.path}: lake format {scene.storage.format_name!r} offers no maintenance"
            )
        self._scene = scene
        self._table = table
        self._clock = scene.clock or SystemClock()
        self._fluss = FlussTableLakeSnapshotCommitter(scene.connection, scene.assignment)
        self._is_unfinished = False
        #: Whether the lake was changed, whatever came after that.
        self.has_changed = False
        self._lake: LakeMaintenance = scene.storage.create_lake_maintenance(table, self._clock)

    def after_round(self, snapshot_id: int | None) -> MaintenanceReport | None:
        """Do what is worth it after a round, if the table's ``table.datalake.auto-maintenance`` says so.

        Args:
            snapshot_id: The newest snapshot when the round ended.

        Never raises but for `FencedTieringEpochError`: what does not work is in the report and tried again later. Where the
        outcome of a commit is not known nothing more is done: it must be fenced first.

        Returns:
            None when there was nothing to do.
        """
        if not DATALAKE_AUTO_MAINTENANCE.of(self._table.descriptor.properties):
            return None
        self._lake.begin_after(snapshot_id)
        errors: list[str] = []
        compaction = self._attempt(lambda: self.compact(force=False), "compaction", errors)
        expiry = self._attempt(self._due_expiry, "expiry", errors)
        orphans = self._attempt(self._due_orphans, "removal of orphan files", errors)
        report = MaintenanceReport(
            compaction if compaction is not None and compaction.snapshot_id is not None else None,
            expiry if expiry is not None and (expiry.snapshot_ids or expiry.replay_starts) else None,
            orphans,
            tuple(errors),
            self._is_unfinished,
        )
        return None if report == MaintenanceReport() else report

    def _attempt(self, action: Callable[[], ReportT], what: str, errors: list[str]) -> ReportT | None:
        if self._is_unfinished:
            return None
        try:
            return action()
        except FencedTieringEpochError:
            raise
        except Exception as error:
            log.warning("%s: %s: %s: %s", self._scene.assignment, what, type(error).__name__, error)
            errors.append(f"{what}: {type(error).__name__}: {error}")
            self._is_unfinished = isinstance(error, CommitOutcomeUnknownError)
            return None

    def _due_expiry(self) -> ExpiryReport | None:
        return self.expire(fewest=EXPIRED_AT_ONCE) if self._lake.expiry_due(EXPIRED_AT_ONCE) else None

    def _due_orphans(self) -> OrphanReport | None:
        if not self._lake.orphans_due(ORPHAN_INTERVAL_MS):
            return None
        return self.remove_orphans(ours_only=True)

    # -- compaction ----------------------------------------------------------------------------------------------------

    def compact(self, *, force: bool) -> CompactionReport:
        """Rewrite files of the lake table so that it is read faster; its rows stay as they are.

        Args:
            force: Whatever can be better is done; else what is worth it.

        Raises:
            CommitConflictError: Another commit came in between; nothing was changed, try again.
            FencedTieringEpochError: Another tierer holds the table now; nothing was changed.
        """
        started = time.perf_counter()
        plan = self._lake.plan_compaction(force=force)
        if plan is None:
            return CompactionReport(self._table.path, seconds=time.perf_counter() - started)
        self._scene.check_held()
        failpoint("maintenance.plan.after")
        done = self._commit(plan, self._rewrite(plan))
        self.has_changed |= done.snapshot_id is not None
        if done.snapshot_id is not None:
            failpoint("maintenance.commit.after")
            self._fluss.commit(done.snapshot_id, {})
            failpoint("maintenance.fluss_commit.after")
        return CompactionReport(
            self._table.path, done.snapshot_id, done.buckets, done.files_before, done.files_after,
            done.bytes_before, done.bytes_after, done.tag, time.perf_counter() - started,
        )  # fmt: skip

    def _rewrite(self, plan: CompactionPlan) -> list[bytes]:
        """Run a plan's tasks; return the results of all, or remove what was written and raise."""
        scene = self._scene
        tasks = [
            MaintenanceTask(
                index, self._table, scene.storage.format_name, scene.storage.task_properties, task
            ).to_bytes()
            for index, task in enumerate(plan.tasks)
        ]
        results = [TaskResult.from_bytes(data) for data in scene.executor.run(tasks, scene.progress)]
        written = [each.write_result for each in results if each.error is None]
        try:
            failpoint("maintenance.write.after")
            if failures := [each.error for each in results if each.error is not None]:
                raise min(failures, key=lambda failure: failure.retriable)
            scene.check_held()
        except BaseException:
            self._lake.abort_compaction(written)
            raise
        return written

    def _commit(self, plan: CompactionPlan, results: Sequence[bytes]) -> CompactedFiles:
        """Commit; when it certainly did not happen the files are removed, when that is not known they stay."""
        try:
            return self._lake.commit_compaction(plan, results, self._properties(self._known_snapshot()))
        except CommitOutcomeUnknownError:
            raise
        except FlussError:
            self._lake.abort_compaction(results)
            raise

    def _properties(self, known: LakeSnapshot) -> dict[str, str]:
        """Return what the snapshot says of itself: everything that a round's says, so that it is recovered like one."""
        held = self._scene.assignment
        offsets = known.offsets
        return commit_properties(uuid.uuid4().hex, held.table_id, held.tiering_epoch, offsets, offsets)

    # -- expiry --------------------------------------------------------------------------------------------------------

    def expire(self, *, older_than_ms: int | None = None, keep: int | None = None, fewest: int = 1) -> ExpiryReport:
        """Expire old snapshots of the lake table, and remove the files that nothing refers to any more.

        Args:
            older_than_ms: Age in milliseconds from which on they go; None: as the table's properties say. Those
                younger than an hour stay in any case, as a reader may still use them.
            keep: So many stay in any case; None: as the table's properties say.
            fewest: Nothing is done for fewer, unless the time of a tag is over.

        Raises:
            CommitConflictError: Others keep committing to the table; nothing was expired.
            FencedTieringEpochError: Another tierer holds the table now.
        """
        started = time.perf_counter()
        self._scene.check_held()
        try:
            known = self._known_snapshot()
        except LakeSnapshotNotFoundError:
            return ExpiryReport(self._table.path, seconds=time.perf_counter() - started)
        moment = None if older_than_ms is None else self._clock.now_ms() - older_than_ms
        expired = self._lake.expire_snapshots(
            older_than_ms=moment,
            keep=keep,
            protected=frozenset({known.snapshot_id}),
            partition_ids=_partition_ids(known),
            fewest=fewest,
        )
        self.has_changed |= bool(expired.snapshot_ids)
        starts = self._starts(known, expired.replay_starts)
        if starts:
            self._fluss.commit(known.snapshot_id, {}, starts)
        failpoint("maintenance.expire.after")
        by_id = {bucket: (known.offsets[bucket].partition, bucket.bucket) for bucket in starts}
        moved = {by_id[bucket]: start for bucket, start in starts.items()}
        return ExpiryReport(
            self._table.path, expired.snapshot_ids, expired.files, expired.size_bytes, moved,
            time.perf_counter() - started,
        )  # fmt: skip

    @staticmethod
    def _starts(known: LakeSnapshot, moved: Mapping[BucketKey, int]) -> dict[TableBucket, int]:
        """Return by ids where replay starts now, of buckets where the cluster does not know it yet.

        All are compared, not those alone that moved now: the tierer that moved them may have died before it did the rest.
        """
        by_name = {(offset.partition, bucket.bucket): bucket for bucket, offset in known.offsets.items()}
        return {
            by_name[key]: start
            for key, start in moved.items()
            if key in by_name and start > known.starts.get(by_name[key], 0)
        }

    # -- orphan files --------------------------------------------------------------------------------------------------

    def remove_orphans(
        self, *, older_than_ms: int = ORPHAN_AGE_MS, dry_run: bool = False, ours_only: bool = False
    ) -> OrphanReport:
        """Remove the files in the lake table's folder that nothing refers to.

        Args:
            older_than_ms: Age in milliseconds: younger ones may be files that a writer commits later.
            dry_run: Only report.
            ours_only: Only files that are named as tiering names them.

        Raises:
            FencedTieringEpochError: Another tierer holds the table now.
        """
        started = time.perf_counter()
        self._scene.check_held()
        moment = self._clock.now_ms() - older_than_ms
        paths = self._lake.remove_orphan_files(older_than_ms=moment, dry_run=dry_run, ours_only=ours_only)
        return OrphanReport(self._table.path, tuple(paths), dry_run, time.perf_counter() - started)

    def _known_snapshot(self) -> LakeSnapshot:
        return lake_snapshot(self._scene.connection, self._table.path, table_id=self._table.table_id)


def maintain_table(scene: MaintenanceScene, table: TableInfo, snapshot_id: int | None) -> MaintenanceReport | None:
    """Do what is worth it for a table's shape after a round. Never raises: the round is done, whatever comes of this.

    Args:
        scene: Where.
        table: The table, as it was a moment ago.
        snapshot_id: Its newest snapshot, as the round left it.
    """
    if not isinstance(scene.storage, SupportsMaintenance):
        return None
    try:
        return TableMaintenance(scene, table).after_round(snapshot_id)
    except Exception as error:
        log.warning("%s: maintenance: %s: %s", scene.assignment, type(error).__name__, error)
        return MaintenanceReport(errors=(f"{type(error).__name__}: {error}",))


def _partition_ids(known: LakeSnapshot) -> dict[str, int]:
    return {
        offset.partition: bucket.partition_id
        for bucket, offset in known.offsets.items()
        if offset.partition is not None and bucket.partition_id is not None
    }
