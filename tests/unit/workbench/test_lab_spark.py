"""A lab's Spark: one session, a pool for each executor, started again when it has died."""

import gc
import os
import subprocess
import sys

import pytest

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.errors import UnsupportedError
from fluss_lab.lake import lake_storage
from fluss_lab.workbench.lab_spark import LabSpark
from tests.unit.server.disks import read_only
from tests.unit.spark.session.java_kit import ENDS, WAITS, java_home, pids

pytestmark = pytest.mark.spark


@pytest.fixture
def storage(tmp_path):
    return lake_storage("iceberg", {"type": "sql", "uri": "sqlite://", "warehouse": str(tmp_path)})


@pytest.fixture
def connection():
    # Never called: where all of Spark runs here, nothing is asked.
    with Connection(lambda: ServerAddress("127.0.0.1", 1, "token"), {}) as made:
        yield made


def test_executors_beside_each_other_have_pools_of_their_own(spark, storage, connection):
    make = LabSpark(connection).executors(storage)
    held = [make() for _ in range(3)]
    pools = [each._pool for each in held]
    assert len(set(pools)) == 3
    del held[1]
    gc.collect()
    assert make()._pool == pools[1]


def test_the_session_is_the_process_s(spark, connection):
    compute = LabSpark(connection)
    assert compute.session() is spark
    assert compute.session() is spark


def test_a_master_that_is_not_the_active_session_s_is_refused(spark):
    with (
        Connection(lambda: ServerAddress("127.0.0.1", 1, "t"), {"client.spark.master": "local[7]"}) as connection,
        pytest.raises(UnsupportedError, match=r"asked for local\[7\]"),
    ):
        LabSpark(connection).session()
    with Connection(lambda: ServerAddress("127.0.0.1", 1, "t"), {}) as connection:
        compute = LabSpark(connection)
        with pytest.raises(UnsupportedError, match=r"asked for local\[8\]"):
            compute.start("local[8]", None)
        with pytest.raises(UnsupportedError, match="cannot change while it runs"):
            compute.start(None, {"spark.scheduler.mode": "FIFO"})
        assert compute.session() is spark, "what was refused counts no more"


_EXPECTED = """
import sys, threading, types
from fluss_lab.client import Connection, ServerAddress
from fluss_lab.model import make_descriptor
from fluss_lab.workbench.lab_spark import LabSpark

def begins(chosen, lake="true"):
    options = {} if chosen is None else {"client.spark.start-early": chosen}
    connection = Connection(lambda: ServerAddress("127.0.0.1", 1, "t"), options)
    compute = LabSpark(connection)
    for _ in range(2):
        compute.expect(make_descriptor({"a": "int"}, properties={"table.datalake.enabled": lake}))
    found = len([each for each in threading.enumerate() if each.name == "fluss-spark-early"])
    connection.open_resources.close()
    for each in threading.enumerate():
        if each.name == "fluss-spark-early":
            each.join()
    return found

def kernel(stdin):
    shell = types.SimpleNamespace(kernel=types.SimpleNamespace(_allow_stdin=stdin))
    sys.modules["ipykernel"] = types.ModuleType("ipykernel")
    sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)

print("script", begins(None), begins("never"), begins("always"), begins("always", "false"))
sys.ps1 = ">>> "
print("prompt", begins(None), begins("never"), begins(None, "false"))
kernel(False)
print("job", begins(None), begins("always"))
kernel(True)
print("notebook", begins("interactive"), begins("never"))
"""


def test_spark_starts_early_where_a_person_types_or_it_is_asked_for(tmp_path):
    env = {"PATH": "/nowhere", "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", _EXPECTED], env=env, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("script 0 0 1 0\nprompt 1 0 0\njob 0 1\nnotebook 1 0\n", "")


_OPENED = """
import sys
from pathlib import Path
import fluss_lab as fl
from fluss_lab.testing import wait_until
from tests.unit.spark.session.java_kit import lives, pids

def jvms(count):
    wait_until(lambda: len(pids(Path())) == count)
    return lives(pids(Path())[-1])

always, lake = {"client.spark.start-early": "always"}, {"table.datalake.enabled": True}
with fl.Lab.open("lab", config=always) as lab:
    lab.create_database("d")
    plain = lab.create_table("d.plain", {"a": "int"})
    plain.append([{"a": 1}])
    assert pids(Path()) == []
    made = lab.create_table("d.made", {"a": "int"}, properties=lake)
    assert jvms(1)
    made.append([{"a": 1}])
assert not jvms(1)
with fl.Lab.open("lab", config=always) as lab:
    assert lab.table("d.made").scan().count() == 1
    assert jvms(2)
assert not jvms(2)
with fl.Lab.open("lab", config=always) as lab:
    lab.table("d.plain").alter(set=lake)
    assert jvms(3)
assert not jvms(3)
with fl.Lab.open("lab") as lab:
    lab["d.made"].append([{"a": 2}])
print(len(pids(Path())))
"""


def test_a_table_of_the_lake_that_is_opened_made_or_enabled_starts_it_and_it_goes_with_the_lab(tmp_path):
    env = {**os.environ, "PYTHONPATH": ":".join(sys.path), "JAVA_HOME": str(java_home(tmp_path, WAITS))}
    done = subprocess.run(
        [sys.executable, "-c", _OPENED], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
    )
    assert (done.stdout, done.stderr) == ("3\n", "")


_FILLED = """
import fluss_lab as fl
with fl.Lab.open("lab", config={"server.grace": "1ms"}) as lab:
    lab.create_database("d")
    lab.create_table("d.t", {"a": "int"}, properties={"table.datalake.enabled": True}).append([{"a": 1}])
"""
_TIERED = """
import fluss_lab as fl
from fluss_lab.testing import wait_until

with fl.Lab.open("lab", config={"server.grace": "1ms"}) as lab:
    for call in (lab["d.t"].tier, lab.tier, lab["d.t"].compact):
        try:
            call()
        except fl.errors.StorageError as error:
            print(error)
    with lab.tiering_service() as service:
        wait_until(lambda: service.status().error)
        print(service.status().error)
"""


def test_a_lab_that_cannot_be_written_refuses_rounds_before_spark_is_started(tmp_path):
    """Seen: it took the seconds of Spark's start to refuse, and the JVM stayed."""
    env = {**os.environ, "PYTHONPATH": ":".join(sys.path), "JAVA_HOME": str(java_home(tmp_path, ENDS))}

    def run(text):
        words = [sys.executable, "-c", text]
        return subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)

    assert run(_FILLED).stderr == ""
    with read_only(tmp_path / "lab"):
        done = run(_TIERED)
    lines = done.stdout.splitlines()
    assert (len(lines), done.returncode) == (4, 0), done.stderr
    assert all("nothing was begun in the lake: the lab's folder" in line for line in lines)
    assert all("cannot be written" in line for line in lines)
    assert pids(tmp_path) == []
