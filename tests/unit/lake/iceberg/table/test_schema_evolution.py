"""A lake table brought to its altered Fluss table: fresh ids, in their place, without harm to what others did there."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from fluss_lab.errors import TableNotFoundError, UnsupportedError
from fluss_lab.lake.iceberg.table.layout import FIELD_IDS_PROPERTY, checked_layout
from fluss_lab.model import DataType, PartitionInfo
from fluss_lab.model.schema import with_columns

SYSTEM = ["__bucket", "__offset", "__timestamp"]
SCHEMA = {"id": "bigint", "name": "string"}


def altered(info, **columns):
    schema = with_columns(info.schema, [(name, DataType.parse(kind), None) for name, kind in columns.items()])
    descriptor = replace(info.descriptor, schema=schema)
    return replace(info, schema_id=info.schema_id + 1, descriptor=descriptor)


def field_ids(table) -> dict[str, list[int]]:
    return json.loads(table.properties[FIELD_IDS_PROPERTY])


def rows(*ids, **more):
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "name": [f"n{n}" for n in ids], **more})


def test_new_columns_get_ids_that_no_column_had(lake):
    info = lake.table(SCHEMA)
    before = lake.load(info)
    wider = altered(info, note="string", place="row<x int, tags array<string>>")
    lake.catalog.alter_table(wider)
    after = lake.load(info)
    assert after.schema().column_names[:2] == ["id", "name"]
    assert [field.name for field in after.schema().fields] == ["id", "name", "note", "place", *SYSTEM]
    ids = field_ids(after)
    assert ids["3"][0] == before.metadata.last_column_id + 1
    assert len({number for numbers in ids.values() for number in numbers}) == sum(map(len, ids.values()))
    assert ids | field_ids(before) == ids
    assert [field.name for field in after.schemas()[0].fields] == ["id", "name", *SYSTEM]
    assert after.spec() == before.spec()
    assert after.metadata.current_snapshot_id is None
    checked_layout(wider, after)
    checked_layout(info, after)
    lake.catalog.alter_table(wider)
    assert lake.load(info).metadata_location == after.metadata_location


def test_properties_and_columns_are_one_commit(lake):
    info = lake.table(SCHEMA, properties={"iceberg.custom.a": "1"})
    before = len(lake.load(info).metadata.metadata_log)
    wider = altered(info, note="string")
    wider = replace(
        wider, descriptor=wider.descriptor.with_properties({**info.descriptor.properties, "iceberg.custom.a": "2"})
    )
    lake.catalog.alter_table(wider)
    after = lake.load(info)
    assert after.properties["custom.a"] == "2"
    assert len(after.metadata.metadata_log) == before + 1


def test_old_files_read_as_nulls_by_everybody(lake):
    info = lake.table(SCHEMA)
    lake.append(info, rows(1, 2))
    wider = altered(info, note="string", score="int")
    lake.catalog.alter_table(wider)
    snapshot = lake.append(wider, rows(3, note=["x"], score=pa.array([7], pa.int32())), 2)
    # One that was planned before: its file lacks the columns too.
    snapshot = lake.append(info, rows(4), 3)
    found = lake.rows(wider, snapshot).to_pylist()
    expected = [
        {"id": number, "name": f"n{number}", "note": "x" if number == 3 else None, "score": 7 if number == 3 else None}
        for number in (1, 2, 3, 4)
    ]
    assert found == expected
    assert lake.rows(info, snapshot).to_pylist() == [{"id": n, "name": f"n{n}"} for n in (1, 2, 3, 4)]
    scanned = sorted(lake.load(info).scan().to_arrow().select(list(expected[0])).to_pylist(), key=lambda row: row["id"])
    assert scanned == expected


def test_columns_taken_back_leave_nothing_and_are_not_taken_for_others(lake):
    info = lake.table(SCHEMA)
    lake.append(info, rows(1))
    lake.catalog.alter_table(altered(info, note="string"))
    first = field_ids(lake.load(info))["3"]
    lake.catalog.alter_table(info)
    back = lake.load(info)
    assert [field.name for field in back.schema().fields] == ["id", "name", *SYSTEM]
    assert back.metadata.current_schema_id == 0
    assert "3" not in field_ids(back)
    other = altered(info, note="int")
    lake.catalog.alter_table(other)
    again = lake.load(info)
    assert field_ids(again)["3"] != first
    assert str(again.schema().find_field("note").field_type) == "int"
    snapshot = lake.append(other, rows(2, note=pa.array([5], pa.int32())), 1)
    assert lake.rows(other, snapshot)["note"].to_pylist() == [None, 5]


def test_what_others_did_in_the_lake_stays(lake):
    info = lake.table(SCHEMA)
    lake.append(info, rows(1))
    with lake.load(info).update_schema() as update:
        update.rename_column("name", "label")
        update.add_column("theirs", pa_type())
    wider = altered(info, note="string")
    lake.catalog.alter_table(wider)
    assert [field.name for field in lake.load(info).schema().fields] == ["id", "label", "note", *SYSTEM, "theirs"]
    snapshot = lake.append(wider, rows(2, note=["x"]), 1)
    assert lake.rows(wider, snapshot).to_pylist() == [
        {"id": 1, "name": "n1", "note": None}, {"id": 2, "name": "n2", "note": "x"},
    ]  # fmt: skip


def pa_type():
    from pyiceberg.types import StringType

    return StringType()


def test_names_that_are_taken_in_the_lake(lake):
    info = lake.table(SCHEMA, buckets=2, bucket_key=["id"])
    with lake.load(info).update_schema() as update:
        update.add_column("Theirs", pa_type())
    before = lake.load(info).metadata_location
    with pytest.raises(UnsupportedError, match="another engine added a column of that name"):
        lake.catalog.alter_table(altered(info, theirs="string"))
    with pytest.raises(UnsupportedError, match="name of a partition field"):
        lake.catalog.alter_table(altered(info, id_bucket="int"))
    assert lake.load(info).metadata_location == before


def test_a_lake_table_that_is_gone_or_another_ones(lake):
    info = lake.table(SCHEMA)
    with pytest.raises(UnsupportedError, match="belongs to another"):
        lake.catalog.alter_table(altered(replace(info, table_id=8), note="int"))
    lake.catalog.drop_table(info.path, info.table_id)
    with pytest.raises(TableNotFoundError):
        lake.catalog.alter_table(altered(info, note="int"))
    lake.catalog.drop_partition(info, PartitionInfo(1, "x"))


def test_many_columns_make_the_bounds_few(lake):
    """Beyond 32 columns every entry of every manifest would hold all of their bounds."""
    info = lake.table(SCHEMA)
    lake.catalog.alter_table(altered(info, **{f"c{n}": "int" for n in range(40)}))
    assert lake.load(info).properties["write.metadata.metrics.default"] == "counts"


@pytest.mark.parametrize("values", [("a",), ("a", "b c/d%=é")])
def test_a_partitions_rows_are_deleted_and_no_others(lake, values):
    columns = [f"p{n}" for n in range(len(values))]
    info = lake.table({"id": "bigint", **dict.fromkeys(columns, "string")}, partitioned_by=columns)
    name = "$".join(values)
    others = ["$".join([*values[:-1], "zz"]), "$".join([*values[:-1], values[-1] + "a"])]
    for number, partition in enumerate([name, *others, name]):
        batch = pa.record_batch(
            {"id": pa.array([number], pa.int64())}
            | dict(zip(columns, ([v] for v in partition.split("$")), strict=True))
        )
        lake.append(info, batch, number, partition=partition)
    before = lake.load(info)
    lake.catalog.drop_partition(info, PartitionInfo(1, name))
    after = lake.load(info)
    assert sorted(after.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    assert after.current_snapshot().parent_snapshot_id == before.current_snapshot().snapshot_id
    # As long as the snapshot before it is there, so are its files.
    assert sorted(after.scan(snapshot_id=before.current_snapshot().snapshot_id).to_arrow()["id"].to_pylist()) == [
        0,
        1,
        2,
        3,
    ]
    snapshot = lake.append(info, batch, 4, partition=name)
    assert sorted(lake.rows(info, snapshot)["id"].to_pylist()) == [1, 2, 3]


def test_a_commit_planned_before_a_partition_was_deleted_fails(lake):
    from fluss_lab.errors import CommitConflictError
    from tests.unit.lake.conftest import records, summary

    info = lake.table({"id": "bigint", "p": "string"}, partitioned_by=["p"])
    batch = pa.record_batch({"id": pa.array([1], pa.int64()), "p": ["x"]})
    for partition_id in (1, 2):
        committer = lake.committer(info)
        result = lake.write(info, records(batch), partition="x")
        planned = committer.current_snapshot_id()
        lake.catalog.drop_partition(info, PartitionInfo(partition_id, "x"))
        with pytest.raises(CommitConflictError):
            committer.commit(committer.to_committable([result]), planned, summary())
    assert len(lake.load(info).scan().to_arrow()) == 0
