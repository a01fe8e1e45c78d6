"""How Spark's JVM is started: without a fork that runs gRPC's handlers, and once more when it ends."""

import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fluss_lab.spark.session.class_archive import ClassArchive
from fluss_lab.spark.session.java_home import find_java
from fluss_lab.spark.session.jvm_launch import Ear, launch
from fluss_lab.spark.session.worker_placement import SparkPlacement, spark_home
from fluss_lab.testing import wait_until
from tests.unit.spark.session.java_kit import WAITS, java_home, lives, pids

ROOT = Path(__file__).parents[4]

_JAVA = """\
#!/bin/sh
case "$*" in *-version*) echo 'openjdk version "17.0.1"' >&2; exit 0;; esac
case "$*" in *org.apache.spark.launcher.Main*) exec {java} "$@";; esac
echo started "$@" >> {starts}
if [ "$(wc -l < {starts})" -le {failures} ]; then echo "no memory for $$" >&2; exit 7; fi
exec {java} "$@"
"""

#: Two threads import pyspark: whoever is in the midst of it first waits there until the other one waits for it.
_IMPORTS = """
import builtins, sys, threading
from fluss_lab.spark.session.jvm_launch import import_pyspark
from fluss_lab.testing import wait_until
main, early, is_paused = threading.main_thread(), threading.Thread(target=import_pyspark), threading.Event()
def is_blocked(thread):
    frame = sys._current_frames()[thread.ident]
    return frame.f_code.co_name == "acquire" and "importlib" in frame.f_code.co_filename
def pausing(name, *rest):
    if name == "pyspark.conf" and not is_paused.is_set():
        is_paused.set()
        if threading.current_thread() is main:
            early.start()
        wait_until(lambda: is_blocked(early if threading.current_thread() is main else main))
    return given(name, *rest)
given, builtins.__import__ = builtins.__import__, pausing
{begin}
{statement}
early.join()
import pyspark.sql.functions
assert is_paused.is_set()
"""

_START = """
import os, subprocess, sys
from pathlib import Path
forked = Path("forked")
os.register_at_fork(after_in_child=forked.touch)
from fluss_lab.errors import UnavailableError
from fluss_lab.spark.session.spark_session import spark_session
try:
    spark = spark_session(master="local[1]")
    print(spark.sparkContext.parallelize(range(3), 1).sum())
except UnavailableError as error:
    print(error)
print(forked.exists())
subprocess.run(["true"], preexec_fn=lambda: None)
print(forked.exists())
"""

_ENDS = """
from fluss_lab.errors import UnavailableError
from fluss_lab.spark.session.jvm_launch import start_session
from fluss_lab.spark.session.spark_session import session_plan, spark_session
settings, environment = session_plan("a", "local[1]", {}, None)
try:
    start_session({**settings, "spark.local.dir": "/proc/none"}, environment)
except UnavailableError as error:
    assert "while its session was made; what it said is on standard error" in str(error), error
    print(spark_session(master="local[1]").range(3).count())
"""

_KILLED = """
from pyspark import SparkContext
from fluss_lab.errors import UnavailableError
from fluss_lab.spark.session.spark_session import spark_session
given = SparkContext._initialize_context
def killing(self, conf):
    made = given(self, conf)
    SparkContext._initialize_context = given
    SparkContext._gateway.proc.kill()
    SparkContext._gateway.proc.wait()
    return made
SparkContext._initialize_context = killing
try:
    spark_session(master="local[1]")
except UnavailableError as error:
    assert "while its session was made" in str(error), error
    print(spark_session(master="local[1]").range(3).count())
"""


def start(folder, failures, archived=False):
    """Start Spark in a process of its own with a Java that fails so often; return what it said, and each call of that Java.

    Args:
        archived: Whether there is an archive of Spark's classes; it is there no more afterwards.
    """
    java, starts = folder / "jdk" / "bin" / "java", folder / "starts"
    java.parent.mkdir(parents=True)
    real = shlex.quote(str(find_java().java))
    java.write_text(_JAVA.format(java=real, starts=shlex.quote(str(starts)), failures=failures))
    java.chmod(0o700)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JAVA_HOME": str(folder / "jdk"), "TMPDIR": str(folder)}
    env["XDG_CACHE_HOME"] = str(folder / "cache")
    if archived:
        parts = SparkPlacement("local[1]", {}, None).parts(spark_home())
        archive = ClassArchive.of(spark_home(), parts, java, env)
        if archive is not None:  # the paths serve
            with archive.draft() as path:
                path.write_bytes(b"what a JVM dies of")
    done = subprocess.run(
        [sys.executable, "-c", _START], cwd=folder, env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob("fluss_lab-jvm-*"))
    assert not archived or archive is None or archive.options() is None
    # The maker of the archive starts one of its own, in the background.
    return done, [each for each in starts.read_text().splitlines() if "fluss_lab-class-archive" not in each]


@pytest.mark.parametrize("begin", ["", "early.start(); is_paused.wait()"], ids=["behind", "before"])
@pytest.mark.parametrize("statement", ["from pyspark import SparkContext", "from pyspark.sql import functions"])
def test_a_cell_imports_pyspark_while_a_start_does(statement, begin):
    code = _IMPORTS.format(begin=begin, statement=statement)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_ends_the_jvm_that_starts(tmp_path):
    # One that went on had lost the folder in which it says where it listens, and ended with a trace of Java's.
    def interrupt() -> None:
        wait_until(lambda: bool(pids(tmp_path)))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    home = java_home(tmp_path, WAITS)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            launch({"spark.master": "local[1]"}, {"JAVA_HOME": str(home)})
        assert not lives(pids(tmp_path)[0])
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)


def test_of_what_a_jvm_said_the_first_lines_are_kept_with_the_last(capfd):
    for count, first in ((3, [0, 1, 2]), (20, list(range(20))), (90, [0, 1, "...", *range(72, 90)])):
        ear = Ear(2)
        os.write(ear.descriptor, b"".join(b"%d\n" % number for number in range(count)))
        ear.close()
        assert ear.last().split() == [str(each) for each in first]
    assert len(capfd.readouterr().err.split()) == 113


@pytest.mark.slow
def test_a_jvm_that_ends_twice_is_an_error_with_what_it_said(tmp_path):
    done, starts = start(tmp_path, failures=9, archived=True)
    *error, forked, control = done.stdout.splitlines()
    assert error[0].startswith("Spark's JVM ended with 7 while it started, twice.")
    assert error[-1].startswith("  no memory for ")
    has_archive = bool(list(tmp_path.glob("cache/fluss_lab/spark-*")))
    assert ["SharedArchiveFile" in each for each in starts] == [has_archive, False]
    assert "no memory" in done.stderr
    assert (forked, control) == ("False", "True"), "the JVM was started by a fork that runs handlers"


@pytest.mark.campaign
def test_a_jvm_that_ends_while_its_session_is_made_is_an_error_of_ours(tmp_path):
    """A local folder that cannot be written ends it by `System.exit`, and py4j called that a refused connection."""
    done = subprocess.run([sys.executable, "-c", _ENDS], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    assert "Failed to create" in done.stderr


@pytest.mark.slow
def test_a_session_is_made_after_one_whose_jvm_was_killed_when_its_context_was_there():
    """pyspark kept that context, and each further session was a refused connection: a tiering service did not recover."""
    done = subprocess.run([sys.executable, "-c", _KILLED], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


@pytest.mark.campaign
def test_a_jvm_that_ends_once_is_started_again(tmp_path):
    done, starts = start(tmp_path, failures=1)
    assert done.stdout.splitlines() == ["3", "False", "True"]
    assert len(starts) == 2
