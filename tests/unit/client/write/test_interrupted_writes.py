"""Writes that are interrupted, or fail in part: they say what was written, and are settled with each row once."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.client import AppendResult, AppendWriter, Connection, UpsertWriter, WriteResult, read_range
from fluss_lab.client.cluster.list_offsets import OffsetQuery, list_offsets
from fluss_lab.errors import (
    FlussError,
    InvalidRequestError,
    ServerUnavailableError,
    StorageError,
    WriteInterruptedError,
    WriteStoppedError,
)
from fluss_lab.interrupts import join_threads
from fluss_lab.model import OffsetSpec, TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster, ServerProcess
from fluss_lab.testing.mock_clock import wait_until

WAIT_S = 60.0
COLUMNS = {"id": "bigint", "bucket": "int"}
#: Small batches: a write takes many requests, so that an interrupt finds it in the middle.
CLIENT = {"client.request-timeout": "1s", "client.writer.batch-size": "4kb"}
ROWS = 60_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(lake=False, tablet_servers=2, client={"client.request-timeout": "30s"}) as found:
        found.connection.admin().create_database("db")
        yield found


@pytest.fixture
def connection(cluster: EmbeddedCluster) -> Iterator[Connection]:
    with Connection(lambda: cluster.address, CLIENT) as found:
        yield found


@pytest.fixture
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def make_table(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Callable[..., TableInfo]:
    def make(**definition: Any) -> TableInfo:
        path = TablePath("db", f"t{abs(hash(request.node.name))}")
        return cluster.connection.admin().create_table(path, make_descriptor(COLUMNS, buckets=2, **definition))

    return make


def held(connection: Connection, info: TableInfo) -> dict[int, list[int]]:
    """Return the ids in each bucket's log."""
    offsets = list_offsets(connection, info, OffsetQuery(OffsetSpec.latest()), None, None)
    ends = {bucket: answer.offset for bucket, answer in offsets.items()}
    return {
        bucket: [
            value
            for run in read_range(connection, info, TableBucket(info.table_id, None, bucket), 0, end)
            for value in run.rows.column("id").to_pylist()
        ]
        for bucket, end in ends.items()
    }


def interrupt_when(condition: Callable[[], bool]) -> threading.Thread:
    def run() -> None:
        wait_until(condition, WAIT_S)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def main_thread_calls() -> Iterator[str]:
    """Yield the names of the functions in which the main thread is."""
    frame: FrameType | None = sys._current_frames()[threading.main_thread().ident or 0]
    while frame is not None:
        yield frame.f_code.co_name
        frame = frame.f_back


def rows_of(count: int) -> pa.Table:
    return pa.table({"id": range(count), "bucket": pa.array([each % 2 for each in range(count)], pa.int32())})


