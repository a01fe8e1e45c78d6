"""A Spark whose JVM is killed: every call of a lab that needs it says so, and the lab goes on with another one."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

_CHILD = """
import sys
from fluss_lab.errors import UnavailableError
from fluss_lab.workbench import Lab

with Lab.open(sys.argv[1]) as lab:
    lab.create_database("db")
    rows = lab.create_table("db.rows", {"id": "bigint"}, primary_key=["id"])
    rows.upsert([{"id": 1}])

    def kill():
        gateway = lab.spark.sparkContext._gateway
        gateway.proc.kill()
        gateway.proc.wait()

    for round_ in range(2):
        session, frame = lab.spark, lab.sql("select id from db.rows")
        kill() if round_ == 0 else session.stop()
        for call in (
            lambda: lab.lookup_join(frame, "db.rows", on="id"),
            lambda: lab.sql("select * from db.rows", session=session),
            lambda: session.sql("select * from db.rows"),
            lambda: session.table("db.rows"),
        ):
            try:
                call()
            except UnavailableError as error:
                assert "Spark is gone" in str(error), error
            else:
                raise AssertionError(call)
        assert [each.id for each in lab.sql("select * from db.rows").collect()] == [1]
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_killed_jvm_is_said_and_replaced(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, tmp_path / "lab"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
