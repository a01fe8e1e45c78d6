"""From a put to a client that reads the snapshot: tablet server, coordinator and files agree, and find each other again."""

import shutil

import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.client.kv.kv_snapshot_reader import read_snapshot
from fluss_lab.errors import KvSnapshotNotFoundError, TableNotFoundError
from fluss_lab.model import TableBucket, TablePath, make_descriptor
from fluss_lab.records.kv_manifest import CompletedSnapshot
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.testing import EmbeddedCluster

pytestmark = pytest.mark.slow

PATH = TablePath("d", "people")
TYPES = {"id": "bigint not null", "name": "string"}


@pytest.fixture
def cluster(tmp_path):
    with EmbeddedCluster(tmp_path / "lab", lake=False) as made:
        made.connection.admin().create_database("d")
        made.connection.admin().create_table(PATH, make_descriptor(TYPES, primary_key=["id"], buckets=1))
        yield made


def put(cluster, *ids, tag="n", path=PATH, **columns):
    rows = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"{tag}-{i}" for i in ids], **columns})
    with cluster.connection.upsert_writer(path) as writer:
        writer.upsert(rows)
        writer.flush()


def tablet(cluster):
    return cluster.node.tablets.tablet


def table(cluster, path=PATH):
    return cluster.connection.table_info(path)


def take(cluster, path=PATH, partition_id=None):
    return tablet(cluster).snapshot_now(TableBucket(table(cluster, path).table_id, partition_id, 0))


def latest(cluster):
    return cluster.connection.admin().latest_kv_snapshots(PATH)[0]


def rows_in(cluster, snapshot_id, path=PATH, partition=None):
    admin, info = cluster.connection.admin(), table(cluster, path)
    metadata = admin.kv_snapshot_metadata(info, 0, snapshot_id, partition)
    runs = read_snapshot(metadata, {info.schema_id: info.schema.arrow_schema})
    return sorted((row["id"], row["name"]) for run in runs for row in run.rows.to_pylist())


def folder(cluster):
    return cluster.folder / "remote" / "kv" / "d" / f"people-{table(cluster).table_id}" / "0"


def restart(cluster):
    cluster.stop()
    cluster.start()


def test_what_was_put_is_read_from_the_snapshot(cluster):
    assert latest(cluster) is None
    put(cluster, 1, 2, 3)
    put(cluster, 2, tag="again")
    done = take(cluster)
    assert (latest(cluster).snapshot_id, latest(cluster).log_offset) == (done.snapshot_id, done.log_offset)
    assert rows_in(cluster, done.snapshot_id) == [(1, "n-1"), (2, "again-2"), (3, "n-3")]
    with cluster.connection.scan_kv(table(cluster), TableBucket(table(cluster).table_id, None, 0)) as scan:
        scanned = sorted((row["id"], row["name"]) for part in scan for row in part.rows.to_pylist())
    assert scanned == rows_in(cluster, done.snapshot_id)


def test_a_restart_forgets_nothing_and_uses_no_id_twice(cluster):
    ids = []
    for turn in range(3):
        put(cluster, turn)
        ids.append(take(cluster).snapshot_id)
        restart(cluster)
        assert latest(cluster).snapshot_id >= ids[-1]
    assert ids == sorted(set(ids))
    assert rows_in(cluster, latest(cluster).snapshot_id) == [(turn, f"n-{turn}") for turn in range(3)]


def test_a_graceful_end_reports_its_snapshot(cluster):
    put(cluster, 1, 2)
    restart(cluster)
    assert latest(cluster).log_offset == 2
    assert rows_in(cluster, latest(cluster).snapshot_id) == [(1, "n-1"), (2, "n-2")]


@pytest.mark.parametrize("step", ["coordinator.kv_commit.before", "coordinator.kv_commit.after"])
def test_a_report_that_fails_is_made_again(cluster, step):
    put(cluster, 1)
    failpoints.arm(step, "error")
    done = take(cluster)
    assert done.log_offset == 1
    failpoints.disarm()
    tablet(cluster)._snapshots.tick()
    assert latest(cluster).snapshot_id == done.snapshot_id


def test_a_broken_snapshot_is_reported_as_broken(cluster):
    put(cluster, 1)
    take(cluster)
    put(cluster, 2)
    broken = take(cluster)
    cluster.stop()
    path = next((cluster.folder / "remote" / "kv").rglob(f"{broken.snapshot_id:010d}.live"))
    path.write_bytes(b"")
    cluster.start()
    tablet(cluster)._snapshots.tick()
    assert latest(cluster).snapshot_id == 0
    with pytest.raises(KvSnapshotNotFoundError, match="request the latest"):
        rows_in(cluster, broken.snapshot_id)
    assert take(cluster).snapshot_id > broken.snapshot_id
    assert rows_in(cluster, latest(cluster).snapshot_id) == [(1, "n-1"), (2, "n-2")]


