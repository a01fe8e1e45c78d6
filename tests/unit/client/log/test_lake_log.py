"""The lake behind the log: what is asked of it, when it fails, and how the client goes on without it."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest

from fluss_lab.client import Connection, read_range
from fluss_lab.client.cluster.list_offsets import LAKE_ATTEMPTS_MAX
from fluss_lab.errors import LakeSnapshotNotFoundError, OffsetOutOfRangeError, ServerUnavailableError, UnsupportedError
from fluss_lab.lake import FetchContext, FlussLogSource, LakeStorage, LookupContext
from fluss_lab.lake.iceberg import IcebergLakeStorage
from fluss_lab.model import OffsetSpec, TableBucket, TableInfo
from fluss_lab.records import LogRecords
from fluss_lab.testing import EmbeddedCluster, MockClock
from tests.unit.read.keyed_changes import KeyedTable
from tests.unit.read.kit import OPTIONS

pytestmark = pytest.mark.slow

CLIENT = {"client.request-timeout": "1s"}


@pytest.fixture(scope="module")
def clock() -> MockClock:
    return MockClock()


@pytest.fixture(scope="module")
def cluster(clock: MockClock) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(options=OPTIONS, clock=clock) as running:
        yield running


@pytest.fixture(scope="module")
def tables(cluster: EmbeddedCluster, clock: MockClock) -> list[KeyedTable]:
    """Two tables of one bucket, all of whose records but the last have left the cluster."""
    found = []
    for name in ("one", "two"):
        table = KeyedTable(cluster, clock, name, buckets=1, keys=8)
        rng = random.Random(3)
        for _ in range(3):
            table.write(rng, 6)
            table.clock.advance(10)
            table.tier()
        table.leave()
        table.write(rng, 2)
        found.append(table)
    return found


class WithoutPlugin(Connection):
    """A client in which the lake's plug-in is not installed."""

    def lake_storage(self) -> LakeStorage | None:
        self.asked = getattr(self, "asked", 0) + 1
        raise UnsupportedError("lake format 'iceberg' is not installed here")


def test_without_the_plug_in_the_client_goes_on_as_before_and_says_so_once(cluster, tables, caplog):
    caplog.set_level(logging.WARNING, "fluss_lab.client")
    with WithoutPlugin(lambda: cluster.address, CLIENT) as connection:
        for table in tables:
            bucket, start = TableBucket(table.info.table_id, None, 0), table.statuses()[0].start_offset
            assert start > 0
            for spec in (OffsetSpec.earliest(), OffsetSpec.timestamp(0)):
                answer = connection.admin().list_offsets(table.info, spec)[0]
                assert (answer.offset, answer.lake_snapshot_id) == (start, None)
            for _ in range(2):
                with pytest.raises(OffsetOutOfRangeError, match="no plug-in"):
                    list(read_range(connection, table.info, bucket, 0, start))
                with connection.log_scanner(table.path) as scanner:
                    scanner.subscribe(0, 0)
                    with pytest.raises(OffsetOutOfRangeError, match="no plug-in"):
                        scanner.poll(60)
                    scanner.subscribe(0, start)
                    assert scanner.poll(60)
        assert connection.asked > 4
    reported = [each.getMessage() for each in caplog.records if "going on without it" in each.getMessage()]
    assert [text.split(":")[0] for text in reported] == ["db.one", "db.two"]
    assert "not installed here" in reported[0]


class Expiring(Connection):
    """A client for which the lake snapshots that it is told of are gone, so many times."""

    gone = 0
    asked: list[int]

    def lake_storage(self) -> LakeStorage | None:
        storage = super().lake_storage()
        assert storage is not None
        return _ExpiringLake(self, dict(storage.properties))


class _ExpiringLake(IcebergLakeStorage):
    def __init__(self, connection: Expiring, properties: dict[str, str]) -> None:
        super().__init__(properties)
        self._connection = connection

    def create_fluss_log_source(self, table: TableInfo) -> FlussLogSource:
        return _ExpiringSource(self._connection, super().create_fluss_log_source(table))


