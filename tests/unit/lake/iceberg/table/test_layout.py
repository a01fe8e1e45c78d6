"""The lake table of a Fluss table: the examples of the FIP, property forwarding, taking over, altering, dropping."""

import contextlib
import json
from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform

from fluss_lab.errors import (
    InvalidPropertyError,
    LakeTableExistsError,
    TableNotFoundError,
    UnavailableError,
    UnsupportedError,
)
from fluss_lab.lake.iceberg import IcebergLakeStorage
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache
from fluss_lab.lake.iceberg.table.layout import MATCHES_KEPT, new_layout
from fluss_lab.lake.iceberg.table.table_properties import check_name, lake_properties
from fluss_lab.model import TablePath

ORDERS = {"order_id": "bigint", "item_id": "bigint", "amount": "int", "address": "string"}
SYSTEM = [("__bucket", "int", True), ("__offset", "long", True), ("__timestamp", "timestamptz", True)]
USER = [("order_id", "long", False), ("item_id", "long", False), ("amount", "int", False), ("address", "string", False)]


def columns(lake):
    return [(field.name, str(field.field_type), field.required) for field in lake.schema().fields]


def partitions(lake):
    spec, schema = lake.spec(), lake.schema()
    return [(schema.find_column_name(field.source_id), field.transform) for field in spec.fields]


def sorted_by(lake):
    return [
        (lake.schema().find_column_name(f.source_id), str(f.transform), str(f.direction))
        for f in lake.sort_order().fields
    ]


def test_log_table_without_bucket_key(lake):
    table = lake.load(lake.table(ORDERS, buckets=3))
    assert columns(table) == USER + SYSTEM
    assert partitions(table) == [("__bucket", IdentityTransform())]
    assert sorted_by(table) == [("__offset", "identity", "ASC")]
    assert table.format_version == 2
    assert table.name() == ("db", "t")


def test_partitioned_log_table_without_bucket_key(lake):
    table = lake.load(lake.table(ORDERS | {"event_date": "string"}, partitioned_by=["event_date"], buckets=3))
    assert columns(table) == [*USER, ("event_date", "string", True), *SYSTEM]
    assert partitions(table) == [("event_date", IdentityTransform()), ("__bucket", IdentityTransform())]


def test_log_table_with_one_bucket_key(lake):
    table = lake.load(lake.table(ORDERS, buckets=3, bucket_key=["order_id"]))
    assert columns(table) == [("order_id", "long", True), *USER[1:], *SYSTEM]
    assert partitions(table) == [("order_id", BucketTransform(3))]
    assert [field.name for field in table.spec().fields] == ["order_id_bucket"]


def test_partitions_come_before_the_bucket(lake):
    schema = ORDERS | {"region": "string", "day": "string"}
    table = lake.load(lake.table(schema, partitioned_by=["day", "region"], buckets=5, bucket_key=["item_id"]))
    assert partitions(table) == [
        ("day", IdentityTransform()),
        ("region", IdentityTransform()),
        ("item_id", BucketTransform(5)),
    ]


def test_a_column_may_have_the_name_of_the_bucket_field(lake):
    table = lake.load(lake.table({"k": "int", "k_bucket": "string", "K_bucket_1": "int"}, bucket_key=["k"], buckets=2))
    assert [field.name for field in table.spec().fields] == ["k_bucket_2"]


def test_properties_of_the_fip_example(lake):
    given = {"table.datalake.freshness": "30s", "iceberg.commit.retry.num-retries": "5", "custom.owner": "me"}
    found = lake.load(lake.table(ORDERS, properties=given)).properties
    assert found["fluss.table.datalake.enabled"] == "true"
    assert found["fluss.table.datalake.freshness"] == "30s"
    assert found["commit.retry.num-retries"] == "5"
    assert found["fluss.custom.owner"] == "me"
    assert not [key for key in found if key.startswith(("iceberg.", "table.", "custom."))]
    assert found["fluss.table-id"] == "7"
    assert found["write.metadata.delete-after-commit.enabled"] == "true"
    assert found["write.metadata.previous-versions-max"] == "100"


