"""A tablet server with a port and a folder of its own: in a process of its own, or several in a test's process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from fluss_lab.clock import Clock
from fluss_lab.errors import AuthenticationError, ConflictError, FlussError, ServerUnavailableError, UnavailableError
from fluss_lab.failpoints import failpoint
from fluss_lab.model.config.options import SERVER_HOST, SESSION_TIMEOUT
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.access.tls import Identity
from fluss_lab.rpc.channel import Channel
from fluss_lab.rpc.gateway import CoordinatorGateway
from fluss_lab.rpc.serving.grpc_server import Server
from fluss_lab.server.folder.folder_lock import FolderLock
from fluss_lab.server.process.listener import listen, serve_tablet
from fluss_lab.server.server_metrics import MetricsPage, open_page, request_families
from fluss_lab.server.tablet.tablet_service import TabletService

log = logging.getLogger(__name__)

#: A tablet server whose coordinator was killed ends gracefully, and may have much to flush.
LOCK_WAIT_S: Final = 60.0
#: A coordinator that is starting answers after its own recovery, which takes well below a second.
REGISTER_TIMEOUT_S: Final = 60.0
REGISTER_PAUSE_S: Final = 0.05
#: How often a server checks whether the coordinator still knows it. One small call.
WATCH_INTERVAL_S: Final = 2.0
#: Heartbeats within the time-out of a session.
HEARTBEATS: Final = 5
#: Grace of running calls at a stop: a produce waits for the disk; long polls are ended earlier by their servicer.
STOP_GRACE_S: Final = 5.0


def tablet_folder(folder: Path, server_id: int) -> Path:
    """Return the folder of a tablet server in a lab's."""
    return folder / ("tablet" if server_id == 0 else f"tablet-{server_id}")


@dataclass(frozen=True, slots=True)
class CoordinatorAddress:
    """The coordinator's address and credentials, on the same machine."""

    host: str
    port: int
    secret: str = field(repr=False)
    identity: Identity | None = field(default=None, repr=False)

    def channel(self) -> Channel:
        """Open a connection."""
        trust = None if self.identity is None else self.identity.trust()
        return Channel(self.host, self.port, self.secret, trust=trust)


