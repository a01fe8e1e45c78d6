"""Rows handed on: Arrow's C stream, Parquet files, DuckDB."""

import os
import random
import resource
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from fluss_lab import errors, files
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read import row_export
from fluss_lab.read.row_export import arrow_stream, duckdb_relation, write_parquet
from fluss_lab.read.table_reader import TableReader
from tests.unit.display.card_rules import check_card

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


class Rows:
    """A read of so many rows; `error` comes after them."""

    schema = SCHEMA

    def __init__(self, count, error=None, batch=10):
        self.count, self.error, self.batch = count, error, batch
        self.yielded = 0

    def to_batches(self, rows_max):
        for start in range(0, self.count, self.batch):
            ids = list(range(start, min(self.count, start + self.batch)))
            self.yielded += 1
            yield pa.record_batch([pa.array(ids, pa.int64()), pa.array(map(str, ids), pa.string())], schema=SCHEMA)
        if self.error is not None:
            raise self.error

    def __arrow_c_stream__(self, requested_schema=None):
        return arrow_stream(self, requested_schema)


def ids_of(path):
    return ds.dataset(path).to_table()["id"].to_pylist()


# -- Arrow's C stream ------------------------------------------------------------------------------------------------


def test_a_stream_is_read_as_it_is_asked_for():
    rows = Rows(100)
    reader = pa.RecordBatchReader.from_stream(rows)
    assert (reader.schema, rows.yielded) == (SCHEMA, 0)
    assert reader.read_next_batch().num_rows == 10
    assert rows.yielded <= 2
    assert reader.read_all().num_rows == 90


def test_a_schema_that_is_requested_is_given_or_refused():
    wanted = pa.schema([("id", pa.int32()), ("name", pa.large_string())])
    assert pa.RecordBatchReader.from_stream(Rows(3), schema=wanted).read_all().schema == wanted
    for other in (
        [("name", pa.string())],
        [("x", pa.int64()), ("name", pa.string())],
        [("id", pa.list_(pa.int64())), ("name", pa.string())],
    ):
        with pytest.raises(errors.InvalidSchemaError, match=r"id int64, name string"):
            pa.RecordBatchReader.from_stream(Rows(3), schema=pa.schema(other))


def test_an_error_ends_the_stream_and_is_reported():
    reader = pa.RecordBatchReader.from_stream(Rows(10, errors.OffsetOutOfRangeError("no longer available")))
    with pytest.raises(pa.ArrowException, match="no longer available"):
        reader.read_all()


def test_scans_and_changelogs_are_streams(make_table):
    table = make_table(partitioned=False)
    table.append_random(random.Random(1), 20, ["2013-01"])
    reader = table.reader()
    names = ["id", "dest"]  # floats are not equal when they are none
    for read in (reader.scan(columns=names), reader.changelog(columns=names)):
        assert pa.schema(read) == read.schema
        assert pa.RecordBatchReader.from_stream(read).read_all() == read.to_arrow()
        assert pa.table(read) == read.to_arrow()
    scan = reader.scan(columns=names)
    before = pa.table(scan)
    table.append_random(random.Random(2), 5, ["2013-01"])
    assert pa.table(scan) == before, "a scan is of one moment"
    relation = scan.to_duckdb()
    assert [relation.count("*").fetchone() for _ in range(2)] == [(20,), (20,)]
    assert duckdb.sql("select count(*) from scan").fetchone() == (20,)


def test_polars_takes_a_stream():
    polars = pytest.importorskip(
        "polars", reason="a reader of the stream that the lock does not have: pip install polars"
    )
    rows = Rows(25)
    frame = polars.DataFrame(rows)
    assert frame.to_dict(as_series=False) == {"id": list(range(25)), "name": [str(number) for number in range(25)]}
    # Its `from_arrow` makes one column of whatever is no Arrow table of pyarrow's own.
    assert polars.from_arrow(rows).struct.unnest().equals(frame)
    assert polars.DataFrame(Rows(0)).schema == {"id": polars.Int64, "name": polars.String}
    with pytest.raises(polars.exceptions.ComputeError, match="no longer available"):
        polars.DataFrame(Rows(10, errors.OffsetOutOfRangeError("no longer available")))


# -- DuckDB ----------------------------------------------------------------------------------------------------------


def test_a_relation_reads_whenever_it_is_executed():
    rows = Rows(100)
    with duckdb.connect() as connection:
        relation = duckdb_relation(rows, connection)
        assert [relation.sum("id").fetchone() for _ in range(2)] == [(4950,), (4950,)]
        assert relation.filter("id < 5").count("*").fetchone() == (5,)
    with pytest.raises(errors.InvalidRequestError, match="expected a DuckDB connection"):
        duckdb_relation(rows, "here")


def test_without_duckdb_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(errors.UnsupportedError, match="pip install duckdb"):
        duckdb_relation(Rows(1), None)


