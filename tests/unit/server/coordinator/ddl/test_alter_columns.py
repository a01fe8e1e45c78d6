"""ALTER adds columns: all of it or nothing, under new schema ids, told to tablets and lake, kept through restarts."""

import json

import pytest

from fluss_lab import errors, failpoints
from fluss_lab.model import TablePath
from fluss_lab.rpc import fluss_api_pb2 as pb
from tests.unit.server.coordinator.ddl.test_lake_table_ddl import ledger
from tests.unit.server.coordinator.rig import Rig, added, path

pytestmark = pytest.mark.slow

LAKE = {"table.datalake.enabled": True}


def lake_columns(rig: Rig) -> list[str]:
    """Return the columns of the lake table as its own catalog tells them."""
    from pyiceberg.catalog.sql import SqlCatalog

    from fluss_lab.server.server_options import default_lake_options

    options = default_lake_options(rig.cluster.folder)
    catalog = SqlCatalog(
        "fluss_lab", uri=options["datalake.iceberg.uri"], warehouse=options["datalake.iceberg.warehouse"]
    )
    try:
        return [field.name for field in catalog.load_table("d.t").schema().fields]
    finally:
        catalog.close()


SYSTEM = ["__bucket", "__offset", "__timestamp"]


def tablet_schemas(rig: Rig, table_id: int) -> tuple[int, list[int]]:
    table = rig.cluster.tablet()._store.table(table_id)
    return table.schema_id, sorted(table.schemas)


def test_columns_come_under_a_new_schema_id_and_the_old_ones_stay(rig):
    table_id = rig.create(buckets=2)
    rig.alter(add={"note": "string", "tags": "array<int>"})
    rig.alter(set={"custom.x": "1"})
    rig.alter(add={"more": "decimal(10, 2)"})
    assert rig.schema() == (3, ["a", "p", "note", "tags", "more"])
    assert rig.schema(schema_id=1) == (1, ["a", "p"])
    assert rig.schema(schema_id=2) == (2, ["a", "p", "note", "tags"])
    with pytest.raises(errors.InvalidSchemaError, match="no schema 4"):
        rig.schema(schema_id=4)
    assert tablet_schemas(rig, table_id) == (3, [1, 2, 3])
    rig.cluster.restart()
    assert rig.info().schema_id == 3
    assert rig.schema(schema_id=2)[1] == ["a", "p", "note", "tags"]
    assert tablet_schemas(rig, table_id) == (3, [1, 2, 3])


def test_properties_and_columns_change_together_or_not_at_all(rig):
    rig.create()
    before = rig.info()
    for bad in ({"a": "int"}, {"note": "string", "NOTE": "int"}, {"x": "int not null"}, {"__offset": "bigint"}):
        with pytest.raises(errors.InvalidError):
            rig.alter(set={"custom.x": "1"}, add=bad)
    with pytest.raises(errors.InvalidPropertyError):
        rig.alter(set={"tabel.x": "1"}, add={"note": "string"})
    assert rig.info() == before
    rig.alter(set={"custom.x": "1"}, add={"note": "string"})
    assert json.loads(rig.info().table_json)["properties"] == {"custom.x": "1"}
    assert rig.info().schema_id == 2


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (added("x", "int", data_type_json=b"{"), errors.InvalidSchemaError),
        (added("x", "int", data_type_json=b"[" * 100_000), errors.InvalidSchemaError),
        (added("x", "int", data_type_json=b'{"type": "WHAT"}'), errors.InvalidSchemaError),
        (added("x", "int", data_type_json=b"\xff"), errors.InvalidSchemaError),
        (added("x", "int", column_position_type=3), errors.InvalidRequestError),
        (added("x", "int", comment="c" * 5000), errors.InvalidSchemaError),
        (added("x" * 200, "int"), errors.InvalidNameError),
    ],
)
def test_requests_that_cannot_be(rig, column, kind):
    rig.create()
    with pytest.raises(kind):
        rig.coordinator.alter_table(
            pb.AlterTableRequest(table_path=path("t"), ignore_if_not_exists=False, add_columns=[column])
        )
    assert rig.info().schema_id == 1


def test_a_primary_key_table_is_altered_too(rig):
    rig.create(primary_key=["a"], properties={"table.merge-engine": "first_row"})
    rig.alter(set={"table.log.ttl": "1d"}, add={"note": "string"})
    assert rig.schema()[1] == ["a", "p", "note"]
    for key, value in {"table.merge-engine": "default", "table.delete.behavior": "ignore"}.items():
        with pytest.raises(errors.UnsupportedError, match="may not change"):
            rig.alter(set={key: value})


def test_a_table_runs_out_of_schema_ids(rig, monkeypatch):
    from fluss_lab.server.coordinator.ddl import table_ddl

    monkeypatch.setattr(table_ddl, "SCHEMA_ID_MAX", 2)
    rig.create()
    rig.alter(add={"x": "int"})
    with pytest.raises(errors.InvalidSchemaError, match="has had 2 schemas"):
        rig.alter(add={"y": "int"})


# -- the lake --------------------------------------------------------------------------------------------------------------