class _ExpiringSource(FlussLogSource):
    def __init__(self, connection: Expiring, whole: FlussLogSource) -> None:
        self._connection, self._whole = connection, whole

    def _check(self, snapshot_id: int) -> None:
        self._connection.asked.append(snapshot_id)
        if self._connection.gone:
            self._connection.gone -= 1
            raise LakeSnapshotNotFoundError("expired a moment ago")

    def lookup_log_offset_by_timestamp(self, context: LookupContext) -> tuple[int, int]:
        self._check(context.lake_snapshot_id)
        return self._whole.lookup_log_offset_by_timestamp(context)

    def fetch_log_records(self, context: FetchContext) -> Iterator[LogRecords]:
        self._check(context.lake_snapshot_id)
        yield from self._whole.fetch_log_records(context)

    def earliest_offset(self, partition: str | None, bucket: int, lake_snapshot_id: int) -> int | None:
        return self._whole.earliest_offset(partition, bucket, lake_snapshot_id)


@pytest.fixture
def expiring(cluster) -> Iterator[Expiring]:
    with Expiring(lambda: cluster.address, CLIENT) as connection:
        connection.asked = []
        yield connection


@pytest.mark.parametrize("gone", [0, 1, LAKE_ATTEMPTS_MAX - 1])
def test_a_time_is_looked_for_in_the_snapshot_that_took_the_place_of_an_expired_one(expiring, tables, gone):
    """Without the lake the answer would be wrong: the first record that the cluster still holds."""
    table = tables[0]
    log = table.logs[None, 0]
    wanted = next(event for event in log[1:] if event.timestamp_ms > log[0].timestamp_ms)
    expiring.gone = gone
    answer = expiring.admin().list_offsets(table.info, OffsetSpec.timestamp(wanted.timestamp_ms))[0]
    assert (answer.offset, answer.timestamp_ms) == (wanted.offset, wanted.timestamp_ms)
    assert answer.lake_snapshot_id is not None
    assert len(expiring.asked) == gone + 1


def test_a_snapshot_that_is_named_again_and_again_though_it_is_gone_ends_the_question(expiring, tables):
    table = tables[0]
    expiring.gone = 1_000
    with pytest.raises(LakeSnapshotNotFoundError):
        expiring.admin().list_offsets(table.info, OffsetSpec.timestamp(0))
    assert len(expiring.asked) == LAKE_ATTEMPTS_MAX
    with pytest.raises(LakeSnapshotNotFoundError):
        list(read_range(expiring, table.info, TableBucket(table.info.table_id, None, 0), 0, 5))
    with expiring.log_scanner(table.path) as scanner:
        scanner.subscribe(0, 0)
        with pytest.raises(ServerUnavailableError, match="expired a moment ago"):
            scanner.poll(60)
        # Attempts are put off more and more; and once the snapshot is there, the scanner goes on.
        assert len(expiring.asked) < 60
        expiring.gone = 0
        assert next(batch.records.base_offset for batch in scanner.poll(60)) == 0


@pytest.mark.parametrize("gone", [1, 2])
def test_a_snapshot_that_was_replaced_is_asked_of_the_server_again(expiring, tables, gone):
    table = tables[0]
    bucket, end = TableBucket(table.info.table_id, None, 0), table.ends[None, 0]
    expiring.gone = gone
    runs = list(read_range(expiring, table.info, bucket, 0, end, previous_offsets=True))
    offsets = [offset for run in runs for offset in run.offsets.to_pylist()]
    previous = [each for run in runs for each in run.previous_offsets.to_pylist()]
    assert offsets == list(range(end))
    assert previous == [event.previous for event in table.logs[None, 0]]
    assert len(expiring.asked) == gone + 1


def test_times_in_the_lake_and_after_it(tables):
    """A time after all that the lake holds is the cluster's to answer; one after everything gives the end."""
    table = tables[0]
    admin, log = table.connection.admin(), table.logs[None, 0]
    for moment_ms in sorted({event.timestamp_ms + delta for event in log for delta in (-1, 0, 1)}):
        answer = admin.list_offsets(table.info, OffsetSpec.timestamp(moment_ms))[0]
        later = [event for event in log if event.timestamp_ms >= moment_ms]
        expected = (later[0].offset, later[0].timestamp_ms) if later else (len(log), None)
        assert (answer.offset, answer.timestamp_ms) == expected, moment_ms
    assert admin.list_offsets(table.info, OffsetSpec.earliest())[0].offset == 0
    assert admin.list_offsets(table.info, OffsetSpec.earliest(), local_only=True)[0].offset > 0
