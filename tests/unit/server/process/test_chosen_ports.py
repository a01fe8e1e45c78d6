"""The ports that a person chooses: they are those of the servers, also after a stop, and never others."""

from __future__ import annotations

import os
import socket

import pytest

from fluss_lab.errors import InvalidPropertyError, LabError
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.process.listener import chosen_ports
from fluss_lab.testing import EmbeddedCluster


def free_ports(count: int) -> int:
    """Return the first of so many ports that nobody has: of those that the kernel gives to nobody who does not ask for them."""
    for first in range(10_000 + os.getpid() * count % 10_000, 32_000, count):
        if all(map(is_free, range(first, first + count))):
            return first
    raise AssertionError("no ports are free")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def listened(cluster: EmbeddedCluster) -> list[int]:
    found = cluster.connection.coordinator().describe_cluster(pb.DescribeClusterRequest()).tablet_servers
    return [cluster.address.port, *(node.port for node in found)]


@pytest.mark.parametrize(("servers", "behind"), [(1, [0, 0]), (2, [0, 1, 2])])
def test_servers_listen_where_they_are_to_also_after_a_stop(servers, behind):
    first = free_ports(3)
    with EmbeddedCluster(options={"server.port": first}, tablet_servers=servers) as cluster:
        expected = [first + more for more in behind]
        assert listened(cluster) == expected
        cluster.restart()
        assert listened(cluster) == expected


def test_a_port_that_is_taken_is_an_error_and_never_another_one():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = EmbeddedCluster(options={"server.port": port})
        with pytest.raises(LabError, match=rf"free port from server\.port={port} on"):
            refused.start()
        refused.close()


def test_ports_that_do_not_exist_are_refused():
    """The system would listen on what is left of the number."""
    assert chosen_ports({"server.port": "65535"}, 1)[-1] == 65_535
    assert max(chosen_ports({"server.port": "65533"}, 2).values()) == 65_535
    with pytest.raises(InvalidPropertyError, match=r"server\.port=65534: expected at most 65533"):
        chosen_ports({"server.port": "65534"}, 2)
