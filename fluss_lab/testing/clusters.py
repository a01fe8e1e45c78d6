"""Clusters for tests: one inside this process, and a real server process that a test may kill."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.clock import Clock
from fluss_lab.closing import Closing
from fluss_lab.errors import ServerUnavailableError
from fluss_lab.lake.format_plugin import load_lake
from fluss_lab.model.config.options import DISK_RESERVE, TABLET_SERVERS
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.access.tls import reachable
from fluss_lab.server import cluster
from fluss_lab.server.process import discovery
from fluss_lab.server.process.discovery import ServerEntry
from fluss_lab.server.process.node_host import make_node
from fluss_lab.server.process.server_node import ServerNode
from fluss_lab.server.process.server_process import OPTIONS_FILE, START_TIMEOUT_S, wait_until_gone
from fluss_lab.server.process.tablet_launch import LocalTablets, ResidentTablet
from fluss_lab.server.tablet.tablet_service import TabletService
from fluss_lab.testing.mock_clock import wait_until

#: Of many clusters that are left for a look, each would else keep some MB of the disk.
RESERVE: Final = {DISK_RESERVE.key: "64kb"}


class _Cluster(Closing):
    """What clusters for tests share: a connection, and a block that starts and ends them."""

    folder: Path

    def __init__(self, client: Mapping[str, str] | None) -> None:
        self._client = dict(client or {})
        self._connection: Connection | None = None

    @property
    @abstractmethod
    def address(self) -> ServerAddress:
        """Return where the cluster listens now, with its token."""

    @abstractmethod
    def start(self) -> None:
        """Start the cluster; return when it answers."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the cluster gracefully; the folder stays."""

    @property
    def connection(self) -> Connection:
        """Return a connection, which finds the cluster again after a restart."""
        if self._connection is None:
            self._connection = Connection(lambda: self.address, self._client, folder=self.folder)
        return self._connection

    def close(self) -> None:
        """Close the connection and stop."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.stop()

    def __enter__(self) -> Self:
        self.start()
        return self


class ServerProcess(_Cluster):
    """A server on a folder, in a process of its own that stays until it is stopped or killed. Use it as a context manager.

    Args:
        folder: The lab's folder.
        options: Cluster options by name.
        tablet_servers: How many; with more than one, each is a process of its own, started again when it dies.
        env: Variables added to the process's environment, for instance ``FLUSS_LAB_FAILPOINTS``.
        client: Client options of `connection`.
    """

    def __init__(
        self,
        folder: Path,
        options: Mapping[str, str] | None = None,
        *,
        tablet_servers: int | None = None,
        env: Mapping[str, str] | None = None,
        client: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(client)
        self.folder = folder.absolute()
        self.options = dict(options or {})
        if tablet_servers is not None:
            self.options[TABLET_SERVERS.key] = str(tablet_servers)
        self.env = dict(env or {})

    def __repr__(self) -> str:
        return f"<ServerProcess {self.folder}>"

    @property
    def pid(self) -> int:
        """Return the process id of the server (of several: of the coordinator) that runs, or ran last."""
        found = cluster.read_discovery(self.folder)
        assert found is not None, "no server was started"
        return found.servers[0].pid

    @property
    def address(self) -> ServerAddress:
        """Return where the server listens now, with its token."""
        place = cluster.locate(self.folder)
        return ServerAddress.of(place.host, place.port, place.token, place.trust)

    def start(self) -> None:
        """Start the server; return when it answers.

        Raises:
            FlussError: Why it could not start.
        """
        (self.folder / OPTIONS_FILE).unlink(missing_ok=True)
        command = [sys.executable, "-m", "fluss_lab.cli", "server"]
        env = {**os.environ, **self.env}
        cluster.start_server(self.folder, command, self.options, ephemeral=False, env=env)

    def kill(self) -> None:
        """Kill the server as the machine would (SIGKILL), and return when it is gone.

        Of several it is the coordinator's process that is killed; the tablet servers' end by themselves then.
        """
        found = cluster.read_discovery(self.folder)
        assert found is not None, "no server was started"
        os.kill(found.servers[0].pid, signal.SIGKILL)
        wait_until_gone(found)

    def tablet_pid(self, server_id: int, timeout_s: float = 60.0) -> int:
        """Return the process id of one of several tablet servers, once it runs; waits while it is started again."""
        found: list[int] = []

        def runs() -> bool:
            describe = self.connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
            found[:] = [
                each.process_id
                for each in describe.tablet_server_status
                if each.server_id == server_id and each.state == "running" and _lives(each.process_id)
            ]
            return bool(found)

        wait_until(runs, timeout_s)
        return found[0]

    def kill_tablet(self, server_id: int) -> int:
        """Kill one of several tablet servers (SIGKILL), once it runs; return its process id when it is gone.

        The coordinator's process starts it again.
        """
        pid = self.tablet_pid(server_id)
        started = discovery.process_start_ticks(pid)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not _lives(pid, started), START_TIMEOUT_S)
        return pid

    def wait_until_gone(self, timeout_s: float = 60.0) -> None:
        """Wait until the server's process has ended by itself, for instance at a failpoint."""
        found = cluster.read_discovery(self.folder)
        if found is not None:
            wait_until_gone(found, timeout_s)

    def stop(self) -> None:
        """Stop the server gracefully; nothing happens when none runs."""
        cluster.stop_server(self.folder)

    def restart(self) -> None:
        """Stop the server if it still runs, and start it again."""
        self.stop()
        self.start()


