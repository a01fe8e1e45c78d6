"""What others do to a lake table, and what recovery reads out of its history."""

import json
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSchemaUpdate, AddSnapshotUpdate, SetCurrentSchemaUpdate, SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, StringType
from sqlalchemy import text

from fluss_lab.errors import (
    CommitConflictError,
    CorruptDataError,
    ForeignCommitError,
    LakeSnapshotNotFoundError,
    UnsupportedError,
)
from fluss_lab.model import LakeOffset
from fluss_lab.testing.readers import duckdb_rows
from tests.unit.lake.conftest import records, summary
from tests.unit.lake.iceberg.commit.test_round_commit import COLUMNS, rows


@pytest.fixture
def table(lake):
    return lake.table(COLUMNS, buckets=2)


def foreign(lake, info, operation=Operation.APPEND):
    """Somebody else's snapshot, with the same files as before."""
    loaded = lake.load(info)
    parent = loaded.current_snapshot()
    snapshot = parent.model_copy(
        update={
            "snapshot_id": loaded.metadata.new_snapshot_id(),
            "parent_snapshot_id": parent.snapshot_id,
            "sequence_number": loaded.metadata.last_sequence_number + 1,
            "summary": Summary(operation=operation),
        }
    )
    moved = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot.snapshot_id)
    loaded.catalog.commit_table(loaded, (), (AddSnapshotUpdate(snapshot=snapshot), moved))
    return snapshot.snapshot_id


def roll_back(lake, info, snapshot_id):
    loaded = lake.load(info)
    loaded.catalog.commit_table(
        loaded, (), (SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot_id),)
    )


def test_a_foreign_commit_is_named(lake, table):
    known = lake.append(table, rows(table, 5))
    strange = foreign(lake, table)
    committer = lake.committer(table)
    with pytest.raises(
        ForeignCommitError, match=rf"{strange} \(operation append\).*roll the table back to snapshot {known}"
    ):
        committer.missing_lake_snapshot(known)
    with pytest.raises(ForeignCommitError):
        committer.commit(committer.to_committable([]), known, summary())
    with pytest.raises(ForeignCommitError):
        committer.missing_lake_snapshot(None)
    assert committer.missing_lake_snapshot(strange) is None


@pytest.mark.parametrize("operation", [Operation.OVERWRITE, Operation.DELETE])
def test_foreign_changes_of_rows_are_errors(lake, table, operation):
    known = lake.append(table, rows(table, 5))
    foreign(lake, table, operation)
    with pytest.raises(ForeignCommitError, match=operation.value):
        lake.committer(table).missing_lake_snapshot(known)


def test_a_real_append_by_pyiceberg_is_foreign(lake, table):
    known = lake.append(table, rows(table, 5))
    lake.load(table).append(lake.load(table).scan().to_arrow())
    with pytest.raises(ForeignCommitError, match="append"):
        lake.committer(table).missing_lake_snapshot(known)


def test_a_foreign_compaction_is_passed_over(lake, table):
    known = lake.append(table, rows(table, 5))
    replaced = foreign(lake, table, Operation.REPLACE)
    committer = lake.committer(table)
    assert committer.missing_lake_snapshot(known) is None
    mine = committer.commit(committer.to_committable([]), known, summary())
    missing = committer.missing_lake_snapshot(known)
    assert missing is not None
    assert missing.snapshot_id == mine
    assert lake.load(table).metadata.snapshot_by_id(mine).parent_snapshot_id == replaced


def test_missing_snapshots(lake):
    table = lake.table(COLUMNS | {"p": "string"}, partitioned_by=["p"])
    committer = lake.committer(table)
    assert committer.missing_lake_snapshot(None) is None
    first = committer.commit(committer.to_committable([]), None, summary("a", [("x", 0, 10, 100), ("x", 1, 4, 90)]))
    second = committer.commit(committer.to_committable([]), first, summary("b", [("x", 0, 20, 200), ("y", 0, 1, 5)]))
    missing = committer.missing_lake_snapshot(first)
    assert missing is not None
    assert (missing.snapshot_id, missing.properties["fluss-commit-id"]) == (second, "b")
    assert missing.offsets == {("x", 0): LakeOffset(20, 200, "x"), ("y", 0): LakeOffset(1, 5, "y")}
    assert committer.missing_lake_snapshot(second) is None
    everything = committer.missing_lake_snapshot(None)
    assert everything is not None
    assert everything.offsets == missing.offsets | {("x", 1): LakeOffset(4, 90, "x")}


