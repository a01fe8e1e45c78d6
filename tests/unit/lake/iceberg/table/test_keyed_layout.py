"""The lake table of a primary-key table: identifier fields, merge-on-read, keys of every type, and who may change what."""

import pytest
from pyiceberg.transforms import BucketTransform, IdentityTransform

from fluss_lab.errors import LakeTableExistsError, TableNotFoundError, UnsupportedError
from fluss_lab.lake.iceberg.table.layout import checked_layout
from fluss_lab.model import TablePath

#: The example of the FIP.
ORDERS = {"shop_id": "bigint", "user_id": "bigint", "num_orders": "int", "total_amount": "int"}
MODES = ["write.delete.mode", "write.update.mode", "write.merge.mode"]


def columns(lake):
    return [(field.name, str(field.field_type), field.required) for field in lake.schema().fields]


def partitions(lake):
    spec, schema = lake.spec(), lake.schema()
    return [(schema.find_column_name(field.source_id), field.transform) for field in spec.fields]


def test_the_example_of_the_fip(lake):
    table = lake.load(lake.table(ORDERS, primary_key=["user_id"], buckets=4))
    assert columns(table) == [
        ("shop_id", "long", False), ("user_id", "long", True), ("num_orders", "int", False),
        ("total_amount", "int", False), ("__bucket", "int", True), ("__offset", "long", True),
        ("__timestamp", "timestamptz", True),
    ]  # fmt: skip
    assert table.schema().identifier_field_names() == {"user_id"}
    assert partitions(table) == [("user_id", BucketTransform(4))]
    assert [(f.source_id, str(f.direction)) for f in table.sort_order().fields] == [
        (table.schema().find_field("__offset").field_id, "ASC")
    ]
    assert table.format_version == 2


def test_a_composite_key_with_partitions(lake):
    schema = {"day": "string", "origin": "string", "id": "bigint", "v": "double"}
    info = lake.table(
        schema, primary_key=["origin", "id", "day"], partitioned_by=["day"], bucket_key=["origin"], buckets=3
    )
    table = lake.load(info)
    assert table.schema().identifier_field_names() == {"origin", "id", "day"}
    assert [name for name, _, required in columns(table) if required][:3] == ["day", "origin", "id"]
    assert partitions(table) == [("day", IdentityTransform()), ("origin", BucketTransform(3))]
    assert checked_layout(info, table).schema.identifier_field_ids == [2, 3, 1]


@pytest.mark.parametrize(
    "dtype",
    ["tinyint", "smallint", "int", "bigint", "decimal(10,2)", "decimal(38,9)", "date", "time(3)", "timestamp(6)",
     "timestamp_ltz(3)", "string", "char(4)", "bytes", "binary(8)"],
)  # fmt: skip
def test_every_key_type_that_iceberg_can_bucket(lake, dtype):
    info = lake.table({"k": dtype, "v": "string"}, primary_key=["k"], buckets=2)
    table = lake.load(info)
    assert table.schema().identifier_field_names() == {"k"}
    assert partitions(table) == [("k", BucketTransform(2))]
    assert checked_layout(info, table).schema.identifier_field_ids == [1]


def test_boolean_may_be_part_of_a_key_that_is_bucketed_by_another(lake):
    info = lake.table({"k": "int", "b": "boolean"}, primary_key=["k", "b"], bucket_key=["k"])
    assert lake.load(info).schema().identifier_field_names() == {"k", "b"}


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_floating_point_keys_are_refused_and_nothing_is_made(lake, dtype):
    with pytest.raises(UnsupportedError, match=r"'x'.*DECIMAL"):
        lake.table({"k": "int", "x": dtype}, primary_key=["k", "x"], bucket_key=["k"])
    with pytest.raises(TableNotFoundError):
        lake.storage.access.load_table(TablePath("db", "t"))


