"""The gateways' first transport: gRPC to our own servers.

Channels are made lazily and per process: a forked Spark worker may import this module but must make its own.

gRPC's Python takes locks that an interrupt of the main thread would leave locked for ever. So nothing of it runs there
but within `Held`: an interrupt cancels the call from a thread of its own, and is delivered when gRPC has been left.
"""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from fluss_lab.errors import ServerUnavailableError
from fluss_lab.interrupts import Held
from fluss_lab.rpc import error_status
from fluss_lab.rpc.access import token
from fluss_lab.rpc.access.tls import Trust, target
from fluss_lab.rpc.gateway import CoordinatorGateway, TabletServerGateway
from fluss_lab.rpc.grpc_module import grpc
from fluss_lab.rpc.rpc_methods import CALL_TIMEOUT_S, COORDINATOR, DDL, TABLET_SERVER, Method, method_of

#: Short calls use gRPC's fastest form for so long, which an interrupt cannot cancel: they take less than a millisecond, and
#: the other form a twentieth more. They may be sent twice.
_BRIEFLY_S: Final = 0.5
_BRIEF: Final = frozenset({
    "describe_buckets", "get_lake_snapshot", "get_table_info", "get_table_schema", "init_writer",
    "list_offsets", "list_partition_infos", "lookup", "metadata",
})  # fmt: skip

#: An interrupt lets a change of a table go on for so long, which mostly ends it: else it may be done after what is called next. A second
#: interrupt does not.
_SETTLE_S: Final = 2.0
_SETTLE_INTERVAL_S: Final = 0.02

#: How long a server may take to greet a new connection: on a machine under load seconds. (gRPC calls it the least time
#: between attempts, but waits no longer for the greeting; the pause after a refused attempt is the initial one.)
_GREETING_MS: Final = 10_000

_OPTIONS: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", _GREETING_MS),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
    ("grpc.lb_policy_name", "pick_first"),
)
#: Answers are received by the thread that waits for them, not by one that gRPC starts. Not for lasting streams: one that is
#: cancelled in this form keeps its connection.
_ANSWERS: Final = (("SingleThreadedUnaryStream", 1),)


