"""A tiering round: one table, from the coordinator's word to the coordinator's word (design, section 6).

Every step leaves a state from which the next round goes on. What makes it safe against tierers that wake up late: the
newest lake snapshot is read first, then the coordinator confirms that the table is still held by this round, and the
commit is conditional on that snapshot. Whoever takes the table over commits an (empty) snapshot before anything else.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

from fluss_lab.client import Connection
from fluss_lab.errors import (
    CommitConflictError,
    FencedTieringEpochError,
    FlussError,
    InternalError,
    PartitionNotFoundError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.lake import CommitterInitContext, LakeCommitter, LakeStorage, LakeTieringFactory
from fluss_lab.model.options import DATALAKE_FORMAT
from fluss_lab.tiering.committer import (
    FlussTableLakeSnapshotCommitter,
    TieringCommitter,
    WrittenSplit,
    contiguous,
    ends_of,
    starts_of,
)
from fluss_lab.tiering.enumerator import TieringSourceEnumerator
from fluss_lab.tiering.events import FailedTieringEvent, FinishedTieringEvent, TieringAssignment
from fluss_lab.tiering.executor import TieringExecutor
from fluss_lab.tiering.options import TieringOptions
from fluss_lab.tiering.planner import RoundPlan, RoundPlanner
from fluss_lab.tiering.report import TieredBucket, TieringReport
from fluss_lab.tiering.session import TieringSession
from fluss_lab.tiering.task import TaskResult, TieringTask

log = logging.getLogger(__name__)

#: Called with the stage, and tasks done and in all.
RoundProgress = Callable[[str, int, int], None]
_DEFAULTS: Final = TieringOptions()


def run_round(
    connection: Connection,
    storage: LakeStorage,
    executor: TieringExecutor,
    *,
    table_id: int | None,
    session_id: int | None = None,
    progress: RoundProgress | None = None,
    options: TieringOptions = _DEFAULTS,
) -> TieringReport | None:
    """Tier one table: everything durable in the cluster and not yet in the lake, in one lake snapshot.

    Args:
        connection: To the cluster.
        storage: The lake.
        executor: Where the splits are written.
        table_id: Which table, due or not; None: whichever is due by its freshness.
        session_id: An attached session of this process, by whose end the table is freed; None: one is made for the
            round.
        progress: Called now and then, from any thread, with the stage and its tasks done and in all.
        options: Limits.

    Returns:
        What was done; rows are 0 when the lake was up to date already. None when no table is due.

    Raises:
        TieringInProgressError: A living tierer works on the table.
        FencedTieringEpochError: Another tierer took the table over during the round.
        CommitConflictError: The lake moved on each time the round was planned; try again.
        ForeignCommitError: Somebody else changed the rows of the lake table.
        CommitOutcomeUnknownError: The lake did not say whether it committed; the next round finds out.
        LakeSnapshotNotFoundError: The lake lost the snapshot that the cluster knows.
        OffsetOutOfRangeError: Records left the cluster before they were tiered.
        UnsupportedError: A primary-key table.

    After any failure the coordinator knows of it, and the round's files are removed unless they may be part of a
    commit.
    """
    with ExitStack() as stack:
        if session_id is None:
            session_id = stack.enter_context(TieringSession(connection)).session_id
        enumerator = TieringSourceEnumerator(connection, session_id, options.renew_interval_s)
        watch = StageWatch()
        with watch.stage("plan"):
            assignment = enumerator.request(table_id)
        if assignment is None:
            return None
        tiering = TieringRound(
            connection, storage, executor, enumerator, assignment, progress=progress, options=options
        )
        return tiering.run(watch)


class StageWatch:
    """Adds up the seconds of each stage."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the block's seconds towards a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - started

    def seconds(self) -> dict[str, float]:
        """Return the seconds of every stage, and in all."""
        stages = {name: self._seconds.get(name, 0.0) for name in ("plan", "write", "commit", "finish")}
        return stages | {"total": time.perf_counter() - self._started}


