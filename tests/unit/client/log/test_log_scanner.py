"""Scanning: every record once, in order, from where one subscribed."""

from __future__ import annotations

import threading
import time
from collections import defaultdict

import numpy as np
import pytest

from fluss_lab.client import Connection, LogScanner, ScanRecords
from fluss_lab.errors import (
    BucketNotFoundError,
    CorruptDataError,
    InvalidPartitionError,
    InvalidRequestError,
    InvalidSchemaError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    ServerUnavailableError,
    TableNotFoundError,
)
from fluss_lab.model import OffsetSpec, TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.records.batch import HEADER_BYTES, read_header
from fluss_lab.testing import EmbeddedCluster, wait_until

pytestmark = pytest.mark.slow

#: Far beyond what any of these needs; a lost record shows as this.
PATIENCE_S = 20.0


def append(connection: Connection, info: TableInfo, rows: object) -> None:
    with connection.append_writer(info.path) as writer:
        writer.append(rows)


def read(scanner: LogScanner, count: int) -> dict[tuple[str | None, int], list[dict]]:
    """Poll until so many records came, and see that their offsets follow each other."""
    found: dict[tuple[str | None, int], list[dict]] = defaultdict(list)
    following: dict[TableBucket, int] = {}
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(len, found.values())) < count:
        assert time.monotonic() < deadline, f"{count} records expected, found {found}"
        for batch in scanner.poll(1.0):
            records = batch.records
            assert records.offsets.to_pylist() == list(range(records.base_offset, records.next_offset))
            assert following.get(batch.bucket, records.base_offset) == records.base_offset
            following[batch.bucket] = records.next_offset
            found[batch.partition, batch.bucket.bucket] += records.rows.to_pylist()
    assert sum(map(len, found.values())) == count
    for bucket, offset in following.items():
        assert scanner.positions()[bucket] == offset
    return dict(found)


def test_all_buckets_from_the_beginning_and_on(connection, make_table):
    info = make_table(buckets=3, bucket_key=["id"])
    append(connection, info, {"id": np.arange(1000)})
    with connection.log_scanner(info.path) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        first = read(scanner, 1000)
        assert sorted(row["id"] for rows in first.values() for row in rows) == list(range(1000))
        append(connection, info, {"id": np.arange(1000, 1100)})
        second = read(scanner, 100)
        assert sorted(row["id"] for rows in second.values() for row in rows) == list(range(1000, 1100))
        empty = scanner.poll(0.0)
        assert (len(empty), empty.count, empty.to_arrow()) == (0, 0, None)


def test_from_an_offset_within_a_batch_and_resumed_elsewhere(connection, make_table):
    info = make_table()
    append(connection, info, {"id": np.arange(100)})
    append(connection, info, {"id": np.arange(100, 200)})
    with connection.log_scanner(info.path) as scanner:
        scanner.subscribe(0, 37)
        assert [row["id"] for row in read(scanner, 163)[None, 0]] == list(range(37, 200))
        (position,) = scanner.positions().values()
    append(connection, info, {"id": np.arange(200, 210)})
    with connection.log_scanner(info.path) as scanner:
        scanner.subscribe(0, position)
        assert [row["id"] for row in read(scanner, 10)[None, 0]] == list(range(200, 210))
        scanner.subscribe(0, 205)
        assert [row["id"] for row in read(scanner, 5)[None, 0]] == list(range(205, 210))
        scanner.subscribe_from_beginning(0)
        assert [row["id"] for row in read(scanner, 210)[None, 0]] == list(range(210))


def test_latest_and_by_time(connection, make_table):
    info = make_table()
    append(connection, info, [{"id": 1}])
    ((stamp,),) = [
        [answer.timestamp_ms for answer in connection.admin().list_offsets(info, OffsetSpec.timestamp(0)).values()]
    ]
    with connection.log_scanner(info.path) as latest, connection.log_scanner(info.path) as timed:
        latest.subscribe_all(OffsetSpec.latest())
        timed.subscribe_all(OffsetSpec.timestamp(stamp))
        append(connection, info, [{"id": 2}])
        assert [row["id"] for row in read(latest, 1)[None, 0]] == [2]
        assert [row["id"] for row in read(timed, 2)[None, 0]] == [1, 2]