def test_the_lake_table_gets_the_columns_before_its_own(lake_rig):
    lake_rig.create(properties=LAKE)
    lake_rig.alter(set={"iceberg.custom.a": "b"}, add={"note": "string", "inner": "row<x int, y array<string>>"})
    assert lake_columns(lake_rig) == ["a", "p", "note", "inner", *SYSTEM]
    assert [row.state for row in ledger(lake_rig).tables()] == ["live"]


def test_what_the_lake_refuses_is_not_added(lake_rig):
    lake_rig.create(properties=LAKE)
    with pytest.raises(errors.UnsupportedError, match="microseconds"):
        lake_rig.alter(add={"note": "string", "fine": "timestamp(9)"})
    assert lake_columns(lake_rig) == ["a", "p", *SYSTEM]
    assert lake_rig.info().schema_id == 1
    assert [row.state for row in ledger(lake_rig).tables()] == ["live"]


def test_columns_are_taken_back_from_the_lake_when_the_metadata_refuse(lake_rig):
    lake_rig.create(properties=LAKE)
    failpoints.arm("coordinator.ddl.after_lake", "enospc@1")
    with pytest.raises(errors.StorageError):
        lake_rig.alter(add={"note": "string"})
    assert lake_columns(lake_rig) == ["a", "p", *SYSTEM]
    assert [row.state for row in ledger(lake_rig).tables()] == ["live"]
    lake_rig.alter(add={"note": "int"})
    assert lake_columns(lake_rig) == ["a", "p", "note", *SYSTEM]


def test_columns_that_a_crash_left_in_the_lake_are_cleared(lake_rig):
    """As after kill -9 between lake and metadata: the lake has a column that the table never got."""
    lake_rig.create(properties=LAKE)
    lake = lake_rig.cluster.node._coordinator._lifecycle._lake
    lake._take_back = lambda _old: None
    failpoints.arm("coordinator.ddl.after_lake", "error@1")
    with pytest.raises(errors.InternalError):
        lake_rig.alter(add={"note": "string"})
    assert lake_columns(lake_rig) == ["a", "p", "note", *SYSTEM]
    assert [row.state for row in ledger(lake_rig).tables()] == ["altering"]
    lake_rig.cluster.restart()
    # The same name as another type: the left one must not be taken for it.
    lake_rig.alter(add={"other": "int", "note": "int"})
    assert lake_columns(lake_rig) == ["a", "p", "other", "note", *SYSTEM]
    assert [row.state for row in ledger(lake_rig).tables()] == ["live"]


def test_what_a_crash_left_is_cleared_without_another_change(tmp_path):
    from fluss_lab.testing import wait_until

    rig = Rig(tmp_path / "lab", options={"auto-partition.check.interval": "20ms"})
    try:
        rig.create_database()
        rig.create(properties=LAKE)
        lake = rig.cluster.node._coordinator._lifecycle._lake
        take_back, lake._take_back = lake._take_back, lambda _old: None
        failpoints.arm("coordinator.ddl.after_lake", "error@1")
        with pytest.raises(errors.InternalError):
            rig.alter(add={"note": "string"})
        lake._take_back = take_back
        wait_until(lambda: [row.state for row in ledger(rig).tables()] == ["live"])
        assert lake_columns(rig) == ["a", "p", *SYSTEM]
    finally:
        rig.close()


def test_columns_reach_the_lake_of_a_table_that_is_not_tiered_at_present(lake_rig):
    lake_rig.create(properties=LAKE)
    lake_rig.alter(set={"table.datalake.enabled": "false"})
    with pytest.raises(errors.UnsupportedError, match="microseconds"):
        lake_rig.alter(add={"fine": "timestamp(9)"})
    lake_rig.alter(add={"note": "string"})
    assert lake_columns(lake_rig) == ["a", "p", "note", *SYSTEM]
    lake_rig.alter(set={"table.datalake.enabled": "true"}, add={"more": "string"})
    assert lake_columns(lake_rig) == ["a", "p", "note", "more", *SYSTEM]


def test_columns_and_lake_come_together(lake_rig):
    lake_rig.create()
    lake_rig.alter(add={"note": "string"})
    lake_rig.alter(set={"table.datalake.enabled": "true"}, add={"more": "string"})
    assert lake_columns(lake_rig) == ["a", "p", "note", "more", *SYSTEM]


def test_a_server_is_notified_of_a_table_once_however_many_buckets_it_has(rig):
    """Its definition and schemas may be a megabyte; 16,000 times that no request could hold."""
    rig.create(partitioned_by=["p"], buckets=4, comment="c" * 4000)
    for number in range(20):
        rig.create_partition(p=f"v{number}")
    rig.alter(add={"note": "string"})
    rig.cluster.restart()
    tablets = rig.cluster.node._coordinator._tablets
    info = rig.cluster.node._coordinator._catalog.table(TablePath("d", "t"))
    reported = tablets._buckets(info, 0, tablets._groups(info.table_id, None))
    assert len(reported) == 80
    assert [bool(each.table_json) for each in reported] == [True] + [False] * 79
    assert [len(each.schemas) for each in reported] == [2] + [0] * 79
    assert sum(each.ByteSize() for each in reported) < 20_000
    assert len(rig.buckets(rig.info().table_id)) == 80
