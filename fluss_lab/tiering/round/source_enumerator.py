"""The enumerator: asks the coordinator for a table, keeps it during the round, and reports how the round ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from fluss_lab.client import Connection
from fluss_lab.errors import FencedTieringEpochError, FlussError, UnavailableError, error_from_code
from fluss_lab.interrupts import Flag, Held, joined
from fluss_lab.model import TablePath
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.tiering.round.round_outcome import FailedTieringEvent, FinishedTieringEvent, TieringAssignment

log = logging.getLogger(__name__)

#: Longest error text that is reported: it is shown in a status table, and messages to the server are limited.
MESSAGE_LENGTH_MAX: Final = 2000
#: A heartbeat under way takes a millisecond; one that waits for a server that is away is left to itself.
JOIN_TIMEOUT_S: Final = 1.0


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
        """Tell the coordinator that the round goes on.

        Raises:
            FencedTieringEpochError: The table is held by somebody else now, or was dropped.
        """
        response = self._send(pb.LakeTieringHeartbeatRequest(tiering_tables=[_table(assignment)]))
        if (error := _error_of(response.tiering_table_resp, assignment)) is not None:
            raise FencedTieringEpochError(f"{assignment}: not held by this tierer any more: {error}")

    @contextmanager
    def holding(self, assignment: TieringAssignment, on_lost: Callable[[], None]) -> Iterator[None]:
        """Renew in the background while the block runs; one that fails is told to the coordinator as a failed round.

        An end that is good is told after the block: a heartbeat behind the last word would find the table held no more.

        Args:
            assignment: The table held.
            on_lost: Called, in the background, when the table turns out to be held by somebody else.
        """
        done = Flag()

        def run() -> None:
            while not done.wait(self._renew_interval_s):
                try:
                    self.renew(assignment)
                except UnavailableError as error:
                    log.debug("%s: heartbeat: %s", assignment, error)  # the server may come back in time
                except FlussError as error:
                    log.warning("%s", error)
                    on_lost()
                    return

        thread = threading.Thread(target=run, name="fluss-tiering-heartbeat", daemon=True)
        with Held():
            thread.start()
        try:
            try:
                yield
            finally:
                done.set()
                joined([thread], JOIN_TIMEOUT_S)
        except BaseException as error:
            self.handle(FailedTieringEvent.of(assignment, error))
            raise

    def handle(self, event: FinishedTieringEvent | FailedTieringEvent) -> None:
        """Tell the coordinator how a round ended. Never raises: what it cannot hear now, silence tells it later."""
        try:
            if isinstance(event, FinishedTieringEvent):
                table = _table(event.assignment)
                table.lake_tiering_stats.file_size = event.size_bytes
                table.lake_tiering_stats.record_count = event.rows
                forced = [event.assignment.table_id] if event.is_forced else []
                response = self._send(
                    pb.LakeTieringHeartbeatRequest(finished_tables=[table], force_finished_tables=forced)
                )
                error = _error_of(response.finished_table_resp, event.assignment)
            else:
                table = _table(event.assignment)
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
