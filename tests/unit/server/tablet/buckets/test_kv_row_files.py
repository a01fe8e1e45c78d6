"""Rows in files under a tablet server: after a kill they are gone and the rows are there, and a full disk is seen."""

import signal
import threading

import pytest

from fluss_lab import failpoints
from fluss_lab.rpc import fluss_api_pb2 as pb
from tests.unit.server.forked import run_forked
from tests.unit.server.tablet import row_files_crash
from tests.unit.server.tablet.kv_kit import TABLE_ID, KvTablet, upserts
from tests.unit.server.tablet.row_files_crash import ROWS

PATIENCE_S = 60.0
MANY = {"kv__rows_memory_max": "1mb"}


@pytest.fixture(autouse=True)
def disarmed():
    yield
    failpoints.disarm()


def described(tablet):
    (found,) = tablet.service.describe_buckets(pb.DescribeBucketsRequest(table_id=TABLE_ID)).buckets
    return found.known


def files_in(folder):
    rows = folder / "tablet" / "data" / "rows"
    return list(rows.iterdir()) if rows.exists() else []


@pytest.mark.parametrize("point", ["kv.rows.before_write", "kv.rows.written"])
def test_a_server_killed_while_rows_go_to_files_has_them_all_and_leaves_no_file(tmp_path, point):
    assert run_forked(row_files_crash.main, tmp_path, point) == -signal.SIGKILL
    assert len(files_in(tmp_path)) == (point == "kv.rows.written")
    tablet = KvTablet(tmp_path, **MANY).open()
    assert files_in(tmp_path) == []
    kv = tablet.bucket().kv
    # Of the snapshot and of the log behind it; the rows replayed were too many already.
    assert kv.store.row_count == 2 * ROWS
    assert kv.store.mapped_bytes > 0
    asked = (0, 7, ROWS - 1, ROWS, 2 * ROWS - 1)
    names = [row["name"] for row in tablet.lookup(*asked)]
    assert names == [f"newer-{each}" if each < ROWS else f"n-{each}" for each in asked]
    tablet.service.close()


def test_a_replay_of_more_rows_than_memory_may_have_leaves_them_in_files(tmp_path):
    tablet = KvTablet(tmp_path, **MANY).open()
    for first in range(0, 5 * ROWS, ROWS):
        tablet.put(upserts(first, ROWS))
    again = tablet.reopen(clean=False)
    assert again.bucket().kv.store.mapped_bytes > 0
    assert again.lookup(5 * ROWS - 1)[0]["name"] == f"n-{5 * ROWS - 1}"
    again.service.close()


def test_a_disk_that_refuses_rows_is_seen_and_the_bucket_serves(tmp_path):
    tablet = KvTablet(tmp_path, **MANY).open()
    tablet.put(upserts(0, 2 * ROWS))
    assert not described(tablet).warning
    failpoints.arm("kv.rows.before_write", "enospc")
    tablet.service.look_after_rows()
    assert "kv.rows-memory-max: [Errno 28]" in described(tablet).warning
    held = described(tablet).memory_in_bytes
    tablet.put(upserts(0, 10, "newer"))
    assert [row["name"] for row in tablet.lookup(9, 10)] == ["newer-9", "n-10"]
    failpoints.disarm()
    tablet.service.close()
    assert held > 2 << 20


def test_a_put_waits_where_rows_come_faster_than_the_disk_takes_them(tmp_path):
    tablet = KvTablet(tmp_path, **MANY).open()
    tablet.put(upserts(0, 4 * ROWS))
    going, go, done = threading.Event(), threading.Event(), threading.Event()

    def slow():
        going.set()
        assert go.wait(PATIENCE_S)

    def write():
        tablet.put(upserts(0, 10, "newer"))
        done.set()

    failpoints.arm("kv.rows.before_write", slow)
    threads = [threading.Thread(target=work) for work in (tablet.service.look_after_rows, write)]
    threads[0].start()
    assert going.wait(PATIENCE_S)
    threads[1].start()
    is_early = done.wait(0.3)
    assert tablet.lookup(9)[0]["name"] == "n-9", "readers do not wait"
    go.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert done.is_set()
    assert not is_early
    assert tablet.lookup(9)[0]["name"] == "newer-9"
    tablet.service.close()