def stop_in_the_middle(writer: AppendWriter | UpsertWriter, write: Callable[[pa.Table], Any]) -> WriteStoppedError:
    """Write rows, and interrupt when a part of them is acknowledged."""
    thread = interrupt_when(lambda: writer.progress().rows_acknowledged > ROWS // 10)

    def attempt() -> None:
        with writer:
            write(rows_of(ROWS)).result(WAIT_S)

    with pytest.raises(WriteStoppedError) as caught:
        attempt()
    assert join_threads([thread], WAIT_S)
    return caught.value


def test_a_stopped_append_tells_exactly_what_is_written_and_settling_writes_each_row_once(
    connection, cluster, make_table, handler
):
    info = make_table(bucket_key=["id"])
    writer = connection.append_writer(info.path)
    error = stop_in_the_middle(writer, writer.append)
    assert isinstance(error, KeyboardInterrupt)
    found = held(cluster.connection, info)
    reported = error.acknowledged
    assert {bucket: each.rows for (_, bucket), each in reported.items()} == {b: len(ids) for b, ids in found.items()}
    assert {bucket: each.offsets for (_, bucket), each in reported.items()} == {
        bucket: ((0, len(ids)),) for bucket, ids in found.items()
    }
    done = sum(map(len, found.values()))
    assert 0 < done < ROWS
    assert f"{done:,} of {ROWS:,} rows acknowledged; in flight: none; not written: {ROWS - done:,}" in str(error)
    with pytest.raises(InvalidRequestError, match="closed"):
        writer.append([{"id": 1}])
    assert held(cluster.connection, info) == found
    result = error.settle()
    assert isinstance(result, WriteResult)
    assert result.rows == ROWS
    after = held(cluster.connection, info)
    assert sorted(after[0] + after[1]) == list(range(ROWS))
    assert after[0] == sorted(after[0])
    assert result.offsets == {(None, bucket): ((0, len(ids)),) for bucket, ids in after.items()}
    assert error.settle().rows == ROWS
    assert held(cluster.connection, info) == after


def test_a_stopped_upsert_can_be_abandoned(connection, cluster, make_table, handler):
    info = make_table(primary_key=["id"])
    writer = connection.upsert_writer(info.path)
    futures = []
    error = stop_in_the_middle(writer, lambda rows: futures.append(writer.upsert(rows)) or futures[0])
    done = sum(each.rows for each in error.acknowledged.values())
    error.abandon()
    assert sum(map(len, held(cluster.connection, info).values())) == done
    with pytest.raises(WriteInterruptedError, match="abandoned"):
        futures[-1].result(0)
    with pytest.raises(InvalidRequestError, match="abandoned"):
        error.settle()


def test_an_interrupt_before_the_first_row_is_just_one(connection, make_table, handler):
    info = make_table()
    with pytest.raises(KeyboardInterrupt) as caught, connection.append_writer(info.path):
        signal.raise_signal(signal.SIGINT)
    assert not isinstance(caught.value, WriteStoppedError)


def test_an_interrupt_after_the_last_acknowledgement_says_that_all_is_written(connection, make_table, handler):
    info = make_table()

    def attempt() -> None:
        with connection.append_writer(info.path) as writer:
            writer.append([{"id": 1}] * 3).result(WAIT_S)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=r"3 of 3 rows acknowledged.*do not write these rows again") as caught:
        attempt()
    assert isinstance(caught.value, WriteStoppedError)
    assert caught.value.settle().rows == 3


def test_an_append_that_waits_for_room_is_interrupted_and_queues_nothing(cluster, make_table, handler):
    info = make_table()
    futures: list[AppendResult] = []
    connection = Connection(lambda: cluster.address, {"client.writer.buffer-memory-size": "20kb"})
    cluster.stop_tablet(0)
    cluster.stop_tablet(1)
    try:
        writer = connection.append_writer(info.path)
        thread = interrupt_when(lambda: {"add", "wait_for"} <= set(main_thread_calls()))
        with pytest.raises(KeyboardInterrupt) as caught:
            futures.extend(writer.append(rows_of(800)) for _ in range(5))
        assert not isinstance(caught.value, WriteStoppedError)
        assert join_threads([thread], WAIT_S)
        given = writer.progress().rows
        assert given == 800 * len(futures)
    finally:
        cluster.start_tablet(0)
        cluster.start_tablet(1)
    writer.close()
    connection.close()
    assert sum(map(len, held(cluster.connection, info).values())) == given


def test_a_write_that_fails_in_one_bucket_says_so_and_is_settled_when_its_server_is_back(
    connection, cluster, make_table
):
    info = make_table(bucket_key=["id"])
    leaders = cluster.connection.leaders([TableBucket(info.table_id, None, bucket) for bucket in (0, 1)])
    assert len(set(leaders.values())) == 2
    cluster.stop_tablet(1)
    try:
        with (
            pytest.raises(WriteInterruptedError, match=r"1[0-9]+ of 300 rows acknowledged") as caught,
            connection.append_writer(info.path) as writer,
        ):
            writer.append(rows_of(300)).result(WAIT_S)
        assert not isinstance(caught.value, KeyboardInterrupt)
        assert isinstance(caught.value.__cause__, FlussError)
        assert len(caught.value.acknowledged) == 1
        with pytest.raises(WriteInterruptedError):
            caught.value.settle()
    finally:
        cluster.start_tablet(1)
    assert caught.value.settle().rows == 300
    found = held(cluster.connection, info)
    assert sorted(found[0] + found[1]) == list(range(300))


