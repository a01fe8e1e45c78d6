"""A table altered at any moment of its tiering: every record reaches the lake with all of its values."""

import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.errors import CommitConflictError
from fluss_lab.model import TablePath
from fluss_lab.read.table_reader import TableReader
from fluss_lab.tiering.round.commit_recovery import CommitRecovery
from tests.unit.tiering.kit import SCHEMA

pytestmark = pytest.mark.slow

WIDER = SCHEMA.append(pa.field("note", pa.string()))


def add_note(tables, info):
    return tables.connection.admin().alter_table(info.path, add_columns={"note": "string"})


def append_wide(tables, info, rows):
    """Append rows that have the new column, by a writer that knows it."""
    first = tables.appended[info.path]
    numbers = range(first, first + rows)
    batch = pa.table(
        [pa.array(numbers, pa.int64()), [f"n{n}" for n in numbers], ["2013-01"] * rows, [f"note{n}" for n in numbers]],
        schema=WIDER,
    )
    with tables.connection.append_writer(info.path) as writer:
        writer.append(batch)
    tables.appended[info.path] += rows


def notes(tables, info) -> dict[int, str | None]:
    rows = tables.lake_rows(info)
    return dict(sorted(zip(rows["id"].to_pylist(), rows["note"].to_pylist(), strict=True)))


def expected(*runs: tuple[int, bool]) -> dict[int, str | None]:
    """Return the notes of runs of rows: how many, and whether they have one."""
    flags = [has for count, has in runs for _ in range(count)]
    return {number: f"note{number}" if has else None for number, has in enumerate(flags)}


def test_columns_added_before_tiering(tables):
    info = tables.create(buckets=2, bucket_key=["id"])
    tables.append(info, 50)
    add_note(tables, info)
    append_wide(tables, info, 50)
    tables.tier(info)
    tables.check(info)
    assert notes(tables, info) == expected((50, False), (50, True))


def test_columns_added_between_rounds(tables):
    info = tables.create(buckets=2)
    tables.append(info, 50)
    tables.tier(info)
    add_note(tables, info)
    tables.append(info, 20)
    append_wide(tables, info, 30)
    tables.tier(info)
    tables.connection.admin().alter_table(info.path, add_columns={"more": "int"})
    append_wide(tables, info, 10)
    tables.tier(info)
    tables.check(info)
    assert notes(tables, info) == expected((70, False), (40, True))
    assert tables.lake(info).schema().column_names[-5:] == ["note", "more", "__bucket", "__offset", "__timestamp"]


def test_a_writer_that_knows_nothing_of_the_columns_goes_on(tables):
    info = tables.create(buckets=2)
    with tables.connection.append_writer(info.path) as writer:
        writer.append([{"id": 0, "name": "n0", "month": "2013-01"}]).result()
        add_note(tables, info)
        tables.appended[info.path] = 1
        append_wide(tables, info, 1)
        writer.append([{"id": 2, "name": "n2", "month": "2013-01"}]).result()
    tables.appended[info.path] = 3
    tables.tier(info)
    tables.check(info)
    assert notes(tables, info) == expected((1, False), (1, True), (1, False))


@pytest.mark.parametrize("moment", ["tiering.plan.after", "tiering.write.after", "tiering.lake_commit.before"])
def test_columns_added_between_plan_and_commit(tables, moment):
    """The round holds only records from before; it commits as it was planned, and the next one brings the new column."""
    info = tables.create(buckets=2)
    tables.append(info, 30)
    failpoints.arm(moment, lambda: (add_note(tables, info), append_wide(tables, info, 30)))
    report = tables.tier(info)
    assert failpoints.passes(moment)
    assert report.rows == 30
    tables.check(info, complete=False)
    tables.tier(info)
    tables.check(info)
    assert notes(tables, info) == expected((30, False), (30, True))


