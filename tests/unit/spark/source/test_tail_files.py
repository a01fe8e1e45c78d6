"""Files of the log's tails, without a JVM: what is written, who may read it, how many there may be."""

import stat
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T  # noqa: N812

from fluss_lab.spark.source import tail_files as tails
from fluss_lab.spark.source.tail_files import FIELD_ID, TailFiles, tail_files

FIELDS = T.StructType(
    [
        T.StructField("id", T.LongType(), True, {FIELD_ID: 7}),
        T.StructField("dest", T.StringType(), True, {}),
    ]
)
SCHEMA = pa.schema([("id", pa.int64()), ("dest", pa.string())])
SIZE_MAX = 10_000


class Plan:
    """A plan of the JVM, as a weak reference of its sees it."""

    def __init__(self):
        self.lives = True

    def refersTo(self, _nothing):  # noqa: N802  # Java's name
        return not self.lives


@pytest.fixture
def asked():
    """How often the JVM was asked to collect its garbage."""
    return []


@pytest.fixture
def files(tmp_path, asked):
    return TailFiles(tmp_path, lambda: asked.append(1))


def batch(first, count):
    ids = range(first, first + count)
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array([f"n{n}" for n in ids])], schema=SCHEMA)


def made(files, size_max=SIZE_MAX, count=100):
    """Write a file that a plan has then; return both, None for none."""
    plan = Plan()
    with files.new(FIELDS, size_max) as file:
        if file is None:
            return None, None
        assert file.write(iter([batch(0, count)]), count)
        file._plan = plan
    return file, plan


def left(files):
    return sorted(files._folder.iterdir())


def test_a_file_has_the_rows_their_ids_and_the_sums_of_its_pages(files):
    file, _ = made(files)
    found = pq.read_table(file.path)
    assert found.to_pylist() == batch(0, 100).to_pylist()
    schema = pq.read_schema(file.path)
    assert [field.metadata for field in schema] == [{b"PARQUET:field_id": b"7"}, None]
    assert file.size_bytes == file.path.stat().st_size
    assert pq.read_metadata(file.path).row_group(0).column(0).statistics is None
    pq.read_table(file.path, page_checksum_verification=True)


def test_file_and_folder_are_of_this_user_only(files):
    file, _ = made(files)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(files._folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("records", [None, 1_000])
def test_a_file_does_not_become_larger_than_it_may(files, records):
    read = []

    def batches():
        for number in range(10):
            read.append(number)
            yield batch(100 * number, 100)

    with files.new(FIELDS, 5_000) as file:
        assert not file.write(batches(), records)
    assert left(files) == []
    # Where the number of records is known, the first of them say that all are too many.
    assert read == ([0] if records else [0, 1, 2, 3])


def test_a_file_that_no_frame_was_made_of_goes(files):
    with files.new(FIELDS, SIZE_MAX) as file:
        assert file.write(iter(()), 0)
        assert left(files) == [file.path]
    assert left(files) == []
    assert files._files == []


@pytest.mark.parametrize("amid", [True, False])
def test_an_interrupt_leaves_nothing(files, amid):
    def batches():
        yield batch(0, 10)
        if amid:
            raise KeyboardInterrupt

    def interrupted():
        with files.new(FIELDS, SIZE_MAX) as file:
            file.write(batches(), None)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert left(files) == []
    assert files._files == []


def test_files_in_use_stay_and_others_make_room(files, asked, monkeypatch):
    first, _ = made(files)
    second, plan = made(files)
    monkeypatch.setattr(tails, "FILES_SIZE_MAX", first.size_bytes + second.size_bytes + SIZE_MAX - 1)
    assert made(files) == (None, None)
    assert left(files) == sorted([first.path, second.path])
    plan.lives = False
    third, _ = made(files)
    assert left(files) == sorted([first.path, third.path])
    assert asked


def test_the_jvm_is_not_asked_again_and_again_to_collect(files, asked, monkeypatch):
    file, _ = made(files)
    monkeypatch.setattr(tails, "FILES_SIZE_MAX", file.size_bytes + SIZE_MAX - 1)
    for _ in range(5):
        assert made(files) == (None, None)
    assert len(asked) == 1


@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "spark://host:7077", "local-cluster[2,1,1024]", "yarn"])
def test_there_are_none_where_executors_are_other_processes(master):
    assert tail_files(SimpleNamespace(master=master)) is None


def test_a_context_whose_folder_is_gone_has_none(tmp_path):
    root = SimpleNamespace(getRootDirectory=lambda: str(tmp_path / "gone"))
    jvm = SimpleNamespace(
        org=SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(SparkFiles=root))),
        java=SimpleNamespace(lang=SimpleNamespace(System=SimpleNamespace(gc=None))),
    )
    assert tail_files(SimpleNamespace(master="local[2]", _jvm=jvm)) is None
