"""A server: the coordinator of a lab, with its tablet servers beside it, in processes of their own, or (in tests) in this one."""

from __future__ import annotations

import logging
import os
import shlex
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from fluss_lab.clock import Clock, SystemClock
from fluss_lab.failpoints import failpoint
from fluss_lab.model.config.lake_options import FORMAT_KEY
from fluss_lab.model.config.options import SERVER_ATTACHED_MAX
from fluss_lab.periodic_work import Ticker
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.access import token as tokens
from fluss_lab.rpc.access.tls import Trust
from fluss_lab.rpc.rpc_methods import COORDINATOR
from fluss_lab.rpc.serving.grpc_server import Server
from fluss_lab.server.coordinator.coordinator_service import CoordinatorService
from fluss_lab.server.coordinator.ddl.lake_table_ddl import LakeTables
from fluss_lab.server.coordinator.metadata.metadata_store import DATABASE_FILE, MetadataStore
from fluss_lab.server.folder import read_only_lab
from fluss_lab.server.folder.disk_reserve import DiskReserve
from fluss_lab.server.folder.folder_lock import FolderLock
from fluss_lab.server.folder.metadata_checks import (
    check_folder_ids,
    check_lake_format,
    check_metadata_is_there,
    check_place,
)
from fluss_lab.server.folder.read_only_lab import reserve_of
from fluss_lab.server.folder.remote_storage import claim_remote, remote_root
from fluss_lab.server.process import discovery, server_process
from fluss_lab.server.process.listener import chosen_ports, listen, server_identity
from fluss_lab.server.process.tablet_launch import (
    RESIDENT_ID,
    Launcher,
    LocalTablets,
    ResidentTablet,
    TabletLaunch,
    Tablets,
)
from fluss_lab.server.server_metrics import Collector, MetricsPage, open_page, request_families
from fluss_lab.server.server_options import check_server_options, with_remote_dir

log = logging.getLogger(__name__)

#: Grace of running calls at a stop: a produce waits for the disk; long polls are ended earlier by their servicer.
STOP_GRACE_S: Final = 5.0
REFUSING_THREADS: Final = 4
REGISTERING_THREADS: Final = 4
#: A stopping server releases the folder after its grace and a last flush.
LOCK_WAIT_S: Final = 20.0
#: How soon a lab whose disk was full accepts writes again. Checking a complete reserve is one system call.
RESERVE_INTERVAL_MS: Final = 1_000


