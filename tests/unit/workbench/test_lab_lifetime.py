"""How a lab begins and ends: its folder, its server, its threads, other processes at the same folder."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pytest

import fluss_lab as fl
from fluss_lab import errors
from fluss_lab.interrupts import Held, join_threads
from fluss_lab.server.cluster import is_alive, read_discovery
from fluss_lab.testing import wait_until
from tests.unit.workbench.lab_kit import LAKE, tier

# -- opening ---------------------------------------------------------------------------------------------------------


def test_a_lab_is_private_and_found_by_its_file(lab):
    path = lab.folder / "server.json"
    assert path.stat().st_mode & 0o777 == 0o600
    server = json.loads(path.read_text())["servers"][0]
    assert server["host"] == "127.0.0.1"
    assert (lab.folder / "token").stat().st_mode & 0o777 == 0o600
    secret = (lab.folder / "token").read_text().strip()
    assert secret not in repr(lab) + lab._repr_html_() + repr(lab.connection) + repr(lab.status())
    found = fl.Lab.connect(f"{server['host']}:{server['port']}", token_file=server["token_file"])
    assert found.databases() == lab.databases()
    assert all(
        f"{server['host']}:{server['port']}" in shown for shown in (repr(found.status()), found.status()._repr_html_())
    )
    found.close()


def test_a_second_process_attaches_to_the_same_server_and_leaves_it_running(lab):
    pid = read_discovery(lab.folder).servers[0].pid
    code = f"import fluss_lab as fl\nwith fl.Lab.open({str(lab.folder)!r}) as lab: print(lab.status().attached)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "2\n"
    wait_until(lambda: lab.status().attached == 1, 10)
    assert read_discovery(lab.folder).servers[0].pid == pid


def test_the_server_ends_with_the_last_lab_and_keeps_everything(tmp_path):
    config = {"server.grace": "100ms"}
    with fl.Lab.open(tmp_path / "lab", config=config) as lab:
        lab.create_database("d")
        table = lab.create_table("d.t", {"a": "int"}, properties=LAKE)
        table.append([{"a": 1}, {"a": 2}])
        tier(table)
        table.append([{"a": 3}])
        server = read_discovery(lab.folder).servers[0]
    wait_until(lambda: not is_alive(server), 30)
    assert not (tmp_path / "lab" / "server.json").exists()
    with fl.Lab.open(tmp_path / "lab", config=config) as lab:
        scan = lab.table("d.t").scan(with_source=True)
        assert scan.to_arrow().to_pydict() == {"a": [1, 2, 3], "_source": ["lake", "lake", "log"]}


def threads_of_ours():
    ours = ("scan-", "write-", "lookup-", "discover-", "fluss-")
    return {each for each in threading.enumerate() if each.name.startswith(ours)}


def test_a_lab_ends_what_it_began_and_leaves_a_quiet_folder(tmp_path):
    """The grace is ten seconds: none of it is waited for."""
    before, folder = threads_of_ours(), tmp_path / "lab"
    first, second = fl.Lab.open(folder), fl.Lab.open(folder)
    first.create_database("d")
    log = first.create_table("d.t", {"a": "int"}, buckets=2)
    writer = log.writer()
    writer.append([{"a": number} for number in range(10)])
    scanner, forgotten = log.subscribe("earliest"), log.subscribe("latest")
    forgotten.poll(0.01)
    del forgotten
    keyed = first.create_table("d.k", {"a": "int"}, primary_key=["a"], buckets=2)
    keyed.upsert([{"a": number} for number in range(20_000)])
    lookuper = first.connection.lookuper("d.k")
    lookuper.lookup([{"a": number} for number in range(20_000)])
    rows = iter(keyed.scan().to_batches(10))
    next(rows)
    server = read_discovery(folder).servers[0]
    first.close()
    assert is_alive(server)
    for closed in (lambda: writer.append([{"a": 1}]), lambda: scanner.poll(0.0)):
        with pytest.raises(errors.FlussError, match="closed"):
            closed()
    assert second.table("d.t").scan().count() == 10
    began = time.monotonic()
    second.close()
    assert not is_alive(server)
    assert time.monotonic() - began < 8
    wait_until(lambda: threads_of_ours() <= before)
    shutil.rmtree(folder)
    second.close()
    assert not folder.exists()


def test_a_closed_lab_says_so_and_starts_no_spark(lab, monkeypatch):
    """Who calls again what is retriable went on for ever; and a JVM was started for a lab that had no tables any more."""

    def launch(*_arguments: object, **_options: object) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr("fluss_lab.spark.session.spark_session.spark_session", launch)
    other = fl.Lab.open(lab.folder)
    log = other.create_table("shop.closed", {"a": "int"}, properties=LAKE)
    service = other.tiering_service()
    other.close()
    calls = [
        lambda: other.spark, other.start_spark, lambda: other.sql("select 1"), lambda: log.scan().to_spark(), log.stream,
        log.tier, log.compact, other.tables, log.count, lambda: log.append([{"a": 1}]), service.start,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(errors.ConnectionClosedError, match="closed; open it again") as raised:
            call()
        assert not raised.value.retriable


def test_calls_under_way_end_soon_when_another_thread_closes_the_lab(lab):
    other, raised = fl.Lab.open(lab.folder), []
    log = other.create_table("shop.under_way", {"a": "int"})
    rows = pa.table({"a": pa.array(range(10_000), pa.int32())})
    calls = [lambda: log.append(rows), log.count, lambda: log.scan().to_arrow(), other.tables]

    def work(call):
        try:
            while True:
                call()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    wait_until(lambda: log.count() > 0)
    other.close()
    assert join_threads(threads, 20)
    for error in raised:
        closed = isinstance(error, errors.ConnectionClosedError | errors.WriteInterruptedError)
        assert closed or (isinstance(error, errors.InvalidRequestError) and "closed" in str(error)), repr(error)


def test_a_scanner_that_nobody_holds_ends_its_threads(lab):
    table = lab.create_table("shop.forgotten", {"a": "int"})
    before = threads_of_ours()
    scanner = table.subscribe("latest")
    scanner.poll(0.01)
    assert threads_of_ours() - before
    del scanner
    wait_until(lambda: gc.collect() >= 0 and threads_of_ours() <= before)


def test_a_lab_that_nobody_holds_lets_go_of_its_server(lab):
    before = threads_of_ours()
    other = fl.Lab.open(lab.folder)
    scan = other.create_table("shop.held", {"a": "int"}).scan()
    del other
    gc.collect()
    assert scan.count() == 0
    assert threads_of_ours() - before
    del scan
    wait_until(lambda: gc.collect() >= 0 and threads_of_ours() <= before)


def test_labs_that_open_while_the_last_one_closes_find_a_server(tmp_path):
    folder, failures = tmp_path / "lab", []
    with fl.Lab.open(folder) as lab:
        lab.create_database("d")
        lab.create_table("d.t", {"a": "int"})

    def work(first):
        try:
            for number in range(first, first + 3):
                with fl.Lab.open(folder) as lab:
                    lab.table("d.t").append([{"a": number}])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    with fl.Lab.open(folder) as lab:
        assert sorted(lab.table("d.t").scan().to_arrow()["a"].to_pylist()) == [0, 1, 2, 10, 11, 12]
        server = read_discovery(folder).servers[0]
    assert not is_alive(server)


def test_a_poll_that_is_interrupted_loses_no_record(lab):
    table = lab.create_table("shop.polled", {"a": "int"})
    table.append([{"a": number} for number in range(5)])
    with table.subscribe("earliest") as scanner:
        wait_until(lambda: len(scanner._positions._queue) > 0)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with Held():
                signal.raise_signal(signal.SIGINT)
                with pytest.raises(KeyboardInterrupt):
                    scanner.poll(5.0)
        finally:
            signal.signal(signal.SIGINT, before)
        assert list(scanner.positions().values()) == [0]
        found = scanner.poll(30.0)
        assert [value for batch in found for value in batch.rows["a"].to_pylist()] == list(range(5))


def test_a_killed_server_comes_back_and_work_goes_on(tmp_path):
    with fl.Lab.open(tmp_path / "lab", config={"server.grace": "100ms"}) as lab:
        lab.create_database("d")
        table = lab.create_table("d.t", {"a": "int"})
        for turn in range(3):
            table.append([{"a": turn}])
            os.kill(read_discovery(lab.folder).servers[0].pid, signal.SIGKILL)
        table.append([{"a": 3}])
        assert table.scan().to_arrow()["a"].to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"config": {"log.segment.size": "1mb"}}, errors.InvalidPropertyError, "log.segment"),
        ({"config": {"log.segment.file-size": "big"}}, errors.InvalidPropertyError, "64mb"),
        ({"durability": "maybe"}, errors.InvalidPropertyError, "ack, fsync"),
        ({"tablet_servers": 0}, errors.InvalidPropertyError, "server.tablet-servers"),
    ],
)
def test_bad_settings_start_nothing(tmp_path, arguments, error, says):
    with pytest.raises(error, match=says):
        fl.Lab.open(tmp_path / "lab", **arguments)
    assert not (tmp_path / "lab" / "server.json").exists()


def test_connecting_needs_the_right_token_and_a_server(lab, tmp_path):
    server = read_discovery(lab.folder).servers[0]
    wrong = tmp_path / "token"
    wrong.write_text("x" * 43)
    wrong.chmod(0o644)
    with pytest.raises(errors.AuthenticationError, match="others may read"):
        fl.Lab.connect(f"{server.host}:{server.port}", token_file=wrong)
    wrong.chmod(0o600)
    with pytest.raises(errors.AuthenticationError):
        fl.Lab.connect(f"{server.host}:{server.port}", token_file=wrong)
    with pytest.raises(errors.AuthenticationError, match="none"):
        fl.Lab.connect(f"{server.host}:{server.port}", token_file=tmp_path / "none")
    with pytest.raises(errors.ServerUnavailableError):
        fl.Lab.connect("127.0.0.1:1", token_file=server.token_file, config={"client.request-timeout": "300ms"})
    with pytest.raises(errors.InvalidRequestError, match="host:port"):
        fl.Lab.connect("localhost", token_file=server.token_file)
