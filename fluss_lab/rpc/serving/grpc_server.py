"""The gRPC server of the gateways: token first, then decoding, then the servicer; errors become statuses.

The token is checked by an interceptor, before a request's bytes are parsed, on every method. No input ends the server:
what a servicer does not foresee is logged and answered as `InternalError`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeAlias

from fluss_lab.errors import FlussError, InternalError, ResourceExhaustedError, StorageError, error_code
from fluss_lab.model.config.options import SERVER_CONNECTIONS_MAX
from fluss_lab.rpc import error_status
from fluss_lab.rpc.access import token
from fluss_lab.rpc.access.tls import LOOPBACK, Identity, target
from fluss_lab.rpc.grpc_module import grpc
from fluss_lab.rpc.rpc_methods import Method, methods_of
from fluss_lab.rpc.serving.anonymous_connections import AnonymousConnections
from fluss_lab.rpc.serving.call_metrics import CallMetrics
from fluss_lab.rpc.serving.unread_answers import ConnectionLimits, UnreadAnswers

log = logging.getLogger(__name__)

Answered: TypeAlias = Callable[[str, Any, Any], None]


#: Calls of one connection under way at once; more wait at their sender. A client process has one connection.
STREAMS_MAX: Final = 512
#: Calls that may wait for each thread of a pool; more are refused at once, instead of waiting longer than their senders.
QUEUED_PER_THREAD: Final = 64
#: Methods that hold their threads for as long as they like: waiting for one of those threads may take for ever.
LASTING: Final = frozenset({"fetch_log", "attach"})
#: How often it is looked for clients that had their time, within that time; and the pause between two looks at most.
_LOOKS: Final = 4
_LOOK_INTERVAL_MAX_S: Final = 1.0
#: Threads that refuse calls, without reading them.
_REFUSING_THREADS: Final = 2


class _CallPool(ThreadPoolExecutor):
    """Threads for calls, which know how many calls are under way or wait.

    Args:
        threads: How many.
        calls_max: Calls under way and waiting, at most.
        name: Of the threads.
    """

    def __init__(self, threads: int, calls_max: int, name: str) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self._threads_max = threads
        self.calls_max = calls_max
        self.calls = 0
        self._counting = threading.Lock()

    @property
    def is_full(self) -> bool:
        """Return whether one call more is too many."""
        return self.calls >= self.calls_max

    @property
    def is_crowded(self) -> bool:
        """Return whether calls wait for a thread."""
        return self.calls > self._threads_max

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call when a thread is free."""
        with self._counting:
            self.calls += 1
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._note_end)
        return future

    def _note_end(self, _future: Future[Any]) -> None:
        with self._counting:
            self.calls -= 1


class _TokenInterceptor(grpc.ServerInterceptor):  # type: ignore[misc] # gRPC carries no types
    """Lets only calls with the token pass, and not more than find a thread in time, before anything of them is read."""

    def __init__(self, secret: str, pool_of: Callable[[str], _CallPool], calls: CallMetrics) -> None:
        self._secret, self._pool_of, self._calls = secret, pool_of, calls
        self._refusing = ThreadPoolExecutor(_REFUSING_THREADS, thread_name_prefix="rpc-refuse")

        def refuse(_requests: Any, context: grpc.ServicerContext) -> None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")

        def turn_away(_requests: Any, context: grpc.ServicerContext) -> None:
            error = ResourceExhaustedError(
                "the server has as many calls of this kind as it takes; try again in a while"
            )
            context.set_trailing_metadata(error_status.trailers_of(error))
            context.abort(error_status.status_of(error), str(error))

        self._refuse, self._turn_away = self._unread(refuse), self._unread(turn_away)

    def _unread(self, behaviour: Callable[[Any, grpc.ServicerContext], None]) -> grpc.RpcMethodHandler:
        behaviour.experimental_thread_pool = self._refusing  # type: ignore[attr-defined]
        # Declared as a stream: gRPC reads a single request at once, but a stream only on demand.
        return grpc.stream_unary_rpc_method_handler(behaviour)

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler | None],
        details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        given = dict(details.invocation_metadata).get(token.HEADER)
        if not token.is_valid(given, self._secret):
            self._calls.unauthenticated += 1
            return self._refuse
        if self._pool_of(details.method).is_full:
            self._calls.crowded_out += 1
            return self._turn_away
        return continuation(details)

    def stop(self) -> None:
        """End the threads."""
        self._refusing.shutdown(wait=False)


