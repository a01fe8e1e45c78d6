"""Servers that die under upserting writers: nothing acknowledged is lost or doubled, changelog and rows agree."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fluss_lab.client import Connection, UpsertResult, read_range
from fluss_lab.errors import ServerUnavailableError
from fluss_lab.model import TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.testing import ServerProcess, wait_until

PATIENCE_S = 240.0
CLIENT = {"client.request-timeout": "120s", "client.scanner.log.fetch.wait-max-time": "100ms"}
PATH = TablePath("db", "t")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "lab", client=CLIENT) as process:
        yield process


def make_table(connection: Connection, buckets: int = 1) -> TableInfo:
    connection.admin().create_database("db", if_not_exists=True)
    descriptor = make_descriptor({"id": "bigint", "n": "bigint"}, primary_key=["id"], buckets=buckets)
    return connection.admin().create_table(PATH, descriptor)


def changelog(connection: Connection, info: TableInfo, bucket: int = 0) -> list[tuple[int, int, int, int]]:
    """Return (change type, previous offset, id, n) of each record."""
    place = TableBucket(info.table_id, None, bucket)
    end = {each.bucket: each.require().end_offset for each in connection.admin().buckets(info)}[place]
    found: list[tuple[int, int, int, int]] = []
    for run in read_range(connection, info, place, 0, end, previous_offsets=True):
        assert run.change_types is not None
        assert run.previous_offsets is not None
        columns: list[Any] = [run.change_types, run.previous_offsets, *run.rows.columns]
        found += zip(*(column.to_pylist() for column in columns), strict=True)
    return found


def replayed(log: list[tuple[int, int, int, int]]) -> dict[int, tuple[int, int]]:
    """Return the rows that a changelog comes to, with their offsets; every record must fit the ones before."""
    rows: dict[int, tuple[int, int]] = {}
    before: dict[int, tuple[int, int]] = {}
    for offset, (change, previous, key, n) in enumerate(log):
        if change in {2, 4}:
            assert rows.pop(key) == (n, previous)
            before = {key: (n, previous)}
        else:
            assert key not in rows
            assert previous == (before[key][1] if change == 3 else -1)
            rows[key] = (n, offset)
    return rows


def live(connection: Connection, info: TableInfo, bucket: int = 0) -> dict[int, tuple[int, int]]:
    scan = connection.scan_kv(info, TableBucket(info.table_id, None, bucket))
    return {
        key: (n, offset)
        for run in scan
        for key, n, offset in zip(*(each.to_pylist() for each in (*run.rows.columns, run.offsets)), strict=True)
    }


@pytest.mark.slow
def test_kill_during_upserts_loses_nothing_and_doubles_nothing(server, seed):
    rng = random.Random(seed)
    info = make_table(server.connection, buckets=2)
    done = threading.Event()
    futures: list[UpsertResult] = []
    errors: list[BaseException] = []
    expected: dict[int, int] = {}
    numbers: list[int] = []

    def write() -> None:
        try:
            with server.connection.upsert_writer(PATH) as writer:
                at = 0
                while not done.is_set():
                    keys = [rng.randrange(50) for _ in range(rng.choice([1, 3, 40]))]
                    if rng.random() < 0.2:
                        futures.append(writer.delete({"id": keys}))
                        for key in keys:
                            expected.pop(key, None)
                        continue
                    rows = [{"id": key, "n": at + place} for place, key in enumerate(keys)]
                    futures.append(writer.upsert(rows))
                    numbers.extend(row["n"] for row in rows)
                    expected.update((row["id"], row["n"]) for row in rows)
                    at += len(keys)
        except BaseException as error:
            errors.append(error)

    def goes_on() -> None:
        before = len(futures)
        wait_until(lambda: len(futures) > before + 50 or bool(errors), PATIENCE_S)

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(3):
        goes_on()
        server.kill()
        server.start()
    goes_on()
    done.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert errors == []
    assert all(future.result(0).rows for future in futures)
    logs = [changelog(server.connection, info, bucket) for bucket in range(2)]
    # Each upserted row is another one than all before, so each is in the changelog exactly once.
    assert sorted(n for log in logs for change, _, _, n in log if change in {1, 3}) == numbers
    found: dict[int, int] = {}
    for bucket, log in enumerate(logs):
        rows = replayed(log)
        assert live(server.connection, info, bucket) == rows
        found |= {key: n for key, (n, _) in rows.items()}
    assert found == expected
    with server.connection.lookuper(PATH) as lookuper:
        assert lookuper.lookup({"id": list(range(50))})["n"].to_pylist() == [expected.get(key) for key in range(50)]


@pytest.mark.parametrize("place", ["tablet.append.before_write", "tablet.append.after_write"])
def test_a_batch_whose_answer_was_lost_is_there_once(tmp_path, place):
    """The fifth put of the server finds it dead, before or after its changelog is in the log."""
    with ServerProcess(tmp_path / "lab", env={"FLUSS_LAB_FAILPOINTS": f"{place}=kill@5"}, client=CLIENT) as server:
        info = make_table(server.connection)
        with server.connection.upsert_writer(PATH) as writer:
            for index in range(4):
                writer.upsert([{"id": 0, "n": index}]).result()
            futures = [writer.upsert([{"id": 0, "n": index}]) for index in range(4, 40)]
            server.wait_until_gone()
            server.env = {}
            server.start()
            for future in futures:
                future.result(PATIENCE_S)
        log = changelog(server.connection, info)
        # -U and +U of each but the first, joined or not.
        assert [n for change, _, _, n in log if change in {1, 3}] == list(range(40))
        assert replayed(log) == live(server.connection, info) == {0: (39, 78)}


def test_an_upsert_that_is_given_up_says_so_and_the_writer_goes_on_when_the_server_is_back(tmp_path):
    client = {**CLIENT, "client.request-timeout": "1500ms"}
    with ServerProcess(tmp_path / "lab", client=client) as server:
        info = make_table(server.connection)
        with server.connection.upsert_writer(PATH) as writer:
            writer.upsert([{"id": 0, "n": 0}]).result()
            server.kill()
            future = writer.delete([{"id": 0}])
            with pytest.raises(ServerUnavailableError, match=r"upsert into db\.t.*not known"):
                future.result(PATIENCE_S)
            server.start()
            writer.upsert([{"id": 1, "n": 1}]).result(PATIENCE_S)
        assert {key: n for key, (n, _) in live(server.connection, info).items()} == {0: 0, 1: 1}
