"""Maintenance by hand: the table is held for it as for a round."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, TypeVar

from fluss_lab.client import Connection
from fluss_lab.clock import Clock
from fluss_lab.errors import (
    FencedTieringEpochError,
    InternalError,
    LakeNotConfiguredError,
    TieringCancelledError,
    UnavailableError,
)
from fluss_lab.interrupts import Flag, run_interruptibly
from fluss_lab.lake import CommitterInitContext, LakeStorage
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.tiering.maintenance.automatic_maintenance import MaintenanceScene, TableMaintenance
from fluss_lab.tiering.round.commit_recovery import CommitRecovery
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.source_enumerator import (
    FinishedTieringEvent,
    TieringAssignment,
    TieringSession,
    TieringSourceEnumerator,
    assigned_table,
)
from fluss_lab.tiering.task.tiering_task import TaskProgress, TieringExecutor

log = logging.getLogger(__name__)

ReportT = TypeVar("ReportT")
#: More restarts during one call are no accident.
RESTARTS_MAX: Final = 3


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


class _HeldExecutor:
    """Runs tasks for as long as a table is held: when it is lost those under way end, and no more begin.

    An executor that was cancelled stays so while nothing runs on it yet; whoever has the table anew needs it.

    Args:
        executor: Where.
    """

    def __init__(self, executor: TieringExecutor) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        self._is_running = False
        self._is_lost = False

    @property
    def parallelism(self) -> int:
        """Return how many tasks run at once."""
        return self._executor.parallelism

    @property
    def is_alive(self) -> bool:
        """Return whether a `run` may succeed."""
        return self._executor.is_alive

    def run(self, tasks: Sequence[bytes], progress: TaskProgress | None = None) -> list[bytes]:
        """Run every task.

        Raises:
            TieringCancelledError: The table was lost.
        """
        with self._lock:
            if self._is_lost:
                raise TieringCancelledError("the table was lost before its tasks began: nothing was done")
            self._is_running = True
        try:
            return self._executor.run(tasks, progress)
        finally:
            with self._lock:
                self._is_running = False

    def cancel(self) -> None:
        """Make a `run` under way end soon, and let none begin."""
        with self._lock:
            self._is_lost, is_running = True, self._is_running
        if is_running:
            self._executor.cancel()


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

    A server that is restarted meanwhile knows nothing of the table that it gave out: where nothing was changed yet, all is
    begun again.

    Raises:
        TieringInProgressError: A living tierer works on the table; try again when its round is over.
        FencedTieringEpochError: Another tierer has taken the table.
        UnavailableError: The server was restarted when the lake had been changed already, or several times; call again.
        ConnectionClosedError: The connection was closed.
        FlussError: As the action, or as the planning of a round.
        KeyboardInterrupt: The main thread was interrupted. Tasks were cancelled; what went on without any is done.
    """
    interrupted = Flag()

    def work() -> ReportT:
        session = session_id
        for left in reversed(range(RESTARTS_MAX + 1)):
            try:
                return _maintain(
                    connection, storage, executor, action, table_id, session, options or TieringOptions(), clock
                )
            except _RestartedError as error:
                if error.has_changed or not left or interrupted.is_set():
                    raise UnavailableError(str(error)) from error
                log.info("table id %d: done again: %s", table_id, error)
                session = None  # the server that has come does not know it
        raise InternalError(f"table id {table_id}: no attempt was made")

    def interrupt() -> None:
        interrupted.set()
        executor.cancel()

    return run_interruptibly(work, interrupt)


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
        made: list[TableMaintenance] = []
        held = _HeldExecutor(executor)
        with _name_cause(connection, assignment, made), enumerator.hold(assignment, lambda _: held.cancel()):
            table = assigned_table(connection, assignment)
            context = CommitterInitContext(table, uuid.uuid4().hex)
            with storage.create_lake_tiering_factory().create_lake_committer(context) as lake:
                CommitRecovery(connection, enumerator, assignment).catch_up(table, lake)
            scene = MaintenanceScene(connection, storage, held, assignment, lambda: enumerator.renew(assignment), clock)
            made.append(TableMaintenance(scene, table))
            report = action(made[0])
        # Nothing was tiered: whatever was due still is.
        enumerator.handle(FinishedTieringEvent(assignment, 0, 0, is_forced=True))
    return report


class _RestartedError(Exception):
    """The server that gave the table out was restarted."""

    def __init__(self, message: str, *, has_changed: bool) -> None:
        super().__init__(message)
        self.has_changed = has_changed


@contextmanager
def _name_cause(
    connection: Connection, assignment: TieringAssignment, made: Sequence[TableMaintenance]
) -> Iterator[None]:
    """Raise why a table was lost; the work, and tasks that were cancelled, know only that it was.

    Args:
        connection: To the cluster.
        assignment: The table.
        made: What works on it, once there is something.

    Raises:
        _RestartedError: The server was restarted.
        ConnectionClosedError: The connection was closed.
        FlussError: As the block.
    """
    try:
        yield
    except (FencedTieringEpochError, TieringCancelledError) as error:
        connection.check_open(f"{assignment}: not done")
        described = connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
        if described.coordinator_epoch != assignment.coordinator_epoch:
            has_changed = any(each.has_changed for each in made)
            fate = (
                "the lake was changed before, and that stays: call again for the rest" if has_changed else "call again"
            )
            text = f"{assignment}: the server was restarted meanwhile; {fate}"
            raise _RestartedError(text, has_changed=has_changed) from error
        raise
