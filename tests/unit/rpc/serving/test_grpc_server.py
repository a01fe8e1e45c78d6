"""The listening server: nothing beyond this machine."""

import grpc
import pytest

from fluss_lab.errors import RecordTooLargeError, ResourceExhaustedError
from fluss_lab.rpc import error_status
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.channel import Channel
from fluss_lab.rpc.rpc_methods import COORDINATOR, methods_of
from fluss_lab.rpc.serving.grpc_server import Server


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "example.org"])
def test_a_place_beyond_loopback_is_refused(host):
    with pytest.raises(ValueError, match="off loopback"):
        Server(host, 0, "secret", threads=1, request_bytes_max=1 << 20)


def test_what_is_too_large_is_another_error_than_what_is_too_much():
    """One must send less at once, the other must wait."""
    servicer = type("Servicer", (), dict.fromkeys(methods_of(COORDINATOR)))()
    server = Server("127.0.0.1", 0, "secret", threads=1, request_bytes_max=1 << 16)
    server.add(COORDINATOR, servicer)
    server.start()
    channel = Channel(server.host, server.port, "secret")
    try:
        with pytest.raises(RecordTooLargeError, match="larger than max"):
            channel.coordinator().list_tables(pb.ListTablesRequest(database_name="x" * (1 << 17)))
    finally:
        channel.close()
        server.stop(0)
    failure = Failure()
    assert isinstance(error_status.error_of(failure, "call"), ResourceExhaustedError)


class Failure(grpc.RpcError):  # type: ignore[misc]
    """What gRPC's core raises when it has too many calls."""

    def code(self):
        return grpc.StatusCode.RESOURCE_EXHAUSTED

    def details(self):
        return "Too many pending requests for this server"

    def trailing_metadata(self):
        return ()
