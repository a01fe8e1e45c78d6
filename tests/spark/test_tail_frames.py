"""The files in which Spark finds the log's part of frames: what is in them, how long they last, and when there is none."""

import gc
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from fluss_lab.client import Connection
from fluss_lab.model.config.options import SPARK_TAIL_FILE_SIZE_MAX
from fluss_lab.read.table_reader import TableReader
from fluss_lab.spark.source import tail_files as tails
from fluss_lab.spark.source.table_frame import changelog_to_spark, scan_to_spark
from fluss_lab.spark.source.tail_files import tail_files
from fluss_lab.testing import wait_until
from tests.unit.read.kit import SYSTEM, ModelTable, rows_of, same

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
COLUMNS = ["id", "month", "delay", "ratio", "dest", *SYSTEM]
ORDER = [("month", "ascending"), ("__bucket", "ascending"), ("__offset", "ascending")]
BY_TASKS = "fluss_lab_log"
SIZE_MAX = SPARK_TAIL_FILE_SIZE_MAX.default
#: A driver that makes a frame, and ends as it is told to.
DRIVER = """
import sys, pyarrow as pa
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.spark.session.spark_session import spark_session
from fluss_lab.spark.source.table_frame import scan_to_spark
from fluss_lab.spark.source.tail_files import tail_files
from fluss_lab.testing import EmbeddedCluster

if __name__ == "__main__":
    session = spark_session(master="local[1]", class_archive=False)
    with EmbeddedCluster() as cluster:
        admin, path = cluster.connection.admin(), TablePath("db", "t")
        admin.create_database("db")
        admin.create_table(path, make_descriptor({"id": "int"}))
        with cluster.connection.append_writer(path) as writer:
            writer.append(pa.table({"id": pa.array([1, 2], pa.int32())}))
        frame = scan_to_spark(session, TableReader(cluster.connection, path).scan())
        assert frame.count() == 2
        (file,) = tail_files(session.sparkContext)._files
        print(file.path, flush=True)
        sys.stdin.readline()
        session.stop()
        print(file.path.exists(), flush=True)
"""


@pytest.fixture(scope="module")
def flights(cluster, clock):
    """A table with rows in the lake, and in the log."""
    table = ModelTable(cluster, clock, "flights")
    rng = random.Random(8)
    table.append_random(rng, 200, ["2013-01", "2013-02"])
    table.tier()
    table.append_random(rng, 90, ["2013-02", "2013-03"])
    return table


@pytest.fixture
def files(spark):
    """What keeps track of the files."""
    found = tail_files(spark.sparkContext)
    assert found is not None
    return found


@pytest.fixture
def made(files):
    """Returns the files that were made in the test and are there yet: the JVM holds on to some plan of an earlier one."""
    before = {each.path for each in files._files}
    left = set(files._folder.iterdir())

    def found():
        new = [each for each in files._files if each.path not in before]
        assert {each.path for each in new if each.path.exists()} == set(files._folder.iterdir()) - left
        return new

    return found


def plan_of(frame):
    return frame._jdf.queryExecution().toString()


def rows(frame):
    return rows_of(frame.toArrow().sort_by(ORDER))


@pytest.fixture
def reader_with(cluster, flights):
    """Returns a reader of the table by a connection with the option's value."""
    made = []

    def reader(size_max):
        options = {"client.spark.tail-file-size-max": size_max}
        made.append(Connection(lambda: cluster.address, options))
        return TableReader(made[-1], flights.path)

    yield reader
    for each in made:
        each.close()


def test_the_lake_and_a_small_tail_are_one_scan(spark, flights):
    frame = scan_to_spark(spark, flights.reader().scan(COLUMNS))
    physical = plan_of(frame).split("== Physical Plan ==")[1]
    assert physical.count("FileScan parquet") == 1
    assert BY_TASKS not in physical
    same(rows(frame), flights.expected(flights.ends))


def test_lake_and_log_are_distinguished(spark, flights):
    scan = flights.reader().scan(COLUMNS, with_source=True)
    frame = scan_to_spark(spark, scan)
    assert BY_TASKS not in plan_of(frame)
    same(rows(frame), rows_of(scan.to_arrow().sort_by(ORDER)))
    assert {row["_source"]: row["count"] for row in frame.groupBy("_source").count().collect()} == {
        "lake": 200,
        "log": 90,
    }


