"""Appending: where rows go, in which order, and what is refused before anything is sent."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.client import AppendWriter, Connection, read_range
from fluss_lab.errors import (
    InvalidPartitionError,
    InvalidRecordError,
    InvalidRequestError,
    PartitionNotFoundError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.model import OffsetSpec, TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.model.bucketing import fluss_bucket_ids, iceberg_bucket_ids
from fluss_lab.testing import EmbeddedCluster


def ends(connection: Connection, info: TableInfo) -> dict[tuple[str | None, int], int]:
    return {
        (each.partition, each.bucket.bucket): each.require().end_offset for each in connection.admin().buckets(info)
    }


def rows_by_bucket(connection: Connection, info: TableInfo) -> dict[tuple[str | None, int], list[dict]]:
    found = {}
    for each in connection.admin().buckets(info):
        runs = read_range(connection, info, each.bucket, 0, each.require().end_offset)
        found[each.partition, each.bucket.bucket] = [row for run in runs for row in run.rows.to_pylist()]
    return found


def test_every_type_comes_back_as_it_was(connection, make_table):
    columns = {
        "boolean": "boolean", "tiny": "tinyint", "small": "smallint", "int": "int", "big": "bigint", "float": "float",
        "double": "double", "char": "char(3)", "string": "string", "binary": "binary(2)", "bytes": "bytes",
        "decimal": "decimal(38,10)", "date": "date", "time": "time(6)", "timestamp": "timestamp(9)",
        "ltz": "timestamp_ltz(3)", "list": "array<array<int>>", "map": "map<string, row<a int not null>>",
        "row": "row<a int, b array<string>>",
    }  # fmt: skip
    row = {
        "boolean": False, "tiny": -128, "small": 2, "int": 3, "big": 2**63 - 1, "float": 0.5, "double": 0.1, "char": "a",
        "string": "é\0x", "binary": b"\0\1", "bytes": b"", "decimal": Decimal("-12.0000000001"),
        "date": dt.date(1969, 12, 31), "time": dt.time(23, 59, 59, 999999), "timestamp": dt.datetime(1600, 1, 1, 0, 0, 0, 1),
        "ltz": dt.datetime(9999, 12, 31, tzinfo=dt.UTC), "list": [[1, None], None, []], "map": [("k", {"a": 1}), ("l", None)],
        "row": {"a": None, "b": ["x", None]},
    }  # fmt: skip
    row["timestamp"] = dt.datetime(1970, 1, 1, 0, 0, 0, 1)
    info = make_table(columns)
    rows = [row, dict.fromkeys(columns), row]
    with connection.append_writer(info.path) as writer:
        result = writer.append(rows).result()
    assert result.rows == 3
    assert dict(result.offsets) == {(None, 0): ((0, 3),)}
    (runs,) = [list(read_range(connection, info, TableBucket(info.table_id, None, 0), 0, 3))]
    read = pa.Table.from_batches([run.rows for run in runs])
    assert read.schema.equals(info.schema.arrow_schema)
    read = read.set_column(14, "timestamp", read.column("timestamp").cast(pa.timestamp("us")))
    assert read.to_pylist() == rows


def test_appends_keep_their_order_and_get_offsets_without_gaps(connection, make_table):
    info = make_table(buckets=1)
    with connection.append_writer(info.path) as writer:
        results = [writer.append([{"id": 10 * index + at} for at in range(index % 4)]) for index in range(200)]
    at = 0
    for index, future in enumerate(results):
        result = future.result()
        count = index % 4
        assert dict(result.offsets) == ({(None, 0): ((at, at + count),)} if count else {})
        at += count
    (rows,) = rows_by_bucket(connection, info).values()
    assert [row["id"] for row in rows] == [10 * index + at for index in range(200) for at in range(index % 4)]


@pytest.mark.parametrize(
    ("columns", "key"), [({"id": "bigint", "x": "int"}, ["id"]), ({"id": "bigint", "s": "string"}, ["s", "id"])]
)
def test_a_row_goes_to_the_bucket_of_its_key(connection, make_table, columns, key):
    info = make_table(columns, buckets=5, bucket_key=key)
    count = 2000
    data = {"id": np.arange(count), list(columns)[1]: [7] * count if "x" in columns else [str(i) for i in range(count)]}
    with connection.append_writer(info.path) as writer:
        result = writer.append(data).result()
    keys = [pa.array(data[name]) for name in key]
    expected = iceberg_bucket_ids(keys[0], 5) if len(key) == 1 else fluss_bucket_ids(keys, 5)
    by_bucket = rows_by_bucket(connection, info)
    for bucket in range(5):
        wanted = [index for index, found in enumerate(expected.to_pylist()) if found == bucket]
        assert [row["id"] for row in by_bucket[None, bucket]] == wanted
        assert result.offsets[None, bucket] == ((0, len(wanted)),)


def test_without_key_small_appends_take_turns_and_large_ones_are_spread(connection, make_table):
    info = make_table(buckets=4)
    with connection.append_writer(info.path) as writer:
        used = [next(iter(writer.append([{"id": 1}]).result().offsets)) for _ in range(8)]
        assert Counter(used) == {(None, bucket): 2 for bucket in range(4)}
        result = writer.append({"id": np.arange(100_000)}).result()
    assert {end - base for ((base, end),) in result.offsets.values()} == {25_000}
    assert len(result.offsets) == 4
    for (_, bucket), ((base, end),) in result.offsets.items():
        runs = read_range(connection, info, TableBucket(info.table_id, None, bucket), base, end)
        ids = np.concatenate([run.rows.column("id").to_numpy() for run in runs])
        assert np.array_equal(np.diff(ids), np.ones(24_999))


def test_writers_made_one_after_another_begin_at_different_buckets(connection, make_table):
    info = make_table(buckets=3)
    used = set()
    for _ in range(3):
        with connection.append_writer(info.path) as writer:
            used.add(next(iter(writer.append([{"id": 1}]).result().offsets)))
    assert len(used) == 3


def test_partitions_are_created_as_rows_need_them(connection, make_table):
    info = make_table({"id": "int", "month": "string", "kind": "string"}, partitioned_by=["month", "kind"], buckets=2)
    rows = [{"id": index, "month": f"2020-0{index % 3 + 1}", "kind": "ab"[index % 2]} for index in range(60)]
    with connection.append_writer(info.path) as writer:
        result = writer.append(rows).result()
        writer.append(rows[:1]).result()
    names = [partition.name for partition in connection.admin().partitions(info.path)]
    assert names == [f"2020-0{month}${kind}" for month in (1, 2, 3) for kind in "ab"]
    assert sum(end - base for ranges in result.offsets.values() for base, end in ranges) == 60
    found = rows_by_bucket(connection, info)
    for (name, _), rows_found in found.items():
        assert all(f"{row['month']}${row['kind']}" == name for row in rows_found)
    assert sorted(row["id"] for rows_found in found.values() for row in rows_found) == sorted([0, *range(60)])


def test_partitions_are_not_created_when_that_is_switched_off(shared_cluster, make_table):
    info = make_table({"id": "int", "month": "string"}, partitioned_by=["month"])
    options = {"client.writer.dynamic-create-partition.enabled": "false"}
    with (
        Connection(lambda: shared_cluster.address, options) as connection,
        connection.append_writer(info.path) as writer,
    ):
        with pytest.raises(PartitionNotFoundError, match=r"'a' does not exist.*dynamic-create"):
            writer.append([{"id": 1, "month": "a"}])
        connection.admin().create_partition(info.path, {"month": "a"})
        assert writer.append([{"id": 1, "month": "a"}]).result().rows == 1
        with pytest.raises(PartitionNotFoundError):
            writer.append([{"id": 1, "month": "a"}, {"id": 1, "month": "b"}])
        assert ends(connection, info) == {("a", 0): 1}


@pytest.mark.parametrize("value", ["", "a$b", "x" * 256, "a\nb"])
def test_a_partition_value_that_cannot_be_is_refused_with_its_row(connection, make_table, value):
    info = make_table({"id": "int", "month": "string"}, partitioned_by=["month"])
    with connection.append_writer(info.path) as writer, pytest.raises(InvalidPartitionError, match="row 1"):
        writer.append([{"id": 1, "month": "good"}, {"id": 1, "month": value}])
    assert connection.admin().partitions(info.path) == []


def test_writing_to_a_dropped_and_recreated_partition_reaches_the_new_one(connection, stranger, make_table):
    info = make_table({"id": "int", "month": "string"}, partitioned_by=["month"])
    with connection.append_writer(info.path) as writer:
        writer.append([{"id": 1, "month": "a"}]).result()
        stranger.admin().drop_partition(info.path, {"month": "a"})
        with pytest.raises(PartitionNotFoundError):
            writer.append([{"id": 2, "month": "a"}]).result()
        result = writer.append([{"id": 3, "month": "a"}]).result()
    assert dict(result.offsets) == {("a", 0): ((0, 1),)}


def test_nothing_of_an_append_is_sent_when_a_row_is_wrong(connection, make_table):
    info = make_table({"id": "int not null"})
    with connection.append_writer(info.path) as writer:
        with pytest.raises(InvalidRecordError, match="row 3"):
            writer.append([{"id": 1}] * 3 + [{"id": None}])
        writer.flush()
        assert ends(connection, info) == {(None, 0): 0}
        assert writer.append([{"id": 1}]).result().rows == 1


def test_a_large_append_is_cut_and_a_larger_row_is_a_batch_of_its_own(shared_cluster, make_table):
    info = make_table()
    with Connection(lambda: shared_cluster.address, {"client.writer.batch-size": "4kb"}) as connection:
        with connection.append_writer(info.path) as writer:
            rows = [{"id": index, "name": "x" * (index % 2500 + 9000 * (index == 5))} for index in range(500)]
            assert dict(writer.append(rows).result().offsets) == {(None, 0): ((0, 500),)}
        assert rows_by_bucket(connection, info) == {(None, 0): rows}


def test_append_waits_while_the_buffer_is_full_and_takes_an_append_larger_than_it(shared_cluster, make_table):
    info = make_table()
    options = {"client.writer.buffer-memory-size": "20kb", "client.writer.batch-size": "8kb"}
    with (
        Connection(lambda: shared_cluster.address, options) as connection,
        connection.append_writer(info.path) as writer,
    ):
        for _ in range(50):
            writer.append({"id": np.arange(300), "name": ["x" * 50] * 300})
        writer.flush()
        assert ends(connection, info) == {(None, 0): 15_000}


def test_threads_share_a_writer(connection, make_table):
    info = make_table(buckets=2)
    with connection.append_writer(info.path) as writer:

        def work(thread: int) -> None:
            for index in range(50):
                writer.append([{"id": index, "name": str(thread)}])

        threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = rows_by_bucket(connection, info)
    assert sum(map(len, found.values())) == 200
    for rows in found.values():
        for thread in range(4):
            ids = [row["id"] for row in rows if row["name"] == str(thread)]
            assert ids == sorted(ids)


def test_a_closed_writer_refuses_and_close_is_idempotent(connection, make_table):
    info = make_table()
    writer = connection.append_writer(info.path)
    future = writer.append([{"id": 1}])
    writer.close()
    assert future.done()
    writer.close()
    with pytest.raises(InvalidRequestError, match="closed"):
        writer.append([{"id": 1}])
    assert "closed" in repr(writer)


def test_an_error_in_the_block_is_not_hidden_by_the_writers(connection, make_table):
    info = make_table()
    futures = []

    def fail() -> None:
        with connection.append_writer(info.path) as writer:
            futures.append(writer.append([{"id": 1}]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert futures[0].result().rows == 1


def test_flush_raises_what_nobody_looked_at(connection, make_table):
    info = make_table()
    writers = [connection.append_writer(info.path) for _ in range(2)]
    for writer in writers:
        writer.append([{"id": 1}]).result()
    connection.admin().drop_table(info.path)
    with pytest.raises(TableNotFoundError):
        writers[0].append([{"id": 2}]).result()
    writers[0].flush()
    writers[1].append([{"id": 2}])
    with pytest.raises(TableNotFoundError, match=str(info.path)):
        writers[1].flush()
    for writer in writers:
        with pytest.raises(TableNotFoundError):
            writer.append([{"id": 3}]).result()
        writer.close()


def test_a_table_dropped_and_made_again_is_not_written_to_by_an_old_writer(connection, make_table):
    info = make_table()
    writer = connection.append_writer(info.path)
    writer.append([{"id": 1}]).result()
    connection.admin().drop_table(info.path)
    again = make_table()
    with pytest.raises(TableNotFoundError):
        writer.append([{"id": 2}]).result()
    writer.close()
    assert ends(connection, again) == {(None, 0): 0}


def test_a_primary_key_table_is_not_appended_to(connection, make_table):
    info = make_table()
    keyed = TableInfo(info.path, 99, 1, _keyed(), 0, 0)
    with pytest.raises(UnsupportedError, match="upsert"):
        AppendWriter(connection, keyed)


def _keyed():
    return make_descriptor({"id": "int"}, primary_key=["id"])


def test_results_show_themselves(connection, make_table):
    info = make_table()
    with connection.append_writer(info.path) as writer:
        future = writer.append([{"id": 1}, {"id": 2}])
        result = future.result()
    assert "2 rows in 1 buckets" in repr(result)
    assert "2 rows" in repr(future)
    assert "[0, 2)" in result._repr_html_()
    assert result.seconds > 0
    assert not future.cancel()


def test_unknown_tables_are_reported(connection):
    with pytest.raises(TableNotFoundError):
        connection.append_writer("nothing.here")
    with pytest.raises(TableNotFoundError):
        connection.log_scanner(TablePath("nothing", "here"))
    assert OffsetSpec.earliest().kind == 0


def test_a_writer_goes_on_over_a_graceful_restart():
    with EmbeddedCluster(lake=False) as cluster:
        cluster.connection.admin().create_database("db")
        info = cluster.connection.admin().create_table(TablePath("db", "t"), make_descriptor({"id": "bigint"}))
        with cluster.connection.append_writer(info.path) as writer:
            writer.append([{"id": 0}]).result()
            restart = threading.Thread(target=cluster.restart)
            restart.start()
            at = 1
            while restart.is_alive() or at < 10:
                writer.append([{"id": at}])
                at += 1
            restart.join()
        assert rows_by_bucket(cluster.connection, info) == {(None, 0): [{"id": index} for index in range(at)]}
