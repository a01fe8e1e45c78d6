"""A tierer at the coordinator: its session, the table that it holds during a round, and how the round ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from fluss_lab.client import Connection
from fluss_lab.errors import (
    ConnectionClosedError,
    FencedTieringEpochError,
    FlussError,
    LakeNotConfiguredError,
    ServerUnavailableError,
    TableNotFoundError,
    UnavailableError,
    error_code,
    error_from_code,
)
from fluss_lab.interrupts import Flag, Held, join_threads
from fluss_lab.model import TableInfo, TablePath
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.tiering.round.round_report import TieringReport
from fluss_lab.tiering.round.table_lag import TableLag

log = logging.getLogger(__name__)

CLIENT_NAME: Final = "tiering"
#: Longest wait for the first session: the client retries a server that is away for 30 s by default.
ATTACH_TIMEOUT_S: Final = 60.0
#: Wait before attaching again after the stream broke (a restarting server needs about a second).
REATTACH_DELAY_S: Final = 0.5
#: How long `close` waits for the stream to end; it is cancelled at once, so this is never used up.
CLOSE_TIMEOUT_S: Final = 5.0

#: Longest error text that is reported: it is shown in a status table, and messages to the server are limited.
MESSAGE_LENGTH_MAX: Final = 2000
#: A heartbeat under way takes a millisecond; one that waits for a server that is away is left to itself.
JOIN_TIMEOUT_S: Final = 1.0


class TieringSession:
    """Holds one attached session, and attaches again when the server comes back. Use it as a context manager."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session_id: int | None = None
        self._error: FlussError | None = None
        self._trouble: str | None = None
        self._answered = Flag()
        self._closing = Flag()
        self._stream_closed = Flag()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="fluss-tiering-session", daemon=True)

    @property
    def session_id(self) -> int | None:
        """Return the present session's id; None while no server answers."""
        return self._session_id

    @property
    def trouble(self) -> str | None:
        """Return why there is no session at the moment; None while there is one, and before the first."""
        return None if self._session_id is not None else self._trouble

    def __enter__(self) -> Self:
        """Attach.

        Raises:
            ServerUnavailableError: No server answers.
        """
        with Held():
            self._thread.start()
        try:
            answered = self._answered.wait(ATTACH_TIMEOUT_S)
        except BaseException:
            self.close()
            raise
        if not answered:
            self.close()
            raise ServerUnavailableError(f"attaching to the coordinator: no answer in {ATTACH_TIMEOUT_S:.0f} s")
        if self._error is not None:
            self.close()
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session: tables still held by it are free."""
        with Held():
            self._closing.set()
            with self._lock:
                self._stream_closed.set()
            join_threads([self._thread], CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        attempts = self._connection.attempts("attach")
        while not self._closing.is_set():
            with self._lock:
                if self._closing.is_set():
                    return
                self._stream_closed = closed = Flag()
            try:
                self._hold(closed)
            except FlussError as error:
                log.debug("tiering session: %s", error)
                self._trouble = str(error)
                if not self._answered.is_set() and (attempts.left_s <= 0 or not error.retriable):
                    self._error = error
                    self._answered.set()
                    return
                if isinstance(error, ConnectionClosedError):
                    return
            finally:
                closed.set()
                self._session_id = None
            self._closing.wait(REATTACH_DELAY_S)

    def _hold(self, closed: threading.Event) -> None:
        """Hold one stream until it breaks or is closed."""
        coordinator = self._connection.coordinator()
        # A stream is not repeated: first make sure that the address is that of a server which answers.
        coordinator.describe_cluster(pb.DescribeClusterRequest())
        for response in coordinator.attach(pb.AttachRequest(client_name=CLIENT_NAME), closed):
            self._session_id = int(response.session_id)
            self._trouble = "the session with the server ended; another one is asked for"
            self._connection.sessions.add(self._session_id)
            self._answered.set()


@dataclass(frozen=True, slots=True)
class TieringAssignment:
    """A table that the coordinator handed to this tierer.

    Attributes:
        table_id: Of the table.
        path: Where it is found.
        tiering_epoch: The fencing number of this round.
        coordinator_epoch: The coordinator's start that handed it out.
        takeover: An earlier epoch did not end by itself: it must be fenced before planning.
    """

    table_id: int
    path: TablePath
    tiering_epoch: int
    coordinator_epoch: int
    takeover: bool

    def __str__(self) -> str:
        return f"table {self.path} (id {self.table_id}, tiering epoch {self.tiering_epoch})"


@dataclass(frozen=True, slots=True)
class FinishedTieringEvent:
    """The round ended well: what it wrote is in the lake and known to Fluss.

    Attributes:
        assignment: Whose round.
        rows: Records tiered.
        size_bytes: Bytes of the files written.
        is_forced: Whether a limit ended the round before the lake was up to date: the table is due again at once.
        facts: What the coordinator keeps of the round; None: the table was held for its upkeep.
        is_unfinished: A commit of the upkeep after it may still arrive: whoever gets the table next fences it.
    """

    assignment: TieringAssignment
    rows: int
    size_bytes: int
    is_forced: bool = False
    facts: pb.PbRoundFacts | None = None
    is_unfinished: bool = False


@dataclass(frozen=True, slots=True)
class FailedTieringEvent:
    """The round failed.

    Attributes:
        assignment: Whose round.
        message: What went wrong, in one text.
        error_code: Its wire code, of a `FlussError`.
        facts: What the coordinator keeps of the round; None: the table was held for its upkeep, or a repair.
    """

    assignment: TieringAssignment
    message: str
    error_code: int | None = None
    facts: pb.PbRoundFacts | None = None

    @staticmethod
    def of(
        assignment: TieringAssignment, error: BaseException, facts: pb.PbRoundFacts | None = None
    ) -> FailedTieringEvent:
        """Return the event of a round that an error ended."""
        code = error_code(error) if isinstance(error, FlussError) else None
        return FailedTieringEvent(assignment, f"{type(error).__name__}: {error}", code, facts)


def round_facts(
    report: TieringReport | None, seconds: Mapping[str, float], before: TableLag | None, after: TableLag | None
) -> pb.PbRoundFacts:
    """Return what the coordinator keeps of a round in the table's history.

    Args:
        report: What it did; None: it failed.
        seconds: By stage, and in all; ``finish`` is the report to the coordinator itself, and not kept.
        before: How far the lake lagged when it was planned; None: it was not, or that is not known.
        after: How far it lagged at its end; None: that is not known.
    """
    facts = pb.PbRoundFacts(
        plan_ms=_ms(seconds, "plan"),
        write_ms=_ms(seconds, "write"),
        commit_ms=_ms(seconds, "commit"),
        maintain_ms=_ms(seconds, "maintain"),
        total_ms=_ms(seconds, "total"),
    )
    if report is not None:
        facts.row_count, facts.event_count, facts.files = report.rows, report.events, report.files
        facts.size_in_bytes, facts.splits, facts.is_limited = report.bytes, report.splits, report.is_limited
        if report.snapshot_id is not None:
            facts.snapshot_id = report.snapshot_id
    if before is not None and before.is_complete:
        facts.records_before, facts.lag_ms_before = before.records, before.ms
    if after is not None and after.is_complete:
        facts.records_after, facts.lag_ms_after = after.records, after.ms
    return facts


def _ms(seconds: Mapping[str, float], stage: str) -> int:
    return round(seconds.get(stage, 0.0) * 1000)


class TieringSourceEnumerator:
    """Speaks for one tierer with the coordinator.

    Args:
        connection: To the cluster.
        session_id: The tierer's attached session, by whose end the coordinator frees its tables; None: only silence
            of the heartbeats does.
        renew_interval_s: Time between heartbeats while a table is held.
    """

    def __init__(self, connection: Connection, session_id: int | None, renew_interval_s: float) -> None:
        self._connection = connection
        self._session_id = session_id
        self._renew_interval_s = renew_interval_s

    def request(self, table_id: int | None) -> TieringAssignment | None:
        """Ask for a table to tier.

        Args:
            table_id: This table and no other, whether it is due or not; None: whichever is due.

        Returns:
            The table, held from now on; None when none is due.

        Raises:
            TieringInProgressError: A living tierer works on the table asked for.
            TableNotFoundError, LakeNotConfiguredError: There is no such table, or it is not tiered.
        """
        request = pb.LakeTieringHeartbeatRequest(request_table=True)
        if table_id is not None:
            request.request_table_id = table_id
        response = self._send(request)
        if response.HasField("request_error"):
            raise error_from_code(response.request_error.error_code, response.request_error.error_message)
        if not response.HasField("tiering_table"):
            return None
        table = response.tiering_table
        path = TablePath(table.table_path.database_name, table.table_path.table_name)
        return TieringAssignment(
            int(table.table_id), path, int(table.tiering_epoch), int(response.coordinator_epoch), bool(table.takeover)
        )

    def renew(self, assignment: TieringAssignment) -> None:
        """Send the coordinator a heartbeat: the round goes on.

        Raises:
            FencedTieringEpochError: The table is held by another tierer now, or was dropped.
        """
        response = self._send(pb.LakeTieringHeartbeatRequest(tiering_tables=[_table(assignment)]))
        if (error := _error_of(response.tiering_table_resp, assignment)) is not None:
            raise FencedTieringEpochError(f"{assignment}: not held by this tierer any more: {error}")

    @contextmanager
    def hold(
        self,
        assignment: TieringAssignment,
        on_lost: Callable[[FlussError], object],
        facts: Callable[[], pb.PbRoundFacts] | None = None,
    ) -> Iterator[None]:
        """Renew in the background while the block runs; one that fails is reported to the coordinator as a failed round.

        An end that is good is reported after the block: a heartbeat behind that report would find the table held no more.

        Args:
            assignment: The table held.
            on_lost: Called, in the background, when the table turns out not to be held any more, with the reason.
            facts: Returns what the coordinator keeps of a round that fails; None: what the table is held for is no round.
        """
        done = Flag()

        def run() -> None:
            while not done.wait(self._renew_interval_s):
                try:
                    self.renew(assignment)
                except UnavailableError as error:
                    log.debug("%s: heartbeat: %s", assignment, error)  # the server may come back in time
                except FlussError as error:
                    # Behind the block's end it is of no use, and what would be cancelled is another table's.
                    if not done.is_set():
                        is_closed = isinstance(error, ConnectionClosedError)
                        log.log(logging.INFO if is_closed else logging.WARNING, "%s", error)
                        on_lost(error)
                    return

        thread = threading.Thread(target=run, name="fluss-tiering-heartbeat", daemon=True)
        with Held():
            thread.start()
        try:
            try:
                yield
            finally:
                done.set()
                join_threads([thread], JOIN_TIMEOUT_S)
        except BaseException as error:
            self.handle(FailedTieringEvent.of(assignment, error, None if facts is None else facts()))
            raise

    def handle(self, event: FinishedTieringEvent | FailedTieringEvent) -> None:
        """Report to the coordinator how a round ended. Never raises: a report that is lost is found out by its heartbeats' end."""
        try:
            table = _table(event.assignment)
            if event.facts is not None:
                table.round.CopyFrom(event.facts)
            else:
                table.is_upkeep = True
            if isinstance(event, FinishedTieringEvent):
                table.lake_tiering_stats.file_size = event.size_bytes
                table.lake_tiering_stats.record_count = event.rows
                table.is_unfinished = event.is_unfinished
                forced = [event.assignment.table_id] if event.is_forced else []
                response = self._send(
                    pb.LakeTieringHeartbeatRequest(finished_tables=[table], force_finished_tables=forced)
                )
                error = _error_of(response.finished_table_resp, event.assignment)
            else:
                table.error_message = event.message[:MESSAGE_LENGTH_MAX]
                if event.error_code is not None:
                    table.error_code = event.error_code
                response = self._send(pb.LakeTieringHeartbeatRequest(failed_tables=[table]))
                error = _error_of(response.failed_table_resp, event.assignment)
        except FlussError as failure:
            error = failure
        if error is not None:
            log.info("%s: the coordinator did not take %s: %s", event.assignment, type(event).__name__, error)

    def _send(self, request: pb.LakeTieringHeartbeatRequest) -> pb.LakeTieringHeartbeatResponse:
        if self._session_id is not None:
            request.session_id = self._session_id
        return self._connection.coordinator().lake_tiering_heartbeat(request)


def assigned_table(connection: Connection, assignment: TieringAssignment) -> TableInfo:
    """Return the table of an assignment as it is now.

    Raises:
        TableNotFoundError: It was dropped since it was handed out, whatever has its name now.
        LakeNotConfiguredError: It is not tiered.
    """
    table = connection.table_info(assignment.path)
    if table.table_id != assignment.table_id:
        raise TableNotFoundError(f"{assignment}: dropped; its path names table id {table.table_id} now")
    if not table.descriptor.lake_enabled:
        raise LakeNotConfiguredError(f"table {table.path}: not lake-enabled; set table.datalake.enabled")
    return table


def _table(assignment: TieringAssignment) -> pb.PbHeartbeatReqForTable:
    return pb.PbHeartbeatReqForTable(
        table_id=assignment.table_id,
        coordinator_epoch=assignment.coordinator_epoch,
        tiering_epoch=assignment.tiering_epoch,
    )


def _error_of(responses: list[pb.PbHeartbeatRespForTable], assignment: TieringAssignment) -> FlussError | None:
    for response in responses:
        if response.table_id == assignment.table_id and response.HasField("error"):
            return error_from_code(response.error.error_code, response.error.error_message)
    return None
