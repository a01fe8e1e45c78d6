"""Files of others, who renamed a column first: it is found by its id, and what is null in it stays null."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss_lab.lake import FetchContext
from fluss_lab.lake.iceberg.read import data_file_scan
from tests.unit.lake.iceberg.read.test_row_source import as_in_the_lake, others_file


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("array<int>", [None, [], [1, None]]),
        ("array<row<x int, a array<row<y int>>>>", [None, [], [{"x": 1, "a": None}, None, {"x": None, "a": []}]]),
        ("map<string, row<x int>>", [None, [], [("k", {"x": 1}), ("n", None)]]),
        ("row<m map<int, row<x int>>, l array<row<x int>>>", [None, {"m": None, "l": None}, {"m": [], "l": []}]),
        ("map<int, array<row<x int>>>", [None, [(1, None), (2, [None])], []]),
        ("array<map<int, row<x int>>>", [None, [None, []], [[(1, None)]]]),
    ],
)
def test_nulls_of_a_renamed_column_stay_null(lake, kind, values, monkeypatch):
    monkeypatch.setattr(data_file_scan, "_BATCH_ROWS", 2)
    table = lake.table({"r": kind})
    column = pa.array([*values, *reversed(values)], table.schema.arrow_schema.field("r").type)
    rows = pa.RecordBatch.from_arrays([column], schema=table.schema.arrow_schema)
    with lake.load(table).update_schema() as update:
        update.rename_column("r", "renamed")
    theirs = as_in_the_lake(lake, table, rows, range(len(column)))
    assert theirs.column("renamed").to_pylist() == column.to_pylist()
    last = len(column) - 1
    snapshot = others_file(lake, table, lambda path: pq.write_table(theirs, path) or last + 1, max_offset=last)
    assert lake.rows(table, snapshot, ["r"]).column("r").to_pylist() == column.to_pylist()
    source = lake.storage.create_fluss_log_source(table)
    runs = list(source.fetch_log_records(FetchContext(1, len(column), None, 0, snapshot, None)))
    assert [each for run in runs for each in run.rows.column("r").to_pylist()] == column.to_pylist()[1:]
