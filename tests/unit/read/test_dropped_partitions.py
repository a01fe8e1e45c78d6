"""Reads of tables that lost a partition: the table as it was before is told whole, or not at all."""

from __future__ import annotations

import pytest

from fluss_lab.client import Connection
from fluss_lab.errors import (
    FlussError,
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    UnsupportedError,
    UntieredRecordsError,
)
from fluss_lab.testing.tierers import LocalTieringExecutor, maintain_by_hand

pytestmark = pytest.mark.slow

A, B, C = "2013-01", "2013-02", "2013-03"


@pytest.fixture(params=["log", "keyed"])
def table(request, make_table, make_keyed):
    if request.param == "log":
        return make_table()
    return make_keyed(partitioned=True)


def write(table, month, rows=10):
    """Write some rows of new keys to a month, and let a second pass."""
    first = table.__dict__.setdefault("written", 0)
    table.written += rows
    keys = range(first, first + rows)
    columns = table.info.schema.names
    values = [dict.fromkeys(columns) | {"id": key, "month": month, "delay": 1} for key in keys]
    keyed = bool(table.info.schema.primary_key)
    writer = table.connection.upsert_writer(table.path) if keyed else table.connection.append_writer(table.path)
    with writer:
        (writer.upsert if keyed else writer.append)(values).result()
    table.clock.advance(1000)


def drop(table, month, **options):
    table.connection.admin().drop_partition(table.path, {"month": month}, **options)


def rows(table, **options):
    scan = table.reader().scan(["id"], **options)
    found = scan.to_arrow().num_rows
    assert scan.count() == found
    return found


def refused(table, moment_ms):
    reader = table.reader()
    for read in (
        lambda: reader.scan(as_of=moment_ms).to_arrow(),
        lambda: reader.scan(as_of=moment_ms).count(),
        lambda: reader.read_point(moment_ms),
        lambda: reader.diff(moment_ms),
    ):
        with pytest.raises(OffsetOutOfRangeError, match=r"no longer available: partition '2013-01' was dropped at"):
            read()


def test_as_of_between_the_end_of_the_lake_and_the_drop_is_refused(table):
    write(table, A)
    first_ms = table.clock.now_ms() - 1
    write(table, A)
    table.tier()
    write(table, A)
    write(table, B)
    written_ms = table.clock.now_ms()
    point = table.reader().read_point()
    table.clock.advance(1000)
    with pytest.raises(UntieredRecordsError, match="10 of its records"):
        drop(table, A)
    assert rows(table, as_of=written_ms) == 40
    drop(table, A, discard_untiered=True)
    table.clock.advance(1000)
    refused(table, written_ms)
    with pytest.raises(FlussError):
        rows(table, read_point=point)
    # What the lake holds is there, and so is what is now.
    assert rows(table, as_of=first_ms) == 10
    assert rows(table, as_of=table.clock.now_ms() - 1) == 30
    assert rows(table) == 30


def test_as_of_before_a_partition_went_that_was_never_tiered(table):
    write(table, B)
    early_ms = table.clock.now_ms() - 1
    write(table, A)
    written_ms = table.clock.now_ms()
    drop(table, A, discard_untiered=True)
    table.clock.advance(1000)
    refused(table, written_ms - 1)
    assert rows(table, as_of=early_ms) == 10
    assert rows(table, as_of=table.clock.now_ms() - 1) == 10


def test_as_of_before_a_partition_that_the_lake_held_whole(table):
    write(table, A)
    write(table, B)
    written_ms = table.clock.now_ms()
    table.tier()
    drop(table, A)
    table.clock.advance(1000)
    assert rows(table, as_of=written_ms) == 20
    assert rows(table) == 20


def test_as_of_before_a_partition_went_from_the_lake_too(table):
    write(table, A)
    write(table, B)
    written_ms = table.clock.now_ms()
    table.clock.advance(1000)
    table.tier()
    drop(table, A, lake=True)
    table.clock.advance(1000)
    refused(table, written_ms)
    write(table, A, 5)
    refused(table, written_ms)
    assert rows(table) == 15