def test_settling_does_not_write_again_what_was_written_without_an_answer(tmp_path):
    """The server dies behind the write of the third batch, before it answers: the batch is there, nobody knows."""
    env = {"FLUSS_LAB_FAILPOINTS": "tablet.append.after_write=kill@3"}
    with ServerProcess(tmp_path / "lab", env=env, client={"client.request-timeout": "1s"}) as server:
        server.connection.admin().create_database("db")
        info = server.connection.admin().create_table(TablePath("db", "t"), make_descriptor(COLUMNS))
        writer = server.connection.append_writer(info.path)
        for index in range(2):
            writer.append([{"id": index}]).result(WAIT_S)
        future = writer.append([{"id": 2}])
        with pytest.raises(WriteInterruptedError, match=r"2 of 3 rows.*in flight: 1 in bucket 0 \(whether") as caught:
            writer.close()
        with pytest.raises(ServerUnavailableError):
            future.result(0)
        server.env = {}
        server.start()
        assert caught.value.settle().rows == 3
        assert held(server.connection, info) == {0: [0, 1, 2]}


@pytest.mark.parametrize("keyed", [False, True])
def test_rows_in_a_log_whose_fsync_failed_are_in_doubt_and_settled_once_after_a_restart(tmp_path, keyed):
    with EmbeddedCluster(tmp_path / "lab", {"log.durability": "fsync"}, lake=False) as cluster:
        cluster.connection.admin().create_database("db")
        definition = make_descriptor(COLUMNS, primary_key=["id"] if keyed else None)
        info = cluster.connection.admin().create_table(TablePath("db", "t"), definition)
        writer = cluster.connection.upsert_writer(info.path) if keyed else cluster.connection.append_writer(info.path)
        write = writer.upsert if isinstance(writer, UpsertWriter) else writer.append
        write([{"id": 0, "bucket": 0}]).result(WAIT_S)
        failpoints.arm("tablet.flush.before", "eio@1")
        future = write([{"id": 1, "bucket": 0}])
        with pytest.raises(WriteInterruptedError, match=r"1 of 2 rows.*in flight: 1 in bucket 0 \(whether") as caught:
            writer.close()
        with pytest.raises(StorageError, match="its rows are in the log, though perhaps not on the device"):
            future.result(0)
        progress = writer.progress()
        assert (progress.rows_acknowledged, progress.in_flight, progress.unsent) == (1, {(None, 0): 1}, 0)
        # Sent again to the same log they are not acknowledged, though the device refuses nothing any more.
        with pytest.raises(WriteInterruptedError, match="cannot be written"):
            caught.value.settle()
        cluster.stop()
        cluster.start()
        assert caught.value.settle().rows == 2
        assert held(cluster.connection, info) == {0: [0, 1]}


def row(number: int) -> dict[str, int]:
    return {"id": number, "bucket": 0}


def fail_one(write: Callable[[], AppendResult]) -> AppendResult:
    """Return the future of rows that the disk refused, unread."""
    failpoints.arm("tablet.append.before_write", "enospc@1")
    future = write()
    wait_until(future.done, WAIT_S)
    failpoints.disarm()
    return future


@pytest.mark.parametrize("alone", [False, True])
def test_a_call_behind_one_that_failed_raises_its_error_and_settling_writes_each_row_once(
    connection, cluster, make_table, alone
):
    """What came behind would have been written in front of the rows that failed, and those be given up unheard."""
    info = make_table(bucket_key=["id"])

    def rows(number: int) -> object:
        return row(number) if alone else [row(number)]

    def attempt() -> None:
        with connection.append_writer(info.path) as writer:
            writer.append(rows(0)).result(WAIT_S)
            fail_one(lambda: writer.append(rows(1)))
            writer.append(rows(2))

    with pytest.raises(WriteInterruptedError, match=r"1 of 2 rows.*not written: 1") as caught:
        attempt()
    assert isinstance(caught.value.__cause__, StorageError)
    assert "No space left" in str(caught.value.__cause__)
    assert str(caught.value.__cause__).endswith("that was an earlier call: of this one nothing was sent")
    assert caught.value.settle().rows == 2
    found = held(cluster.connection, info)
    assert sorted(found[0] + found[1]) == [0, 1]


def test_rows_that_were_given_up_before_are_never_reported_as_written(connection, make_table):
    info = make_table(bucket_key=["id"])
    writer = connection.append_writer(info.path)
    writer.append([row(0)]).result(WAIT_S)
    with pytest.raises(StorageError):
        fail_one(lambda: writer.append([row(1)])).result(WAIT_S)
    writer.append([row(2)]).result(WAIT_S)  # who has heard of it may go on
    assert writer.progress().given_up == 1
    with pytest.raises(WriteStoppedError, match=r"2 of 3 rows.*given up before, of calls that failed: 1\.") as caught:
        writer.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert "All is written" not in str(caught.value)
    assert caught.value.settle().rows == 2
