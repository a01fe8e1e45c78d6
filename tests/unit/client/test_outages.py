"""Servers that die and come back while clients work: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fluss_lab.client import AppendResult, Connection, read_range
from fluss_lab.errors import FlussError, ServerUnavailableError
from fluss_lab.model import OffsetSpec, TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster, ServerProcess

#: A restart takes about a second; on a machine whose disk stalls, half a minute was seen.
PATIENCE_S = 240.0
CLIENT = {"client.request-timeout": "120s", "client.scanner.log.fetch.wait-max-time": "100ms"}
PATH = TablePath("db", "t")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "lab", client=CLIENT) as process:
        yield process


def make_table(connection: Connection, buckets: int = 1, **definition: Any) -> TableInfo:
    connection.admin().create_database("db", if_not_exists=True)
    columns = {"id": "bigint", "bucket": "int"}
    return connection.admin().create_table(PATH, make_descriptor(columns, buckets=buckets, **definition))


def ids(connection: Connection, info: TableInfo, bucket: int = 0) -> list[int]:
    statuses = {each.bucket.bucket: each for each in connection.admin().buckets(info)}
    runs = read_range(
        connection, info, TableBucket(info.table_id, None, bucket), 0, statuses[bucket].require().end_offset
    )
    return [value for run in runs for value in run.rows.column("id").to_pylist()]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    waiting = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, what
        waiting.wait(0.02)


@pytest.mark.slow
def test_kill_during_appends_loses_nothing_and_doubles_nothing(server, rng):
    info = make_table(server.connection, buckets=3)
    done = threading.Event()
    futures: list[tuple[range, AppendResult]] = []
    errors: list[BaseException] = []

    def write() -> None:
        try:
            with server.connection.append_writer(PATH) as writer:
                at = 0
                while not done.is_set():
                    size = rng.choice([1, 7, 1000])
                    futures.append((range(at, at + size), writer.append({"id": np.arange(at, at + size)})))
                    at += size
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(3):
        before = len(futures)
        wait_until(lambda before=before: len(futures) > before + 50 or bool(errors), "appends go on")
        server.kill()
        server.start()
    before = len(futures)
    wait_until(lambda: len(futures) > before + 50 or bool(errors), "appends go on")
    done.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert errors == []
    written = {}
    for rows, future in futures:
        result = future.result(0)
        (((_, bucket), ((base, end),)),) = result.offsets.items()
        assert end - base == len(rows)
        written[bucket, base] = rows
    for bucket in range(3):
        expected = [
            value
            for (of, _), rows in sorted(written.items(), key=lambda item: item[0])
            if of == bucket
            for value in rows
        ]
        assert ids(server.connection, info, bucket) == expected


@pytest.mark.parametrize("place", ["tablet.append.before_write", "tablet.append.after_write"])
def test_a_batch_whose_answer_was_lost_is_there_once(tmp_path, place):
    """The fifth append of the server finds it dead, before or after the batch is in the log."""
    with ServerProcess(tmp_path / "lab", env={"FLUSS_LAB_FAILPOINTS": f"{place}=kill@5"}, client=CLIENT) as server:
        info = make_table(server.connection)
        with server.connection.append_writer(PATH) as writer:
            for index in range(4):
                writer.append([{"id": index}]).result()
            futures = [writer.append([{"id": index}]) for index in range(4, 40)]
            server.wait_until_gone()
            server.env = {}
            server.start()
            offsets = [future.result(PATIENCE_S).offsets[None, 0] for future in futures]
        assert offsets == [((index, index + 1),) for index in range(4, 40)]
        assert ids(server.connection, info) == list(range(40))


def test_an_append_that_is_given_up_says_so_and_the_writer_goes_on_when_the_server_is_back(tmp_path):
    client = {**CLIENT, "client.request-timeout": "1500ms"}
    with ServerProcess(tmp_path / "lab", client=client) as server:
        info = make_table(server.connection, buckets=2, bucket_key=["bucket"])
        writer = server.connection.append_writer(PATH)
        writer.append([{"id": 0, "bucket": 1}]).result()
        address = str(server.address)
        server.kill()
        began = time.monotonic()
        futures = [writer.append([{"id": index, "bucket": 1}]) for index in range(1, 4)]
        for future in futures:
            with pytest.raises(ServerUnavailableError) as caught:
                future.result(PATIENCE_S)
            for words in ("db.t", address.split(":", maxsplit=1)[0], "not known"):
                assert words in str(caught.value)
            tried_s = re.search(r"(?:not done in|nothing acknowledged for) (\d+\.\d) s", str(caught.value))[1]
            assert 1.4 <= float(tried_s) < PATIENCE_S
        assert time.monotonic() - began < PATIENCE_S
        with pytest.raises(ServerUnavailableError):
            writer.append([{"id": 9, "bucket": 1}])
        server.start()
        for index in range(10, 15):
            writer.append([{"id": index, "bucket": 1}]).result(PATIENCE_S)
        writer.close()
        buckets = [ids(server.connection, info, bucket) for bucket in (0, 1)]
        assert sorted(buckets[0] + buckets[1]) == [0, 10, 11, 12, 13, 14]


@pytest.mark.slow
def test_a_stopped_server_is_given_up_in_time_and_its_late_work_is_not_doubled(tmp_path):
    client = {**CLIENT, "client.request-timeout": "1s"}
    with ServerProcess(tmp_path / "lab", client=client) as server:
        info = make_table(server.connection)
        writer = server.connection.append_writer(PATH)
        writer.append([{"id": 0}]).result()
        os.kill(server.pid, signal.SIGSTOP)
        try:
            # The signal is delivered when one of its threads runs next.
            state = Path(f"/proc/{server.pid}/stat")
            wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "the server is stopped")
            began = time.monotonic()
            with pytest.raises(FlussError) as caught:
                writer.append([{"id": 1}]).result(PATIENCE_S)
            assert caught.value.retriable
            assert "not known" in str(caught.value)
            assert time.monotonic() - began < PATIENCE_S
        finally:
            os.kill(server.pid, signal.SIGCONT)
        writer.append([{"id": 2}]).result(PATIENCE_S)
        writer.close()
        found = ids(server.connection, info)
        assert found in ([0, 2], [0, 1, 2])


def test_calls_made_while_the_server_is_away_succeed_when_it_is_back(server):
    info = make_table(server.connection)
    admin = server.connection.admin()
    server.kill()
    results: dict[str, object] = {}
    calls = {
        "databases": admin.databases,
        "create": lambda: admin.create_database("more"),
        "offsets": lambda: admin.list_offsets(info, OffsetSpec.latest())[0].offset,
        "buckets": lambda: len(admin.buckets(info)),
        "append": lambda: server.connection.append_writer(PATH).append([{"id": 1}]).result().rows,
    }

    def run(name: str) -> None:
        try:
            results[name] = calls[name]()
        except FlussError as error:
            results[name] = error

    threads = [threading.Thread(target=run, args=(name,)) for name in calls]
    for thread in threads:
        thread.start()
    server.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert set(results) == set(calls)
    assert "db" in results["databases"]
    assert results["create"] is None
    assert results["offsets"] in (0, 1)
    assert (results["buckets"], results["append"]) == (1, 1)


@pytest.mark.parametrize("what", ["table", "alter", "partition", "drop_partition", "drop_table"])
def test_a_change_that_acted_before_the_server_died_is_recognised_as_ours(tmp_path, what):
    descriptor = make_descriptor({"id": "int", "p": "string"}, partitioned_by=["p"])
    with EmbeddedCluster(tmp_path / "lab") as before:
        admin = before.connection.admin()
        admin.create_database("db")
        if what != "table":
            admin.create_table(PATH, descriptor)
        if what == "drop_partition":
            admin.create_partition(PATH, {"p": "a"})
    env = {"FLUSS_LAB_FAILPOINTS": "coordinator.ddl.after_commit=kill"}
    with ServerProcess(tmp_path / "lab", env=env, client=CLIENT) as server:
        admin = server.connection.admin()
        calls: dict[str, Callable[[], object]] = {
            "table": lambda: admin.create_table(PATH, descriptor),
            "alter": lambda: admin.alter_table(PATH, set={"table.log.ttl": "2d"}),
            "partition": lambda: admin.create_partition(PATH, {"p": "a"}),
            "drop_partition": lambda: admin.drop_partition(PATH, {"p": "a"}),
            "drop_table": lambda: admin.drop_table(PATH),
        }
        outcome: list[object] = []

        def run() -> None:
            try:
                outcome.append(calls[what]())
            except FlussError as error:
                outcome.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        server.wait_until_gone()
        server.env = {}
        server.start()
        thread.join(PATIENCE_S)
        assert not isinstance(outcome[0], FlussError), (outcome, (server.folder / "server.log").read_text()[-4000:])
        assert ("t" in admin.tables("db")) == (what != "drop_table")
        if what != "drop_table":
            assert len(admin.partitions(PATH)) == (what == "partition")


def test_a_scanner_outlives_a_kill_and_misses_nothing(server):
    info = make_table(server.connection)
    with server.connection.log_scanner(PATH) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        found: list[int] = []

        def poll_until(count: int) -> None:
            deadline = time.monotonic() + PATIENCE_S
            while len(found) < count:
                assert time.monotonic() < deadline
                for batch in scanner.poll(0.5):
                    assert batch.records.base_offset == len(found)
                    found.extend(batch.rows.column("id").to_pylist())

        for round_number in range(3):
            with server.connection.append_writer(PATH) as writer:
                writer.append({"id": np.arange(100 * round_number, 100 * round_number + 100)})
            poll_until(100 * round_number + 100)
            server.kill()
            server.start()
        assert found == list(range(300)) == ids(server.connection, info)


def test_a_scanner_says_when_the_server_stays_away_and_goes_on_when_it_is_back(tmp_path):
    client = {**CLIENT, "client.request-timeout": "700ms"}
    with ServerProcess(tmp_path / "lab", client=client) as server:
        make_table(server.connection, buckets=3, bucket_key=["id"])
        with server.connection.append_writer(PATH) as writer:
            writer.append({"id": np.arange(50)})
        with server.connection.log_scanner(PATH) as scanner:
            scanner.subscribe_all(OffsetSpec.earliest())
            count = 0
            while count < 50:
                count += scanner.poll(PATIENCE_S).count
            server.kill()
            with pytest.raises(ServerUnavailableError, match=r"db\.t"):
                scanner.poll(PATIENCE_S)
            server.start()
            with server.connection.append_writer(PATH) as writer:
                writer.append({"id": np.arange(30)})
            deadline = time.monotonic() + PATIENCE_S
            while count < 80:
                assert time.monotonic() < deadline
                try:
                    count += scanner.poll(0.5).count
                except ServerUnavailableError:
                    continue
            assert count == 80


def test_a_range_is_read_across_a_restart(server):
    info = make_table(server.connection)
    with server.connection.append_writer(PATH) as writer:
        for start in range(0, 1000, 100):
            writer.append({"id": np.arange(start, start + 100)}).result()
    options = {**CLIENT, "client.scanner.log.fetch.max-bytes": "1kb"}
    with Connection(lambda: server.address, options) as connection:
        runs = read_range(connection, info, TableBucket(info.table_id, None, 0), 0, 1000)
        found = next(runs).offsets.to_pylist()
        server.kill()
        server.start()
        for run in runs:
            found += run.offsets.to_pylist()
    assert found == list(range(1000))


def test_a_writer_that_the_server_forgot_goes_on_under_another_id(tmp_path):
    options = {"log.writer-id-expiration": "1s", "log.segment.file-size": "1kb", "log.flush.interval": "20ms"}
    with ServerProcess(tmp_path / "lab", options, client={**CLIENT, "client.request-timeout": "5s"}) as server:
        info = make_table(server.connection)
        with server.connection.append_writer(PATH) as writer:
            writer.append([{"id": 0}]).result()
            with server.connection.append_writer(PATH) as other:
                # The checkpoints that segments begin with find the writer idle, and forget it when it still is.
                for turn in range(2):
                    began = time.monotonic()
                    wait_until(lambda began=began: time.monotonic() - began > 1.2, "the writer is idle for long")
                    for index in range(1 + 10 * turn, 11 + 10 * turn):
                        other.append([{"id": index}]).result()
                    wait_until(lambda: is_durable(server.connection, info), "the last checkpoint")
            for index in range(21, 25):
                writer.append([{"id": index}])
            writer.flush()
        assert ids(server.connection, info) == list(range(25))


def is_durable(connection: Connection, info: TableInfo) -> bool:
    return all(each.require().durable_offset == each.require().end_offset for each in connection.admin().buckets(info))
