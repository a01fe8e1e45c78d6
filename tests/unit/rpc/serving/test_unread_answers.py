"""Clients that take nothing of their answers, or say nothing: what they cost is bounded, and it ends."""

import threading
import time
from contextlib import ExitStack, suppress

import pytest

from fluss_lab.errors import ResourceExhaustedError, ServerUnavailableError
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.channel import Channel
from fluss_lab.rpc.message_codec import Frame
from fluss_lab.rpc.rpc_methods import TABLET_SERVER, methods_of
from fluss_lab.rpc.serving import anonymous_connections
from fluss_lab.rpc.serving.grpc_server import Server
from fluss_lab.rpc.serving.unread_answers import AnswerMemory, ConnectionLimits
from fluss_lab.testing.mock_clock import wait_until
from tests.unit.rpc.raw_peers import ANY_FRAME, RawPeer

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
#: How long gRPC waits for the answer to a ping, unless told otherwise.
GRPC_PATIENCE_S = 60.0
MB = 1 << 20
FETCH = methods_of(TABLET_SERVER)["fetch_log"].path
#: Memory for twelve answers of 1 MB, for six of one connection: gRPC holds each twice.
LIMITS = ConnectionLimits(24 * MB, 12 * MB, 60_000, 60_000)
ONE_MB = pb.FetchLogRequest(follower_server_id=-1, max_bytes=MB).SerializeToString()


class Servicer:
    """Answers fetches with as many bytes as are asked for, and counts them."""

    def __init__(self):
        self.fetched = 0

    def __getattr__(self, name):
        return lambda *_: None

    def fetch_log(self, request):
        self.fetched += 1
        response = pb.FetchLogResponse()
        response.tables_resp.add(table_id=1).buckets_resp.add(bucket_id=0, records=b"")
        return Frame(response, [[bytes(request.max_bytes)]])


def serve(stack, limits, **options):
    servicer = Servicer()
    server = Server("127.0.0.1", 0, "secret", threads=8, request_bytes_max=MB, limits=limits, **options)
    server.add(TABLET_SERVER, servicer)
    server.start()
    stack.callback(server.stop, 0)
    return server, servicer


@pytest.fixture
def stack():
    with ExitStack() as opened:
        yield opened


def peer_of(stack, server):
    return stack.enter_context(RawPeer(server.host, server.port))


def ask(peer, times):
    for _ in range(times):
        peer.call(FETCH, "secret", ONE_MB)


def fetch(stack, server, size):
    channel = Channel(server.host, server.port, "secret")
    stack.callback(channel.close)
    return channel.tablet_server().fetch_log(pb.FetchLogRequest(follower_server_id=-1, max_bytes=size))


def ended(server):
    return sum(each.total for each in server.calls.counters.values())


def test_answers_that_a_connection_does_not_take_are_bounded_and_their_room_comes_back(stack):
    server, servicer = serve(stack, LIMITS)
    with RawPeer(server.host, server.port).greet() as silent:
        ask(silent, 30)
        wait_until(lambda: ended(server) == 30, PATIENCE_S)
        assert 10 * MB <= server.unread.size <= 12 * MB
        assert servicer.fetched < 16, "what has no room is not made"
        assert fetch(stack, server, MB).payloads, "others go on"
    wait_until(lambda: server.unread.size == 0, PATIENCE_S)


def test_an_answer_that_a_connection_has_no_room_for_is_not_held(stack):
    server, _ = serve(stack, LIMITS)
    silent = peer_of(stack, server).greet()
    ask(silent, 4)
    wait_until(lambda: ended(server) == 4, PATIENCE_S)
    silent.call(FETCH, "secret", pb.FetchLogRequest(follower_server_id=-1, max_bytes=3 * MB).SerializeToString())
    wait_until(lambda: ended(server) == 5, PATIENCE_S)
    assert server.unread.size < 9 * MB


def test_answers_are_made_only_where_there_is_room():
    memory = AnswerMemory(100)
    first, entered = memory.reserve(60), threading.Event()

    def enter():
        room = memory.reserve(60)
        entered.set()
        del room

    waiting = threading.Thread(target=enter)
    waiting.start()
    assert not entered.wait(0.1)
    first.shrink(40)
    assert entered.wait(PATIENCE_S)
    waiting.join()
    large = threading.Thread(target=lambda: memory.reserve(500))
    large.start()
    large.join(0.1)
    assert large.is_alive()
    del first
    large.join(PATIENCE_S)
    assert not large.is_alive(), "one alone may have more than there is"


def test_an_answer_that_was_taken_needs_no_room(stack):
    server, servicer = serve(stack, LIMITS)
    channel = Channel(server.host, server.port, "secret")
    stack.callback(channel.close)
    for _ in range(40):
        channel.tablet_server().fetch_log(pb.FetchLogRequest(follower_server_id=-1, max_bytes=MB))
    assert servicer.fetched == 40
    wait_until(lambda: server.unread.size == 0, PATIENCE_S)