def _lives(pid: int, started: int = -1) -> bool:
    """Return whether a process lives; one that only waits to be reaped does not."""
    return cluster.is_alive(ServerEntry(pid, "", 0, "", (), discovery.NO_TABLET, started))


class EmbeddedCluster(_Cluster):
    """A real node with real gRPC on loopback, in threads of this process. Use it as a context manager.

    Args:
        folder: Its folder, which stays; None: a temporary one, which goes.
        options: Cluster options by name; without one for it the disk reserve is of 64 kB.
        clock: The servers' clock, for instance a `MockClock`; None: the machine's.
        lake: Whether there is a lake: by default a SQLite catalog and a warehouse in the folder.
        tablet_servers: How many; with more than one, each has its own port and the coordinator another.
        client: Client options of `connection`.
    """

    def __init__(
        self,
        folder: Path | None = None,
        options: Mapping[str, object] | None = None,
        clock: Clock | None = None,
        lake: bool = True,
        *,
        tablet_servers: int | None = None,
        client: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(client)
        self._temporary = tempfile.TemporaryDirectory(prefix="fluss-lab-") if folder is None else None
        self.folder = Path(self._temporary.name) / "lab" if self._temporary is not None else Path(folder or ".")
        self.options = {**RESERVE, **(options or {})}
        if tablet_servers is not None:
            self.options[TABLET_SERVERS.key] = tablet_servers
        self._clock = clock
        self._lake = lake
        self._node: ServerNode | None = None

    def __repr__(self) -> str:
        return f"<EmbeddedCluster {self.folder}>"

    @property
    def node(self) -> ServerNode:
        """Return the running node."""
        assert self._node is not None, "the cluster is not running"
        return self._node

    @property
    def address(self) -> ServerAddress:
        """Return where the cluster listens now, with its token.

        Raises:
            ServerUnavailableError: It is not running.
        """
        if self._node is None:
            raise ServerUnavailableError("the embedded cluster is not running")
        host, port = self.node.address
        return ServerAddress.of(reachable(host), port, self.node.secret, self.node.trust)

    def start(self) -> None:
        """Start the node; it must not be running."""
        assert self._node is None, "the cluster is running"
        node = make_node(self.folder, load_lake if self._lake else None, options=self.options, clock=self._clock)
        node.start()
        self._node = node

    def stop(self) -> None:
        """Stop the node gracefully; the folder stays."""
        node, self._node = self._node, None
        if node is not None:
            node.stop(grace_s=1.0)

    def stop_tablet(self, server_id: int) -> None:
        """Stop one of several tablet servers gracefully: its buckets have no leader until it is started again."""
        self._local.stop_one(server_id, grace_s=1.0)

    def start_tablet(self, server_id: int) -> None:
        """Start a tablet server that was stopped; return when it holds its buckets."""
        self._local.start_one(server_id)

    def tablet(self, server_id: int = 0) -> TabletService:
        """Return a running tablet server itself, to look at or to call without a connection."""
        tablets = self.node.tablets
        if isinstance(tablets, ResidentTablet):
            assert server_id == 0, "the cluster has one tablet server"
            assert tablets.tablet is not None, "the cluster is not running"
            return tablets.tablet
        return self._local.nodes[server_id].tablet

    @property
    def _local(self) -> LocalTablets:
        tablets = self.node.tablets
        assert isinstance(tablets, LocalTablets), "the cluster has one tablet server, beside the coordinator"
        return tablets

    def restart(self, options: Mapping[str, object] | None = None) -> None:
        """Stop and start on the same folder, with other options if given."""
        self.stop()
        if options is not None:
            self.options = {**RESERVE, **options}
        self.start()

    def close(self) -> None:
        """Stop, and remove a temporary folder."""
        super().close()
        if self._temporary is not None:
            self._temporary.cleanup()
