"""What a server process sets up: log lines that a program can take apart, and its end when gRPC's thread dies."""

from __future__ import annotations

import logging
import sys
import threading

import pytest

from fluss_lab.client import Connection
from fluss_lab.errors import ServerUnavailableError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.model.names import TableBucket
from fluss_lab.server import cluster
from fluss_lab.server.process.process_setup import _is_serving, log_to
from fluss_lab.server.tablet.buckets.bucket_logger import BucketLogger
from fluss_lab.testing import ServerProcess, wait_until


@pytest.fixture
def lines(tmp_path):
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    log_to(
        tmp_path / "server.log",
        {"datalake.iceberg.uri": "postgresql://me:SUPER%22SECRET@db", "log.durability": "fsync"},
    )
    yield lambda: (tmp_path / "server.log").read_text().splitlines()
    root.setLevel(level)
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
        handler.close()


def test_lines_about_a_bucket_say_which(lines):
    logger = BucketLogger(logging.getLogger("tests.bucket"), "nyc.flights", "2013-01", TableBucket(7, 2, 3))
    logger.info("rolled at %d", 100)
    BucketLogger(logging.getLogger("tests.bucket"), "nyc.plain", None, TableBucket(8, None, 0)).warning("x")
    first, second = lines()
    assert " table=nyc.flights partition=2013-01 bucket=t7/p2/b3 message=" in first
    assert "rolled at 100" in first
    assert " table=nyc.plain bucket=t8/b0 message=" in second
    assert "partition=" not in second


def test_what_libraries_say_has_no_secret_of_the_options(lines):
    log = logging.getLogger("tests.secrets")
    log.info('password SUPER"SECRET refused')
    try:
        raise ValueError("no driver of postgresql://me:SUPER%22SECRET@db")
    except ValueError:
        log.exception("event=failed durability=%s", "fsync")
    first, second = lines()
    assert "SECRET" not in first + second
    assert "password ******** refused" in first
    assert "durability=fsync" in second
    assert "postgresql://me:********@db" in second


def test_nothing_in_a_record_ends_its_line_or_makes_a_field(lines):
    log = logging.getLogger("tests.hostile")
    log.info("two\nlines level=ERROR")
    log.info("event=x name=%s", "a\nb")
    log.info("y", extra={"table": 'a b="c"', "bucket": "t1/b0"})
    try:
        raise ValueError("line\nline")
    except ValueError:
        log.exception("failed")
    found = lines()
    assert len(found) == 4
    assert found[0].endswith('message="two\\nlines level=ERROR"')
    assert found[1].endswith("event=x name=a\\nb")
    assert ' table="a b=\\"c\\"" bucket=t1/b0 ' in found[2]
    assert "traceback=" in found[3]


def test_a_servers_log_tells_of_the_buckets_it_opens(tmp_path):
    with ServerProcess(tmp_path / "lab") as server:
        admin = server.connection.admin()
        admin.create_database("db")
        admin.create_table(TablePath("db", "t"), make_descriptor({"a": "bigint"}, buckets=2))
        text = (server.folder / "server.log").read_text()
    opened = [line for line in text.splitlines() if " table=db.t bucket=t1/b1 " in line]
    assert any("open: [0, 0)" in line for line in opened)


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
