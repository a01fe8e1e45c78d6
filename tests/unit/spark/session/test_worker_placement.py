"""What a master's name means, and fluss_lab as one file: what an executor without any makes of it, and which one wins."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest

import fluss_lab
from fluss_lab.errors import UnsupportedError
from fluss_lab.spark.session.worker_placement import (
    SparkPlacement,
    attempts_of,
    is_one_process,
    release,
    runs_here,
    write_package,
)
from fluss_lab.spark.tiering.spark_executor import run_partition

SOCKETS = "spark.python.unix.domain.socket.enabled"
_WORKER = """
import json, sys
import fluss_lab, fluss_lab.spark.session.worker_daemon, fluss_lab.tiering.task.tiering_task
from fluss_lab.lake import lake_storage
from fluss_lab.spark.session.worker_placement import release
storage = lake_storage("iceberg", {"type": "sql", "uri": "sqlite://", "warehouse": "/none"})
print(json.dumps([fluss_lab.__file__, release(), storage.format_name]))
"""


def test_a_worker_finds_all_of_it_in_the_archive(tmp_path):
    package = write_package(tmp_path)
    assert package.stat().st_size < 4 << 20
    # As Spark starts workers: in the folder where the archive is, by its bare name.
    env = {**os.environ, "PYTHONPATH": package.name}
    done = subprocess.run([sys.executable, "-c", _WORKER], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    place, found, format_name = json.loads(done.stdout)
    assert Path(place).parts[-3:] == (package.name, "fluss_lab", "__init__.py")
    assert (found, format_name) == (release(), "iceberg")


def test_its_name_follows_from_its_content(tmp_path):
    one = write_package(tmp_path)
    before = one.stat().st_mtime_ns
    assert write_package(tmp_path) == one
    assert one.stat().st_mtime_ns == before
    (tmp_path / "other").mkdir()
    other = write_package(tmp_path / "other")
    assert (other.name, other.read_bytes()) == (one.name, one.read_bytes())
    assert one.name.startswith(f"fluss_lab-{release()}-")


def test_nothing_of_this_machine_is_in_it(tmp_path):
    """Not a path of it, in names or text: executors get the package and nothing else."""
    import zipfile

    with zipfile.ZipFile(write_package(tmp_path)) as archive:
        names = archive.namelist()
        root = str(Path(fluss_lab.__file__).parents[1]).encode()
        assert not [name for name in names if name.startswith("/") or "__pycache__" in name]
        assert not [name for name in names if root in archive.read(name)]


def test_workers_of_another_release_are_refused():
    with pytest.raises(UnsupportedError, match=r"fluss_lab .* in the executors' Python, 9\.9\.9 on the driver"):
        list(run_partition([[(0, b"{}")]], expected="9.9.9"))


def test_workers_here_talk_through_sockets_that_nobody_else_reaches():
    settings = SparkPlacement("local[2]", {}, None).settings()
    assert settings["spark.python.unix.domain.socket.enabled"] == "true"
    folder = Path(settings["spark.python.unix.domain.socket.dir"])
    assert folder.is_dir()
    assert (folder.stat().st_mode & 0o777, folder.stat().st_uid) == (0o700, os.getuid())
    with socket.socket(socket.AF_UNIX) as listening:  # as Spark calls its own
        listening.bind(str(folder / f".{uuid.uuid4()}.sock"))
    # Executors in processes of their own may be another user's; and who asks for TCP has it.
    assert SOCKETS not in SparkPlacement("local-cluster[1,1,1024]", {}, None).settings()
    assert SparkPlacement("local[2]", {SOCKETS: "false"}, None).settings()[SOCKETS] == "false"


def test_a_folder_too_long_for_a_socket_has_none(tmp_path, monkeypatch):
    deep = tmp_path / ("long" * 25)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert SOCKETS not in SparkPlacement("local[2]", {}, None).settings()


def test_a_spark_here_has_archives_of_python_only_where_it_needs_them(tmp_path, monkeypatch):
    def parts(master):
        environment = SparkPlacement(master, {}, None).environment()
        home = Path(environment["SPARK_HOME"])
        assert (shutil.which(environment["PYSPARK_DRIVER_PYTHON"]) is not None) == (home / "python").exists()
        assert (home / "bin" / "spark-submit").is_file()
        assert list((home / "jars").glob("spark-core*.jar"))
        return {each.name for each in home.iterdir()}

    assert "python" not in parts("local[2,3]")
    assert "python" in parts("local-cluster[1,1,512]")
    (tmp_path / "pyspark_of_mine.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "python" in parts("local[2,3]"), "Spark looks for data sources in packages of this name"


@pytest.mark.parametrize(
    ("master", "one_process", "here"),
    [
        ("local", True, True),
        ("local[4]", True, True),
        ("local[*,3]", True, True),
        ("local-cluster[2,1,1024]", False, True),
        ("spark://127.0.0.1:7077", False, True),
        ("spark://localhost:7077", False, True),
        ("spark://[::1]:7077", False, True),
        ("spark://127.0.0.1:7077,localhost:7078", False, True),
        ("spark://127.0.0.1:7077,10.0.0.1:7077", False, False),
        ("spark://host:7077", False, False),
        ("spark://10.1.2.3:7077", False, False),
        ("yarn", False, False),
        ("k8s://https://127.0.0.1:6443", False, False),
        ("localhost", False, False),
    ],
)
def test_where_a_master_runs(master, one_process, here):
    assert (is_one_process(master), runs_here(master)) == (one_process, here)


@pytest.mark.parametrize(
    ("master", "configured", "expected"),
    [
        ("local[*,3]", None, 3),
        ("local[2, 4]", None, 4),
        ("local[*]", "8", 1),
        ("local", None, 1),
        ("local-cluster[2,1,1024]", None, 4),
        ("spark://host:7077", "7", 7),
        ("k8s://https://host", None, 4),
    ],
)
def test_attempts_are_those_of_the_master(master, configured, expected):
    assert attempts_of(master, configured) == expected
