"""The tablet servers that belong to a cluster: how many, which buckets each gets, and how each is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from fluss_lab.errors import LabError
from fluss_lab.model.config.options import TABLET_SERVERS
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.coordinator.metadata.table_catalog import BucketGroup


def server_count(asked: int | None, last: int | None, groups: Iterable[BucketGroup]) -> int:
    """Return how many tablet servers a cluster has.

    Args:
        asked: The configured number; None: not configured.
        last: The number at the last run; None: this is the first.
        groups: All buckets.

    Raises:
        LabError: Buckets are assigned to more servers; the message has the number needed.
    """
    held = {leader for group in groups for leader in group.leaders}
    needed = max(held, default=-1) + 1
    if asked is None:
        return max(last or 1, needed)
    if asked < needed:
        raise LabError(
            f"{TABLET_SERVERS.key}={asked}: buckets are assigned to tablet servers {', '.join(map(str, sorted(held)))}, and "
            f"stay there: start with {needed} or more, or leave the option out for as many as there were"
        )
    return asked


def leaders_for(servers: Sequence[int], buckets: int, load: Mapping[int, int]) -> tuple[int, ...]:
    """Return a server for each bucket of a table or partition: spread evenly, the least loaded servers first.

    Args:
        servers: Ids of the servers; at least one.
        buckets: Number of buckets.
        load: Number of buckets that each server leads already, of all tables.
    """
    # The least loaded comes first, so that it gets what is left over after even rounds.
    ordered = sorted(servers, key=lambda server: (load.get(server, 0), server))
    return tuple(ordered[bucket % len(ordered)] for bucket in range(buckets))


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