def test_merge_on_read_and_the_delete_mode(lake):
    found = lake.load(
        lake.table(ORDERS, primary_key=["user_id"], properties={"table.datalake.delete-mode": "equality"})
    ).properties
    assert [found[mode] for mode in MODES] == ["merge-on-read"] * 3
    assert found["fluss.table.datalake.delete-mode"] == "equality"
    assert found["commit.manifest-merge.enabled"] == "true"
    assert found["commit.manifest.min-count-to-merge"] == "20"
    assert found["write.metadata.delete-after-commit.enabled"] == "true"
    assert found["write.metadata.previous-versions-max"] == "100"
    assert found["write.metadata.metrics.column.user_id"] == "full"


def test_log_tables_get_no_modes(lake):
    found = lake.load(lake.table(ORDERS)).properties
    assert not set(MODES) & set(found)


def test_write_properties_of_the_user_are_respected(lake):
    given = {
        "iceberg.commit.manifest.min-count-to-merge": "5", "iceberg.write.target-file-size-bytes": "1048576",
        "iceberg.write.parquet.compression-codec": "snappy", "iceberg.write.metadata.metrics.column.user_id": "counts",
        "iceberg.write.update.mode": "merge-on-read",
    }  # fmt: skip
    found = lake.load(lake.table(ORDERS, primary_key=["user_id"], properties=given)).properties
    assert {f"iceberg.{key}": found[key] for key in (name.removeprefix("iceberg.") for name in given)} == given


@pytest.mark.parametrize("mode", MODES)
def test_the_modes_cannot_be_changed_through_fluss(lake, mode):
    other = {f"iceberg.{mode}": "copy-on-write"}
    with pytest.raises(UnsupportedError, match=f"{mode}.*merge-on-read"):
        lake.table(ORDERS, primary_key=["user_id"], properties=other)
    lake.table(ORDERS, primary_key=["user_id"])
    with pytest.raises(UnsupportedError, match=mode):
        lake.catalog.alter_table(lake.info(ORDERS, primary_key=["user_id"], properties=other))


def test_modes_changed_by_others_come_back_with_the_next_alteration(lake):
    info = lake.table(ORDERS, primary_key=["user_id"])
    with lake.load(info).transaction() as change:
        change.set_properties({"write.delete.mode": "copy-on-write"})
    lake.catalog.alter_table(info)
    assert lake.load(info).properties["write.delete.mode"] == "merge-on-read"


def test_identifier_fields_that_somebody_changed_are_refused(lake):
    info = lake.table(ORDERS, primary_key=["user_id"])
    with lake.load(info).update_schema(allow_incompatible_changes=True) as update:
        update.set_identifier_fields()
    with pytest.raises(UnsupportedError, match=r"identifier fields \['user_id'\].*found \[\]"):
        checked_layout(info, lake.load(info))


def test_identifier_fields_of_a_log_table_harm_nobody(lake):
    info = lake.table(ORDERS, bucket_key=["user_id"])
    with lake.load(info).update_schema() as update:
        update.set_identifier_fields("user_id")
    checked_layout(info, lake.load(info))


def test_the_rest_of_a_cut_off_creation_is_taken_over_only_with_the_same_key(lake):
    lake.table(ORDERS, primary_key=["user_id"])
    lake.table(ORDERS, primary_key=["user_id"], table_id=8)
    with pytest.raises(LakeTableExistsError, match="its schema is"):
        lake.table(ORDERS, primary_key=["user_id", "shop_id"], bucket_key=["user_id"], table_id=9)


def test_columns_are_added_and_the_key_stays(lake):
    info = lake.table(ORDERS, primary_key=["user_id"])
    wider = lake.info(ORDERS | {"note": "string"}, primary_key=["user_id"])
    lake.catalog.alter_table(wider)
    table = lake.load(wider)
    assert [name for name, _, _ in columns(table)] == [*ORDERS, "note", "__bucket", "__offset", "__timestamp"]
    assert table.schema().identifier_field_names() == {"user_id"}
    checked_layout(wider, table)
    lake.catalog.alter_table(info)  # taken back
    assert [name for name, _, _ in columns(lake.load(info))] == [*ORDERS, "__bucket", "__offset", "__timestamp"]
