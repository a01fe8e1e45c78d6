"""A lab on a read-only file system: everything in it is read, nothing of it is changed, and every write is refused."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile

import pyarrow as pa
import pytest

import fluss_lab as fl
from fluss_lab.errors import LabError, StorageError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.model.offsets import OffsetSpec
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server import cluster as clusters
from fluss_lab.server.folder import read_only_lab
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.mock_clock import wait_until
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from tests.unit.server.disks import read_only

PATIENCE_S = 60.0
TYPES = {"id": "bigint not null", "text": "string"}
LOG, ROWS, PARTS = TablePath("db", "log"), TablePath("db", "rows"), TablePath("db", "parts")
COUNT = 200


@pytest.fixture(autouse=True)
def _own_shadows(tmp_path, monkeypatch):
    """Shadows of a test are the test's own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)


def rows(first, count):
    return [{"id": number, "text": f"{number}"} for number in range(first, first + count)]


def state_of(folder):
    return sorted((str(path), path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*"))


def make_tables(cluster):
    admin = cluster.connection.admin()
    admin.create_database("db")
    admin.create_table(LOG, make_descriptor(TYPES, buckets=2, bucket_key=["id"]))
    admin.create_table(ROWS, make_descriptor(TYPES, primary_key=["id"], buckets=2))
    admin.create_table(PARTS, make_descriptor({**TYPES, "day": "string not null"}, partitioned_by=["day"]))
    admin.create_partition(PARTS, {"day": "1"})
    with cluster.connection.append_writer(LOG) as writer:
        writer.append(rows(0, COUNT)).result()
    for again in range(2):
        with cluster.connection.upsert_writer(ROWS) as writer:
            writer.upsert([{**row, "text": f"{again}"} for row in rows(0, COUNT)]).result()


def ids_in_log(cluster, path):
    info = cluster.connection.admin().table_info(path)
    total = sum(bucket.end_offset for bucket in cluster.connection.admin().buckets(info))
    found = []
    with cluster.connection.log_scanner(path) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        while len(found) < total:
            found += [i for batch in scanner.poll(PATIENCE_S) for i in batch.records.rows.column("id").to_pylist()]
    return sorted(found)


def check_read(cluster):
    assert cluster.connection.admin().tables("db") == ["log", "parts", "rows"]
    assert ids_in_log(cluster, LOG) == list(range(COUNT))
    assert len(ids_in_log(cluster, ROWS)) == 3 * COUNT
    keys = pa.table({"id": pa.array(range(COUNT), pa.int64())})
    assert cluster.connection.lookuper(ROWS).lookup(keys).column("text").to_pylist() == ["1"] * COUNT


def check_refused(cluster):
    admin = cluster.connection.admin()
    calls = {
        "database": lambda: admin.create_database("other"),
        "table": lambda: admin.create_table(TablePath("db", "other"), make_descriptor(TYPES)),
        "partition": lambda: admin.create_partition(PARTS, {"day": "2"}),
        "alter": lambda: admin.alter_table(LOG, set={"table.log.ttl": "3d"}),
        "drop": lambda: admin.drop_table(LOG),
        "drop partition": lambda: admin.drop_partition(PARTS, {"day": "1"}),
        "drop database": lambda: admin.drop_database("db", cascade=True),
        "append": lambda: cluster.connection.append_writer(LOG).append(rows(0, 1)).result(),
        "upsert": lambda: cluster.connection.upsert_writer(ROWS).upsert(rows(0, 1)).result(),
    }
    for name, call in calls.items():
        with pytest.raises(StorageError, match=r"the lab's folder .* cannot be written.*open for reading"):
            pytest.fail(f"{name} was not refused: {call()}")


@pytest.mark.parametrize("servers", [1, 2])
def test_a_lab_that_was_killed_is_read_as_it_lies_and_stays_as_it_is(tmp_path, servers):
    options = {"log.segment.file-size": "4kb"}
    with EmbeddedCluster(tmp_path / "lab", options, tablet_servers=servers, lake=False) as cluster:
        reading = sqlite3.connect(tmp_path / "lab" / "metadata.db", isolation_level=None)
        reading.execute("BEGIN")
        assert reading.execute("SELECT count(*) FROM meta").fetchone()
        make_tables(cluster)
        # As after kill -9 in a commit: the metadata is not merged into its file, recovery points are old, a tail is torn.
        shutil.copytree(tmp_path / "lab", tmp_path / "copy")
        reading.close()
    copy = tmp_path / "copy"
    (copy / "disk-reserve").unlink(missing_ok=True)
    assert (copy / "metadata.db-wal").stat().st_size
    for folder in copy.glob("tablet*/data/t*/b*"):
        with max(folder.glob("*.log")).open("ab") as file:
            file.write(b"torn")
        for previous in folder.glob("*.prev"):
            os.truncate(previous, previous.stat().st_size // 2)
    with read_only(copy):
        before = state_of(copy)
        for _ in range(2):
            with EmbeddedCluster(copy, lake=False, tablet_servers=servers) as cluster:
                assert clusters.running_server(copy).servers[0].pid == os.getpid()
                check_read(cluster)
                check_refused(cluster)
                for server_id in range(servers):
                    # Nothing is given up because of its age: nobody would have it elsewhere.
                    tablet = cluster.tablet(server_id)
                    assert tablet.apply_retention(2**62) == 0
                    tablet.flush()
                    assert tablet.copy_to_remote() == 0
                check_read(cluster)
            assert clusters.running_server(copy) is None
        assert state_of(copy) == before
        assert not list((tmp_path / "tmp").rglob("tablet*"))
    with EmbeddedCluster(copy, lake=False, tablet_servers=servers) as cluster:
        check_read(cluster)
        cluster.connection.append_writer(LOG).append(rows(COUNT, 1)).result()
        assert ids_in_log(cluster, LOG) == list(range(COUNT + 1))


def test_no_round_is_given_out_where_nothing_can_be_committed(tmp_path):
    folder = tmp_path / "lab"
    with EmbeddedCluster(folder) as cluster:
        admin = cluster.connection.admin()
        admin.create_database("db")
        admin.create_table(LOG, make_descriptor(TYPES, properties={"table.datalake.enabled": True}))
        table_id = admin.table_info(LOG).table_id
    with read_only(folder), EmbeddedCluster(folder) as cluster:
        for request in (
            pb.LakeTieringHeartbeatRequest(request_table=True),
            pb.LakeTieringHeartbeatRequest(request_table=True, request_table_id=table_id),
        ):
            answer = cluster.connection.coordinator().lake_tiering_heartbeat(request)
            assert "cannot be written" in answer.request_error.error_message
            assert not answer.HasField("tiering_table")


def test_a_lab_with_a_lake_is_opened_for_reading_by_several_processes(tmp_path):
    folder = tmp_path / "lab"
    with fl.Lab.open(folder, config={"server.grace": "100ms"}) as lab:
        lab.create_database("db")
        properties = {"table.datalake.enabled": True}
        table = lab.create_table("db.rows", TYPES, primary_key=["id"], buckets=2, properties=properties)
        table.upsert(rows(0, COUNT))
        run_round(lab.connection, lab.lake_storage(), LocalTieringExecutor(), table_id=table.info.table_id)
        table.upsert([{"id": number, "text": "new"} for number in range(10)])
        point = table.read_point()
    with read_only(folder):
        before = state_of(folder)
        with fl.Lab.open(folder, config={"server.grace": "100ms"}) as lab:
            table = lab.table("db.rows")
            assert lab.tables("db") == ["rows"]
            assert table.scan().count() == COUNT
            assert table.scan(where="text = 'new'").to_arrow().num_rows == 10
            assert table.scan(read_point=point).to_pandas()["id"].nunique() == COUNT
            assert len(table.changelog().to_pandas()) == COUNT + 20
            assert table.lookup([{"id": 3}]).column("text").to_pylist() == ["new"]
            assert len(table.buckets()) == 2
            assert len(table.snapshots().to_pandas()) == 1
            assert table.scan(as_of=int(table.snapshots().to_pandas()["snapshot_id"][0])).count() == COUNT
            with pytest.raises(StorageError, match=r"cannot be written.*open for reading"):
                run_round(lab.connection, lab.lake_storage(), LocalTieringExecutor(), table_id=table.info.table_id)
            with pytest.raises(StorageError, match=r"cannot be written.*open for reading"):
                table.expire_snapshots(older_than="7d")
            code = (
                f"import fluss_lab as fl\nlab = fl.Lab.open({str(folder)!r})\n"
                "print(lab.table('db.rows').scan().count(), lab.status().attached)\nlab.close()"
            )
            other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
            assert other.stdout.split() == [str(COUNT), "2"], other.stderr
        assert state_of(folder) == before


def test_a_killed_server_of_a_lab_that_cannot_be_written_comes_back_with_its_own_options(tmp_path):
    """It came back with those of the last server that could write the lab."""
    folder = tmp_path / "lab"
    with fl.Lab.open(folder, config={"server.grace": "100ms", "log.segment.file-size": "1mb"}) as lab:
        lab.create_database("db")
    with read_only(folder):
        assert clusters.read_options(folder)["log.segment.file-size"] == "1mb"
        mine = {"server.grace": "200ms", "log.segment.file-size": "2mb", "max.partition.num": 7}
        with fl.Lab.open(folder, config=mine) as lab:
            (server,) = clusters.read_discovery(folder).servers
            options = clusters.read_options(folder)
            assert options.items() >= {key: str(value) for key, value in mine.items()}.items()
            os.kill(server.pid, signal.SIGKILL)
            wait_until(
                lambda: (found := clusters.running_server(folder)) is not None and found.servers[0].pid != server.pid
            )
            assert lab.databases() == ["db"]
            assert clusters.read_options(folder) == options
    assert clusters.read_options(folder)["log.segment.file-size"] == "1mb"


def test_a_server_that_can_write_the_lab_is_used_where_it_cannot_be_written(tmp_path):
    folder = tmp_path / "lab"
    with EmbeddedCluster(folder, lake=False) as cluster, read_only(folder):
        found = clusters.read_discovery(folder)
        assert found.servers[0].port == cluster.address.port
        assert clusters.locate(folder).token == cluster.node.secret
        assert not (tmp_path / "tmp").exists() or not list((tmp_path / "tmp").iterdir())


def test_a_lab_that_was_changed_has_another_shadow(tmp_path):
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "metadata.db").write_bytes(b"1")
    assert read_only_lab.home_of(folder) == folder
    with read_only(folder):
        first = read_only_lab.home_of(folder)
        assert first.is_relative_to(tmp_path / "tmp")
        assert read_only_lab.home_of(folder) == first
    (folder / "metadata.db").write_bytes(b"22")
    with read_only(folder):
        assert read_only_lab.home_of(folder) not in {first, folder}


def test_a_shadow_that_others_may_use_is_refused(tmp_path):
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "metadata.db").write_bytes(b"1")
    with read_only(folder):
        home = read_only_lab.home_of(folder)
        home.parent.mkdir(mode=0o700)
        home.mkdir()
        home.chmod(0o755)
        with pytest.raises(LabError, match=r"only this user can use.*TMPDIR"):
            read_only_lab.make_home(folder)
        home.rmdir()
        home.symlink_to(tmp_path)
        with pytest.raises(LabError, match="only this user can use"):
            read_only_lab.make_home(folder)
        home.unlink()
        assert read_only_lab.make_home(folder) == home
        assert home.stat().st_mode & 0o777 == 0o700


def test_no_lab_is_made_where_nothing_can_be_written(tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    with read_only(folder), pytest.raises(LabError, match="expected a lab or a folder that can be written"):
        clusters.start_server(folder, [sys.executable, "-c", "raise SystemExit"], ephemeral=True)


def test_a_lab_that_cannot_be_written_says_where_its_servers_cannot_write_either(tmp_path, monkeypatch):
    """Seen: a trace of the thread that attaches, and a retriable error."""
    with EmbeddedCluster(tmp_path / "lab", lake=False) as cluster:
        make_tables(cluster)
    with read_only(tmp_path / "lab"):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp" / "gone"))
        with pytest.raises(StorageError, match=r"gone.* cannot be made: No such file.*let TMPDIR name"):
            fl.Lab.open(tmp_path / "lab")
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nowhere"])
        with pytest.raises(StorageError, match=r"'/nowhere'.*let TMPDIR name one"):
            fl.Lab.open(tmp_path / "lab")
