"""The cluster demo: notebooks as they are on other people's servers; Ctrl-C and a part that fails leave nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from fluss_lab.testing import wait_until
from tools.beyond.pinned_parts import PartUnavailableError, minio_program, nessie_jar
from tools.beyond.spark_cluster import SparkCluster

pytestmark = [pytest.mark.beyond, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 900.0


@pytest.fixture(scope="module", autouse=True)
def _parts():
    try:
        minio_program()
        nessie_jar()
    except PartUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def place(tmp_path):
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    return tmp_path


def begin(place, **more):
    env = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    with (place / "out").open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "tools.cluster_demo"], cwd=place, env=env, stdout=out, stderr=out
        )


def left(place):
    """Return the processes that work in the demo's folder, or were given it."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(place) in f"{process.cwd()} {' '.join(process.cmdline())}":
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_the_notebooks_run_as_they_are(place):
    demo = begin(place)
    code, said = demo.wait(PATIENCE_S), (place / "out").read_text()
    assert code == 0, said
    assert said.count("output notebook") == 2
    assert said.count("Spark application") == 2
    folder = place / "cluster-demo"
    for worker in ("spark-worker-1", "spark-worker-2"):
        assert len(list((folder / worker / "work").iterdir())) == 2
    assert "336,776" in said
    assert "every part has ended well" in said
    assert left(place) == []
    secrets = (folder / "spark-conf" / "spark-defaults.conf").read_text().split()
    assert secrets[secrets.index("spark.authenticate.secret") + 1] not in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_stops_it_finds_nothing_left(place, number):
    demo = begin(place)
    wait_until(lambda: "Spark standalone" in (place / "out").read_text(), PATIENCE_S)
    demo.send_signal(number)
    assert demo.wait(PATIENCE_S) == 130
    wait_until(lambda: left(place) == [], 30)
    assert "every part has ended" in (place / "out").read_text()


def test_a_part_that_does_not_start_ends_the_others(place):
    bin_folder = place / "bin"
    bin_folder.mkdir()
    (bin_folder / "openssl").write_text("#!/bin/sh\nexit 3\n")
    (bin_folder / "openssl").chmod(0o700)
    demo = begin(place, PATH=f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    assert demo.wait(PATIENCE_S) == 1
    assert "cluster-demo: " in (place / "out").read_text()
    assert "Traceback" not in (place / "out").read_text()
    assert left(place) == []


def test_a_spark_cluster_comes_with_its_workers_and_goes_with_them(tmp_path):
    with SparkCluster(tmp_path, workers=2) as cluster:
        assert cluster.alive_workers() == 2
        assert (tmp_path / "spark-worker-2" / "spark.conf").stat().st_mode & 0o077 == 0
    assert left(tmp_path) == []
