"""Continuous tiering: whichever table is due by its freshness gets a round, a few tables at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from fluss_lab.client import Connection
from fluss_lab.display import html_table
from fluss_lab.errors import UnavailableError
from fluss_lab.lake import LakeStorage
from fluss_lab.model import TablePath
from fluss_lab.tiering.enumerator import TieringSourceEnumerator
from fluss_lab.tiering.events import TieringAssignment
from fluss_lab.tiering.executor import TieringExecutor
from fluss_lab.tiering.options import TieringOptions
from fluss_lab.tiering.report import TieringReport
from fluss_lab.tiering.round import TieringRound
from fluss_lab.tiering.session import TieringSession

log = logging.getLogger(__name__)

#: How often a worker without work asks: a question costs the coordinator well under a millisecond.
POLL_INTERVAL_S: Final = 1.0
#: A worker that fails again and again waits up to so long between its rounds.
BACKOFF_MAX_S: Final = 30.0
#: How often `stop` cancels what goes on after its grace: a round may be about to start its tasks.
_CANCEL_INTERVAL_S: Final = 0.2
_COLUMNS: Final = ("table", "now", "rounds", "rows", "snapshot", "seconds", "failures", "last error")


@dataclass(frozen=True, slots=True)
class TableStatus:
    """What the service did for one table since it started.

    Attributes:
        table: Its path.
        tiering: Whether a round is under way.
        rounds: Rounds that ended well, those with nothing to tier included.
        rows: Records tiered by them.
        failures: Rounds that failed since the last that ended well.
        last_report: Of the last round that ended well.
        last_error: Of the last round, if it failed.
    """

    table: TablePath
    tiering: bool = False
    rounds: int = 0
    rows: int = 0
    failures: int = 0
    last_report: TieringReport | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The state of a service at one moment.

    Attributes:
        running: Whether it was started and not stopped.
        max_tables: Tables tiered at the same time.
        tables: By path, those that had a round.
        error: Why the service cannot work at all at the moment (no server answers, for instance).
    """

    running: bool
    max_tables: int
    tables: tuple[TableStatus, ...]
    error: str | None = None

    def _rows(self) -> list[list[object]]:
        return [
            [
                str(each.table),
                "tiering" if each.tiering else "failed" if each.last_error else "tiered",
                each.rounds,
                each.rows,
                None if each.last_report is None else str(each.last_report.snapshot_id),
                None if each.last_report is None else f"{each.last_report.seconds.get('total', 0.0):.2f}",
                each.failures,
                each.last_error,
            ]
            for each in self.tables
        ]

    def __repr__(self) -> str:
        busy = sum(each.tiering for each in self.tables)
        failed = sum(each.last_error is not None for each in self.tables)
        state = "running" if self.running else "stopped"
        trouble = f", {self.error}" if self.error else ""
        return f"<tiering service {state}: {len(self.tables)} tables, {busy} tiering, {failed} failed{trouble}>"

    def _repr_html_(self) -> str:
        return html_table(repr(self).strip("<>"), _COLUMNS, self._rows())