# -- Parquet ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 95])
@pytest.mark.parametrize("rows_per_file", [None, 1, 10, 7, 1000])
def test_a_folder_has_all_rows_in_order(tmp_path, count, rows_per_file):
    written = write_parquet(Rows(count), tmp_path / "out", rows_per_file=rows_per_file)
    assert ids_of(tmp_path / "out") == list(range(count))
    sizes = [pq.read_metadata(path).num_rows for path in written.paths]
    assert written.rows == sum(sizes) == count
    assert len(sizes) == max(1, -(-count // (rows_per_file or max(count, 1))))
    assert all(size == rows_per_file for size in sizes[:-1])
    assert written.size_bytes == sum(path.stat().st_size for path in written.paths)


def test_what_was_written_shows_itself(tmp_path):
    made = write_parquet(Rows(300), tmp_path / "<img src=x>", rows_per_file=20)
    shown = check_card(made._repr_html_())
    assert all((path.name in shown.text) == (path in made.paths[:10]) for path in made.paths)
    assert "300" in shown.text
    assert "10 of 15 files" in shown.text


def test_a_file_is_a_file(tmp_path):
    written = write_parquet(Rows(25), str(tmp_path / "a.parquet"))
    assert written.paths == (tmp_path / "a.parquet",)
    assert pq.read_table(tmp_path / "a.parquet").schema == SCHEMA
    assert "25 rows" in repr(written)
    with pytest.raises(errors.InvalidRequestError, match="rows_per_file is for a folder"):
        write_parquet(Rows(25), tmp_path / "b.parquet", rows_per_file=3)


@pytest.mark.parametrize("key", [[], ["id"]])
def test_null_rows_with_not_null_fields_are_written(cluster, numbers, tmp_path, key):
    row, connection = "row<x int not null, y binary(3) not null>", cluster.connection
    path = TablePath("db", f"exported{next(numbers)}")
    definition = make_descriptor({"id": "int", "r": row, "a": f"array<{row}>"}, primary_key=key)
    connection.admin().create_table(path, definition)
    some = {"x": 1, "y": b"abc"}
    given = [{"id": 1, "r": None, "a": None}, {"id": 2, "r": some, "a": [some, None]}]
    with connection.upsert_writer(path) if key else connection.append_writer(path) as writer:
        (writer.upsert if key else writer.append)(given)
    connection.admin().alter_table(path, add_columns={"late": row})
    write_parquet(TableReader(connection, path).scan(), tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == [each | {"late": None} for each in given]


@pytest.mark.parametrize("name", ["a.parquet", "out"])
def test_what_is_there_is_replaced_only_when_asked_for(tmp_path, name):
    write_parquet(Rows(25), tmp_path / name)
    with pytest.raises(errors.AlreadyExistsError, match="overwrite=True"):
        write_parquet(Rows(3), tmp_path / name)
    assert ids_of(tmp_path / name) == list(range(25))
    write_parquet(Rows(3), tmp_path / name, overwrite=True)
    assert ids_of(tmp_path / name) == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["a.parquet", "out"])
@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), errors.CorruptDataError("x")])
def test_nothing_half_written_is_left(tmp_path, name, error, overwrite):
    if overwrite:
        write_parquet(Rows(25), tmp_path / name)
    with pytest.raises(type(error)):
        write_parquet(Rows(50, error), tmp_path / name, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ([name] if overwrite else [])
    assert not overwrite or ids_of(tmp_path / name) == list(range(25))


@pytest.mark.parametrize("step", ["fsync_path", "replace"])
@pytest.mark.parametrize("name", ["a.parquet", "out"])
def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch, name, step):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, step, refuse)
    with pytest.raises(errors.StorageError, match="No space left on device; nothing was left"):
        write_parquet(Rows(50), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("", errors.InvalidRequestError), ("a\0b", errors.InvalidRequestError), ("/", errors.InvalidRequestError),
        ("{0}/nowhere/a", errors.NotFoundError), ("{0}/file/a", errors.NotFoundError), ("{0}/..", errors.InvalidRequestError),
        ("{0}/" + "x" * 300, errors.InvalidRequestError), ("{0}/file", errors.AlreadyExistsError),
        ("{0}/full", errors.AlreadyExistsError), ("{0}/dir.parquet", errors.AlreadyExistsError), ("{0}/link", errors.AlreadyExistsError),
    ],
)  # fmt: skip
def test_what_is_not_ours_is_never_replaced(tmp_path, path, error):
    (tmp_path / "file").write_text("mine")
    for name in ("full", "dir.parquet"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part-00000.parquet").write_text("mine")
        (tmp_path / name / "notes.txt").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    before = sorted(each.relative_to(tmp_path) for each in tmp_path.rglob("*"))
    with pytest.raises(error):
        write_parquet(Rows(3), path.format(tmp_path), overwrite=True)
    assert sorted(each.relative_to(tmp_path) for each in tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "mine"


def test_a_path_that_names_no_place_is_refused_in_words(tmp_path, monkeypatch):
    with pytest.raises(errors.InvalidRequestError, match="there is no such user"):
        write_parquet(Rows(1), "~nobody-of-this-name/x.parquet")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(errors.InvalidRequestError, match="the working directory of this process was removed"):
        write_parquet(Rows(1), "x.parquet")
    assert write_parquet(Rows(1), tmp_path / "x.parquet").rows == 1


def test_memory_is_of_a_row_group(tmp_path):
    assert row_export.ROW_GROUP_ROWS < 1 << 17
    rows = Rows(1000, batch=100)
    pieces = row_export._Pieces(rows.to_batches(100))
    next(pieces.take(10))
    assert rows.yielded == 1


def test_a_folder_is_there_all_the_time_that_it_is_replaced(tmp_path, monkeypatch):
    out = tmp_path / "out"
    write_parquet(Rows(25), out)
    seen = []
    for step in ("replace", "open"):  # between two of these a process may be killed
        real = getattr(os, step)

        def look(*given, real=real, **named):
            seen.append(out.is_dir())
            return real(*given, **named)

        monkeypatch.setattr(os, step, look)
    write_parquet(Rows(7), out, rows_per_file=3, overwrite=True)
    assert seen
    assert all(seen)
    assert ids_of(out) == list(range(7))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_nothing_is_left_where_a_process_has_too_many_files_open(tmp_path):
    held = []

    class Greedy(Rows):
        def to_batches(self, rows_max):
            for number, batch in enumerate(super().to_batches(rows_max)):
                yield batch
                if number == 3:
                    with suppress(OSError):
                        while True:
                            held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        with pytest.raises(errors.StorageError, match="Too many open files; nothing was left there"):
            write_parquet(Greedy(95), tmp_path / "out", rows_per_file=10)
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_no_file_of_that_name(tmp_path):
    code = (
        "import sys, os, signal\n"
        "from tests.unit.read.test_row_export import Rows, write_parquet\n"
        "class Dying(Rows):\n"
        "    def to_batches(self, rows_max):\n"
        "        yield from super().to_batches(rows_max)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_parquet(Dying(1000), sys.argv[1])\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a.parquet"], cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    assert [path.name[0] for path in tmp_path.iterdir()] == ["."]
    write_parquet(Rows(3), tmp_path / "b.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["b.parquet"]


@pytest.mark.parametrize("name", ["a.parquet", "out"])
def test_an_export_removes_what_killed_ones_left_and_nothing_that_is_being_written(tmp_path, name):
    left = [tmp_path / f".fluss-export-{number:016x}.tmp" for number in range(2)]
    left[0].write_bytes(b"half")
    left[1].mkdir()
    (left[1] / "part-00000.parquet").write_bytes(b"half")
    others = [tmp_path / ".fluss-export-mine.tmp", tmp_path / "notes.tmp"]
    for each in others:
        each.write_text("mine")

    class Watched(Rows):
        def to_batches(self, rows_max):
            assert not any(each.exists() for each in left)
            write_parquet(Rows(2), tmp_path / "inner", overwrite=True)
            yield from super().to_batches(rows_max)
            write_parquet(Rows(2), tmp_path / "inner.parquet", overwrite=True)

    write_parquet(Watched(25), tmp_path / name)
    assert ids_of(tmp_path / name) == list(range(25))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {name, "inner", "inner.parquet", *(each.name for each in others)}


@pytest.mark.parametrize("name", ["a.parquet", "out"])
def test_a_link_is_written_through(tmp_path, name):
    """Seen: of a link to a folder the old rows stayed there, and a hidden link beside it."""
    (tmp_path / "there").mkdir()
    write_parquet(Rows(25), tmp_path / "there" / name)
    (tmp_path / name).symlink_to(tmp_path / "there" / name)
    with pytest.raises(errors.AlreadyExistsError, match="overwrite=True"):
        write_parquet(Rows(3), tmp_path / name)
    done = write_parquet(Rows(3), tmp_path / name, overwrite=True)
    assert (tmp_path / name).is_symlink()
    assert ids_of(tmp_path / "there" / name) == [0, 1, 2]
    assert all(path.is_relative_to(tmp_path / "there") for path in done.paths)
    assert {path.name for path in tmp_path.iterdir()} == {"there", name}
    assert [path.name for path in (tmp_path / "there").iterdir()] == [name]


def test_two_that_write_one_path_leave_one_of_them_whole(tmp_path):
    threads = [
        threading.Thread(target=write_parquet, args=(Rows(count), tmp_path / "a.parquet"), kwargs={"overwrite": True})
        for count in (50, 60)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids_of(tmp_path / "a.parquet")) in {50, 60}
