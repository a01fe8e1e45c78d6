"""A change that is in the log, but could not be made in the rows: it is acknowledged, and the rows follow by themselves."""

import threading

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import ServerUnavailableError
from fluss_lab.model import make_descriptor
from fluss_lab.model.names import TableBucket, TablePath
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.kv.kv_snapshot import SnapshotStore
from fluss_lab.server.tablet.buckets.kv_replay import Replay
from fluss_lab.testing import EmbeddedCluster, wait_until
from tests.unit.server.tablet.kv_kit import TABLE_ID, KvTablet, upserts

BUCKET = TableBucket(TABLE_ID, None, 0)
POINTS = ["kv.commit.before", "kv.commit.torn"]
PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def disarmed():
    yield
    failpoints.disarm()


def names(tablet, count):
    return [row["name"] for row in tablet.lookup(*range(count))]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("durability", ["ack", "fsync"])
@pytest.mark.parametrize("snapshot", [False, True])
def test_rows_follow_a_change_that_could_not_be_made_in_them(tmp_path, point, durability, snapshot):
    tablet = KvTablet(tmp_path, log__durability=durability).open()
    tablet.put(upserts(0, 50, "old"))
    if snapshot:
        assert tablet.service.snapshot_now(BUCKET) is not None
        tablet.put(upserts(50, 5, "old"))
    count = 55 if snapshot else 50
    failpoints.arm(point, "error@1")
    made = tablet.put(upserts(0, 10, "new"), writer_id=7, sequence=0)
    assert failpoints.passes(point) == 1
    assert made[1] - made[0] == 20, "it is in the log, and so it was made"
    expected = [f"new-{i}" if i < 10 else f"old-{i}" for i in range(count)]
    assert names(tablet, count) == expected
    # The same batch again is known, and what follows it is taken.
    assert tablet.put(upserts(0, 10, "new"), writer_id=7, sequence=0) == made
    tablet.put(upserts(10, 5, "new"), writer_id=7, sequence=1)
    expected[10:15] = [f"new-{i}" for i in range(10, 15)]
    assert names(tablet, count) == expected
    assert names(tablet.reopen(), count) == expected


def test_until_the_rows_have_followed_nothing_is_said_of_them(tmp_path):
    """Neither that they are corrupt, nor that nothing was changed, nor what they were before; and it ends by itself."""
    tablet = KvTablet(tmp_path).open()
    tablet.put(upserts(0, 5, "old"))
    failpoints.arm("kv.commit.torn", "error@1")
    failpoints.arm("kv.remake.before", "error@1")
    before = tablet.bucket().kv.store
    assert tablet.put(upserts(0, 5, "new")) == (5, 15)
    for attempt in (
        lambda: tablet.lookup(0),
        lambda: tablet.put(upserts(0, 5, "newer")),
        tablet.bucket().kv.view,
        tablet.bucket().kv.capture,
    ):
        with pytest.raises(ServerUnavailableError, match=r"last change is in the log, .* rebuilt from the log"):
            attempt()
    # Nor to a reader that had asked just before: not of the old rows, and not that there are none.
    for store in (before, tablet.bucket().kv.store):
        with pytest.raises(ServerUnavailableError, match="rebuilt from the log"):
            store.view()
    (described,) = tablet.service.describe_buckets(pb.DescribeBucketsRequest(table_id=TABLE_ID)).buckets
    assert "last change is in the log" in described.error.error_message

    def has_followed():
        try:
            return names(tablet, 5) == [f"new-{i}" for i in range(5)]
        except ServerUnavailableError:
            return False

    wait_until(has_followed, PATIENCE_S)
    assert tablet.put(upserts(5, 1))[0] == 15


def test_a_scan_that_is_under_way_shows_its_moment(tmp_path):
    """It has the rows of before, whatever becomes of them."""
    tablet = KvTablet(tmp_path).open()
    tablet.put(upserts(0, 5, "old"))
    view = tablet.bucket().kv.view()
    failpoints.arm("kv.commit.torn", "error@1")
    tablet.put(upserts(0, 5, "new"))
    rows = [name for batch, *_ in view.batches([0, 1], bytes_max=1 << 20) for name in batch.column(1).to_pylist()]
    assert rows == [f"old-{i}" for i in range(5)]
    assert names(tablet, 5) == [f"new-{i}" for i in range(5)]


@pytest.mark.parametrize(("owner", "step"), [(Replay, "run"), (SnapshotStore, "load")])
def test_a_table_that_is_altered_while_its_log_is_replayed_is_followed(monkeypatch, owner, step):
    path = TablePath("db", "t")
    with EmbeddedCluster(lake=False) as cluster:
        admin = cluster.connection.admin()
        admin.create_database("db")
        info = admin.create_table(path, make_descriptor({"id": "int", "v": "int"}, primary_key=["id"], buckets=1))
        with cluster.connection.upsert_writer(path) as writer:
            writer.upsert([{"id": 1, "v": 1}]).result()
        store = cluster.tablet()._store
        table, run = store.table(info.table_id), getattr(owner, step)
        altering = threading.Thread(target=lambda: admin.alter_table(path, add_columns={"w": "int"}))

        def run_and_alter(*args):
            found = run(*args)
            if altering.ident is None:
                altering.start()
                wait_until(lambda: table.schema_id == 2)
            return found

        with monkeypatch.context() as slowly:
            slowly.setattr(owner, step, run_and_alter)
            store.renew(TableBucket(info.table_id, None, 0), lambda bucket: None)
        altering.join()
        with cluster.connection.upsert_writer(path) as writer:
            writer.upsert([{"id": 2, "v": 2, "w": 2}]).result()
        found = cluster.connection.lookuper(path).lookup([{"id": 1}, {"id": 2}]).to_pylist()
        assert found == [{"id": 1, "v": 1, "w": None}, {"id": 2, "v": 2, "w": 2}]
