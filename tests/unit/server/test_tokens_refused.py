"""Every method of both services wants the token, before it looks at the request."""

import grpc
import pytest

from fluss_lab.errors import AuthenticationError
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.channel import Channel
from fluss_lab.rpc.rpc_methods import COORDINATOR, TABLET_SERVER, methods_of
from fluss_lab.testing import EmbeddedCluster

METHODS = [method for service in (COORDINATOR, TABLET_SERVER) for method in methods_of(service).values()]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with EmbeddedCluster(tmp_path_factory.mktemp("tokens") / "lab", lake=False) as made:
        yield made


def call(cluster, method, metadata) -> grpc.StatusCode:
    with grpc.insecure_channel(str(cluster.address)) as channel:
        try:
            if method.streams:
                list(channel.unary_stream(method.path)(b"\xff\xff", metadata=metadata, timeout=10))
            else:
                channel.unary_unary(method.path)(b"\xff\xff", metadata=metadata, timeout=10)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("method", METHODS, ids=[method.name for method in METHODS])
def test_no_method_is_answered_without_the_right_token(cluster, method):
    right = cluster.address.token
    for metadata in (
        [],
        [("authorization", "")],
        [("authorization", "Bearer ")],
        [("authorization", right)],
        [("authorization", f"Bearer {right}x")],
        [("authorization", f"Bearer {right[:-1]}")],
        [("authorization", f"bearer {right}")],
    ):
        assert call(cluster, method, metadata) is grpc.StatusCode.UNAUTHENTICATED
    # The control: with the token the nonsense is looked at.
    assert call(cluster, method, [("authorization", f"Bearer {right}")]) is grpc.StatusCode.INVALID_ARGUMENT


def test_a_client_with_the_wrong_token_hears_so(cluster):
    channel = Channel(cluster.address.host, cluster.address.port, "wrong")
    with pytest.raises(AuthenticationError, match="token is missing or wrong"):
        channel.coordinator().list_databases(pb.ListDatabasesRequest())
    channel.close()
