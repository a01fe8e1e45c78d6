"""Maintenance by hand while its server is restarted, or its connection closed."""

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import ConnectionClosedError, UnavailableError
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.maintenance.manual_maintenance import RESTARTS_MAX, maintain
from fluss_lab.workbench.lab_spark import LateExecutor

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_failpoints():
    yield
    failpoints.disarm()


@pytest.fixture
def info(tables):
    """A table of several rounds, worth a compaction."""
    found = tables.create(buckets=1, properties={"table.datalake.auto-maintenance": False})
    for _ in range(4):
        tables.append(found, 4)
        tables.tier(found)
    return found


def by_hand(tables, info, action):
    executor = LocalTieringExecutor()
    return maintain(tables.connection, tables.storage, executor, action, table_id=info.table_id)


def test_a_server_restarted_meanwhile_gives_the_table_again(tables, info):
    """It was told as another tierer that had taken the table, though there was none."""
    restarts = []

    def expire(held):
        if not restarts:
            restarts.append(tables.cluster.restart())
        return held.expire(older_than_ms=0, keep=1)

    assert by_hand(tables, info, expire).snapshot_ids == ()
    failpoints.arm("maintenance.write.after", tables.cluster.restart)
    done = by_hand(tables, info, lambda held: held.compact(force=True))
    assert (done.files_before, done.files_after) == (4, 1)
    assert len([path for path in tables.files(info) if "compact" in path]) == 1
    tables.check(info)


def test_a_table_lost_before_its_tasks_begin_is_done_again(tables, info):
    """Seen: where Spark was not started yet the second attempt ended in "the round was cancelled", which nobody had done."""
    restarts = []

    def compact(held):
        if not restarts:
            restarts.append(tables.cluster.restart())
            held._scene.executor.cancel()  # as the heartbeat does when it hears of it
        return held.compact(force=True)

    late = LateExecutor(LocalTieringExecutor)
    done = maintain(tables.connection, tables.storage, late, compact, table_id=info.table_id)
    assert (len(restarts), done.files_before, done.files_after) == (1, 4, 1)
    tables.check(info)


def test_what_was_committed_before_the_restart_stays_and_is_reported(tables, info):
    failpoints.arm("maintenance.commit.after", tables.cluster.restart)
    with pytest.raises(UnavailableError, match="restarted meanwhile; the lake was changed before, and that stays"):
        by_hand(tables, info, lambda held: held.compact(force=True))
    assert by_hand(tables, info, lambda held: held.compact(force=True)).snapshot_id is None
    assert tables.known(info).snapshot_id == tables.lake(info).metadata.current_snapshot_id
    tables.check(info)


def test_a_server_that_is_restarted_every_time_is_no_endless_loop(tables, info):
    attempts = []

    def expire(held):
        attempts.append(tables.cluster.restart())
        return held.expire()

    with pytest.raises(UnavailableError, match="restarted meanwhile; call again"):
        by_hand(tables, info, expire)
    assert len(attempts) == RESTARTS_MAX + 1


def test_a_connection_closed_meanwhile_is_reported_as_that(tables, info):
    def expire(held):
        tables.connection.close()
        return held.expire()

    with pytest.raises(ConnectionClosedError, match="open it again"):
        by_hand(tables, info, expire)
