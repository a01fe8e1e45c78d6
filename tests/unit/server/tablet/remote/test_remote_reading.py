"""Clients read on where records have left the server's disk, and nobody notices."""

from __future__ import annotations

import subprocess
import sys
import threading
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.client import Connection, read_range
from fluss_lab.errors import CorruptDataError, OffsetOutOfRangeError, StorageError
from fluss_lab.model import OffsetSpec, TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster, MockClock, wait_until
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

PATIENCE_S = 60.0
MINUTE_MS = 60_000
ROWS = 200
OPTIONS = {
    "log.segment.file-size": "16kb",
    "log.retention.check-interval": "20ms",
    "log.flush.interval": "20ms",
    "remote.log.task-interval-duration": "20ms",
}
CLIENT = {"client.request-timeout": "10s", "client.scanner.log.fetch.wait-max-time": "50ms"}
COLUMNS = {"id": "bigint", "name": "string", "x": "int"}


class Rig:
    """A cluster whose clock stands, and what is asked of it."""

    def __init__(self, cluster: EmbeddedCluster, clock: MockClock) -> None:
        self.cluster, self.clock = cluster, clock
        self.numbers = iter(range(100))

    @property
    def connection(self) -> Connection:
        return self.cluster.connection

    def table(self, batches: int = 0, *, columns=None, name: str | None = None, **properties: object) -> TableInfo:
        """A new table with one bucket, of which one segment stays on the disk, and records a minute apart."""
        path = TablePath("db", name or f"t{next(self.numbers)}")
        named = {key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()}
        descriptor = make_descriptor(columns or COLUMNS, properties={"table.log.tiered.local-segments": 1, **named})
        info = self.connection.admin().create_table(path, descriptor)
        self.append(info, batches)
        return info

    def append(self, info: TableInfo, batches: int, *, every_ms: int = MINUTE_MS) -> None:
        """Append batches whose ids are the offsets."""
        end = self.status(info).end_offset
        with self.connection.append_writer(info.path) as writer:
            for first in range(end, end + batches * ROWS, ROWS):
                ids = np.arange(first, first + ROWS)
                names = pa.array([f"name-{each}" for each in ids])
                writer.append({"id": ids, "name": names, "x": (ids % 7).astype("int32")}).result()
                self.clock.advance(every_ms)

    def status(self, info: TableInfo):
        return self.connection.admin().buckets(info)[0]

    def copied(self, info: TableInfo) -> TableInfo:
        """Return the table when all but the segment being written is in remote storage only."""
        wait_until(lambda: self.status(info).segments == 1 and self.status(info).start_offset == 0, PATIENCE_S)
        status = self.status(info)
        assert 0 < status.local_start_offset <= (status.remote_end_offset or 0)
        return info

    def ids(self, info: TableInfo, start: int = 0, stop: int | None = None) -> list[int]:
        """The ids that a reader of a range gets."""
        end = self.status(info).high_watermark if stop is None else stop
        runs = read_range(self.connection, info, bucket_of(info), start, end)
        return [each for run in runs for each in run.rows["id"].to_pylist()]


def bucket_of(info: TableInfo) -> TableBucket:
    return TableBucket(info.table_id, None, 0)


def times_of(rig: Rig, info: TableInfo) -> list[tuple[int, int]]:
    """The offset and the time of each record of the first twenty batches."""
    runs = read_range(rig.connection, info, bucket_of(info), 0, 20 * ROWS)
    return [pair for run in runs for pair in zip(run.offsets.to_pylist(), run.timestamps_ms.to_pylist(), strict=True)]


@pytest.fixture(scope="module")
def rig():
    clock = MockClock()
    with EmbeddedCluster(options=OPTIONS, clock=clock, client=CLIENT) as cluster:
        cluster.connection.admin().create_database("db")
        yield Rig(cluster, clock)


@pytest.fixture(scope="module")
def info(rig):
    return rig.copied(rig.table(20))


