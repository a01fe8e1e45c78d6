"""Rows as files: whole or not there, and the same rows when read back."""

import json
import math
import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from fluss_lab.cli.file_export import check_target, export_format, export_rows
from fluss_lab.errors import AlreadyExistsError, InvalidRequestError, NotFoundError, StorageError
from fluss_lab.workbench.load.csv_file import CsvFiles
from fluss_lab.workbench.load.json_file import JsonFiles
from fluss_lab.workbench.load.load_columns import ColumnPlan
from tests.unit.server.disks import read_only

TABLE = pa.table(
    {
        "i": pa.array([2**63 - 1, None]),
        "f": pa.array([0.1, math.inf]),
        "d": pa.array([Decimal("1.50"), None]),
        "s": pa.array(["", None]),
        "q": pa.array(['a"b,\nc', "ä"]),
        "b": pa.array([b"\xff", None]),
        "t": pa.array([datetime(2013, 1, 1, tzinfo=UTC), None], pa.timestamp("ms", "UTC")),
        "day": pa.array([date(2013, 1, 1), None]),
        "l": pa.array([[1, None], None]),
    }
)


class Rows:
    """Batches of a table; at the end an error, if one is given."""

    def __init__(self, table, error=None):
        self.schema = table.schema
        self._table, self._error = table, error

    def to_batches(self, rows_max):
        assert rows_max > 0
        yield from self._table.to_batches(max_chunksize=1)
        if self._error is not None:
            raise self._error


def test_parquet_is_read_back_as_it_was(tmp_path):
    assert export_rows(Rows(TABLE), tmp_path / "x", "parquet") == 2
    assert parquet.read_table(tmp_path / "x").equals(TABLE)


def test_a_null_row_with_a_not_null_field_is_written_to_parquet(tmp_path):
    row = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    # As records have it: the field is null too.
    column = pa.StructArray.from_arrays(
        [pa.array([1, None], pa.int32())], fields=list(row), mask=pa.array([False, True])
    )
    assert export_rows(Rows(pa.table({"r": column})), tmp_path / "x", "parquet") == 2
    assert parquet.read_table(tmp_path / "x").to_pylist() == [{"r": {"x": 1}}, {"r": None}]


def test_json_lines(tmp_path):
    assert export_rows(Rows(TABLE), tmp_path / "x", "json") == 2
    first, second = map(json.loads, (tmp_path / "x").read_text("utf-8").splitlines())
    assert list(first) == TABLE.column_names
    assert (first["i"], first["d"], first["b"], first["t"], first["l"]) == (
        2**63 - 1, "1.50", "/w==", "2013-01-01T00:00:00.000Z", [1, None],
    )  # fmt: skip
    assert (second["f"], second["q"], second["i"]) == ("Infinity", "ä", None)


def test_csv(tmp_path):
    assert export_rows(Rows(TABLE), tmp_path / "x", "csv") == 2
    lines = (tmp_path / "x").read_text("utf-8")
    assert lines.splitlines()[0] == ",".join(f'"{name}"' for name in TABLE.column_names)
    assert '9223372036854775807,0.1,1.50,"","a""b,\nc","/w==","2013-01-01T00:00:00.000Z",2013-01-01,"[1,null]"' in lines
    found = csv.read_csv(
        tmp_path / "x",
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(quoted_strings_can_be_null=False, strings_can_be_null=True),
    )
    assert found.select(["i", "f", "s", "q", "day"]).equals(TABLE.select(["i", "f", "s", "q", "day"]))


@pytest.mark.parametrize(
    "read", [lambda at: CsvFiles([at / "csv"], None, "utf-8", None), lambda at: JsonFiles([at / "json"])]
)
@pytest.mark.parametrize("shown", [["f", "s"], ["f"], ["s"]])
def test_texts_and_floats_are_loaded_back(tmp_path, read, shown):
    texts = ["", None, "", "nan", "NULL", " x ", 'a"b,\nc', "\r", None]
    floats = [math.inf, -math.inf, -0.0, 5e-324, 2.0, None, 1.0, None, None]
    # A NaN is not equal to itself, so it is compared by its text.
    table = pa.table({"f": [*floats, math.nan], "s": [*texts, None]}).select(shown)
    for name in ("csv", "json"):
        export_rows(Rows(table), tmp_path / name, name)
    source = read(tmp_path)
    columns = source.examine(ColumnPlan())
    found = pa.Table.from_batches(source.batches(columns))
    assert str(found.to_pylist()) == str(table.to_pylist())


