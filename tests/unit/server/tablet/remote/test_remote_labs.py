"""A lab whose remote storage is an object store: logs and rows, snapshots, what describes and checks it."""

import shutil

import pytest

from fluss_lab.client.kv.kv_snapshot_reader import read_snapshot
from fluss_lab.errors import FlussError, StorageError
from fluss_lab.model.offsets import OffsetSpec
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.folder.lab_inspection import inspect_lab
from fluss_lab.server.tablet.buckets.bucket_inspection import Finding
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.workbench.health import doctor
from fluss_lab.workbench.health.disk_usage import disk_usage
from tests.unit.server.tablet.remote.remote_kit import KEYED, LOG, ROWS, keyed_bucket, make_tables
from tests.unit.storage.s3_server import s3_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store():
    with s3_server() as found:
        yield found


def _options(store, prefix):
    more = {"log.segment.file-size": "4kb", "bucket.reopen.wait-max": "50ms", "remote.log.task-interval-duration": "0s"}
    return store.options(prefix=prefix, **more)


@pytest.fixture
def cluster(tmp_path, store):
    """Running, with records and rows that are in the object store only."""
    found = EmbeddedCluster(tmp_path / "lab", _options(store, f"labs/{tmp_path.name}"), lake=False)
    found.start()
    make_tables(found, lambda: found.tablet().snapshot_now(keyed_bucket(found)))
    found.tablet().copy_to_remote()
    yield found
    store.fault = lambda _method, _key: None
    found.close()


def _ids(cluster, path):
    found = []
    with cluster.connection.log_scanner(path) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        while len(found) < ROWS:
            for batch in scanner.poll(10):
                found += batch.rows["id"].to_pylist()
    return found


def _looked_up(cluster, key):
    with cluster.connection.lookuper(KEYED) as lookuper:
        return lookuper.lookup([{"id": key}]).to_pylist()


def _snapshot_ids(cluster):
    """The rows of the newest snapshot, read from its files as a tiering task does."""
    admin = cluster.connection.admin()
    info = admin.table_info(KEYED)
    newest = admin.latest_kv_snapshots(KEYED)[0]
    metadata = admin.kv_snapshot_metadata(info, 0, newest.snapshot_id)
    schemas = {info.schema_id: info.schema.arrow_schema}
    return sorted(each for run in read_snapshot(metadata, schemas) for each in run.rows["id"].to_pylist())


def test_records_and_rows_are_read_before_and_after_a_restart(cluster):
    for _ in range(2):
        assert _ids(cluster, LOG) == list(range(ROWS))
        assert (
            cluster.connection.admin()
            .list_offsets(cluster.connection.admin().table_info(KEYED), OffsetSpec.earliest())[0]
            .offset
            == 0
        )
        assert _looked_up(cluster, 7)[0]["name"] == "name-7" * 5
        assert _snapshot_ids(cluster) == list(range(ROWS))
        cluster.stop()
        cluster.start()


def test_while_the_store_is_away_what_is_here_goes_on(cluster, store):
    with store.failing(503):
        with cluster.connection.append_writer(LOG) as writer:
            writer.append([{"id": ROWS, "name": "one more"}])
        with cluster.connection.upsert_writer(KEYED) as writer:
            writer.upsert([{"id": 7, "name": "newer"}])
        assert _looked_up(cluster, 7)[0]["name"] == "newer"
        with pytest.raises(StorageError, match="too busy"):
            cluster.tablet().snapshot_now(keyed_bucket(cluster))
        with pytest.raises(FlussError, match="too busy"):
            _snapshot_ids(cluster)
    assert _ids(cluster, LOG)[:ROWS] == list(range(ROWS))
    assert _snapshot_ids(cluster) == list(range(ROWS))


def test_credentials_are_in_no_description(cluster, store):
    described = cluster.connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
    assert store.options()["remote.s3.secret-access-key"] not in str(described)
    assert "remote.s3.endpoint" in str(described)
    assert "hidden-secret" not in f"{cluster!r} {cluster.connection!r} {cluster.connection.remote_files!r}"


def test_what_looks_at_a_labs_files_sees_the_store(cluster, store, tmp_path):
    folder = tmp_path / "lab"
    options = _options(store, f"labs/{tmp_path.name}")
    usage = {each.store: each for each in disk_usage(folder, options, 10_000)}
    for name in ("remote log", "key-value snapshots"):
        assert (usage[name].size_bytes, usage[name].is_complete) == (None, False)
        assert usage[name].place.startswith("s3://lake/labs/")
    cluster.stop()
    checks = {each.name: each for each in doctor._disks(folder)}
    assert checks["remote storage"].is_ok
    found = list(inspect_lab(folder))
    assert [each for each in found if isinstance(each, Finding)] == []
    assert sum("s3://lake/" in str(each) for each in found) == 3
    (log,) = [key for key in store.objects if f"{tmp_path.name}/log/db/log" in key and key.endswith(f"{0:020d}.log")]
    store.objects[log] = store.objects[log][:-1] + b"x"
    findings = [each for each in inspect_lab(folder) if isinstance(each, Finding)]
    assert ["cannot all be read from remote storage" in each.meaning for each in findings] == [True]
    with store.failing(503):
        assert not {each.name: each for each in doctor._disks(folder)}["remote storage"].is_ok
        assert any("too busy" in str(each) for each in inspect_lab(folder))


def test_a_dropped_table_leaves_nothing_there(cluster, store, tmp_path):
    for path in (LOG, KEYED):
        cluster.connection.admin().drop_table(path)
    cluster.stop()
    assert [key for key in store.objects if key.startswith(f"labs/{tmp_path.name}/")] == [
        f"labs/{tmp_path.name}/owner.json"
    ]


def test_of_two_servers_on_copies_of_one_folder_the_first_sweeps_nothing(cluster, store, tmp_path):
    """The one that came second has the snapshots; the first one can neither add to them nor remove any."""
    shutil.copytree(tmp_path / "lab", tmp_path / "copy", ignore=shutil.ignore_patterns("*.lock", "lock", "server.json"))
    other = EmbeddedCluster(tmp_path / "copy", _options(store, f"labs/{tmp_path.name}"), lake=False)
    other.start()
    for each in (other, cluster):
        with each.connection.upsert_writer(KEYED) as writer:
            writer.upsert([{"id": 1, "name": "newer"}])
    other.tablet().snapshot_now(keyed_bucket(other))
    before = {key: data for key, data in store.objects.items() if "/kv/" in key}
    with pytest.raises(StorageError, match="another writer"):
        cluster.tablet().snapshot_now(keyed_bucket(cluster))
    assert {key: data for key, data in store.objects.items() if "/kv/" in key} == before
    assert _snapshot_ids(other) == list(range(ROWS))
    other.close()
