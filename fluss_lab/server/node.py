"""A server: coordinator and tablet server of one process, behind one port."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from fluss_lab.clock import Clock, SystemClock
from fluss_lab.errors import LabError, LabLockedError, LabMovedError
from fluss_lab.failpoints import failpoint
from fluss_lab.model.options import (
    REQUEST_SIZE_MAX,
    SERVER_ATTACHED_MAX,
    SERVER_FETCH_THREADS,
    SERVER_THREADS,
)
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc import token as tokens
from fluss_lab.rpc.methods import COORDINATOR, TABLET_SERVER
from fluss_lab.rpc.serving import Server
from fluss_lab.server import discovery, process
from fluss_lab.server.coordinator.lifecycle import LakeTables
from fluss_lab.server.coordinator.service import CoordinatorService
from fluss_lab.server.options import check_server_options
from fluss_lab.server.tablet.service import TabletService

log = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
SERVER_ID: Final = 0
LOCK_FILE: Final = "server.lock"
TABLET_FOLDER: Final = "tablet"
#: Calls under way at a stop get this long: a produce waits for the disk, a long poll is cut off earlier by its servicer.
STOP_GRACE_S: Final = 5.0
#: The coordinator calls its tablet server from threads of the common pool; these answer it even when all of those wait.
NOTIFY_THREADS: Final = 2
REFUSING_THREADS: Final = 4
#: A server that is stopping lets go of the folder after its grace and a last flush.
LOCK_WAIT_S: Final = 20.0
LOCK_LOOK_INTERVAL_S: Final = 0.02
_FOLDER_KEY: Final = "folder"


class Node:
    """One process's coordinator and tablet server on a folder. Start it once; `stop` it to let go.

    Args:
        folder: The lab's folder; made when absent, for its owner only.
        options: Cluster options by name.
        clock: For timestamps and freshness.
        lake_tables: Makes and drops lake tables; None: lake-enabled tables are refused.
        ephemeral: End when nobody is attached any more.
        token: The secret that every call must bring; None: the folder's own, made when absent.
        restart_options: The options with which to start again after a kill, where they are not `options`: without what
            was filled in by the folder's place.

    Raises:
        InvalidPropertyError: An unknown or ill-typed option.
    """

    def __init__(
        self,
        folder: Path,
        *,
        options: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        lake_tables: LakeTables | None = None,
        ephemeral: bool = False,
        token: str | None = None,
        restart_options: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = Path(os.path.abspath(folder))
        self.options = check_server_options(options or {})
        self.ephemeral = ephemeral
        self._clock = clock or SystemClock()
        self._lake_tables = lake_tables
        self._token = token
        self._restart_options = dict(self.options if restart_options is None else restart_options)
        self._lock_fd: int | None = None
        self._stop_asked = threading.Event()
        self._stopped = threading.Event()
        self._stopping = threading.Lock()
        self._coordinator: CoordinatorService | None = None
        self._tablet: TabletService | None = None
        self._server: Server | None = None

    def __repr__(self) -> str:
        return f"<Node {self.folder}>"

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port, once started."""
        assert self._server is not None, "not started"
        return self._server.host, self._server.port

    @property
    def secret(self) -> str:
        """Return the token that calls must bring, once started."""
        assert self._token is not None, "not started"
        return self._token

    def start(self) -> None:
        """Open everything, recover, listen, and write the discovery file; return when calls are answered.

        Raises:
            LabLockedError: Another server runs on the folder.
            LabMovedError: The folder was moved, and its lake's paths were not.
            LabError, CorruptDataError, StorageError: The folder cannot be used; the text says why.
        """
        self._lock()
        try:
            self._start()
        except BaseException:
            self._release()
            raise

    def _start(self) -> None:
        if self._token is None:
            self._token = _token_of(self.folder)
        self._coordinator = coordinator = CoordinatorService(
            self.folder, options=self.options, clock=self._clock, lake_tables=self._lake_tables,
            ephemeral=self.ephemeral, stop=self._stop_asked.set, secret=self._token,
        )  # fmt: skip
        _check_place(coordinator, self.folder)
        tablet_folder = self.folder / TABLET_FOLDER
        tablet_folder.mkdir(mode=0o700, exist_ok=True)
        self._tablet = tablet = TabletService(tablet_folder, options=self.options, clock=self._clock)
        self._server = server = self._listen()
        # The tablet server learns what it holds before anybody can ask it.
        request = pb.RegisterTabletServerRequest(server_id=SERVER_ID, host=server.host, port=server.port)
        registered = coordinator.register_tablet_server(request)
        tablet.open_buckets(list(registered.buckets), registered.coordinator_epoch)
        tablet.set_lake_offsets(list(registered.lake_offsets))
        tablet.start()
        # A few more, so that one too many hears so instead of waiting.
        server.add(COORDINATOR, coordinator, {"attach": SERVER_ATTACHED_MAX.of(self.options) + REFUSING_THREADS})
        pools = dict.fromkeys(("notify_leader_and_isr", "stop_replica", "notify_lake_table_offset"), NOTIFY_THREADS)
        server.add(TABLET_SERVER, tablet, {**pools, "fetch_log": SERVER_FETCH_THREADS.of(self.options)})
        server.start()
        coordinator.start()
        process.save_options(self.folder, self._restart_options)
        failpoint("node.start.before_discovery")
        discovery.write(self.folder, self._entry(), ephemeral=self.ephemeral)
        log.info("event=started address=%s:%d epoch=%d", server.host, server.port, coordinator.epoch)

    def _listen(self) -> Server:
        """Return a server on the port of the previous run, so that clients find it again; else on any free one."""
        previous = discovery.read(self.folder)
        for port in [previous.servers[0].port, 0] if previous is not None else [0]:
            try:
                return Server(
                    HOST, port, self.secret,
                    threads=SERVER_THREADS.of(self.options), request_bytes_max=REQUEST_SIZE_MAX.of(self.options),
                )  # fmt: skip
            except RuntimeError as error:  # gRPC's word for a port that cannot be had
                log.info("event=port_taken port=%d error=%s", port, error)
        raise LabError(f"{HOST}: no free port to listen on")

    def _entry(self) -> discovery.ServerEntry:
        host, port = self.address
        return discovery.ServerEntry(
            os.getpid(), host, port, str(self.folder / discovery.TOKEN_FILE), ("coordinator", "tablet"), SERVER_ID,
            discovery.started_of(os.getpid()),
        )  # fmt: skip

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until somebody asks for a stop; return False when the time is up first. Then call `stop`."""
        return self._stop_asked.wait(timeout_s)

    def ask_stop(self) -> None:
        """Ask for a stop and return at once; fit for a signal handler."""
        self._stop_asked.set()

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Refuse new calls, let those under way end, make everything durable, let go. Twice is fine.

        Args:
            grace_s: How long calls under way may take.
        """
        self._stop_asked.set()
        with self._stopping:
            if self._stopped.is_set():
                return
            # First of all: whoever is attached must see that this end is meant.
            discovery.remove(self.folder)
            if self._coordinator is not None:
                self._coordinator.end_sessions()
            if self._tablet is not None:
                self._tablet.interrupt()
            self._release(grace_s)
            self._stopped.set()
            log.info("event=stopped")

    def _release(self, grace_s: float = 0.0) -> None:
        if self._server is not None:
            self._server.stop(grace_s)
        if self._tablet is not None:
            self._tablet.close()
        if self._coordinator is not None:
            self._coordinator.close()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _lock(self) -> None:
        """Make the folder ours for as long as this process lives."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / LOCK_FILE
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + LOCK_WAIT_S
        while not _try_lock(fd):
            # One without a discovery file is stopping, or starting: it may let go soon.
            if discovery.read(self.folder) is None and time.monotonic() < deadline:
                time.sleep(LOCK_LOOK_INTERVAL_S)
                continue
            holder = os.read(fd, 32).decode("ascii", "replace").strip()
            os.close(fd)
            raise LabLockedError(
                f"{self.folder}: another server runs on this folder (process {holder or 'unknown'}): use that one, or stop "
                f"it with `fluss-lab down {self.folder}`"
            )
        os.ftruncate(fd, 0)
        os.write(fd, str(os.getpid()).encode())
        self._lock_fd = fd


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _token_of(folder: Path) -> str:
    path = folder / discovery.TOKEN_FILE
    if not path.exists():
        tokens.write_token(path, tokens.make_token())
    return tokens.read_token(path)


def _check_place(coordinator: CoordinatorService, folder: Path) -> None:
    """Refuse a folder that was moved after its lake was written: the lake's files name each other by absolute paths."""
    known = coordinator.store.meta(_FOLDER_KEY)
    if known is not None and Path(known).exists() and folder.samefile(known):
        return  # perhaps by another name: the paths in the lake still lead there
    if known is not None and coordinator.ledger.tables():
        raise LabMovedError(
            f"the lab was moved from {known} to {folder}, and its lake tables name their files by the old place: move it "
            "back, or link the old place to the new one and open it there"
        )
    coordinator.store.set_meta(_FOLDER_KEY, str(folder))
