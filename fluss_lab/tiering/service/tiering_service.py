"""Continuous tiering: whichever table is due by its freshness gets a round, a few tables at a time, for days.

Each of a few threads takes a due table, runs a round of it, and takes the next. Which table is due, and who may work on
it, the coordinator decides: any number of services may run, in any processes. What can go wrong stays where it is:

* a round that fails is the table's affair: the coordinator offers the table again after a while that grows, and the
  thread takes the next table at once;
* an executor that died (Spark's JVM was killed, its session stopped) is replaced before the next table is asked for;
* while the server is away, the threads wait for it; a coordinator that comes back gives the tables out anew.

One thread at a time asks for work, so an idle service costs one small call in each poll interval, however many tables it
may tier at once. What is kept of a table does not grow with its rounds, and goes when the table is dropped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from fluss_lab.client import Connection
from fluss_lab.clock import Clock, SystemClock
from fluss_lab.display import card, short
from fluss_lab.errors import FlussError, InvalidRequestError, UnavailableError
from fluss_lab.interrupts import Held
from fluss_lab.lake import LakeStorage
from fluss_lab.model import TablePath
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.round_report import TieringReport
from fluss_lab.tiering.round.source_enumerator import TieringAssignment, TieringSession, TieringSourceEnumerator
from fluss_lab.tiering.round.table_lag import TableLag, table_lag
from fluss_lab.tiering.round.tiering_round import TieringRound
from fluss_lab.tiering.service.service_status import ServiceStatus, TableHistory, TableStatus
from fluss_lab.tiering.task.round_progress import RoundMeter, RoundState
from fluss_lab.tiering.task.tiering_task import TieringExecutor

log = logging.getLogger(__name__)

#: How often an idle service asks: a question costs the coordinator well under a millisecond.
POLL_INTERVAL_S: Final = 1.0
#: A thread that cannot even ask, or get an executor, waits up to so long between its attempts.
BACKOFF_MAX_S: Final = 30.0
#: How long rounds under way may go on after `stop`, by default.
DRAIN_TIMEOUT_S: Final = 30.0
#: How often `stop` cancels what goes on after its grace: a round may be about to start its tasks.
_CANCEL_INTERVAL_S: Final = 0.2
#: How long cancelled rounds may take to end. One that hangs in a call of the lake or the server is left to itself then:
#: its session is closed, so the coordinator takes the table from it, and it cannot commit any more.
_CANCEL_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """How a round of the service ended.

    Attributes:
        table: Of which table.
        report: What it did; None when it failed.
        error: Why it failed; None when it did not.
    """

    table: TablePath
    report: TieringReport | None = None
    error: BaseException | None = None

    def __str__(self) -> str:
        if self.report is not None:
            return repr(self.report).strip("<>").removeprefix("TieringReport ")
        text = str(self.error).splitlines()
        return f"{self.table}: failed: {type(self.error).__name__}: {text[0] if text else ''}"


@check_arguments
class TieringService:
    """Tiers every lake-enabled table of a cluster by its freshness, until it is stopped.

    Args:
        connection: To the cluster.
        storage: The lake.
        executor_factory: Makes the executor of one thread; called in it, and again when that executor has died.
        max_tables: Tables tiered at the same time; at least 1.
        poll_interval_s: How often an idle service asks for work: a table that becomes due waits so long at most.
        options: Limits of the rounds.
        on_round: Called with how each round ended, by any thread; what it raises is noted and changes nothing.
        clock: For times that are shown.
    """

    def __init__(
        self,
        connection: Connection,
        storage: LakeStorage,
        executor_factory: Callable[[], TieringExecutor],
        *,
        max_tables: int = 2,
        poll_interval_s: float = POLL_INTERVAL_S,
        options: TieringOptions | None = None,
        on_round: Callable[[RoundOutcome], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if max_tables < 1 or poll_interval_s <= 0:
            raise InvalidRequestError(
                f"expected max_tables >= 1 and a positive poll interval, found {max_tables}, {poll_interval_s}"
            )
        self._connection = connection
        self._storage = storage
        self._executor_factory = executor_factory
        self._max_tables = max_tables
        self._poll_interval_s = poll_interval_s
        self._options = options or TieringOptions()
        self._on_round = on_round
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # whose turn it is to ask for work
        self._ending = threading.Lock()  # one stop at a time
        self._tables: dict[int, TableHistory] = {}
        self._error: str | None = None
        self._restarts = 0
        self._stopping = threading.Event()
        self._session: TieringSession | None = None
        self._threads: list[threading.Thread] = []
        self._executors: dict[threading.Thread, TieringExecutor] = {}

    def start(self) -> None:
        """Start, if it does not run already.

        Raises:
            ServerUnavailableError: No server answers.
        """
        with self._ending, self._lock, Held() as held:
            if self._threads:
                return
            session = TieringSession(self._connection)
            session.__enter__()
            try:
                held.deliver()
            except BaseException:
                session.close()
                raise
            self._stopping, self._turn = threading.Event(), threading.Lock()
            self._session, self._error = session, None
            self._threads = [
                threading.Thread(
                    target=self._work,
                    args=(session, self._stopping, self._turn),
                    name=f"fluss-tiering-{index}",
                    daemon=True,
                )
                for index in range(self._max_tables)
            ]
            for thread in self._threads:
                thread.start()

    def stop(self, timeout_s: float = DRAIN_TIMEOUT_S) -> None:
        """Stop: no new rounds; those under way may end by themselves, then they are cancelled, and that is reported to the coordinator.

        When this returns no round goes on: nothing of a cancelled one is in the lake, and what its tasks wrote are orphans.
        One that does not even end when it is cancelled, because lake or server do not answer, is left behind after a minute,
        without its hold on the table: it cannot commit.

        Args:
            timeout_s: How long rounds under way may go on.

        Raises:
            KeyboardInterrupt: The main thread was interrupted. Rounds under way are cancelled, and not waited for.
        """
        with self._ending:
            with self._lock:
                threads, session = list(self._threads), self._session
                self._stopping.set()
            try:
                self._drain(threads, timeout_s)
            except BaseException:  # who interrupts the wait has the rounds cancelled, and waits no longer
                self._cancel()
                raise
            finally:
                with Held():
                    if session is not None:
                        session.close()
                    with self._lock:
                        self._threads, self._session = [], None

    def _drain(self, threads: list[threading.Thread], timeout_s: float) -> None:
        """Wait until threads have ended; after so long their rounds are cancelled."""
        _join(threads, timeout_s)
        deadline_s = time.monotonic() + _CANCEL_TIMEOUT_S
        while (alive := [each for each in threads if each.is_alive()]) and time.monotonic() < deadline_s:
            self._cancel()
            _join(alive, _CANCEL_INTERVAL_S)
        if alive:
            log.warning("tiering service: %d rounds did not end when they were cancelled; left behind", len(alive))

    def _cancel(self) -> None:
        with self._lock:
            executors = list(self._executors.values())
        for executor in executors:
            executor.cancel()

    @property
    def is_running(self) -> bool:
        """Return whether it was started and not stopped."""
        with self._lock:
            return bool(self._threads)

    def status(self, *, lag: bool = True) -> ServiceStatus:
        """Return what goes on and what was done.

        Args:
            lag: Whether to ask the cluster for the state of every table and how far the lake lags, a few milliseconds a
                table; without, or while no server answers, only what the service itself knows is returned.
        """
        with self._lock:
            session, running = self._session, bool(self._threads)
        states = self._states() if lag and session is not None and session.session_id is not None else None
        with self._lock:
            if states is not None:
                self._tables = {key: each for key, each in self._tables.items() if key in states}
            known = {key: each.status for key, each in self._tables.items()}
            error, restarts = self._error, self._restarts
        if session is not None:
            # Threads that wait for a session have no error of their own.
            error = error or session.trouble
        now_ms = self._clock.now_ms()
        if states is not None:
            for table_id, state in states.items():
                path = TablePath(state.table_path.database_name, state.table_path.table_name)
                status = known.get(table_id) or TableStatus(path)
                known[table_id] = replace(status, state=state.state, lag=self._lag(status, now_ms))
        tables = tuple(sorted(known.values(), key=lambda each: each.table))
        return ServiceStatus(running, self._max_tables, tables, error, now_ms, restarts)

    def __enter__(self) -> TieringService:
        try:
            self.start()
        except KeyboardInterrupt:
            self.stop(0.0)
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        try:
            return repr(self.status(lag=False))
        except Exception as error:  # what is shown must not fail
            return f"<tiering service: {short(error, 200)}>"

    def _repr_html_(self) -> str:
        try:
            return self.status()._repr_html_()
        except Exception as error:  # what is shown must not fail
            return card("TieringService", "", notes=[str(error) or type(error).__name__])

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def _states(self) -> dict[int, pb.PbTieringState] | None:
        try:
            described = self._connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
        except FlussError as error:
            log.debug("tiering service: states of the tables: %s", error)
            return None
        return {state.table_id: state for state in described.tiering_states}

    def _lag(self, status: TableStatus, now_ms: int) -> TableLag:
        try:
            return table_lag(self._connection, status.table, now_ms, status.complete_ms)
        except FlussError as error:
            # A table left out would look as if it were up to date.
            return TableLag(0, 0, None, None, is_complete=False, error=str(error))

    # -- one thread ----------------------------------------------------------------------------------------------------

    def _work(self, session: TieringSession, stopping: threading.Event, turn: threading.Lock) -> None:
        thread, failures = threading.current_thread(), 0
        try:
            while not stopping.is_set():
                try:
                    executor = self._living_executor(thread)
                    found = self._next(session, executor, stopping, turn)
                    self._error = None
                except Exception as error:
                    failures += 1
                    self._error = (
                        str(error) if isinstance(error, UnavailableError) else f"{type(error).__name__}: {error}"
                    )
                    log.warning("tiering service: %s: %s", type(error).__name__, error)
                    stopping.wait(min(BACKOFF_MAX_S, self._poll_interval_s * 2 ** min(failures, 10)))
                    continue
                failures = 0
                if found is not None:
                    self._run(executor, *found)
        finally:
            with self._lock:
                self._executors.pop(thread, None)

    def _living_executor(self, thread: threading.Thread) -> TieringExecutor:
        """Return the thread's executor; one that has died is replaced."""
        with self._lock:
            executor = self._executors.get(thread)
        if executor is not None and executor.is_alive:
            return executor
        with self._lock:
            self._executors.pop(thread, None)
        replaced, executor = executor is not None, self._executor_factory()
        with self._lock:
            self._restarts += replaced
            self._executors[thread] = executor
        return executor

    def _next(
        self, session: TieringSession, executor: TieringExecutor, stopping: threading.Event, turn: threading.Lock
    ) -> tuple[TieringSourceEnumerator, TieringAssignment] | None:
        """Wait for a due table. None: the service ends, or the executor died: a table must not wait for another."""
        with turn:
            while not stopping.is_set() and executor.is_alive:
                # Without a session the server is away; it attaches again by itself.
                if (session_id := session.session_id) is not None:
                    enumerator = TieringSourceEnumerator(self._connection, session_id, self._options.renew_interval_s)
                    if (assignment := enumerator.request(None)) is not None:
                        return enumerator, assignment
                stopping.wait(self._poll_interval_s)
        return None

    def _run(
        self, executor: TieringExecutor, enumerator: TieringSourceEnumerator, assignment: TieringAssignment
    ) -> None:
        """Run a round; a failed one is noted."""
        with self._lock:
            history = self._tables.setdefault(assignment.table_id, TableHistory(assignment.path))
            history.begin()
        try:
            report = TieringRound(
                self._connection, self._storage, executor, enumerator, assignment,
                meter=RoundMeter(lambda state: self._advance(history, state)), options=self._options,
            ).run()  # fmt: skip
        except Exception as error:
            log.warning("tiering service: %s: %s: %s", assignment, type(error).__name__, error)
            with self._lock:
                history.fail(error, self._clock.now_ms())
            self._notify(RoundOutcome(assignment.path, error=error))
        else:
            with self._lock:
                history.succeed(report, self._clock.now_ms())
            self._notify(RoundOutcome(assignment.path, report))

    def _advance(self, history: TableHistory, state: RoundState) -> None:
        with self._lock:
            history.advance(state)

    def _notify(self, outcome: RoundOutcome) -> None:
        if self._on_round is None:
            return
        try:
            self._on_round(outcome)
        except Exception:
            log.warning("tiering service: a listener of rounds failed", exc_info=True)


def _join(threads: list[threading.Thread], timeout_s: float) -> None:
    """Wait for threads, so long for all together."""
    deadline_s = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
