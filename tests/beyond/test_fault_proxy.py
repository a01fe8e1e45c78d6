"""The proxy passes everything on as it is, counts it, and does the harm that it is asked for; before a catalog of our own."""

import json
import socket
import threading

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import OAuthError, ServiceUnavailableError

from fluss_lab.testing import wait_until
from tools.beyond.fault_proxy import FaultProxy
from tools.beyond.faults import UNAVAILABLE, CutAnswer, Delay, Hang, Hold, LoseAnswer, Repeat, Reset, SwapAnswer
from tools.beyond.rest_catalog_server import RestCatalogServer

ROWS = pa.table({"a": [1, 2, 3]})


@pytest.fixture
def server(tmp_path):
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    with RestCatalogServer(properties, prefix="mine", credential="me:secret") as running:
        yield running


@pytest.fixture
def proxy(server):
    with FaultProxy(server.port) as running:
        yield running


@pytest.fixture
def catalog(server, proxy):
    return load_catalog("x", **server.lake_options(proxy.endpoint))


@pytest.fixture
def url(server, proxy):
    """An address that answers without a token of any kind asked for."""
    server.credential = None
    return f"{proxy.endpoint}/v1/namespaces"


def test_a_catalog_behind_it_is_used_as_ever(catalog, server, proxy):
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", ROWS.schema)
    with proxy.counted() as counted:
        table.append(ROWS)
    assert counted == {"POST": 1}
    assert proxy.requests[-1].path == "/v1/mine/namespaces/db/tables/t"
    assert proxy.requests[-1].status == 200
    assert catalog.load_table("db.t").scan().to_arrow() == ROWS
    server.expire_tokens()
    catalog.rename_table("db.t", "db.u")
    assert catalog.list_tables("db") == [("db", "u")]
    catalog.drop_table("db.u")
    catalog.drop_namespace("db")
    assert catalog.list_namespaces() == []


def test_a_stranger_gets_no_token(server):
    with pytest.raises(OAuthError, match="unknown client"):
        load_catalog("x", **{**server.lake_options(), "credential": "me:wrong"})


def test_a_fault_strikes_the_nth_request_of_a_kind_and_no_other(catalog, proxy):
    armed = proxy.arm(UNAVAILABLE, method="POST", path="/namespaces$", first=2)
    catalog.create_namespace("a")
    catalog.list_namespaces()
    with pytest.raises(ServiceUnavailableError, match="busy"):
        catalog.create_namespace("b")
    catalog.create_namespace("c")
    assert sorted(catalog.list_namespaces()) == [("a",), ("c",)]
    assert (armed.seen, armed.struck) == (3, 1)


@pytest.mark.parametrize(
    ("fault", "done"), [(Reset(), False), (LoseAnswer(), True), (SwapAnswer(504, b"{}"), True)], ids=["reset", "lost", "swapped"]
)  # fmt: skip
def test_what_is_done_and_what_is_heard_differ(server, proxy, url, fault, done):
    proxy.arm(fault, method="POST")
    body = {"namespace": ["a"], "properties": {}}
    if isinstance(fault, SwapAnswer):
        assert requests.post(url, json=body, timeout=10).status_code == 504
    else:
        with pytest.raises(requests.ConnectionError):
            requests.post(url, json=body, timeout=10)
    assert server.catalog.list_namespaces() == ([("a",)] if done else [])


def test_an_answer_is_cut_and_delayed(proxy, url):
    whole = requests.get(url, timeout=10).content
    assert json.loads(whole) == {"namespaces": []}
    proxy.arm(CutAnswer(5), method="GET")
    with pytest.raises((requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        requests.get(url, timeout=10)
    proxy.arm(Delay(30), method="GET")
    with pytest.raises(requests.Timeout):
        requests.get(url, timeout=0.2)
    assert requests.get(url, timeout=10).content == whole


def test_a_request_hangs_until_the_fault_is_disarmed(proxy, url):
    proxy.arm(Hang())
    failed = threading.Event()

    def ask():
        try:
            requests.get(url, timeout=60)
        except requests.ConnectionError:
            failed.set()

    asking = threading.Thread(target=ask)
    asking.start()
    assert not failed.wait(0.2)
    proxy.disarm()
    asking.join(10)
    assert failed.is_set()


def test_a_request_that_is_held_arrives_late_though_who_asked_is_gone(server, proxy, url):
    armed = proxy.arm(Hold(), method="POST")
    with pytest.raises(requests.Timeout):
        requests.post(url, json={"namespace": ["a"], "properties": {}}, timeout=0.2)
    assert armed.held.wait(10)
    assert server.catalog.list_namespaces() == []
    proxy.disarm()
    wait_until(lambda: proxy.requests[-1].status == 200)
    assert server.catalog.list_namespaces() == [("a",)]


def test_an_answer_is_repeated_until_the_fault_is_disarmed(server, proxy, url):
    proxy.arm(Repeat(), method="GET", times=None)
    old = requests.get(url, timeout=10).content
    requests.post(url, json={"namespace": ["a"], "properties": {}}, timeout=10)
    assert requests.get(url, timeout=10).content == old
    assert json.loads(old) == {"namespaces": []}
    proxy.disarm()
    assert json.loads(requests.get(url, timeout=10).content) == {"namespaces": [["a"]]}


def test_a_stopped_one_refuses_until_it_is_started_on_the_same_port(proxy, url):
    with requests.Session() as session:
        session.get(url, timeout=10)
        proxy.stop()
        for _ in range(2):
            with pytest.raises(requests.ConnectionError):
                session.get(url, timeout=10)
        proxy.start()
        assert session.get(url, timeout=10).status_code == 200


def test_bodies_in_chunks_and_those_that_wait_pass_as_they_are():
    """The other side is a plain socket, so that what came can be compared byte by byte."""
    chunked = (
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: 1\r\n\r\n"
    )
    asks = b"PUT /b HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    answered = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    goes_on = b"HTTP/1.1 100 Continue\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server, FaultProxy(server.getsockname()[1]) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            client.sendall(chunked)
            assert exchanged(server, len(chunked), answered) == chunked
            assert received(client, len(answered)) == answered
            client.sendall(asks)
            behind, _ = server.accept()
            with behind:
                assert received(behind, len(asks)) == asks
                behind.sendall(goes_on)
                assert received(client, len(goes_on)) == goes_on
                client.sendall(b"xyz")
                assert received(behind, 3) == b"xyz"
                behind.sendall(answered)
            assert received(client, len(answered)) == answered
        assert [(each.method, each.path) for each in proxy.requests] == [("POST", "/a"), ("PUT", "/b")]


def exchanged(server, size, answer):
    behind, _ = server.accept()
    with behind:
        found = received(behind, size)
        behind.sendall(answer)
    return found


def received(connection, size):
    connection.settimeout(10)
    found = b""
    while len(found) < size and (data := connection.recv(size - len(found))):
        found += data
    return found


def test_what_is_no_http_is_passed_on_too(server):
    with FaultProxy(server.port, is_http=False) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.sendall(b"GET /v1/config HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        found = b"".join(iter(lambda: client.recv(4096), b""))
    assert found.startswith(b"HTTP/1.1 401 ")
    assert proxy.requests == []