@pytest.mark.parametrize(
    ("projection", "expected"),
    [
        (["b"], {"b": 2}),
        (["c", "a"], {"c": 3, "a": 1}),
        ([2, "a", 1], {"c": 3, "a": 1, "b": 2}),
        (["a", "b", "c"], {"a": 1, "b": 2, "c": 3}),
        ([], {}),
    ],
)
def test_projection_in_the_order_asked(connection, make_table, projection, expected):
    info = make_table({"a": "int", "b": "bigint", "c": "double"})
    append(connection, info, [{"a": 1, "b": 2, "c": 3.0}] * 3)
    with connection.log_scanner(info.path, projection) as scanner:
        scanner.subscribe_from_beginning(0)
        records = scanner.poll(PATIENCE_S)
    (batch,) = records
    assert batch.rows.schema.names == list(expected)
    assert batch.rows.num_rows == len(batch.records) == records.count == 3
    if expected:
        assert batch.rows.to_pylist() == [expected] * 3


@pytest.mark.parametrize("projection", [["nope"], [7], [-1], ["a", "a"], [0, "a"], [True]])
def test_a_projection_that_cannot_be_is_refused(connection, make_table, projection):
    info = make_table({"a": "int", "b": "int"})
    with pytest.raises(InvalidSchemaError):
        connection.log_scanner(info.path, projection)


def test_new_partitions_are_followed_and_dropped_ones_end(connection, make_table):
    info = make_table({"id": "int", "p": "string"}, partitioned_by=["p"], buckets=2, bucket_key=["id"])
    append(connection, info, [{"id": index, "p": "a"} for index in range(10)])
    with connection.log_scanner(info.path) as scanner:
        scanner.subscribe_all(OffsetSpec.latest())
        append(connection, info, [{"id": index, "p": "b"} for index in range(20)])
        found = read(scanner, 20)
        assert {partition for partition, _ in found} == {"b"}
        connection.admin().drop_partition(info.path, {"p": "a"})
        append(connection, info, [{"id": index, "p": "b"} for index in range(5)])
        assert len(read(scanner, 5)) >= 1
        deadline = time.monotonic() + PATIENCE_S
        while len(scanner.positions()) > 2 and time.monotonic() < deadline:
            scanner.poll(0.1)
        assert len(scanner.positions()) == 2


def test_partitions_do_not_wait_for_each_other(shared_cluster, connection, make_table):
    """A fetch of buckets that have nothing waits in the server; records of others must not wait for it."""
    info = make_table({"id": "int", "p": "string"}, partitioned_by=["p"], buckets=2)
    rows = [{"id": index, "p": f"p{index % 6}"} for index in range(60)]
    append(connection, info, rows)
    patient = {"client.scanner.log.fetch.wait-max-time": f"{2 * PATIENCE_S:.0f}s"}
    with (
        Connection(lambda: shared_cluster.address, patient) as other,
        other.log_scanner(info.path) as scanner,
    ):
        scanner.subscribe_all(OffsetSpec.earliest())
        read(scanner, len(rows))
        append(connection, info, rows)
        read(scanner, len(rows))


def test_one_partition_by_name(connection, make_table):
    info = make_table({"id": "int", "p": "string"}, partitioned_by=["p"])
    append(connection, info, [{"id": index, "p": "ab"[index % 2]} for index in range(10)])
    with connection.log_scanner(info.path) as scanner:
        scanner.subscribe(0, 2, "b")
        assert [row["id"] for row in read(scanner, 3)["b", 0]] == [5, 7, 9]
        with pytest.raises(PartitionNotFoundError, match="'c'"):
            scanner.subscribe(0, 0, "c")
        with pytest.raises(InvalidPartitionError, match="p"):
            scanner.subscribe(0, 0)
        connection.admin().drop_partition(info.path, {"p": "b"})
        with pytest.raises(PartitionNotFoundError):
            poll_until_raised(scanner)