def test_one_answer_may_be_larger_than_the_limit(stack):
    server, _ = serve(stack, LIMITS)
    assert sum(len(part) for part in fetch(stack, server, 20 * MB).payloads[0]) == 20 * MB


def test_connections_that_take_nothing_make_room_for_those_that_do(stack):
    """Three of them fill the server; small answers find room at once, large ones when the oldest is given up."""
    server, _ = serve(stack, LIMITS)
    for _ in range(3):
        ask(peer_of(stack, server).greet(), 6)
    wait_until(lambda: ended(server) == 18, PATIENCE_S)
    assert 22 * MB <= server.unread.size <= 24 * MB
    assert fetch(stack, server, 1000).payloads
    with pytest.raises(ResourceExhaustedError, match=r"unread answers: .*server\.unread-size-max"):
        fetch(stack, server, 2 * MB)

    def served():
        try:
            return bool(fetch(stack, server, 2 * MB).payloads)
        except ResourceExhaustedError:
            return False

    wait_until(served, PATIENCE_S)
    assert server.unread.size >= 8 * MB, "only as much as was needed"


def test_a_client_that_takes_nothing_loses_its_answers(stack):
    server, _ = serve(stack, ConnectionLimits(24 * MB, 12 * MB, 1_000, 60_000))
    silent = peer_of(stack, server).greet()
    began = time.monotonic()
    ask(silent, 4)
    wait_until(lambda: ended(server) == 4, PATIENCE_S)
    # It is there, and answers pings.
    wait_until(lambda: silent.is_closed(answering=True) or server.unread.size == 0, PATIENCE_S)
    assert not silent.is_closed()
    assert time.monotonic() - began >= 0.9


def test_a_client_that_is_gone_without_a_word_is_closed(stack):
    """Nothing comes back on it, not even the answer to a ping: a stopped process, a cable that was pulled."""
    server, _ = serve(stack, ConnectionLimits(24 * MB, 12 * MB, 1_000, 60_000))
    silent = peer_of(stack, server).greet()
    ask(silent, 1)
    wait_until(silent.is_closed, GRPC_PATIENCE_S / 2)


def test_connections_that_say_nothing_are_closed_and_others_get_in(stack):
    """Before the greeting or after it; whoever has brought the token may be silent."""
    server, _ = serve(stack, ConnectionLimits(24 * MB, 12 * MB, 60_000, 500), connections_max=5)
    channel = Channel(server.host, server.port, "secret")
    stack.callback(channel.close)
    attached = peer_of(stack, server).greet()
    ask(attached, 1)
    wait_until(lambda: ended(server) == 1, PATIENCE_S)
    mute = [peer_of(stack, server) for _ in range(2)] + [peer_of(stack, server).greet() for _ in range(2)]
    wrong = mute[-1]
    wrong.call(FETCH, "wrong", ONE_MB)
    wait_until(lambda: server.calls.unauthenticated == 1, PATIENCE_S)
    with pytest.raises(ServerUnavailableError):
        channel.tablet_server().fetch_log(pb.FetchLogRequest(follower_server_id=-1, max_bytes=10))
    wait_until(lambda: all(peer.is_closed() for peer in mute), PATIENCE_S)

    def served():
        with suppress(ServerUnavailableError):
            return bool(
                channel.tablet_server().fetch_log(pb.FetchLogRequest(follower_server_id=-1, max_bytes=10)).payloads
            )
        return False

    wait_until(served, PATIENCE_S)
    assert not attached.is_closed()


def test_a_connection_that_speaks_has_time_for_its_first_request(stack):
    """A request of many megabytes on a slow line: nothing is known of its sender until it has come as a whole."""
    server, _ = serve(stack, ConnectionLimits(24 * MB, 12 * MB, 60_000, 400))
    slow = peer_of(stack, server).greet()
    end = time.monotonic() + 1.2

    def drip():
        slow.socket.sendall(ANY_FRAME)
        return time.monotonic() > end

    wait_until(drip, PATIENCE_S)
    assert not slow.is_closed()
    wait_until(slow.is_closed, PATIENCE_S)


@pytest.mark.parametrize(
    ("peer", "place"),
    [
        ("ipv4:127.0.0.1:80", ("127.0.0.1", 80)),
        ("ipv6:%5B::1%5D:4711", ("::1", 4711)),
        ("ipv6:[::ffff:10.0.0.1]:1", ("10.0.0.1", 1)),
        ("ipv6:%5Bfe80::1%25eth0%5D:80", ("fe80::1", 80)),
        ("unix:/tmp/x", ("", -1)),
        ("", ("", -1)),
    ],
)
def test_other_ends_are_recognised_by_grpcs_names_for_them(peer, place):
    assert anonymous_connections._parse_peer(peer) == place
