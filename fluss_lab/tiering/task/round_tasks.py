"""The work of a round: a task for each split of its plan, and what came of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fluss_lab.client import Connection
from fluss_lab.errors import FlussError
from fluss_lab.lake import LakeStorage, LakeTieringFactory
from fluss_lab.tiering.round.round_planner import RoundPlan
from fluss_lab.tiering.round.tiering_committer import WrittenSplit
from fluss_lab.tiering.task.tiering_task import TaskResult, TieringTask


def make_tasks(
    plan: RoundPlan,
    factory: LakeTieringFactory[Any, Any],
    connection: Connection,
    storage: LakeStorage,
    *,
    round_id: str,
    deadline_ms: int,
    parallelism: int,
) -> list[bytes]:
    """Return the tasks of a plan, in the order of its splits.

    Args:
        plan: What is to be written.
        factory: Of the lake.
        connection: To the cluster that the tasks read.
        storage: The lake that they write.
        round_id: Unique to the attempt.
        deadline_ms: No task begins after it, in epoch milliseconds.
        parallelism: Tasks that run at once: the first so many begin whenever they do, so that the round gets somewhere
            though workers' clocks be wrong or their start slow.

    Raises:
        TableNotFoundError: The lake table is gone.
        UnsupportedError: It is not as fluss_lab made it.
    """
    lake_table = factory.describe_table(plan.table)
    splits_of = Counter(split.table_bucket for split in plan.splits)
    places = {
        split.table_bucket: (split.partition_name, split.table_bucket.bucket)
        for split in plan.splits
        if splits_of[split.table_bucket] == 1 and not plan.table.is_log_table
    }
    # What is changed by several splits is placed by the committer, which looks at the bucket itself.
    lake_buckets = factory.describe_buckets(plan.table, list(places.values()), plan.planned_id) if places else {}
    return [
        TieringTask(
            connection.address,
            connection.options,
            plan.table,
            split,
            storage.format_name,
            storage.task_properties,
            lake_table,
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