class Server:
    """One listening gRPC server.

    Args:
        host: Loopback, unless there is an identity.
        port: 0 for any free one; see `port` afterwards.
        secret: The token that every call must bring.
        threads: Threads for methods without a pool of their own.
        request_bytes_max: Largest request; larger ones are refused unread.
        identity: What the server shows to callers with TLS; None: it speaks plainly.
        connections_max: Connections at once; one more is closed at once, and its client tries again.
        limits: What clients may cost; None: the options' defaults.

    Attributes:
        calls: How often its methods were called.
        unread: The answers that clients have not read yet.

    Raises:
        ValueError: A host off loopback without TLS.
        RuntimeError: The port cannot be had.
    """

    def __init__(
        self,
        host: str,
        port: int,
        secret: str,
        *,
        threads: int,
        request_bytes_max: int,
        identity: Identity | None = None,
        connections_max: int = SERVER_CONNECTIONS_MAX.default,
        limits: ConnectionLimits | None = None,
    ) -> None:
        if identity is None and host not in LOOPBACK:
            raise ValueError(f"{host}: a server off loopback needs TLS")
        limits = limits or ConnectionLimits.of({})
        options = (
            *limits.channel_options(),
            ("grpc.max_receive_message_length", request_bytes_max),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
            ("grpc.max_metadata_size", 16 * 1024),
            ("grpc.max_concurrent_streams", STREAMS_MAX),
            ("grpc.max_allowed_incoming_connections", connections_max),
        )
        self._pool = _CallPool(threads, threads * QUEUED_PER_THREAD, "rpc")
        self._pools: dict[str, _CallPool] = {}
        self.calls = CallMetrics()
        stall_s = limits.client_timeout_ms / 1000
        self.unread = UnreadAnswers(limits.unread_bytes_max, limits.connection_unread_bytes_max, stall_s)
        self._stopped = threading.Event()
        self._guard = _TokenInterceptor(secret, lambda path: self._pools.get(path, self._pool), self.calls)
        self._server = grpc.server(self._pool, interceptors=(self._guard,), options=options)
        self.host = host
        place = target(host, port)
        self.port: int = (
            self._server.add_insecure_port(place)
            if identity is None
            else self._server.add_secure_port(place, identity.credentials())
        )
        self._anonymous = AnonymousConnections(self.port, limits.handshake_timeout_ms)
        look_s = min(stall_s / _LOOKS, limits.handshake_timeout_ms / 1000 / _LOOKS, _LOOK_INTERVAL_MAX_S)
        self._watcher = threading.Thread(target=self._watch, args=(look_s,), name="rpc-watch", daemon=True)

    def add(
        self,
        service: str,
        servicer: object,
        threads: Mapping[str, int] | None = None,
        *,
        answered: Answered | None = None,
        unawaited: Answered | None = None,
    ) -> None:
        """Serve a gateway.

        Args:
            service: Its name in the protocol.
            servicer: An object with the gateway's methods.
            threads: Method name -> size of a pool of its own, for methods that wait. Calls for which it is too small
                are refused with `ResourceExhaustedError`; those that last (`LASTING`) never wait for a thread.
            answered: Called with method name, request and response of each answer that is no stream, before it is sent.
            unawaited: Called in the same way of each that is not sent: its caller has left, or its connection has no room for it.
        """
        handlers = {}
        for name, method in methods_of(service).items():
            pool = None
            if threads and name in threads:
                queued = 1 if name in LASTING else QUEUED_PER_THREAD
                self._pools[method.path] = pool = _CallPool(threads[name], threads[name] * queued, f"rpc-{name}")
            handlers[method.path.rsplit("/", 1)[1]] = _Handler(
                service, method, getattr(servicer, name), self.calls, self.unread, self._anonymous, answered, unawaited
            ).method_handler(pool)
        generic = grpc.method_handlers_generic_handler(f"fluss.{service}", handlers)
        self._server.add_generic_rpc_handlers((generic,))

    def start(self) -> None:
        """Listen and answer."""
        self._server.start()
        self._watcher.start()

    def _watch(self, interval_s: float) -> None:
        while not self._stopped.wait(interval_s):
            self.unread.expire()
            # A call that waits for a thread has brought the token, but its connection is not known yet.
            if not any(pool.is_crowded for pool in (self._pool, *self._pools.values())):
                self._anonymous.close_expired()

    def stop(self, grace_s: float) -> None:
        """Refuse new calls, let those under way end within the grace, and return when all have ended."""
        self._server.stop(grace_s).wait()
        self._stopped.set()
        for pool in (self._pool, *self._pools.values()):
            pool.shutdown(wait=False)
        self._guard.stop()


