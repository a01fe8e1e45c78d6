"""Lake tables come and go with their tables: both, or none, wherever it is cut off."""

import json
import threading
from contextlib import closing, contextmanager
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from fluss_lab import errors, failpoints
from fluss_lab.lake.format_plugin import load_lake
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.coordinator.tiering.lake_snapshots import LakeLedger
from fluss_lab.server.server_options import default_lake_options
from fluss_lab.testing.mock_clock import wait_until
from tests.unit.server.coordinator.rig import Rig

pytestmark = pytest.mark.slow

LAKE = {"table.datalake.enabled": True}


def lake_names(rig) -> list[str]:
    """Return the tables that the lake's own catalog lists."""
    if not (rig.cluster.folder / "lake" / "catalog.db").exists():
        return []
    with closing(lake_catalog(rig)) as catalog:
        return [name for _, name in catalog.list_tables("d")] if catalog.namespace_exists("d") else []


def lake_catalog(rig):
    """Return the lake's catalog, as somebody else opens it."""
    from pyiceberg.catalog.sql import SqlCatalog

    options = default_lake_options(rig.cluster.folder)
    return SqlCatalog(
        "fluss_lab", uri=options["datalake.iceberg.uri"], warehouse=options["datalake.iceberg.warehouse"]
    )  # fmt: skip


@contextmanager
def lake_table(rig):
    with closing(lake_catalog(rig)) as catalog:
        yield catalog.load_table("d.t")


def ledger(rig: Rig) -> LakeLedger:
    assert rig.cluster.node._coordinator is not None
    return rig.cluster.node._coordinator.ledger


def states(rig) -> list[str]:
    return [state.state for state in rig.coordinator.describe_cluster(pb.DescribeClusterRequest()).tiering_states]


def test_a_lake_table_comes_and_goes_with_its_table(lake_rig):
    lake_rig.create(properties=LAKE)
    assert lake_names(lake_rig) == ["t"]
    assert states(lake_rig) == ["Scheduled"]
    lake_rig.drop()
    assert lake_names(lake_rig) == []
    assert states(lake_rig) == []
    assert ledger(lake_rig).tables() == []


def test_a_lake_table_that_is_kept_is_named_by_its_table_id(lake_rig):
    table_id = lake_rig.create(properties=LAKE)
    lake_rig.drop(keep_lake=True)
    assert lake_names(lake_rig) == [f"t__{table_id}"]
    lake_rig.create(properties=LAKE)
    assert sorted(lake_names(lake_rig)) == ["t", f"t__{table_id}"]


def test_a_creation_that_fails_after_the_lake_takes_the_lake_table_back(lake_rig):
    failpoints.arm("coordinator.ddl.after_lake", "error")
    with pytest.raises(errors.InternalError):
        lake_rig.create(properties=LAKE)
    assert lake_names(lake_rig) == []
    assert not lake_rig.coordinator.table_exists(
        pb.TableExistsRequest(table_path=pb.PbTablePath(database_name="d", table_name="t"))
    ).exists
    failpoints.disarm()
    # Another layout, so that nothing can be taken over.
    lake_rig.create(schema={"x": "int"}, properties=LAKE)
    assert lake_names(lake_rig) == ["t"]


def test_what_a_crash_left_in_the_lake_is_cleared_by_the_next_creation(lake_rig):
    """As after kill -9 between lake and metadata: the lake table is there, noted, and nobody took it back."""
    node = lake_rig.cluster.node
    lake = node._coordinator._lifecycle._lake
    lake.unmake = lambda _info: None
    failpoints.arm("coordinator.ddl.after_lake", "error@1")
    with pytest.raises(errors.InternalError):
        lake_rig.create(properties=LAKE)
    assert lake_names(lake_rig) == ["t"]
    lake_rig.cluster.restart()
    lake_rig.create(schema={"x": "int"}, properties=LAKE)
    assert lake_names(lake_rig) == ["t"]
    assert [row.state for row in ledger(lake_rig).tables()] == ["live"]