def test_several_losses_are_reported_with_the_time_from_which_on_all_is_there(table, rng):
    for month in (A, B, C):
        write(table, month)
    written_ms = table.clock.now_ms()
    table.clock.advance(1000)
    drop(table, A, discard_untiered=True)
    table.clock.advance(rng.randint(1, 5000))
    drop(table, B, discard_untiered=True)
    last_ms = table.clock.now_ms()
    table.clock.advance(1000)
    with pytest.raises(OffsetOutOfRangeError, match=r"\(and 1 more partitions\); take a time at or after"):
        rows(table, as_of=written_ms)
    with pytest.raises(OffsetOutOfRangeError):
        rows(table, as_of=last_ms - 1)
    assert rows(table, as_of=last_ms) == 10


def test_a_lake_snapshot_from_before_a_partition_went_from_the_lake_too(table):
    write(table, A)
    write(table, B)
    first = table.tier().snapshot_id
    write(table, A)
    second = table.tier().snapshot_id
    reader = table.reader()
    assert reader.scan(["id"], as_of=second).count() == 30
    drop(table, A, lake=True)
    assert reader.scan(["id"], as_of=second).count() == 30  # a reader that has looked before too
    reader = table.reader()
    reader.read_point()
    assert reader.scan(["id"], as_of=second).count() == 30  # or since
    for _ in range(2):
        assert [rows(table, as_of=each) for each in (first, second)] == [20, 30]
        assert rows(table, as_of=second, partitions=[A]) == 20
        for moment in (first, second):
            with pytest.raises(PartitionNotFoundError, match="was dropped, with its partition"):
                table.reader().diff(moment)
        write(table, A, 5)  # made again under its name, and tiered
        third = table.tier().snapshot_id
        assert rows(table) == rows(table, as_of=third)
    assert rows(table) == 20
    maintained(table, "expire", 2 * 3_600_000)
    for moment in (first, second):
        with pytest.raises((LakeSnapshotNotFoundError, OffsetOutOfRangeError, PartitionNotFoundError)):
            rows(table, as_of=moment)


def maintained(table, action, ahead_ms):
    storage, executor = table.connection.lake_storage(), LocalTieringExecutor()
    maintain_by_hand(table.connection, storage, executor, action, table.info.table_id, ahead_ms=ahead_ms)


@pytest.mark.parametrize("meanwhile", [False, True], ids=["before", "meanwhile"])
def test_rows_that_only_the_lake_has_are_not_said_to_be_deleted(make_keyed, meanwhile):
    table = make_keyed(partitioned=True)
    write(table, A)
    write(table, B)
    table.tier()
    others = table.reader().scan(["id"], partitions=[B]).to_arrow()["id"].to_pylist()
    keys = [{"id": each, "month": A} for each in range(10)]
    with table.connection.upsert_writer(table.path) as writer:
        if meanwhile:
            # The writer knows the partition, and learns from its server that it is gone.
            writer.delete([{"id": 10**6, "month": A}]).result()
            with Connection(lambda: table.cluster.address) as stranger:
                stranger.admin().drop_partition(table.path, {"month": A})
            with pytest.raises(UnsupportedError, match=r"'2013-01' was dropped.*still read from the lake.*nothing was"):
                writer.delete(keys).result()
        else:
            drop(table, A)
        for gone in (keys, [*keys, {"id": others[0], "month": B}]):
            with pytest.raises(UnsupportedError, match=r"'2013-01' was dropped.*still read from the lake.*nothing was"):
                writer.delete(gone).result()
        assert rows(table) == 20
        drop(table, A, lake=True)
        assert writer.delete(keys).result().rows == 10
        assert rows(table) == 10


def test_rows_that_only_the_lake_has_are_not_looked_up_as_absent(make_keyed):
    table = make_keyed(partitioned=True)
    write(table, A)
    write(table, B)
    table.tier()
    keys = [{"id": 0, "month": A}, {"id": 10, "month": B}]
    with table.connection.lookuper(table.path) as lookuper:
        assert lookuper.lookup(keys)["id"].to_pylist() == [0, 10]
        with Connection(lambda: table.cluster.address) as stranger:
            stranger.admin().drop_partition(table.path, {"month": A})
        for asked in (keys[0], keys, [{"id": 10**6, "month": A}]):
            with pytest.raises(PartitionNotFoundError, match=r"'2013-01' was dropped.*the lake has its rows"):
                lookuper.lookup(asked)
        # Neither has any row of these.
        assert lookuper.lookup([keys[1], {"id": 0, "month": C}])["id"].to_pylist() == [10, None]
        drop(table, A, lake=True)
        assert lookuper.lookup(keys)["id"].to_pylist() == [None, 10]
