"""A bucket whose files are gone is not begun anew: the coordinator remembers that it was there, and how far."""

import shutil

import pytest

from fluss_lab.errors import ConflictError, CorruptDataError, FlussError, InvalidRequestError, error_from_code
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.model.offsets import OffsetSpec
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.coordinator.metadata.metadata_store import DATABASE_FILE, MetadataStore
from fluss_lab.server.coordinator.tablets.durable_offsets import DurableOffset, DurableOffsets
from fluss_lab.testing import EmbeddedCluster, wait_until
from tests.unit.server.tablet.tablet_kit import Tablet, batch

pytestmark = pytest.mark.slow

LOG, KEYED, PARTED = TablePath("db", "log"), TablePath("db", "keyed"), TablePath("db", "parted")
TYPES = {"id": "bigint not null", "name": "string"}
LATEST = 1


@pytest.fixture
def cluster(tmp_path):
    """Two buckets of a log table and two of a primary-key table, with 100 records each table."""
    found = EmbeddedCluster(tmp_path, {"bucket.reopen.wait-max": "50ms"}, lake=False)
    found.start()
    admin = found.connection.admin()
    admin.create_database("db")
    admin.create_table(LOG, make_descriptor(TYPES, buckets=2, bucket_key=["id"]))
    admin.create_table(KEYED, make_descriptor(TYPES, primary_key=["id"], buckets=2))
    rows = [{"id": i, "name": f"name-{i}"} for i in range(100)]
    with found.connection.append_writer(LOG) as writer:
        writer.append(rows)
    with found.connection.upsert_writer(KEYED) as writer:
        writer.upsert(rows)
    yield found
    found.close()


def _latest(cluster, path, bucket):
    admin = cluster.connection.admin()
    try:
        return admin.list_offsets(admin.table_info(path), OffsetSpec.latest(), buckets=[bucket])[bucket].offset
    except FlussError as error:
        return error


def _known(cluster, path):
    info = cluster.connection.admin().table_info(path)
    return cluster.node._coordinator._durables.of_table(info.table_id)


def _folder(cluster, path, bucket):
    table_id = cluster.connection.admin().table_info(path).table_id
    return cluster.folder / "tablet" / "data" / f"t{table_id}" / f"b{bucket}"


def _use(cluster, path):
    """Do what needs both buckets."""
    if path == LOG:
        with cluster.connection.append_writer(path) as writer:
            writer.append([{"id": i, "name": "again"} for i in range(20)])
    else:
        with cluster.connection.lookuper(path) as lookuper:
            lookuper.lookup([{"id": i} for i in range(20)])


@pytest.mark.parametrize("path", [LOG, KEYED], ids=["log", "keyed"])
@pytest.mark.parametrize("what", ["bucket", "table", "segments"])
def test_a_bucket_whose_folder_is_gone_is_an_error_until_it_is_back(cluster, tmp_path, path, what):
    before = [_latest(cluster, path, bucket) for bucket in (0, 1)]
    folder = _folder(cluster, path, 0)
    cluster.stop()
    shutil.copytree(folder, tmp_path / "copy")
    if what == "segments":
        for each in folder.glob("*.log"):
            each.unlink()
    else:
        shutil.rmtree(folder if what == "bucket" else folder.parent)
    cluster.start()
    error = _latest(cluster, path, 0)
    assert isinstance(error, CorruptDataError), error
    assert str(folder) in str(error)
    assert f"up to offset {before[0]}" in str(error)
    with pytest.raises(FlussError, match="could not be opened"):
        _use(cluster, path)
    if what != "table":
        assert _latest(cluster, path, 1) >= before[1]  # the other one is well
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    wait_until(lambda: "is gone or empty" in str(_latest(cluster, path, 0)), timeout_s=30)
    assert not list(folder.iterdir())  # whoever restores it finds it as they left it
    shutil.copytree(tmp_path / "copy", folder, dirs_exist_ok=True)
    wait_until(lambda: _latest(cluster, path, 0) == before[0], timeout_s=30)


