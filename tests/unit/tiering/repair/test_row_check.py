"""Repairs of a primary-key table whose rows others changed in the lake: its lookups and changelog would go on having them."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_lab.errors import ForeignCommitError, OffsetOutOfRangeError
from fluss_lab.lake.iceberg.metadata.snapshot_builder import stage_row_delta
from fluss_lab.model import make_descriptor
from fluss_lab.model.names import TablePath
from fluss_lab.read.table_reader import TableReader
from fluss_lab.tiering.repair.lake_repair import adopt, plan_repair
from tests.unit.lake.foreign import bare_position_deletes, equality_deletes
from tests.unit.tiering.kit import LAKE
from tests.unit.tiering.repairs import Keyed

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Merge on read is not yet supported")]


def delete(lake) -> None:
    lake.delete("id = 3")


def delete_by_position(lake) -> None:
    (path,) = {task.file.file_path for task in lake.scan().plan_files()}
    ids = pq.read_table(path.removeprefix("file://"), columns=["id"])["id"].to_pylist()
    commit(lake, bare_position_deletes(lake, None, [(path, max(at for at, each in enumerate(ids) if each == 3))]))


def delete_by_key(lake) -> None:
    commit(lake, equality_deletes(lake, None, {"id": [3]}))


def change(lake) -> None:
    rows = lake.scan(row_filter="id = 3").to_arrow()
    lake.overwrite(rows.set_column(1, rows.schema.field(1), pa.array(["theirs"])), overwrite_filter="id = 3")


def add(lake) -> None:
    """With the offset of a record that ended a row: no row has it."""
    rows = lake.scan(row_filter="id = 3").to_arrow()
    at = rows.column_names.index("__offset")
    rows = rows.set_column(at, rows.schema.field(at), pa.array([5], pa.int64()))
    lake.append(rows.set_column(0, rows.schema.field(0), pa.array([99], pa.int64())))


def commit(lake, file) -> None:
    staged = stage_row_delta(lake, [], [file], {"engine-name": "another"})
    lake.catalog.commit_table(lake, staged.requirements, staged.updates)


def keyed_table(tables) -> Keyed:
    """Return a table in one file: offsets 0 to 4 are rows, 5 and 6 an update of key 3."""
    keyed = Keyed(tables, buckets=1, **{"table.datalake.auto-maintenance": False})
    keyed.upsert(range(5), "a")
    keyed.upsert([3], "b")
    tables.tier(keyed.info)
    return keyed


@pytest.mark.parametrize(
    ("how", "found"),
    [
        (delete, "1 row.s. deleted .offset 6"),
        (delete_by_position, "1 row.s. deleted .offset 6"),
        (delete_by_key, "1 row.s. deleted .offset 6"),
        (change, "1 row.s. with other values .offset 6"),
        (add, "1 row.s. that the table does not have .offset 5"),
    ],
)
def test_rows_that_others_changed_are_not_accepted(tables, how, found):
    """Seen: a row that was deleted in the lake was still looked up, and the changelog ended in `CorruptDataError`."""
    keyed = keyed_table(tables)
    known = tables.known(keyed.info)
    how(tables.lake(keyed.info))
    keyed.upsert([1, 7], "c")
    for attempt in (plan_repair, adopt):
        with pytest.raises(ForeignCommitError, match=rf"{found}.*snapshot {known.snapshot_id}.*by the table instead"):
            attempt(tables.connection, tables.storage, keyed.path)
    assert tables.known(keyed.info) == known
    lake = tables.lake(keyed.info)
    lake.manage_snapshots().rollback_to_snapshot(known.snapshot_id).commit()
    keyed.delete([3])
    tables.tier(keyed.info)
    keyed.check()
    assert TableReader(tables.connection, keyed.path).changelog().to_arrow().num_rows == 7 + 3 + 1


def test_the_same_rows_in_other_files_are_accepted_and_what_is_gone_of_the_log_is_said(tables):
    """Somebody overwrote the table with what it had: rows that were ended are in no file any more."""
    keyed = keyed_table(tables)
    lake = tables.lake(keyed.info)
    lake.overwrite(lake.scan().to_arrow())
    (bucket,) = plan_repair(tables.connection, tables.storage, keyed.path).changed
    assert (bucket.start, bucket.cuts_history) == (7, True)
    adopt(tables.connection, tables.storage, keyed.path)
    assert list(tables.known(keyed.info).starts.values()) == [7]
    keyed.upsert([1, 7], "c")
    keyed.delete([4])
    tables.tier(keyed.info)
    keyed.check()
    reader = TableReader(tables.connection, keyed.path)
    assert {row["id"]: row["v"] for row in reader.scan().to_arrow().to_pylist()} == keyed.model
    with pytest.raises(OffsetOutOfRangeError):
        list(
            tables.storage.create_lake_source(keyed.info).plan(
                tables.known(keyed.info).snapshot_id, stops={(None, 0): 5}
            )
        )


def test_a_table_that_is_rolled_back_keeps_the_changelog_that_is_left(tables):
    keyed = keyed_table(tables)
    keyed.upsert([3], "c")
    tables.tier(keyed.info)
    lake = tables.lake(keyed.info)
    lake.manage_snapshots().rollback_to_snapshot(lake.history()[-2].snapshot_id).commit()
    (bucket,) = plan_repair(tables.connection, tables.storage, keyed.path).changed
    assert (bucket.start, bucket.cuts_history) == (0, False)
    adopt(tables.connection, tables.storage, keyed.path)
    tables.tier(keyed.info)
    keyed.check()


def test_of_a_partition_that_only_the_lake_has_others_delete_what_they_like(tables):
    path = TablePath("db", "months")
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("month", pa.string(), False), ("v", pa.string())])
    descriptor = make_descriptor(
        schema, primary_key=["id", "month"], partitioned_by=["month"], buckets=1, properties=LAKE
    )  # fmt: skip
    admin = tables.connection.admin()
    info = admin.create_table(path, descriptor)
    for month in ("2013-01", "2013-02"):
        admin.create_partition(path, {"month": month}, if_not_exists=True)
        with tables.connection.upsert_writer(path) as writer:
            writer.upsert([{"id": number, "month": month, "v": "a"} for number in range(5)])
    tables.tier(info)
    admin.drop_partition(path, {"month": "2013-01"}, lake=False)
    tables.lake(info).delete("month = '2013-01' and id = 3")
    planned = plan_repair(tables.connection, tables.storage, path)
    assert [(each.partition, each.start) for each in planned.changed] == [("2013-01", 5)]
    adopt(tables.connection, tables.storage, path)
    with tables.connection.upsert_writer(path) as writer:
        writer.upsert([{"id": 3, "month": "2013-02", "v": "b"}])
    tables.tier(info)
    rows = TableReader(tables.connection, path).scan().to_arrow()
    assert sorted(zip(rows["month"].to_pylist(), rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True)) == [
        *(("2013-01", number, "a") for number in (0, 1, 2, 4)),
        *(("2013-02", number, "b" if number == 3 else "a") for number in range(5)),
    ]