def test_what_the_user_sets_wins_over_our_defaults(lake):
    given = {
        "iceberg.write.parquet.compression-codec": "snappy",
        "iceberg.write.metadata.metrics.column.__offset": "counts",
    }
    found = lake.load(lake.table(ORDERS, properties=given)).properties
    assert found["write.parquet.compression-codec"] == "snappy"
    assert found["write.metadata.metrics.column.__offset"] == "counts"


def test_wide_tables_keep_bounds_for_keys_and_system_columns_only(lake):
    schema = {f"c{index}": "int" for index in range(40)}
    found = lake.load(lake.table(schema, bucket_key=["c7"])).properties
    assert found["write.metadata.metrics.default"] == "counts"
    modes = {key.rpartition(".")[2]: value for key, value in found.items() if ".metrics.column." in key}
    assert modes == {"c7": "full", "__bucket": "full", "__offset": "full", "__timestamp": "full"}


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("py-io-impl", "os.path", UnsupportedError),
        ("write.py-location-provider.impl", "some.Module", UnsupportedError),
        ("format-version", "3", UnsupportedError),
        ("format-version", "1", UnsupportedError),
        ("write.format.default", "orc", UnsupportedError),
        ("fluss.table-id", "9", UnsupportedError),
        ("write.parquet.compression-codec", "lzo", InvalidPropertyError),
        ("write.parquet.compression-level", "99", InvalidPropertyError),
        ("write.parquet.row-group-limit", "many", InvalidPropertyError),
        ("write.target-file-size-bytes", "0", InvalidPropertyError),
        ("commit.retry.num-retries", "-1", InvalidPropertyError),
        ("write.metadata.metrics.default", "some", InvalidPropertyError),
        ("write.data.path", "file:///tmp/what?", InvalidPropertyError),
        ("write.metadata.compression-codec", "gzip", UnsupportedError),
        ("write.avro.compression-codec", "lzo", UnsupportedError),
        ("write.delete.format.default", "avro", UnsupportedError),
        ("write.parquet.bloom-filter-enabled.column.id", "true", UnsupportedError),
        ("write.parquet.page-row-limit", "few", InvalidPropertyError),
        ("gc.enabled", "maybe", InvalidPropertyError),
        ("write.parquet.compresion-codec", "gzip", InvalidPropertyError),
        ("a", "1", InvalidPropertyError),
    ],
)
def test_properties_that_cannot_be_honoured_are_refused_and_nothing_is_made(lake, name, value, error):
    with pytest.raises(error, match=f"{name.split('.')[-1]}"):
        lake.table(ORDERS, properties={f"iceberg.{name}": value})
    with pytest.raises(TableNotFoundError):
        lake.storage.access.load_table(TablePath("db", "t"))


def test_a_misspelt_property_is_answered_with_what_it_may_have_meant(lake):
    with pytest.raises(InvalidPropertyError, match=r"did you mean 'iceberg\.write\.parquet\.compression-codec'"):
        lake.table(ORDERS, properties={"iceberg.write.parquet.compresion-codec": "gzip"})
    info = lake.table(ORDERS)
    wrong = replace(info, descriptor=info.descriptor.with_properties({"iceberg.gc.enabeld": "true"}))
    with pytest.raises(InvalidPropertyError, match=r"iceberg\.gc\.enabled"):
        lake.catalog.alter_table(wrong)


def test_properties_of_other_engines_and_ones_of_your_own_are_forwarded(lake):
    given = {
        "gc.enabled": "false",
        "read.split.target-size": "1000",
        "custom.owner.team": "x",
        "write.spark.fanout.enabled": "true",
    }
    found = lake.load(
        lake.table(ORDERS, properties={f"iceberg.{key}": value for key, value in given.items()})
    ).properties
    assert {key: found[key] for key in given} == given


def test_every_name_that_pyiceberg_knows_is_decided():
    from pyiceberg.table import TableProperties

    for key, name in vars(TableProperties).items():
        is_name = isinstance(name, str) and "." in name and not key.startswith("_")
        if is_name and name != "write.py-location-provider.impl":
            with contextlib.suppress(UnsupportedError):
                of_column = f"{name}.x" if name.endswith(".column") else name
                check_name(f"iceberg.{of_column}", of_column)


