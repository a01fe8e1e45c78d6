"""A Spark whose JVM is killed, or whose disk is full: what needs it says so, and the lab goes on, with another one or when there is room."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.server.disks import small_disk

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


_ON_A_FULL_DISK = """
import os, sys
from pathlib import Path
from fluss_lab.errors import StorageError
from fluss_lab.workbench import Lab
from tests.unit.server.disks import fill

with Lab.open(sys.argv[1]) as lab:
    lab.create_database("db")
    lake = {"table.datalake.enabled": True}
    log = lab.create_table("db.log", {"id": "bigint"}, properties=lake)
    rows = lab.create_table("db.rows", {"id": "bigint"}, primary_key=["id"], properties=lake)
    for number in range(2):
        log.append([{"id": number}])
        rows.upsert([{"id": 1}])
        lab.tier()
    log.append([{"id": 2}])
    full = fill(Path(os.environ["TMPDIR"]))
    for call in (log.tier, lambda: lab.sql("select id from db.log"), lambda: lab.sql("select id from db.rows")):
        try:
            call()
        except StorageError as error:
            assert os.environ["TMPDIR"] in str(error) and "No space left" in str(error), error
            assert "make room" in str(error), error
        else:
            raise AssertionError(call)
    full.unlink()
    assert sorted(each.id for each in lab.sql("select id from db.log").collect()) == [0, 1, 2]
    assert log.tier().rows == 1
    full = fill(Path(os.environ["TMPDIR"]))
    try:
        lab.sql("select id from db.rows")
    except StorageError as error:
        assert os.environ["TMPDIR"] in str(error) and "No space left" in str(error), error
    full.unlink()
    assert [each.id for each in lab.sql("select id from db.rows").collect()] == [1]
    assert sorted(each.id for each in lab.sql("select id from db.log").collect()) == [0, 1, 2]
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_full_disk_of_temporary_files_is_said_and_spark_goes_on_when_there_is_room(tmp_path):
    """Seen: rounds were retriable errors without a folder, and Spark could not read the lake for as long as its JVM lived."""
    with small_disk(tmp_path / "tmp", 32) as disk:
        done = subprocess.run(
            [sys.executable, "-c", _ON_A_FULL_DISK, tmp_path / "lab"],
            cwd=ROOT, env={**os.environ, "TMPDIR": str(disk)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
