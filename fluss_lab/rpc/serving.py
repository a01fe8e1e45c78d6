"""Serving the gateways by gRPC: token first, then decoding, then the servicer; errors become statuses.

The token is checked by an interceptor, before a request's bytes are parsed, on every method. No input ends the server:
what a servicer does not foresee is logged and answered as `InternalError`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from fluss_lab.errors import FlussError, InternalError, StorageError
from fluss_lab.rpc import status, token
from fluss_lab.rpc.grpc_module import grpc
from fluss_lab.rpc.methods import Method, methods_of

log = logging.getLogger(__name__)

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class _TokenGuard(grpc.ServerInterceptor):  # type: ignore[misc] # gRPC carries no types
    """Lets only calls with the token pass, before anything of them is parsed."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

        def refuse(_request: Any, context: grpc.ServicerContext) -> None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")

        self._refuse_unary = grpc.unary_unary_rpc_method_handler(refuse)

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler | None],
        details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        given = dict(details.invocation_metadata).get(token.HEADER)
        if token.is_valid(given, self._secret):
            return continuation(details)
        return self._refuse_unary


class Server:
    """One listening gRPC server.

    Args:
        host: Loopback only.
        port: 0 for any free one; see `port` afterwards.
        secret: The token that every call must bring.
        threads: Threads for methods without a pool of their own.
        request_bytes_max: Largest request; larger ones are refused unread.
    """

    def __init__(self, host: str, port: int, secret: str, *, threads: int, request_bytes_max: int) -> None:
        if host not in LOOPBACK:
            raise ValueError(f"{host}: a server off loopback needs TLS")
        options = (
            ("grpc.max_receive_message_length", request_bytes_max),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
            ("grpc.max_metadata_size", 16 * 1024),
        )
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rpc")
        self._pools: list[ThreadPoolExecutor] = [self._pool]
        self._server = grpc.server(self._pool, interceptors=(_TokenGuard(secret),), options=options)
        self.host = host
        self.port: int = self._server.add_insecure_port(f"{host}:{port}")

    def add(self, service: str, servicer: object, threads: Mapping[str, int] | None = None) -> None:
        """Serve a gateway.

        Args:
            service: Its name in the protocol.
            servicer: An object with the gateway's methods.
            threads: Method name -> size of a pool of its own, for methods that wait.
        """
        handlers = {}
        for name, method in methods_of(service).items():
            pool = None
            if threads and name in threads:
                pool = ThreadPoolExecutor(threads[name], thread_name_prefix=f"rpc-{name}")
                self._pools.append(pool)
            handlers[method.path.rsplit("/", 1)[1]] = _handler(method, getattr(servicer, name), pool)
        generic = grpc.method_handlers_generic_handler(f"fluss.{service}", handlers)
        self._server.add_generic_rpc_handlers((generic,))

    def start(self) -> None:
        """Listen and answer."""
        self._server.start()

    def stop(self, grace_s: float) -> None:
        """Refuse new calls, let those under way end within the grace, and return when all have ended."""
        self._server.stop(grace_s).wait()
        for pool in self._pools:
            pool.shutdown(wait=False)


def _handler(method: Method, call: Callable[..., Any], pool: ThreadPoolExecutor | None) -> grpc.RpcMethodHandler:
    def unary(data: bytes, context: grpc.ServicerContext) -> bytes | None:
        try:
            return method.encode_response(call(method.decode_request(data)))
        except Exception as error:
            _abort(context, method, error)
            return None

    def stream(data: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        closed = threading.Event()
        if not context.add_callback(closed.set):
            return
        try:
            for response in call(method.decode_request(data), closed):
                yield method.encode_response(response)
        except Exception as error:
            _abort(context, method, error)
        finally:
            closed.set()

    behaviour: Callable[..., Any] = stream if method.streams else unary
    if pool is not None:
        # gRPC's hook for a method that must not hold a worker of the others.
        behaviour.experimental_thread_pool = pool  # type: ignore[attr-defined]
    if method.streams:
        return grpc.unary_stream_rpc_method_handler(behaviour)
    return grpc.unary_unary_rpc_method_handler(behaviour)


def _abort(context: grpc.ServicerContext, method: Method, error: Exception) -> None:
    known = as_fluss_error(error, method.name)
    context.set_trailing_metadata(status.trailers_of(known))
    context.abort(status.status_of(known), status.shortened(str(known)))


def as_fluss_error(error: Exception, what: str) -> FlussError:
    """Return an error as one that may travel; what nobody foresaw is logged with its traceback."""
    if isinstance(error, FlussError):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        log.error("%s: %s", what, error)
        return StorageError(f"{what}: {error.strerror or error}")
    log.exception("%s failed", what, exc_info=error)
    return InternalError(f"{what}: {type(error).__name__}: {error}")
