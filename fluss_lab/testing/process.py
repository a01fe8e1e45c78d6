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
from fluss_lab.server import cluster
from fluss_lab.server.process import OPTIONS_FILE, wait_until_gone


class ServerProcess:
    """A server on a folder, in a process of its own that stays until it is stopped or killed. Use it as a context manager.

    Args:
        folder: The lab's folder.
        options: Cluster options by name.
        env: Variables added to the process's environment, for instance ``FLUSS_LAB_FAILPOINTS``.
        client: Client options of `connection`.
    """

    def __init__(
        self,
        folder: Path,
        options: Mapping[str, str] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        client: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.options = dict(options or {})
        self.env = dict(env or {})
        self._client = dict(client or {})
        self._connection: Connection | None = None

    def __repr__(self) -> str:
        return f"<ServerProcess {self.folder}>"

    @property
    def pid(self) -> int:
        """Return the process id of the server that runs, or ran last."""
        found = cluster.read_discovery(self.folder)
        assert found is not None, "no server was started"
        return found.servers[0].pid

    @property
    def address(self) -> ServerAddress:
        """Return where the server listens now, with its token."""
        place = cluster.locate(self.folder)
        return ServerAddress(place.host, place.port, place.token)

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
        """Kill the server as the machine would (SIGKILL), and return when it is gone."""
        found = cluster.read_discovery(self.folder)
        assert found is not None, "no server was started"
        os.kill(found.servers[0].pid, signal.SIGKILL)
        wait_until_gone(found)

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
