"""The room that is kept back on a lab's disk: real, given away only for what it is for, and made whole again."""

import errno
import os
import shutil
from contextlib import suppress

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import StorageError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.model.config.options import DISK_RESERVE
from fluss_lab.server.folder import disk_reserve
from fluss_lab.server.folder.disk_reserve import RESERVE_FILE, STEP_BYTES, DiskReserve
from fluss_lab.testing import EmbeddedCluster, wait_until
from tests.unit.server.disks import fill, small_disk

pytestmark = pytest.mark.slow

MB = 1 << 20
PATIENCE_S = 60.0
TYPES = {"id": "bigint not null"}


def size_of(folder):
    return (folder / RESERVE_FILE).stat().st_size


def free_on(folder):
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize


def write_mb(path):
    with path.open("wb") as file:
        file.write(b"\1" * MB)


def test_a_reserve_has_real_blocks_and_follows_its_option(tmp_path):
    path = tmp_path / RESERVE_FILE
    for size in (2 * MB, 3 * MB, MB, 0):
        reserve = DiskReserve(tmp_path, size)
        reserve.prepare()
        assert not reserve.is_short
        assert path.exists() == (size > 0)
        if size:
            assert path.stat().st_size == size
            assert path.stat().st_blocks * 512 >= size


@pytest.mark.parametrize("refusal", [None, errno.EOPNOTSUPP, errno.EINVAL])
def test_where_a_file_system_promises_nothing_bytes_are_written(tmp_path, monkeypatch, refusal):
    def promise_nothing(fd, start, size):
        if refusal is not None:
            raise OSError(refusal, os.strerror(refusal))
        os.ftruncate(fd, max(os.fstat(fd).st_size, start + size))

    monkeypatch.setattr(disk_reserve.os, "posix_fallocate", promise_nothing)
    DiskReserve(tmp_path, 3 * MB).prepare()
    assert size_of(tmp_path) == 3 * MB
    assert (tmp_path / RESERVE_FILE).stat().st_blocks * 512 >= 3 * MB


def test_a_copy_with_holes_instead_of_blocks_is_made_real(tmp_path):
    (tmp_path / RESERVE_FILE).touch()
    os.truncate(tmp_path / RESERVE_FILE, 2 * MB)
    DiskReserve(tmp_path, 2 * MB).prepare()
    assert (tmp_path / RESERVE_FILE).stat().st_blocks * 512 >= 2 * MB


