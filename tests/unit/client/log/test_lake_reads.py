"""Records that have left the cluster are read from the lake, and nobody notices."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from fluss_lab.client import read_range
from fluss_lab.errors import OffsetOutOfRangeError
from fluss_lab.model import OffsetSpec, PartitionInfo, TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster, MockClock
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

PATIENCE_S = 60.0
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
BATCHES, ROWS = 10, 100


class History:
    """A table of two partitions whose older records are in the lake only.

    Attributes:
        times: When each of the first batches was appended.
        local_start: First offset of partition ``a`` that the cluster still holds.
    """

    def __init__(self, cluster: EmbeddedCluster, clock: MockClock) -> None:
        self.connection = cluster.connection
        self.address = cluster.address
        admin = self.connection.admin()
        admin.create_database("db")
        descriptor = make_descriptor(
            {"id": "bigint", "p": "string", "x": "array<int>"},
            partitioned_by=["p"],
            properties={"table.datalake.enabled": True, "table.log.ttl": "1h"},
        )
        self.info = admin.create_table(TablePath("db", "t"), descriptor)
        self.times: list[int] = []
        self.append(0, BATCHES, lambda: clock.advance(MINUTE_MS), clock)
        storage = self.connection.lake_storage()
        assert storage is not None
        report = run_round(self.connection, storage, LocalTieringExecutor(), table_id=self.info.table_id)
        assert report is not None
        clock.advance(DAY_MS)
        self.append(BATCHES, BATCHES + 2, lambda: None, clock)
        self.a = next(each for each in admin.partitions(self.info.path) if each.name == "a")
        self.bucket = TableBucket(self.info.table_id, self.a.partition_id, 0)
        wait_until(lambda: self.start() >= BATCHES * ROWS // 2, "old segments go")
        self.local_start = self.start()
        self.end = (BATCHES + 2) * ROWS

    def append(self, first: int, stop: int, between: Callable[[], None], clock: MockClock) -> None:
        with self.connection.append_writer(self.info.path) as writer:
            for batch in range(first, stop):
                ids = np.arange(batch * ROWS, batch * ROWS + ROWS)
                for partition in "ab":
                    writer.append({"id": ids, "p": [partition] * ROWS, "x": [[1, None]] * ROWS}).result()
                self.times.append(clock.now_ms())
                between()

    def start(self) -> int:
        return next(
            each.require().start_offset for each in self.connection.admin().buckets(self.info) if each.partition == "a"
        )


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    waiting = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, what
        waiting.wait(0.02)


@pytest.fixture(scope="module")
def history() -> Iterator[History]:
    clock = MockClock()
    options = {"log.segment.file-size": "4kb", "log.retention.check-interval": "20ms"}
    with EmbeddedCluster(options=options, clock=clock, client={"client.request-timeout": "10s"}) as cluster:
        yield History(cluster, clock)


def test_a_scan_from_the_beginning_goes_from_the_lake_to_the_cluster(history):
    found: dict[str | None, list[int]] = {"a": [], "b": []}
    with history.connection.log_scanner(history.info.path) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        deadline = time.monotonic() + PATIENCE_S
        while sum(map(len, found.values())) < 2 * history.end:
            assert time.monotonic() < deadline, {key: len(value) for key, value in found.items()}
            for batch in scanner.poll(1.0):
                rows = found[batch.partition]
                assert batch.records.base_offset == len(rows)
                assert batch.rows.schema.equals(history.info.schema.arrow_schema)
                assert batch.records.offsets.to_pylist() == batch.rows.column("id").to_pylist()
                rows += batch.rows.column("id").to_pylist()
    assert found == {"a": list(range(history.end)), "b": list(range(history.end))}


@pytest.mark.parametrize(("start", "stop"), [(0, 1200), (0, 1), (150, 160), (950, 1050), (1100, 1200)])
def test_a_range_is_exact_wherever_it_lies(history, start, stop):
    runs = list(read_range(history.connection, history.info, history.bucket, start, stop, partition="a"))
    assert [offset for run in runs for offset in run.offsets.to_pylist()] == list(range(start, stop))
    stamps = [stamp for run in runs for stamp in run.timestamps_ms.to_pylist()]
    assert stamps == [history.times[offset // ROWS] for offset in range(start, stop)]


def test_projection_from_lake_and_cluster_alike(history):
    with history.connection.log_scanner(history.info.path, ["x", "id"]) as scanner:
        scanner.subscribe(0, 0, "b")
        count = 0
        deadline = time.monotonic() + PATIENCE_S
        while count < history.end:
            assert time.monotonic() < deadline
            for batch in scanner.poll(1.0):
                assert batch.rows.schema.names == ["x", "id"]
                assert batch.rows.column("id").to_pylist() == batch.records.offsets.to_pylist()
                assert batch.rows.column("x")[0].as_py() == [1, None]
                count += batch.rows.num_rows


def test_without_the_lake_what_has_left_the_cluster_is_out_of_range(history):
    with pytest.raises(OffsetOutOfRangeError):
        list(read_range(history.connection, history.info, history.bucket, 0, 10, partition="a", lake=False))


def offset(history: History, spec: OffsetSpec, local_only: bool = False) -> tuple[int, int | None, bool]:
    partition: PartitionInfo = history.a
    answers = history.connection.admin().list_offsets(history.info, spec, partition=partition, local_only=local_only)
    return answers[0].offset, answers[0].timestamp_ms, answers[0].lake_snapshot_id is not None


def test_offsets_reach_into_the_lake(history):
    assert offset(history, OffsetSpec.earliest())[0] == 0
    assert offset(history, OffsetSpec.earliest(), local_only=True)[0] == history.local_start
    assert offset(history, OffsetSpec.latest())[0] == history.end
    for batch, time_ms in enumerate(history.times[:BATCHES]):
        assert offset(history, OffsetSpec.timestamp(time_ms))[:2] == (batch * ROWS, time_ms)
        assert offset(history, OffsetSpec.timestamp(time_ms - 1))[:2] == (batch * ROWS, time_ms)
        clipped = max(batch * ROWS, history.local_start)
        assert offset(history, OffsetSpec.timestamp(time_ms), local_only=True)[0] == clipped
    assert offset(history, OffsetSpec.timestamp(history.times[0]))[2]
    after_lake = history.times[BATCHES - 1] + 1
    assert offset(history, OffsetSpec.timestamp(after_lake)) == (BATCHES * ROWS, history.times[BATCHES], False)
    assert offset(history, OffsetSpec.timestamp(history.times[-1] + 1)) == (history.end, None, False)


def test_a_forked_process_reads_with_a_connection_of_its_own(history):
    script = (
        "import os, sys\n"
        "from fluss_lab.client import Connection, ServerAddress, read_range\n"
        "from fluss_lab.model import TableBucket, TablePath\n"
        "address = ServerAddress.from_json(sys.stdin.read())\n"
        "connection = Connection(lambda: address)\n"
        "child = os.fork()\n"
        "if child:\n"
        "    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "info = connection.table_info(TablePath('db', 't'))\n"
        f"bucket = TableBucket({history.bucket.table_id}, {history.bucket.partition_id}, 0)\n"
        f"count = sum(map(len, read_range(connection, info, bucket, 0, {history.end}, partition='a')))\n"
        f"os._exit(0 if count == {history.end} else 3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=history.address.to_json(), text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0


def test_the_table_is_what_it_says(history):
    info: TableInfo = history.info
    assert info.descriptor.lake_enabled
    assert 0 < history.local_start <= BATCHES * ROWS