def scan(connection: Connection, info: TableInfo, start: int, stop: int, projection=None) -> list[pa.RecordBatch]:
    """What a scanner gives from an offset on, seen to be without gap."""
    found = []
    with connection.log_scanner(info.path, projection) as scanner:
        scanner.subscribe(0, start)
        while start < stop:
            polled = scanner.poll(PATIENCE_S)
            assert polled, f"nothing from {start} on"
            for batch in polled:
                assert batch.records.base_offset == start
                assert batch.records.offsets.to_pylist() == list(range(start, batch.records.next_offset))
                start = batch.records.next_offset
                found.append(batch.records.rows)
    return found


def test_a_scanner_goes_from_remote_storage_to_the_servers_disk(rig, info):
    batches = scan(rig.connection, info, 0, 20 * ROWS)
    assert pa.Table.from_batches(batches)["id"].to_pylist() == list(range(20 * ROWS))
    local = rig.status(info).local_start_offset
    for start in (1, ROWS - 1, ROWS, local - 1, local, local + 1):
        first = scan(rig.connection, info, start, 20 * ROWS)[0]
        assert first["id"][0].as_py() == start


def test_ranges_begin_and_end_anywhere(rig, info):
    local = rig.status(info).local_start_offset
    edges = [0, 1, ROWS - 1, ROWS, 7 * ROWS + 3, local - 1, local, local + 1, 20 * ROWS]
    for start, stop in [(a, b) for a in edges for b in edges if a < b]:
        assert rig.ids(info, start, stop) == list(range(start, stop))


def test_a_record_is_located_where_it_lies(rig, info):
    reader, local = TableReader(rig.connection, info.path), rig.status(info).local_start_offset
    for offset in (0, 7 * ROWS + 3, local - 1):
        place = reader.locate(None, 0, offset)
        assert (place.lake, place.local) == (None, None)
        assert place.log is place.remote
        assert place.remote.is_remote
        assert place.remote.batch_base_offset <= offset < place.remote.batch_end_offset
        assert "remote segment" in repr(place)
        assert "remote storage" in place._repr_html_()
    assert not reader.locate(None, 0, local).log.is_remote
    (row,) = rig.connection.admin().buckets(info)
    assert row.remote_start_offset == 0


@pytest.mark.parametrize("columns", [["name"], ["x", "id"], ["id"], ["name", "x", "id"], [2, 0]])
def test_columns_are_chosen_by_the_reader(rig, info, columns):
    whole = pa.Table.from_batches(scan(rig.connection, info, 0, 20 * ROWS))
    wanted = [whole.schema.names[each] if isinstance(each, int) else each for each in columns]
    found = pa.Table.from_batches(scan(rig.connection, info, 0, 20 * ROWS, columns))
    assert found.equals(whole.select(wanted))


def test_times_are_found_across_both(rig, info):
    admin = rig.connection.admin()
    times = {time_ms: offset for offset, time_ms in reversed(times_of(rig, info))}
    assert len(times) == 20
    for moment, offset in times.items():
        for asked, expected in ((moment, offset), (moment - 1, offset), (moment + 1, offset + ROWS)):
            found = admin.list_offsets(info, OffsetSpec.timestamp(asked), lake=False)[0]
            assert found.offset == expected
            there_ms = moment if expected == offset else moment + MINUTE_MS
            assert found.timestamp_ms == (there_ms if expected < 20 * ROWS else None)
    earliest = admin.list_offsets(info, OffsetSpec.earliest(), lake=False)[0]
    assert (earliest.offset, earliest.timestamp_ms) == (0, min(times))


def test_a_seek_says_that_it_lives_in_remote_storage(rig, info):
    reader = TableReader(rig.connection, info.path)
    times = times_of(rig, info)
    first, last = times[0][1], times[-1][1]
    assert [(each.offset, each.lives) for each in reader.seek(first).buckets] == [(0, "remote")]
    assert [each.lives for each in reader.seek(last).buckets] == ["local"]
    assert [each.lives for each in reader.seek(last + 1).buckets] == ["end"]


