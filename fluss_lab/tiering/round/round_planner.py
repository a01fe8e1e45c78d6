"""The planner of a round: what the lake does not hold yet, cut into splits and tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fluss_lab.client import Connection, KnownBucket
from fluss_lab.clock import SystemClock
from fluss_lab.errors import CommitConflictError, FlussError
from fluss_lab.lake import LakeCommitter, LakeStorage, LakeTieringFactory
from fluss_lab.lake.snapshot_summary import LakeOffsets
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.model.config.options import DATALAKE_FRESHNESS
from fluss_lab.tiering.round.commit_recovery import CommitRecovery
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.source_enumerator import TieringAssignment, TieringSourceEnumerator, assigned_table
from fluss_lab.tiering.round.split_generator import TieringSplit, TieringSplitGenerator
from fluss_lab.tiering.round.table_lag import TableLag, lag_of
from fluss_lab.tiering.round.tiering_committer import WrittenSplit
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
        self._assignment = assignment
        self._options = options
        self._recovery = CommitRecovery(connection, enumerator, assignment, sound)

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
        found = self._recovery.catch_up(table, lake)
        generator = TieringSplitGenerator(self._connection, table, found.partitions, self._options, self._sound)
        planned_ms = SystemClock().now_ms()
        generated = generator.generate(found.known, parallelism)
        # After the splits: a record of columns that the plan does not know can not be below their ends then.
        if (schema_id := assigned_table(self._connection, self._assignment).schema_id) != table.schema_id:
            raise CommitConflictError(
                f"{self._assignment}: planned with schema {table.schema_id}, the table has schema {schema_id} now"
            )
        lag = lag_of(table, generated.statuses, found.known, planned_ms) if self._sound is None else None
        return RoundPlan(
            table, found.newest_id, found.known_id, found.known, generated.splits, generated.is_limited, planned_ms, lag
        )

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
