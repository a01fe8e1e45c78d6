"""A task's bytes, what it writes and removes, and the checks on what it reads."""

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.client import ServerAddress
from fluss_lab.errors import CorruptDataError, FencedTieringEpochError, InternalError, OffsetOutOfRangeError
from fluss_lab.model import TableBucket, TablePath
from fluss_lab.records import LogRecords
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.tiering.round.split_generator import TieringLogSplit
from fluss_lab.tiering.task.split_reader import TieringSplitReader, complete_runs
from fluss_lab.tiering.task.tiering_task import (
    CONNECTIONS_KEPT,
    TASK_VERSION,
    TaskConnections,
    TaskResult,
    TaskScene,
    TieringTask,
    parse_task,
    run_task,
)
from tests.unit.tiering.kit import Tables


def split(start, stop, table_id=7):
    return TieringLogSplit(TablePath("db", "events"), TableBucket(table_id, None, 0), None, 1, 0, start, stop)


def records(start, stop, offsets=None):
    offsets = list(range(start, stop)) if offsets is None else offsets
    rows = pa.record_batch({"id": pa.array(offsets, pa.int64())})
    return LogRecords(rows, pa.array(offsets, pa.int64()), pa.array(np.full(len(offsets), 5, np.int64)))


def test_a_whole_split_passes():
    runs = [records(3, 6), records(6, 7), records(7, 10)]
    assert list(complete_runs(runs, split(3, 10))) == runs


@pytest.mark.parametrize(
    "runs",
    [
        [records(3, 6), records(7, 10)],  # a gap between runs
        [records(3, 6), records(5, 10)],  # an overlap
        [records(3, 10, [3, 4, 6, 7, 8, 9, 10])],  # a gap within a run
        [records(3, 10, [3, 4, 5, 5, 7, 8, 9])],  # a duplicate within a run
        [records(2, 10)],  # too early
        [records(4, 10)],  # too late
        [records(3, 9)],  # too short
        [records(3, 11)],  # too long
        [],
    ],
)
def test_anything_else_than_the_whole_split_is_refused(runs):
    with pytest.raises(CorruptDataError, match="expected"):
        list(complete_runs(runs, split(3, 10)))


@pytest.mark.parametrize(
    "result",
    [
        TaskResult(3, 10, 5, 7, 1, b"\x00\xff"),
        TaskResult(0, error=FencedTieringEpochError("held by another")),
    ],
)
def test_results_round_trip(result):
    read = TaskResult.from_bytes(result.to_bytes())
    assert (type(read.error), str(read.error)) == (type(result.error), str(result.error))
    if result.error is None:
        assert read == result


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"version": 9, "split_index": 1}', b'{"version": 4, "split_index": "1"}', b"\xff"]
)
def test_bytes_that_are_no_task_or_result(data):
    with pytest.raises(CorruptDataError):
        TaskResult.from_bytes(data)
    with pytest.raises(CorruptDataError):
        run_task(data)


@pytest.fixture
def task(tables):
    """A task of one split of a table with 100 records, and the means to run it."""
    return task_of(tables)


def task_of(tables):
    info = tables.create()
    tables.append(info, 100)
    described = tables.storage.create_lake_tiering_factory().describe_table(info)
    scene = TaskScene(tables.connection.address, {}, info, "iceberg", tables.storage.properties, described)

    def make(start=0, stop=100):
        one = TieringLogSplit(info.path, TableBucket(info.table_id, None, 0), None, 1, 0, start, stop)
        return TieringTask(scene.to_json(), one, "r")

    make.info, make.tables = info, tables
    return make


def test_tasks_round_trip(task):
    one = task()
    assert parse_task(one.to_bytes()) == one


def test_a_task_of_another_release_is_refused(task):
    data = task().to_bytes()
    for version in (TASK_VERSION - 1, TASK_VERSION + 1):
        other = data.replace(b'"version":%d' % TASK_VERSION, b'"version":%d' % version)
        assert other != data
        with pytest.raises(CorruptDataError, match=f"expected version {TASK_VERSION}.*different releases"):
            run_task(other)


def test_a_refused_task_shows_no_secret(task):
    one = task()
    data = one.to_bytes().replace(b'"alone":true', b'"alone":"yes"')
    with pytest.raises(CorruptDataError, match=r"Expected `bool`, got `str` - at `\$.alone`") as refused:
        run_task(data)
    assert one.scene.server.token not in str(refused.value)


def test_the_token_is_not_shown(task):
    one = task()
    assert one.scene.server.token not in f"{one!r} {one.scene!r}"


def test_a_task_writes_its_split_and_nothing_else(task):
    result = TaskResult.from_bytes(run_task(task(20, 70).to_bytes()))
    assert result.error is None
    assert (result.end, result.rows) == (70, 50)
    assert len(task.tables.files(task.info)) == 1


def test_every_attempt_writes_a_file_of_its_own(task):
    data = task().to_bytes()
    run_task(data)
    run_task(data)
    assert len(task.tables.files(task.info)) == 2