def test_reads_and_changelogs_count_remote_storage_as_the_cluster(rig, info):
    reader = TableReader(rig.connection, info.path)
    assert reader.scan().to_arrow().sort_by("id")["id"].to_pylist() == list(range(20 * ROWS))
    log = reader.changelog(start={0: 5}, end={0: 20 * ROWS - 5}).to_arrow()
    assert log["_log_offset"].to_pylist() == log["id"].to_pylist() == list(range(5, 20 * ROWS - 5))
    assert reader.read_point().buckets[0].start == 0


def test_another_process_reads_it_too(rig, info):
    code = (
        "import sys\n"
        "from fluss_lab.client import Connection, ServerAddress, read_range\n"
        "from fluss_lab.model import TableBucket, TablePath\n"
        "server = ServerAddress.from_json(sys.argv[1])\n"
        "with Connection(lambda: server) as connection:\n"
        "    info = connection.table_info(TablePath.parse(sys.argv[2]))\n"
        "    runs = read_range(connection, info, TableBucket(info.table_id, None, 0), 0, int(sys.argv[3]))\n"
        "    print(sum(sum(run.rows['id'].to_pylist()) for run in runs))\n"
    )
    arguments = [rig.cluster.address.to_json(), str(info.path), str(20 * ROWS)]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == sum(range(20 * ROWS))


def test_a_scanner_follows_while_records_are_written_copied_and_dropped(rig, seed):
    info = rig.table(1)
    stop, problems = 60 * ROWS, []

    def write():
        try:
            chance = np.random.default_rng(seed)
            while (left := stop // ROWS - rig.status(info).end_offset // ROWS) > 0:
                rig.append(info, min(left, int(chance.integers(1, 6))), every_ms=1)
        except BaseException as error:
            problems.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        batches = scan(rig.connection, info, 0, stop)
    finally:
        writer.join(PATIENCE_S)
    assert not problems
    assert pa.Table.from_batches(batches)["id"].to_pylist() == list(range(stop))
    rig.copied(info)
    assert rig.ids(info) == list(range(stop))


def test_several_buckets_are_read_in_turns(rig):
    path = TablePath("db", "many")
    descriptor = make_descriptor(
        COLUMNS, buckets=4, bucket_key=["id"], properties={"table.log.tiered.local-segments": 1}
    )
    info = rig.connection.admin().create_table(path, descriptor)
    with rig.connection.append_writer(path) as writer:
        for first in range(0, 60 * ROWS, 4 * ROWS):
            ids = np.arange(first, first + 4 * ROWS)
            writer.append({"id": ids, "name": [f"n{i}" for i in ids], "x": ids.astype("int32")}).result()
    wait_until(lambda: all(each.segments == 1 for each in rig.connection.admin().buckets(info)), PATIENCE_S)
    found, order = [], []
    with rig.connection.log_scanner(path) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        while len(found) < 60 * ROWS:
            for batch in scanner.poll(PATIENCE_S):
                found += batch.records.rows["id"].to_pylist()
                order.append(batch.bucket.bucket)
    assert sorted(found) == list(range(60 * ROWS))


def test_expired_records_are_out_of_range_and_the_rest_is_read(rig):
    info = rig.copied(rig.table(20, table__log__ttl="30min"))
    with rig.connection.log_scanner(info.path) as scanner:
        scanner.subscribe(0, 0)
        assert scanner.poll(PATIENCE_S)
        rig.clock.advance(18 * MINUTE_MS)
        wait_until(lambda: rig.status(info).start_offset > 0, PATIENCE_S)
    start = rig.status(info).start_offset
    assert rig.ids(info, start) == list(range(start, 20 * ROWS))
    with pytest.raises(OffsetOutOfRangeError, match="or in remote storage one in"):
        rig.ids(info, start - 1)
    with rig.connection.log_scanner(info.path) as scanner:
        scanner.subscribe_from_beginning(0)
        assert next(iter(scanner.poll(PATIENCE_S))).records.base_offset == start


def _segments(rig, info):
    folder = rig.cluster.folder / "remote" / "log" / "db" / f"{info.path.table}-{info.table_id}" / "0"
    return sorted(folder.glob("*/*.log"), key=lambda path: path.name)


@pytest.mark.parametrize("damage", ["cut", "flip", "lose", "lose index"])
def test_a_damaged_or_lost_file_is_named_and_ends_the_reading_where_it_is(rig, damage):
    info = rig.copied(rig.table(20))
    path = _segments(rig, info)[1]
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[:-1])
    elif damage == "flip":
        path.write_bytes(bytes([*data[:60], data[60] ^ 1, *data[61:]]))
    else:
        path = path if damage == "lose" else path.with_suffix(".blocks")
        path.unlink()
    base = int(path.stem)
    with pytest.raises((CorruptDataError, StorageError), match=str(path)):
        rig.ids(info)
    with rig.connection.log_scanner(info.path) as scanner:
        scanner.subscribe(0, 0)
        offset = 0

        def follow() -> None:
            nonlocal offset
            while True:
                for batch in scanner.poll(PATIENCE_S):
                    assert batch.records.base_offset == offset
                    offset = batch.records.next_offset

        with pytest.raises((CorruptDataError, StorageError), match=str(path)):
            follow()
        assert base <= offset < base + len(data)
        # It stays there, and other buckets would go on.
        assert not scanner.poll(0.2)
    stop = int(_segments(rig, info)[2].stem)
    assert rig.ids(info, stop) == list(range(stop, 20 * ROWS))


