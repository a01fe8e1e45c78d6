"""Remote storage in MinIO: killed at every failpoint, stopped and back, wrong keys, read by clients and by Spark's tasks."""

from contextlib import closing

import pytest

from fluss_lab.errors import AuthenticationError, FlussError, StorageError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.spark import register
from fluss_lab.spark.source.source_options import place_options
from fluss_lab.testing import EmbeddedCluster, wait_until
from fluss_lab.testing.seeds import seed_of
from tests.beyond.test_faults_beyond import filled, small_disk
from tests.unit.server.tablet.remote.remote_kit import fill, held_from, make_tablet
from tests.unit.server.tablet.remote.test_remote_crashes import POINTS, check_nothing_is_lost, run_lives
from tools.beyond.minio_server import MinioServer

__all__ = ["small_disk"]

pytestmark = [pytest.mark.beyond, pytest.mark.slow]

LOG = TablePath("db", "log")
KEPT = {"table__log__tiered__local_segments": "1"}
ROWS = 4_000


@pytest.fixture(scope="module")
def bucket(minio):
    return minio.make_bucket("remote")


def _options(minio, location, **more):
    return {**minio.remote_options(), "remote.data.dir": location, "remote.s3.retry-time-max": "2s", **more}


# -- killed --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crashed(request, tmp_path_factory, minio, bucket):
    return run_lives(tmp_path_factory.mktemp("crashed"), seed_of(request.node), _options(minio, f"{bucket}/crashed"))


@pytest.mark.parametrize("point", POINTS)
def test_nothing_is_lost(crashed, point):
    check_nothing_is_lost(*crashed[point])


# -- failing -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tablet(tmp_path, minio, bucket):
    made = make_tablet(tmp_path / "one", options=_options(minio, f"{bucket}/{tmp_path.name}"), **KEPT)
    yield made
    made.service.close()


def test_a_store_that_stops_and_comes_back_costs_nothing(tablet, minio):
    fill(tablet, 12)
    copied = tablet.service.copy_to_remote()
    minio.process.stop()
    try:
        end = fill(tablet, 12)
        assert tablet.service.copy_to_remote() == 0
        with pytest.raises(StorageError, match="does not answer"):
            held_from(tablet, 0)
    finally:
        minio.process.start()
    assert copied
    assert tablet.service.copy_to_remote() >= copied
    assert [record.id for record in held_from(tablet, 0)] == list(range(end))


def test_a_store_whose_disk_is_full_holds_up_copies_until_there_is_room(small_disk, tmp_path, caplog):
    with MinioServer(small_disk) as server:
        tablet = make_tablet(tmp_path / "one", options=_options(server, f"{server.make_bucket('remote')}/one"), **KEPT)
        with closing(tablet.service):
            fill(tablet, 12)
            copied = tablet.service.copy_to_remote()
            with filled(small_disk):
                end = fill(tablet, 12)
                assert tablet.service.copy_to_remote() == 0
                # What is there already can be read, and what is not stays here.
                assert [record.id for record in held_from(tablet, 0)] == list(range(end))
            assert f"the store is full, HTTP 507 XMinioStorageFull ({server.endpoint})" in caplog.text
            assert tablet.service.copy_to_remote() >= copied > 0
            assert [record.id for record in held_from(tablet, 0)] == list(range(end))


def test_keys_that_are_refused_are_said(tablet, minio):
    fill(tablet, 12)
    tablet.service.copy_to_remote()
    minio.revoke_credentials()
    try:
        with pytest.raises((StorageError, AuthenticationError), match="access refused") as caught:
            held_from(tablet, 0)
        assert minio.secret_key not in str(caught.value)
    finally:
        minio.restore_credentials()
    assert held_from(tablet, 0)


@pytest.mark.parametrize(
    "wrong", [{"remote.s3.secret-access-key": "wrong"}, {"remote.data.dir": "s3://no-such-bucket/one"}]
)
def test_what_cannot_be_used_stops_the_start_with_the_reason(tmp_path, minio, bucket, wrong):
    cluster = EmbeddedCluster(tmp_path, _options(minio, f"{bucket}/wrong") | wrong, lake=False)
    with pytest.raises(FlussError, match=r"access refused|the bucket is not there"):
        cluster.start()
    cluster.close()


# -- read ----------------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_sparks_tasks_read_what_only_the_store_has(tmp_path, minio, bucket, spark):
    options = _options(
        minio, f"{bucket}/spark", **{"log.segment.file-size": "64kb", "remote.log.task-interval-duration": "100ms"}
    )
    with EmbeddedCluster(tmp_path, options) as cluster:
        admin = cluster.connection.admin()
        admin.create_database("db")
        types = {"id": "bigint not null", "name": "string"}
        admin.create_table(LOG, make_descriptor(types, buckets=2, properties={"table.log.tiered.local-segments": "1"}))
        with cluster.connection.append_writer(LOG) as writer:
            for first in range(0, ROWS, 200):
                writer.append([{"id": i, "name": f"name-{i}" * 20} for i in range(first, first + 200)])
                writer.flush()
        wait_until(lambda: all(each.log.start for each in cluster.tablet()._store.all()), timeout_s=60)
        register(spark, place_options(cluster.connection.address))
        frame = spark.read.format("fluss").option("table", "db.log").load()
        assert sorted(row.id for row in frame.select("id").collect()) == list(range(ROWS))
