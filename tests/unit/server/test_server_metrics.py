"""The metrics page: told to whoever has the token, in Prometheus's words, and true."""

import http.client
import re
import socket
import threading
from contextlib import ExitStack

import pytest

from fluss_lab.errors import FlussError, LabError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.model.offsets import OffsetSpec
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.serving.call_metrics import TIME_EDGES_MS, CallMetrics
from fluss_lab.server import server_metrics
from fluss_lab.server.server_metrics import Family, MetricsPage, MetricsRegistry, request_families
from fluss_lab.testing import EmbeddedCluster, wait_until

LINE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')
LOG, ROWS = TablePath("db", "log"), TablePath("db", "rows")
TYPES = {"id": "bigint not null", "text": "string"}


def get(port, token=None, path="/metrics", method="GET"):
    """Status and body of a request to the page."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers={} if token is None else {"Authorization": token})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def values(text):
    """Values by name and labels; every line is one that Prometheus reads."""
    found = {}
    for line in text.splitlines():
        if line.startswith("# "):
            assert line.split()[1] in {"HELP", "TYPE"}
            continue
        match = LINE.fullmatch(line)
        assert match is not None, line
        labels = tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or "")))
        assert (match[1], labels) not in found
        found[match[1], labels] = float(match[3])
    return found


def of(found, name, **labels):
    """The value of a metric with labels."""
    return found[f"fluss_{name}", tuple(sorted((key, str(value)) for key, value in labels.items()))]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with EmbeddedCluster(tmp_path_factory.mktemp("metrics") / "lab", lake=False) as made:
        admin = made.connection.admin()
        admin.create_database("db")
        admin.create_table(LOG, make_descriptor(TYPES, buckets=2))
        admin.create_table(ROWS, make_descriptor(TYPES, primary_key=["id"], buckets=1))
        yield made


def page_of(cluster):
    """Where the page is, and what it shows."""
    described = cluster.connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
    (page,) = described.metrics_pages
    assert not page.HasField("server_id")
    status, text = get(page.port, f"Bearer {cluster.address.token}")
    assert status == 200
    return page.port, text


def test_the_page_wants_the_token(cluster):
    port, _ = page_of(cluster)
    token = cluster.address.token
    for wrong in (None, "", token, f"Bearer {token}x", f"Bearer {token[:-1]}", "Bearer "):
        status, text = get(port, wrong)
        assert (status, text) == (401, "the token is missing or wrong\n")
    assert get(port, f"Bearer {token}", "/other")[0] == 404
    assert get(port, None, "/other")[0] == 401
    assert get(port, f"Bearer {token}", method="POST")[0] == 501


def test_the_page_listens_on_loopback_only(cluster):
    port, _ = page_of(cluster)
    # Of this machine too, whatever its network: who listens on all addresses answers here.
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", port), timeout=5):  # noqa: PT011
        pass


def test_what_was_written_and_read_is_counted(cluster):
    connection = cluster.connection
    before = values(page_of(cluster)[1])
    with connection.append_writer(LOG) as writer:
        writer.append([{"id": number, "text": "x"} for number in range(30)])
    with connection.log_scanner(LOG) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        count = 0
        while count < 30:
            count += sum(len(batch.records) for batch in scanner.poll(30))
    with connection.upsert_writer(ROWS) as rows:
        rows.upsert([{"id": 1, "text": "a"}, {"id": 2, "text": "b"}])
        rows.flush()
        rows.upsert([{"id": 2, "text": "c"}])
    connection.lookuper(ROWS).lookup([{"id": 1}, {"id": 2}, {"id": 3}])
    after = values(page_of(cluster)[1])

    def grown(name, **labels):
        return of(after, name, **labels) - before.get((f"fluss_{name}", tuple(sorted(labels.items()))), 0)

    log, rows_labels = {"database": "db", "table": "log"}, {"database": "db", "table": "rows"}
    assert grown("tabletserver_table_messagesIn_total", **log) == 30
    by_bucket = [grown("tabletserver_table_bucket_messagesIn_total", **log, bucket=f"{n}") for n in range(2)]
    assert sum(by_bucket) == 30
    bytes_in = grown("tabletserver_table_bytesIn_total", **log)
    assert bytes_in > 30
    assert grown("tabletserver_table_bytesOut_total", **log) == bytes_in
    # Two inserts, then the old and the new row.
    assert grown("tabletserver_table_messagesIn_total", **rows_labels) == 4
    assert grown("tabletserver_table_totalPutKvRequests_total", **rows_labels) == 2
    assert grown("tabletserver_table_lookupKeys_total", **rows_labels) == 3
    assert of(after, "tabletserver_table_bucket_kv_rowCount", **rows_labels, bucket=0) == 2
    assert of(after, "tabletserver_table_bucket_kv_memory", **rows_labels, bucket=0) > 0
    ends = [of(after, "tabletserver_table_bucket_log_endOffset", **log, bucket=n) for n in range(2)]
    assert sum(ends) == 30
    assert of(after, "coordinator_tableCount") == 2
    assert of(after, "coordinator_bucketCount") == 3
    assert of(after, "coordinator_offlineBucketCount") == 0
    assert of(after, "tabletserver_leaderCount") == 3
    assert of(after, "tabletserver_request_requests_total", request="produceLog") >= 1
    assert after["process_resident_memory_bytes", ()] > 1 << 20


def test_failures_are_counted_by_table_and_by_request(cluster):
    connection = cluster.connection
    table_id = connection.admin().table_info(LOG).table_id
    before = values(page_of(cluster)[1])
    host, port = cluster.node.address
    from fluss_lab.rpc.channel import Channel

    channel = Channel(host, port, cluster.address.token)
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=100)
    asked = request.tables_req.add(table_id=table_id, projection_pushdown_enabled=False)
    asked.buckets_req.add(bucket_id=0, fetch_offset=10**9, max_fetch_bytes=100)
    asked.buckets_req.add(bucket_id=99, fetch_offset=0, max_fetch_bytes=100)
    channel.tablet_server().fetch_log(request)
    with pytest.raises(FlussError):
        channel.tablet_server().fetch_log(pb.FetchLogRequest(follower_server_id=-1, max_bytes=-1))
    channel.close()
    after = values(page_of(cluster)[1])
    failed = "tabletserver_table_failedFetchLogRequests_total"
    labels = {"database": "db", "table": "log"}
    key = (f"fluss_{failed}", tuple(sorted(labels.items())))
    assert of(after, failed, **labels) - before.get(key, 0) == 2
    errors = ("fluss_tabletserver_request_errors_total", (("request", "fetchLog"),))
    assert after[errors] - before.get(errors, 0) == 1


def test_tables_that_nobody_has_are_not_counted(cluster):
    before = len(page_of(cluster)[1])
    server = cluster.connection.gateway
    assert server is not None
    from fluss_lab.rpc.channel import Channel

    channel = Channel(*cluster.node.address, cluster.address.token)
    for table_id in range(10_000, 10_500):
        request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=100)
        asked = request.tables_req.add(table_id=table_id, projection_pushdown_enabled=False)
        asked.buckets_req.add(bucket_id=0, fetch_offset=0, max_fetch_bytes=100)
        channel.tablet_server().fetch_log(request)
    channel.close()
    assert len(page_of(cluster)[1]) < before + 10_000


def test_names_of_all_kinds_are_written_so_that_they_can_be_read():
    family = Family("x", "gauge", "Odd labels.")
    family.add(1, {"table": 'a"b\\c\nd', "none": None})
    family.add(2.5)
    metrics = MetricsRegistry()
    metrics.add(lambda: [family])
    metrics.add(lambda: [Family("empty", "gauge", "Nothing.")])
    text = metrics.text().decode()
    assert (
        text == '# HELP fluss_x Odd labels.\n# TYPE fluss_x gauge\nfluss_x{table="a\\"b\\\\c\\nd"} 1.0\nfluss_x 2.5\n'
    )


def test_times_are_counted_in_slots_that_add_up():
    calls = CallMetrics()
    for seconds in (0.0005, 0.0015, 0.3, 100.0):
        calls.count("TabletServerGateway", "fetch_log", seconds, failed=False)
    (_, _, times, _) = list(request_families(calls))
    buckets = {each.labels["le"]: each.value for each in times.samples if each.name == f"{times.name}_bucket"}
    assert [buckets[str(edge)] for edge in (1, 2, 200, 500, TIME_EDGES_MS[-1], "+Inf")] == [1, 2, 2, 3, 3, 4]
    assert [each.value for each in times.samples if each.name == f"{times.name}_count"] == [4]


def test_a_port_may_be_chosen_and_none_too(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(LabError, match="choose another one"),
            EmbeddedCluster(tmp_path / "taken", {"metrics.reporter.prometheus.port": port}, lake=False),
        ):
            pass
    with EmbeddedCluster(tmp_path / "taken", {"metrics.reporter.prometheus.port": port}, lake=False) as cluster:
        assert page_of(cluster)[0] == port
    with EmbeddedCluster(tmp_path / "none", {"metrics.reporter.prometheus.port": -1}, lake=False) as cluster:
        described = cluster.connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
        assert not described.metrics_pages


def test_a_caller_that_dawdles_does_not_hold_up_the_next():
    page = MetricsPage(MetricsRegistry(), 0, "secret")
    page.start()
    try:
        with socket.create_connection(("127.0.0.1", page.port), timeout=30) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\n")
            assert get(page.port, "Bearer secret")[0] == 200
    finally:
        page.stop()
        page.stop()
    with pytest.raises(OSError, match="refused"):
        get(page.port, "Bearer secret")


def test_a_page_ends_without_waiting_for_its_next_look(monkeypatch):
    monkeypatch.setattr(server_metrics, "_LOOK_INTERVAL_S", 300.0)
    page = MetricsPage(MetricsRegistry(), 0, "secret")
    page.start()
    assert get(page.port, "Bearer secret")[0] == 200
    stopping = threading.Thread(target=page.stop, daemon=True)
    stopping.start()
    stopping.join(30)
    assert not stopping.is_alive()


def test_callers_that_drip_hold_up_nobody_and_end(monkeypatch):
    """A byte from time to time ends no time-out of a socket; and as many threads as there are callers would be too many."""
    monkeypatch.setattr(server_metrics, "_REQUEST_TIMEOUT_S", 0.5)
    # Other servers of this process may not have ended theirs.
    others = set(threading.enumerate())
    page = MetricsPage(MetricsRegistry(), 0, "secret")
    page.start()
    with ExitStack() as opened:
        opened.callback(page.stop)
        place = ("127.0.0.1", page.port)
        slow = [opened.enter_context(socket.create_connection(place, timeout=30)) for _ in range(30)]
        assert get(page.port, "Bearer secret")[0] == 200
        threads = [each for each in set(threading.enumerate()) - others if "process_request_thread" in each.name]
        assert len(threads) <= server_metrics._REQUESTS_MAX + 1
        left = slow[-1]

        def is_cut_off():
            try:
                left.sendall(b"G")
            except OSError:
                return True
            return False

        wait_until(is_cut_off)


def test_every_tablet_server_has_a_page_of_its_own(tmp_path):
    with EmbeddedCluster(tmp_path / "lab", lake=False, tablet_servers=2) as cluster:
        admin = cluster.connection.admin()
        admin.create_database("db")
        admin.create_table(LOG, make_descriptor(TYPES, buckets=4))
        described = cluster.connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
        ids = [page.server_id if page.HasField("server_id") else None for page in described.metrics_pages]
        assert ids == [None, 0, 1]
        held = []
        for page in described.metrics_pages:
            status, text = get(page.port, f"Bearer {cluster.address.token}")
            assert status == 200
            held.append(values(text).get(("fluss_tabletserver_leaderCount", ())))
        assert held == [None, 2, 2]
