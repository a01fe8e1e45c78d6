"""The start, attachment and stop of a lab's server, from any process."""

from __future__ import annotations

import _thread
import logging
import os
import shlex
import signal
import socket
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fluss_lab.closing import Closing
from fluss_lab.errors import (
    AuthenticationError,
    FlussError,
    RequestTimeoutError,
    ServerUnavailableError,
    UnavailableError,
)
from fluss_lab.interrupts import Flag, Held, join_threads
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.access.tls import Trust, reachable
from fluss_lab.rpc.access.token import read_token
from fluss_lab.rpc.channel import Channel
from fluss_lab.server.folder.lab_folder import make_lab_folder
from fluss_lab.server.process import discovery
from fluss_lab.server.process.discovery import Discovery, ServerEntry, is_alive
from fluss_lab.server.process.server_process import (
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    read_options,
    running_server,
    start_server,
    wait_until_gone,
)
from fluss_lab.server.server_options import SplitOptions, split_options

__all__ = [
    "Attachment",
    "CoordinatorEndpoint",
    "Discovery",
    "ServerEntry",
    "SplitOptions",
    "ensure_server",
    "is_alive",
    "locate",
    "read_discovery",
    "read_options",
    "running_server",
    "split_options",
    "start_server",
    "stop_server",
    "wait_until_gone",
]

log = logging.getLogger(__name__)

#: Pause before attaching again: a stopping server needs a moment to remove its discovery file.
REATTACH_PAUSE_S: Final = 0.1
#: A server that is asked to stop answers before it begins to.
STOP_CALL_TIMEOUT_S: Final = 10.0
#: So long is a server that did not answer watched before it is asked to stop again.
UNHEARD_STOP_S: Final = 2.0
#: So long is a token that is not there waited for, by who attaches first: a file that is replaced, or a folder that is moved.
TOKEN_WAIT_S: Final = 5.0
#: Pause while no server runs and this process must not start one: another may.
ABSENT_PAUSE_S: Final = 0.5
#: Pause after a failed start, doubled with each further one: a full disk may be cleared, a damaged lab may not.
START_PAUSE_S: Final = 2.0
START_PAUSE_MAX_S: Final = 60.0
#: Longest wait of `close` for the stream's end; the stream is cancelled at once.
CLOSE_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class CoordinatorEndpoint:
    """Where a cluster's coordinator listens, its token, and its certificate authority with TLS."""

    host: str
    port: int
    token: str = field(repr=False)
    trust: Trust | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def read_discovery(folder: Path) -> Discovery | None:
    """Return the content of the folder's discovery file; None when it does not exist.

    Raises:
        LabError: It cannot be parsed.
    """
    return discovery.read(folder)


def locate(folder: Path) -> CoordinatorEndpoint:
    """Return where the folder's coordinator listens, from its discovery file.

    Raises:
        ServerUnavailableError: The file does not exist: no server runs.
        AuthenticationError: The token file is missing, or readable by others.
    """
    found = discovery.read(folder)
    if found is None:
        raise ServerUnavailableError(
            f"{folder}: no server runs there; start one with `fluss-lab up {shlex.quote(str(folder))}`"
        )
    server = found.servers[0]
    return CoordinatorEndpoint(reachable(server.host), server.port, read_token(Path(server.token_file)), server.trust)


def ensure_server(
    folder: Path,
    command: Sequence[str],
    options: Mapping[str, str] | None = None,
    *,
    on_lost: Callable[[], None] | None = None,
) -> Attachment:
    """Attach to the server of a folder; start an ephemeral one when none runs.

    Args:
        folder: The lab's folder; created when absent.
        command: Runs ``fluss-lab server``.
        options: Server options for a server that must be started; a running one keeps its own.
        on_lost: Called, in a thread of its own, each time the attached server was stopped on purpose.

    Raises:
        LabError: The folder is a file, another user's, or others may write in it.
        FlussError: The server could not start (LabLockedError, LabMovedError, InvalidPropertyError, ...).
        ServerUnavailableError: It died while starting; the message has the end of its log.
    """
    make_lab_folder(folder)
    attachment = Attachment(folder, command, options or {}, on_lost)
    attachment.open()
    return attachment