@pytest.mark.parametrize("is_cut_off", [False, True], ids=["failed", "cut off"])
def test_rows_that_came_into_a_lake_table_while_it_was_created_stay(lake_rig, monkeypatch, is_cut_off):
    """Seen: the lake table was dropped with all that somebody had written to it."""
    ddl = lake_rig.cluster.node._coordinator._lifecycle._lake
    create = ddl.tables().create_table

    def create_and_write(info) -> None:
        create(info)
        row = {"a": 1, "p": "x", "__bucket": 0, "__offset": 0, "__timestamp": datetime.now(UTC)}
        with lake_table(lake_rig) as table:
            table.append(pa.Table.from_pylist([row], table.schema().as_arrow()))

    monkeypatch.setattr(ddl.tables(), "create_table", create_and_write)
    if is_cut_off:
        monkeypatch.setattr(ddl, "unmake", lambda _info: None)
    failpoints.arm("coordinator.ddl.after_lake", "error@1")
    with pytest.raises(errors.InternalError):
        lake_rig.create(properties=LAKE)
    monkeypatch.undo()
    if is_cut_off:
        lake_rig.cluster.restart()
    with pytest.raises(errors.LakeTableExistsError, match="it has 1 snapshot"):
        lake_rig.create(properties=LAKE)
    with lake_table(lake_rig) as table:
        assert table.scan().to_arrow().num_rows == 1
    lake_rig.create("other", properties=LAKE)
    assert [row.path.table for row in ledger(lake_rig).tables()] == ["other"]


def test_a_drop_cut_off_before_the_lake_is_finished_by_the_next_change(lake_rig):
    lake_rig.create(properties=LAKE)
    failpoints.arm("coordinator.ddl.after_commit", "error@1")
    with pytest.raises(errors.InternalError):
        lake_rig.drop()
    assert lake_names(lake_rig) == ["t"]
    lake_rig.cluster.restart()
    lake_rig.create(schema={"x": "int"}, properties=LAKE)
    assert lake_names(lake_rig) == ["t"]
    assert len(ledger(lake_rig).tables()) == 1


def test_somebody_elses_lake_table_is_left_alone(lake_rig):
    from fluss_lab.model import TableInfo, TablePath, make_descriptor

    options = default_lake_options(lake_rig.cluster.folder)
    lake_rig.create("first", properties=LAKE)  # makes the catalog
    prefix = "datalake.iceberg."
    catalog = load_lake("iceberg", {k.removeprefix(prefix): v for k, v in options.items() if k.startswith(prefix)})
    foreign = make_descriptor({"other": "int"}, properties=LAKE)
    catalog.create_table(TableInfo(TablePath("d", "t"), 777, 1, foreign, 0, 0))
    with pytest.raises(errors.LakeTableExistsError):
        lake_rig.create(properties=LAKE)
    assert sorted(lake_names(lake_rig)) == ["first", "t"]
    assert [row.path.table for row in ledger(lake_rig).tables()] == ["first"]


def test_the_lake_is_switched_on_and_off_on_a_live_table(lake_rig):
    table_id = lake_rig.create(buckets=2)
    assert lake_rig.ask(table_id).request_error.error_code == 40
    lake_rig.alter(set={"table.datalake.enabled": "true"})
    assert lake_names(lake_rig) == ["t"]
    assert states(lake_rig) == ["Scheduled"]
    lake_rig.alter(set={"table.datalake.enabled": "false"})
    assert lake_names(lake_rig) == ["t"]
    assert states(lake_rig) == []
    lake_rig.alter(set={"table.datalake.enabled": "true", "iceberg.write.parquet.compression-codec": "zstd"})
    assert states(lake_rig) == ["Scheduled"]
    lake_rig.cluster.restart()
    assert states(lake_rig) == ["Scheduled"]
    lake_rig.drop()
    assert lake_names(lake_rig) == []


def test_switching_on_is_undone_when_the_metadata_refuse(lake_rig):
    lake_rig.create(buckets=2)
    failpoints.arm("coordinator.ddl.after_lake", "enospc@1")
    with pytest.raises(errors.StorageError):
        lake_rig.alter(set={"table.datalake.enabled": "true"})
    assert lake_names(lake_rig) == []
    assert json.loads(lake_rig.info().table_json)["properties"] == {}
    assert states(lake_rig) == []


def test_a_table_with_two_bucket_keys_cannot_be_switched_on(lake_rig):
    lake_rig.create(bucket_key=["a", "p"], buckets=2)
    with pytest.raises(errors.UnsupportedError, match="multi-argument"):
        lake_rig.alter(set={"table.datalake.enabled": "true"})
    assert lake_names(lake_rig) == []


