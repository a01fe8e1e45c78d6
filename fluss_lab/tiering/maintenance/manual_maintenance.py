"""Maintenance by hand: the table is held for it as for a round."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TypeVar

from fluss_lab.client import Connection
from fluss_lab.clock import Clock
from fluss_lab.errors import InternalError, LakeNotConfiguredError
from fluss_lab.interrupts import run_interruptibly
from fluss_lab.lake import CommitterInitContext, LakeStorage
from fluss_lab.tiering.maintenance.lake_maintenance import MaintenanceScene, TableMaintenance
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.round_planner import RoundPlanner
from fluss_lab.tiering.round.source_enumerator import FinishedTieringEvent, TieringSession, TieringSourceEnumerator
from fluss_lab.tiering.task.tiering_task import TaskProgress, TieringExecutor

ReportT = TypeVar("ReportT")


class NoTieringExecutor:
    """For what needs no tasks: neither Spark nor anything else is started."""

    @property
    def parallelism(self) -> int:
        """Return 1."""
        return 1

    @property
    def is_alive(self) -> bool:
        """Return True: there is nothing that could die."""
        return True

    def run(self, tasks: Sequence[bytes], progress: TaskProgress | None = None) -> list[bytes]:
        """Refuse."""
        del progress
        raise InternalError(f"{len(tasks)} tasks: expected none")

    def cancel(self) -> None:
        """Do nothing."""


def maintain(
    connection: Connection,
    storage: LakeStorage,
    executor: TieringExecutor,
    action: Callable[[TableMaintenance], ReportT],
    *,
    table_id: int,
    session_id: int | None = None,
    options: TieringOptions | None = None,
    clock: Clock | None = None,
) -> ReportT:
    """Hold a table as a round does, and do something for its shape.

    A predecessor that may still live is fenced first, and what it committed is registered: files that it wrote are
    therefore orphans, and no commit of its can come any more.

    Args:
        connection: To the cluster.
        storage: The lake.
        executor: Where files are rewritten.
        action: What to do.
        table_id: The table.
        session_id: An attached session of this process; None: one is made.
        options: Heartbeats, as for a round.
        clock: By which ages are measured.

    Raises:
        TieringInProgressError: A living tierer works on the table; try again when its round is over.
        FlussError: As the action, or as the planning of a round.
        KeyboardInterrupt: The main thread was interrupted. Tasks were cancelled; what went on without any is done.
    """

    def work() -> ReportT:
        return _maintain(
            connection, storage, executor, action, table_id, session_id, options or TieringOptions(), clock
        )

    return run_interruptibly(work, executor.cancel)


def _maintain(
    connection: Connection,
    storage: LakeStorage,
    executor: TieringExecutor,
    action: Callable[[TableMaintenance], ReportT],
    table_id: int,
    session_id: int | None,
    options: TieringOptions,
    clock: Clock | None,
) -> ReportT:
    with ExitStack() as stack:
        if session_id is None:
            session_id = stack.enter_context(TieringSession(connection)).session_id
        enumerator = TieringSourceEnumerator(connection, session_id, options.renew_interval_s)
        assignment = enumerator.request(table_id)
        if assignment is None:
            raise LakeNotConfiguredError(f"table id {table_id}: the coordinator gave nothing to maintain")
        with enumerator.hold(assignment, lambda _: executor.cancel()):
            planner = RoundPlanner(connection, enumerator, assignment, options)
            table = planner.table()
            context = CommitterInitContext(table, uuid.uuid4().hex)
            with storage.create_lake_tiering_factory().create_lake_committer(context) as lake:
                planner.catch_up(table, lake)
            scene = MaintenanceScene(
                connection, storage, executor, assignment, lambda: enumerator.renew(assignment), clock
            )
            report = action(TableMaintenance(scene, table))
        # Nothing was tiered: whatever was due still is.
        enumerator.handle(FinishedTieringEvent(assignment, 0, 0, is_forced=True))
    return report
