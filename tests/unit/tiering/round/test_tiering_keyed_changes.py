"""Primary-key tables that change while delete files lie in the lake: partitions dropped, columns added, compacted by others."""

import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.model import TablePath, make_descriptor
from tests.unit.tiering.kit import LAKE

pytestmark = pytest.mark.slow

OLD, NEW = "2013-01", "2013-02"
COLUMNS = {"month": "string", "id": "bigint", "v": "string"}


class Months:
    """A partitioned primary-key table and what its rows should be."""

    def __init__(self, tables, **properties) -> None:
        self.tables = tables
        descriptor = make_descriptor(
            COLUMNS,
            primary_key=["month", "id"],
            partitioned_by=["month"],
            buckets=2,
            properties=LAKE | {"table.datalake.auto-maintenance": False} | properties,
        )
        self.info = tables.connection.admin().create_table(TablePath("db", "months"), descriptor)
        self.model: dict[tuple[str, int], str] = {}

    def upsert(self, month: str, ids, value: str) -> None:
        ids = list(ids)
        rows = {"month": [month] * len(ids), "id": pa.array(ids, pa.int64()), "v": [f"{value}{key}" for key in ids]}
        with self.tables.connection.upsert_writer(self.info.path) as writer:
            writer.upsert(pa.table(rows))
        self.model |= {(month, key): f"{value}{key}" for key in ids}

    def delete(self, month: str, ids) -> None:
        ids = list(ids)
        with self.tables.connection.upsert_writer(self.info.path) as writer:
            writer.delete(pa.table({"month": [month] * len(ids), "id": pa.array(ids, pa.int64())}))
        for key in ids:
            self.model.pop((month, key), None)

    def drop(self, month: str) -> None:
        self.tables.connection.admin().drop_partition(self.info.path, {"month": month}, lake=True)
        self.model = {key: value for key, value in self.model.items() if key[0] != month}

    def tier(self) -> None:
        self.tables.tier(self.info)

    def check(self) -> None:
        rows = self.tables.lake_rows(self.info).to_pylist()
        found = {(row["month"], row["id"]): row["v"] for row in rows}
        assert (found, len(rows)) == (self.model, len(self.model))

    def files(self) -> list[tuple[str, str]]:
        """Content and partition of each file of the newest snapshot."""
        lake = self.tables.lake(self.info)
        entries = [
            entry.data_file
            for manifest in lake.current_snapshot().manifests(lake.io)
            for entry in manifest.fetch_manifest_entry(lake.io)
        ]
        return sorted((file.content.name, file.partition[0]) for file in entries)


@pytest.fixture
def months(tables):
    """A table of two months with rows, updates and deletes of both in the lake."""
    made = Months(tables)
    for month in (OLD, NEW):
        made.upsert(month, range(20), "a")
    made.tier()
    for month in (OLD, NEW):
        made.upsert(month, range(5, 15), "b")
        made.delete(month, range(3))
    made.tier()
    made.check()
    return made


def test_a_dropped_partition_takes_its_delete_files_along(months):
    assert {("POSITION_DELETES", OLD), ("POSITION_DELETES", NEW)} <= set(months.files())
    months.drop(OLD)
    months.check()
    assert {partition for _, partition in months.files()} == {NEW}
    assert ("POSITION_DELETES", NEW) in months.files()
    # The same name again is another partition: rows of it end rows of it.
    months.upsert(OLD, range(10), "c")
    months.upsert(NEW, range(10), "c")
    months.tier()
    months.check()
    months.upsert(OLD, range(5), "d")
    months.delete(OLD, [9])
    months.tier()
    months.check()


@pytest.mark.parametrize("moment", ["tiering.plan.after", "tiering.write.after", "tiering.lake_commit.before"])
def test_dropped_during_a_round(tables, months, moment):
    for month in (OLD, NEW):
        months.upsert(month, range(8), "c")
        months.delete(month, [17])
    failpoints.arm(moment, lambda: months.drop(OLD))
    months.tier()
    assert failpoints.passes(moment)
    months.check()
    assert {partition for _, partition in months.files()} == {NEW}


def test_dropping_in_equality_mode_leaves_the_other_partitions_deletes(tables):
    made = Months(tables, **{"table.datalake.delete-mode": "equality"})
    for month in (OLD, NEW):
        made.upsert(month, range(20), "a")
    made.tier()
    for month in (OLD, NEW):
        made.upsert(month, range(5, 15), "b")
    made.tier()
    assert {("EQUALITY_DELETES", OLD), ("EQUALITY_DELETES", NEW)} <= set(made.files())
    made.drop(OLD)
    assert {partition for _, partition in made.files()} == {NEW}
    assert ("EQUALITY_DELETES", NEW) in made.files()


def test_columns_come_while_delete_files_are_there(tables, months):
    admin = tables.connection.admin()
    admin.alter_table(months.info.path, add_columns={"note": "string"})
    months.upsert(NEW, range(10, 18), "c")  # a writer that does not know of the column
    months.tier()
    months.check()
    rows = pa.table({"month": [NEW], "id": pa.array([4], pa.int64()), "v": ["d4"], "note": ["said"]})
    with tables.connection.upsert_writer(months.info.path) as writer:
        writer.upsert(rows)
    months.model[NEW, 4] = "d4"
    months.delete(OLD, [10])
    months.tier()
    months.check()
    notes = [row["note"] for row in tables.lake_rows(months.info).to_pylist() if row["note"] is not None]
    assert notes == ["said"]


def test_columns_come_during_a_round(tables, months):
    admin = tables.connection.admin()
    months.upsert(NEW, range(10, 18), "c")
    failpoints.arm("tiering.plan.after", lambda: admin.alter_table(months.info.path, add_columns={"note": "string"}))
    months.tier()
    assert failpoints.passes("tiering.plan.after")
    months.tier()
    months.check()
