"""The door: nobody without the token is read, nobody waits for a thread in vain, and no request says too much."""

import socket
import threading

import grpc
import pytest

from fluss_lab.errors import InvalidRequestError, ResourceExhaustedError, ServerUnavailableError, UnsupportedError
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc import rpc_methods
from fluss_lab.rpc.channel import Channel
from fluss_lab.rpc.message_codec import Frame
from fluss_lab.rpc.rpc_methods import COORDINATOR, TABLET_SERVER, methods_of
from fluss_lab.rpc.serving import grpc_server
from fluss_lab.rpc.serving.grpc_server import Server
from fluss_lab.testing.mock_clock import wait_until

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
COORDINATOR_METHODS, TABLET_METHODS = methods_of(COORDINATOR), methods_of(TABLET_SERVER)


class Servicer:
    """Answers nothing, and waits in long polls and in one short call until it is let go."""

    def __init__(self):
        self.arrived = threading.Semaphore(0)
        self.go = threading.Event()

    def __getattr__(self, name):
        def answer(*_):
            raise UnsupportedError(name)

        return answer

    def _wait(self):
        self.arrived.release()
        assert self.go.wait(PATIENCE_S)

    def fetch_log(self, _request):
        self._wait()
        return Frame(pb.FetchLogResponse())

    def describe_buckets(self, _request):
        self._wait()
        return pb.DescribeBucketsResponse()

    def list_databases(self, _request):
        return pb.ListDatabasesResponse(database_name=["here"])


@pytest.fixture
def servicer():
    made = Servicer()
    yield made
    made.go.set()


@pytest.fixture
def served(servicer):
    made = Server("127.0.0.1", 0, "secret", threads=2, request_bytes_max=1 << 20, connections_max=4)
    made.add(TABLET_SERVER, servicer, {"fetch_log": 2})
    made.add(COORDINATOR, servicer)
    made.start()
    yield made
    servicer.go.set()
    made.stop(0)


@pytest.fixture
def channel(served):
    made = Channel(served.host, served.port, "secret")
    yield made
    made.close()


ALL = [method for methods in (COORDINATOR_METHODS, TABLET_METHODS) for method in methods.values()]


@pytest.mark.parametrize("method", ALL, ids=[method.name for method in ALL])
def test_without_the_token_nothing_is_read(served, method):
    """The answer comes although the caller never sends its request; with the token the server waits for that."""
    never = threading.Event()

    def requests():
        never.wait(PATIENCE_S)
        yield b""

    with grpc.insecure_channel(f"{served.host}:{served.port}") as raw:
        call = raw.stream_stream(method.path)
        with pytest.raises(grpc.RpcError) as refused:
            list(call(requests(), timeout=PATIENCE_S, metadata=[("authorization", "Bearer wrong")]))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError) as waiting:
            list(call(requests(), timeout=0.1, metadata=[("authorization", "Bearer secret")]))
        assert waiting.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        never.set()
    assert served.calls.unauthenticated == 1


