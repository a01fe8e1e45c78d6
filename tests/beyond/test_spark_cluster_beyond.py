"""Spark's own cluster with a lake in MinIO: two workers that see none of the driver's folders, and a catalog in one of these."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.spark_master import StandaloneSpark, can_hide
from tests.spark.spark_steps import check_steps

ROOT = Path(__file__).parents[2]
STEPS = ("unseen", "preflight", "log_table", "keyed_table", "secrets", "moved")

pytestmark = [pytest.mark.beyond, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("kind", ["sqlite", "rest"])
def test_rounds_and_reads_by_executors_that_share_no_folder(backends, tmp_path, kind):
    lab = tmp_path / "lab"
    lab.mkdir()
    if not can_hide(lab):
        pytest.skip("hiding a folder from executors needs Linux, and root")
    lake = {"datalake.iceberg.credential": "id:secret-of-the-catalog"} if kind == "sqlite" else {}
    lake |= backends.cluster(kind, lab)
    steps = [each for each in STEPS if kind == "sqlite" or each != "moved"]
    scratch = lab / "tmp"
    scratch.mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)}
    with StandaloneSpark(("127.0.0.1", "127.0.0.2"), hidden=lab) as spark:
        command = [sys.executable, "-m", "tests.beyond.cluster_reads", spark.url, str(lab), json.dumps(lake), *steps]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
        secret = lake["datalake.iceberg.s3.secret-access-key"]
        said = done.stdout + done.stderr + "".join(spark.logs())
        assert secret not in said
        assert "secret-of-the-catalog" not in said
    check_steps(done, steps)
