"""A disk that is full, or a process that may open no more files: writes are refused clearly, reads go on, and it heals."""

import os
import resource
import sys
from contextlib import suppress

import pyarrow as pa
import pytest

from fluss_lab.errors import FlussError, StorageError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.model.config.options import DISK_RESERVE
from fluss_lab.model.offsets import OffsetSpec
from fluss_lab.server.folder.disk_reserve import RESERVE_FILE
from fluss_lab.testing import ServerProcess
from fluss_lab.testing.mock_clock import wait_until
from tests.unit.server.disks import fill, small_disk

PATIENCE_S = 60.0
TYPES = {"id": "bigint not null", "text": "string"}
LOG, ROWS = TablePath("db", "log"), TablePath("db", "rows")
FIRST = 50
#: A client that soon says what the server said, instead of trying on.
CLIENT = {"client.request-timeout": "500ms"}

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of another process: Linux only")


def rows(first, count, size=100):
    return [{"id": number, "text": f"{number}".ljust(size, ".")} for number in range(first, first + count)]


def make_tables(server):
    admin = server.connection.admin()
    admin.create_database("db")
    admin.create_table(LOG, make_descriptor(TYPES))
    admin.create_table(ROWS, make_descriptor(TYPES, primary_key=["id"], buckets=1))
    append(server, 0, FIRST)
    upsert(server, 0, FIRST)


def append(server, first, count, size=100):
    with server.connection.append_writer(LOG) as writer:
        writer.append(rows(first, count, size)).result()


def upsert(server, first, count, size=100):
    with server.connection.upsert_writer(ROWS) as writer:
        writer.upsert(rows(first, count, size)).result()


def ids_in_log(server):
    """All ids in the log table, read from its start."""
    with server.connection.log_scanner(LOG) as scanner:
        info = server.connection.admin().table_info(LOG)
        end = server.connection.admin().buckets(info)[0].end_offset
        scanner.subscribe_all(OffsetSpec.earliest())
        found = []
        while len(found) < end:
            found += [i for batch in scanner.poll(PATIENCE_S) for i in batch.records.rows.column("id").to_pylist()]
    return found


def is_present(server, first, count):
    keys = pa.table({"id": pa.array(range(first, first + count), pa.int64())})
    return server.connection.lookuper(ROWS).lookup(keys).column("text").null_count == 0


def succeeds(call, *arguments):
    """Whether a call is no longer refused; a refusal must be one for the disk."""
    try:
        call(*arguments)
    except StorageError:
        return False
    return True


def create_many(server):
    """Create tables until there is no room for their definitions."""
    for number in range(200):
        server.connection.admin().create_table(TablePath("db", f"t{number}"), make_descriptor(TYPES))


def check_refused_and_readable(server, writers):
    """Writes are refused with what is wrong, by writers old and new; everything written before is read."""
    for writer, write, word in zip(writers, ("append", "upsert"), ("appended", "changed"), strict=True):
        with pytest.raises(StorageError, match=rf"nothing was {word}|No space left"):
            getattr(writer, write)(rows(1_000, 50, 2_000)).result()
    # New writers get their ids without a word to the disk: it is the log that refuses, and says of which bucket.
    for write, word in ((append, "appended"), (upsert, "changed")):
        with pytest.raises(StorageError, match=rf"bucket 0(?=.*No space left).*nothing was {word}"):
            write(server, 1_000, 50, 2_000)
    assert ids_in_log(server) == list(range(FIRST))
    assert is_present(server, 0, FIRST)
    with pytest.raises(StorageError):
        create_many(server)
    assert "log" in server.connection.admin().tables("db")


def check_healed(server, pid):
    """Everything is taken again, by the same process, and nothing that was refused is there."""
    wait_until(lambda: succeeds(append, server, 2_000, 10), PATIENCE_S)
    wait_until(lambda: succeeds(upsert, server, 2_000, 10), PATIENCE_S)
    wait_until(
        lambda: succeeds(server.connection.admin().create_table, TablePath("db", "after"), make_descriptor(TYPES))
    )
    assert ids_in_log(server) == [*range(FIRST), *range(2_000, 2_010)]
    assert is_present(server, 2_000, 10)
    assert not is_present(server, 1_000, 10)
    assert server.pid == pid


