"""Reading a range of a bucket: exactly that, or an error that says what is missing."""

from __future__ import annotations

import numpy as np
import pytest

from fluss_lab.client import Connection, read_range
from fluss_lab.errors import BucketNotFoundError, OffsetOutOfRangeError, PartitionNotFoundError, TableNotFoundError
from fluss_lab.model import TableBucket


@pytest.fixture
def table(connection, make_table):
    info = make_table({"id": "bigint", "s": "string"})
    with connection.append_writer(info.path) as writer:
        for start in range(0, 1000, 100):
            writer.append({"id": np.arange(start, start + 100), "s": ["x"] * 100}).result()
    return info, TableBucket(info.table_id, None, 0)


@pytest.mark.parametrize(("start", "stop"), [(0, 1000), (0, 1), (50, 150), (999, 1000), (100, 200), (5, 5), (7, 3)])
def test_exactly_the_range(connection, table, start, stop):
    info, bucket = table
    runs = list(read_range(connection, info, bucket, start, stop))
    offsets = [offset for run in runs for offset in run.offsets.to_pylist()]
    assert offsets == list(range(start, stop))
    assert [row for run in runs for row in run.rows.column("id").to_pylist()] == offsets


def test_small_answers_and_projection(shared_cluster, table):
    info, bucket = table
    with Connection(lambda: shared_cluster.address, {"client.scanner.log.fetch.max-bytes": "1kb"}) as connection:
        runs = list(read_range(connection, info, bucket, 10, 990, projection=["s", "id"]))
    assert runs[0].rows.schema.names == ["s", "id"]
    assert [value for run in runs for value in run.rows.column("id").to_pylist()] == list(range(10, 990))


def test_a_range_beyond_the_end_is_an_error_after_what_there_is(connection, table):
    info, bucket = table
    found = []
    runs = read_range(connection, info, bucket, 900, 1100)
    with pytest.raises(OffsetOutOfRangeError, match=r"\[1000, 1100\)"):
        found.extend(run.offsets.to_pylist() for run in runs)
    found = [offset for offsets in found for offset in offsets]
    assert found == list(range(900, 1000))


def test_buckets_that_are_gone(connection, table, make_table):
    info, bucket = table
    with pytest.raises(BucketNotFoundError):
        list(read_range(connection, info, TableBucket(info.table_id, None, 5), 0, 1))
    with pytest.raises(PartitionNotFoundError):
        list(read_range(connection, info, TableBucket(info.table_id, 99_999, 0), 0, 1))
    connection.admin().drop_table(info.path)
    with pytest.raises(TableNotFoundError):
        list(read_range(connection, info, bucket, 0, 1))
