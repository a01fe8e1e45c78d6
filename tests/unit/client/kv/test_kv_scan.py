"""All live rows of a bucket at one moment, and a few rows of a table."""

from __future__ import annotations

import numpy as np
import pytest

from fluss_lab.client import Connection, read_range
from fluss_lab.errors import (
    BucketNotFoundError,
    InvalidPartitionError,
    InvalidRequestError,
    InvalidSchemaError,
    PartitionNotFoundError,
    ServerUnavailableError,
    UnavailableError,
    UnsupportedError,
)
from fluss_lab.model import TableBucket, TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster, MockClock

COLUMNS = {"id": "bigint", "name": "string", "n": "int"}
#: Answers of a few rows.
SMALL = {"client.scanner.log.fetch.max-bytes": "1kb"}


def bucket(info, number=0):
    return TableBucket(info.table_id, None, number)


def fill(connection, info, count=1000):
    with connection.upsert_writer(info.path) as writer:
        writer.upsert({"id": np.arange(count), "name": [f"name {index}" for index in range(count)]})


def test_each_live_row_comes_once_with_its_offset_and_time(connection, make_table):
    info = make_table(COLUMNS, primary_key=["id"], buckets=2)
    fill(connection, info, 20)
    with connection.upsert_writer(info.path) as writer:
        writer.upsert({"id": list(range(5)), "n": [7] * 5}).result()
        writer.delete({"id": [0, 19]})
    found = {}
    for number in range(2):
        scan = connection.scan_kv(info, bucket(info, number))
        log = {
            offset: (change, row["id"], time)
            for run in read(connection, info, number)
            for offset, change, row, time in zip(
                run.offsets.to_pylist(), run.change_types.to_pylist(), run.rows.to_pylist(),
                run.timestamps_ms.to_pylist(), strict=True,
            )
        }  # fmt: skip
        assert scan.log_offset == len(log)
        for run in scan:
            for row, offset, time in zip(
                run.rows.to_pylist(), run.offsets.to_pylist(), run.timestamps_ms.to_pylist(), strict=True
            ):
                assert log[offset][0] in {1, 3}
                assert log[offset][1:] == (row["id"], time)
                assert row["id"] not in found
                found[row["id"]] = row
    assert found == {
        key: {"id": key, "name": None if key < 5 else f"name {key}", "n": 7 if key < 5 else None}
        for key in range(1, 19)
    }


def read(connection, info, number):
    end = {each.bucket.bucket: each.end_offset for each in connection.admin().buckets(info)}[number]
    return list(read_range(connection, info, bucket(info, number), 0, end))


def test_a_scan_shows_one_moment_however_long_it_takes(shared_cluster, make_table):
    info = make_table(COLUMNS, primary_key=["id"])
    with Connection(lambda: shared_cluster.address, SMALL) as connection:
        fill(connection, info)
        scan = connection.scan_kv(info, bucket(info), columns=["name", "id"])
        runs = iter(scan)
        first = next(runs)
        assert len(first) < 200
        assert scan.log_offset == 1000
        with connection.upsert_writer(info.path) as writer:
            writer.upsert({"id": np.arange(500, 1500)}).result()
            writer.delete({"id": np.arange(300)}).result()
        found = [first, *runs]
    assert found[0].rows.schema.names == ["name", "id"]
    rows = [row for run in found for row in run.rows.to_pylist()]
    assert sorted(rows, key=lambda row: row["id"]) == [{"name": f"name {key}", "id": key} for key in range(1000)]


def test_an_empty_bucket_has_no_batches(connection, make_table):
    info = make_table(COLUMNS, primary_key=["id"])
    scan = connection.scan_kv(info, bucket(info))
    assert list(scan) == []
    assert scan.log_offset == 0


def test_a_scan_is_read_once_and_can_be_closed_early(shared_cluster, make_table):
    info = make_table(COLUMNS, primary_key=["id"])
    with Connection(lambda: shared_cluster.address, SMALL) as connection:
        fill(connection, info, 300)
        with connection.scan_kv(info, bucket(info)) as scan:
            assert "KvScan" in repr(scan)
            runs = iter(scan)
            next(runs)
            scan.close()
            with pytest.raises(UnavailableError, match="begin a new one"):
                next(runs)
        with pytest.raises(InvalidRequestError, match="already"):
            next(iter(scan))


