"""A server whose gRPC thread dies of what gRPC itself raises ends, so that it is started again; it does not hang."""

import sys
import threading

import pytest

from fluss_lab.client import Connection
from fluss_lab.errors import ServerUnavailableError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.server import cluster
from fluss_lab.server.process.serving_loss import _is_serving
from fluss_lab.testing import ServerProcess, wait_until

#: A server in which gRPC finds no memory for the next event, from when a file is there.
SERVER = """
import os, sys
from grpc import _server
flag, taken = sys.argv.pop(1), _server._process_event_and_continue
def process(state, event):
    if os.path.exists(flag):
        raise MemoryError
    return taken(state, event)
_server._process_event_and_continue = process
from fluss_lab.cli.commands import main
main(sys.argv[1:])
"""


def test_a_server_that_hears_of_no_call_any_more_ends_and_nothing_is_lost(tmp_path):
    folder, flag, path = tmp_path / "lab", tmp_path / "no memory", TablePath("d", "t")
    with ServerProcess(folder, client={"client.request-timeout": "60s"}) as server:
        server.connection.admin().create_database("d")
        server.connection.admin().create_table(path, make_descriptor({"id": "bigint"}))
        with server.connection.append_writer(path) as writer:
            writer.append([{"id": number} for number in range(10)])
        server.kill()
        command = [sys.executable, "-c", SERVER, str(flag), "server"]
        cluster.start_server(folder, command, server.options, ephemeral=False)
        assert server.connection.admin().databases() == ["d"]
        flag.touch()
        with (
            Connection(lambda: server.address, {"client.request-timeout": "500ms"}) as caller,
            pytest.raises(ServerUnavailableError),
        ):
            caller.admin().databases()
        try:
            server.wait_until_gone(20)
        except BaseException:
            server.kill()  # which a stop would wait for
            raise
        flag.unlink()
        server.start()
        (status,) = server.connection.admin().buckets(server.connection.table_info(path))
        assert status.end_offset == 10


def test_other_threads_may_die(monkeypatch):
    seen = []
    monkeypatch.setattr(threading, "excepthook", seen.append)

    def fail() -> None:
        raise MemoryError

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    wait_until(lambda: bool(seen))
    assert not _is_serving(seen[0].exc_traceback)
