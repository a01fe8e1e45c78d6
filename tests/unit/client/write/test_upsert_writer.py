"""Upserting and deleting: what becomes of rows and changelog, and what is refused before anything is sent."""

from __future__ import annotations

import random
import threading
from typing import Any

import pyarrow as pa
import pytest

from fluss_lab.client import Admin, Connection, UpsertResult, UpsertWriter, read_range
from fluss_lab.client.write.write_requests import Upserts
from fluss_lab.errors import (
    ConflictError,
    InvalidPartitionError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidSchemaError,
    PartitionNotFoundError,
    RecordTooLargeError,
    ServerUnavailableError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.model import TableBucket, TableInfo, TablePath, make_descriptor
from fluss_lab.model.changes import CHANGE_SYMBOLS
from fluss_lab.testing import EmbeddedCluster

pytestmark = pytest.mark.slow

COLUMNS = {"id": "bigint", "name": "string", "n": "int"}


def changes(connection: Connection, info: TableInfo, bucket: int = 0, partition: str | None = None) -> list[Any]:
    """Return (change, row as a tuple) of a bucket's changelog."""
    partition_id = None if partition is None else connection.partitions(info)[partition].partition_id
    place = TableBucket(info.table_id, partition_id, bucket)
    found = {each.bucket: each for each in connection.admin().buckets(info)}[place]
    runs: list[Any] = list(read_range(connection, info, place, 0, found.require().end_offset, partition=partition))
    return [
        (CHANGE_SYMBOLS[change], *row.values())
        for run in runs
        for change, row in zip(run.change_types.to_pylist(), run.rows.to_pylist(), strict=True)
    ]


def rows(connection: Connection, info: TableInfo) -> list[dict[str, Any]]:
    """Return the live rows of all buckets, by key."""
    partitions: list[int | None] = [None]
    if info.descriptor.partitioned_by:
        partitions = [each.partition_id for each in connection.partitions(info).values()]
    found = []
    for partition_id in partitions:
        for bucket in range(info.descriptor.buckets):
            scan = connection.scan_kv(info, TableBucket(info.table_id, partition_id, bucket))
            found += [row for run in scan for row in run.rows.to_pylist()]
    return sorted(found, key=lambda row: [row[name] for name in info.schema.primary_key])


def test_upserts_and_deletes_make_rows_and_a_changelog(connection, make_table):
    info = make_table(COLUMNS, primary_key=["id"])
    with connection.upsert_writer(info.path) as writer:
        first = writer.upsert([{"id": 1, "name": "a", "n": 1}, {"id": 2, "name": "b"}]).result()
        second = writer.upsert([{"id": 1, "name": "c", "n": 2}, {"id": 2, "name": "b"}]).result()
        third = writer.delete([{"id": 2}, {"id": 9}]).result()
        nothing = writer.delete([{"id": 9}]).result()
    assert changes(connection, info) == [
        ("+I", 1, "a", 1), ("+I", 2, "b", None), ("-U", 1, "a", 1), ("+U", 1, "c", 2), ("-D", 2, "b", None),
    ]  # fmt: skip
    assert [each.rows for each in (first, second, third, nothing)] == [2, 2, 2, 1]
    offsets = [dict(each.offsets)[None, 0] for each in (first, second, third, nothing)]
    assert offsets == [((0, 2),), ((2, 4),), ((4, 5),), ((5, 5),)]
    assert rows(connection, info) == [{"id": 1, "name": "c", "n": 2}]


def test_calls_keep_their_order_also_mixed_in_one_batch(connection, make_table, seed):
    rng = random.Random(seed)
    info = make_table(COLUMNS, primary_key=["id"], buckets=3)
    expected: dict[int, dict[str, Any]] = {}
    futures: list[UpsertResult] = []
    with connection.upsert_writer(info.path) as writer:
        for number in range(400):
            keys = [rng.randrange(20) for _ in range(rng.randrange(1, 6))]
            if rng.random() < 0.3:
                futures.append(writer.delete({"id": keys}))
                for key in keys:
                    expected.pop(key, None)
            else:
                futures.append(
                    writer.upsert([{"id": key, "name": str(number), "n": at} for at, key in enumerate(keys)])
                )
                expected |= {key: {"id": key, "name": str(number), "n": at} for at, key in enumerate(keys)}
        writer.flush()
    assert rows(connection, info) == [expected[key] for key in sorted(expected)]
    state: dict[int, tuple[Any, ...]] = {}
    for bucket in range(3):
        for change, *row in changes(connection, info, bucket):
            if change in {"-U", "-D"}:
                assert state.pop(row[0]) == tuple(row)
            else:
                assert row[0] not in state
                state[row[0]] = tuple(row)
    assert state == {key: tuple(row.values()) for key, row in expected.items()}
    assert all(future.result().rows for future in futures)


def test_a_partial_update_keeps_the_other_columns(connection, make_table):
    info = make_table({**COLUMNS, "x": "double"}, primary_key=["id"])
    with connection.upsert_writer(info.path) as writer:
        writer.upsert([{"id": 1, "name": "a", "n": 1, "x": 0.5}]).result()
    with connection.upsert_writer(info.path, columns=["n", "id"]) as writer:
        writer.upsert([{"n": 7, "id": 1}, {"id": 2, "n": 8}]).result()
        # Columns that the update does not name are left out, even where a row has them.
        writer.upsert(pa.table({"x": [9.0], "id": [1], "n": pa.array([None], pa.int32())})).result()
    assert rows(connection, info) == [
        {"id": 1, "name": "a", "n": None, "x": 0.5},
        {"id": 2, "name": None, "n": 8, "x": None},
    ]


@pytest.mark.parametrize(
    "rows_given",
    [[{"id": 1, "n": 2}, {"id": 1}], {"id": [1]}, pa.table({"id": [1]}), pa.table({"id": [1], "name": ["a"]})],
)
def test_a_partial_update_needs_every_column_it_names(connection, make_table, rows_given):
    """A column that is left out would be erased otherwise."""
    info = make_table(COLUMNS, primary_key=["id"])
    with (
        connection.upsert_writer(info.path, columns=["id", "n"]) as writer,
        pytest.raises(InvalidRecordError, match="'n' is missing"),
    ):
        writer.upsert(rows_given)


@pytest.mark.parametrize(
    ("columns", "error", "says"),
    [
        (["name"], InvalidSchemaError, "include the primary key"),
        (["id", "nothing"], InvalidSchemaError, "nothing"),
        (["id", "n", "n"], InvalidSchemaError, "given twice"),
        ("id", InvalidSchemaError, "list of names"),
    ],
)
def test_partial_updates_that_cannot_be_are_refused(connection, make_table, columns, error, says):
    info = make_table(COLUMNS, primary_key=["id"])
    with pytest.raises(error, match=says):
        connection.upsert_writer(info.path, columns=columns)


def test_partial_updates_of_tables_that_keep_whole_rows_are_refused(connection, make_table):
    strict = make_table({"id": "bigint", "a": "int not null", "b": "int"}, name="strict", primary_key=["id"])
    with pytest.raises(UnsupportedError, match="'a' INT NOT NULL"):
        connection.upsert_writer(strict.path, columns=["id", "a"])
    with connection.upsert_writer(strict.path, columns=["b", "a", "id"]) as writer:
        writer.upsert([{"id": 1, "a": 2, "b": 3}]).result()
    first = make_table(COLUMNS, name="first", primary_key=["id"], properties={"table.merge-engine": "first_row"})
    with pytest.raises(UnsupportedError, match="first_row"):
        connection.upsert_writer(first.path, columns=["id", "n"])


def test_deletes_take_rows_or_keys(connection, make_table):
    info = make_table({"a": "int", "v": "int not null", "b": "string"}, primary_key=["b", "a"])
    given = [{"a": index, "b": f"k{index}", "v": index} for index in range(8)]
    with connection.upsert_writer(info.path) as writer:
        writer.upsert(given)
        writer.delete(given[:1])
        writer.delete({"b": ["k1"], "a": [1]})
        writer.delete(pa.Table.from_pylist(given[2:3]))
        # What is no key column is not looked at.
        writer.delete([{"b": "k3", "a": 3, "v": "nonsense"}])
        writer.delete({"b": "k4", "a": 4, "v": ["nonsense"]})
        writer.delete({"b": ["k6"], "a": [6], "v": "nonsense"})
        for wrong in (
            {},
            {"a": 4},
            {"a": 4, "b": None},
            {"a": 4, "b": ["k4"]},
            [{"a": 4}],
            [{"a": 4, "b": None}],
            [{"a": 4, "b": "k4", "c": 1}],
            [4],
        ):
            with pytest.raises(InvalidRecordError):
                writer.delete(wrong)
    assert [row["a"] for row in rows(connection, info)] == [5, 7]


def test_deletes_that_a_table_forbids_are_refused_and_its_other_rows_go_on(connection, make_table):
    info = make_table(COLUMNS, primary_key=["id"], properties={"table.delete.behavior": "disable"})
    with connection.upsert_writer(info.path) as writer:
        writer.upsert([{"id": 1}])
        with pytest.raises(UnsupportedError, match=r"table\.delete\.behavior"):
            writer.delete([{"id": 1}])
        writer.upsert([{"id": 2}])
    assert [row["id"] for row in rows(connection, info)] == [1, 2]


def test_nothing_is_sent_when_a_row_is_wrong(connection, make_table):
    info = make_table({"id": "bigint", "must": "int not null"}, primary_key=["id"])
    with connection.upsert_writer(info.path) as writer:
        for wrong, says in [
            ([{"id": 1, "must": 1}, {"id": None, "must": 1}], "'id', row 1"),
            ([{"id": 1, "must": None}], "'must', row 0"),
            ([{"id": 1}], "'must'"),
            ([{"id": 2**63, "must": 1}], "'id', row 0"),
        ]:
            with pytest.raises(InvalidRecordError, match=says):
                writer.upsert(wrong)
        writer.flush()
    assert rows(connection, info) == []


def test_partitions_are_made_for_upserts_and_not_for_deletes(connection, make_table):
    info = make_table({"id": "bigint", "p": "string"}, primary_key=["id", "p"], partitioned_by=["p"])
    with connection.upsert_writer(info.path) as writer:
        result = writer.delete([{"id": 1, "p": "a"}, {"id": 2, "p": "b"}]).result()
        assert (result.rows, dict(result.offsets)) == (2, {})
        assert connection.admin().partitions(info.path) == []
        writer.upsert([{"id": 1, "p": "a"}]).result()
        mixed = writer.delete([{"id": 1, "p": "a"}, {"id": 2, "p": "b"}]).result()
        assert (mixed.rows, dict(mixed.offsets)) == (2, {("a", 0): ((1, 2),)})
        with pytest.raises(InvalidPartitionError, match="row 0"):
            writer.upsert([{"id": 1, "p": "a$b"}])
    assert [each.name for each in connection.admin().partitions(info.path)] == ["a"]


def test_a_delete_from_a_partition_dropped_meanwhile_is_done(connection, stranger, make_table):
    info = make_table({"id": "bigint", "p": "string"}, primary_key=["id", "p"], partitioned_by=["p"])
    with connection.upsert_writer(info.path) as writer:
        writer.upsert([{"id": 1, "p": "a"}]).result()
        stranger.admin().drop_partition(info.path, {"p": "a"})
        assert dict(writer.delete([{"id": 1, "p": "a"}]).result().offsets) == {}
        assert dict(writer.delete([{"id": 1, "p": "a"}]).result().offsets) == {}
        stranger.admin().create_partition(info.path, {"p": "a"})
        assert dict(writer.upsert([{"id": 1, "p": "a"}]).result().offsets) == {("a", 0): ((0, 1),)}
        stranger.admin().drop_partition(info.path, {"p": "a"})
        with pytest.raises(PartitionNotFoundError):
            writer.upsert([{"id": 2, "p": "a"}]).result()


def test_what_another_partition_was_dropped_for_is_done_all_the_same(connection, stranger, make_table):
    """Of buckets whose servers are looked up together one may be gone; the others are not."""
    info = make_table({"id": "bigint", "p": "string"}, primary_key=["id", "p"], partitioned_by=["p"])
    with stranger.upsert_writer(info.path) as other:
        other.upsert([{"id": 1, "p": name} for name in "abcd"]).result()
    with connection.upsert_writer(info.path) as writer:
        writer.upsert([{"id": 2, "p": "d"}]).result()
        stranger.admin().drop_partition(info.path, {"p": "a"})
        assert dict(writer.delete([{"id": 1, "p": "a"}, {"id": 1, "p": "b"}]).result().offsets) == {("b", 0): ((1, 2),)}
        stranger.admin().drop_partition(info.path, {"p": "b"})
        connection.forget_leaders()
        refused = writer.upsert([{"id": 3, "p": "b"}, {"id": 3, "p": "c"}])
        with pytest.raises(PartitionNotFoundError):
            refused.result()
        assert writer.upsert([{"id": 4, "p": "c"}]).result().rows == 1
    assert [row[1] for row in changes(connection, info, partition="c")] == [1, 3, 4]


def test_a_delete_from_a_partition_that_was_made_again_is_refused_not_taken_for_done(connection, stranger, make_table):
    info = make_table({"id": "bigint", "p": "string"}, primary_key=["id", "p"], partitioned_by=["p"])
    with connection.upsert_writer(info.path) as writer:
        writer.upsert([{"id": 1, "p": "a"}]).result()
        stranger.admin().drop_partition(info.path, {"p": "a"})
        with stranger.upsert_writer(info.path) as other:
            other.upsert([{"id": 1, "p": "a"}]).result()
        with pytest.raises(ConflictError, match="dropped and made again meanwhile"):
            writer.delete([{"id": 1, "p": "a"}]).result()
        assert dict(writer.delete([{"id": 1, "p": "a"}]).result().offsets) == {("a", 0): ((1, 2),)}


def test_a_partition_that_is_dropped_as_soon_as_it_is_made_takes_no_rows(connection, stranger, make_table, monkeypatch):
    info = make_table({"id": "bigint", "p": "string"}, partitioned_by=["p"])
    create = Admin.create_partitions

    def create_and_drop(self, path, specs, if_not_exists=False):
        create(self, path, specs, if_not_exists)
        stranger.admin().drop_partition(path, specs[0])

    monkeypatch.setattr(Admin, "create_partitions", create_and_drop)
    with connection.append_writer(info.path) as writer, pytest.raises(PartitionNotFoundError, match="nothing was sent"):
        writer.append([{"id": 1, "p": "x"}])


def test_partitions_are_not_made_when_that_is_switched_off(shared_cluster, make_table):
    info = make_table({"id": "bigint", "p": "string"}, primary_key=["id", "p"], partitioned_by=["p"])
    options = {"client.writer.dynamic-create-partition.enabled": "false"}
    with (
        Connection(lambda: shared_cluster.address, options) as connection,
        connection.upsert_writer(info.path) as writer,
    ):
        with pytest.raises(PartitionNotFoundError, match="dynamic-create"):
            writer.upsert([{"id": 1, "p": "a"}])
        assert writer.delete([{"id": 1, "p": "a"}]).result().rows == 1


def test_large_calls_are_cut_and_a_larger_row_is_a_batch_of_its_own(shared_cluster, make_table):
    info = make_table({"id": "bigint", "text": "string"}, primary_key=["id"])
    with Connection(lambda: shared_cluster.address, {"client.writer.batch-size": "4kb"}) as connection:
        with connection.upsert_writer(info.path) as writer:
            given = [{"id": index, "text": "x" * (index % 2500 + 9000 * (index == 5))} for index in range(300)]
            assert dict(writer.upsert(given).result().offsets) == {(None, 0): ((0, 300),)}
        assert rows(connection, info) == given


def test_a_changelog_too_large_for_one_batch_is_made_in_several():
    """A partial update of narrow columns leads to a changelog of whole rows: only the server knows how large."""
    with EmbeddedCluster(lake=False, options={"server.request-size-max": "64kb"}) as cluster:
        connection = cluster.connection
        connection.admin().create_database("db")
        columns = {"id": "bigint", "n": "int", "text": "string"}
        info = connection.admin().create_table(TablePath("db", "t"), make_descriptor(columns, primary_key=["id"]))
        count = 200
        with connection.upsert_writer(info.path) as writer:
            for index in range(count):
                writer.upsert([{"id": index, "n": 0, "text": str(index % 10) * 2000}])
                writer.flush()
        with connection.upsert_writer(info.path, columns=["id", "n"]) as writer:
            futures = [
                writer.upsert({"id": list(range(start, count, 4)), "n": [start + 1] * (count // 4)})
                for start in range(4)
            ]
            assert [future.result().rows for future in futures] == [50] * 4
            # Whole again, and small enough.
            writer.upsert([{"id": 0, "n": 9}]).result()
        found = rows(connection, info)
        assert [(row["n"], len(row["text"])) for row in found] == [
            (9 if index == 0 else index % 4 + 1, 2000) for index in range(count)
        ]
        log = changes(connection, info)
        assert len(log) == count + 2 * count + 2
        assert [row[0] for row in log[count:]] == ["-U", "+U"] * (count + 1)


@pytest.mark.parametrize("buckets", [1, 4])
def test_rows_that_may_be_written_are_not_cut_when_a_request_is_refused_unread(
    connection, make_table, monkeypatch, buckets
):
    """Their first half would be taken for all of them, and the second be written again."""
    info = make_table({"id": "bigint", "n": "int"}, primary_key=["id"], buckets=buckets)
    real, sent = Upserts.send, []

    def send(kind, gateway, batches, timeout_ms):
        sent.append(len(batches))
        if len(sent) == 1:
            real(kind, gateway, batches, timeout_ms)
            raise ServerUnavailableError("the answer was lost")
        if len(batches) > 1 or buckets == 1:
            raise RecordTooLargeError("the request has more bytes than the server takes")
        return real(kind, gateway, batches, timeout_ms)

    monkeypatch.setattr(Upserts, "send", send)
    count = 100
    with connection.upsert_writer(info.path) as writer:
        future = writer.upsert({"id": list(range(count)), "n": [1] * count})
        if buckets > 1:  # each bucket's rows alone are small enough
            assert future.result().rows == count
        else:
            with pytest.raises(RecordTooLargeError, match="whether its rows were written is not known"):
                future.result()
            assert sent == [1, 1]
    assert sent[0] == buckets
    log = [change for bucket in range(buckets) for change, *_ in changes(connection, info, bucket)]
    assert log == ["+I"] * count


def test_threads_share_a_writer(connection, make_table):
    info = make_table(COLUMNS, primary_key=["id"], buckets=2)
    with connection.upsert_writer(info.path) as writer:

        def work(thread: int) -> None:
            for index in range(40):
                writer.upsert([{"id": thread, "name": str(index)}, {"id": 100 * (thread + 1) + index}])

        threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = rows(connection, info)
    assert len(found) == 4 + 160
    assert [row["name"] for row in found[:4]] == ["39"] * 4


def test_the_other_kind_of_table_is_refused_with_what_to_call(connection, make_table):
    log_table = make_table(name="log")
    with pytest.raises(UnsupportedError, match="append"):
        UpsertWriter(connection, log_table)
    with pytest.raises(UnsupportedError, match="upsert"):
        connection.append_writer(make_table(COLUMNS, name="pk", primary_key=["id"]).path)


def test_a_closed_writer_refuses_and_a_dropped_table_is_reported(connection, make_table):
    info = make_table(COLUMNS, primary_key=["id"])
    writer = connection.upsert_writer(info.path)
    future = writer.upsert([{"id": 1}])
    assert "UpsertResult" in repr(future)
    writer.close()
    assert "closed" in repr(writer)
    with pytest.raises(InvalidRequestError, match="closed"):
        writer.upsert([{"id": 1}])
    with connection.upsert_writer(info.path) as other:
        other.upsert([{"id": 1}]).result()
        connection.admin().drop_table(info.path)
        with pytest.raises(TableNotFoundError, match=str(info.path)):
            other.upsert([{"id": 2}]).result()


def test_a_writer_goes_on_over_a_graceful_restart():
    with EmbeddedCluster(lake=False) as cluster:
        cluster.connection.admin().create_database("db")
        descriptor = make_descriptor({"id": "bigint", "n": "bigint"}, primary_key=["id"], buckets=2)
        info = cluster.connection.admin().create_table(TablePath("db", "t"), descriptor)
        with cluster.connection.upsert_writer(info.path) as writer:
            writer.upsert([{"id": 0, "n": 0}]).result()
            restart = threading.Thread(target=cluster.restart)
            restart.start()
            at = 1
            while restart.is_alive() or at < 10:
                writer.upsert([{"id": at % 7, "n": at}])
                at += 1
            restart.join()
        expected = {n % 7: n for n in range(at)}
        assert rows(cluster.connection, info) == [{"id": key, "n": expected[key]} for key in sorted(expected)]
        # Every row was another one than before, so every one is in the changelog, once.
        log = [row for bucket in range(2) for row in changes(cluster.connection, info, bucket)]
        assert sorted(row[2] for row in log if row[0] in {"+I", "+U"}) == list(range(at))


def test_changes_that_change_nothing_never_hide_those_behind_them(shared_cluster, make_table):
    """They are in the log without records, so an answer full of them must not look like the end."""
    info = make_table({"id": "bigint", "n": "bigint"}, primary_key=["id"])
    options = {"client.scanner.log.fetch.max-bytes": "1kb", "client.scanner.log.fetch.wait-max-time": "50ms"}
    with Connection(lambda: shared_cluster.address, options) as connection:
        with connection.upsert_writer(info.path) as writer:
            writer.upsert([{"id": 1, "n": 1}]).result()
            for _ in range(60):
                writer.upsert([{"id": 1, "n": 1}]).result()
                writer.delete([{"id": 2}]).result()
            writer.upsert([{"id": 1, "n": 2}]).result()
            for _ in range(30):
                writer.delete([{"id": 2}]).result()
        assert changes(connection, info) == [("+I", 1, 1), ("-U", 1, 1), ("+U", 1, 2)]
        with connection.log_scanner(info.path) as scanner:
            scanner.subscribe(0, 0)
            found: list[int] = []
            while len(found) < 3:
                found += [n for batch in scanner.poll(30) for n in batch.rows.column("n").to_pylist()]
            assert found == [1, 1, 2]


def test_a_partial_delete_takes_its_columns_and_the_row_with_the_last(connection, make_table):
    info = make_table(COLUMNS, primary_key=["id"])
    with connection.upsert_writer(info.path) as writer:
        writer.upsert([{"id": 1, "name": "a", "n": 1}, {"id": 2, "n": 2}]).result()
    with connection.upsert_writer(info.path, columns=["id", "n"]) as writer:
        writer.delete([{"id": 1}, {"id": 2}]).result()
    assert rows(connection, info) == [{"id": 1, "name": "a", "n": None}]
