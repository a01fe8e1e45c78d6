"""Rounds on Spark masters whose executors are processes of their own: see `cluster_rounds` for what each step proves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fluss_lab.testing import wait_until
from tests.spark.spark_master import StandaloneSpark
from tests.spark.spark_steps import check_steps

ROOT = Path(__file__).parents[2]
MARK = "FLUSS_LAB_CLUSTER_TEST"
STEPS = ("package", "rounds", "keyed", "killed_workers", "killed_executor")

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def run_steps(tmp_path, master, *steps):
    """Run steps in a process of their own; nothing that it started is left when this returns."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), MARK: str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.spark.cluster_rounds", master, *steps]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900)
    check_steps(done, steps)
    wait_until(lambda: not left_over(tmp_path))


def left_over(tmp_path):
    """Return the processes that a run has left."""
    mark, found = f"{MARK}={tmp_path}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(folder.name)
        except OSError:
            continue
    return found


def test_rounds_on_a_local_cluster(tmp_path):
    run_steps(tmp_path, "local-cluster[2,1,1024]", *STEPS)
    home = ROOT / ".venv" / "lib"
    assert not list(home.glob("python*/site-packages/pyspark/work")), (
        "executors left their folders in the installed pyspark"
    )


@pytest.mark.campaign
def test_rounds_on_a_standalone_master_with_one_worker(tmp_path):
    with StandaloneSpark(cores=2) as spark:
        run_steps(tmp_path, spark.url, *STEPS, "cancelled")


@pytest.mark.campaign
def test_a_spark_whose_jvm_died_is_started_again(tmp_path):
    run_steps(tmp_path, "local-cluster[2,1,1024]", "cancelled", "dead_jvm")


@pytest.mark.campaign
@pytest.mark.skipif(sys.platform != "linux", reason="needs more than one loopback address")
def test_speculative_attempts_count_once(tmp_path):
    """Spark starts a second attempt on another host only; two loopback addresses are two hosts to it."""
    with StandaloneSpark(("127.0.0.1", "127.0.0.2"), cores=2) as spark:
        run_steps(tmp_path, spark.url, "speculation")