def test_comments(lake):
    import pyarrow as pa

    schema = pa.schema([pa.field("a", pa.int32(), metadata={"comment": "what a is"}), pa.field("b", pa.string())])
    table = lake.load(lake.table(schema, comment="a table of things"))
    assert [field.doc for field in table.schema().fields] == ["what a is", None, None, None, None]
    assert table.properties["comment"] == "a table of things"


def test_field_ids_are_kept_with_the_table(lake):
    table = lake.load(lake.table({"a": "array<row<x int, y map<string, int>>>", "b": "int"}))
    kept = json.loads(table.properties["fluss.field-ids"])
    assert kept["1"] == [1, 6, 7, 8, 9, 10]
    assert [kept[key] for key in ("2", "__bucket", "__offset", "__timestamp")] == [[2], [3], [4], [5]]
    element = table.schema().find_field(6)
    assert str(element.field_type) == "struct<7: x: optional int, 8: y: optional map<string, int>>"


def test_creating_again_is_harmless_and_brings_properties_up_to_date(lake):
    info = lake.table(ORDERS)
    lake.commit(info)
    lake.table(ORDERS, properties={"custom.note": "new"})
    assert lake.load(info).properties["fluss.custom.note"] == "new"
    assert lake.load(info).current_snapshot() is not None


def test_the_rest_of_a_cut_off_creation_is_taken_over(lake):
    lake.table(ORDERS, table_id=3)
    info = lake.table(ORDERS, table_id=4)
    assert lake.load(info).properties["fluss.table-id"] == "4"
    lake.commit(info)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"schema": ORDERS | {"more": "int"}}, "schema"),
        ({"schema": ORDERS, "bucket_key": ["item_id"]}, "schema"),
        ({"schema": ORDERS, "properties": {"table.datalake.freshness": "5s"}}, "freshness"),
        ({"schema": ORDERS, "properties": {"iceberg.write.parquet.compression-codec": "gzip"}}, "gzip"),
    ],
)
def test_another_table_of_that_name_is_not_taken_over(lake, other, difference):
    info = lake.table(other.pop("schema"), table_id=3, **other)
    before = lake.load(info).metadata_location
    with pytest.raises(LakeTableExistsError, match=difference):
        lake.table(ORDERS, table_id=4)
    assert lake.load(info).metadata_location == before


def test_another_partition_spec_is_not_taken_over(lake):
    lake.table(ORDERS | {"k": "int not null"}, buckets=2, bucket_key=["k"], table_id=3)
    with pytest.raises(LakeTableExistsError, match="partition spec"):
        lake.table(ORDERS | {"k": "int not null"}, buckets=3, bucket_key=["k"], table_id=4)


def test_another_sort_order_is_not_taken_over(lake):
    info = lake.info(ORDERS)
    layout = new_layout(info)
    catalog = lake.storage.access.catalog()
    catalog.create_namespace("db")
    properties = lake_properties(info, layout)
    catalog.create_table(
        ("db", "t"), layout.schema, partition_spec=layout.spec, properties=properties | {"fluss.table-id": "1"}
    )
    with pytest.raises(LakeTableExistsError, match="sort order"):
        lake.catalog.create_table(info)


def test_a_table_with_a_snapshot_is_not_taken_over(lake):
    lake.commit(lake.table(ORDERS, table_id=3))
    with pytest.raises(LakeTableExistsError, match="1 snapshot"):
        lake.table(ORDERS, table_id=4)


