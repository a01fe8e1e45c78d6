"""Servers killed at random moments under writers: nothing acknowledged is lost, doubled or out of order."""

from __future__ import annotations

import random
import threading
import time

import pytest

from fluss_lab.client import Connection, read_range
from fluss_lab.model import OffsetSpec, TableBucket, TablePath, make_descriptor
from fluss_lab.testing import ServerProcess

PATIENCE_S = 240.0
CLIENT = {"client.request-timeout": "200s", "client.writer.batch-size": "64kb"}
#: Everything that runs by the clock runs often, so that kills fall into it.
OPTIONS = {
    "log.segment.file-size": "256kb",
    "log.flush.interval": "100ms",
    "remote.log.task-interval-duration": "500ms",
    "kv.snapshot.interval": "700ms",
    "log.retention.check-interval": "500ms",
}
EVENTS, ROWS = TablePath("db", "events"), TablePath("db", "rows")
KEYS_PER_WRITER = 60


class Writer(threading.Thread):
    """Writes until it is told to stop; knows what the cluster must hold when all is acknowledged."""

    def __init__(self, number: int, seed: int) -> None:
        super().__init__(name=f"writer-{number}")
        self.number = number
        self.random = random.Random(seed * 1000 + number)
        self.stopping = threading.Event()
        self.acknowledged = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.write()
        except BaseException as error:
            self.error = error

    def write(self) -> None:
        raise NotImplementedError


class EventWriter(Writer):
    """Appends numbered rows; its bucket is its own number's."""

    def __init__(self, connection: Connection, number: int, seed: int) -> None:
        super().__init__(number, seed)
        self.writer = connection.append_writer(EVENTS)
        self.sent = 0

    def write(self) -> None:
        futures = []
        while not self.stopping.is_set():
            count = self.random.choice([1, 3, 50])
            rows = [{"w": self.number, "n": self.sent + each} for each in range(count)]
            futures.append(self.writer.append(rows))
            self.sent += count
            if len(futures) > 8:
                self.acknowledged += futures.pop(0).result(PATIENCE_S).rows
        for future in futures:
            self.acknowledged += future.result(PATIENCE_S).rows
        self.writer.close()


class RowWriter(Writer):
    """Upserts and deletes keys of its own, and remembers what they should be."""

    def __init__(self, connection: Connection, number: int, seed: int) -> None:
        super().__init__(number, seed)
        self.writer = connection.upsert_writer(ROWS)
        self.rows: dict[int, int] = {}
        self.sent = 0

    def write(self) -> None:
        futures = []
        while not self.stopping.is_set():
            keys = [self.number * 1000 + self.random.randrange(KEYS_PER_WRITER) for _ in range(5)]
            if self.random.random() < 0.2:
                futures.append(self.writer.delete([{"id": key} for key in keys]))
                for key in keys:
                    self.rows.pop(key, None)
            else:
                self.sent += 1
                futures.append(self.writer.upsert([{"id": key, "n": self.sent} for key in keys]))
                self.rows.update(dict.fromkeys(keys, self.sent))
            if len(futures) > 8:
                futures.pop(0).result(PATIENCE_S)
                self.acknowledged += 1
        for future in futures:
            future.result(PATIENCE_S)
            self.acknowledged += 1
        self.writer.close()


