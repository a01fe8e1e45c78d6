"""Data has identity: a copied folder, older metadata or another lab's folder is never taken for what it is not."""

import json
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

import fluss_lab as fl
from fluss_lab.errors import CorruptDataError, FlussError, LabError, StorageError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server import cluster
from fluss_lab.server.coordinator.metadata import row_checksums
from fluss_lab.server.folder.lab_inspection import inspect_lab
from fluss_lab.server.process import discovery
from fluss_lab.server.process import server_process as cluster_process
from fluss_lab.testing import EmbeddedCluster, MockClock

FIRST, SECOND = TablePath("db", "first"), TablePath("db", "second")


def make(running: EmbeddedCluster, path: TablePath, value: int, **more: object) -> None:
    running.connection.admin().create_table(path, make_descriptor({"x": "int", "p": "string"}, **more))
    with running.connection.append_writer(path) as writer:
        writer.append([{"x": value, "p": "a"}] * 10)


def values(running: EmbeddedCluster, path: TablePath) -> list[int]:
    return TableReader(running.connection, path).scan().to_arrow()["x"].to_pylist()


def back_up(folder: Path, place: Path) -> None:
    with closing(sqlite3.connect(folder / "metadata.db")) as db, closing(sqlite3.connect(place)) as copy:
        db.backup(copy)


def restore(place: Path, folder: Path) -> None:
    for name in ("metadata.db", "metadata.db-wal", "metadata.db-shm"):
        (folder / name).unlink(missing_ok=True)
    shutil.copyfile(place, folder / "metadata.db")


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "leave", [shutil.rmtree, lambda folder: folder.rename(folder.with_name("moved"))], ids=["removed", "moved"]
)
def test_a_server_whose_folder_is_gone_changes_no_file_of_the_lab_in_its_place(tmp_path, leave):
    """Its recovery points and indexes went into the other one's logs, which were damaged at their next start."""
    folder = tmp_path / "lab"
    options = {
        "log.segment.file-size": "1kb", "kv.snapshot.interval": "1h", "log.flush.interval": "1h", "log.retention.check-interval": "1h",
        "remote.log.task-interval-duration": "1h",
    }  # fmt: skip
    with EmbeddedCluster(folder, options, lake=False) as left:
        fill(left, rows=300)
        leave(folder)
        with EmbeddedCluster(folder, options, lake=False) as other:
            fill(other, rows=100)
        before = files_of(folder)
        tablet = left.node.tablets.tablet
        tablet.flush()
        tablet.apply_retention(2**50)
        tablet.copy_to_remote()
        tablet._look_for_snapshots()
        left.node._coordinator.store.reserve.restore()
        left.node._republish()
        deletion = pb.StopReplicaRequest(coordinator_epoch=left.node._coordinator.epoch)
        deletion.stop_replicas_req.add(
            table_bucket=pb.PbTableBucket(table_id=1, bucket_id=0), leader_epoch=0, delete=True
        )
        (refused,) = tablet.stop_replica(deletion).stop_replicas_resp
        assert "the lab's folder is no longer at" in refused.error_message
        with pytest.raises(StorageError, match="the lab's folder is no longer at"):
            left.connection.admin().drop_table(SECOND)
        assert files_of(folder) == before
    assert files_of(folder) == before
    with EmbeddedCluster(folder, options, lake=False) as other:
        for path in (FIRST, SECOND):
            assert sorted(values(other, path)) == [*range(100)]


def test_a_server_whose_folder_is_gone_gives_no_record_of_the_lab_in_its_place(tmp_path):
    """Both labs do the same at the same times: nothing but the folder tells the files of one from those of the other."""
    folder = tmp_path / "lab"
    with EmbeddedCluster(folder, lake=False, clock=MockClock()) as left:
        left.connection.admin().create_database("db")
        make(left, FIRST, 1)
        left.restart()  # or its files would be open
        shutil.rmtree(folder)
        with EmbeddedCluster(folder, lake=False, clock=MockClock()) as other:
            other.connection.admin().create_database("db")
            make(other, FIRST, 2)
            with pytest.raises(StorageError, match=r"\.log was not opened: the lab's folder is no longer at"):
                values(left, FIRST)
            assert values(other, FIRST) == [2] * 10


def fill(running: EmbeddedCluster, rows: int) -> None:
    running.connection.admin().create_database("db")
    running.connection.admin().create_table(
        FIRST, make_descriptor({"x": "int"}, properties={"table.log.ttl": "1s", "table.log.tiered.local-segments": 1})
    )
    running.connection.admin().create_table(SECOND, make_descriptor({"x": "int"}, primary_key=["x"]))
    with running.connection.append_writer(FIRST) as first, running.connection.upsert_writer(SECOND) as second:
        for start in range(0, rows, 100):
            first.append([{"x": start + each} for each in range(100)])
            second.upsert([{"x": start + each} for each in range(100)])
            first.flush()
            second.flush()


