"""The metrics page: text over HTTP, on loopback, for holders of the token."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from fluss_lab.errors import LabError
from fluss_lab.model.config.options import METRICS_PORT
from fluss_lab.rpc.access import token
from fluss_lab.server.metrics.server_metrics import Collector, MetricsRegistry, process_families

log = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
PATH: Final = "/metrics"
#: For a request and its answer together, however slowly its bytes arrive: Prometheus itself waits 10 s.
_REQUEST_TIMEOUT_S: Final = 5.0
#: Concurrent requests, each with a thread; one more ends the oldest.
_REQUESTS_MAX: Final = 8
#: How often requests past their time-out are ended.
_LOOK_INTERVAL_S: Final = 0.2


class MetricsPage:
    """Serves a process's metrics at ``http://127.0.0.1:<port>/metrics``. Start it once; `stop` releases it.

    Every request must bring the cluster's token, as calls do: ``Authorization: Bearer <token>`` (in Prometheus's
    configuration: ``authorization: {credentials_file: <folder>/token}``).

    Args:
        metrics: The metrics to serve.
        port: 0 for any free one; see `port` afterwards.
        secret: The token.

    Raises:
        LabError: The port cannot be used.
    """

    def __init__(self, metrics: MetricsRegistry, port: int, secret: str) -> None:
        try:
            self._server = _Server((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise LabError(
                f"metrics port {port}: {error}; choose another one ({METRICS_PORT.key}), 0 for any, or -1 for none"
            ) from error
        self._server.metrics, self._server.secret = metrics, secret
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve, name="metrics", daemon=True)

    def start(self) -> None:
        """Serve requests from now on, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; running requests are answered. May be called twice."""
        if self._thread.is_alive():
            self._server.wake()
            self._thread.join()
        self._server.server_close()
        self._server.finish()


def open_page(
    options: Mapping[str, str], secret: str, *collectors: Collector, server_id: int | None = None
) -> MetricsPage | None:
    """Return the metrics page of this process, started; None where the options disable it.

    Args:
        options: Cluster options. A port given there is the coordinator's; a tablet server with a process of its own
            uses that port + 1 + its id.
        secret: The token that every request must bring.
        collectors: Yield the metrics, beside those of the process itself.
        server_id: The id of a tablet server with a process of its own; None for the coordinator's.

    Raises:
        LabError: The port cannot be used.
    """
    port = METRICS_PORT.of(options)
    if port < 0:
        return None
    metrics = MetricsRegistry()
    for collector in (process_families, *collectors):
        metrics.add(collector)
    page = MetricsPage(metrics, port + 1 + server_id if port and server_id is not None else port, secret)
    page.start()
    log.info("event=metrics address=http://%s:%d%s", HOST, page.port, PATH)
    return page


class _Server(ThreadingMixIn, HTTPServer):
    """An HTTP server that ends slow requests: a caller that sends byte by byte never meets a socket's time-out."""

    metrics: MetricsRegistry
    secret: str
    request_queue_size = 64
    #: `handle_request` is called when a request is ready.
    timeout = 0
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._changed = threading.Condition()
        self._began_s: dict[socket.socket, float] = {}
        # The inherited loop ends up to an interval late: this one is woken.
        self._ended, self._waker = socket.socketpair()
        try:
            super().__init__(address, handler)
        except BaseException:
            self._close_pair()
            raise

    def serve(self) -> None:
        """Answer requests until `wake`."""
        with selectors.DefaultSelector() as selector:
            for each in (self, self._ended):
                selector.register(each, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(_LOOK_INTERVAL_S)]
                if self._ended in ready:
                    return
                if ready:
                    self.handle_request()
                self.service_actions()

    def wake(self) -> None:
        """Have `serve` return at once."""
        self._waker.send(b"e")

    def server_close(self) -> None:
        """Release the port."""
        super().server_close()
        self._close_pair()

    def _close_pair(self) -> None:
        self._ended.close()
        self._waker.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; with too many requests, close the connection of the oldest."""
        with self._changed:
            for each in list(self._began_s)[: max(0, len(self._began_s) - _REQUESTS_MAX + 1)]:
                _hang_up(each)
            self._changed.wait_for(lambda: len(self._began_s) < _REQUESTS_MAX, _REQUEST_TIMEOUT_S)
            self._began_s[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Note the end of a request."""
        super().shutdown_request(request)
        with self._changed:
            self._began_s.pop(request, None)
            self._changed.notify_all()

    def service_actions(self) -> None:
        """Close the connections past their time-out; called every `_LOOK_INTERVAL_S`."""
        oldest_s = time.monotonic() - _REQUEST_TIMEOUT_S
        with self._changed:
            for request, began_s in self._began_s.items():
                if began_s <= oldest_s:
                    _hang_up(request)

    def finish(self) -> None:
        """Let running requests end; close the connections past their time-out."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._began_s, _REQUEST_TIMEOUT_S):
                for request in self._began_s:
                    _hang_up(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a request that could not be answered: mostly its caller has gone."""
        log.info("event=metrics_unanswered", exc_info=True)


def _hang_up(request: socket.socket) -> None:
    """Close a connection; the thread that reads from it or writes to it gets an error."""
    try:
        request.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        log.debug("event=metrics_gone error=%s", error)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _Server
    server_version = "fluss-lab"
    sys_version = ""
    timeout = _REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        """Answer with the page, or with an error."""
        given = self.headers.get(token.HEADER)
        if not token.is_valid(given, self.server.secret):
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Bearer")
            self._end(b"the token is missing or wrong\n", "text/plain")
        elif self.path.partition("?")[0] != PATH:
            self.send_response(404)
            self._end(f"the metrics are at {PATH}\n".encode(), "text/plain")
        else:
            text = self.server.metrics.text()
            self.send_response(200)
            self._end(text, CONTENT_TYPE_PLAIN_0_0_4)

    def _end(self, body: bytes, content_type: str) -> None:
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: scrapers request the page every few seconds."""