def test_a_bucket_is_known_before_its_first_record_and_forgotten_with_its_table(cluster):
    admin = cluster.connection.admin()
    assert sorted(_known(cluster, LOG)) == [(-1, 0), (-1, 1)]
    descriptor = make_descriptor({**TYPES, "day": "string not null"}, buckets=2, partitioned_by=["day"])
    admin.create_table(PARTED, descriptor)
    admin.create_partition(PARTED, {"day": "one"})
    (partition,) = admin.partitions(PARTED)
    assert _known(cluster, PARTED) == {(partition.partition_id, 0): 0, (partition.partition_id, 1): 0}
    admin.drop_partition(PARTED, {"day": "one"})
    assert _known(cluster, PARTED) == {}
    table_id = admin.table_info(LOG).table_id
    admin.drop_table(LOG)
    assert cluster.node._coordinator._durables.of_table(table_id) == {}
    # A report that comes late does not bring it back.
    cluster.node._coordinator._durables.raise_to([DurableOffset(table_id, -1, 0, 5)])
    assert cluster.node._coordinator._durables.of_table(table_id) == {}


def test_durable_offsets_follow_and_never_go_back(cluster):
    ends = {(-1, bucket): _latest(cluster, LOG, bucket) for bucket in (0, 1)}
    cluster.tablet().flush()
    cluster.tablet()._reporter.report()
    assert _known(cluster, LOG) == ends
    with cluster.connection.append_writer(LOG) as writer:
        writer.append([{"id": i, "name": "more"} for i in range(100, 200)])
    ends = {(-1, bucket): _latest(cluster, LOG, bucket) for bucket in (0, 1)}
    assert sum(ends.values()) == 200
    cluster.stop()  # which reports, too
    store = MetadataStore(cluster.folder / DATABASE_FILE)
    assert DurableOffsets(store).of_table(1) == ends
    store.close()
    cluster.start()
    table_id, epoch = cluster.connection.admin().table_info(LOG).table_id, cluster.node._coordinator.epoch

    def report(offset, epoch=epoch):
        request = pb.ReportBucketsRequest(coordinator_epoch=epoch)
        bucket = pb.PbTableBucket(table_id=table_id, bucket_id=0)
        request.buckets.add(table_bucket=bucket, durable_offset=offset)
        cluster.connection.coordinator().report_buckets(request)

    before = _known(cluster, LOG)
    report(3)
    assert _known(cluster, LOG) == before
    with pytest.raises(InvalidRequestError):
        report(-1)
    with pytest.raises(ConflictError):
        report(10**6, epoch - 1)
    assert _known(cluster, LOG) == before


def test_several_servers_report_each_its_own(tmp_path):
    with EmbeddedCluster(tmp_path, lake=False, tablet_servers=2) as cluster:
        admin = cluster.connection.admin()
        admin.create_database("db")
        admin.create_table(LOG, make_descriptor(TYPES, buckets=2, bucket_key=["id"]))
        assert _known(cluster, LOG) == {(-1, 0): 0, (-1, 1): 0}
        with cluster.connection.append_writer(LOG) as writer:
            writer.append([{"id": i, "name": "x"} for i in range(50)])
        ends = {(-1, bucket): _latest(cluster, LOG, bucket) for bucket in (0, 1)}
        cluster.restart()
        assert _known(cluster, LOG) == ends


@pytest.mark.parametrize("left", [0.5, 0.0])
def test_a_log_that_ends_before_what_is_known_is_damaged_not_torn(tmp_path, left):
    """Without a recovery point nothing else tells."""
    tablet = Tablet(tmp_path)
    tablet.open(0)
    for first in range(0, 20, 2):
        tablet.produce({0: batch(first, 2)})
    tablet.service.close()
    folder = tmp_path / "data" / "t7" / "b0"
    (folder / "recovery-point").unlink()
    (path,) = folder.glob("*.log")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * left)])
    size = path.stat().st_size
    again = tablet.reopen(clean=False)
    again.open(0, durable_offset=20)
    answer = again.offsets(LATEST)[0]
    error = error_from_code(answer.error_code, answer.error_message)
    assert isinstance(error, CorruptDataError)
    assert "on the device up to 20" in str(error) or "on the device up to offset 20" in str(error)
    assert again.produce({0: batch(20, 1)})[0].HasField("error_code")
    assert path.stat().st_size == size  # nothing was cut off
    again.service.close()