def test_a_task_that_fails_after_writing_removes_its_files(task):
    failpoints.arm("tiering.write.after_task", "error")
    result = TaskResult.from_bytes(run_task(task().to_bytes()))
    assert isinstance(result.error, InternalError)
    assert task.tables.files(task.info) == set()


def test_a_task_that_fails_while_writing_removes_its_files(task):
    failpoints.arm("lake.write.after_file", "enospc")
    result = TaskResult.from_bytes(run_task(task().to_bytes()))
    assert "No space left" in str(result.error)
    assert task.tables.files(task.info) == set()


def test_a_split_beyond_the_log_is_an_error(task):
    result = TaskResult.from_bytes(run_task(task(50, 130).to_bytes()))
    assert isinstance(result.error, OffsetOutOfRangeError)
    assert task.tables.files(task.info) == set()


def test_a_task_without_a_server_says_where_it_looked(task):
    one = task()
    scene = msgspec.structs.replace(
        one.scene, server=ServerAddress("127.0.0.1", 1, "x"), client_options={"client.request-timeout": "100ms"}
    )
    lost = TieringTask(scene.to_json(), one.split, one.round_id)
    result = TaskResult.from_bytes(run_task(lost.to_bytes()))
    assert result.error is not None
    assert result.error.retriable
    assert "127.0.0.1:1" in str(result.error)


def test_the_reader_counts_where_it_is(task):
    one = task(10, 60)
    reader = TieringSplitReader(task.tables.connection, one.table, one.split)
    assert (reader.position, reader.max_timestamp_ms) == (10, -1)
    assert sum(len(run) for run in reader) == 50
    assert reader.position == 60
    assert reader.max_timestamp_ms > 0


def test_what_tasks_share_is_read_once_and_stays_what_it_was(task):
    one, other = parse_task(task(0, 50).to_bytes()), parse_task(task(50, 100).to_bytes())
    assert one.scene is other.scene
    wider = msgspec.structs.replace(one.scene, client_options={"client.request-timeout": "5s"})
    assert parse_task(TieringTask(wider.to_json(), one.split, "r").to_bytes()).scene == wider != one.scene


def test_a_scene_that_is_none_is_refused(task):
    one = task()
    for name in ("server", "table", "lake_table"):
        rest = msgspec.json.decode(one.scene_json)
        del rest[name]
        other = TieringTask(msgspec.Raw(msgspec.json.encode(rest)), one.split, "r")
        with pytest.raises(CorruptDataError, match=f"missing required field `{name}`"):
            run_task(other.to_bytes())


def test_a_connection_waits_for_the_next_task_and_two_never_have_the_same():
    kept, address = TaskConnections(), ServerAddress("127.0.0.1", 1, "x")
    with kept.lend(address, {}) as first, kept.lend(address, {}) as second:
        assert first is not second
    with kept.lend(address, {}) as again, kept.lend(address, {}) as other:
        assert {id(again), id(other)} == {id(first), id(second)}


def test_a_connection_is_of_its_cluster_and_its_options_alone():
    kept, places = TaskConnections(), [ServerAddress("127.0.0.1", port, token) for port in (1, 2) for token in "xy"]
    with kept.lend(places[0], {"client.request-timeout": "1s"}) as first:
        pass
    for place in places:
        with kept.lend(place, {}) as other:
            assert other is not first
            assert other.address == place
            assert other.request_timeout_ms != first.request_timeout_ms


def test_a_connection_on_which_a_task_failed_is_not_had_again():
    kept, address = TaskConnections(), ServerAddress("127.0.0.1", 1, "x")
    with pytest.raises(InternalError), kept.lend(address, {}) as failed:
        raise InternalError("a failure")
    assert failed.closed.is_set()
    with kept.lend(address, {}) as other:
        assert other is not failed
        assert not other.closed.is_set()


def test_of_connections_that_wait_those_used_last_are_kept():
    kept, had = TaskConnections(), []
    for port in range(1, CONNECTIONS_KEPT + 3):
        with kept.lend(ServerAddress("127.0.0.1", port, "x"), {}) as connection:
            had.append(connection)
    assert [each.closed.is_set() for each in had] == [True] * 2 + [False] * CONNECTIONS_KEPT


@pytest.mark.parametrize("servers", [1, 2])
def test_a_process_that_ran_tasks_finds_servers_that_were_restarted(servers):
    with EmbeddedCluster(tablet_servers=servers) as cluster:
        made = task_of(Tables(cluster))
        for turn in range(2):
            result = TaskResult.from_bytes(run_task(made(10 * turn, 10 * turn + 10).to_bytes()))
            assert (result.error, result.rows) == (None, 10)
            if servers > 1:
                for server in range(servers):
                    cluster.stop_tablet(server)
                    cluster.start_tablet(server)
            else:
                cluster.restart({"server.port": cluster.address.port})
