"""Files and frames made into tables."""

import datetime as dt
import json
import os

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from fluss_lab import errors
from fluss_lab.display import waiting
from fluss_lab.testing.mock_clock import wait_until
from fluss_lab.workbench.load import SourceOptions, table_load
from fluss_lab.workbench.load.load_columns import ColumnPlan
from fluss_lab.workbench.load.load_source import open_source
from tests.unit.display.seen_view import SeenView

pytestmark = pytest.mark.slow

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", None, "c"], "price": [1.5, 2.0, None]})


def write(rows, path):
    """Write rows as what the path's ending says."""
    if path.suffix == ".csv":
        arrow_csv.write_csv(rows, path)
    elif path.suffix == ".parquet":
        pq.write_table(rows, path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows.to_pylist(), indent=1))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    return path


SOURCES = {
    "csv": lambda folder: write(ROWS, folder / "a.csv"),
    "text of a path": lambda folder: str(write(ROWS, folder / "a.csv")),
    "parquet": lambda folder: write(ROWS, folder / "a.parquet"),
    "json": lambda folder: write(ROWS, folder / "a.json"),
    "lines": lambda folder: write(ROWS, folder / "a.jsonl"),
    "folder": lambda folder: [write(ROWS.slice(at, 1), folder / f"{at}.parquet") for at in range(3)] and folder,
    "pandas": lambda folder: ROWS.to_pandas(),
    "arrow": lambda folder: ROWS,
    "batch": lambda folder: ROWS.to_batches()[0],
    "reader": lambda folder: ROWS.to_reader(max_chunksize=1),
    "duckdb": lambda folder: duckdb.from_arrow(ROWS),
    "dicts": lambda folder: ROWS.to_pylist(),
    "columns": lambda folder: ROWS.to_pydict(),
}


@pytest.mark.parametrize("primary_key", [None, ["id"]])
@pytest.mark.parametrize("name", SOURCES)
def test_every_source_makes_the_same_table(lab, path, tmp_path, name, primary_key):
    report = lab.load(SOURCES[name](tmp_path), path, primary_key=primary_key)
    assert (report.rows, report.created, str(report.path)) == (3, True, path)
    assert [str(dtype) for _, _, dtype in report.columns] == [
        "BIGINT NOT NULL" if primary_key else "BIGINT", "STRING", "DOUBLE"
    ]  # fmt: skip
    assert lab[path].scan().to_arrow().sort_by("id").to_pylist() == ROWS.to_pylist()
    assert "3 rows of " in repr(report)
    assert "BIGINT" in report._repr_html_()


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_there_is_added_to_when_that_is_asked_for(lab, path, tmp_path, name):
    lab.load(ROWS, path)
    with pytest.raises(errors.TableExistsError, match="if_exists='append' adds"):
        lab.load(SOURCES[name](tmp_path), path)
    assert lab.load(SOURCES[name](tmp_path / "." if name != "folder" else tmp_path), path, if_exists="append").rows == 3
    assert lab[path].count() == 6


def test_a_primary_key_table_is_upserted(lab, path):
    lab.load(ROWS, path, primary_key=["id"])
    report = lab.load([{"id": 3, "name": "new"}, {"id": 4, "name": "d"}], path, if_exists="append")
    assert (report.rows, report.created) == (2, False)
    assert lab[path].scan().to_arrow()["name"].to_pylist() == ["a", None, "new", "d"]


def test_a_name_is_taken_from_the_file(lab, tmp_path):
    report = lab.load(write(ROWS, tmp_path / "My Orders (2).csv"))
    assert str(report.path) == "default.my_orders_2"
    assert "default.my_orders_2" in lab


def test_partitions_are_texts_and_options_are_the_tables(lab, path, tmp_path):
    (tmp_path / "a.csv").write_text("id,year\n1,2013\n2,2014\n")
    lab.load(tmp_path / "a.csv", path, partitioned_by=["year"], buckets=3, properties={"table.log.ttl": "1d"})
    assert lab[path].partitions() == ["2013", "2014"]
    assert lab[path].descriptor.buckets == 3


def test_hostile_names_are_renamed(lab, path, tmp_path):
    (tmp_path / "a.csv").write_text("Id,Id,,a b\n1,2,3,4\n")
    with pytest.raises(errors.InvalidNameError) as raised:
        lab.load(tmp_path / "a.csv", path)
    rename = eval(str(raised.value).split("rename=")[1])
    lab.load(tmp_path / "a.csv", path, rename=rename, columns=["Id", "a_b"])
    assert lab[path].scan().to_arrow().to_pylist() == [{"Id": 1, "a_b": 4}]
    frame = pd.DataFrame([[1, 2]], columns=["x", "x"])
    lab.load(frame, f"{path}f", rename=["x", "y"])
    assert lab[f"{path}f"].scan().to_arrow().to_pylist() == [{"x": 1, "y": 2}]