def test_when_the_folder_was_lost_ids_go_on_behind_those_known(cluster):
    """The whole log is there, so the bucket is; the coordinator remembers the ids that the folder had."""
    put(cluster, 1)
    lost = CompletedSnapshot(TableBucket(table(cluster).table_id, None, 0), 41, 1, 1, 1, 1, "/lost", 1, retained=(41,))
    request = pb.CommitKvSnapshotRequest(completed_snapshot=lost.to_json(), coordinator_epoch=1, bucket_leader_epoch=0)
    cluster.connection.coordinator().commit_kv_snapshot(request)
    put(cluster, 2)
    assert take(cluster).snapshot_id == 0
    tablet(cluster)._snapshots.tick()
    assert latest(cluster).snapshot_id == 42
    assert rows_in(cluster, 42) == [(1, "n-1"), (2, "n-2")]


def test_a_dropped_table_leaves_nothing(cluster):
    put(cluster, 1)
    take(cluster)
    place = folder(cluster)
    assert place.exists()
    cluster.connection.admin().drop_table(PATH)
    with pytest.raises(TableNotFoundError):
        cluster.connection.admin().latest_kv_snapshots(PATH)
    assert not place.parent.exists()
    tablet(cluster)._snapshots.tick()


def test_partitions_have_their_own(cluster):
    admin, path = cluster.connection.admin(), TablePath("d", "days")
    types = {"id": "bigint not null", "day": "string not null", "name": "string"}
    admin.create_table(path, make_descriptor(types, primary_key=["id", "day"], partitioned_by=["day"], buckets=1))
    for day in ("mon/tue", "wed"):
        admin.create_partition(path, {"day": day})
    parts = {each.name: each for each in admin.partitions(path)}
    put(cluster, 1, path=path, day=["mon/tue"])
    put(cluster, 2, path=path, day=["wed"])
    for name, part in parts.items():
        done = take(cluster, path, part.partition_id)
        assert admin.latest_kv_snapshots(path, name)[0].snapshot_id == done.snapshot_id
    assert rows_in(cluster, 0, path, parts["mon/tue"]) == [(1, "n-1")]
    assert rows_in(cluster, 0, path, parts["wed"]) == [(2, "n-2")]
    root = cluster.folder / "remote" / "kv" / "d" / f"days-{table(cluster, path).table_id}"
    assert len(list(root.iterdir())) == 2
    admin.drop_partition(path, {"day": "wed"})
    assert [each.name for each in root.iterdir()] == [f"mon_tue-p{parts['mon/tue'].partition_id}"]


def test_files_copied_elsewhere_are_read_there(cluster, tmp_path):
    """What a reader needs is in the files: they may lie on a shared disk mounted at another place."""
    from dataclasses import replace

    put(cluster, 1, 2)
    done = take(cluster)
    info = table(cluster)
    metadata = cluster.connection.admin().kv_snapshot_metadata(info, 0, done.snapshot_id)
    shutil.copytree(folder(cluster), tmp_path / "copy")
    moved = replace(metadata, files={name: str(tmp_path / "copy" / name) for name in metadata.files})
    assert sum(len(run) for run in read_snapshot(moved, {info.schema_id: info.schema.arrow_schema})) == 2


def test_servers_of_their_own_report_too(tmp_path):
    with EmbeddedCluster(tmp_path / "lab", {"server.tablet-servers": 2}, lake=False) as made:
        made.connection.admin().create_database("d")
        made.connection.admin().create_table(PATH, make_descriptor(TYPES, primary_key=["id"], buckets=4))
        put(made, *range(40))
        for node in made.node.tablets.nodes.values():
            node.tablet._snapshots.take_all()
        found = made.connection.admin().latest_kv_snapshots(PATH)
        assert sum(each.log_offset for each in found.values()) == 40
        admin, info = made.connection.admin(), table(made)
        total = 0
        for bucket, each in found.items():
            metadata = admin.kv_snapshot_metadata(info, bucket, each.snapshot_id)
            total += sum(len(run) for run in read_snapshot(metadata, {info.schema_id: info.schema.arrow_schema}))
        assert total == 40
