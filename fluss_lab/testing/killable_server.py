"""A real server process that a test may kill."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.model.config.options import TABLET_SERVERS
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server import cluster
from fluss_lab.server.process import discovery
from fluss_lab.server.process.discovery import ServerEntry
from fluss_lab.server.process.server_process import OPTIONS_FILE, START_TIMEOUT_S, wait_until_gone
from fluss_lab.testing.mock_clock import wait_until


class ServerProcess:
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
        self.folder = folder.absolute()
        self.options = dict(options or {})
        if tablet_servers is not None:
            self.options[TABLET_SERVERS.key] = str(tablet_servers)
        self.env = dict(env or {})
        self._client = dict(client or {})
        self._connection: Connection | None = None

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

    @property
    def connection(self) -> Connection:
        """Return a connection, which finds the server again after a restart."""
        if self._connection is None:
            self._connection = Connection(lambda: self.address, self._client)
        return self._connection

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

    def close(self) -> None:
        """Close the connection and stop the server."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _lives(pid: int, started: int = -1) -> bool:
    """Return whether a process lives; one that only waits to be reaped does not."""
    return cluster.is_alive(ServerEntry(pid, "", 0, "", (), discovery.NO_TABLET, started))