def test_a_table_that_is_all_in_the_log_is_one_file(spark, cluster, clock, made):
    table = ModelTable(cluster, clock, "unlaked")
    table.append_random(random.Random(2), 60, ["2013-01"])
    frame = scan_to_spark(spark, table.reader().scan(COLUMNS))
    assert BY_TASKS not in plan_of(frame)
    same(rows(frame), table.expected(table.ends))
    (file,) = made()
    assert [field.metadata for field in file.fields] == [{}] * len(COLUMNS)


def test_the_file_has_the_rows_of_the_read_point_whatever_comes_and_goes(spark, cluster, clock):
    table = ModelTable(cluster, clock, "moving", partitioned=False)
    rng = random.Random(3)
    table.append_random(rng, 80, ["2013-01"])
    table.tier()
    table.append_random(rng, 40, ["2013-01"])
    point, ends = table.reader().read_point(), dict(table.ends)
    table.append_random(rng, 30, ["2013-01"])
    frame = scan_to_spark(spark, table.reader().scan(COLUMNS, read_point=point))
    expected = table.expected(ends)
    same(rows(frame), expected)
    table.append_random(rng, 30, ["2013-01"])
    table.tier()
    table.expire()
    same(rows(frame), expected)
    cluster.connection.admin().drop_table(table.path, lake=False)
    same(rows(frame), expected)


def test_a_changelog_s_end_is_in_a_file_too(spark, flights):
    log = flights.reader().changelog()
    frame = changelog_to_spark(spark, log)
    assert BY_TASKS not in plan_of(frame)
    order = [(name, "ascending") for name in ("_partition", "_bucket", "_log_offset")]
    same(rows_of(frame.toArrow().sort_by(order)), rows_of(log.to_arrow().sort_by(order)))


@pytest.mark.parametrize("size_max", ["0b", "1kb"])
def test_what_is_more_than_the_option_allows_is_read_by_tasks(spark, flights, made, reader_with, size_max):
    frame = scan_to_spark(spark, reader_with(size_max).scan(COLUMNS))
    assert BY_TASKS in plan_of(frame)
    assert made() == []
    same(rows(frame), flights.expected(flights.ends))


def test_what_is_many_records_is_read_by_tasks(spark, flights, monkeypatch):
    for most, in_file in ((90, True), (89, False)):
        monkeypatch.setattr(tails, "TAIL_RECORDS_MAX", most)
        frame = scan_to_spark(spark, flights.reader().scan(COLUMNS))
        assert (BY_TASKS not in plan_of(frame)) is in_file
        same(rows(frame), flights.expected(flights.ends))


def test_a_full_disk_leaves_nothing_and_tasks_read(spark, flights, made):
    """By the limit of file size: a short write, then an error, as a full disk answers."""
    import resource
    import signal

    scan = flights.reader().scan(COLUMNS)
    scan.plan()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
        frame = scan_to_spark(spark, scan)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)
    assert BY_TASKS in plan_of(frame)
    assert made() == []
    same(rows(frame), flights.expected(flights.ends))


def test_files_go_when_no_plan_has_them_and_room_is_needed(spark, flights, files, made, monkeypatch):
    """What is made of a frame has its file: a view, a cached frame, one behind a filter."""
    frame = scan_to_spark(spark, flights.reader().scan(COLUMNS))
    frame.createOrReplaceTempView("kept_flights")
    filtered = scan_to_spark(spark, flights.reader().scan(COLUMNS)).where("delay > 60")
    cached = scan_to_spark(spark, flights.reader().scan(["id"])).cache()
    count = filtered.count()
    passing = scan_to_spark(spark, flights.reader().scan(["dest"]))
    paths = [each.path for each in made()]
    assert len(paths) == 4
    assert passing.count() == cached.count() == 290
    del frame, passing

    def is_removed():
        gc.collect()
        monkeypatch.setattr(tails, "FILES_SIZE_MAX", SIZE_MAX + sum(each.size_bytes for each in files._files) - 1)
        files._taken = SIZE_MAX
        assert scan_to_spark(spark, flights.reader().scan(["id"])).count() == 290
        return not paths[3].exists()

    wait_until(is_removed)
    assert [path.exists() for path in paths] == [True, True, True, False]
    assert spark.table("kept_flights").count() == cached.count() == 290
    assert filtered.count() == count
    spark.catalog.dropTempView("kept_flights")
    cached.unpersist()


