"""A tablet server as a process of its own: started by the coordinator's, and ending with it.

Its standard input is a pipe from the coordinator's process: one line with its task, then nothing. When the pipe closes,
because the coordinator closed it or ended, the tablet server ends gracefully. So no process is left behind, and none
depends on parent-death signals, which fire when the parent's thread ends.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fluss_lab.clock import SystemClock
from fluss_lab.errors import FlussError, InvalidRequestError, StorageError
from fluss_lab.model.json_codec import Forms, decode, encode
from fluss_lab.rpc.access.tls import Identity
from fluss_lab.rpc.serving.grpc_server import as_fluss_error
from fluss_lab.server.process import server_process
from fluss_lab.server.process.process_setup import end_when_serving_is_lost, log_to, periodic_memory_release
from fluss_lab.server.process.tablet_node import CoordinatorAddress, TabletNode, tablet_folder

log = logging.getLogger(__name__)

_READ_BYTES: Final = 4096
_FORMS: Final[Forms] = {Path: (str, Path)}


@dataclass(frozen=True, slots=True)
class TabletTask:
    """The task that a tablet server's process gets on its standard input.

    Attributes:
        folder: The lab's.
        server_id: Its id.
        host: The coordinator's host.
        port: Its port.
        secret: The token that every call must have, in both directions.
        identity: The certificate of all servers; None: they serve without TLS.
        options: Cluster options, checked.
        tablet_port: The port of its last run; 0: any.
    """

    folder: Path
    server_id: int
    host: str
    port: int
    secret: str = field(repr=False)
    identity: Identity | None
    options: Mapping[str, str]
    tablet_port: int

    def to_line(self) -> bytes:
        """Return the task as one line of text. It holds secrets."""
        return encode(self, forms=_FORMS) + b"\n"

    @staticmethod
    def from_line(line: bytes) -> TabletTask:
        """Read a task.

        Raises:
            InvalidRequestError: The line is not a task.
        """
        what, remedy = (
            "standard input: expected a task from a coordinator",
            "start tablet servers by `fluss-lab up --tablet-servers N`",
        )
        return decode(TabletTask, line, what, peer=True, error=InvalidRequestError, remedy=remedy, forms=_FORMS)


def log_name(server_id: int) -> str:
    """Return the name of a tablet server's log file, in the lab's folder."""
    return f"tablet-{server_id}.log"


def run_tablet_server(ready_fd: int | None) -> int:
    """Run a tablet server in this process, until its standard input ends or a signal asks for a stop.

    Args:
        ready_fd: Descriptor for the report on the start; None: no report.

    Returns:
        The exit code.

    Raises:
        FlussError: It could not start.
    """
    os.umask(0o077)
    end_when_serving_is_lost()
    stopping = threading.Event()
    try:
        task = TabletTask.from_line(sys.stdin.buffer.readline())
        log_to(task.folder / log_name(task.server_id), task.options)
        node = _node(task, stopping)
        node.start()
    except Exception as error:
        known = _describe_error(error)
        log.error("event=not_started error=%s", known)
        server_process.report(ready_fd, known)
        raise known from error
    server_process.report(ready_fd, None, port=node.address[1])
    with periodic_memory_release():
        stopping.wait()
        node.stop()
    log.info("event=stopped")
    return 0


def _describe_error(error: Exception) -> FlussError:
    """Return the error of a start for its report, with the name of the file concerned."""
    if isinstance(error, OSError) and error.filename is not None:
        return StorageError(f"{error.filename}: {error.strerror or error}")
    return as_fluss_error(error, "starting a tablet server")


def _node(task: TabletTask, stopping: threading.Event) -> TabletNode:
    place = CoordinatorAddress(task.host, task.port, task.secret, task.identity)
    node = TabletNode(
        tablet_folder(task.folder, task.server_id), task.server_id, lambda: place, options=task.options,
        clock=SystemClock(), secret=task.secret, identity=task.identity, port=task.tablet_port,
        process_id=os.getpid(), on_refused=stopping.set,
    )  # fmt: skip

    def stop(why: str) -> None:
        log.info("event=stop_requested reason=%s", why)
        node.ask_stop()
        stopping.set()

    def follow() -> None:
        _wait_for_end()
        stop("coordinator")

    threading.Thread(target=follow, name="supervised", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        # In a thread of its own: the handler interrupts the main thread, which may hold the lock it needs.
        signal.signal(number, lambda *_: threading.Thread(target=stop, args=("signal",)).start())
    return node


def _wait_for_end() -> None:
    """Return when the other end of standard input is closed, explicitly or by the end of its process."""
    try:
        while os.read(sys.stdin.fileno(), _READ_BYTES):
            pass
    except OSError as error:
        log.warning("event=supervision_lost error=%s", error)