def test_a_copy_of_a_running_lab_is_another_lab(tmp_path):
    original, copy = tmp_path / "lab", tmp_path / "copy"
    with EmbeddedCluster(original, lake=False) as running:
        running.connection.admin().create_database("db")
        make(running, FIRST, 1)
        shutil.copytree(original, copy)
        assert cluster.running_server(original) is not None
        assert cluster.read_discovery(copy) is None
        assert cluster.running_server(copy) is None
        assert cluster.stop_server(copy) is False
        with EmbeddedCluster(copy, lake=False) as other:
            other.connection.admin().drop_table(FIRST)
            assert other.address.port != running.address.port
        assert values(running, FIRST) == [1] * 10


@pytest.mark.parametrize(
    "leave", [shutil.rmtree, lambda folder: folder.rename(folder.with_name("moved"))], ids=["removed", "moved"]
)
def test_a_lab_whose_folder_is_gone_takes_no_writes_and_leaves_the_lab_in_its_place_alone(tmp_path, leave):
    """Its writes were acknowledged and lost, and when it ended nobody found the other one's server any more."""
    folder, patient = tmp_path / "lab", {"server.grace": "10s"}
    first = fl.Lab.open(folder, config=patient)
    first.create_database("db")
    table = first.create_table("db.first", rows=[{"x": 1}])
    keyed = first.create_table("db.keyed", rows=[{"x": 1}], primary_key=["x"])
    leave(folder)
    calls = [
        lambda: table.append([{"x": 2}]), lambda: keyed.upsert([{"x": 2}]), lambda: keyed.delete([{"x": 1}]),
        lambda: first.create_table("db.second", {"x": "int"}), lambda: first.create_database("more"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(StorageError, match="the lab's folder is no longer at"):
            call()
    assert not folder.exists()
    (reported,) = (each for each in first.doctor() if each["check"] == "folder")
    assert (reported["severity"], reported["error_class"]) == ("problem", "StorageError")
    assert "the lab's folder is no longer at" in reported["found"]
    with fl.Lab.open(folder, config=patient) as second:
        second.create_database("db")
        other = second.create_table("db.first", rows=[{"x": 7}])
        with pytest.raises(StorageError, match="the lab's folder is no longer at"):
            table.append([{"x": 2}])
        assert [each["ok"] for each in first.doctor() if each["check"] == "folder"] == [False]
        assert all(each["check"] != "folder" for each in second.doctor())
        found = cluster.read_discovery(folder)
        began_s = time.monotonic()
        first.close()
        assert time.monotonic() - began_s < cluster_process.STOP_TIMEOUT_S / 2
        assert cluster.read_discovery(folder) == found
        other.append([{"x": 8}])
        assert other.scan().to_arrow()["x"].to_pylist() == [7, 8]


def test_a_lab_that_was_moved_or_is_known_by_another_name_is_the_same(tmp_path):
    folder = tmp_path / "lab"
    with EmbeddedCluster(folder, lake=False):
        link = tmp_path / "link"
        link.symlink_to(folder)
        assert discovery.read(link) == discovery.read(folder) is not None
        moved = tmp_path / "moved"
        os.rename(folder, moved)
        assert discovery.read(moved) is not None
        os.rename(moved, folder)


@pytest.mark.parametrize("partitioned", [False, True])
def test_older_metadata_is_refused_before_its_ids_are_given_out_again(tmp_path, partitioned):
    folder, backup = tmp_path / "lab", tmp_path / "backup.db"
    more = {"partitioned_by": ["p"]} if partitioned else {}
    with EmbeddedCluster(folder, lake=False) as running:
        admin = running.connection.admin()
        admin.create_database("db")
        if partitioned:
            admin.create_table(FIRST, make_descriptor({"x": "int", "p": "string"}, **more))
        back_up(folder, backup)
        if partitioned:
            with running.connection.append_writer(FIRST) as writer:
                writer.append([{"x": 1, "p": "a"}] * 10)
        else:
            make(running, FIRST, 1)
    restore(backup, folder)
    with pytest.raises(
        LabError, match=r"metadata is older than this folder, or of another one.*move them elsewhere and keep them"
    ):
        EmbeddedCluster(folder, lake=False).start()
    # What was told to be moved away is moved, and nothing of it comes back under the name of another.
    shutil.move(next((folder / "tablet" / "data").glob("t*/p*" if partitioned else "t*")), tmp_path / "kept")
    with EmbeddedCluster(folder, lake=False) as running:
        if partitioned:
            with running.connection.append_writer(FIRST) as writer:
                writer.append([{"x": 2, "p": "b"}] * 3)
            assert values(running, FIRST) == [2] * 3
        else:
            make(running, SECOND, 2)
            assert values(running, SECOND) == [2] * 10


@pytest.mark.parametrize("then", ["as it was", "altered otherwise"])
def test_older_metadata_is_refused_before_it_reads_rows_by_the_columns_of_another_schema(tmp_path, then):
    """The values of a column stood in another one that had got the number of its schema."""
    folder, backup, kept = tmp_path / "lab", tmp_path / "backup.db", tmp_path / "kept"
    with EmbeddedCluster(folder, lake=False) as running:
        running.connection.admin().create_database("db")
        make(running, FIRST, 1)
        make(running, SECOND, 2)
        back_up(folder, backup)
        running.connection.admin().alter_table(FIRST, add_columns={"a": "int"})
        with running.connection.append_writer(FIRST) as writer:
            writer.append([{"x": 1, "p": "a", "a": 7}])
    (table,) = {path.parent for path in (folder / "tablet" / "data").glob("t*/schema-2.json")}
    restore(backup, folder)
    if then == "altered otherwise":  # by a release that did not look at schemas
        table.rename(kept)
        with EmbeddedCluster(folder, lake=False) as running:
            running.connection.admin().alter_table(FIRST, add_columns={"b": "int"})
        shutil.rmtree(table)
        kept.rename(table)
    with pytest.raises(
        LabError, match=rf"older than this folder.*does not have the schemas, of {table}\. .*move them elsewhere"
    ):
        EmbeddedCluster(folder, lake=False).start()
    assert [str(each) for each in inspect_lab(folder) if "does not have the schemas" in str(each)], (
        "the doctor finds it too"
    )
    table.rename(kept)
    with EmbeddedCluster(folder, lake=False) as running:
        assert values(running, SECOND) == [2] * 10
        running.connection.options["client.request-timeout"] = "1s"
        with pytest.raises(CorruptDataError):
            values(running, FIRST)


def test_rows_of_a_writer_under_older_metadata_are_not_taken_for_a_retry(tmp_path):
    """It got the id of one that the logs know: the same rows, written once more, were acknowledged and left out."""
    folder, backup = tmp_path / "lab", tmp_path / "backup.db"
    with EmbeddedCluster(folder, lake=False) as running:
        running.connection.admin().create_database("db")
        running.connection.admin().create_table(FIRST, make_descriptor({"x": "int"}))
        back_up(folder, backup)
        with running.connection.append_writer(FIRST) as writer:
            writer.append([{"x": 1}])
    restore(backup, folder)
    with EmbeddedCluster(folder, lake=False) as running:
        with running.connection.append_writer(FIRST) as writer:
            writer.append([{"x": 1}])
        assert values(running, FIRST) == [1, 1]


def test_a_folder_that_is_another_buckets_is_refused_and_left_as_it_is(tmp_path):
    folder = tmp_path / "lab"
    with EmbeddedCluster(folder, lake=False) as running:
        running.connection.admin().create_database("db")
        make(running, FIRST, 1)
        make(running, SECOND, 2)
    data = folder / "tablet" / "data"
    first, second = sorted(data.glob("t*/b0"))
    shutil.move(first, tmp_path / "aside")
    shutil.copytree(second, first)
    before = {path.name: path.read_bytes() for path in first.iterdir()}
    with EmbeddedCluster(folder, lake=False) as running:
        assert values(running, SECOND) == [2] * 10
        running.connection.options["client.request-timeout"] = "1s"
        with pytest.raises(
            CorruptDataError, match=r"found those of another bucket.*older than this folder, or of another lab"
        ):
            values(running, FIRST)
        assert {path.name: path.read_bytes() for path in first.iterdir()} == before


def test_files_without_an_identity_are_refused_in_new_labs_and_adopted_in_older_ones(tmp_path):
    folder = tmp_path / "lab"
    with EmbeddedCluster(folder, lake=False) as running:
        running.connection.admin().create_database("db")
        make(running, FIRST, 1)
    (mark,) = (folder / "tablet" / "data").glob("t*/b0/identity-*")
    mark.unlink()
    with EmbeddedCluster(folder, lake=False) as running, pytest.raises(FlussError, match="files without an identity"):
        values(running, FIRST)
    # A lab of a version before identities: its metadata has no lab id.
    with closing(sqlite3.connect(folder / "metadata.db")) as db, db:
        row_checksums.prepare(db)
        db.execute("DELETE FROM meta WHERE key IN ('lab_id', 'identities_since')")
    with EmbeddedCluster(folder, lake=False) as running:
        assert values(running, FIRST) == [1] * 10
    assert len(list(mark.parent.glob("identity-*"))) == 1


def test_the_discovery_file_names_its_folder(tmp_path):
    with EmbeddedCluster(tmp_path / "lab", lake=False):
        found = json.loads((tmp_path / "lab" / "server.json").read_text())
        status = (tmp_path / "lab").stat()
        assert found["folder"] == [status.st_dev, status.st_ino]
