"""The heartbeat of tierers: their reports on the tables they hold, and the grant of the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from fluss_lab.errors import FlussError
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import path_message
from fluss_lab.server.coordinator import coordinator_messages
from fluss_lab.server.coordinator.client_sessions import ClientSessions
from fluss_lab.server.coordinator.tiering.tiering_manager import TieringGrant, TieringManager


def answer_heartbeat(
    request: pb.LakeTieringHeartbeatRequest, tiering: TieringManager, sessions: ClientSessions, epoch: int
) -> pb.LakeTieringHeartbeatResponse:
    """Process a tierer's reports on its tables, in Fluss's order: failed, tiering, finished; then grant one if requested.

    Args:
        tiering: The states of all tables.
        sessions: The attached processes.
        epoch: The coordinator's.
    """
    response = pb.LakeTieringHeartbeatResponse(coordinator_epoch=epoch)
    session_id = request.session_id if request.HasField("session_id") else None
    if session_id is not None and not sessions.is_open(session_id):
        session_id = None  # its stream broke: only missing heartbeats show this tierer's end
    forced = frozenset(request.force_finished_tables)

    def fail(table: pb.PbHeartbeatReqForTable) -> None:
        code = table.error_code if table.HasField("error_code") else None
        tiering.fail(
            table.table_id,
            table.coordinator_epoch,
            table.tiering_epoch,
            table.error_message,
            code,
            _facts(table),
            is_upkeep=table.is_upkeep,
        )

    def renew(table: pb.PbHeartbeatReqForTable) -> None:
        tiering.renew(table.table_id, table.coordinator_epoch, table.tiering_epoch, session_id)

    def finish(table: pb.PbHeartbeatReqForTable) -> None:
        again = table.table_id in forced
        has_stats = table.HasField("lake_tiering_stats")
        tiering.finish(
            table.table_id,
            table.coordinator_epoch,
            table.tiering_epoch,
            again=again,
            size_bytes=table.lake_tiering_stats.file_size if has_stats else None,
            records=table.lake_tiering_stats.record_count if has_stats else None,
            facts=_facts(table),
            unfinished=table.is_unfinished,
            is_upkeep=table.is_upkeep,
        )

    response.failed_table_resp.extend(_each(request.failed_tables, fail))
    response.tiering_table_resp.extend(_each(request.tiering_tables, renew))
    response.finished_table_resp.extend(_each(request.finished_tables, finish))
    if request.request_table:
        _grant_table(request, tiering, sessions, session_id, response)
    return response


def _grant_table(
    request: pb.LakeTieringHeartbeatRequest,
    tiering: TieringManager,
    sessions: ClientSessions,
    session_id: int | None,
    response: pb.LakeTieringHeartbeatResponse,
) -> None:
    grant: TieringGrant | None
    try:
        if request.HasField("request_table_id"):
            grant = tiering.request(request.request_table_id, session_id)
        else:
            grant = tiering.request_due(session_id)
    except FlussError as error:
        response.request_error.CopyFrom(coordinator_messages.error_message(error))
        return
    if grant is None:
        return
    if session_id is not None and not sessions.is_open(session_id):
        tiering.session_ended(session_id)  # it ended while the table was granted
    table = response.tiering_table
    table.table_id, table.tiering_epoch, table.takeover = grant.table_id, grant.epoch, grant.takeover
    table.table_path.CopyFrom(path_message(grant.path))


def _facts(table: pb.PbHeartbeatReqForTable) -> pb.PbRoundFacts | None:
    return table.round if table.HasField("round") else None


def _each(
    tables: Iterable[pb.PbHeartbeatReqForTable], process: Callable[[pb.PbHeartbeatReqForTable], None]
) -> Iterator[pb.PbHeartbeatRespForTable]:
    """Yield a response per table; an error of one does not affect the others."""
    for table in tables:
        response = pb.PbHeartbeatRespForTable(table_id=table.table_id)
        try:
            process(table)
        except FlussError as error:
            response.error.CopyFrom(coordinator_messages.error_message(error))
        yield response
