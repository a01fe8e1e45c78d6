"""The metrics of a server process and the page that serves them, in Prometheus's text format.

Names are Apache Fluss's (its "Monitor MetricsRegistry" page), as its Prometheus reporter writes them: ``fluss_``, the scope, the
metric. Where Fluss reports a rate, ``xPerSecond``, here is the counter that it is the rate of, ``x_total``; Prometheus
computes rates itself. Names that Fluss does not have follow the same pattern.

MetricsRegistry are collected when a page is requested: collectors read the live parts. What only the event itself can count is
counted where it happens, by adding to a plain attribute: without a lock, so an addition may be lost when two threads
make it at once. (A counter of prometheus_client takes a lock: counting a call costs 1.8 µs instead of 0.5 µs.)
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any, Final, TypeAlias

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric

from fluss_lab.errors import LabError
from fluss_lab.model.config.options import METRICS_PORT
from fluss_lab.rpc.access import token
from fluss_lab.rpc.rpc_methods import COORDINATOR
from fluss_lab.rpc.serving.call_metrics import TIME_EDGES_MS, CallCounters, CallMetrics

PREFIX: Final = "fluss"
Labels: TypeAlias = Mapping[str, object]
log = logging.getLogger(__name__)
HOST: Final = "127.0.0.1"
PATH: Final = "/metrics"
#: For a request and its answer together, however slowly its bytes arrive: Prometheus itself waits 10 s.
_REQUEST_TIMEOUT_S: Final = 5.0
#: Concurrent requests, each with a thread; one more ends the oldest.
_REQUESTS_MAX: Final = 8
#: How often requests past their time-out are ended.
_LOOK_INTERVAL_S: Final = 0.2


class Family(Metric):
    """All values of one metric.

    Args:
        name: Without the prefix ``fluss_``; a name that begins with ``process_`` gets none.
        kind: ``counter``, ``gauge`` or ``histogram``. A counter's name ends in ``_total``.
        meaning: One line.
    """

    def __init__(self, name: str, kind: str, meaning: str) -> None:
        self._sample_name = name if name.startswith("process_") else f"{PREFIX}_{name}"
        # The text format adds a counter's suffix.
        super().__init__(
            self._sample_name.removesuffix("_total") if kind == "counter" else self._sample_name, meaning, kind
        )

    def add(self, value: float | None, labels: Labels | None = None, suffix: str = "") -> None:
        """Add a value, unless it is None, and to its name a suffix; labels that are None are left out."""
        if value is not None:
            shown = {key: str(each) for key, each in (labels or {}).items() if each is not None}
            self.add_sample(self._sample_name + suffix, shown, value)


def single(name: str, kind: str, meaning: str, value: float | None) -> Family:
    """Return a metric of one value, without labels."""
    family = Family(name, kind, meaning)
    family.add(value)
    return family


Collector: TypeAlias = Callable[[], Iterable[Metric]]


class MetricsRegistry:
    """The metrics of one process: what its collectors yield. Each metric has one collector. Safe for threads."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []

    def add(self, collector: Collector) -> None:
        """Add a collector. It is called by any thread, and must not wait for others."""
        self._collectors.append(collector)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric that has a value."""
        for collect in list(self._collectors):
            yield from (each for each in collect() if each.samples)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self)


def request_families(calls: CallMetrics) -> Iterator[Family]:
    """Yield requests, errors and times of a server's methods."""
    scopes: dict[str, list[tuple[str, CallCounters]]] = {}
    for (service, method), counters in sorted(calls.counters.items()):
        scope = "coordinator" if service == COORDINATOR else "tabletserver"
        scopes.setdefault(scope, []).append((_camel(method), counters))
    for scope, found in scopes.items():
        requests = Family(f"{scope}_request_requests_total", "counter", "Requests, by type.")
        errors = Family(f"{scope}_request_errors_total", "counter", "Requests that were refused as a whole.")
        times = Family(f"{scope}_request_totalTimeMs", "histogram", "Milliseconds that requests took.")
        for name, counters in found:
            labels = {"request": name}
            requests.add(counters.total, labels)
            errors.add(counters.failed, labels)
            below = 0
            for edge, count in zip((*TIME_EDGES_MS, "+Inf"), counters.slots, strict=True):
                below += count
                times.add(below, {**labels, "le": edge}, "_bucket")
            times.add(counters.time_ms, labels, "_sum")
            times.add(below, labels, "_count")
        yield from (requests, errors, times)
    refused = Family("request_refused_total", "counter", "Requests refused unread, by reason.")
    refused.add(calls.unauthenticated, {"reason": "unauthenticated"})
    refused.add(calls.crowded_out, {"reason": "too many at once"})
    yield refused


def _camel(name: str) -> str:
    """Return a method's name as Fluss calls its requests: ``fetchLog``."""
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)


def process_families() -> Iterator[Metric]:
    """Yield CPU time, memory, descriptors, threads and the start of this process, as far as Linux's ``/proc`` has them."""
    yield from ProcessCollector(registry=None).collect()
    yield single("process_threads", "gauge", "Threads of Python.", threading.active_count())


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