def test_where_all_files_are_in_use_tasks_read(spark, flights, made, monkeypatch):
    first = scan_to_spark(spark, flights.reader().scan(COLUMNS))
    monkeypatch.setattr(tails, "FILES_SIZE_MAX", SIZE_MAX)
    for _ in range(3):
        frame = scan_to_spark(spark, flights.reader().scan(COLUMNS))
        assert BY_TASKS in plan_of(frame)
        same(rows(frame), flights.expected(flights.ends))
    same(rows(first), flights.expected(flights.ends))
    assert len(made()) == 1


@pytest.mark.parametrize("damage", [None, b"", b"cut"])
def test_a_file_that_is_gone_or_damaged_is_an_error_and_not_fewer_rows(spark, flights, made, damage):
    frame = scan_to_spark(spark, flights.reader().scan(COLUMNS))
    (file,) = made()
    data = file.path.read_bytes()
    if damage is None:
        file.path.unlink()
    else:
        file.path.write_bytes(damage and data[: len(data) // 2])
    with pytest.raises(Py4JJavaError, match=f"FAILED_READ_FILE.*{file.path.name}"):
        frame.collect()
    with pytest.raises(Py4JJavaError, match=f"FAILED_READ_FILE.*{file.path.name}"):
        frame.count()
    same(rows(scan_to_spark(spark, flights.reader().scan(COLUMNS))), flights.expected(flights.ends))


@pytest.mark.parametrize(
    "run",
    [
        lambda frame: frame.collect(),
        lambda frame: frame.toArrow(),
        lambda frame: list(frame.toLocalIterator()),
        lambda frame: frame.rdd.count(),
    ],
    ids=["collect", "toArrow", "toLocalIterator", "rdd"],
)
def test_a_frame_whose_file_is_gone_says_so_in_a_paragraph(spark, flights, made, run):
    frame = scan_to_spark(spark, flights.reader().scan(COLUMNS))
    made()[0].path.unlink()
    with pytest.raises(PySparkException, match=r"FAILED_READ_FILE.*make the frame anew") as raised:
        run(frame)
    assert "\tat " not in str(raised.value)
    assert "awaitResult" not in str(raised.value)
    assert raised.value.getCondition() == "FAILED_READ_FILE.FILE_NOT_EXIST"
    assert "\n" not in str(raised.value)
    assert str(raised.value) in "\n".join(raised.value._render_traceback_())


def test_other_errors_of_java_stay_what_they_are(spark):
    with pytest.raises(Py4JJavaError, match="Checkpoint directory") as raised:
        spark.range(1).checkpoint()
    assert not isinstance(raised.value, PySparkException)


def test_a_page_that_is_not_what_was_written_is_an_error(spark, flights, made):
    frame = scan_to_spark(spark, flights.reader().scan(["dest"]))
    (file,) = made()
    data, chunk = bytearray(file.path.read_bytes()), pq.read_metadata(file.path).row_group(0).column(0)
    data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    file.path.write_bytes(bytes(data))
    with pytest.raises(Py4JJavaError, match=f"FAILED_READ_FILE.*{file.path.name}"):
        frame.collect()


def test_frames_made_at_once_have_a_file_each(spark, flights, made):
    with ThreadPoolExecutor(4) as pool:
        frames = list(pool.map(lambda _: scan_to_spark(spark, flights.reader().scan(COLUMNS)), range(8)))
    assert len({each.path for each in made()}) == 8
    for frame in frames:
        same(rows(frame), flights.expected(flights.ends))


def test_a_folder_that_is_gone_leaves_the_reading_to_tasks(spark, flights, files, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_folder", tmp_path / "cleaned")
    frame = scan_to_spark(spark, flights.reader().scan(COLUMNS))
    assert BY_TASKS in plan_of(frame)
    same(rows(frame), flights.expected(flights.ends))


def test_the_folder_is_one_that_spark_removes(spark, files):
    jvm = spark.sparkContext._jvm
    assert files._folder.parent == Path(jvm.org.apache.spark.SparkFiles.getRootDirectory())


@pytest.mark.slow
@pytest.mark.parametrize("kills", [False, True], ids=["stopped", "killed"])
def test_the_files_go_with_spark_also_when_its_driver_is_killed(tmp_path, kills):
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        path = Path(driver.stdout.readline().strip())
        assert path.is_file()
        if kills:
            driver.kill()
            wait_until(lambda: not path.parent.exists())
        else:
            assert driver.communicate("\n", timeout=120)[0].strip() == "False"
            assert not path.parent.exists()
    finally:
        driver.kill()
        driver.communicate()
