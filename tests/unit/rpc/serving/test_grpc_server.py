"""The listening server: nothing beyond this machine."""

import re

import grpc
import pytest

from fluss_lab.errors import RecordTooLargeError, ResourceExhaustedError, TableNotFoundError
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


@pytest.mark.parametrize("text", ["日", "🎉", "é", "%", "\n", "x"])
def test_an_error_arrives_as_itself_whatever_its_text_is_of(text):
    """gRPC writes a character beyond ASCII as up to twelve, and drops an answer of more than 8 kB of metadata, error and all."""

    def refuse(_servicer, _request):
        raise TableNotFoundError(f"no table lab\udcff.{text * 5000}")

    servicer = type("Servicer", (), dict.fromkeys(methods_of(COORDINATOR), refuse))()
    server = Server("127.0.0.1", 0, "secret", threads=1, request_bytes_max=1 << 16)
    server.add(COORDINATOR, servicer)
    server.start()
    channel = Channel(server.host, server.port, "secret")
    try:
        for _ in range(20):  # between two bounds gRPC drops some answers and not others
            with pytest.raises(TableNotFoundError) as caught:
                channel.coordinator().list_tables(pb.ListTablesRequest(database_name="d"))
            assert re.fullmatch(rf"no table lab\\udcff\.{re.escape(text)}{{500,}} \.\.\.", str(caught.value))
    finally:
        channel.close()
        server.stop(0)


class Failure(grpc.RpcError):  # type: ignore[misc]
    """What gRPC's core raises when it has too many calls."""

    def code(self):
        return grpc.StatusCode.RESOURCE_EXHAUSTED

    def details(self):
        return "Too many pending requests for this server"

    def trailing_metadata(self):
        return ()