class Channel:
    """One connection to one server; its gateways share it. Close it when done.

    Args:
        host: Of the server.
        port: Of the server.
        secret: Its token.
        call_timeout_s: Longest wait for the answer to a short call; a long poll has it on top of its own wait.
        trust: What to expect of a server with TLS; None: it speaks plainly.
        idle_s: After so long without a call the server is left; the next call connects again. None: it is kept for half an
            hour.
    """

    def __init__(
        self,
        host: str,
        port: int,
        secret: str,
        *,
        call_timeout_s: float = CALL_TIMEOUT_S,
        trust: Trust | None = None,
        idle_s: float | None = None,
    ) -> None:
        self.address = target(host, port)
        self._call_timeout_s = call_timeout_s
        self._trust = trust
        self._streaming: list[Any] = []
        with Held():
            leaving = () if idle_s is None else (("grpc.client_idle_timeout_ms", int(idle_s * 1000)),)
            self._channel = self._make_channel((*_ANSWERS, *leaving))
        self._metadata = (token.header_of(secret),)

    def __repr__(self) -> str:
        return f"<Channel {self.address}>"

    def coordinator(self) -> CoordinatorGateway:
        """Return the coordinator behind this connection."""
        return cast(CoordinatorGateway, _Gateway(lambda name: self._call(COORDINATOR, name)))

    def tablet_server(self) -> TabletServerGateway:
        """Return the tablet server behind this connection."""
        return cast(TabletServerGateway, _Gateway(lambda name: self._call(TABLET_SERVER, name)))

    def close(self) -> None:
        """End the connection; calls under way fail with `ServerUnavailableError`."""
        with Held():
            channels = [self._channel, *self._streaming]
            while channels:
                channels.pop().close()

    def _make_channel(self, options: tuple[tuple[str, int], ...] = ()) -> Any:
        if self._trust is None:
            return grpc.insecure_channel(self.address, options=(*_OPTIONS, *options))
        secured = (*_OPTIONS, *options, *self._trust.options())
        return grpc.secure_channel(self.address, self._trust.credentials(), options=secured)

    def _call(self, service: str, name: str) -> Callable[..., Any]:
        method = method_of(service, name)
        with Held():
            try:
                return self._stream(method) if method.streams else self._unary(method)
            except ValueError as error:  # what gRPC raises for a closed channel
                raise ServerUnavailableError(f"{name} at {self.address}: the connection is closed ({error})") from None

    def _unary(self, method: Method) -> Callable[[Any], Any]:
        call = self._channel.unary_unary(
            method.path, request_serializer=method.encode_request, response_deserializer=method.decode_response
        )
        # On the wire the same call, in a form that can be cancelled while the calling thread waits for it.
        cancellable = self._channel.unary_stream(
            method.path, request_serializer=method.encode_request, response_deserializer=method.decode_response
        )
        what, is_brief = f"{method.name} at {self.address}", method.name in _BRIEF
        settle_s = _SETTLE_S if method.name in DDL else 0.0

        def invoke(request: Any) -> Any:
            with Held() as held:
                try:
                    timeout_s = method.timeout_s(request, self._call_timeout_s)
                    if not held.is_interruptible:
                        return call(request, timeout=timeout_s, metadata=self._metadata)
                    if is_brief:
                        try:
                            return call(request, timeout=min(_BRIEFLY_S, timeout_s), metadata=self._metadata)
                        except grpc.RpcError as failure:
                            if failure.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                                raise
                            held.deliver()
                    held.deliver()
                    return _answer(held, cancellable(request, timeout=timeout_s, metadata=self._metadata), settle_s)
                except grpc.RpcError as failure:
                    held.deliver()  # if that is what cancelled it
                    raise error_status.error_of(failure, what) from None
                except ValueError as error:  # what gRPC raises for a closed channel
                    raise ServerUnavailableError(f"{what}: the connection is closed ({error})") from None

        return invoke

    def _stream(self, method: Method) -> Callable[[Any, threading.Event], Iterator[Any]]:
        what = f"{method.name} at {self.address}"

        def invoke(request: Any, closed: threading.Event) -> Iterator[Any]:
            channel = self._make_channel()
            self._streaming.append(channel)
            call = channel.unary_stream(
                method.path, request_serializer=method.encode_request, response_deserializer=method.decode_response
            )
            stream = call(request, metadata=self._metadata)
            watcher = threading.Thread(target=lambda: (closed.wait(), stream.cancel()), daemon=True)
            watcher.start()
            try:
                yield from stream
            except grpc.RpcError as failure:
                if not closed.is_set():
                    raise error_status.error_of(failure, what) from None
            finally:
                closed.set()
                self._streaming.remove(channel)
                channel.close()

        return invoke


def _answer(held: Held, stream: Any, settle_s: float) -> Any:
    """Return the one answer of a call; an interrupt cancels it, the first one after a time."""
    answers: list[Any] = []
    delays_s = [settle_s]

    def cancel(delay_s: float) -> None:
        until_s = time.monotonic() + delay_s
        while not answers and time.monotonic() < until_s:
            time.sleep(_SETTLE_INTERVAL_S)
        stream.cancel()

    def wake() -> None:
        # Cancelling takes gRPC's locks, of which this thread may hold one when the interrupt comes.
        _thread.start_new_thread(cancel, (delays_s.pop() if delays_s else 0.0,))

    held.wait(lambda: answers.extend(stream), wake)
    if not answers:  # interrupted before anything was awaited
        stream.cancel()
        held.deliver()
        raise ServerUnavailableError("the call was cancelled before it was answered")
    return answers[0]


class _Gateway:
    """Has one callable per RPC, made when it is called first: they are dear, and few are needed."""

    def __init__(self, make: Callable[[str], Callable[..., Any]]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            call = self._make(name)
        except KeyError:
            raise AttributeError(name) from None
        setattr(self, name, call)
        return call