def poll_until_raised(scanner: LogScanner) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        scanner.poll(0.2)


def test_wrong_subscriptions_are_refused(connection, make_table):
    info = make_table(buckets=2)
    with connection.log_scanner(info.path) as scanner:
        with pytest.raises(InvalidRequestError, match="nothing is subscribed"):
            scanner.poll(0.1)
        with pytest.raises(BucketNotFoundError, match=r"\[0, 2\)"):
            scanner.subscribe(2, 0)
        with pytest.raises(OffsetOutOfRangeError):
            scanner.subscribe(0, -1)
        with pytest.raises(InvalidPartitionError):
            scanner.subscribe(0, 0, "p")


def test_an_offset_beyond_the_end_stops_that_bucket_only(connection, make_table):
    info = make_table(buckets=2, bucket_key=["id"])
    append(connection, info, {"id": np.arange(100)})
    with connection.log_scanner(info.path) as scanner:
        scanner.subscribe(0, 1_000)
        scanner.subscribe_from_beginning(1)
        with pytest.raises(OffsetOutOfRangeError, match="offset 1000"):
            poll_until_raised(scanner)
        scanner.subscribe_from_beginning(1)
        count = len(read_some(scanner))
        assert 0 < count < 100
        scanner.subscribe_from_beginning(0)
        assert len(read_some(scanner)) == 100 - count


def read_some(scanner: LogScanner) -> list[dict]:
    records: ScanRecords = scanner.poll(PATIENCE_S)
    return [row for batch in records for row in batch.rows.to_pylist()]


def test_unsubscribed_buckets_say_nothing_more(connection, make_table):
    info = make_table(buckets=2, bucket_key=["id"])
    append(connection, info, {"id": np.arange(100)})
    with connection.log_scanner(info.path) as scanner:
        scanner.subscribe_all(OffsetSpec.earliest())
        scanner.unsubscribe(0)
        scanner.unsubscribe(0)
        assert {bucket for _, bucket in read(scanner, len(rows_of(connection, info, 1)))} == {1}
        assert scanner.poll(0.3).count == 0


def rows_of(connection: Connection, info: TableInfo, bucket: int) -> range:
    (status,) = [each for each in connection.admin().buckets(info) if each.bucket.bucket == bucket]
    return range(status.require().start_offset, status.require().end_offset)


def test_a_dropped_table_is_reported(connection, make_table):
    info = make_table()
    with connection.log_scanner(info.path) as scanner:
        scanner.subscribe_from_beginning(0)
        connection.admin().drop_table(info.path)
        with pytest.raises(TableNotFoundError):
            poll_until_raised(scanner)


def test_close_ends_a_poll_and_is_idempotent(connection, make_table):
    info = make_table()
    scanner = connection.log_scanner(info.path)
    scanner.subscribe_from_beginning(0)
    closer = threading.Timer(0.2, scanner.close)
    closer.start()
    began = time.monotonic()
    assert scanner.poll(PATIENCE_S).count == 0
    assert time.monotonic() - began < PATIENCE_S / 2
    closer.join()
    scanner.close()
    with pytest.raises(InvalidRequestError, match="closed"):
        scanner.poll(0)
    assert "closed" in repr(scanner)


def test_a_scanner_that_is_not_polled_holds_little(shared_cluster, connection, make_table):
    info = make_table({"id": "bigint", "x": "string"})
    append(connection, info, {"id": np.arange(5000), "x": ["x" * 100] * 5000})
    options = {"client.scanner.log.fetch.max-bytes": "20kb", "client.writer.batch-size": "4kb"}
    with Connection(lambda: shared_cluster.address, options) as small:
        append(small, info, {"id": np.arange(5000), "x": ["x" * 100] * 5000})
        with small.log_scanner(info.path) as scanner:
            scanner.subscribe(0, 5000)
            sizes = []
            while sum(sizes) < 5000:
                sizes.append(scanner.poll(PATIENCE_S).count)
            assert max(sizes) < 500


