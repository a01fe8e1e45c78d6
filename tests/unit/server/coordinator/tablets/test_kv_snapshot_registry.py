"""What the coordinator knows of key-value snapshots: taken once, in order, retained, and gone with their buckets."""

import json
import sqlite3

import pytest

from fluss_lab.errors import (
    BucketNotFoundError,
    ConflictError,
    CorruptDataError,
    InvalidRequestError,
    KvSnapshotNotFoundError,
    PartitionNotFoundError,
    TableNotFoundError,
)
from fluss_lab.model.names import TableBucket
from fluss_lab.records.kv_manifest import CompletedSnapshot
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore
from tests.unit.server.coordinator.rig import path
from tests.unit.server.kv.snapshot_kit import Puts, store, write

SCHEMA = {"id": "bigint not null", "name": "string"}


@pytest.fixture
def table_id(rig):
    return rig.create(schema=SCHEMA, primary_key=["id"], buckets=3)


def snapshot(table_id, snapshot_id, log_offset, *, bucket=0, partition_id=None, retained=None, broken=(), folder="/x"):
    ids = retained if retained is not None else (snapshot_id,)
    where = TableBucket(table_id, partition_id, bucket)
    return CompletedSnapshot(where, snapshot_id, log_offset, 10, 100, 50, str(folder), 7, tuple(ids), tuple(broken))


def commit(rig, completed, coordinator_epoch=1, leader_epoch=0):
    data = completed if isinstance(completed, bytes) else completed.to_json()
    request = pb.CommitKvSnapshotRequest(
        completed_snapshot=data, coordinator_epoch=coordinator_epoch, bucket_leader_epoch=leader_epoch
    )
    return rig.coordinator.commit_kv_snapshot(request)


def latest(rig, name="t", partition=None):
    request = pb.GetLatestKvSnapshotsRequest(table_path=path(name))
    if partition is not None:
        request.partition_name = partition
    response = rig.coordinator.get_latest_kv_snapshots(request)
    return {
        each.bucket_id: (each.snapshot_id, each.log_offset) if each.HasField("snapshot_id") else None
        for each in response.latest_snapshots
    }


def metadata(rig, table_id, snapshot_id, bucket=0, partition_id=None):
    request = pb.GetKvSnapshotMetadataRequest(table_id=table_id, bucket_id=bucket, snapshot_id=snapshot_id)
    if partition_id is not None:
        request.partition_id = partition_id
    return rig.coordinator.get_kv_snapshot_metadata(request)


def restart(rig):
    rig.drop_channel()
    rig.cluster.stop()
    rig.cluster.start()


def test_the_latest_of_each_bucket_is_reported(rig, table_id):
    assert latest(rig) == {0: None, 1: None, 2: None}
    commit(rig, snapshot(table_id, 0, 5))
    commit(rig, snapshot(table_id, 1, 9, retained=(0, 1)))
    commit(rig, snapshot(table_id, 4, 7, bucket=2))
    assert latest(rig) == {0: (1, 9), 1: None, 2: (4, 7)}
    restart(rig)
    assert latest(rig) == {0: (1, 9), 1: None, 2: (4, 7)}


def test_saying_it_again_changes_nothing(rig, table_id):
    for _ in range(3):
        commit(rig, snapshot(table_id, 1, 9))
    assert latest(rig)[0] == (1, 9)


def test_only_what_is_retained_is_kept(rig, table_id, tmp_path):
    puts, snapshots = Puts(), store(tmp_path / "kv", bucket=TableBucket(table_id, None, 0))
    for number in range(4):
        puts.put(number)
        commit(rig, write(snapshots, puts.image()))
    assert metadata(rig, table_id, 3).log_offset == 4
    assert metadata(rig, table_id, 2).log_offset == 3
    for gone in (0, 1, 9):
        with pytest.raises(KvSnapshotNotFoundError, match=f"no snapshot {gone}"):
            metadata(rig, table_id, gone)


def test_an_id_is_never_taken_for_another_snapshot(rig, table_id):
    commit(rig, snapshot(table_id, 3, 9))
    with pytest.raises(ConflictError, match="use an id above 3"):
        commit(rig, snapshot(table_id, 3, 10))
    with pytest.raises(ConflictError, match="use an id above 3"):
        commit(rig, snapshot(table_id, 2, 10))
    assert latest(rig)[0] == (3, 9)


def test_an_older_one_is_taken_when_the_latest_is_broken(rig, table_id):
    commit(rig, snapshot(table_id, 3, 9, retained=(2, 3)))
    commit(rig, snapshot(table_id, 2, 5, retained=(2,), broken=(3,)))
    assert latest(rig)[0] == (2, 5)
    with pytest.raises(KvSnapshotNotFoundError):
        metadata(rig, table_id, 3)
    commit(rig, snapshot(table_id, 4, 9, retained=(2, 4), broken=(3,)))
    assert latest(rig)[0] == (4, 9)


@pytest.mark.parametrize("epochs", [(0, 0), (2, 0), (1, 1)])
def test_a_report_for_another_coordinator_or_leader_is_refused(rig, table_id, epochs):
    with pytest.raises(ConflictError, match="epoch"):
        commit(rig, snapshot(table_id, 0, 5), *epochs)
    assert latest(rig)[0] is None