class CoordinatorLink:
    """The connection of a tablet server to its coordinator, reopened when the address changes.

    Args:
        locate: Returns the present address; raises `ServerUnavailableError` while no coordinator runs.
    """

    def __init__(self, locate: Callable[[], CoordinatorAddress]) -> None:
        self._locate = locate
        self._lock = threading.Lock()
        self._open: tuple[CoordinatorAddress, Channel, CoordinatorGateway] | None = None

    def gateway(self) -> CoordinatorGateway:
        """Return the coordinator's gateway.

        Raises:
            ServerUnavailableError: No coordinator runs at the moment.
        """
        place = self._locate()
        with self._lock:
            if self._open is None or self._open[0] != place:
                self._shut()
                channel = place.channel()
                self._open = place, channel, channel.coordinator()
            return self._open[2]

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._shut()

    def _shut(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


class TabletNode:
    """A tablet server. Start it once; `stop` releases everything.

    Args:
        folder: Its own folder; created when absent.
        server_id: Its id in the cluster.
        locate: Returns the coordinator's address; raises `ServerUnavailableError` while no coordinator runs.
        options: Cluster options, checked.
        clock: For timestamps.
        secret: The token that every call must have.
        identity: Its certificate; None: it serves without TLS.
        port: The port of its last run, reused if it is free; 0: any.
        process_id: Sent to the coordinator, which may only admit the process that it started; None: not sent.
        on_refused: Called when the coordinator refuses this server.
    """

    def __init__(
        self,
        folder: Path,
        server_id: int,
        locate: Callable[[], CoordinatorAddress],
        *,
        options: Mapping[str, str],
        clock: Clock,
        secret: str,
        identity: Identity | None = None,
        port: int = 0,
        process_id: int | None = None,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        self.server_id = server_id
        self._link = CoordinatorLink(locate)
        self._options = dict(options)
        self._clock = clock
        self._secret = secret
        self._identity = identity
        self._port = port
        self._process_id = process_id
        self._on_refused = on_refused
        self._lock = FolderLock(folder)
        self._stopping = threading.Event()
        self._releasing = threading.Lock()
        self._tablet: TabletService | None = None
        self._server: Server | None = None
        self._page: MetricsPage | None = None
        self._watcher: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<TabletNode {self.server_id} {self.folder}>"

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port, once started."""
        assert self._server is not None, "not started"
        return self._server.host, self._server.port

    @property
    def tablet(self) -> TabletService:
        """Return the service that answers the calls, once started."""
        assert self._tablet is not None, "not started"
        return self._tablet

    def start(self) -> None:
        """Open everything, listen, register, recover the buckets; return when calls are answered.

        Raises:
            LabLockedError: Another server uses the folder, and continues to.
            ServerUnavailableError: The coordinator does not answer, or `stop` was called.
            ConflictError: The coordinator has another server of this id.
            FlussError, OSError: The folder cannot be used; the message has the reason.
        """
        advice = "it ends soon if its coordinator is gone; if it hangs, end that process"
        self._lock.take(LOCK_WAIT_S, lambda: not self._stopping.is_set(), advice)
        try:
            self._tablet = TabletService(
                self.folder, options=self._options, clock=self._clock, coordinator=self._link.gateway
            )
            ports = [self._port] if self._port else []
            self._server = listen(self._options, self._secret, self._identity, ports)
            serve_tablet(self._server, self._tablet, self._options)
            shown = (partial(request_families, self._server.calls), self._tablet.metrics)
            self._page = open_page(self._options, self._secret, *shown, server_id=self.server_id)
            # Calls are answered from now on, the coordinator's too; with "not held" until the buckets are open.
            self._server.start()
            if self._process_id is not None:
                name = f"tablet-{self.server_id}-heartbeat"
                threading.Thread(target=self._beat, args=(self._process_id,), name=name, daemon=True).start()
            self._register_first()
            self._tablet.start()
        except BaseException:
            self.stop(0.0)
            raise
        self._watcher = threading.Thread(target=self._watch, name=f"tablet-{self.server_id}-watch", daemon=True)
        self._watcher.start()
        log.info("event=tablet_started server=%d address=%s:%d", self.server_id, *self.address)

    def ask_stop(self) -> None:
        """Interrupt a running start; return at once. `stop` must still be called."""
        self._stopping.set()

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Refuse new calls, let running ones end, make everything durable, release the folder. May be called twice.

        Args:
            grace_s: Time limit of running calls.
        """
        self._stopping.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(STOP_GRACE_S)  # or it might register once more
        with self._releasing:
            if self._tablet is not None:
                self._tablet.interrupt()
            if self._page is not None:
                self._page.stop()
            if self._server is not None:
                self._server.stop(grace_s)
            if self._tablet is not None:
                self._tablet.close()
            self._link.close()
            self._lock.release()

    # -- the coordinator ---------------------------------------------------------------------------------------------

    def _register_first(self) -> None:
        deadline = time.monotonic() + REGISTER_TIMEOUT_S
        while True:
            if self._stopping.is_set():
                raise ServerUnavailableError(f"tablet server {self.server_id} was stopped while it started")
            try:
                self._register()
                return
            except UnavailableError:
                if time.monotonic() > deadline:
                    raise
                self._stopping.wait(REGISTER_PAUSE_S)

    def _register(self) -> None:
        """Request the buckets to lead, open them, and register: only then do clients see this server."""
        host, port = SERVER_HOST.of(self._options), self.address[1]
        request = pb.RegisterTabletServerRequest(server_id=self.server_id, host=host, port=port, opening=True)
        if self._process_id is not None:
            request.process_id = self._process_id
        if self._page is not None:
            request.metrics_port = self._page.port
        response = self._link.gateway().register_tablet_server(request)
        tablet = self.tablet
        # The lake's offsets first, or a reader would find neither the lake's records nor these.
        tablet.expect_remote(response.remote_owner or None)
        tablet.set_lake_offsets(list(response.lake_offsets))
        tablet.open_buckets(list(response.buckets), response.coordinator_epoch)
        failpoint("tablet.register.before_opened")
        request.ClearField("opening")
        request.opened_epoch = response.coordinator_epoch
        self._link.gateway().register_tablet_server(request)

    def _beat(self, process_id: int) -> None:
        """Send heartbeats, whatever else this process does: the process that started it kills it without them."""
        host, port = SERVER_HOST.of(self._options), self.address[1]
        request = pb.RegisterTabletServerRequest(
            server_id=self.server_id, host=host, port=port, process_id=process_id, heartbeat=True
        )
        interval_s = SESSION_TIMEOUT.of(self._options) / 1000 / HEARTBEATS
        while not self._stopping.is_set():
            try:
                self._link.gateway().register_tablet_server(request)
            except FlussError as error:
                log.info("event=heartbeat_failed server=%d error=%s", self.server_id, error)
            self._stopping.wait(interval_s)

    def _watch(self) -> None:
        """Register again whenever the coordinator does not know this server, after its restart or after a loss."""
        while not self._stopping.wait(WATCH_INTERVAL_S):
            try:
                if not self._is_known():
                    log.info("event=unknown_to_coordinator server=%d", self.server_id)
                    self._register()
            except (ConflictError, AuthenticationError) as error:
                if not self._stopping.is_set():
                    log.warning("event=refused_by_coordinator server=%d error=%s", self.server_id, error)
                    self._on_refused()
            except FlussError as error:
                log.info("event=coordinator_away server=%d error=%s", self.server_id, error)
            except Exception:
                log.exception("tablet server %d could not register", self.server_id)

    def _is_known(self) -> bool:
        nodes = self._link.gateway().metadata(pb.MetadataRequest()).tablet_servers
        return (self.server_id, self.address[1]) in {(node.node_id, node.port) for node in nodes}