def test_what_cannot_be_scanned_is_reported(connection, make_table):
    info = make_table(COLUMNS, primary_key=["id"])
    with pytest.raises(UnsupportedError, match="no primary key"):
        connection.scan_kv(make_table(name="log"), bucket(info))
    with pytest.raises(InvalidSchemaError, match="nothing"):
        connection.scan_kv(info, bucket(info), columns=["nothing"])
    with pytest.raises(BucketNotFoundError):
        list(connection.scan_kv(info, bucket(info, 9)))


@pytest.fixture
def own_cluster():
    """A cluster that may be restarted."""
    clock = MockClock()
    with EmbeddedCluster(lake=False, clock=clock, client=SMALL) as cluster:
        cluster.connection.admin().create_database("db")
        descriptor = make_descriptor(COLUMNS, primary_key=["id"])
        info = cluster.connection.admin().create_table(TablePath("db", "t"), descriptor)
        fill(cluster.connection, info)
        yield cluster, info, clock


def test_a_scan_begins_after_a_restart_and_one_that_began_before_it_fails(own_cluster):
    cluster, info, _ = own_cluster
    connection = cluster.connection
    later = connection.scan_kv(info, bucket(info))
    begun = connection.scan_kv(info, bucket(info))
    assert begun.log_offset == 1000
    cluster.restart()
    with connection.upsert_writer(info.path) as writer:
        writer.delete({"id": [3]}).result()
    runs = iter(begun)
    next(runs)
    with pytest.raises(UnavailableError, match="rows were given out; begin a new one") as caught:
        next(runs)
    assert caught.value.retriable
    assert not isinstance(caught.value, ServerUnavailableError)
    found = [key for run in later for key in run.rows.column("id").to_pylist()]
    assert sorted(found) == [key for key in range(1000) if key != 3]
    assert later.log_offset == 1001


def test_a_scan_that_paused_for_too_long_says_so(own_cluster):
    cluster, info, clock = own_cluster
    runs = iter(cluster.connection.scan_kv(info, bucket(info)))
    next(runs)
    clock.advance(3_600_000)
    other = iter(cluster.connection.scan_kv(info, bucket(info)))
    next(other)
    with pytest.raises(UnavailableError, match="begin a new one"):
        list(runs)
    other.close()


# -- limit scan ---------------------------------------------------------------------------------------------------------


def test_some_live_rows_of_a_primary_key_table(connection, make_table):
    info = make_table(COLUMNS, primary_key=["id"], buckets=3)
    assert connection.limit_scan(info.path, 5).schema == info.schema.arrow_schema
    fill(connection, info, 10)
    with connection.upsert_writer(info.path) as writer:
        writer.delete({"id": [0]})
    for limit, expected in [(0, 0), (4, 4), (9, 9), (100, 9)]:
        found = connection.limit_scan(info.path, limit)["id"].to_pylist()
        assert len(set(found)) == expected
        assert set(found) <= set(range(1, 10))


def test_the_latest_records_of_a_log_table(connection, make_table):
    info = make_table({"id": "bigint"}, buckets=2, bucket_key=["id"])
    assert connection.limit_scan(info.path, 5).num_rows == 0
    with connection.append_writer(info.path) as writer:
        for index in range(50):
            writer.append([{"id": index}]).result()
    found = connection.limit_scan(info.path, 100)["id"].to_pylist()
    assert sorted(found) == list(range(50))
    assert found[0] < 5
    assert set(connection.limit_scan(info.path, 2)["id"].to_pylist()) <= set(range(45, 50))
    assert connection.limit_scan(info.path, 0).num_rows == 0


def test_partitions_are_chosen_by_name(connection, make_table):
    info = make_table({"id": "bigint", "p": "string"}, primary_key=["id", "p"], partitioned_by=["p"])
    with connection.upsert_writer(info.path) as writer:
        writer.upsert([{"id": index, "p": "ab"[index % 2]} for index in range(6)])
    assert set(connection.limit_scan(info.path, 10, ["b"])["id"].to_pylist()) == {1, 3, 5}
    assert connection.limit_scan(info.path, 10).num_rows == 6
    with pytest.raises(PartitionNotFoundError, match="'c'"):
        connection.limit_scan(info.path, 10, ["c"])
    with pytest.raises(InvalidPartitionError):
        connection.limit_scan(make_table(name="plain").path, 1, ["a"])
    for wrong in (-1, True, 1.5):
        with pytest.raises(InvalidRequestError, match="limit"):
            connection.limit_scan(info.path, wrong)
