"""A lake table as its readers see it: what one of them made of it is another's, as long as it is as it was."""

import cProfile

import pyarrow as pa
import pytest

from fluss_lab.errors import LakeSnapshotNotFoundError, UnsupportedError
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache
from fluss_lab.lake.iceberg.read.lake_table import LakeTable, LoadedTables


@pytest.fixture
def shared():
    return LoadedTables()


@pytest.fixture
def reader(lake, shared):
    """Make a reader of a table, one of several that share what they find."""
    entries = EntryCache()
    return lambda info: LakeTable(lake.storage.access, entries, info, shared)


@pytest.fixture
def table(lake):
    return lake.table({"id": "bigint", "name": "string"})


def rows(count):
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    return pa.record_batch([pa.array(range(count)), pa.array(["x"] * count)], schema=schema)


def test_readers_share_the_files_of_a_snapshot(lake, table, reader):
    snapshot = lake.append(table, rows(5))
    found = reader(table).snapshot_files(snapshot)
    assert reader(table).snapshot_files(snapshot) is found
    alone = LakeTable(lake.storage.access, EntryCache(), table)
    assert alone.snapshot_files(snapshot) is not found
    assert alone.snapshot_files(snapshot).states == found.states


def test_a_snapshot_that_came_or_went_since_is_not_missed(lake, table, reader):
    first = lake.append(table, rows(5))
    reader(table).snapshot_files(first)
    second = lake.append(table, rows(5), 5)
    assert [file.min_offset for file in reader(table).snapshot_files(second).data((None, 0))] == [0, 5]
    lake.load(table).maintenance.expire_snapshots().by_ids([first]).commit()
    with pytest.raises(LakeSnapshotNotFoundError):
        reader(table).snapshot_files(first)


def test_what_others_did_to_a_table_is_noticed_though_the_snapshot_stays(lake, table, reader):
    snapshot = lake.append(table, rows(5))
    reader(table).snapshot_files(snapshot)
    with lake.load(table).update_schema() as update:
        update.delete_column("name")
    with pytest.raises(UnsupportedError, match=r"'name' .*is gone"):
        reader(table).snapshot_files(snapshot)


def test_readers_with_other_columns_share_nothing(lake, table, reader):
    snapshot = lake.append(table, rows(5))
    assert reader(table).snapshot_files(snapshot).columns.schema.names[:2] == ["id", "name"]
    narrow = lake.info({"id": "bigint"})
    assert (narrow.table_id, narrow.schema_id) == (table.table_id, table.schema_id)
    assert "name" not in reader(narrow).snapshot_files(snapshot).columns.schema.names


def test_a_table_that_came_in_another_s_place_is_none_of_its_readers(lake, table, reader):
    snapshot = lake.append(table, rows(5))
    reader(table).snapshot_files(snapshot)
    with pytest.raises(LakeSnapshotNotFoundError, match="another table of that name"):
        reader(lake.info({"id": "bigint", "name": "string"}, table_id=8)).snapshot_files(snapshot)


def test_how_columns_are_found_in_files_costs_as_much_as_there_are_columns(lake):
    count, profile = 400, cProfile.Profile()
    table = LakeTable(lake.storage.access, EntryCache(), lake.table({f"c{number}": "int" for number in range(count)}))
    assert len(table.file_columns()) == count + 3
    profile.runcall(table.file_columns)
    assert sum(each.callcount for each in profile.getstats()) < 100 * count
