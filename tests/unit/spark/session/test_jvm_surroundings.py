"""What a JVM of Spark's takes over from the environment: what cannot be is refused before it starts, by name."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from fluss_lab.errors import InvalidPropertyError, StorageError
from fluss_lab.spark.session.jvm_surroundings import (
    check_local_dirs,
    check_temporary_files,
    decisive_variables,
    submit_arguments,
    temp_options,
)
from tests.unit.server.disks import fill, small_disk

SETTINGS = {"spark.master": "local[2]"}
PLACE = ["--master", "local[2]", "--deploy-mode", "client", "--conf", "spark.master=local[2]"]


@pytest.mark.parametrize(
    ("given", "kept", "said"),
    [
        ("--conf a=b --jars 'x y.jar' pyspark-shell rest", ["--conf", "a=b", "--jars", "x y.jar"], ""),
        ("--master yarn --conf a=b pyspark-shell rest", ["--conf", "a=b"], "--master yarn, which is not used"),
        ("--deploy-mode=cluster --remote sc://h pyspark-shell rest", [], "--remote sc://h, which is not used"),
        ("--master local[2] --deploy-mode client pyspark-shell rest", [], ""),
    ],
)
def test_a_person_s_arguments_are_kept_and_say_not_where_spark_runs(given, kept, said, caplog):
    assert submit_arguments({"PYSPARK_SUBMIT_ARGS": given}, SETTINGS) == [*kept, *PLACE, "pyspark-shell", "rest"]
    assert said in caplog.text
    assert bool(said) == bool(caplog.text)


def test_arguments_that_start_no_pyspark_are_refused():
    assert submit_arguments({}, SETTINGS) == [*PLACE, "pyspark-shell"]
    for wrong in ("", "--conf a=b", "--conf 'a=b pyspark-shell"):
        with pytest.raises(InvalidPropertyError, match="PYSPARK_SUBMIT_ARGS: "):
            submit_arguments({"PYSPARK_SUBMIT_ARGS": wrong}, SETTINGS)


def test_one_of_spark_s_folders_for_files_can_be_written(tmp_path):
    (tmp_path / "file").touch()
    bad, good = str(tmp_path / "file" / "x"), str(tmp_path / "made" / "here")
    check_local_dirs({}, {})
    check_local_dirs({"SPARK_LOCAL_DIRS": f"{bad},{good}"}, {"spark.local.dir": bad})
    assert Path(good).is_dir()
    assert not list(Path(good).iterdir())
    for env, settings in (({"SPARK_LOCAL_DIRS": bad}, {"spark.local.dir": good}), ({}, {"spark.local.dir": bad})):
        name = "SPARK_LOCAL_DIRS" if env else "spark.local.dir"
        with pytest.raises(StorageError, match=f"{name}: Spark can write no folder of it .*Not a directory.*unset it"):
            check_local_dirs(env, settings)


_LIMITED = """
import resource, sys
from pathlib import Path
from fluss_lab.errors import ResourceExhaustedError
from fluss_lab.spark.session.jvm_surroundings import check_open_files

for count in (700, 300):
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, count))
    for home in (Path(sys.argv[1]), None):
        try:
            print(check_open_files(home))
        except ResourceExhaustedError as error:
            print(error)
"""


def test_too_few_open_files_for_a_jvm_are_said_before_it_starts(tmp_path):
    """Seen: two traces of Java's ("check your installation"), and an error that asked whether there is memory left."""
    (tmp_path / "jars").mkdir()
    for number in range(280):
        (tmp_path / "jars" / f"{number}.jar").touch()
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, tmp_path], env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    said = "Spark's JVM needs 408 open files and more to start; a process may have 300 here: allow more: ulimit -n 4096"
    assert done.stdout.splitlines() == ["None", "None", said, "None"]


_FEW = """
import os, resource
from fluss_lab.errors import ResourceExhaustedError
from fluss_lab.spark.session.jvm_surroundings import check_threads

hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
os.cpu_count = lambda: 2
if os.getuid() == 0:
    resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
    check_threads()  # no limit holds for root
    os.setresgid(54321, 54321, 54321)
    os.setresuid(54321, 54321, 54321)
try:
    resource.setrlimit(resource.RLIMIT_NPROC, (len(os.listdir("/proc/self/task")), hard))
    check_threads()
except ResourceExhaustedError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody says how many there are")
def test_too_few_threads_for_a_jvm_are_said_before_it_starts():
    """Seen, with `ulimit -u 115`: a query waited for ever for a thread that could not be started; with 100 it was Java's trace."""
    done = subprocess.run(
        [sys.executable, "-c", _FEW], env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert re.fullmatch(
        r"Spark's JVM needs 80 threads and more, which count as processes; this user may have \d+ here, and has \d+: "
        r"allow more: ulimit -u 4096\n",
        done.stdout,
    )


_NAMELESS = """
import os
from fluss_lab.errors import UnsupportedError
from fluss_lab.spark.session.jvm_surroundings import check_user

check_user()
os.setresgid(54321, 54321, 54321)
os.setresuid(54321, 54321, 54321)
try:
    check_user()
except UnsupportedError as error:
    print(error)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become a user without a name")
def test_a_user_without_a_name_is_said_before_spark_starts():
    """Seen in a container, as a user that /etc/passwd does not have: "basedir must be absolute: ?/.ivy2.5.2/local"."""
    done = subprocess.run(
        [sys.executable, "-c", _NAMELESS], env={**os.environ, "HOME": "/home/x", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == (
        "user id 54321 has no entry in the system's list of users, without which Spark's JVM does not start: run as a user that has "
        "one, or add one, as fluss:x:54321:54321::/home/x:/bin/sh to /etc/passwd\n"
    )


def test_a_full_folder_of_temporary_files_is_said_before_spark_starts(tmp_path, monkeypatch):
    with small_disk(tmp_path / "tmp", 1) as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        check_temporary_files()
        fill(disk)
        with pytest.raises(StorageError, match=f"{disk}: no temporary files .* No space left"):
            check_temporary_files()
        assert list(disk.iterdir()) == [disk / "ballast"]


def test_a_jvm_puts_temporary_files_where_python_does(tmp_path, monkeypatch):
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    for folder, expected in (
        ("/tmp", []),
        (tmp_path / 'a "b', [f'"-Djava.io.tmpdir={tmp_path}/a \\"b"']),
        ("/\u00e9", []),
    ):
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        assert temp_options(cache) == expected
        for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "PYSPARK_SUBMIT_ARGS"):
            assert temp_options({**cache, name: "-Djava.io.tmpdir=/x"}) == []
    assert not (tmp_path / "cache").exists()


def test_a_folder_from_which_no_programs_run_is_left_for_one_of_the_cache(tmp_path, monkeypatch):
    flags = {tmp_path / "tmp": os.ST_NOEXEC}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=flags.get(path, 0)))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (option,) = temp_options({"XDG_CACHE_HOME": str(tmp_path / "cache")})
    folder = Path(option.strip('"').partition("=")[2])
    assert folder.parent == tmp_path / "cache" / "fluss_lab"
    assert folder.is_dir()


def test_an_error_names_what_decided_how_the_jvm_started():
    assert decisive_variables({"HOME": "x", "JDK_JAVA_OPTIONS": ""}) == ""
    assert "SPARK_CONF_DIR, JAVA_TOOL_OPTIONS" in decisive_variables({"JAVA_TOOL_OPTIONS": "-X", "SPARK_CONF_DIR": "c"})
