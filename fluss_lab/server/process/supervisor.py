"""The supervision of tablet servers in processes of their own, which are started, watched, restarted and ended here."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fluss_lab.errors import FlussError, ServerUnavailableError, error_from_code
from fluss_lab.model.config.lake_options import LAKE_PREFIX
from fluss_lab.model.config.options import SESSION_TIMEOUT
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.access.tls import reachable
from fluss_lab.server.coordinator.tablets.tablet_members import AWAY, RUNNING, STARTING
from fluss_lab.server.process import discovery
from fluss_lab.server.process import server_process as process
from fluss_lab.server.process.tablet_host import TabletTask
from fluss_lab.server.process.tablet_launch import TabletLaunch
from fluss_lab.server.process.tablet_node import HEARTBEATS

log = logging.getLogger(__name__)

#: Longest wait for all servers at the coordinator's start; one that takes longer, over its log, is reported as starting.
START_WAIT_S: Final = 100.0
#: A graceful end: running calls, a flush, snapshots. A process that takes longer is killed, which loses nothing either.
STOP_WAIT_S: Final = 45.0
#: Pause before a restart, doubled with each further one until the server stays up for `STEADY_S`.
PAUSE_FIRST_S: Final = 0.1
#: After a failed start: a full disk or a damaged folder may be fixed, neither soon.
FAILED_PAUSE_MAX_S: Final = 10.0
#: After the death of one that was ready: its clients wait.
DIED_PAUSE_MAX_S: Final = 1.0
STEADY_S: Final = 10.0


class Supervisor:
    """The processes of all tablet servers. See `Tablets` for its life.

    Args:
        launch: The arguments of every server.
        command: Runs ``fluss-lab tablet-server``.
    """

    def __init__(self, launch: TabletLaunch, command: Sequence[str]) -> None:
        self._launch = launch
        count = launch.coordinator.tablet_servers
        self._children = [_Child(launch, command, server_id) for server_id in range(count)]
        self._session_ms = SESSION_TIMEOUT.of(launch.options)
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="tablet-sessions", daemon=True)
        launch.coordinator.members = self

    def prepare(self) -> None:
        """Start the processes: their imports take a while."""
        for child in self._children:
            child.start()
        self._watcher.start()

    def _watch(self) -> None:
        """Kill the processes that hang: they send no heartbeats."""
        interval_s = self._session_ms / 1000 / HEARTBEATS
        looked_s = time.monotonic()
        while not self._stopping.wait(interval_s):
            now_s = time.monotonic()
            # This process itself may have been suspended, and so received no heartbeat.
            excused = now_s - looked_s > 2 * interval_s
            looked_s = now_s
            for child in self._children:
                if excused:
                    child.excuse()
                elif child.silent_s() > self._session_ms / 1000:
                    child.kill_hung(self._session_ms)

    def start(self) -> None:
        """Return when each server is ready or has failed once.

        Raises:
            FlussError: All have failed: the error of the first.
        """
        deadline = time.monotonic() + START_WAIT_S
        for child in self._children:
            child.settled.wait(max(0.0, deadline - time.monotonic()))
        failures = [child.failure for child in self._children]
        if failures and all(failures) and failures[0] is not None:
            raise failures[0]

    def entries(self) -> list[discovery.ServerEntry]:
        """Return the running processes."""
        return [entry for child in self._children if (entry := child.entry()) is not None]

    def interrupt(self) -> None:
        """Do nothing: each server interrupts its waits itself when it ends."""

    def stop(self, grace_s: float) -> None:  # each server has its own grace
        """End all at once, and return when all have ended."""
        self._stopping.set()
        for child in self._children:
            child.stop()
        for child in self._children:
            child.join()

    # -- `TabletMembers` ---------------------------------------------------------------------------------------------

    def admits(self, server_id: int, process_id: int | None) -> bool:
        """Return whether a process is the present one of a server: not one of an earlier coordinator that ends late."""
        return 0 <= server_id < len(self._children) and self._children[server_id].pid == process_id

    def heard(self, server_id: int) -> None:
        """Note a heartbeat."""
        self._children[server_id].heard()

    def status(self) -> list[pb.PbTabletServerStatus]:
        """Return the status of each server."""
        return [child.status() for child in self._children]


@dataclass(frozen=True, slots=True)
class _Run:
    """One process of a server."""

    process: subprocess.Popen[bytes]
    started: int


class _Child:
    """One server: its process, and the thread that waits for it.

    Attributes:
        settled: Set when the first process is ready, or has failed.
        failure: The error of the last start; None when it succeeded.
    """

    def __init__(self, launch: TabletLaunch, command: Sequence[str], server_id: int) -> None:
        self._launch = launch
        self._command = list(command)
        self._server_id = server_id
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._run: _Run | None = None
        self._state = STARTING
        self._port = launch.ports.get(server_id, 0)
        self._restarts = 0
        self._last_error: str | None = None
        self._heard_s: float | None = None
        self._hung: str | None = None
        self.settled = threading.Event()
        self.failure: FlussError | None = None
        name = f"tablet-{server_id}-supervisor"
        self._thread = threading.Thread(target=self._supervise, name=name, daemon=True)

    @property
    def pid(self) -> int | None:
        """Return the id of the present process; None when none runs."""
        run = self._run
        return None if run is None else run.process.pid

    def start(self) -> None:
        """Start the server, and restart it whenever it ends."""
        self._thread.start()

    def stop(self) -> None:
        """Request the server's end, without a restart; return at once."""
        with self._lock:
            self._stopping.set()
            run = self._run
            if run is not None:
                _hang_up(run.process)

    def join(self) -> None:
        """Return when the server has ended; kill it when it takes too long."""
        if self._thread.ident is None:
            return
        self._thread.join(STOP_WAIT_S)
        run = self._run
        if self._thread.is_alive() and run is not None:
            log.warning("event=tablet_killed server=%d process=%d: it did not end", self._server_id, run.process.pid)
            run.process.kill()
        self._thread.join()

    def heard(self) -> None:
        """Note a heartbeat of the present process."""
        self._heard_s = time.monotonic()

    def excuse(self) -> None:
        """Restart the wait for heartbeats, if there were any."""
        if self._heard_s is not None:
            self.heard()

    def silent_s(self) -> float:
        """Return how long ago the present process sent a heartbeat; 0.0 before the first one: it is starting."""
        heard_s = self._heard_s
        return 0.0 if heard_s is None else time.monotonic() - heard_s

    def kill_hung(self, session_ms: int) -> None:
        """Kill the present process, which sends no heartbeats; it is restarted."""
        with self._lock:
            run = self._run
            if run is None or self._stopping.is_set():
                return
            self._heard_s = None
            self._hung = f"was killed: it hung, without a heartbeat for {session_ms} ms ({SESSION_TIMEOUT.key})"
            self._state = AWAY
        log.warning("event=tablet_hung server=%d process=%d", self._server_id, run.process.pid)
        run.process.kill()
        # Reported at once: the end of a process that waits for a device may take a while.
        self._launch.coordinator.tablet_server_lost(self._server_id)

    def entry(self) -> discovery.ServerEntry | None:
        """Return the process for the discovery file; None when none runs."""
        with self._lock:
            if self._run is None:
                return None
            token_file = str(self._launch.folder / discovery.TOKEN_FILE)
            return discovery.ServerEntry(
                self._run.process.pid, self._launch.server.host, self._port, token_file, ("tablet",), self._server_id,
                self._run.started,
            )  # fmt: skip

    def status(self) -> pb.PbTabletServerStatus:
        """Return the server's status."""
        with self._lock:
            status = pb.PbTabletServerStatus(server_id=self._server_id, state=self._state, restarts=self._restarts)
            if self._state == RUNNING:
                status.host, status.port = self._launch.server.host, self._port
            if self._run is not None:
                status.process_id = self._run.process.pid
            if self._last_error is not None:
                status.last_error = self._last_error
            return status

    # -- in the background -------------------------------------------------------------------------------------------

    def _supervise(self) -> None:
        pause_s = PAUSE_FIRST_S
        while not self._stopping.is_set():
            began = time.monotonic()
            was_ready = False
            try:
                was_ready = self._run_once()
            except FlussError as error:
                self._note_failure(error)
            except Exception as error:  # no memory, no descriptors, no such program
                log.exception("tablet server %d could not be started", self._server_id)
                self._note_failure(
                    ServerUnavailableError(f"tablet server {self._server_id}: {type(error).__name__}: {error}")
                )
            if self._stopping.is_set():
                return
            if was_ready and time.monotonic() - began > STEADY_S:
                pause_s = PAUSE_FIRST_S
            self._stopping.wait(min(pause_s, DIED_PAUSE_MAX_S if was_ready else FAILED_PAUSE_MAX_S))
            pause_s = min(2 * pause_s, FAILED_PAUSE_MAX_S)
            self._restarts += 1

    def _run_once(self) -> bool:
        """Run one process to its end; return whether it was ready in between.

        Raises:
            FlussError: It could not start.
        """
        reader, writer = os.pipe()
        try:
            run = self._spawn(writer)
            os.close(writer)
            writer = -1
            try:
                self._ready(_reported_port(reader, self._server_id, run.process))
            finally:
                code = run.process.wait()
                self._note_end(run.process, code)
        finally:
            os.close(reader)
            if writer != -1:
                os.close(writer)
        if not self._stopping.is_set():
            self._last_error = f"process {run.process.pid} {self._hung or _end_of(code)}"
            log.warning("event=tablet_died server=%d %s", self._server_id, self._last_error)
        return True

    def _spawn(self, ready_fd: int) -> _Run:
        launch = self._launch
        output_path = launch.folder / f"tablet-{self._server_id}.out"
        with self._lock:
            if self._stopping.is_set():
                raise ServerUnavailableError("the cluster is stopping")
            self._state, self._heard_s, self._hung = STARTING, None, None
            with open(output_path, "wb", opener=_private) as output:
                arguments = ["--folder", str(launch.folder), "--server-id", str(self._server_id)]
                started = subprocess.Popen(
                    [*self._command, *arguments, "--ready-fd", str(ready_fd)],
                    stdin=subprocess.PIPE, stdout=output, stderr=output, pass_fds=(ready_fd,),
                    # A terminal's signals are for the coordinator, which ends its tablet servers in order.
                    start_new_session=True,
                )  # fmt: skip
            run = self._run = _Run(started, discovery.process_start_ticks(started.pid))
            try:
                assert started.stdin is not None
                started.stdin.write(self._task().to_line())
                started.stdin.flush()
            except OSError as error:
                log.info("event=task_not_sent server=%d error=%s", self._server_id, error)
        log.info("event=tablet_spawned server=%d process=%d", self._server_id, started.pid)
        launch.changed()
        return run

    def _task(self) -> TabletTask:
        launch = self._launch
        # Tablet servers do not get the lake's credentials.
        options = {key: value for key, value in launch.options.items() if not key.startswith(LAKE_PREFIX)}
        return TabletTask(
            launch.folder, self._server_id, reachable(launch.server.host), launch.server.port, launch.secret,
            launch.identity, options, self._port,
        )  # fmt: skip

    def _ready(self, port: int) -> None:
        with self._lock:
            self._state, self._port, self.failure = RUNNING, port, None
        self.heard()
        log.info("event=tablet_ready server=%d port=%d", self._server_id, port)
        self._launch.changed()
        self.settled.set()

    def _note_end(self, ended: subprocess.Popen[bytes], code: int) -> None:
        with self._lock:
            self._run, self._state = None, AWAY
            _hang_up(ended)
        log.info("event=tablet_ended server=%d process=%d code=%d", self._server_id, ended.pid, code)
        self._launch.coordinator.tablet_server_lost(self._server_id)
        self._launch.changed()

    def _note_failure(self, error: FlussError) -> None:
        with self._lock:
            self._state, self._last_error, self.failure = AWAY, str(error), error
        if not self._stopping.is_set():
            log.error("event=tablet_not_started server=%d error=%s", self._server_id, error)
        self.settled.set()


def _hang_up(child: subprocess.Popen[bytes]) -> None:
    """Close our end of the pipe: the process ends gracefully."""
    try:
        if child.stdin is not None:
            child.stdin.close()
    except OSError as error:  # what was not written yet has no reader
        log.debug("event=hang_up error=%s", error)


def _reported_port(reader: int, server_id: int, child: subprocess.Popen[bytes]) -> int:
    """Wait for the report on the start of the process; return its port.

    Raises:
        FlussError: It could not start.
        ServerUnavailableError: It died without a report.
    """
    report = process.read_report(reader)
    if not report:
        code = child.wait()
        raise ServerUnavailableError(
            f"tablet server {server_id}: process {child.pid} {_end_of(code)} while it started; see tablet-{server_id}.log "
            f"and tablet-{server_id}.out in the lab's folder"
        )
    value = json.loads(report)
    if value["code"]:
        raise error_from_code(int(value["code"]), f"tablet server {server_id}: {value['message']}")
    return int(value["port"])


def _end_of(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"


def _private(path: str | Path, flags: int) -> int:
    return os.open(path, flags, 0o600)