class TieringService:
    """Tiers every lake-enabled table of a cluster by its freshness, until it is stopped.

    Each of `max_tables` threads takes a due table, runs a round of it, and takes the next. A round that fails is noted
    and does not keep the other tables from their turn. While the server is away, the threads wait for it.

    Args:
        connection: To the cluster.
        storage: The lake.
        executor_factory: Makes the executor of one thread; called in it.
        max_tables: Tables tiered at the same time; at least 1.
        poll_interval_s: How often an idle thread asks for work.
        options: Limits of the rounds.
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
    ) -> None:
        if max_tables < 1 or poll_interval_s <= 0:
            raise ValueError(
                f"expected max_tables >= 1 and a positive poll interval, found {max_tables}, {poll_interval_s}"
            )
        self._connection = connection
        self._storage = storage
        self._executor_factory = executor_factory
        self._max_tables = max_tables
        self._poll_interval_s = poll_interval_s
        self._options = options or TieringOptions()
        self._lock = threading.Lock()
        self._tables: dict[int, TableStatus] = {}
        self._error: str | None = None
        self._stopping = threading.Event()
        self._session: TieringSession | None = None
        self._threads: list[threading.Thread] = []
        self._executors: list[TieringExecutor] = []

    def start(self) -> None:
        """Start, if it does not run already.

        Raises:
            ServerUnavailableError: No server answers.
        """
        with self._lock:
            if self._threads:
                return
            self._stopping = threading.Event()
            self._session = session = TieringSession(self._connection)
            session.__enter__()
            self._threads = [
                threading.Thread(
                    target=self._work, args=(session, self._stopping), name=f"fluss-tiering-{index}", daemon=True
                )
                for index in range(self._max_tables)
            ]
            for thread in self._threads:
                thread.start()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop: no new rounds; those under way may end by themselves, then they are cancelled.

        Args:
            timeout_s: How long they may.
        """
        with self._lock:
            threads, self._threads = self._threads, []
            session, self._session = self._session, None
            self._stopping.set()
        deadline_s = time.monotonic() + timeout_s
        for thread in threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        while any(thread.is_alive() for thread in threads):
            with self._lock:
                executors = list(self._executors)
            for executor in executors:
                executor.cancel()
            for thread in threads:
                thread.join(_CANCEL_INTERVAL_S)
        if session is not None:
            session.close()

    def status(self) -> ServiceStatus:
        """Return what goes on and what was done."""
        with self._lock:
            tables = sorted(self._tables.values(), key=lambda each: each.table)
            return ServiceStatus(bool(self._threads), self._max_tables, tuple(tables), self._error)

    def __enter__(self) -> TieringService:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return repr(self.status())

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()

    # -- one thread ----------------------------------------------------------------------------------------------------

    def _work(self, session: TieringSession, stopping: threading.Event) -> None:
        executor: TieringExecutor | None = None
        failures = 0
        try:
            while not stopping.is_set():
                try:
                    if executor is None:
                        executor = self._executor_factory()
                        with self._lock:
                            self._executors.append(executor)
                    worked = self._next_round(session, executor)
                except Exception as error:
                    failures += 1
                    self._note_trouble(error)
                    stopping.wait(min(BACKOFF_MAX_S, self._poll_interval_s * 2 ** min(failures, 10)))
                else:
                    failures = 0
                    if not worked:
                        stopping.wait(self._poll_interval_s)
        finally:
            with self._lock:
                if executor is not None:
                    self._executors.remove(executor)

    def _next_round(self, session: TieringSession, executor: TieringExecutor) -> bool:
        """Run a round of a due table; return whether there was one. A failed round is noted, then raised."""
        if session.session_id is None:
            return False  # the server is away; the session attaches again by itself
        enumerator = TieringSourceEnumerator(self._connection, session.session_id, self._options.renew_interval_s)
        assignment = enumerator.request(None)
        self._error = None
        if assignment is None:
            return False
        self._update(assignment, tiering=True)
        try:
            report = TieringRound(
                self._connection, self._storage, executor, enumerator, assignment, options=self._options
            ).run()
        except BaseException as error:
            self._note_failure(assignment, error)
            raise
        self._note_report(assignment, report)
        return True

    def _update(self, assignment: TieringAssignment, **changes: Any) -> None:
        with self._lock:
            status = self._tables.get(assignment.table_id) or TableStatus(assignment.path)
            self._tables[assignment.table_id] = replace(status, **changes)

    def _note_report(self, assignment: TieringAssignment, report: TieringReport) -> None:
        with self._lock:
            status = self._tables[assignment.table_id]
            self._tables[assignment.table_id] = replace(
                status,
                tiering=False,
                rounds=status.rounds + 1,
                rows=status.rows + report.rows,
                failures=0,
                last_report=report,
                last_error=None,
            )

    def _note_failure(self, assignment: TieringAssignment, error: BaseException) -> None:
        with self._lock:
            status = self._tables[assignment.table_id]
            self._tables[assignment.table_id] = replace(
                status, tiering=False, failures=status.failures + 1, last_error=f"{type(error).__name__}: {error}"
            )

    def _note_trouble(self, error: Exception) -> None:
        self._error = str(error) if isinstance(error, UnavailableError) else None
        log.warning("tiering service: %s: %s", type(error).__name__, error)
