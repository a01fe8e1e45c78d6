"""The tiering service on a real Spark: by a lab, and from the shell."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fluss_lab.testing import EmbeddedCluster, wait_until
from fluss_lab.workbench import Lab
from tests.spark.test_tiering_clusters import MARK, left_over
from tests.unit.tiering.kit import TAKEOVER, Tables

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
SOON = {"table.datalake.enabled": True, "table.datalake.freshness": "100ms"}


def offsets(lab, path):
    rows = lab.iceberg(path).scan().to_arrow()
    return sorted(rows["__offset"].to_pylist())


def test_closing_the_lab_stops_its_services_and_the_next_lab_goes_on(spark, tmp_path):
    outcomes = []
    with Lab.open(tmp_path / "lab") as lab:
        lab.create_database("db")
        tables = [lab.create_table(f"db.t{number}", {"id": "bigint"}, properties=SOON) for number in range(3)]
        service = lab.tiering_service(max_tables=3, on_round=outcomes.append)
        service.start()
        for table in tables:
            table.append([{"id": number} for number in range(50)])
        wait_until(lambda: all(offsets(lab, table.path) == list(range(50)) for table in tables))
        assert service.is_running
        assert {str(each.table) for each in service.status().tables} == {"db.t0", "db.t1", "db.t2"}
    assert not service.is_running
    assert not [each for each in threading.enumerate() if each.name.startswith("fluss-tiering")]
    assert outcomes
    assert all(each.error is None for each in outcomes)
    with Lab.open(tmp_path / "lab") as lab:
        lab.table("db.t0").append([{"id": number} for number in range(50)])
        with lab.tiering_service() as service:
            wait_until(lambda: offsets(lab, "db.t0") == list(range(100)))
            service.stop()
            service.start()
            lab.table("db.t1").append([{"id": 1}])
            wait_until(lambda: offsets(lab, "db.t1") == list(range(51)))


@pytest.mark.slow
def test_the_service_in_a_shell_ends_cleanly(tmp_path):
    folder = tmp_path / "lab"
    with EmbeddedCluster(folder, options=TAKEOVER) as cluster:
        tables = Tables(cluster)
        info = tables.create(properties=SOON, buckets=2, bucket_key=["id"])
        tables.append(info, 100)
        env = {**os.environ, "PYTHONPATH": str(ROOT), MARK: str(tmp_path), "TMPDIR": str(tmp_path)}
        command = [
            sys.executable, "-m", "fluss_lab.cli", "tier", "--continuous", "--max-tables", "2",
            "--master", "local[1,3]", "--spark", "spark.sql.shuffle.partitions=1", "-f", str(folder),
        ]  # fmt: skip
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert " db.events: 100 rows in " in process.stdout.readline()
            tables.append(info, 50)
            while " 50 rows in " not in process.stdout.readline():
                assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            _rest, errors = process.communicate(timeout=120)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0, errors
        assert "stopping" in errors
        assert "<tiering service stopped: 1 tables, 0 tiering, 0 failed, 0 records behind>" in errors
        assert "Traceback" not in errors
        tables.check(info)
        wait_until(lambda: not left_over(tmp_path))