@pytest.mark.parametrize("name", ["parquet", "csv", "json"])
def test_no_rows_are_a_file_too(tmp_path, name):
    assert export_rows(Rows(TABLE.slice(0, 0)), tmp_path / "x", name) == 0
    assert (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["parquet", "csv", "json"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("lost"), OSError(28, "No space left on device")])
def test_what_fails_on_its_way_leaves_what_was_there(tmp_path, name, error):
    (tmp_path / "x").write_text("before")
    with pytest.raises(StorageError if isinstance(error, OSError) else type(error)):
        export_rows(Rows(TABLE, error), tmp_path / "x", name)
    assert [each.name for each in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_text() == "before"


@pytest.mark.parametrize("name", ["parquet", "csv", "json"])
def test_what_a_killed_export_left_is_removed_by_the_next(tmp_path, name):
    (tmp_path / f".fluss-export-{'0' * 16}.tmp").write_text("half")
    export_rows(Rows(TABLE), tmp_path / "x", name)
    assert [each.name for each in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("name", ["parquet", "csv", "json"])
def test_a_folder_that_cannot_be_written_is_refused_by_the_target_s_name(tmp_path, name):
    """Seen: "[Errno 30] Read-only file system" of a hidden file that nobody had asked for."""
    (tmp_path / "out").mkdir()
    with (
        read_only(tmp_path / "out"),
        pytest.raises(StorageError, match=r"^export: .*/out/x: .*; nothing was left there"),
    ):
        export_rows(Rows(TABLE), tmp_path / "out" / "x", name)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_link_is_the_file_that_it_leads_to(tmp_path):
    (tmp_path / "there.csv").write_text("before")
    (tmp_path / "x.csv").symlink_to("there.csv")
    (tmp_path / "nowhere.csv").symlink_to("gone.csv")
    assert check_target(tmp_path / "x.csv", overwrite=True) == tmp_path / "there.csv"
    assert check_target(tmp_path / "nowhere.csv", overwrite=True) == tmp_path / "nowhere.csv"
    with pytest.raises(AlreadyExistsError):
        check_target(tmp_path / "x.csv", overwrite=False)


def test_the_format_is_that_of_the_name_unless_it_is_given():
    names = {"a.parquet": "parquet", "a.pq": "parquet", "a.CSV": "csv", "a.json": "json", "a.x.jsonl": "json"}
    assert {name: export_format(Path(name), None) for name in names} == names
    assert export_format(Path("a.csv"), "json") == "json"
    for name in ("a", "a.txt", ".csv", "a.csv.gz"):
        with pytest.raises(InvalidRequestError, match="--format"):
            export_format(Path(name), None)


def test_a_file_that_cannot_be_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").write_text("")
    (tmp_path / "dead").symlink_to("nowhere")
    for path, kind in (
        (".", AlreadyExistsError), ("there", AlreadyExistsError), ("dead", AlreadyExistsError), ("/", InvalidRequestError),
        ("none/x", NotFoundError), ("there/x", NotFoundError), ("..", AlreadyExistsError), ("a" * 300, InvalidRequestError),
        ("a\0b", InvalidRequestError), ("~nobody_of_this_name/x", InvalidRequestError),
    ):  # fmt: skip
        with pytest.raises((kind, AlreadyExistsError, InvalidRequestError), match=r"^export: "):
            check_target(Path(path), overwrite=False)
    assert check_target(Path("there"), overwrite=True) == tmp_path / "there"
    os.mkfifo("pipe")
    Path("link").symlink_to("pipe")
    for path in ("pipe", "link", "/dev/null"):
        with pytest.raises(InvalidRequestError, match="a device, a pipe or a socket"):
            check_target(Path(path), overwrite=True)
    with pytest.raises(AlreadyExistsError, match="is a folder"):
        check_target(tmp_path, overwrite=True)