def stop_server(folder: Path) -> bool:
    """Stop the server of a folder gracefully, and wait until its processes are gone: tablet servers first.

    One whose certificate is out of date, or whose token is not known by now, is asked by a signal.

    Returns:
        False when none ran; the discovery file of a killed one is removed.

    Raises:
        AuthenticationError: The token cannot be read, and it is another user's server.
        RequestTimeoutError: It did not end in time.
    """
    found = discovery.read(folder)
    if found is None:
        return False
    if running_server(folder) is None:
        discovery.remove(folder)
        return False
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while not _request_stop(folder, found.servers[0]) and time.monotonic() < deadline:
        # It may be stopping already, or stand still: then it has not heard of it.
        with suppress(RequestTimeoutError):
            wait_until_gone(found, UNHEARD_STOP_S)
            return True
    wait_until_gone(found)
    return True


def _request_stop(folder: Path, server: ServerEntry) -> bool:
    """Ask a server to stop; return whether it has heard of it."""
    try:
        place = locate(folder)
        channel = Channel(place.host, place.port, place.token, trust=place.trust, call_timeout_s=STOP_CALL_TIMEOUT_S)
        try:
            channel.coordinator().stop_cluster(pb.StopClusterRequest())
        finally:
            channel.close()
    except AuthenticationError as error:
        # It would run for ever, and keep who mends certificate or token from starting one with it.
        if server.pid == os.getpid() or server.started < 0 or not is_alive(server):  # perhaps another process by now
            raise
        log.info("event=stop_signalled process=%s error=%s", server.pid, error)
        try:
            os.kill(server.pid, signal.SIGTERM)
        except PermissionError:
            raise error from None
    except UnavailableError as error:
        log.info("event=stop_unanswered error=%s", error)
        return False
    return True