def test_after_a_restart_the_old_epoch_is_refused(rig, table_id):
    restart(rig)
    with pytest.raises(ConflictError, match="epoch 1: this coordinator has epoch 2"):
        commit(rig, snapshot(table_id, 0, 5))
    commit(rig, snapshot(table_id, 0, 5), coordinator_epoch=2)


def test_buckets_that_are_not_there_are_refused(rig, table_id):
    with pytest.raises(TableNotFoundError):
        commit(rig, snapshot(table_id + 50, 0, 5))
    with pytest.raises(PartitionNotFoundError):
        commit(rig, snapshot(table_id, 0, 5, partition_id=3))
    with pytest.raises(BucketNotFoundError, match=r"\[0, 3\)"):
        commit(rig, snapshot(table_id, 0, 5, bucket=3))


def test_rows_go_with_the_table(rig, table_id):
    commit(rig, snapshot(table_id, 0, 5))
    rig.drop()
    with pytest.raises(TableNotFoundError):
        commit(rig, snapshot(table_id, 1, 6, retained=(0, 1)))
    again = rig.create(schema=SCHEMA, primary_key=["id"], buckets=3)
    assert again != table_id
    assert latest(rig) == {0: None, 1: None, 2: None}
    with pytest.raises(KvSnapshotNotFoundError):
        metadata(rig, table_id, 0)
    assert count_rows(rig) == 0


def test_partitions_have_their_own(rig):
    schema = {"id": "bigint not null", "day": "string not null"}
    table_id = rig.create("p", schema=schema, primary_key=["id", "day"], partitioned_by=["day"], buckets=2)
    for day in ("mon", "tue"):
        rig.create_partition("p", day=day)
    ids = rig.partitions("p")
    commit(rig, snapshot(table_id, 0, 5, partition_id=ids["mon"], bucket=1))
    assert latest(rig, "p", "mon") == {0: None, 1: (0, 5)}
    assert latest(rig, "p", "tue") == {0: None, 1: None}
    with pytest.raises(InvalidRequestError, match="a partition's name"):
        latest(rig, "p")
    with pytest.raises(PartitionNotFoundError):
        latest(rig, "p", "wed")
    rig.drop_partition("p", day="mon")
    with pytest.raises(PartitionNotFoundError):
        commit(rig, snapshot(table_id, 1, 6, partition_id=ids["mon"], bucket=1))
    with pytest.raises(PartitionNotFoundError):
        latest(rig, "p", "mon")
    assert count_rows(rig) == 0


def test_a_log_table_has_none(rig):
    rig.create("log")
    with pytest.raises(InvalidRequestError, match="no primary key"):
        latest(rig, "log")


def test_the_files_of_a_snapshot_are_reported(rig, table_id, tmp_path):
    puts, snapshots = Puts(), store(tmp_path / "kv", bucket=TableBucket(table_id, None, 1))
    puts.put(1, 2, 3)
    commit(rig, write(snapshots, puts.image()))
    found = metadata(rig, table_id, 0, bucket=1)
    assert found.log_offset == 3
    local = [each.local_file_name for each in found.snapshot_files]
    assert local == ["0000000000.manifest", "0000000000.live", "0000000000-0.chunks"]
    assert [each.remote_path for each in found.snapshot_files] == [str(tmp_path / "kv" / name) for name in local]
    manifest = tmp_path / "kv" / local[0]
    manifest.write_bytes(manifest.read_bytes()[:-1])
    with pytest.raises(CorruptDataError, match="checksum"):
        metadata(rig, table_id, 0, bucket=1)
    manifest.unlink()
    with pytest.raises(KvSnapshotNotFoundError, match="is gone"):
        metadata(rig, table_id, 0, bucket=1)


def test_what_is_no_report_is_refused(rig, table_id):
    whole = json.loads(snapshot(table_id, 0, 5).to_json())
    changes = (
        {"snapshot_id": -1}, {"log_offset": 1 << 63}, {"bucket_id": "0"}, {"table_id": True}, {"retained": 5},
        {"retained": []}, {"retained": list(range(100_000))}, {"snapshot_location": None}, {"version": 2},
    )  # fmt: skip
    wrong = [json.dumps({**whole, **change}).encode() for change in changes]
    for data in [b"", b"[]", b"{}", b"null", b"\xff", b"[" * 50_000, *wrong]:
        with pytest.raises(InvalidRequestError):
            commit(rig, data)
    assert latest(rig)[0] is None


def test_a_metadata_file_of_the_first_version_is_brought_up(tmp_path):
    """A cluster that was made before there were snapshots goes on."""
    file = tmp_path / "metadata.db"
    MetadataStore(file).close()
    with sqlite3.connect(file) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]:
            db.execute(f"DROP TRIGGER {name}")
        later = {
            "row_sums",
            "kv_snapshots",
            "lake_partition_drops",
            "bucket_offsets",
            "partition_losses",
            "auto_partition_marks",
            "tiering_rounds",
            "lossy_drops",
        }
        for name in later & set(tables):
            db.execute(f"DROP TABLE {name}")
        db.execute("PRAGMA user_version = 1")
    db.close()
    again = MetadataStore(file)
    with again.read() as db:
        assert db.execute("SELECT count(*) FROM kv_snapshots").fetchone()[0] == 0
    again.close()


def count_rows(rig):
    file = rig.cluster.folder / "metadata.db"
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as db:
        found = db.execute("SELECT count(*) FROM kv_snapshots").fetchone()[0]
    db.close()
    return found