def test_what_is_only_remote_is_tiered_and_read_across_all_three(rig):
    info = rig.table(20, table__datalake__enabled=True, table__log__ttl="1h")
    rig.copied(info)
    storage = rig.connection.lake_storage()
    assert storage is not None
    report = run_round(rig.connection, storage, LocalTieringExecutor(), table_id=info.table_id)
    assert report is not None
    assert rig.status(info).lake_end_offset == 20 * ROWS
    rig.append(info, 50)
    wait_until(lambda: rig.status(info).start_offset > 5 * ROWS and rig.status(info).segments == 1, PATIENCE_S)
    status = rig.status(info)
    assert status.start_offset < status.local_start_offset
    stop = 70 * ROWS
    assert rig.ids(info, 0, stop) == list(range(stop))
    assert pa.Table.from_batches(scan(rig.connection, info, 0, stop))["id"].to_pylist() == list(range(stop))
    reader = TableReader(rig.connection, info.path)
    assert reader.scan().to_arrow().sort_by("id")["id"].to_pylist() == list(range(stop))
    log = reader.changelog().to_arrow()
    assert log["_log_offset"].to_pylist() == list(range(stop))
    lives = [reader.seek(moment).buckets[0].lives for moment in log["_commit_timestamp"].cast(pa.timestamp("ms", "UTC"))
             .cast(pa.int64()).unique().to_pylist()]  # fmt: skip
    assert list(dict.fromkeys(lives)) == ["lake", "remote", "local"]
    report = run_round(rig.connection, storage, LocalTieringExecutor(), table_id=info.table_id)
    assert report is not None
    assert rig.status(info).lake_end_offset == stop


def test_batches_of_an_older_schema_are_read_with_nulls(rig):
    info = rig.table(10)
    rig.connection.admin().alter_table(info.path, add_columns={"later": "string"})
    info = rig.connection.table_info(info.path)
    with rig.connection.append_writer(info.path) as writer:
        for first in range(10 * ROWS, 20 * ROWS, ROWS):
            ids = np.arange(first, first + ROWS)
            row = {"id": ids, "name": [f"n{i}" for i in ids], "x": ids.astype("int32"), "later": ["new"] * ROWS}
            writer.append(row).result()
    rig.copied(info)
    for columns in (None, ["later", "id"], ["later"]):
        rows = pa.Table.from_batches(scan(rig.connection, info, 0, 20 * ROWS, columns))
        assert rows["later"].to_pylist() == [None] * 10 * ROWS + ["new"] * 10 * ROWS