class TieringRound:
    """One round of a table that the coordinator handed out. Run it once; see `run_round`."""

    def __init__(
        self,
        connection: Connection,
        storage: LakeStorage,
        executor: TieringExecutor,
        enumerator: TieringSourceEnumerator,
        assignment: TieringAssignment,
        *,
        progress: RoundProgress | None = None,
        options: TieringOptions = _DEFAULTS,
    ) -> None:
        self._connection = connection
        self._storage = storage
        self._executor = executor
        self._enumerator = enumerator
        self._assignment = assignment
        self._progress = progress or (lambda _stage, _done, _total: None)
        self._options = options
        self._watch = StageWatch()
        self._planner = RoundPlanner(connection, enumerator, assignment, options)
        self._fluss = FlussTableLakeSnapshotCommitter(connection, assignment)
        self._lost = threading.Event()

    def run(self, watch: StageWatch | None = None) -> TieringReport:
        """Run the round, and tell the coordinator how it ended.

        Args:
            watch: Started when the table was asked for; default: started now.
        """
        self._watch = watch or self._watch
        with self._enumerator.holding(self._assignment, self._on_lost):
            try:
                failpoint("tiering.heartbeat.after")
                report = self._tier()
                failpoint("tiering.finish.before")
            except BaseException as error:
                self._enumerator.handle(FailedTieringEvent(self._assignment, f"{type(error).__name__}: {error}"))
                raise
            with self._watch.stage("finish"):
                self._enumerator.handle(FinishedTieringEvent(self._assignment, report.rows, report.bytes))
        return replace(report, seconds=self._watch.seconds())

    def _on_lost(self) -> None:
        self._lost.set()
        self._executor.cancel()

    def _check_held(self) -> None:
        if self._lost.is_set():
            raise FencedTieringEpochError(f"{self._assignment}: another tierer holds the table now; this round ends")

    def _tier(self) -> TieringReport:
        """Plan, write and commit; plan again, a few times, when lake or table moved on in between."""
        for replans_left in reversed(range(self._options.replans_max + 1)):
            try:
                return self._attempt()
            except (CommitConflictError, PartitionNotFoundError) as error:
                if not replans_left:
                    raise
                log.info("%s: planned again: %s", self._assignment, error)
        raise InternalError(f"{self._assignment}: no attempt was made")

    def _attempt(self) -> TieringReport:
        round_id = uuid.uuid4().hex
        with ExitStack() as stack:
            with self._watch.stage("plan"):
                factory = self._storage.create_lake_tiering_factory()
                table = self._planner.table()
                context = CommitterInitContext(table, round_id)
                lake = stack.enter_context(factory.create_lake_committer(context))
                plan = self._planner.plan(table, lake, self._executor.parallelism)
                failpoint("tiering.plan.after")
            if not plan.splits:
                return self._report(plan.known_id, [])
            written = self._write(plan, factory, lake, round_id)
            with self._watch.stage("commit"):
                return self._commit(plan, lake, written, round_id)

    # -- write ---------------------------------------------------------------------------------------------------------

    def _write(
        self, plan: RoundPlan, factory: LakeTieringFactory[Any, Any], lake: LakeCommitter[Any, Any], round_id: str
    ) -> list[WrittenSplit]:
        """Run the tasks; return what all of them wrote, or remove it and raise."""
        with self._watch.stage("plan"):
            tasks = self._tasks(plan, factory, round_id)
        total = len(tasks)
        self._progress("write", 0, total)
        with self._watch.stage("write"):
            try:
                data = self._executor.run(tasks, lambda done, _total: self._progress("write", done, total))
            except FlussError as error:
                self._check_held()
                raise error
        results = [TaskResult.from_bytes(each) for each in data]
        serializer = factory.write_result_serializer()
        written = [
            WrittenSplit(
                plan.splits[each.split_index],
                each.end,
                each.max_timestamp_ms,
                serializer.deserialize(each.write_version, each.write_result),
            )
            for each in results
            if each.error is None
        ]
        if failures := [each.error for each in results if each.error is not None]:
            lake.abort([each.result for each in written])
            # What would fail again says more than what may pass.
            raise min(failures, key=lambda failure: failure.retriable)
        return written

    def _tasks(self, plan: RoundPlan, factory: LakeTieringFactory[Any, Any], round_id: str) -> list[bytes]:
        lake_table = factory.describe_table(plan.table)
        lake_format = DATALAKE_FORMAT.of(plan.table.descriptor.properties)
        server, client_options = self._connection.address, self._connection.options
        return [
            TieringTask(
                server, client_options, plan.table, split, lake_format, self._storage.properties, lake_table, round_id
            ).to_bytes()
            for split in plan.splits
        ]

    # -- commit --------------------------------------------------------------------------------------------------------

    def _commit(
        self, plan: RoundPlan, lake: LakeCommitter[Any, Any], written: list[WrittenSplit], round_id: str
    ) -> TieringReport:
        try:
            failpoint("tiering.write.after")
            self._progress("commit", len(written), len(written))
            kept, rest = contiguous(plan.splits, written)
            self._planner.table()
            self._check_held()
        except BaseException:
            lake.abort([each.result for each in written])
            raise
        lake.abort([each.result for each in rest])
        if not kept:
            return self._report(plan.known_id, [])
        committer = TieringCommitter(lake, self._assignment, round_id)
        snapshot_id = committer.commit(kept, plan.known, plan.known_id, plan.planned_id)
        failpoint("tiering.lake_commit.after")
        starts = {bucket: start for bucket, start in starts_of(kept).items() if bucket not in plan.known}
        self._fluss.commit(snapshot_id, ends_of(kept), starts)
        failpoint("tiering.fluss_commit.after")
        return self._report(snapshot_id, kept)

    # -- report --------------------------------------------------------------------------------------------------------

    def _report(self, snapshot_id: int | None, written: Sequence[WrittenSplit]) -> TieringReport:
        starts = starts_of(written)
        buckets = [
            TieredBucket(offset.partition, bucket.bucket, starts[bucket], offset.end, offset.max_timestamp_ms)
            for bucket, offset in ends_of(written).items()
        ]
        buckets.sort(key=lambda each: (each.partition or "", each.bucket))
        return TieringReport(
            table=self._assignment.path,
            rows=sum(each.end - each.start for each in buckets),
            files=sum(each.result.file_count for each in written),
            bytes=sum(each.result.size_bytes for each in written),
            snapshot_id=snapshot_id,
            epoch=self._assignment.tiering_epoch,
            splits=len(written),
            buckets=tuple(buckets),
        )
