"""A proxy before an HTTP server or a database, which counts requests and does to them what a test asks for."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from fluss_lab.closing import Closing
from tools.beyond.faults import (
    Answer,
    ArmedFault,
    CutAnswer,
    Delay,
    Fault,
    Hang,
    Hold,
    LoseAnswer,
    Repeat,
    Reset,
    SwapAnswer,
)
from tools.beyond.http_wire import Head, Wire, WireClosedError

_CONNECT_TIMEOUT_S: Final = 10.0
_CONNECTIONS_WAITING: Final = 64
_LEFT_TIMEOUT_S: Final = 1.0
_RAW_BYTES: Final = 64 * 1024
#: SO_LINGER of no time: closing resets.
_RESET_NOW: Final = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Request:
    """A request that came: its method, its path with the query, and the status that the server answered, 0 until it does."""

    method: str
    path: str
    status: int = 0


class FaultProxy(Closing):
    """A proxy on loopback. Use it as a context manager; every method may be called in any thread.

    Args:
        port: Of the server behind it, on loopback.
        is_http: Whether it speaks HTTP; else bytes are passed on as they come, and only `stop` and `reset_all` harm them.
    """

    def __init__(self, port: int, *, is_http: bool = True) -> None:
        self._upstream = ("127.0.0.1", port)
        self._is_http = is_http
        self._lock = threading.Lock()
        self._armed: list[ArmedFault] = []
        self._requests: list[Request] = []
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._listener: socket.socket | None = None
        self.port = 0
        self.start()

    @property
    def endpoint(self) -> str:
        """Return its URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[Request]:
        """Return the requests so far, as they came."""
        with self._lock:
            return list(self._requests)

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Give a counter that has the block's requests by method when it ends."""
        before, found = len(self.requests), Counter[str]()
        yield found
        found.update(each.method for each in self.requests[before:])

    def arm(
        self, fault: Fault, *, method: str | None = None, path: str = "", first: int = 1, times: int | None = 1
    ) -> ArmedFault:
        """Have a fault strike requests; see `ArmedFault`. The one armed first goes first."""
        armed = ArmedFault(fault, method, path, first, times)
        with self._lock:
            self._armed.append(armed)
        return armed

    def disarm(self) -> None:
        """Do no harm from now on; requests that hang are reset, those that are held are passed on."""
        with self._lock:
            armed, self._armed = self._armed, []
        for each in armed:
            each.disarmed.set()

    def start(self) -> None:
        """Listen, again on the same port after `stop`."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(_CONNECTIONS_WAITING)
        self.port = int(listener.getsockname()[1])
        self._listener = listener
        self._thread(self._accept, listener)

    def stop(self) -> None:
        """Refuse connections, and reset those that are open."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # Closing alone does not wake who accepts.
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.reset_all()

    def reset_all(self) -> None:
        """Reset the connections that are open."""
        with self._lock:
            found = list(self._open)
        for each in found:
            _reset(each, socket.SHUT_RDWR)

    def close(self) -> None:
        """End it and its threads."""
        self.disarm()
        self.stop()
        with self._lock:
            threads = list(self._threads)
        for each in threads:
            each.join(_CONNECT_TIMEOUT_S)

    # -- connections ---------------------------------------------------------------------------------------------------

    def _thread(self, action: Callable[..., None], *arguments: object) -> threading.Thread:
        def run() -> None:
            try:
                action(*arguments)
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name=f"fault-proxy-{self.port}", daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()
        return thread

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._thread(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        self._hold(client)
        try:
            if self._listener is None:
                _reset(client)
            elif self._is_http:
                wire = Wire(client)
                while (head := wire.head()) is not None and self._listener is not None and self._exchange(wire, head):
                    pass
            else:
                self._relay(client)
        except (OSError, WireClosedError, ValueError):
            _reset(client)
        finally:
            self._release(client)

    def _relay(self, client: socket.socket) -> None:
        with self._server() as server:
            answers = self._thread(_copy, server, client)
            _copy(client, server)
            answers.join()

    @contextmanager
    def _server(self) -> Iterator[socket.socket]:
        server = socket.create_connection(self._upstream, _CONNECT_TIMEOUT_S)
        server.settimeout(None)
        self._hold(server)
        try:
            yield server
        finally:
            self._release(server)

    def _hold(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open.add(connection)

    def _release(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()

    # -- requests ------------------------------------------------------------------------------------------------------

    def _exchange(self, client: Wire, head: Head) -> bool:
        """Answer a request; return whether the connection goes on."""
        method, path = head.first[0], head.first[1]
        request = Request(method, path)
        with self._lock:
            self._requests.append(request)
            armed = next((each for each in self._armed if each.strikes(method, path)), None)
        fault = armed.fault if armed is not None else None
        if armed is not None and isinstance(fault, Delay):
            armed.disarmed.wait(fault.seconds)
        if armed is not None and isinstance(fault, Hang):
            armed.disarmed.wait()
        if isinstance(fault, Reset | Hang):
            _reset(client.connection)
        elif isinstance(fault, Answer):
            _answer(client, head, fault)
        elif armed is not None and path in armed.answers:
            client.connection.sendall(armed.answers[path])
        else:
            body = client.body(head)
            if armed is not None and isinstance(fault, Hold):
                body = iter(list(body))
                armed.held.set()
                armed.disarmed.wait()
            # A connection of its own for each request: none is old, whatever the server thinks of idle ones.
            with self._server() as server:
                _pass_on(client, Wire(server), head, body, armed, request)
        return fault is None or isinstance(fault, Delay | Hold | Repeat)


def _pass_on(
    client: Wire, server: Wire, head: Head, sent: Iterator[bytes], armed: ArmedFault | None, request: Request
) -> None:
    """Pass a request on, and its answer as far as the fault lets it."""
    fault = armed.fault if armed is not None else None
    server.connection.sendall(head.data)
    waits = "100-continue" in head.headers.get("expect", "").lower()
    answer = _next_head(server) if waits else None
    if answer is not None and answer.status == 100:
        client.connection.sendall(answer.data)
        answer = None
    if answer is None:
        for data in sent:
            server.connection.sendall(data)
        answer = _next_head(server)
    request.status = answer.status
    empty = head.first[0] == "HEAD" or answer.status in {204, 304}
    body = iter(()) if empty else server.body(answer, until_closed=True)
    match fault:
        case LoseAnswer():
            for _ in body:
                pass
            _reset(client.connection)
        case SwapAnswer():
            for _ in body:
                pass
            _send(client, head, fault)
        case CutAnswer():
            client.connection.sendall(answer.data)
            left = fault.body_bytes
            for data in body:
                client.connection.sendall(data[:left])
                left -= len(data[:left])
            _reset(client.connection)
        case Repeat() if armed is not None:
            armed.answers[request.path] = answer.data + b"".join(body)
            client.connection.sendall(armed.answers[request.path])
        case _:
            client.connection.sendall(answer.data)
            for data in body:
                client.connection.sendall(data)
            if not empty and answer.size is None and not answer.is_chunked:
                _end(client.connection)


def _next_head(server: Wire) -> Head:
    head = server.head()
    if head is None:
        raise WireClosedError("the server closed the connection before it answered")
    return head


def _answer(client: Wire, head: Head, fault: Answer) -> None:
    if "100-continue" not in head.headers.get("expect", "").lower():
        for _ in client.body(head):
            pass
    _send(client, head, fault)


def _send(client: Wire, head: Head, fault: Answer | SwapAnswer) -> None:
    """Send an answer, and end the connection."""
    text = (
        f"HTTP/1.1 {fault.status} Fault\r\nContent-Type: {fault.content_type}\r\n"
        f"Content-Length: {len(fault.body)}\r\nConnection: close\r\n\r\n"
    )
    client.connection.sendall(text.encode() + (b"" if head.first[0] == "HEAD" else fault.body))
    _end(client.connection)
    # What is left unread would have the closing reset the connection, and the answer be lost.
    client.connection.settimeout(_LEFT_TIMEOUT_S)
    while client.connection.recv(_RAW_BYTES):
        pass


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(_RAW_BYTES):
            target.sendall(data)
    except OSError:
        _reset(target)
    else:
        _end(target)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)


def _reset(connection: socket.socket, how: int = socket.SHUT_RD) -> None:
    """Have the closing, by the thread that serves the connection, reset it; that thread finds nothing more to read.

    With ``SHUT_RDWR``, for whoever is not that thread, the other side finds it ended at once.
    """
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_NOW)
        connection.shutdown(how)