def test_alter_sets_and_removes_by_the_forwarding_rule(lake):
    first = {
        "iceberg.commit.retry.num-retries": "5",
        "custom.a": "1",
        "iceberg.write.parquet.compression-codec": "gzip",
    }
    info = lake.table(ORDERS, properties=first)
    lake.load(info).transaction().set_properties({"others.own": "stays"}).commit_transaction()
    lake.catalog.alter_table(lake.info(ORDERS, properties={"custom.b": "2"}))
    found = lake.load(info).properties
    assert "commit.retry.num-retries" not in found
    assert "fluss.custom.a" not in found
    assert found["fluss.custom.b"] == "2"
    assert found["write.parquet.compression-codec"] == "zstd"
    assert found["others.own"] == "stays"
    before = lake.load(info).metadata_location
    lake.catalog.alter_table(lake.info(ORDERS, properties={"custom.b": "2"}))
    assert lake.load(info).metadata_location == before, "nothing to change makes no commit"


def test_alter_leaves_another_tables_lake_table_alone(lake):
    lake.table(ORDERS)
    with pytest.raises(UnsupportedError, match="belongs to another"):
        lake.catalog.alter_table(lake.info(ORDERS, table_id=8, properties={"custom.a": "1"}))


def test_a_catalog_that_changes_the_schema_is_noticed(lake):
    catalog = lake.storage.access.catalog()
    real = catalog.create_table

    def create_table(identifier, schema, **arguments):
        return real(identifier, Schema(*schema.fields[:-1]), **arguments)

    catalog.create_table = create_table
    with pytest.raises(UnsupportedError, match="changed the schema"):
        lake.table(ORDERS)


def test_commits_of_the_catalog_survive_a_power_loss(lake):
    with lake.storage.access.catalog().engine.connect() as connection:
        assert connection.exec_driver_sql("pragma synchronous").scalar() == 3, (
            "EXTRA: the journal's removal is synced too"
        )


def test_alter_of_an_absent_table(lake):
    with pytest.raises(TableNotFoundError, match=r"db\.t"):
        lake.catalog.alter_table(lake.info(ORDERS))


def test_drop_removes_the_files(lake):
    info = lake.table(ORDERS)
    lake.commit(info)
    other = lake.table(ORDERS, name="other", table_id=8)
    location = lake.folder / "warehouse" / "db" / "t-7"
    assert location.is_dir()
    lake.catalog.drop_table(info.path, 7)
    assert not location.exists()
    assert lake.load(other)
    lake.catalog.drop_table(info.path, 7)


def test_files_in_places_that_properties_name_are_the_tables_own(lake):
    """Two tables with one place do not share a folder; what is dropped goes, with what no snapshot knows of."""
    outside = lake.folder / "elsewhere"
    places = {f"iceberg.write.{kind}.path": f"file://{outside}/{kind}" for kind in ("data", "metadata")}
    info = lake.table(ORDERS, properties=places)
    other = lake.table(ORDERS, name="other", table_id=8, properties=places)
    for each in (info, other):
        lake.commit(each)
    kept = sorted(path for path in outside.rglob("*") if "other-8" in str(path))
    mine = outside / "metadata" / "db" / "t-7"
    assert sorted(mine.rglob("*.avro"))
    (outside / "data" / "db" / "t-7").mkdir(parents=True)
    (outside / "data" / "db" / "t-7" / "left.parquet").write_text("of a dead round")
    lake.catalog.drop_table(info.path, 7)
    assert [path for path in outside.rglob("*") if path.is_file() and "t-7" in path.parts] == []
    assert sorted(path for path in outside.rglob("*") if "other-8" in str(path)) == kept


def test_drop_spares_what_else_is_in_a_location_that_it_did_not_choose(lake):
    info = lake.info(ORDERS)
    layout = new_layout(info)
    place = lake.folder / "shared"
    (place / "others").mkdir(parents=True)
    (place / "others" / "file").write_text("not ours")
    catalog = lake.storage.access.catalog()
    catalog.create_namespace("db")
    catalog.create_table(
        ("db", "t"), layout.schema, location=f"file://{place}", partition_spec=layout.spec, sort_order=layout.sort_order,
        properties=lake_properties(info, layout),
    )  # fmt: skip
    lake.commit(info)
    assert list(place.rglob("*.avro"))
    lake.catalog.drop_table(info.path, 7)
    assert [path.name for path in place.rglob("*") if path.is_file()] == ["file"]


def test_drop_leaves_another_tables_lake_table_alone(lake):
    info = lake.table(ORDERS)
    lake.catalog.drop_table(info.path, 8)
    assert lake.load(info)


