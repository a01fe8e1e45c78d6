"""What executors on other machines need, and how it is said that it is missing."""

import os
import socket
import sys
from pathlib import Path

import pytest

from fluss_lab.client import ServerAddress
from fluss_lab.errors import ServerUnavailableError, StorageError, UnavailableError, UnsupportedError
from fluss_lab.lake import lake_storage
from fluss_lab.spark.tiering.cluster_preflight import (
    address_problems,
    check_reach,
    check_store,
    check_trial,
    look,
    shared_folders,
)

SHARED = ServerAddress("lab.example.org", 9123, "token", tls=True)


#: Called so, a Spark may have workers anywhere. The tests' own is local: what its workers see is what this machine has.
ELSEWHERE = "spark://head.example.org:7077"


def closed_port():
    """Return a port of this machine at which nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def nothing():
    raise AssertionError("nothing is to be asked")


@pytest.mark.spark
def test_a_spark_on_this_machine_needs_nothing(spark):
    here = ServerAddress("127.0.0.1", 9123, "token")
    check_reach(spark.sparkContext, "spark://127.0.0.1:7077", here, nothing)
    check_reach(spark.sparkContext, spark.sparkContext.master, here, nothing)


@pytest.mark.spark
def test_everything_that_is_missing_is_named(spark, tmp_path):
    gone = tmp_path / "not mounted"
    gone.write_text("a file where the folder should be")
    folders = {"the lake's warehouse": gone, "remote.data.dir": tmp_path}
    with pytest.raises(UnsupportedError) as caught:
        check_reach(spark.sparkContext, ELSEWHERE, ServerAddress("127.0.0.1", 9123, "token"), lambda: folders)
    text = str(caught.value)
    for expected in (ELSEWHERE, "server address", "127.0.0.1", "TLS", "warehouse", str(gone)):
        assert expected in text
    assert "remote.data.dir" not in text
    assert "\n" not in text


def test_a_folder_that_executors_do_not_see_is_missing(tmp_path):
    """Their disk has another one under the same path: the mark that this machine put there is not in it."""
    (tmp_path / "seen").touch()
    marks = [("the lake's warehouse", str(tmp_path / "seen")), ("remote.data.dir", str(tmp_path / "not seen"))]
    (found,) = look(marks, None, [])
    assert found.startswith("remote.data.dir: executors on ")
    assert str(tmp_path) in found


def test_a_server_that_they_do_not_reach_is_missing():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert look([], ("127.0.0.1", port), []) == []
    (found,) = look([], ("127.0.0.1", port), [])
    assert f"do not reach 127.0.0.1:{port}" in found


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_they_may_not_write_into_is_missing(tmp_path):
    mark = tmp_path / "mark"
    mark.touch()
    tmp_path.chmod(0o500)
    try:
        (found,) = look([("remote.data.dir", str(mark))], None, [])
    finally:
        tmp_path.chmod(0o700)
    assert "may not write" in found


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="needs an address of this machine that is not 127.0.0.1")
def test_with_everything_there_the_check_leaves_nothing(spark, tmp_path, caplog):
    folders = {"the lake's warehouse": tmp_path / "warehouse", "remote.data.dir": tmp_path / "remote"}
    with socket.create_server(("127.0.0.2", 0)) as listening:
        here = ServerAddress("127.0.0.2", listening.getsockname()[1], "token", tls=True)
        check_reach(spark.sparkContext, ELSEWHERE, here, lambda: folders)
    assert [list(folder.iterdir()) for folder in folders.values()] == [[], []]
    assert "spark.network.crypto.enabled" in caplog.text


@pytest.mark.spark
def test_executors_that_cannot_run_it_say_so_in_one_line(spark):
    """Their Python is not there."""
    context = spark.sparkContext
    before, context.pythonExec = context.pythonExec, "/none/python"
    try:
        with pytest.raises(UnavailableError, match=r"executors cannot run fluss_lab: .*Cannot run program") as caught:
            check_reach(context, ELSEWHERE, SHARED, dict)
    finally:
        context.pythonExec = before
    assert "\n" not in str(caught.value)
    assert "spark.pyspark.python" in str(caught.value)


def lake_of(tmp_path, warehouse, **more):
    return lake_storage("iceberg", {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": warehouse, **more})


@pytest.mark.spark
def test_a_store_that_does_not_serve_is_found_before_a_round(spark, tmp_path):
    endpoint = f"http://127.0.0.1:{closed_port()}"
    keys = {"s3.endpoint": endpoint, "s3.access-key-id": "id", "s3.secret-access-key": "hush", "s3.region": "us-east-1"}
    with pytest.raises(ServerUnavailableError) as caught:
        check_store(spark.sparkContext, spark.sparkContext.master, lake_of(tmp_path, "s3://bucket/lake", **keys), [])
    text = str(caught.value)
    assert caught.value.retriable
    assert f"{endpoint}: s3://bucket/lake/.fluss-lab-trial-... cannot be written from {socket.gethostname()}" in text
    assert "datalake.iceberg.s3" in text
    assert "hush" not in text


@pytest.mark.spark
def test_a_store_that_does_not_serve_executors_is_found_before_a_round(spark):
    here = os.getpid()

    def trial():
        return None if os.getpid() == here else StorageError("the lake's store: it is not seen from there")

    with pytest.raises(UnsupportedError, match=r"executors do not reach the lake .*not seen from there"):
        check_trial(spark.sparkContext, spark.sparkContext.master, trial)


@pytest.mark.spark
def test_a_catalog_that_does_not_answer_is_found_before_a_round(spark, tmp_path):
    (tmp_path / "c.db").mkdir()
    lake = lake_of(tmp_path, "s3://bucket/lake")
    with pytest.raises(StorageError, match=r"lake catalog .* cannot be used"):
        check_store(spark.sparkContext, spark.sparkContext.master, lake, [])


@pytest.mark.spark
def test_a_lake_in_a_file_system_is_not_tried(spark, tmp_path):
    check_store(spark.sparkContext, spark.sparkContext.master, lake_of(tmp_path, f"file://{tmp_path}/none"), [])
    assert list(tmp_path.iterdir()) == []


def test_what_a_trial_carries_is_what_tasks_get(tmp_path):
    secrets = {"s3.secret-access-key": "of-the-files", "credential": "id:of-the-catalog"}
    place = lake_of(tmp_path, "s3://bucket/lake", **secrets).store_place([])
    assert place.properties["s3.secret-access-key"] == "of-the-files"
    assert "of-the-catalog" not in str(dict(place.properties))
    assert "of-the-files" not in repr(place)


def test_a_server_in_clear_is_not_for_other_machines():
    (found,) = address_problems(ServerAddress("lab.example.org", 9123, "token"))
    assert "TLS" in found


def test_an_address_for_other_machines_is_fine():
    assert list(address_problems(SHARED)) == []


def test_what_must_be_shared():
    iceberg = lake_storage("iceberg", {"type": "sql", "uri": "sqlite://", "warehouse": "file:///a b/lake"})
    assert shared_folders(iceberg.local_folder, {"remote.data.dir": "/r"}) == {
        "the lake's warehouse": Path("/a b/lake"), "remote.data.dir": Path("/r"),
    }  # fmt: skip
    for warehouse in ("s3://bucket/lake", ""):
        storage = lake_storage("iceberg", {"type": "sql", "uri": "sqlite://", "warehouse": warehouse})
        assert storage.local_folder is None
        assert shared_folders(storage.local_folder, {}) == {}
    rest = lake_storage("iceberg", {"type": "rest", "uri": "http://catalog", "warehouse": "/x"})
    assert rest.local_folder is None