class ServerNode:
    """A coordinator and its tablet servers on a folder. Start it once; `stop` releases everything.

    Args:
        folder: The lab's folder; created when absent, for its owner only.
        options: Cluster options by name.
        clock: For timestamps and freshness.
        lake_tables: Creates and drops lake tables; None: lake-enabled tables are refused.
        ephemeral: End with the last attached process.
        token: The token that every call must have; None: the folder's own, created when absent.
        restart_options: The options for a restart after a kill, where they are not `options`: without defaults that depend
            on the folder's path.
        launch: Starts the tablet servers where there are several; None: in this process.

    Raises:
        InvalidPropertyError: An unknown or ill-typed option, or TLS is missing or unusable.
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
        launch: Launcher = LocalTablets,
    ) -> None:
        self.folder = Path(os.path.abspath(folder))
        given = check_server_options(options or {})
        self.options = with_remote_dir(given, self.folder)
        self.ephemeral = ephemeral
        self._clock = clock or SystemClock()
        self._lake_tables = lake_tables
        self._token = token
        self._restart_options = dict(given if restart_options is None else restart_options)
        self._launch = launch
        self._identity = server_identity(self.options, self.folder)
        #: Where this server writes: the folder, or its shadow where that is read-only.
        self._home = read_only_lab.home_of(self.folder)
        self._lock = FolderLock(self._home)
        self._reserve_ticker: Ticker | None = None
        self._publishing = threading.Lock()
        self._is_public = False
        self._stop_requested = threading.Event()
        self._stopped = threading.Event()
        self._stopping = threading.Lock()
        self._coordinator: CoordinatorService | None = None
        self._tablets: Tablets | None = None
        self._server: Server | None = None
        self._page: MetricsPage | None = None

    def __repr__(self) -> str:
        return f"<ServerNode {self.folder}>"

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port, once started."""
        assert self._server is not None, "not started"
        return self._server.host, self._server.port

    @property
    def secret(self) -> str:
        """Return the token that calls must have, once started."""
        assert self._token is not None, "not started"
        return self._token

    @property
    def trust(self) -> Trust | None:
        """Return the certificate authority for callers on this machine; None: the servers use no TLS."""
        return None if self._identity is None else self._identity.trust()

    @property
    def tablets(self) -> Tablets:
        """Return the tablet servers, once started."""
        assert self._tablets is not None, "not started"
        return self._tablets

    def start(self) -> None:
        """Open and recover everything, listen, and write the discovery file; return when calls are answered.

        Raises:
            LabLockedError: Another server runs on the folder.
            LabMovedError: The folder was moved, and its lake's paths were not.
            LabError: Fewer tablet servers are configured than buckets are assigned to.
            LabError, CorruptDataError, StorageError: The folder cannot be used, or the disk and its reserve are full;
                the message has the reason.
        """
        if self._home != self.folder:
            read_only_lab.make_home(self.folder)
        # A server without a discovery file is stopping, or starting: it may release the lock soon.
        advice = f"use that one, or stop it with `fluss-lab down {shlex.quote(str(self.folder))}`"
        self._lock.take(LOCK_WAIT_S, lambda: discovery.read(self.folder) is None, advice)
        reserve: DiskReserve | None = None
        try:
            if self._home != self.folder:
                read_only_lab.cast(self.folder, self._home)
            reserve = reserve_of(self._home, self.options)
            reserve.prepare()
            self._start()
        except BaseException as error:
            self._release()
            if reserve is not None and (full := reserve.explain(error)) is not None:
                raise full from error
            raise

    def _start(self) -> None:
        server_process.check_options(self.folder)
        check_metadata_is_there(self._home)
        if self._token is None:
            self._token = _token_of(self._home)
        store = MetadataStore(self._home / DATABASE_FILE, reserve_of(self._home, self.options))
        try:
            self._coordinator = coordinator = CoordinatorService(
                store, options=self.options, clock=self._clock, lake_tables=self._lake_tables,
                ephemeral=self.ephemeral, stop=self._stop_requested.set, secret=self._token,
                trust=self.trust,
            )  # fmt: skip
        except BaseException:
            store.close()
            raise
        check_place(coordinator.store, self.folder)
        check_lake_format(coordinator.store, self.options.get(FORMAT_KEY))
        check_folder_ids(coordinator.store, self._home)
        claim_remote(remote_root(self.options, self._home), coordinator.store)
        previous = discovery.read(self.folder)
        ports = {} if previous is None else {entry.server_id: entry.port for entry in previous.servers[1:]}
        own = [] if previous is None else [previous.servers[0].port]
        if chosen := chosen_ports(self.options, coordinator.tablet_servers):
            own, ports = [chosen.pop(-1)], chosen
        self._server = server = listen(self.options, self._token, self._identity, own)
        coordinator.address = self.address
        launch = TabletLaunch(
            self._home, self.options, self._clock, self._token, self._identity, server, coordinator, ports,
            self._republish,
        )  # fmt: skip
        self._tablets = tablets = ResidentTablet(launch) if coordinator.tablet_servers == 1 else self._launch(launch)
        tablets.prepare()
        # A few more threads, so that a session too many is refused instead of waiting; heartbeats have their own.
        attaching = SERVER_ATTACHED_MAX.of(self.options) + REFUSING_THREADS
        server.add(COORDINATOR, coordinator, {"attach": attaching, "register_tablet_server": REGISTERING_THREADS})
        self._page = self._open_page(tablets)
        server.start()
        coordinator.start()
        tablets.start()
        self._reserve_ticker = Ticker("disk-reserve", RESERVE_INTERVAL_MS, partial(_restore_and_merge, store))
        self._reserve_ticker.start()
        server_process.save_options(self._home, self._restart_options)
        failpoint("node.start.before_discovery")
        self._is_public = True
        self._publish()
        log.info("event=started address=%s:%d epoch=%d", server.host, server.port, coordinator.epoch)

    def _open_page(self, tablets: Tablets) -> MetricsPage | None:
        assert self._server is not None
        assert self._coordinator is not None
        collectors: list[Collector] = [partial(request_families, self._server.calls), self._coordinator.metrics]
        if isinstance(tablets, ResidentTablet) and tablets.tablet is not None:
            collectors.append(tablets.tablet.metrics)
        page = open_page(self.options, self.secret, *collectors)
        if page is not None:
            self._coordinator.metrics_ports[discovery.NO_TABLET] = page.port
        return page

    def _publish(self) -> None:
        """Write the discovery file, between the end of the start and the beginning of the stop; never into another lab's folder."""
        with self._publishing:
            if self._is_public and self.folder_trouble is None and not self._stop_requested.is_set():
                discovery.write(self.folder, self._entry(), *self.tablets.entries(), ephemeral=self.ephemeral)

    def _republish(self) -> None:
        """Update the discovery file after tablet servers came or went; a failure waits for the next update."""
        try:
            self._publish()
        except OSError as error:
            log.error("event=not_published folder=%s error=%s", self.folder, error)

    def _unpublish(self) -> None:
        with self._publishing:
            if self._is_public:
                self._is_public = False
                discovery.remove(self.folder, self._entry())

    def _entry(self) -> discovery.ServerEntry:
        host, port = self.address
        roles = ("coordinator", "tablet") if isinstance(self._tablets, ResidentTablet) else ("coordinator",)
        return discovery.ServerEntry(
            os.getpid(), host, port, str(self._home / discovery.TOKEN_FILE), roles,
            RESIDENT_ID if "tablet" in roles else discovery.NO_TABLET, discovery.process_start_ticks(os.getpid()),
            self.trust,
        )  # fmt: skip

    @property
    def folder_trouble(self) -> str | None:
        """Return why the folder at the path is not the one that is served, and what to do; None: it is, or serving has not begun."""
        return None if self._coordinator is None else self._coordinator.store.reserve.folder_trouble

    @property
    def is_abandoned(self) -> bool:
        """Return whether nobody is attached, and nobody finds it: its folder is no longer at the path."""
        if self._coordinator is None or self.folder_trouble is None:
            return False
        return self._coordinator.describe_cluster(pb.DescribeClusterRequest()).attached == 0

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until a stop is requested; return False when the time is up first. Then call `stop`."""
        return self._stop_requested.wait(timeout_s)

    def ask_stop(self) -> None:
        """Request a stop and return at once; safe in a signal handler."""
        self._stop_requested.set()

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Refuse new calls, let running ones end, make everything durable, release the folder. May be called twice.

        Args:
            grace_s: Time limit of running calls.
        """
        self._stop_requested.set()
        with self._stopping:
            if self._stopped.is_set():
                return
            # First of all: attached processes must see that this stop is intended.
            self._unpublish()
            if self._coordinator is not None:
                self._coordinator.end_sessions()
            if self._tablets is not None:
                self._tablets.interrupt()
            self._release(grace_s)
            self._stopped.set()
            log.info("event=stopped")

    def _release(self, grace_s: float = 0.0) -> None:
        if self._reserve_ticker is not None:
            self._reserve_ticker.stop()
        # Tablet servers first: their last snapshots still call the coordinator.
        if self._tablets is not None:
            self._tablets.stop(grace_s)
        if self._page is not None:
            self._page.stop()
        if self._server is not None:
            self._server.stop(grace_s)
        if self._coordinator is not None:
            self._coordinator.close()
        if self._home != self.folder and self._lock.is_held:
            read_only_lab.clear(self._home)
        self._lock.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _restore_and_merge(store: MetadataStore) -> None:
    store.reserve.restore()
    store.merge()


def _token_of(folder: Path) -> str:
    path = folder / discovery.TOKEN_FILE
    if not path.exists():
        tokens.write_token(path, tokens.make_token())
    return tokens.read_token(path)