def test_files_that_may_not_grow_refuse_writes_until_they_may(tmp_path):
    with ServerProcess(tmp_path / "lab", client=CLIENT) as server:
        make_tables(server)
        pid = server.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        # Enough for what is there, and not for a batch of a megabyte.
        limit = 1 << 20
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, before[1]))
        for write in (append, upsert):
            with pytest.raises(StorageError, match="File too large"):
                write(server, 1_000, 50, 40_000)
        assert ids_in_log(server) == list(range(FIRST))
        assert is_present(server, 0, FIRST)
        # What fits is taken.
        append(server, 100, 5)
        upsert(server, 100, 5)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        append(server, 1_000, 50, 40_000)
        upsert(server, 1_000, 50, 40_000)
        assert ids_in_log(server) == [*range(FIRST), *range(100, 105), *range(1_000, 1_050)]
        assert is_present(server, 1_000, 50)
        assert server.pid == pid


def test_a_full_disk_refuses_writes_and_heals_when_there_is_room(tmp_path):
    with small_disk(tmp_path / "disk", 48) as disk, ServerProcess(disk / "lab", client=CLIENT) as server:
        make_tables(server)
        pid = server.pid
        writers = [server.connection.append_writer(LOG), server.connection.upsert_writer(ROWS)]
        writers[0].append(rows(0, 0)).result()
        writers[1].upsert(rows(0, 1)).result()
        ballast = fill(disk)
        check_refused_and_readable(server, writers)
        ballast.unlink()
        for writer in writers:
            with suppress(FlussError):
                writer.close()
        check_healed(server, pid)
        server.restart()
        assert ids_in_log(server) == [*range(FIRST), *range(2_000, 2_010)]
        assert is_present(server, 2_000, 10)


def test_a_server_killed_on_a_full_disk_starts_on_it_is_read_and_drops(tmp_path):
    options = {DISK_RESERVE.key: "8mb"}
    with (
        small_disk(tmp_path / "disk", 48) as disk,
        ServerProcess(disk / "lab", options, client=CLIENT) as server,
    ):
        make_tables(server)
        big = TablePath("db", "big")
        server.connection.admin().create_table(big, make_descriptor(TYPES))
        with server.connection.append_writer(big) as writer:
            writer.append(rows(0, 200, 50_000)).result()
        fill(disk)
        reserve = disk / "lab" / RESERVE_FILE
        assert reserve.stat().st_size == 8 << 20
        for _ in range(2):
            server.kill()
            server.start()
            assert ids_in_log(server) == list(range(FIRST))
            assert is_present(server, 0, FIRST)
            with pytest.raises(StorageError, match=r"db.log .* nothing was appended: the disk of .* is full"):
                append(server, 1_000, 1)
            with pytest.raises(StorageError, match=r"the disk of .* is full"):
                upsert(server, 1_000, 1)
            with pytest.raises(StorageError, match=r"db.other was not created: the disk of .* is full"):
                server.connection.admin().create_table(TablePath("db", "other"), make_descriptor(TYPES))
            assert server.connection.admin().tables("db") == ["big", "log", "rows"]
            assert 0 < reserve.stat().st_size < 8 << 20
        pid = server.pid
        # What was lent is not used up, and the table's own room comes back: everything heals with the ballast still there.
        server.connection.admin().drop_table(big)
        check_healed(server, pid)
        assert reserve.stat().st_size == 8 << 20


def test_few_open_files_are_enough_for_many_buckets(tmp_path):
    buckets = 96
    with ServerProcess(tmp_path / "lab", client=CLIENT) as server:
        admin = server.connection.admin()
        admin.create_database("db")
        pid = server.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        most = len(os.listdir(f"/proc/{pid}/fd")) + buckets // 2
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, before[1]))
        admin.create_table(LOG, make_descriptor(TYPES, buckets=buckets, bucket_key=["id"]))
        for first in range(0, 5_000, 1_000):
            append(server, first, 1_000)
        assert sorted(ids_of_all(server, 5_000)) == list(range(5_000))
        assert len(os.listdir(f"/proc/{pid}/fd")) <= most
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        assert server.pid == pid


def ids_of_all(server, count):
    """All ids in all buckets."""
    found = []
    with server.connection.log_scanner(LOG) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        while len(found) < count:
            found += [i for batch in scanner.poll(PATIENCE_S) for i in batch.records.rows.column("id").to_pylist()]
    return found
