"""The planner of a round: fences a predecessor, catches up with its commit, cuts what is left into splits and tasks."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fluss_lab.client import Connection, KnownBucket
from fluss_lab.client.cluster.bucket_status import lake_snapshot
from fluss_lab.client.cluster.list_offsets import OffsetQuery, list_offsets
from fluss_lab.clock import SystemClock
from fluss_lab.errors import (
    CommitConflictError,
    FlussError,
    LakeAheadError,
    LakeNotConfiguredError,
    LakeSnapshotNotFoundError,
    TableNotFoundError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.lake import CommittedLakeSnapshot, LakeCommitter, LakeStorage, LakeTieringFactory
from fluss_lab.lake.snapshot_summary import (
    LakeOffsets,
    advanced_buckets,
    committed_offsets,
    committed_starts,
    merge_offsets,
)
from fluss_lab.model import LakeOffset, OffsetSpec, PartitionInfo, TableBucket, TableInfo
from fluss_lab.model.config.options import DATALAKE_FRESHNESS
from fluss_lab.model.times import format_moment
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.source_enumerator import TieringAssignment, TieringSourceEnumerator
from fluss_lab.tiering.round.split_generator import TieringSplit, TieringSplitGenerator
from fluss_lab.tiering.round.table_lag import TableLag, lag_of
from fluss_lab.tiering.round.tiering_committer import FlussTableLakeSnapshotCommitter, TieringCommitter, WrittenSplit
from fluss_lab.tiering.task.tiering_task import TaskResult, TaskScene, TieringTask


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """What a round was planned from, and its splits.

    Attributes:
        table: As it was.
        planned_id: The lake's newest snapshot, of whomever: the commit is conditional on it.
        known_id: The snapshot that Fluss knows.
        known: How far each bucket is tiered in it.
        splits: What to do.
        is_limited: Whether more is to do, beyond the limits of a round.
        planned_ms: When, epoch milliseconds.
        lag: How far the lake lagged then; None: not all of its buckets were looked at.
    """

    table: TableInfo
    planned_id: int | None
    known_id: int | None
    known: LakeOffsets
    splits: Sequence[TieringSplit]
    is_limited: bool = False
    planned_ms: int = 0
    lag: TableLag | None = None


class RoundPlanner:
    """Plans one round of a table, as often as it takes. The first plan after a takeover fences the predecessor."""

    def __init__(
        self,
        connection: Connection,
        enumerator: TieringSourceEnumerator,
        assignment: TieringAssignment,
        options: TieringOptions,
        sound: Mapping[TableBucket, KnownBucket] | None = None,
    ) -> None:
        self._sound = sound
        self._connection = connection
        self._enumerator = enumerator
        self._assignment = assignment
        self._options = options
        self._fluss = FlussTableLakeSnapshotCommitter(connection, assignment)
        self._must_fence = assignment.takeover

    def table(self) -> TableInfo:
        """Return the table as it is now.

        Raises:
            TableNotFoundError: It was dropped since it was handed out, whatever has its name now.
            LakeNotConfiguredError: It is not tiered.
        """
        table = self._connection.table_info(self._assignment.path)
        if table.table_id != self._assignment.table_id:
            raise TableNotFoundError(f"{self._assignment}: dropped; its path names table id {table.table_id} now")
        if not table.descriptor.lake_enabled:
            raise LakeNotConfiguredError(f"table {table.path}: not lake-enabled; set table.datalake.enabled")
        return table

    def plan(self, table: TableInfo, lake: LakeCommitter[Any, Any], parallelism: int) -> RoundPlan:
        """Return what there is to do.

        The newest lake snapshot is read first, then the coordinator confirms that the table is still ours. Whoever
        commits or takes over later therefore makes our commit fail, since it is conditional on that snapshot.

        Raises:
            FencedTieringEpochError: The table is not ours any more.
            CommitConflictError: Another commit came while the predecessor was fenced, or the table's columns were altered
                meanwhile: plan again.
            LakeSnapshotNotFoundError: The lake lost the snapshot that the cluster knows.
            ForeignCommitError: Another program changed the rows of the lake table.
            OffsetOutOfRangeError, LakeAheadError: Cluster and lake do not fit together.
            UnavailableError: A key-value snapshot is needed that was not taken yet.
        """
        planned_id, partitions, known_id, known = self.catch_up(table, lake)
        generator = TieringSplitGenerator(self._connection, table, partitions, self._options, self._sound)
        planned_ms = SystemClock().now_ms()
        generated = generator.generate(known, parallelism)
        # After the splits: a record of columns that the plan does not know can not be below their ends then.
        if (schema_id := self.table().schema_id) != table.schema_id:
            raise CommitConflictError(
                f"{self._assignment}: planned with schema {table.schema_id}, the table has schema {schema_id} now"
            )
        lag = lag_of(table, generated.statuses, known, planned_ms) if self._sound is None else None
        return RoundPlan(table, planned_id, known_id, known, generated.splits, generated.is_limited, planned_ms, lag)

    def make_tasks(
        self,
        plan: RoundPlan,
        factory: LakeTieringFactory[Any, Any],
        storage: LakeStorage,
        round_id: str,
        parallelism: int,
    ) -> list[bytes]:
        """Return the tasks of a plan, in the order of its splits.

        Args:
            plan: What is to be written.
            factory: Of the lake.
            storage: The lake that they write.
            round_id: Unique to the attempt.
            parallelism: Tasks that run at once: the first so many begin whenever they do, so that the round gets somewhere
                though workers' clocks be wrong or their start slow. Others begin before the round's time is over.

        Raises:
            TableNotFoundError: The lake table is gone.
            UnsupportedError: It is not as fluss_lab made it.
        """
        duration_s = self._options.duration_max_s(DATALAKE_FRESHNESS.of(plan.table.descriptor.properties))
        deadline_ms = SystemClock().now_ms() + int(duration_s * 1000)
        lake_table = factory.describe_table(plan.table)
        splits_of = Counter(split.table_bucket for split in plan.splits)
        places = {
            split.table_bucket: (split.partition_name, split.table_bucket.bucket)
            for split in plan.splits
            if splits_of[split.table_bucket] == 1 and not plan.table.is_log_table
        }
        # What is changed by several splits is placed by the committer, which looks at the bucket itself.
        lake_buckets = factory.describe_buckets(plan.table, list(places.values()), plan.planned_id) if places else {}
        scene = TaskScene(
            self._connection.address,
            self._connection.options,
            plan.table,
            storage.format_name,
            storage.task_properties,
            lake_table,
        ).to_json()
        return [
            TieringTask(
                scene,
                split,
                round_id,
                lake_buckets.get(places[split.table_bucket], {}) if split.table_bucket in places else {},
                alone=plan.table.is_log_table or splits_of[split.table_bucket] == 1,
                deadline_ms=None if split.split_index < parallelism else deadline_ms,
            ).to_bytes()
            for split in plan.splits
        ]

    def catch_up(
        self, table: TableInfo, lake: LakeCommitter[Any, Any]
    ) -> tuple[int | None, list[PartitionInfo], int | None, LakeOffsets]:
        """Fence a predecessor, read where lake and cluster are, and register what was committed and never registered.

        Returns:
            The lake's newest snapshot, the table's partitions, and the snapshot and offsets that the cluster knows now.

        Raises:
            FlussError: As `plan`.
        """
        if self._must_fence:
            self._fence(table, lake)
        planned_id = lake.current_snapshot_id()
        self._enumerator.renew(self._assignment)
        # After the snapshot: a partition that is dropped from the lake later makes a newer one, so that our commit fails.
        partitions = self._partitions(table)
        known_id, known = self._registered_snapshot(table, lake, partitions)
        return planned_id, partitions, known_id, known

    def _partitions(self, table: TableInfo) -> list[PartitionInfo]:
        return self._connection.admin().partitions(table.path) if table.descriptor.partitioned_by else []

    def _fence(self, table: TableInfo, lake: LakeCommitter[Any, Any]) -> None:
        """Commit an empty snapshot: whatever a predecessor planned, should it still live, can not be committed any more.

        What the predecessor did commit is registered first: some catalogs show no snapshot but the newest.
        """
        planned_id = lake.current_snapshot_id()
        self._enumerator.renew(self._assignment)
        _, known = self._registered_snapshot(table, lake, self._partitions(table))
        TieringCommitter(lake, self._assignment, uuid.uuid4().hex).fence(known, planned_id)
        self._must_fence = False
        failpoint("tiering.fence.after")

    def _registered_snapshot(
        self, table: TableInfo, lake: LakeCommitter[Any, Any], partitions: Sequence[PartitionInfo]
    ) -> tuple[int | None, LakeOffsets]:
        """Return the snapshot and offsets that the cluster knows, once it knows what was committed and never registered."""
        known_id, known = self._known_snapshot(table)
        missing, merged = self._missing_snapshot(table, lake, partitions, known_id, known)
        if missing is None:
            return known_id, known
        newer = advanced_buckets(merged, known)
        self._check_same_records(table, partitions, known, newer)
        first = {bucket: offset for bucket, offset in newer.items() if bucket not in known}
        self._fluss.commit(missing.snapshot_id, newer, committed_starts(missing, first))
        failpoint("tiering.register.after")
        return missing.snapshot_id, merged

    def _check_same_records(
        self, table: TableInfo, partitions: Sequence[PartitionInfo], known: LakeOffsets, newer: LakeOffsets
    ) -> None:
        """Check that what was committed and never registered are the records that the cluster has at these offsets.

        A cluster restored from a copy that is older than the lake gives the offsets to other records, which would then
        never be tiered. Those are later ones: all that the lake has are at most as old as its last one.

        Raises:
            LakeAheadError: They are not.
            FlussError: The cluster cannot say.

        Cost: a call for each bucket, only where a commit was not registered.
        """
        present = {partition.partition_id: partition for partition in partitions}
        for bucket, offset in newer.items():
            is_gone = bucket.partition_id is not None and bucket.partition_id not in present
            # What a primary-key table's first round took from a snapshot has no time of its last record.
            is_timed = offset.max_timestamp_ms >= 0 and (table.is_log_table or bucket in known)
            if is_gone or not is_timed or (self._sound is not None and bucket not in self._sound):
                continue
            query = OffsetQuery(OffsetSpec.timestamp(offset.max_timestamp_ms + 1), lake=False)
            partition = None if bucket.partition_id is None else present[bucket.partition_id]
            found = list_offsets(self._connection, table, query, partition, [bucket.bucket])[bucket.bucket]
            if found.offset < offset.end:
                raise LakeAheadError(
                    f"table {table.path} bucket {bucket.bucket}: the lake holds offsets below {offset.end}, the last of "
                    f"{format_moment(offset.max_timestamp_ms)}; of the cluster's records only those below {found.offset} are so "
                    "old: the cluster's folder is older than the lake (restored from a copy?). Nothing more of the table is "
                    "tiered: restore the newer folder, or create the table anew"
                )

    def _known_snapshot(self, table: TableInfo) -> tuple[int | None, LakeOffsets]:
        try:
            snapshot = lake_snapshot(self._connection, table.path, table_id=table.table_id)
        except LakeSnapshotNotFoundError:
            return None, {}
        return snapshot.snapshot_id, snapshot.offsets

    def _missing_snapshot(
        self,
        table: TableInfo,
        lake: LakeCommitter[Any, Any],
        partitions: Sequence[PartitionInfo],
        known_id: int | None,
        known: LakeOffsets,
    ) -> tuple[CommittedLakeSnapshot | None, LakeOffsets]:
        """Return the newest lake snapshot of ours that Fluss does not know, and all offsets with it; None: there is none."""
        missing = lake.missing_lake_snapshot(known_id)
        if missing is None:
            return None, known
        recovered = committed_offsets(missing, table.table_id, _partition_ids(partitions, known))
        return missing, merge_offsets(known, recovered)


def _partition_ids(partitions: Sequence[PartitionInfo], known: Mapping[TableBucket, LakeOffset]) -> dict[str, int]:
    """Return name to id of the partitions that exist, and of dropped ones that were tiered before."""
    ids = {
        offset.partition: bucket.partition_id
        for bucket, offset in known.items()
        if offset.partition is not None and bucket.partition_id is not None
    }
    return ids | {partition.name: partition.partition_id for partition in partitions}


def collect_results(
    plan: RoundPlan, factory: LakeTieringFactory[Any, Any], data: Sequence[bytes]
) -> tuple[list[WrittenSplit], list[FlussError]]:
    """Return what tasks wrote, those left to a later round among them, and why others failed.

    Raises:
        CorruptDataError: The bytes are no results of this release.
    """
    serializer = factory.write_result_serializer()
    results = [TaskResult.from_bytes(each) for each in data]
    written = [
        WrittenSplit(
            plan.splits[each.split_index],
            each.end,
            each.max_timestamp_ms,
            serializer.deserialize(each.write_version, each.write_result) if each.write_result else None,
            start=each.start,
            rows=each.rows,
            events=each.events,
        )
        for each in results
        if each.error is None
    ]
    return written, [each.error for each in results if each.error is not None]
