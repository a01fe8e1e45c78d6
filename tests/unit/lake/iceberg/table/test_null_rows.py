"""NOT NULL fields of rows that are null: they are written, and read back, also out of files that are older than the column."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_lab.lake import FetchContext


def replayed(lake, info, snapshot, stop):
    """Return the column as a replay of the log gives it."""
    source = lake.storage.create_fluss_log_source(info)
    runs = source.fetch_log_records(FetchContext(0, stop, None, 0, snapshot, ["r"]))
    return [value for run in runs for value in run.rows.column("r").to_pylist()]


CASES = [
    ("row<x int not null>", [{"x": 1}, None, {"x": 2}]),
    ("row<x binary(3) not null>", [{"x": b"abc"}, None, {"x": b"\0\0\0"}]),
    ("row<r row<x binary(3) not null, y tinyint not null> not null>", [None, {"r": {"x": b"abc", "y": 1}}]),
    ("row<r row<x binary(3) not null>, y binary(2)>", [{"r": None, "y": None}, None, {"r": {"x": b"abc"}, "y": b"ab"}]),
    ("array<row<x binary(3) not null>>", [[{"x": b"abc"}, None], None, [], [None]]),
    ("map<string, row<x binary(3) not null, t time(3) not null>>", [[("n", None)], None, []]),
]


@pytest.mark.parametrize(("kind", "values"), CASES)
def test_what_is_tiered_is_read_back(lake, kind, values):
    table = lake.table({"id": "bigint", "r": kind})
    column = pa.array(values, table.schema.arrow_schema.field("r").type)
    ids = pa.array(range(len(column)), pa.int64())
    snapshot = lake.append(table, pa.RecordBatch.from_arrays([ids, column], schema=table.schema.arrow_schema))
    assert lake.rows(table, snapshot, ["r"]).column("r").to_pylist() == column.to_pylist()
    filtered = lake.rows(table, snapshot, ["r"], where=pc.field("id") >= 1)
    assert filtered.column("r").to_pylist() == column.to_pylist()[1:]
    assert replayed(lake, table, snapshot, len(column)) == column.to_pylist()


@pytest.mark.parametrize("kind", [kind for kind, _ in CASES])
def test_files_without_the_column_are_read(lake, kind):
    table = lake.table({"id": "bigint"})
    rows = pa.RecordBatch.from_pydict({"id": [1, 2]}, schema=table.schema.arrow_schema)
    lake.append(table, rows)
    wider = lake.info({"id": "bigint", "r": kind})
    lake.catalog.alter_table(wider)
    snapshot = lake.append(
        wider, pa.RecordBatch.from_pydict({"id": [3], "r": [None]}, schema=wider.schema.arrow_schema), 2
    )
    for options in ({}, {"where": pc.field("id") >= 1}, {"where": pc.field("r").is_null()}):
        assert lake.rows(wider, snapshot, **options).column("r").to_pylist() == [None] * 3
    assert replayed(lake, wider, snapshot, 3) == [None] * 3