@pytest.mark.parametrize(
    ("source", "arguments", "error", "words"),
    [
        ("nope.csv", {}, errors.NotFoundError, "there is no file"),
        ("", {}, errors.InvalidRequestError, "expected the path"),
        ("a\0b", {}, errors.InvalidRequestError, "expected the path"),
        ("x" * 5000, {}, errors.InvalidRequestError, "too long"),
        ("https://example.com/a.csv", {}, errors.InvalidRequestError, "download it first"),
        ("/dev/null", {"format": "csv"}, errors.InvalidRequestError, "neither a file nor a folder"),
        ("{folder}", {}, errors.NotFoundError, "no CSV, Parquet or JSON files"),
        ("{folder}/odd.bin", {}, errors.InvalidRequestError, "format="),
        ("{folder}/odd.bin", {"format": "xlsx"}, errors.InvalidRequestError, "'xlsx'"),
        ("{folder}/odd.bin", {"format": "parquet"}, errors.InvalidRecordError, "cannot be read as Parquet"),
        ("{folder}/odd/u.parquet", {}, errors.InvalidRecordError, "u.parquet: column 'u', row 1: expected BIGINT"),
        ([], {}, errors.InvalidRecordError, "at least one dict"),
        ([1], {}, errors.InvalidRecordError, "the list"),
        (3, {}, errors.InvalidRequestError, "expected the path"),
        (len, {}, errors.InvalidRequestError, "expected the path"),
        (ROWS, {"nope": 1}, errors.InvalidRequestError, "unknown argument 'nope'"),
        (ROWS, {"start_row": -1}, errors.InvalidRequestError, "start_row"),
        (ROWS, {"if_exists": "replace"}, errors.InvalidRequestError, "'fail' or 'append'"),
        (ROWS, {"primary_key": ["nope"]}, errors.InvalidSchemaError, "'nope'"),
        (ROWS, {"primary_key": ["name"]}, errors.InvalidRecordError, "null"),
        (ROWS, {"types": {"id": "nope"}}, errors.InvalidSchemaError, "unknown data type"),
        (ROWS, {"types": {"id": "string"}}, errors.InvalidRecordError, "column 'id'"),
        (ROWS, {"buckets": 0}, errors.InvalidBucketsError, "buckets"),
        (pa.table({"u": pa.array([2**64 - 1], pa.uint64())}), {}, errors.InvalidRecordError, "column 'u', row 0: expected BIGINT"),
        (pa.table({"d": pa.array([1], pa.duration("s"))}), {}, errors.InvalidSchemaError, "column 'd'"),
        (pd.DataFrame({"a": [1, "x"]}), {}, errors.InvalidSchemaError, "several types"),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_leaves_nothing(lab, path, tmp_path, source, arguments, error, words):
    (tmp_path / "odd.bin").write_bytes(b"nothing")
    (tmp_path / "odd").mkdir()
    pq.write_table(pa.table({"u": pa.array([1, 2**64 - 1], pa.uint64())}), tmp_path / "odd" / "u.parquet")
    source = source.format(folder=tmp_path) if isinstance(source, str) else source
    with pytest.raises(error) as raised:
        lab.load(source, path, **arguments)
    assert words in str(raised.value)
    assert path not in lab


@pytest.mark.parametrize("name", ["rows.csv", "rows.json", "rows.parquet"])
def test_a_file_whose_name_is_no_text_is_refused_by_its_name(lab, path, tmp_path, name):
    """It was said to have bytes of another encoding, or ended in a `UnicodeEncodeError`."""
    file = os.path.join(os.fsencode(tmp_path), b"\xff" + name.encode())
    try:
        with open(file, "wb") as opened:
            opened.write(b"a\n1\n")
    except OSError:
        pytest.skip("this file system has no such names")
    for source in (os.fsdecode(file), tmp_path):
        with pytest.raises(errors.InvalidRequestError, match=r"has bytes that are no text in utf-8; rename it"):
            lab.load(source, path)


def test_rows_of_a_table_say_where_to_without_a_file(lab):
    with pytest.raises(errors.InvalidRequestError, match="which table"):
        lab.load(ROWS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"primary_key": ["id"]}, "primary_key=[]"),
        ({"types": {"id": "int"}}, "leave out types="),
        ({"rename": {"id": "other"}}, "the table has no column 'other'"),
    ],
)
def test_a_table_that_is_another_one_is_not_added_to(lab, path, arguments, words):
    lab.load(ROWS, path)
    with pytest.raises(errors.InvalidSchemaError) as raised:
        lab.load(ROWS, path, if_exists="append", **arguments)
    assert words in str(raised.value)
    assert lab[path].count() == 3


def test_values_go_into_the_types_of_a_table_that_is_there(lab, path, tmp_path):
    lab.create_table(path, {"id": "int", "zip": "string", "when": "timestamp(3)", "note": "string"})
    (tmp_path / "a.csv").write_text("zip,id,when\n01,7,2013-01-01\n2,8,\n")
    lab.load(tmp_path / "a.csv", path, if_exists="append")
    assert lab[path].scan().to_arrow().to_pylist() == [
        {"id": 7, "zip": "01", "when": dt.datetime(2013, 1, 1), "note": None}, {"id": 8, "zip": "2", "when": None, "note": None},
    ]  # fmt: skip
    (tmp_path / "a.csv").write_text("zip,id\n1,x\n")
    with pytest.raises(errors.InvalidRecordError, match=r"a\.csv: column 'id', row 0: expected INT, found 'x'"):
        lab.load(tmp_path / "a.csv", path, if_exists="append")
    assert lab[path].count() == 2


