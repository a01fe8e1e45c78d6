"""The limit of connections that a person sets: those beyond it are closed at once, and those that end make room."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from fluss_lab.client import Connection
from fluss_lab.model.config.options import SERVER_CONNECTIONS_MAX
from fluss_lab.testing import EmbeddedCluster

MOST = SERVER_CONNECTIONS_MAX.minimum
#: With it a client says that it speaks gRPC; a server that takes it answers with its settings.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
PATIENCE_S = 60.0


def is_taken(stack, address):
    opened = stack.enter_context(socket.create_connection((address.host, address.port), timeout=PATIENCE_S))
    try:
        opened.sendall(HELLO)
        return bool(opened.recv(9))
    except ConnectionError:
        return False


def test_connections_beyond_the_limit_are_closed_and_find_room_later():
    options = {SERVER_CONNECTIONS_MAX.key: MOST, "server.handshake-timeout": "1min"}
    with EmbeddedCluster(options=options) as cluster:
        address = cluster.address
        with ExitStack() as stack:
            taken = [is_taken(stack, address) for _ in range(MOST + 8)]
            assert MOST // 2 < sum(taken) <= MOST
        with Connection(lambda: address) as late:
            assert late.admin().databases() == []


def test_a_client_that_leaves_when_it_is_idle_makes_room_and_comes_back():
    with EmbeddedCluster(options={SERVER_CONNECTIONS_MAX.key: MOST}) as cluster, ExitStack() as stack:
        address = cluster.address
        idle = [stack.enter_context(Connection(lambda: address, idle_s=1.0)) for _ in range(MOST)]
        for each in (*idle, *idle):
            assert each.admin().databases() == []
        late = stack.enter_context(Connection(lambda: address))
        assert late.admin().databases() == []