def test_a_link_in_its_place_is_not_followed(tmp_path, caplog):
    other, lab = tmp_path / "other", tmp_path / "lab"
    other.write_bytes(b"\1" * MB)
    lab.mkdir()
    (lab / RESERVE_FILE).symlink_to(other)
    for reserve in (DiskReserve(lab, 2 * MB), DiskReserve(lab, MB // 2)):
        reserve.restore()
        reserve.restore()
    assert len(caplog.records) == 2, caplog.text
    assert "symbolic link" in caplog.text
    assert other.read_bytes() == b"\1" * MB


def test_on_a_full_disk_it_gives_what_is_asked_and_is_short_until_there_is_room_for_all(tmp_path):
    with small_disk(tmp_path / "disk", 16) as disk:
        reserve = DiskReserve(disk, 4 * MB)
        reserve.prepare()
        assert size_of(disk) == 4 * MB
        ballast = fill(disk)
        assert reserve.make_room(STEP_BYTES)
        assert size_of(disk) == 3 * MB
        assert free_on(disk) >= STEP_BYTES
        write_mb(disk / "started")
        assert not reserve.make_room(0)
        assert reserve.make_room(2 * STEP_BYTES)
        assert size_of(disk) == MB
        with pytest.raises(
            StorageError, match=r"nothing was done: the disk of .* is full.*drop tables, or delete other files"
        ):
            reserve.check("nothing was done")
        assert reserve.is_short_for(disk)
        assert not reserve.is_short_for(tmp_path)
        # Room for the reserve alone is no room: the next write would find none.
        os.truncate(ballast, ballast.stat().st_size - MB)
        reserve.restore()
        assert size_of(disk) == MB
        assert reserve.is_short
        os.truncate(ballast, ballast.stat().st_size - 2 * MB)
        reserve.restore()
        assert size_of(disk) == 4 * MB
        reserve.check("nothing")
        assert sorted(path.name for path in disk.iterdir()) == ["ballast", RESERVE_FILE, "started"]


def test_a_disk_without_room_for_it_has_none_and_is_not_short(tmp_path):
    with small_disk(tmp_path / "disk", 4) as disk:
        reserve = DiskReserve(disk, 4 * MB)
        reserve.prepare()
        assert list(disk.iterdir()) == []
        reserve.check("nothing")


def test_what_frees_room_is_run_again_with_as_much_as_it_needs(tmp_path):
    tries = []
    with small_disk(tmp_path / "disk", 16) as disk:
        reserve = DiskReserve(disk, 6 * MB)
        reserve.prepare()
        fill(disk)

        def drop(size):
            tries.append(size_of(disk))
            try:
                for number in range(size // MB):
                    write_mb(disk / f"journal-{number}")
            except OSError as error:
                raise StorageError(str(error)) from error
            finally:
                for path in disk.glob("journal-*"):
                    path.unlink()
            return "dropped"

        assert reserve.lend(lambda: drop(3 * MB)) == "dropped"
        assert len(tries) > 1
        assert size_of(disk) >= MB
        with pytest.raises(StorageError, match="No space left"):
            reserve.lend(lambda: drop(12 * MB))
        assert size_of(disk) == 0
        fill(disk)
        with pytest.raises(StorageError, match=r"the disk is full .* has nothing left to give: delete other files"):
            reserve.lend(lambda: drop(MB))


def test_what_fails_otherwise_costs_nothing_of_it(tmp_path):
    reserve = DiskReserve(tmp_path, 2 * MB)
    reserve.prepare()
    tries = []

    def fail():
        tries.append(1)
        raise StorageError("device error")

    with pytest.raises(StorageError, match=r"^device error$"):
        reserve.lend(fail)
    assert len(tries) == 1
    failpoints.arm("disk.room", "eio")
    with pytest.raises(StorageError, match=r"^device error$"):
        reserve.lend(fail)
    assert size_of(tmp_path) == 2 * MB
    assert reserve.explain(ValueError("bad")) is None


@pytest.mark.parametrize("servers", [1, 2])
def test_a_cluster_that_finds_its_disk_full_is_read_and_drops_only_until_it_is_not(tmp_path, servers):
    kept, gone = TablePath("db", "kept"), TablePath("db", "gone")
    with EmbeddedCluster(tmp_path / "lab", {DISK_RESERVE.key: "2mb"}, tablet_servers=servers, lake=False) as cluster:
        admin = cluster.connection.admin()
        admin.create_database("db")
        admin.create_table(kept, make_descriptor(TYPES))
        admin.create_table(gone, make_descriptor({**TYPES, "day": "string not null"}, partitioned_by=["day"]))
        admin.create_partition(gone, {"day": "1"})
        with cluster.connection.append_writer(kept) as writer:
            writer.append([{"id": 1}]).result()
            # From here on the disk is said to be full, whenever somebody asks.
            failpoints.arm("disk.room", "enospc")
            cluster.restart({DISK_RESERVE.key: "2mb"})
            assert size_of(tmp_path / "lab") == 0
            with pytest.raises(StorageError, match=r"nothing was appended: the disk of .* is full"):
                writer.append([{"id": 2}]).result()
        for refused in (
            lambda: admin.create_database("other"),
            lambda: admin.create_table(TablePath("db", "other"), make_descriptor(TYPES)),
            lambda: admin.create_partition(gone, {"day": "2"}),
            lambda: admin.alter_table(kept, set={"table.log.ttl": "3d"}),
        ):
            with pytest.raises(StorageError, match=r"created|altered"):
                refused()
        assert admin.buckets(admin.table_info(kept))[0].end_offset == 1
        admin.drop_partition(gone, {"day": "1"})
        admin.drop_table(gone)
        assert admin.tables("db") == ["kept"]
        failpoints.disarm("disk.room")
        wait_until(lambda: size_of(tmp_path / "lab") == 2 * MB, PATIENCE_S)
        with cluster.connection.append_writer(kept) as writer:
            writer.append([{"id": 2}]).result()
        assert admin.buckets(admin.table_info(kept))[0].end_offset == 2


def test_without_a_reserve_a_full_disk_refuses_starts_and_drops_and_says_what_to_do(tmp_path):
    table = TablePath("db", "table")
    with (
        small_disk(tmp_path / "disk", 16) as disk,
        EmbeddedCluster(disk / "lab", {DISK_RESERVE.key: "0"}, lake=False) as cluster,
    ):
        admin = cluster.connection.admin()
        admin.create_database("db")
        admin.create_table(table, make_descriptor(TYPES))
        assert not (disk / "lab" / RESERVE_FILE).exists()
        ballast = fill(disk)
        with pytest.raises(StorageError, match=r"reserve for this .* is switched off: delete other files"):
            admin.drop_table(table)
        cluster.stop()
        with ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\0")
        with pytest.raises(
            StorageError, match=r"the disk is full .*server\.disk-reserve\) is switched off: delete other files"
        ):
            cluster.start()
        ballast.unlink()
        cluster.start()
        admin.drop_table(table)
        assert admin.tables("db") == []


def test_a_reserve_that_somebody_removed_is_made_again(tmp_path):
    with EmbeddedCluster(tmp_path / "lab", {DISK_RESERVE.key: "1mb"}, lake=False):
        shutil.move(tmp_path / "lab" / RESERVE_FILE, tmp_path)
        wait_until((tmp_path / "lab" / RESERVE_FILE).exists, PATIENCE_S)
        assert size_of(tmp_path / "lab") == MB


def test_the_default_is_eight_megabytes():
    assert DISK_RESERVE.default == 8 * MB