class Auditor:
    """Follows the changelog of every bucket of the rows, and holds it against what the store says."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.info = connection.admin().table_info(ROWS)
        self.folded: dict[int, dict[int, int]] = {bucket: {} for bucket in range(self.info.descriptor.buckets)}
        self.offsets = dict.fromkeys(self.folded, 0)

    def check(self) -> None:
        for bucket, rows in self.folded.items():
            place = TableBucket(self.info.table_id, None, bucket)
            scan = self.connection.scan_kv(self.info, place)
            held = {row["id"]: row["n"] for run in scan for row in run.rows.to_pylist()}
            start, stop = self.offsets[bucket], scan.log_offset
            assert stop >= start, f"bucket {bucket}: the log went back from {start} to {stop}"
            for run in read_range(self.connection, self.info, place, start, stop) if stop > start else ():
                assert run.change_types is not None
                for change, row in zip(run.change_types.to_pylist(), run.rows.to_pylist(), strict=True):
                    self._fold(rows, change, row)
            self.offsets[bucket] = stop
            assert held == rows, f"bucket {bucket}: store and changelog differ below offset {stop}"

    def _fold(self, rows: dict[int, int], change: int, row: dict[str, int]) -> None:
        insert, before, after, delete = 1, 2, 3, 4
        if change in {before, delete}:
            assert rows.pop(row["id"]) == row["n"]
        else:
            assert change in {insert, after}
            assert row["id"] not in rows
            rows[row["id"]] = row["n"]


def wait_for_progress(writers: list[Writer], what: str) -> None:
    before = {writer: writer.acknowledged for writer in writers}
    deadline, waiting = time.monotonic() + PATIENCE_S, threading.Event()
    while not all(writer.acknowledged > count for writer, count in before.items()):
        assert time.monotonic() < deadline, what
        for writer in writers:
            assert writer.error is None, (writer.name, writer.error)
        waiting.wait(0.01)


def check_events(connection: Connection, writers: list[EventWriter]) -> None:
    info = connection.admin().table_info(EVENTS)
    found: dict[int, list[int]] = {writer.number: [] for writer in writers}
    ends = connection.admin().list_offsets(info, OffsetSpec.latest())
    for bucket, end in ends.items():
        for run in read_range(connection, info, TableBucket(info.table_id, None, bucket), 0, end.offset):
            for w, n in zip(run.rows.column("w").to_pylist(), run.rows.column("n").to_pylist(), strict=True):
                found[w].append(n)
    for writer in writers:
        assert found[writer.number] == list(range(writer.sent)), writer.name
        assert writer.acknowledged == writer.sent


def kill_and_check(folder, seed: int, cycles: int, tablet_servers: int) -> None:
    chosen = random.Random(seed)
    with ServerProcess(folder, OPTIONS, client=CLIENT, tablet_servers=tablet_servers) as server:
        connection = server.connection
        connection.admin().create_database("db")
        events = make_descriptor({"w": "int", "n": "bigint"}, buckets=3, bucket_key=["w"])
        rows = make_descriptor({"id": "bigint", "n": "bigint"}, primary_key=["id"], buckets=2)
        connection.admin().create_table(EVENTS, events)
        connection.admin().create_table(ROWS, rows)
        event_writers = [EventWriter(connection, number, seed) for number in (1, 2)]
        row_writers = [RowWriter(connection, number, seed) for number in (3, 4)]
        writers: list[Writer] = [*event_writers, *row_writers]
        auditor = Auditor(connection)
        for writer in writers:
            writer.start()
        try:
            for cycle in range(cycles):
                wait_for_progress(writers, f"no progress in cycle {cycle}")
                threading.Event().wait(chosen.random() * 0.5)  # a random moment is what is wanted
                if tablet_servers > 1 and chosen.random() < 0.6:
                    server.kill_tablet(chosen.randrange(tablet_servers))
                else:
                    server.kill()
                    server.start()
                auditor.check()
        finally:
            for writer in writers:
                writer.stopping.set()
            for writer in writers:
                writer.join(PATIENCE_S)
        for writer in writers:
            assert writer.error is None, (writer.name, writer.error)
        auditor.check()
        held = {key: n for rows in auditor.folded.values() for key, n in rows.items()}
        assert held == {key: n for writer in row_writers for key, n in writer.rows.items()}
        check_events(connection, event_writers)


@pytest.mark.slow
@pytest.mark.parametrize("tablet_servers", [1, 2])
def test_killed_servers_lose_nothing(tmp_path, seed, tablet_servers):
    kill_and_check(tmp_path / "lab", seed, 4, tablet_servers)


@pytest.mark.campaign
@pytest.mark.parametrize("tablet_servers", [1, 2])
def test_killed_servers_lose_nothing_for_long(tmp_path, seed, tablet_servers):
    kill_and_check(tmp_path / "lab", seed, 120, tablet_servers)