class Attachment(Closing):
    """This process's attachment to a lab's server: a stream kept open in the background.

    When the stream breaks it is reopened. When the server was killed (its discovery file still exists) it is restarted, in the
    same mode and with the same options; when it was stopped on purpose it is not.
    """

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        options: Mapping[str, str],
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self._command = list(command)
        self._options = dict(options)
        self._on_lost = on_lost
        self._pid = os.getpid()
        self._session_id: int | None = None
        self._begun_s = time.monotonic()
        self._attached = Flag()
        self._failure: FlussError | None = None
        self._closing = Flag()
        self._stream_closed = Flag()
        self._place: CoordinatorEndpoint | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="fluss-attachment", daemon=True)

    def __repr__(self) -> str:
        return f"<Attachment {self.folder} session {self._session_id}>"

    @property
    def session_id(self) -> int | None:
        """Return the present session's id; None while no server answers, and in a forked child."""
        return self._session_id if os.getpid() == self._pid else None

    def address(self) -> CoordinatorEndpoint:
        """Return where the server listens now.

        Raises:
            ServerUnavailableError: No server runs.
        """
        return locate(self.folder)

    def open(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Attach for the first time, starting a server when none runs.

        Raises:
            FlussError: See `ensure_server`.
        """
        me = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _detach_in_child(me))
        with Held():
            self._thread.start()
        try:
            attached = self._attached.wait(timeout_s)
        except BaseException:
            self.close()
            raise
        if not attached:
            self.close()
            raise ServerUnavailableError(f"{self.folder}: no server could be attached to in {timeout_s:.0f} s")
        if self._failure is not None:
            self.close()
            raise self._failure

    def close(self) -> None:
        """Detach from the server. May be called twice; in a forked child nothing happens."""
        if os.getpid() != self._pid:
            return
        with Held():
            self._closing.set()
            with self._lock:
                self._stream_closed.set()
            join_threads([self._thread], CLOSE_TIMEOUT_S)

    def ends_with(self, owner: object) -> None:
        """Detach when an object is garbage-collected: a lab that was never closed, or whose opening was interrupted."""
        # In a thread of its own: garbage is collected anywhere, also while this thread holds a lock that detaching needs.
        weakref.finalize(owner, _thread.start_new_thread, self.close, ()).atexit = False

    def leave(self, sessions: Iterable[int] = ()) -> None:
        """Detach from the server; an ephemeral one is stopped now if this process is its last.

        When this returns it is gone, and nothing changes in its folder. A process that opens the lab meanwhile either attaches
        before, and keeps the server, or starts another one when it is gone.

        Args:
            sessions: Other sessions of this process, closed already, though the server may not know it yet.

        Raises:
            RequestTimeoutError: It has not ended in a minute.
        """
        if os.getpid() != self._pid:
            return
        self._closing.set()  # from now on this process neither attaches nor starts it again
        try:
            with Held():
                ending = self._end_if_last(sessions)
        finally:
            self.close()
        if ending is not None:
            wait_until_gone(ending)

    def _end_if_last(self, sessions: Iterable[int]) -> Discovery | None:
        """Return the processes that end; None when they do not."""
        session_id, place = self._session_id, self._place
        if session_id is None or place is None:
            return None
        try:
            found = discovery.read(self.folder)
            if found is not None and found.servers[0].port != place.port:
                found = None  # of a server in another folder that took the place of this one's
            channel = Channel(place.host, place.port, place.token, call_timeout_s=CLOSE_TIMEOUT_S, trust=place.trust)
            try:
                request = pb.StopClusterRequest(only_attached=[session_id, *sessions])
                return found if channel.coordinator().stop_cluster(request).stopping else None
            finally:
                channel.close()
        except FlussError as error:
            log.info("event=not_ended folder=%s error=%s", self.folder, error)  # it ends by itself after the grace
            return None

    # -- in the background -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failure_pause_s = START_PAUSE_S
        while not self._closing.is_set():
            try:
                pause_s = self._hold() if self._is_served() else ABSENT_PAUSE_S
                failure_pause_s = START_PAUSE_S
            except FlussError as error:
                if not self._attached.is_set():
                    self._fail(error)
                    return
                log.warning("event=not_attached folder=%s error=%s", self.folder, error)
                pause_s, failure_pause_s = failure_pause_s, min(2 * failure_pause_s, START_PAUSE_MAX_S)
            except BaseException as error:
                self._fail(ServerUnavailableError(f"{self.folder}: attaching failed: {error!r}"))
                raise
            self._closing.wait(pause_s)

    def _fail(self, error: FlussError) -> None:
        self._failure = error
        self._attached.set()

    def _is_served(self) -> bool:
        """Return whether there is a server to attach to; start one when this process must."""
        found = discovery.read(self.folder)
        if found is not None and running_server(self.folder) is not None:
            return True
        if found is None and self._attached.is_set():
            return False
        if found is None:
            start_server(self.folder, self._command, self._options, ephemeral=True)
        else:
            # It was killed: restart it with its options.
            options = {**read_options(self.folder), **({} if self._attached.is_set() else self._options)}
            start_server(self.folder, self._command, options, ephemeral=found.ephemeral)
        return True

    def _hold(self) -> float:
        """Hold one stream until it ends; return the pause before the next try."""
        try:
            place = locate(self.folder)
        except ServerUnavailableError:
            return REATTACH_PAUSE_S  # it ended between two checks
        except AuthenticationError as error:
            is_awaited = self._attached.is_set() or time.monotonic() - self._begun_s < TOKEN_WAIT_S
            is_gone = isinstance(error.__cause__, FileNotFoundError)
            if (is_gone and is_awaited) or running_server(self.folder) is None:
                return REATTACH_PAUSE_S  # or its folder was moved, and it is about to end
            raise  # however often it is asked for
        with self._lock:
            self._stream_closed = closed = Flag()
            if self._closing.is_set():
                return 0.0
        self._place = place
        channel = Channel(place.host, place.port, place.token, trust=place.trust)
        try:
            request = pb.AttachRequest(client_name=f"process {os.getpid()}")
            for response in channel.coordinator().attach(request, closed):
                self._session_id = int(response.session_id)
                self._attached.set()
        except UnavailableError as error:
            log.debug("event=stream_broken folder=%s error=%s", self.folder, error)
        finally:
            was_attached, self._session_id = self._session_id is not None, None
            closed.set()
            channel.close()
        if was_attached and not self._closing.is_set():
            self._report_lost()
        return REATTACH_PAUSE_S

    def _report_lost(self) -> None:
        if self._on_lost is not None and discovery.read(self.folder) is None:
            threading.Thread(target=self._on_lost, name="fluss-lost", daemon=True).start()


def _detach_in_child(reference: weakref.ref[Attachment]) -> None:
    """In a forked child: close the inherited connection, or the server would count the parent as alive.

    gRPC does so too, but not where its fork handlers are disabled, nor while another thread is in a call.
    """
    attachment = reference()
    if attachment is None or (place := attachment._place) is None:
        return
    try:
        names = os.listdir("/dev/fd")
    except OSError:
        return
    for name in names:
        _cut(int(name), place)


def _cut(fd: int, place: CoordinatorEndpoint) -> None:
    """Replace a descriptor that is a connection to a server by ``/dev/null``. Its number stays in use."""
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return
        with socket.socket(fileno=os.dup(fd)) as copy:
            if copy.family not in {socket.AF_INET, socket.AF_INET6}:
                return  # a notebook's kernel uses Unix sockets
            peer = copy.getpeername()
        # gRPC's sockets are of IPv6, with IPv4 addresses in it.
        if (str(peer[0]).removeprefix("::ffff:"), peer[1]) == (place.host, place.port):
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(nothing, fd, inheritable=False)
            os.close(nothing)
    except OSError:
        return
