"""A node with its lake, as it runs in a server process and inside a test."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from fluss_lab.clock import Clock
from fluss_lab.model.config.lake_options import lake_format
from fluss_lab.model.config.options import FOLDER_GONE_TIMEOUT
from fluss_lab.rpc.serving.grpc_server import as_fluss_error
from fluss_lab.server.folder.lab_folder import make_lab_folder
from fluss_lab.server.folder.read_only_lab import make_home
from fluss_lab.server.process import server_process
from fluss_lab.server.process.configured_lake import LoadLake, lake_tables_of
from fluss_lab.server.process.process_setup import end_when_serving_is_lost, log_to, periodic_memory_release
from fluss_lab.server.process.server_node import ServerNode
from fluss_lab.server.process.supervisor import Supervisor
from fluss_lab.server.process.tablet_launch import Launcher, LocalTablets
from fluss_lab.server.server_options import check_server_options, resolve_server_options, with_lake

log = logging.getLogger(__name__)
#: Between two looks whether the folder is at its path.
_LOOK_INTERVAL_S: Final = 5.0


def make_node(
    folder: Path,
    load_lake: LoadLake | None,
    *,
    options: Mapping[str, object],
    ephemeral: bool = False,
    clock: Clock | None = None,
    launch: Launcher = LocalTablets,
) -> ServerNode:
    """Return a node, not yet started, with the lake that its options configure.

    Args:
        folder: The lab's folder.
        load_lake: Makes lake catalogs; None: no lake at all.
        options: Cluster options; without any ``datalake.*`` the default lake in the folder is used.
        ephemeral: End with the last attached process.
        clock: The server's clock; None: the machine's.
        launch: Starts the tablet servers where there are several; by default inside this process.

    Raises:
        InvalidPropertyError: An unknown or ill-typed option.
    """
    checked = check_server_options(options)
    full = checked if load_lake is None else with_lake(checked, folder)
    tables = None if load_lake is None else lake_tables_of(full, folder, load_lake)
    return ServerNode(
        folder,
        options=full,
        clock=clock,
        lake_tables=tables,
        ephemeral=ephemeral,
        restart_options=checked,
        launch=launch,
    )


def run_server(
    folder: Path,
    given: Mapping[str, str],
    load_lake: LoadLake,
    tablet_command: Sequence[str],
    check_format: Callable[[str], None],
    *,
    ephemeral: bool,
    ready_fd: int | None = None,
) -> int:
    """Run a server in this process until a stop is requested (SIGTERM, SIGINT, a call, or no process is attached).

    Args:
        folder: The lab's folder.
        given: Options given as arguments; environment and file follow.
        load_lake: Makes lake catalogs.
        tablet_command: Runs ``fluss-lab tablet-server``, where there are several tablet servers.
        check_format: Raises for a lake format that is not installed here.
        ephemeral: End with the last attached process.
        ready_fd: Descriptor for the report on the start; None: no report.

    Returns:
        The exit code.

    Raises:
        FlussError: It could not start.
    """
    os.umask(0o077)
    end_when_serving_is_lost()
    try:
        folder = folder.absolute()
        make_lab_folder(folder)
        options = resolve_server_options(given, folder)
        check_format(lake_format(options))
        launch = partial(Supervisor, command=tablet_command)
        node = make_node(folder, load_lake, options=options, ephemeral=ephemeral, launch=launch)
        log_to(make_home(folder) / server_process.LOG_FILE, options)
        for number in (signal.SIGTERM, signal.SIGINT):
            # In a thread of its own: the handler interrupts the main thread, which may hold the lock it needs.
            signal.signal(number, lambda *_: threading.Thread(target=node.ask_stop).start())
        node.start()
    except Exception as error:
        known = as_fluss_error(error, f"starting a server on {folder}")
        log.error("event=not_started error=%s", known)
        server_process.report(ready_fd, known)
        raise known from error
    server_process.report(ready_fd, None)
    host, port = node.address
    # Without a terminal this goes to a file of the lab, whose disk may be full.
    with suppress(OSError):
        print(
            f"serving {node.folder} at {host}:{port} (process {os.getpid()}); Ctrl+C or `fluss-lab down` stops it",
            flush=True,
        )
    with periodic_memory_release():
        _await_stop(node, FOLDER_GONE_TIMEOUT.of(options) / 1000)
        node.stop()
    return 0


def _await_stop(node: ServerNode, abandoned_max_s: float) -> None:
    """Wait until a stop is requested, or the server was abandoned for so long: no `fluss-lab down` finds it.

    PostgreSQL's server ends in the same way where its ``postmaster.pid`` is gone.
    """
    since_s = math.inf
    while not node.wait(min(_LOOK_INTERVAL_S, abandoned_max_s)):
        with suppress(OSError):  # whether the folder is there is not known
            now_s = time.monotonic()
            since_s = min(since_s, now_s) if node.is_abandoned else math.inf
            if now_s - since_s >= abandoned_max_s:
                log.error("event=folder_gone folder=%s", node.folder)
                return
