"""The disk and the memory that a lab takes: each file counts once, by what it holds; what is not known is said."""

import os
from pathlib import Path

import pytest

import fluss_lab as fl
from fluss_lab.errors import StorageError, UnsupportedError
from fluss_lab.workbench.health.disk_usage import disk_listing, disk_usage
from tests.unit.workbench.lab_kit import rows, tier

MINUTE_MS = 60_000


def blocks(path):
    return sum(each.stat().st_blocks * 512 for each in path.rglob("*") if each.is_file())


def by_store(found):
    return {(each.store, each.server): (each.size_bytes, each.files, each.is_complete) for each in found}


def write(path, size):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path.stat().st_blocks * 512


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "my lab"


def test_every_file_counts_once_by_what_it_holds(folder):
    sizes = {
        ("log", 0): write(folder / "tablet/data/t1/b0/0.log", 50_000) + write(folder / "tablet/data/t1/b0/0.index", 10),
        ("log", 2): write(folder / "tablet-2/data/t1/b1/0.log", 9_000),
        ("remote log", None): write(folder / "remote/log/db/t-1/0/0.log", 70_000),
        ("key-value snapshots", None): write(folder / "remote/kv/db/t-1/0/0.live", 5_000),
        ("lake data", None): write(folder / "lake/warehouse/db/t-1/data/b=0/1.parquet", 30_000),
        ("lake metadata", None): write(folder / "lake/warehouse/db/t-1/metadata/1.avro", 20_000)
        + write(folder / "lake/catalog.db", 4_000),
        ("metadata", None): write(folder / "metadata.db", 8_000) + write(folder / "metadata.db-wal", 3_000),
        ("jobs", None): write(folder / "jobs/daily/1.ipynb", 2_000),
        ("server logs", None): write(folder / "server.log", 1_000) + write(folder / "tablet-2.out", 10),
        ("reserve", None): write(folder / "disk-reserve", 12_000),
        ("other", None): write(folder / "token", 40) + write(folder / "notebooks/metadata.db", 100)
        + write(folder / "remote/owner.json", 20),
    }  # fmt: skip
    (folder / "notebooks" / "elsewhere").symlink_to(folder / "remote")
    link_bytes = (folder / "notebooks" / "elsewhere").lstat().st_blocks * 512
    options = {"datalake.format": "iceberg", "datalake.iceberg.warehouse": f"file://{folder}/lake/warehouse"}
    found = by_store(disk_usage(folder, options, MINUTE_MS))
    assert {key: each[0] for key, each in found.items()} == sizes | {("other", None): sizes["other", None] + link_bytes}
    assert all(is_complete for _, _, is_complete in found.values())
    assert sum(files for _, files, _ in found.values()) == 18
    listed = disk_listing(folder, options, MINUTE_MS)
    assert listed.column("bytes") == sorted(listed.column("bytes"), reverse=True)
    assert " free of " in listed.title


def test_stores_outside_of_the_folder_are_found_by_the_options(folder, tmp_path):
    size = write(tmp_path / "remote place/log/db/t-1/0/0.log", 5_000)
    lake = write(tmp_path / "a lake/db/t-1/data/1.parquet", 6_000)
    write(folder / "metadata.db", 1)
    options = {
        "remote.data.dir": str(tmp_path / "remote place"), "datalake.format": "iceberg",
        "datalake.iceberg.warehouse": f"file://{tmp_path}/a%20lake",
    }  # fmt: skip
    found = by_store(disk_usage(folder, options, MINUTE_MS))
    assert found["remote log", None] == (size, 1, True)
    assert found["lake data", None] == (lake, 1, True)


@pytest.mark.parametrize("warehouse", ["s3://bucket/lake", None])
def test_a_lake_that_is_not_on_this_disk_is_not_known(folder, warehouse):
    write(folder / "metadata.db", 1)
    options = {"datalake.format": "iceberg", "datalake.iceberg.type": "rest"}
    options |= {} if warehouse is None else {"datalake.iceberg.warehouse": warehouse}
    (row,) = [each for each in disk_listing(folder, options, MINUTE_MS) if each["store"] == "lake data"]
    assert (row["bytes"], row["complete"]) == (None, False)
    assert row["place"] == (warehouse or "as the catalog of format 'iceberg' decides")


def test_what_is_not_counted_in_time_is_said_and_hides_no_other_store(folder):
    for bucket in range(3):
        for number in range(1_500):
            path = folder / f"tablet/data/t1/b{bucket}/{number}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    size = write(folder / "metadata.db", 5_000)
    found = by_store(disk_usage(folder, {}, 0))
    assert not found["log", 0][2]
    assert found["log", 0][1] < 4_500
    assert disk_listing(folder, {}, 0).title.startswith("disk: at least ")
    assert by_store(disk_usage(folder, {}, MINUTE_MS))["metadata", None] == (size, 1, True)


def test_a_folder_of_two_stores_counts_once(folder):
    size = write(folder / "lake/db/t-1/data/0.parquet", 40_000)
    found = disk_usage(folder, {"datalake.iceberg.warehouse": (folder / "lake").as_uri()}, MINUTE_MS)
    assert sum(each.size_bytes for each in found) == size


def test_a_folder_that_is_gone_is_said_and_hides_nothing_else(lab, table, folder):
    with pytest.raises(StorageError, match="No such file"):
        disk_listing(folder, {}, MINUTE_MS)
    status = lab.status()
    status.folder = folder
    for shown in (repr(status), status._repr_html_()):
        assert "memory and disk are not known" in shown
        assert str(table.path) in shown


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_may_not_be_read_is_said(folder):
    write(folder / "jobs/secret/1.ipynb", 10)
    (folder / "jobs/secret").chmod(0)
    try:
        assert by_store(disk_usage(folder, {}, MINUTE_MS))["jobs", None] == (0, 0, False)
    finally:
        (folder / "jobs/secret").chmod(0o700)


def test_a_lab_says_what_it_takes(lab, table):
    table.append(rows(40))
    tier(table)
    status = lab.status()
    found = {row["store"]: row for row in status.disk}
    assert found["log"]["server"] == 0
    assert found["log"]["bytes"] == blocks(Path(lab.folder) / "tablet")
    assert found["lake data"]["files"] == sum(1 for _ in (Path(lab.folder) / "lake").rglob("*.parquet"))
    assert found["metadata"]["bytes"] > 0
    assert all(status.disk.column("complete"))
    assert status.disk is status.disk
    (process,) = status.memory
    assert process["server"] == "coordinator, tablet 0"
    assert process["bytes"] > 10_000_000
    assert os.path.exists(f"/proc/{process['process']}")
    for shown in (repr(status), status._repr_html_()):
        assert "disk: " in shown
        assert "memory of 1 server processes" in shown


def test_of_a_lab_on_another_machine_it_is_not_known(lab, table):
    server = lab.connection.address
    with fl.Lab.connect(f"{server.host}:{server.port}", token_file=Path(lab.folder) / "token") as other:
        status = other.status()
        for look in (lambda: status.disk, lambda: status.memory):
            with pytest.raises(UnsupportedError, match="on the machine of the lab's folder"):
                look()
        assert "disk: " not in repr(status) + status._repr_html_()
