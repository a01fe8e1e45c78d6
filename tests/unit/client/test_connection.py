"""Connections: patience while no server answers, and an end to it."""

from __future__ import annotations

import os
import re
import socket
import threading
import time

import pytest

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.client.cluster.leader_requests import call_leader
from fluss_lab.client.cluster.metadata_cache import Metadata
from fluss_lab.errors import (
    AuthenticationError,
    BucketNotFoundError,
    ConnectionClosedError,
    InvalidPropertyError,
    InvalidRequestError,
    ServerUnavailableError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.model import OffsetSpec, TableBucket, TablePath
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.testing import EmbeddedCluster


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_an_address_travels_as_json_and_hides_its_token():
    address = ServerAddress("127.0.0.1", 4711, "secret")
    assert ServerAddress.from_json(address.to_json()) == address
    assert "secret" not in repr(address)
    assert str(address) == "127.0.0.1:4711"
    for text in ("", "{}", "[]", '{"host": "h", "port": "x", "token": "t"}'):
        with pytest.raises(InvalidRequestError):
            ServerAddress.from_json(text)


def test_unknown_and_ill_typed_options_are_refused():
    address = ServerAddress("127.0.0.1", 1, "t")
    with pytest.raises(InvalidPropertyError, match=r"client\.request-timeout"):
        Connection(lambda: address, {"client.request-timeot": "1s"})
    with pytest.raises(InvalidPropertyError, match="duration"):
        Connection(lambda: address, {"client.request-timeout": "soon"})


def test_without_a_server_a_call_ends_in_time_and_says_where_how_long_and_what_to_do():
    port = free_port()
    asked = []

    def locate() -> ServerAddress:
        asked.append(1)
        return ServerAddress("127.0.0.1", port, "t")

    with Connection(locate, {"client.request-timeout": "700ms"}) as connection:
        began = time.monotonic()
        with pytest.raises(ServerUnavailableError) as caught:
            connection.admin().databases()
    assert 0.6 < time.monotonic() - began < 60
    for words in (f"127.0.0.1:{port}", "list_databases", "client.request-timeout", "fluss-lab up"):
        assert words in str(caught.value)
    assert 0.7 <= float(re.search(r"not done in (\d+\.\d) s", str(caught.value))[1]) < 60
    assert len(asked) > 2


def test_a_place_that_is_not_yet_known_is_asked_for_again(shared_cluster):
    errors = [ServerUnavailableError("no server runs there"), FileNotFoundError("server.json")]
    address = shared_cluster.address

    def locate():
        if errors:
            raise errors.pop(0)
        return address

    with Connection(locate) as connection:
        assert isinstance(connection.admin().databases(), list)


def test_a_server_that_came_back_elsewhere_is_found(shared_cluster):
    places = [ServerAddress("127.0.0.1", free_port(), "t"), shared_cluster.address]
    with Connection(lambda: places.pop(0)) as connection:
        assert isinstance(connection.admin().databases(), list)


def test_single_attempts_find_a_server_that_came_back_elsewhere(shared_cluster):
    places = [ServerAddress("127.0.0.1", free_port(), "t"), shared_cluster.address]
    with Connection(lambda: places.pop(0)) as connection:
        with pytest.raises(ServerUnavailableError):
            connection.coordinator(connection.attempts("once", 0)).list_databases(pb.ListDatabasesRequest())
        assert connection.coordinator(connection.attempts("once", 0)).list_databases(pb.ListDatabasesRequest())


def test_a_wrong_token_is_reported_at_once(shared_cluster):
    address = shared_cluster.address
    with Connection(lambda: ServerAddress(address.host, address.port, "wrong")) as connection:
        began = time.monotonic()
        with pytest.raises(AuthenticationError):
            connection.admin().databases()
        assert time.monotonic() - began < 15  # the time that a call may take is 30 s


def test_a_new_token_is_picked_up(shared_cluster):
    address = shared_cluster.address
    places = [ServerAddress(address.host, address.port, "old"), address]
    with Connection(lambda: places.pop(0) if len(places) > 1 else places[0]) as connection:
        assert isinstance(connection.admin().databases(), list)


def test_a_tablet_server_on_the_old_port_is_not_taken_for_the_coordinator():
    """A restart may give the coordinator's port to one of the tablet servers, whose token is the same."""
    with EmbeddedCluster(lake=False, tablet_servers=2) as cluster:
        address = cluster.address
        other = ServerAddress(*cluster._local.nodes[0].address, address.token)
        places = [other, address]
        with Connection(lambda: places.pop(0) if len(places) > 1 else places[0]) as connection:
            assert isinstance(connection.admin().databases(), list)
        with Connection(lambda: other) as connection, pytest.raises(UnsupportedError, match="does not know the call"):
            connection.admin().databases()


def test_close_ends_calls_that_wait():
    port = free_port()
    connection = Connection(lambda: ServerAddress("127.0.0.1", port, "t"), {"client.request-timeout": "60s"})
    errors = []

    def call() -> None:
        try:
            connection.admin().databases()
        except ConnectionClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    connection.close()
    thread.join(60)
    assert not thread.is_alive()
    assert "open it again" in str(errors[0])
    assert not errors[0].retriable
    with pytest.raises(ConnectionClosedError, match="closed"):
        connection.admin().databases()
    connection.close()
    assert "closed" in repr(connection)


def test_what_a_closed_connection_ended_says_so(stranger, make_table):
    """Asked to open a new scanner a person was led to one that could not be opened."""
    log, keyed = make_table(), make_table({"id": "int"}, name="k", primary_key=["id"])
    scanner, writer, lookuper = (
        stranger.log_scanner(log.path), stranger.append_writer(log.path), stranger.lookuper(keyed.path)
    )  # fmt: skip
    scanner.subscribe_from_beginning(0)
    writer.append([{"id": 1}])
    lookuper.lookup({"id": 1})
    stranger.close()
    rows = [{"id": 1}]
    for call in (lambda: scanner.poll(0), lambda: writer.append(rows), lambda: lookuper.lookup({"id": 1})):
        with pytest.raises(ConnectionClosedError, match=r"open it again \(Lab.open, Lab.connect\)"):
            call()


def test_bucket_leaders_are_learnt_from_a_table_seen_once(connection, make_table):
    info = make_table(buckets=2)
    bucket = TableBucket(info.table_id, None, 1)
    assert connection.leaders([bucket]) == {bucket: connection.servers()[0]}
    assert connection.tablet_server(bucket) is not None
    assert call_leader(connection, bucket, "ask", lambda gateway: 7) == 7


def test_a_dropped_and_recreated_table_is_another(connection, make_table):
    info = make_table()
    connection.admin().drop_table(info.path)
    again = make_table()
    assert again.table_id != info.table_id
    connection.forget_leaders()
    with pytest.raises(TableNotFoundError, match="dropped"):
        connection.admin().list_offsets(info, OffsetSpec.latest())


def test_a_cluster_without_lake_has_no_lake_storage(connection):
    assert connection.lake_storage() is None


def test_threads_share_a_connection(connection, make_table):
    info = make_table()
    errors = []

    def work() -> None:
        try:
            for _ in range(20):
                assert connection.table_info(info.path).table_id == info.table_id
                connection.forget_leaders()
                connection.admin().list_offsets(info, OffsetSpec.latest())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_bucket_that_another_thread_has_forgotten_just_now_is_known(connection, make_table, monkeypatch):
    info = make_table()
    bucket, load = TableBucket(info.table_id, None, 0), Metadata.load

    def forgotten(metadata, *asked):
        loaded = load(metadata, *asked)
        connection.forget_leaders()
        return loaded

    monkeypatch.setattr(Metadata, "load", forgotten)
    connection.forget_leaders()
    assert connection.leaders([bucket]) == {bucket: connection.servers()[0]}
    with pytest.raises(BucketNotFoundError, match="knows none such"):
        connection.leaders([TableBucket(info.table_id, None, 9)])


def test_a_table_that_is_not_there(connection):
    with pytest.raises(TableNotFoundError, match=r"no\.where"):
        connection.table_info(TablePath("no", "where"))
    assert os.getpid() > 0


def test_the_link_to_a_server_is_made_once(connection, make_table):
    bucket = TableBucket(make_table().table_id, None, 0)
    (server,) = set(connection.leaders([bucket]).values())
    assert connection.gateway(server) is connection.gateway(server)
    connection.forget_leaders()
    assert connection.tablet_server(bucket) is connection.gateway(server)
