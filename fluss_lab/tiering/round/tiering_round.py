"""A tiering round: one table, from the coordinator's request to the coordinator's acknowledgement.

Every step leaves a state from which the next round goes on. What makes it safe against tierers that wake up late: the
newest lake snapshot is read first, then the coordinator confirms that the table is still held by this round, and the
commit is conditional on that snapshot. Whoever takes the table over commits an (empty) snapshot before anything else.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, Final

from fluss_lab.client import Connection, KnownBucket
from fluss_lab.client.cluster.bucket_status import bucket_statuses
from fluss_lab.clock import SystemClock
from fluss_lab.errors import (
    CommitConflictError,
    FlussError,
    InternalError,
    KvSnapshotNotFoundError,
    LakeSnapshotNotFoundError,
    PartitionNotFoundError,
    TieringCancelledError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.interrupts import Flag, cancelled_by, run_interruptibly
from fluss_lab.lake import CommitterInitContext, LakeCommitter, LakeStorage, LakeTieringFactory
from fluss_lab.model import LakeOffset, TableBucket, TableInfo
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.tiering.maintenance.automatic_maintenance import MaintenanceScene, maintain_table
from fluss_lab.tiering.round.lake_file_check import check_newest_files
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.round_planner import RoundPlan, RoundPlanner, collect_results
from fluss_lab.tiering.round.round_report import TieredBucket, TieringReport
from fluss_lab.tiering.round.source_enumerator import (
    FinishedTieringEvent,
    TieringAssignment,
    TieringSession,
    TieringSourceEnumerator,
    assigned_table,
    round_facts,
)
from fluss_lab.tiering.round.split_generator import TieringSnapshotSplit
from fluss_lab.tiering.round.table_lag import DURABLE_MS, TableLag, lag_of
from fluss_lab.tiering.round.tiering_committer import (
    FlussTableLakeSnapshotCommitter,
    TieringCommitter,
    WrittenSplit,
    contiguous,
    first_starts,
    split_ends,
    starts_of,
)
from fluss_lab.tiering.task.round_progress import RoundMeter, RoundProgress
from fluss_lab.tiering.task.tiering_task import TieringExecutor

log = logging.getLogger(__name__)

_DEFAULTS: Final = TieringOptions()


def run_round(
    connection: Connection,
    storage: LakeStorage,
    executor: TieringExecutor,
    *,
    table_id: int | None,
    session_id: int | None = None,
    progress: RoundProgress | None = None,
    cancel: threading.Event | None = None,
    options: TieringOptions = _DEFAULTS,
    sound: Mapping[TableBucket, KnownBucket] | None = None,
) -> TieringReport | None:
    """Tier one table: what is durable in the cluster and not yet in the lake, in one lake snapshot.

    All of it, unless a limit of the options ends the round before; then the report says so, and the next round goes on.

    Args:
        connection: To the cluster.
        storage: The lake.
        executor: Where the splits are written.
        table_id: Which table, due or not; None: whichever is due by its freshness.
        session_id: An attached session of this process, whose end frees the table; None: one is made for the round.
        progress: Called with how far the round is, now and then, from any thread.
        cancel: Cancels the round when any thread sets it.
        options: Limits.
        sound: What can be read of buckets whose logs are damaged behind it: only these are tiered, up to there. None: all
            buckets, whose logs must be whole.

    Returns:
        What was done; rows are 0 when the lake was up to date already. None when no table is due.

    Raises:
        TieringInProgressError: A living tierer works on the table.
        TieringCancelledError: It was cancelled before its commit.
        FencedTieringEpochError: Another tierer took the table over during the round.
        CommitConflictError: The lake moved on each time the round was planned; try again.
        ForeignCommitError: Another program changed the rows of the lake table.
        CommitOutcomeUnknownError: The lake did not say whether it committed; the next round finds out.
        LakeSnapshotNotFoundError: The lake lost the snapshot that the cluster knows.
        OffsetOutOfRangeError: Records left the cluster before they were tiered.
        UnavailableError: The cluster, the executor or a key-value snapshot is not there at the moment.

    After any failure the coordinator knows of it, and the round's files are removed unless they may be part of a commit; those
    of tasks whose executor was cancelled or died are left for the removal of orphans. An interrupt of the main thread cancels
    the round, and is raised when it has ended. Whatever cancels it behind the commit only ends the maintenance that follows.
    """
    interrupted = Flag()
    stops: list[threading.Event] = [interrupted, *([] if cancel is None else [cancel])]

    def work() -> TieringReport | None:
        with ExitStack() as stack:
            check_cancelled(cancel)
            stack.enter_context(cancelled_by(cancel, executor.cancel))
            session = session_id or stack.enter_context(TieringSession(connection)).session_id
            enumerator = TieringSourceEnumerator(connection, session, options.renew_interval_s)
            meter = RoundMeter(progress)
            with meter.time_stage("plan"):
                assignment = enumerator.request(table_id)
            if assignment is None:
                return None
            return TieringRound(
                connection, storage, executor, enumerator, assignment, meter=meter, options=options,
                is_stopped=lambda: any(each.is_set() for each in stops), sound=sound,
            ).run()  # fmt: skip

    def interrupt() -> None:
        interrupted.set()
        executor.cancel()

    return run_interruptibly(work, interrupt)


def check_cancelled(cancel: threading.Event | None) -> None:
    """Check that a round was not cancelled before it began.

    Raises:
        TieringCancelledError: It was.
    """
    if cancel is not None and cancel.is_set():
        raise TieringCancelledError("the tiering round was cancelled before it began: nothing was done")


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
        meter: RoundMeter | None = None,
        options: TieringOptions = _DEFAULTS,
        is_stopped: Callable[[], bool] = lambda: False,
        sound: Mapping[TableBucket, KnownBucket] | None = None,
    ) -> None:
        self._connection = connection
        self._storage = storage
        self._executor = executor
        self._enumerator = enumerator
        self._assignment = assignment
        self._meter = meter or RoundMeter()
        self._options = options
        self._planner = RoundPlanner(connection, enumerator, assignment, options, sound)
        self._fluss = FlussTableLakeSnapshotCommitter(connection, assignment)
        self._table: TableInfo | None = None
        #: Of the last plan; of the first how far the lake lagged.
        self._plan: RoundPlan | None = None
        self._before: TableLag | None = None
        #: Why the table is not held any more.
        self._lost: FlussError | None = None
        self._is_stopped = is_stopped
        self._meter.name(assignment.path, assignment.tiering_epoch)

    def run(self) -> TieringReport:
        """Run the round, and report to the coordinator how it ended."""
        with self._enumerator.hold(self._assignment, self._on_lost, self._facts):
            failpoint("tiering.heartbeat.after")
            report = self._maintain(self._tier())
            with self._meter.time_stage("finish"):  # the table is still held: a server that hangs takes its time
                after = self._lag_after(report)
            failpoint("tiering.finish.before")
        self._meter.enter("finish")
        with self._meter.time_stage("finish"):
            records, facts = report.rows + report.events, self._facts(report, after)
            is_unfinished = report.maintenance is not None and report.maintenance.is_unfinished
            event = FinishedTieringEvent(
                self._assignment, records, report.bytes, report.is_limited, facts, is_unfinished
            )
            self._enumerator.handle(event)
        return replace(report, seconds=self._meter.seconds())

    def _maintain(self, report: TieringReport) -> TieringReport:
        """Look after the table's shape, while it is held. Whatever comes of that, the round's data is where it belongs."""
        self._meter.enter("maintain")
        with self._meter.time_stage("maintain"):
            scene = MaintenanceScene(
                self._connection,
                self._storage,
                self._executor,
                self._assignment,
                self._confirm_held,
                progress=self._meter.count_tasks,
            )
            assert self._table is not None, "as the round was planned with, or committed"
            done = maintain_table(scene, self._table, report.snapshot_id)
        if done is None:
            return report
        return replace(report, maintenance=done, snapshot_id=done.snapshot_id or report.snapshot_id)

    def _confirm_held(self) -> None:
        self._check_held()
        self._enumerator.renew(self._assignment)

    def _on_lost(self, error: FlussError) -> None:
        self._lost = error
        self._executor.cancel()

    def _check_held(self) -> None:
        if self._is_stopped():
            raise TieringCancelledError(
                f"{self._assignment}: the round was cancelled or interrupted; the next one goes on from where it began"
            )
        if (lost := self._lost) is not None:
            raise type(lost)(f"{lost}; this round ends")

    def _tier(self) -> TieringReport:
        """Plan, write and commit; plan again, a few times, when lake or table moved on in between."""
        for replans_left in reversed(range(self._options.replans_max + 1)):
            try:
                return self._attempt()
            except (CommitConflictError, PartitionNotFoundError, KvSnapshotNotFoundError) as error:
                if not replans_left:
                    self._check_files()
                    raise
                log.info("%s: planned again: %s", self._assignment, error)
        raise InternalError(f"{self._assignment}: no attempt was made")

    def _check_files(self) -> None:
        """Raise what is wrong with the lake's files: one that is gone looks, at first, like one of a snapshot that was expired."""
        with suppress(LakeSnapshotNotFoundError):  # expired in fact
            table = assigned_table(self._connection, self._assignment)
            check_newest_files(self._connection, self._storage, table)

    def _attempt(self) -> TieringReport:
        round_id = uuid.uuid4().hex
        self._check_held()
        with ExitStack() as stack:
            with self._meter.time_stage("plan"):
                factory = self._storage.create_lake_tiering_factory()
                table = self._table = assigned_table(self._connection, self._assignment)
                context = CommitterInitContext(table, round_id)
                lake = stack.enter_context(factory.create_lake_committer(context))
                plan = self._plan = self._planner.plan(table, lake, self._executor.parallelism)
                self._before = self._before or plan.lag
                failpoint("tiering.plan.after")
            if not plan.splits:
                return self._report(plan.known_id, [])
            written = self._write(plan, factory, lake, round_id)
            with self._meter.time_stage("commit"):
                return self._commit(plan, lake, written, round_id)

    # -- write ---------------------------------------------------------------------------------------------------------

    def _write(
        self, plan: RoundPlan, factory: LakeTieringFactory[Any, Any], lake: LakeCommitter[Any, Any], round_id: str
    ) -> list[WrittenSplit]:
        """Run the tasks; return what all of them wrote, or remove it and raise."""
        with self._meter.time_stage("plan"):
            parallelism = self._executor.parallelism
            tasks = self._planner.make_tasks(plan, factory, self._storage, round_id, parallelism)
        self._meter.plan(plan.splits)
        self._check_held()
        with self._meter.time_stage("write"):
            try:
                data = self._executor.run(tasks, self._meter.add_written)
            except FlussError as error:
                self._check_held()
                raise error
        written, failures = collect_results(plan, factory, data)
        if failures:
            self._remove(lake, written)
            self._check_held()
            # What would fail again says more than what may pass.
            raise min(failures, key=lambda failure: failure.retriable)
        return written

    @staticmethod
    def _remove(lake: LakeCommitter[Any, Any], written: Sequence[WrittenSplit]) -> None:
        lake.abort([each.result for each in written if each.result is not None])

    # -- commit --------------------------------------------------------------------------------------------------------

    def _commit(
        self, plan: RoundPlan, lake: LakeCommitter[Any, Any], written: list[WrittenSplit], round_id: str
    ) -> TieringReport:
        try:
            failpoint("tiering.write.after")
            self._meter.enter("commit")
            kept, rest = contiguous(plan.splits, written)
            self._table = assigned_table(self._connection, self._assignment)
            self._check_held()
        except BaseException:
            self._remove(lake, written)
            raise
        self._remove(lake, rest)
        if not kept:
            return self._report(plan.known_id, [])
        committer = TieringCommitter(lake, self._assignment, round_id)
        snapshot_id = committer.commit(kept, plan.known, plan.known_id, plan.planned_id)
        failpoint("tiering.lake_commit.after")
        self._fluss.commit(snapshot_id, split_ends(kept), first_starts(kept, plan.known))
        failpoint("tiering.fluss_commit.after")
        is_limited = plan.is_limited or any(each.result is None for each in rest)
        return self._report(snapshot_id, kept, is_limited=is_limited)

    # -- report --------------------------------------------------------------------------------------------------------

    def _facts(self, report: TieringReport | None = None, after: TableLag | None = None) -> pb.PbRoundFacts:
        return round_facts(report, self._meter.seconds(), self._before, after)

    def _lag_after(self, report: TieringReport) -> TableLag | None:
        """Return how far the lake lags behind at the round's end; None where that cannot be had at once."""
        plan = self._plan
        if plan is None or plan.lag is None:
            return None
        ends = {(each.partition, each.bucket): each for each in report.buckets}
        complete_ms = None if report.is_limited else plan.planned_ms - DURABLE_MS
        try:
            statuses = bucket_statuses(self._connection, plan.table, patient=False)
        except FlussError as error:
            log.debug("%s: lag after the round: %s", self._assignment, error)
            return None
        offsets = dict(plan.known)
        for each in statuses:
            if (tiered := ends.get((each.partition, each.bucket.bucket))) is not None:
                offsets[each.bucket] = LakeOffset(tiered.end, tiered.max_timestamp_ms, each.partition)
        return lag_of(plan.table, statuses, offsets, SystemClock().now_ms(), complete_ms)

    def _report(
        self, snapshot_id: int | None, written: Sequence[WrittenSplit], *, is_limited: bool = False
    ) -> TieringReport:
        starts = starts_of(written)
        buckets = [
            TieredBucket(offset.partition, bucket.bucket, starts[bucket], offset.end, offset.max_timestamp_ms)
            for bucket, offset in split_ends(written).items()
        ]
        buckets.sort(key=lambda each: (each.partition or "", each.bucket))
        return TieringReport(
            table=self._assignment.path,
            rows=sum(each.rows for each in written),
            files=sum(each.result.file_count for each in written),
            bytes=sum(each.result.size_bytes for each in written),
            snapshot_id=snapshot_id,
            epoch=self._assignment.tiering_epoch,
            splits=len(written),
            buckets=tuple(buckets),
            events=sum(each.events for each in written),
            snapshots=sum(isinstance(each.split, TieringSnapshotSplit) for each in written),
            is_limited=is_limited,
        )
