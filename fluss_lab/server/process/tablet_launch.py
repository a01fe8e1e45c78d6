"""The tablet servers that belong to a coordinator's process: beside it, or with ports of their own, in this process.

`Supervisor` is the third way: each in a process of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from fluss_lab.clock import Clock
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.access.tls import Identity, reachable
from fluss_lab.rpc.serving.grpc_server import Server
from fluss_lab.server.coordinator.coordinator_service import CoordinatorService
from fluss_lab.server.folder.folder_lock import FolderLock
from fluss_lab.server.process import discovery
from fluss_lab.server.process.discovery import ServerEntry
from fluss_lab.server.process.listener import serve_tablet
from fluss_lab.server.process.tablet_node import LOCK_WAIT_S, CoordinatorAddress, TabletNode, tablet_folder
from fluss_lab.server.tablet.tablet_service import TabletService

#: The one beside the coordinator.
RESIDENT_ID: Final = 0


@dataclass(frozen=True, slots=True)
class TabletLaunch:
    """The arguments with which tablet servers are started.

    Attributes:
        folder: The lab's.
        options: Cluster options, checked.
        clock: The clock of servers in this process.
        secret: The token that every call must have.
        identity: The servers' certificate; None: they serve without TLS.
        server: The coordinator's; it listens already, and answers when all servers are started.
        coordinator: The coordinator.
        ports: The ports of the last run, by server id.
        changed: Called when `entries` changed.
    """

    folder: Path
    options: Mapping[str, str]
    clock: Clock
    secret: str = field(repr=False)
    identity: Identity | None
    server: Server
    coordinator: CoordinatorService
    ports: Mapping[int, int]
    changed: Callable[[], None] = lambda: None

    @property
    def place(self) -> CoordinatorAddress:
        """Return the coordinator's address on this machine."""
        return CoordinatorAddress(reachable(self.server.host), self.server.port, self.secret, self.identity)


class Tablets(Protocol):
    """The tablet servers of a coordinator."""

    def prepare(self) -> None:
        """Prepare before the coordinator answers calls."""

    def start(self) -> None:
        """Return when the servers are ready, or have failed for the first time; the coordinator answers already.

        Raises:
            FlussError: None could be started; the message has the reason.
        """

    def entries(self) -> list[ServerEntry]:
        """Return the processes beside the coordinator's, for the discovery file."""

    def interrupt(self) -> None:
        """Interrupt long waits: a stop follows."""

    def stop(self, grace_s: float) -> None:
        """Stop all gracefully, each with its recovery points; the coordinator still answers. May be called twice."""


Launcher: TypeAlias = Callable[[TabletLaunch], Tablets]


class ResidentTablet:
    """The only tablet server, in the coordinator's process and behind its port."""

    def __init__(self, launch: TabletLaunch) -> None:
        self._launch = launch
        self._lock = FolderLock(tablet_folder(launch.folder, RESIDENT_ID))
        self.tablet: TabletService | None = None

    def prepare(self) -> None:
        """Open the buckets: the tablet server has them before any call can reach it."""
        launch = self._launch
        # One of a cluster of several that was killed just now may not have ended yet.
        self._lock.take(LOCK_WAIT_S, lambda: True, "it ends soon; if it hangs, end that process")
        self.tablet = tablet = TabletService(
            self._lock.folder, options=launch.options, clock=launch.clock, coordinator=lambda: launch.coordinator
        )
        host, port = launch.server.host, launch.server.port
        request = pb.RegisterTabletServerRequest(server_id=RESIDENT_ID, host=host, port=port)
        registered = launch.coordinator.register_tablet_server(request)
        tablet.expect_remote(registered.remote_owner or None)
        tablet.set_lake_offsets(list(registered.lake_offsets))
        tablet.open_buckets(list(registered.buckets), registered.coordinator_epoch)
        tablet.start()
        serve_tablet(launch.server, tablet, launch.options)

    def start(self) -> None:
        """It was ready before the coordinator."""

    def entries(self) -> list[ServerEntry]:
        """Return nothing: the coordinator's process is all there is."""
        return []

    def interrupt(self) -> None:
        """Interrupt long waits."""
        if self.tablet is not None:
            self.tablet.interrupt()

    def stop(self, grace_s: float) -> None:
        """End the calls on both behind the port, then the tablet server."""
        self._launch.server.stop(grace_s)
        if self.tablet is not None:
            self.tablet.close()
        self._lock.release()


class LocalTablets:
    """Several tablet servers in the coordinator's process, each with its own port: for tests."""

    def __init__(self, launch: TabletLaunch) -> None:
        self._launch = launch
        self.nodes: dict[int, TabletNode] = {}
        self._ports = dict(launch.ports)

    def prepare(self) -> None:
        """Do nothing."""

    def start(self) -> None:
        """Start all."""
        for server_id in range(self._launch.coordinator.tablet_servers):
            self.start_one(server_id)

    def start_one(self, server_id: int) -> None:
        """Start one server, on the port of its last run; it must not run."""
        assert server_id not in self.nodes, f"tablet server {server_id} runs"
        launch = self._launch
        node = TabletNode(
            tablet_folder(launch.folder, server_id), server_id, lambda: launch.place, options=launch.options,
            clock=launch.clock, secret=launch.secret, identity=launch.identity, port=self._ports.get(server_id, 0),
        )  # fmt: skip
        node.start()
        self.nodes[server_id] = node
        self._ports[server_id] = node.address[1]
        launch.changed()

    def stop_one(self, server_id: int, grace_s: float) -> None:
        """Stop one server gracefully; its buckets have no leader until it is started again."""
        node = self.nodes.pop(server_id)
        node.stop(grace_s)
        self._launch.coordinator.tablet_server_lost(server_id)
        self._launch.changed()

    def entries(self) -> list[ServerEntry]:
        """Return an entry for each; its process is this one."""
        pid, folder = os.getpid(), self._launch.folder
        return [
            discovery.ServerEntry(
                pid,
                *node.address,
                str(folder / discovery.TOKEN_FILE),
                ("tablet",),
                server_id,
                discovery.process_start_ticks(pid),
            )
            for server_id, node in sorted(self.nodes.items())
        ]

    def interrupt(self) -> None:
        """Interrupt long waits."""
        for node in list(self.nodes.values()):
            node.tablet.interrupt()

    def stop(self, grace_s: float) -> None:
        """Stop all."""
        for node in list(self.nodes.values()):
            node.stop(grace_s)
        self.nodes.clear()