def test_batches_show_themselves(connection, make_table):
    info = make_table()
    append(connection, info, [{"id": 1}])
    with connection.log_scanner(info.path) as scanner:
        scanner.subscribe_from_beginning(0)
        records = scanner.poll(PATIENCE_S)
    assert "1 records" in repr(records)
    assert "[0, 1)" in repr(records.batches[0])
    assert "bucket" in records._repr_html_()
    (bucket,) = records.buckets()
    assert len(records.records(bucket)) == 1
    assert records.to_arrow().num_rows == 1


def test_nothing_from_behind_damage_comes_before_its_error():
    """Also when the answers behind it were fetched ahead."""
    client = {"client.scanner.log.fetch.max-bytes": "64kb", "client.scanner.log.fetch.wait-max-time": "100ms"}
    path, rows = TablePath("db", "t"), 1100
    with EmbeddedCluster(lake=False, client=client) as cluster:
        cluster.connection.admin().create_database("db")
        cluster.connection.admin().create_table(path, make_descriptor({"id": "bigint"}, buckets=1))
        with cluster.connection.append_writer(path) as writer:
            for first in range(0, 20 * rows, rows):
                writer.append({"id": np.arange(first, first + rows)}).result()
        (file,) = cluster.folder.glob("tablet/data/t*/b0/*.log")
        data = bytearray(file.read_bytes())
        third = sum(read_header(data, at).size for at in (0, read_header(data, 0).size))
        data[third + HEADER_BYTES + 1000] ^= 1
        file.write_bytes(data)
        with cluster.connection.log_scanner(path) as scanner:
            scanner.subscribe(0, 0)
            wait_until(lambda: len(scanner._positions._queue) >= 2)
            found = [offset for batch in scanner.poll(5.0) for offset in batch.records.offsets.to_pylist()]
            assert found == list(range(2 * rows))
            with pytest.raises(CorruptDataError):
                scanner.poll(5.0)
            assert list(scanner.positions().values()) == [2 * rows]


def test_a_schema_that_cannot_be_had_for_a_while_stops_nothing():
    client = {"client.request-timeout": "1s", "client.scanner.log.fetch.wait-max-time": "100ms"}
    path = TablePath("db", "t")
    with (
        EmbeddedCluster(lake=False) as cluster,
        Connection(lambda: cluster.address) as other,
        Connection(lambda: cluster.address, client) as mine,
    ):
        other.admin().create_database("db")
        info = other.admin().create_table(path, make_descriptor({"id": "bigint"}, buckets=1))
        with mine.log_scanner(path) as scanner:
            scanner.subscribe(0, 0)
            other.admin().alter_table(path, add_columns={"v": "int"})
            append(other, info, [{"id": 1, "v": 1}])
            wait_until(lambda: bool(scanner._positions._queue))
            cluster.stop()
            with pytest.raises(ServerUnavailableError):
                scanner.poll(30.0)
            cluster.start()
            append(other, info, [{"id": 2, "v": 2}])
            found: list[int] = []
            deadline = time.monotonic() + PATIENCE_S
            while len(found) < 2 and time.monotonic() < deadline:
                try:
                    found += [row["id"] for batch in scanner.poll(1.0) for row in batch.rows.to_pylist()]
                except ServerUnavailableError:
                    continue
            assert found == [1, 2]


def test_a_scanner_that_is_alone_finds_a_server_that_came_back_elsewhere():
    """Nobody else's call, made again and again, has the address looked up for it."""
    path = TablePath("db", "t")
    with (
        EmbeddedCluster(lake=False) as cluster,
        Connection(lambda: cluster.address) as other,
        Connection(lambda: cluster.address) as mine,
    ):
        other.admin().create_database("db")
        info = other.admin().create_table(path, make_descriptor({"id": "bigint"}, buckets=1))
        with mine.log_scanner(path) as scanner:
            scanner.subscribe(0, 0)
            append(other, info, [{"id": 1}])
            assert read(scanner, 1)
            before = cluster.address.port
            cluster.restart()
            assert cluster.address.port != before
            append(other, info, [{"id": 2}])
            assert read(scanner, 1) == {(None, 0): [{"id": 2}]}