def test_columns_added_while_a_round_is_planned(tables, monkeypatch):
    """Between the look at the table and the look at its ends, columns and records of them come: planned again."""
    info = tables.create(buckets=2)
    tables.append(info, 30)
    real, done = CommitRecovery._partitions, []

    def late(self, table):
        if not done:
            done.append(table.schema_id)
            add_note(tables, info)
            append_wide(tables, info, 30)
        return real(self, table)

    monkeypatch.setattr(CommitRecovery, "_partitions", late)
    assert tables.tier(info).rows == 60
    assert done == [1]
    tables.check(info)
    assert notes(tables, info) == expected((30, False), (30, True))


def test_a_table_altered_again_and_again_gives_up_at_last(tables, monkeypatch):
    info = tables.create()
    tables.append(info, 3)
    real, names = CommitRecovery._partitions, iter(f"c{n}" for n in range(100))

    def restless(self, table):
        tables.connection.admin().alter_table(info.path, add_columns={next(names): "int"})
        return real(self, table)

    with monkeypatch.context() as patched:
        patched.setattr(CommitRecovery, "_partitions", restless)
        with pytest.raises(CommitConflictError, match="the table has schema"):
            tables.tier(info)
    assert tables.tier(info).rows == 3


def test_nested_columns_added(tables):
    info = tables.create()
    tables.append(info, 5)
    tables.tier(info)
    kinds = {"tags": "array<string>", "place": "row<x int, y row<z double>>", "counts": "map<string, bigint>"}
    tables.connection.admin().alter_table(info.path, add_columns=kinds)
    row = {"id": 5, "name": "n5", "month": "2013-01", "tags": ["a", None], "place": {"x": 1, "y": {"z": 2.5}},
           "counts": [("k", 7)]}  # fmt: skip
    with tables.connection.append_writer(info.path) as writer:
        writer.append([row])
    tables.appended[info.path] += 1
    tables.tier(info)
    found = TableReader(tables.connection, info.path).scan().to_arrow().to_pylist()
    assert found[:5] == [
        {"id": n, "name": f"n{n}", "month": "2013-01", "tags": None, "place": None, "counts": None} for n in range(5)
    ]
    assert found[5] == row


# -- the lake switched off and on --------------------------------------------------------------------------------------


def switch(tables, info, on: bool):
    tables.connection.admin().alter_table(info.path, set={"table.datalake.enabled": on})


def test_the_lake_is_switched_off_and_on_again(tables):
    info = tables.create(buckets=2, bucket_key=["id"], properties={"table.datalake.enabled": False})
    tables.append(info, 40)
    switch(tables, info, True)
    tables.tier(info)
    tables.check(info)
    known = tables.known(info)
    switch(tables, info, False)
    tables.append(info, 30)
    # What the lake holds is still known and read, and nothing of it is counted twice.
    assert tables.known(info) == known
    assert TableReader(tables.connection, info.path).scan().count() == 70
    switch(tables, info, True)
    tables.append(info, 30)
    assert tables.tier(info).rows == 60
    tables.check(info)
    assert TableReader(tables.connection, info.path).scan().count() == 100


def test_columns_added_while_the_lake_is_off(tables):
    info = tables.create(buckets=2)
    tables.append(info, 10)
    tables.tier(info)
    switch(tables, info, False)
    add_note(tables, info)
    append_wide(tables, info, 10)
    reader = TableReader(tables.connection, info.path)
    rows = reader.scan(columns=["id", "note"]).to_arrow().to_pylist()
    assert {row["id"]: row["note"] for row in rows} == expected((10, False), (10, True))
    switch(tables, info, True)
    tables.tier(info)
    tables.check(info)
    assert notes(tables, info) == expected((10, False), (10, True))


def test_a_lake_of_case_three_is_refused_with_the_reason(tables):
    from fluss_lab.errors import UnsupportedError
    from fluss_lab.model import make_descriptor

    descriptor = make_descriptor(SCHEMA, buckets=2, bucket_key=["id", "name"])
    info = tables.connection.admin().create_table(TablePath("db", "two"), descriptor)
    with pytest.raises(UnsupportedError, match="no multi-argument bucket transform"):
        switch(tables, info, True)