def _polls(channel, servicer, count):
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1, max_wait_ms=30_000)
    threads = [threading.Thread(target=channel.tablet_server().fetch_log, args=(request,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for _ in range(count):
        assert servicer.arrived.acquire(timeout=PATIENCE_S)
    return request, threads


def test_one_long_poll_too_many_is_refused_at_once_and_short_calls_go_on(channel, servicer, served):
    request, threads = _polls(channel, servicer, 2)
    with pytest.raises(ResourceExhaustedError, match="as many calls of this kind as it takes"):
        channel.tablet_server().fetch_log(request)
    assert list(channel.coordinator().list_databases(pb.ListDatabasesRequest()).database_name) == ["here"]
    assert served.calls.crowded_out == 1
    servicer.go.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    # Whoever was answered has made room.
    wait_until(lambda: channel.tablet_server().fetch_log(request) is not None, PATIENCE_S)


def test_short_calls_queue_up_to_a_limit(channel, servicer, served):
    most = 2 * grpc_server.QUEUED_PER_THREAD
    request = pb.DescribeBucketsRequest(table_id=1)
    failures = []

    def call():
        try:
            channel.tablet_server().describe_buckets(request)
        except ResourceExhaustedError as error:
            failures.append(error)

    threads = [threading.Thread(target=call) for _ in range(most + 10)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(failures) == 10, PATIENCE_S)
    servicer.go.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(failures) == 10
    assert served.calls.counters[TABLET_SERVER, "describe_buckets"].total == most


def test_a_caller_who_gives_up_makes_room_again(channel, servicer, served):
    with grpc.insecure_channel(f"{served.host}:{served.port}") as raw:
        call = raw.unary_unary(TABLET_METHODS["fetch_log"].path)
        data = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1).SerializeToString()
        gone = [call.future(data, metadata=[("authorization", "Bearer secret")]) for _ in range(2)]
        for _ in gone:
            assert servicer.arrived.acquire(timeout=PATIENCE_S)
        for each in gone:
            each.cancel()
        servicer.go.set()
        request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1)

        def is_answered():
            try:
                channel.tablet_server().fetch_log(request)
            except ResourceExhaustedError:
                return False
            return True

        wait_until(is_answered, PATIENCE_S)


def test_connections_are_limited_and_one_that_ends_makes_room(served):
    # Each says hello, so that the server takes it for one of its own.
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
    held = [socket.create_connection((served.host, served.port), timeout=PATIENCE_S) for _ in range(4)]
    for each in held:
        each.sendall(hello)
        assert each.recv(9)
    with socket.create_connection((served.host, served.port), timeout=PATIENCE_S) as extra:
        try:
            extra.sendall(hello)
            assert extra.recv(9) == b""
        except ConnectionError:
            pass
    for each in held:
        each.close()
    channel = Channel(served.host, served.port, "secret")

    def is_answered():
        try:
            return bool(channel.coordinator().list_databases(pb.ListDatabasesRequest()).database_name)
        except ServerUnavailableError:
            return False

    wait_until(is_answered, PATIENCE_S)
    channel.close()


# -- what a request may say ----------------------------------------------------------------------------------------


def decode(name, message):
    """Decode a request as a server does."""
    method = COORDINATOR_METHODS.get(name) or TABLET_METHODS[name]
    return method.decode_request(message if isinstance(message, bytes) else message.SerializePartialToString())


def test_lists_longer_than_the_limit_are_refused():
    request = pb.ListOffsetsRequest(follower_server_id=-1, offset_type=0, table_id=1)
    request.bucket_id.extend(range(rpc_methods.ITEMS_MAX - 10))
    assert len(decode("list_offsets", request).bucket_id) == rpc_methods.ITEMS_MAX - 10
    request.bucket_id.extend(range(10))
    with pytest.raises(InvalidRequestError, match=f"expected at most {rpc_methods.ITEMS_MAX} fields and entries"):
        decode("list_offsets", request)


def test_lists_within_lists_count_together():
    request = pb.MetadataRequest()
    path = request.table_path.add(database_name="a", table_name="b")
    request.table_path.extend([path] * (rpc_methods.ITEMS_MAX // 3))
    with pytest.raises(InvalidRequestError, match="expected at most"):
        decode("metadata", request)


def test_a_request_that_is_long_without_records_is_refused_before_it_is_parsed():
    # Missing what it must have, and refused for its size all the same.
    data = b"\x0a\x00" * (rpc_methods.MESSAGE_BYTES_MAX // 2 + 1)
    with pytest.raises(InvalidRequestError, match="bytes beside records"):
        decode("metadata", data)
    with pytest.raises(InvalidRequestError, match="more than 250000 fields"):
        decode("produce_log", b"\x22\x00" * (rpc_methods.MESSAGE_BYTES_MAX // 2 + 1))


def test_records_do_not_count_as_the_request():
    request = pb.ProduceLogRequest(acks=-1, table_id=1, timeout_ms=0)
    request.buckets_req.add(bucket_id=0, records=b"x" * (rpc_methods.MESSAGE_BYTES_MAX + 1))
    assert len(decode("produce_log", request).payloads[0][0]) == rpc_methods.MESSAGE_BYTES_MAX + 1


def test_text_that_is_none_is_refused():
    good = pb.ListTablesRequest(database_name="abc").SerializeToString()
    assert decode("list_tables", good).database_name == "abc"
    with pytest.raises(InvalidRequestError, match="database_name is no UTF-8 text"):
        decode("list_tables", good.replace(b"abc", b"a\xffc"))
    path = pb.PbTablePath(database_name="abc", table_name="t")
    nested = pb.GetTableInfoRequest(table_path=path).SerializeToString().replace(b"abc", b"\xc3\x28c")
    with pytest.raises(InvalidRequestError, match="no UTF-8"):
        decode("get_table_info", nested)


def test_a_request_without_what_it_must_have_is_refused_also_deep_inside():
    request = pb.StopReplicaRequest(coordinator_epoch=1)
    request.stop_replicas_req.add(leader_epoch=0, delete=False)
    with pytest.raises(InvalidRequestError, match="table_bucket"):
        decode("stop_replica", request)


@pytest.mark.parametrize("depth", [99, 101, 5_000])
def test_nesting_deeper_than_any_request_is_refused_or_skipped(depth):
    group = b"\x7b" * depth + b"\x7c" * depth
    good = pb.ListTablesRequest(database_name="abc").SerializeToString()
    if depth < 100:
        assert decode("list_tables", good + group).database_name == "abc"
    else:
        with pytest.raises(InvalidRequestError):
            decode("list_tables", good + group)
