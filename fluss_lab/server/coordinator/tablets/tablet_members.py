"""The tablet servers of a cluster as the process that starts them sees them: which run, and how often each was started again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from fluss_lab.rpc import fluss_api_pb2 as pb

RUNNING: Final = "running"
STARTING: Final = "starting"
AWAY: Final = "away"


class TabletMembers(Protocol):
    """The tablet servers of a cluster, as seen by the process that starts them."""

    def admits(self, server_id: int, process_id: int | None) -> bool:
        """Return whether a process is the one that was started as a server."""

    def heard(self, server_id: int) -> None:
        """Note a heartbeat of the present process of a server."""

    def status(self) -> Sequence[pb.PbTabletServerStatus]:
        """Return the status of each server, by id."""


def registered_status(count: int, nodes: Iterable[pb.PbServerNode]) -> list[pb.PbTabletServerStatus]:
    """Return the status of servers where only their registrations are known."""
    there = {node.node_id: node for node in nodes}
    found = []
    for server_id in sorted({*range(count), *there}):
        status = pb.PbTabletServerStatus(server_id=server_id, state=RUNNING if server_id in there else AWAY, restarts=0)
        if (node := there.get(server_id)) is not None:
            status.host, status.port = node.host, node.port
        found.append(status)
    return found