def test_properties_reach_the_lake_table(lake_rig):
    from pyiceberg.catalog.sql import SqlCatalog

    lake_rig.create(properties={**LAKE, "custom.owner": "me"})
    lake_rig.alter(set={"iceberg.custom.a": "b"}, reset=["custom.owner"])
    options = default_lake_options(lake_rig.cluster.folder)
    catalog = SqlCatalog(
        "fluss_lab", uri=options["datalake.iceberg.uri"], warehouse=options["datalake.iceberg.warehouse"]
    )
    properties = catalog.load_table("d.t").properties
    catalog.close()
    assert properties["custom.a"] == "b"
    assert "fluss.custom.owner" not in properties


def test_a_dropped_partition_of_a_lake_table_is_not_made_again(lake_rig):
    table_id = lake_rig.create(partitioned_by=["p"], properties=LAKE)
    lake_rig.create_partition(p="x")
    partition_id = lake_rig.partitions()["x"]
    epoch = lake_rig.ask(table_id).tiering_table.tiering_epoch
    lake_rig.drop_partition(p="x")
    # A round that was under way may still commit rows of it, and they stay readable under its name.
    assert not lake_rig.commit(table_id, 5, epoch, {(partition_id, 0): 10}).HasField("error_code")
    (entry,) = lake_rig.snapshot().bucket_snapshots
    assert (entry.partition_id, entry.partition_name, entry.log_offset) == (partition_id, "x", 10)
    for ignore in (False, True):
        with pytest.raises(errors.PartitionExistsError, match="still read from the lake"):
            lake_rig.create_partition(p="x", ignore=ignore)
    assert lake_rig.partitions() == {}
    with pytest.raises(errors.PartitionNotFoundError):
        lake_rig.drop_partition(p="x")


def dropping(rig: Rig, **how) -> threading.Thread:
    """Begin to drop the table, and return once it is gone from the metadata."""
    thread = threading.Thread(target=lambda: rig.drop(**how), daemon=True)
    thread.start()
    request = pb.TableExistsRequest(table_path=pb.PbTablePath(database_name="d", table_name="t"))
    wait_until(lambda: not rig.coordinator.table_exists(request).exists)
    return thread


@pytest.mark.parametrize("end", ["failed", "finished", "process gone"])
def test_a_lake_table_is_not_dropped_under_the_hands_of_its_tierer(tmp_path, end):
    rig = Rig(tmp_path / "c", options={"lake.tiering.takeover": "60s"})
    try:
        rig.create_database()
        table_id = rig.create(properties=LAKE)
        closed = threading.Event()
        answers = rig.coordinator.attach(pb.AttachRequest(client_name="tierer"), closed)
        held = rig.ask(table_id, next(answers).session_id).tiering_table
        location = rig.cluster.folder / "lake" / "warehouse" / "d" / f"t-{held.table_id}"
        thread = dropping(rig)
        thread.join(0.2)
        assert thread.is_alive()
        assert lake_names(rig) == ["t"]
        said = pb.PbHeartbeatReqForTable(table_id=held.table_id, coordinator_epoch=1, tiering_epoch=held.tiering_epoch)
        renewed = rig.coordinator.lake_tiering_heartbeat(pb.LakeTieringHeartbeatRequest(tiering_tables=[said]))
        assert renewed.tiering_table_resp[0].HasField("error")  # by which it hears that it has to stop
        (location / "data").mkdir(parents=True, exist_ok=True)
        (location / "data" / "of a task.parquet").write_bytes(b"x")
        if end == "failed":
            rig.coordinator.lake_tiering_heartbeat(pb.LakeTieringHeartbeatRequest(failed_tables=[said]))
        elif end == "finished":
            rig.coordinator.lake_tiering_heartbeat(pb.LakeTieringHeartbeatRequest(finished_tables=[said]))
        else:
            closed.set()
        thread.join(30)  # less than the takeover, after which a silent tierer is not waited for
        assert not thread.is_alive()
        assert lake_names(rig) == []
        assert not location.exists()
    finally:
        rig.close()


def test_a_tierer_of_a_dropped_table_that_stays_silent_is_not_waited_for_for_ever(tmp_path):
    rig = Rig(tmp_path / "c", options={"lake.tiering.takeover": "200ms"})
    try:
        rig.create_database()
        assert rig.ask(rig.create(properties=LAKE)).HasField("tiering_table")
        thread = dropping(rig, keep_lake=True)
        thread.join(60)
        assert not thread.is_alive()
        assert lake_names(rig) == ["t__1"]
    finally:
        rig.close()