def test_keep_renames_and_a_new_table_of_that_name_shares_nothing_with_it(lake):
    info = lake.table(ORDERS)
    lake.commit(info)
    lake.catalog.drop_table(info.path, 7, keep=True)
    kept = lake.storage.access.load_table(TablePath("db", "t__7"))
    assert kept.current_snapshot() is not None
    again = lake.table(ORDERS, table_id=9)
    assert lake.load(again).location() != kept.location()
    lake.catalog.drop_table(again.path, 9)
    assert kept.refresh().scan().to_arrow().num_rows == 0
    with pytest.raises(NoSuchTableError):
        lake.storage.access.catalog().load_table(("db", "t"))


def test_a_locked_catalog_is_reported_as_retriable(tmp_path):
    import sqlite3

    database = tmp_path / "folder" / "that is new" / "lake.db"
    properties = {"type": "sql", "uri": f"sqlite:///{database}?timeout=0.05", "warehouse": f"file://{tmp_path}/w"}
    storage = IcebergLakeStorage(properties)
    storage.access.catalog()
    with sqlite3.connect(database) as other:
        other.execute("begin exclusive")
        with pytest.raises(UnavailableError, match="locked") as failure:
            storage.access.call("make a namespace", lambda catalog: catalog.create_namespace("db"))
        assert failure.value.retriable
    other.close()
    storage.access.call("make a namespace", lambda catalog: catalog.create_namespace("db"))


def test_properties_that_describe_no_catalog():
    with pytest.raises(InvalidPropertyError, match="no catalog"):
        IcebergLakeStorage({"type": "nonsense", "warehouse": "file:///tmp/x"}).access.catalog()
    with pytest.raises(InvalidPropertyError, match="warehouse"):
        IcebergLakeStorage({"type": "sql", "warehouse": "file:///tmp/a#b"})
    with pytest.raises(InvalidPropertyError, match="absolute path"):
        IcebergLakeStorage({"type": "sql", "warehouse": "lake"})
    with pytest.raises(InvalidPropertyError, match="in one process"):
        IcebergLakeStorage({"type": "in-memory", "warehouse": "file:///tmp/a"})


def test_storage_can_be_made_again_from_its_properties(lake):
    info = lake.table(ORDERS)
    again = IcebergLakeStorage(lake.storage.properties)
    assert again.access.load_table(info.path).metadata_location == lake.load(info).metadata_location


def test_columns_are_derived_once_for_each_schema_of_the_lake_table(lake):
    info, cache = lake.table(ORDERS), EntryCache()
    first = cache.columns(info, lake.load(info))
    lake.append(info, pa.RecordBatch.from_pylist([{"order_id": 1}], info.schema.arrow_schema))
    assert cache.columns(info, lake.load(info)) is first  # another snapshot, the same schema
    with lake.load(info).update_schema() as update:
        update.delete_column("amount")
    with pytest.raises(UnsupportedError, match=r"'amount'.* is gone"):
        cache.columns(info, lake.load(info))
    assert cache.columns(lake.table(ORDERS, name="other"), lake.load(lake.info(ORDERS, name="other"))) is not first


def test_what_a_file_has_of_the_columns_does_not_depend_on_what_is_the_files_own(lake):
    info = lake.table({"id": "bigint", "n": "int"})
    columns = EntryCache().columns(info, lake.load(info))
    stored = pa.schema([columns.stored[name] for name in columns.schema.names])
    found = columns.match(stored.with_metadata({"seal": "1"}))
    assert columns.match(stored.with_metadata({"seal": "2"})) is found
    assert found.plain == found.direct == set(columns.schema.names)
    assert columns.match(stored.remove(1)).absent == {"n"}
    bare = pa.schema([field.remove_metadata() for field in stored])
    assert columns.match(bare).plain == set()  # other field metadata is another schema
    for number in range(MATCHES_KEPT):
        columns.match(stored.append(pa.field(f"c{number}", pa.int32())))
    assert columns.match(stored) is not found
    assert columns.match(stored) == found
