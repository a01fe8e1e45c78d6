"""The client's end of a connection: calls that are interrupted, and calls when it is closed."""

from __future__ import annotations

import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from fluss_lab.errors import ServerUnavailableError, UnsupportedError
from fluss_lab.rpc import channel as channels
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.channel import Channel
from fluss_lab.rpc.rpc_methods import COORDINATOR, methods_of
from fluss_lab.rpc.serving.grpc_server import Server

TIMEOUT_S = 20.0


def test_a_short_question_to_a_server_that_does_not_answer_ends_soon_when_it_is_interrupted():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def interrupt() -> None:
            with silent.accept()[0]:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                is_over.wait(TIMEOUT_S)

        is_over = threading.Event()
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        channel = Channel(*silent.getsockname(), "secret", call_timeout_s=TIMEOUT_S)
        began_s = time.monotonic()
        try:
            with pytest.raises(KeyboardInterrupt):
                channel.tablet_server().describe_buckets(pb.DescribeBucketsRequest(table_id=1))
            assert time.monotonic() - began_s < TIMEOUT_S / 2
        finally:
            signal.signal(signal.SIGINT, before)
            channel.close()
            is_over.set()
            interrupting.join(TIMEOUT_S)


@pytest.mark.parametrize("interrupts", [1, 2])
def test_a_change_that_is_interrupted_is_done_and_a_second_interrupt_leaves_it(monkeypatch, interrupts):
    """Seen: a table that was about to be made when its cell was stopped was made after the cell that ran next had looked for it."""
    may_end, has_ended = threading.Event(), threading.Event()

    def create(_servicer, _request):
        for number in range(interrupts):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            may_end.wait(TIMEOUT_S if number else 0.3)
        has_ended.set()
        return pb.CreateTableResponse()

    monkeypatch.setattr(channels, "_SETTLE_S", TIMEOUT_S)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    servicer = type("Servicer", (), {**dict.fromkeys(methods_of(COORDINATOR)), "create_table": create})()
    server = Server("127.0.0.1", 0, "secret", threads=1, request_bytes_max=1 << 16)
    server.add(COORDINATOR, servicer)
    server.start()
    channel = Channel(server.host, server.port, "secret")
    request = pb.CreateTableRequest(
        table_path=pb.PbTablePath(database_name="d", table_name="t"), table_json=b"", ignore_if_exists=False
    )
    began_s = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            channel.coordinator().create_table(request)
        assert has_ended.is_set() is (interrupts == 1)
        assert time.monotonic() - began_s < TIMEOUT_S / 2
    finally:
        signal.signal(signal.SIGINT, before)
        may_end.set()
        channel.close()
        server.stop(0)


def test_a_call_that_was_not_made_before_fails_as_any_other_when_the_connection_is_closed():
    channel = Channel("127.0.0.1", 1, "secret")
    coordinator = channel.coordinator()
    channel.close()
    with pytest.raises(ServerUnavailableError, match="the connection is closed"):
        coordinator.describe_cluster(pb.DescribeClusterRequest())
    with pytest.raises(AttributeError):
        coordinator.no_such_call  # noqa: B018


def test_a_call_that_an_older_server_does_not_know_says_that_it_is_older():
    """A server without a single method stands for one of a version that had not this one."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    channel = Channel("127.0.0.1", port, "secret")
    try:
        with pytest.raises(UnsupportedError, match=r"does not know the call .* it is of an older version"):
            channel.tablet_server().locate_record(pb.LocateRecordRequest(table_id=1, bucket_id=0, log_offset=0))
    finally:
        channel.close()
        server.stop(None)