def test_dropping_a_table_or_a_partition_deletes_its_remote_files(rig):
    info = rig.copied(rig.table(20))
    assert _segments(rig, info)
    rig.connection.admin().drop_table(info.path)
    wait_until(lambda: not _segments(rig, info), PATIENCE_S)
    path = TablePath("db", "parts")
    descriptor = make_descriptor(
        {**COLUMNS, "p": "string"}, partitioned_by=["p"], properties={"table.log.tiered.local-segments": 1}
    )
    info = rig.connection.admin().create_table(path, descriptor)
    with rig.connection.append_writer(path) as writer:
        for first in range(0, 20 * ROWS, ROWS):
            ids = np.arange(first, first + ROWS)
            for partition in ("2013/01 ä", "b"):
                row = {"id": ids, "name": [f"n{i}" for i in ids], "x": ids.astype("int32"), "p": [partition] * ROWS}
                writer.append(row).result()
    wait_until(lambda: all(each.segments == 1 for each in rig.connection.admin().buckets(info)), PATIENCE_S)
    with rig.connection.log_scanner(path) as scanner:
        scanner.subscribe(0, 0, "2013/01 ä")
        assert next(iter(scanner.poll(PATIENCE_S))).partition == "2013/01 ä"
    folder = rig.cluster.folder / "remote" / "log" / "db" / f"parts-{info.table_id}"
    assert len(list(folder.iterdir())) == 2
    rig.connection.admin().drop_partition(path, {"p": "2013/01 ä"})
    wait_until(lambda: [each.name.startswith("b-p") for each in folder.iterdir()] == [True], PATIENCE_S)


def test_a_restart_and_a_move_change_nothing(tmp_path):
    clock = MockClock()
    with EmbeddedCluster(tmp_path / "old", OPTIONS, clock, False, client=CLIENT) as cluster:
        cluster.connection.admin().create_database("db")
        rig = Rig(cluster, clock)
        info = rig.copied(rig.table(20, name="t"))
        cluster.restart()
        assert rig.ids(info) == list(range(20 * ROWS))
        files = [path.name for path in _segments(rig, info)]
    (tmp_path / "old").rename(tmp_path / "new")
    with EmbeddedCluster(tmp_path / "new", OPTIONS, clock, False, client=CLIENT) as cluster:
        rig = Rig(cluster, clock)
        assert rig.ids(info) == list(range(20 * ROWS))
        assert [path.name for path in _segments(rig, info)] == files
        rig.append(info, 20)
        rig.copied(info)
        assert rig.ids(info) == list(range(40 * ROWS))
        starts = [int(path.stem) for path in _segments(rig, info)]
        assert all(low < high for low, high in pairwise(starts))


def test_with_an_interval_of_zero_nothing_is_copied_and_what_is_there_is_read(tmp_path):
    clock = MockClock()
    options = {**OPTIONS, "remote.data.dir": f"file://{tmp_path}/elsewhere"}
    with EmbeddedCluster(tmp_path / "lab", options, clock, False, client=CLIENT) as cluster:
        cluster.connection.admin().create_database("db")
        rig = Rig(cluster, clock)
        info = rig.copied(rig.table(20, name="t"))
        assert list((tmp_path / "elsewhere" / "log").glob("db/*/0/manifest"))
        cluster.restart({**options, "remote.log.task-interval-duration": "0"})
        copied = rig.status(info).remote_end_offset
        rig.append(info, 20)
        assert rig.ids(info) == list(range(40 * ROWS))
        assert rig.status(info).remote_end_offset == copied