def test_a_known_snapshot_that_is_gone(lake, table):
    first = lake.append(table, rows(table, 5))
    second = lake.append(table, rows(table, 5, 5), 5)
    committer = lake.committer(table)
    with pytest.raises(LakeSnapshotNotFoundError, match=r"12345.*adopt"):
        committer.missing_lake_snapshot(12345)
    roll_back(lake, table, first)
    assert committer.current_snapshot_id() == first
    with pytest.raises(LakeSnapshotNotFoundError, match="rolled back"):
        committer.missing_lake_snapshot(second)
    with pytest.raises(CommitConflictError, match="not in the table's history"):
        committer.commit(committer.to_committable([]), second, summary())


def test_expired_history_behind_the_known_snapshot_does_not_matter(lake, table):
    snapshots = [lake.append(table, rows(table, 1, i), i) for i in range(4)]
    lake.load(table).maintenance.expire_snapshots().by_ids(snapshots[:2]).commit()
    committer = lake.committer(table)
    assert committer.missing_lake_snapshot(snapshots[3]) is None
    assert committer.missing_lake_snapshot(snapshots[2]).snapshot_id == snapshots[3]
    with pytest.raises(LakeSnapshotNotFoundError, match="expired"):
        committer.missing_lake_snapshot(snapshots[0])


def test_a_summary_that_cannot_be_read(lake, table):
    committer = lake.committer(table)
    committer.commit(committer.to_committable([]), None, summary() | {"fluss-bucket-offset": '[{"bucket0": 3}]'})
    with pytest.raises(CorruptDataError, match="bucket0"):
        committer.missing_lake_snapshot(None)


def test_what_others_may_change_without_harm(lake, table):
    with lake.load(table).update_schema() as update:
        update.rename_column("v", "renamed")
        update.add_column("more", lake.load(table).schema().find_field("id").field_type)
    snapshot = lake.append(table, rows(table, 3))
    assert lake.rows(table, snapshot).column("v").to_pylist() == ["v0", "v1", "v2"]
    assert duckdb_rows(lake.load(table).metadata_location).column("renamed").to_pylist() == ["v0", "v1", "v2"]


def set_schema(loaded, change):
    """What no public call of pyiceberg does: a schema with incompatible changes."""
    fields = [change(field) for field in loaded.schema().fields]
    schema = Schema(*fields, schema_id=loaded.schema().schema_id + 1)
    loaded.catalog.commit_table(loaded, (), (AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate(schema_id=-1)))


def upgraded(loaded):
    """Format version 3, which pyiceberg reads but does not make."""
    path = Path(loaded.metadata_location.removeprefix("file://"))
    newer = path.with_name(f"00099-{uuid.uuid4()}.metadata.json")
    newer.write_text(json.dumps(json.loads(path.read_text()) | {"format-version": 3, "next-row-id": 0}))
    with loaded.catalog.engine.begin() as connection:
        connection.execute(text("update iceberg_tables set metadata_location = :new"), {"new": f"file://{newer}"})


def incompatible(loaded):
    return loaded.update_schema(allow_incompatible_changes=True)


FOREIGN_CHANGES = {
    "is gone": lambda loaded: loaded.update_schema().delete_column("v").commit(),
    "partition spec": lambda loaded: loaded.update_spec().add_field("v", IdentityTransform(), "v_part").commit(),
    "belongs to another": lambda loaded: (
        loaded.transaction().set_properties({"fluss.table-id": "9"}).commit_transaction()
    ),
    "field ids": lambda loaded: loaded.transaction().remove_properties("fluss.field-ids").commit_transaction(),
    "added the required column": lambda loaded: (
        incompatible(loaded).add_column("w", StringType(), required=True).commit()
    ),
    "made required": lambda loaded: incompatible(loaded).update_column("v", required=True).commit(),
    "expected type string, found int": lambda loaded: set_schema(
        loaded, lambda field: field.model_copy(update={"field_type": IntegerType()}) if field.name == "v" else field
    ),
    "expected the fields": lambda loaded: (
        incompatible(loaded).add_column(("r", "more"), StringType(), required=True).commit()
    ),
    "format version 2, found 3": upgraded,
}


@pytest.mark.parametrize("message", FOREIGN_CHANGES)
def test_what_others_may_not_change(lake, message):
    info = lake.table(COLUMNS | {"r": "row<x int>"})
    mine = lake.write(info, records(pa.RecordBatch.from_pylist([{"id": 1, "v": "x"}], schema=info.schema.arrow_schema)))
    FOREIGN_CHANGES[message](lake.load(info))
    with pytest.raises(UnsupportedError, match=message):
        lake.factory.describe_table(info)
    committer = lake.committer(info)
    with pytest.raises(UnsupportedError):
        committer.commit(committer.to_committable([mine]), None, summary())
    assert lake.load(info).current_snapshot() is None