def failing(after, error):
    """A stream that fails after so many batches of a row."""

    def batches():
        for number in range(after):
            yield pa.record_batch({"id": [number]})
        raise error

    return pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches())


def test_a_load_that_ends_on_its_way_says_what_is_written_and_goes_on(lab, path):
    with pytest.raises(errors.WriteInterruptedError) as raised:
        lab.load(failing(5, ValueError("gone")), path)
    said = raised.value
    assert "rows [0, 5) were given" in str(said)
    assert "if_exists='append', start_row=5" in str(said)
    assert "nothing was sent" not in str(said)
    assert sum(each.rows for each in said.acknowledged.values()) == 5
    said.settle()
    whole = pa.table({"id": range(8)})
    assert lab.load(whole, path, if_exists="append", start_row=5).rows == 3
    assert lab[path].scan().to_arrow()["id"].to_pylist() == list(range(8))


def test_an_interrupted_load_says_what_is_written_and_goes_on(lab, path):
    with pytest.raises(errors.WriteStoppedError) as raised:
        lab.load(failing(5, KeyboardInterrupt()), path)
    assert "start_row=5" in str(raised.value)
    assert raised.value.settle().rows == 5
    assert lab[path].count() == 5


def test_a_value_that_does_not_fit_is_named_by_its_row_in_a_stream(lab, path):
    rows = pa.table({"u": pa.chunked_array([pa.array([1, 2], pa.uint64()), pa.array([2**64 - 1], pa.uint64())])})
    with pytest.raises(errors.WriteInterruptedError, match=r"column 'u', row 2: expected BIGINT"):
        lab.load(rows.to_reader(), path)
    assert lab[path].count() == 2


def test_a_load_whose_first_row_fails_leaves_an_empty_table_and_says_so(lab, path):
    with pytest.raises(errors.InvalidRecordError, match=r"nothing was written, table .* is there and empty"):
        lab.load(failing(0, ValueError("gone")), path)
    assert lab[path].count() == 0


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_counts_its_rows(tmp_path, name):
    source = open_source(SOURCES[name](tmp_path), SourceOptions())
    columns = source.examine(ColumnPlan())
    is_stream = name in {"reader", "duckdb"}
    assert source.count.total == (0 if is_stream else 3)
    in_memory = is_stream or name in {"pandas", "arrow", "batch", "dicts", "columns"}
    for _ in range(2 if not is_stream else 1):
        assert sum(batch.num_rows for batch in source.batches(columns)) == 3
        assert source.count.read == (0 if in_memory else 3), "each pass counts from its beginning"


def test_a_load_shows_how_far_it_is(lab, path, monkeypatch):
    view = SeenView()
    monkeypatch.setattr(waiting, "make_view", lambda: view)

    class Columns(dict):
        def __getitem__(self, name):
            wait_until(lambda: view.has_shown("examining the dict: "))
            return super().__getitem__(name)

    lab.load(Columns(id=[1, 2]), path)

    def batches():
        yield pa.record_batch({"id": [3, 4, 5]})
        wait_until(lambda: view.has_shown(f"loading the stream into {path}: 3 rows, "))

    reader = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches())
    assert lab.load(reader, path, if_exists="append").rows == 3
    assert view.closed.is_set()


def test_a_load_of_which_all_rows_are_known_shows_its_share(lab, path, monkeypatch):
    view = SeenView()
    monkeypatch.setattr(waiting, "make_view", lambda: view)
    give = table_load._give

    def slowly(writer, batches):
        give(writer, batches)
        wait_until(lambda: view.has_shown(f"loading the Arrow table into {path}: 2 of 2 rows, "))

    monkeypatch.setattr(table_load, "_give", slowly)
    assert lab.load(ROWS, path, start_row=1).rows == 2


def test_a_start_behind_the_last_row_is_refused_and_makes_no_table(lab, path, tmp_path):
    (tmp_path / "rows.csv").write_text("id\n1\n2\n")
    (tmp_path / "rows.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    for source in (ROWS.slice(0, 2), tmp_path / "rows.csv", tmp_path / "rows.jsonl"):
        with pytest.raises(errors.InvalidRequestError, match=r"start_row: expected at most 2, the rows of .*, found 3"):
            lab.load(source, path, start_row=3)
    assert path not in lab.tables()
    assert lab.load(tmp_path / "rows.csv", path, start_row=2).rows == 0, (
        "a load that had all but said so goes on with nothing"
    )


def test_rows_are_written_as_they_are_read(lab, path, monkeypatch):
    given, read = [], []
    monkeypatch.setattr(table_load, "_give", lambda writer, batches: given.extend(b.num_rows for b in batches))

    def batches():
        for number in range(3):
            read.append(number)
            yield pa.record_batch({"id": range(100_000)})

    lab.load(pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches()), path)
    assert max(given) <= 65_536
    assert sum(given) == 300_000