class _Handler:
    """Answers the calls of one method."""

    def __init__(
        self,
        service: str,
        method: Method,
        call: Callable[..., Any],
        calls: CallMetrics,
        unread: UnreadAnswers,
        anonymous: AnonymousConnections,
        answered: Answered | None,
        unawaited: Answered | None,
    ) -> None:
        self._service, self._method, self._call = service, method, call
        self._calls, self._unread, self._anonymous = calls, unread, anonymous
        self._answered, self._unawaited = answered, unawaited

    def method_handler(self, pool: _CallPool | None) -> grpc.RpcMethodHandler:
        """Return this as gRPC wants it; with a pool, calls are answered by its threads."""
        call = self._stream if self._method.streams else self._unary

        def behaviour(data: bytes, context: grpc.ServicerContext) -> Any:
            return call(data, context)

        if pool is not None:
            # gRPC's hook for a method that must not hold a worker of the others.
            behaviour.experimental_thread_pool = pool  # type: ignore[attr-defined]
        if self._method.streams:
            return grpc.unary_stream_rpc_method_handler(behaviour)
        return grpc.unary_unary_rpc_method_handler(behaviour)

    def _unary(self, data: bytes, context: grpc.ServicerContext) -> bytes | None:
        method, began, failed = self._method, time.perf_counter(), True
        try:
            peer = context.peer()
            self._anonymous.note_authenticated(peer)
            self._unread.check(peer)
            request = method.decode_request(data)
            response = self._call(request)
            if self._answered is not None:
                self._answered(method.name, request, response)
            answer = self._encode(context, peer, request, response)
            failed = False
            return answer
        except Exception as error:
            _abort(context, method, error)
            return None
        finally:
            self._calls.count(self._service, method.name, time.perf_counter() - began, failed)

    def _encode(self, context: grpc.ServicerContext, peer: str, request: Any, response: Any) -> bytes:
        is_awaited = False
        try:
            answer = self._method.encode_response(response)
            is_awaited = self._unread.hold(context, peer, len(answer))
        finally:
            if not is_awaited and self._unawaited is not None:
                self._unawaited(self._method.name, request, response)
        return answer

    def _stream(self, data: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        method, began, failed = self._method, time.perf_counter(), False
        closed = threading.Event()
        self._anonymous.note_authenticated(context.peer())
        if not context.add_callback(closed.set):
            return
        try:
            for response in self._call(method.decode_request(data), closed):
                yield method.encode_response(response)
        except Exception as error:
            failed = True
            _abort(context, method, error)
        finally:
            closed.set()
            self._calls.count(self._service, method.name, time.perf_counter() - began, failed)


def _abort(context: grpc.ServicerContext, method: Method, error: Exception) -> None:
    known = as_fluss_error(error, method.name)
    context.set_trailing_metadata(error_status.trailers_of(known))
    context.abort(error_status.status_of(known), error_status.shorten_message(str(known)))


def put_error(answer: Any, error: Exception, what: str) -> None:
    """Put an error into the part of an answer that it concerns; the other parts stay as they are."""
    known = as_fluss_error(error, what)
    answer.error_code, answer.error_message = error_code(known), str(known)


def as_fluss_error(error: Exception, what: str) -> FlussError:
    """Return an error as one that may travel; an unexpected one is logged with its traceback."""
    if isinstance(error, FlussError):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        log.error("%s: %s", what, error)
        return StorageError(f"{what}: {error.strerror or error}")
    log.exception("%s failed", what, exc_info=error)
    return InternalError(f"{what}: {type(error).__name__}: {error}")
