"""What an admin does, and what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fluss_lab.client import Connection
from fluss_lab.errors import (
    BucketNotFoundError,
    DatabaseExistsError,
    DatabaseNotEmptyError,
    DatabaseNotFoundError,
    InvalidNameError,
    InvalidPartitionError,
    InvalidPropertyError,
    InvalidTimestampError,
    LakeSnapshotNotFoundError,
    PartitionExistsError,
    PartitionNotFoundError,
    TableExistsError,
    TableNotFoundError,
)
from fluss_lab.model import OffsetSpec, TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster


def test_databases(connection, database):
    admin = connection.admin()
    name = f"{database}_more"
    admin.create_database(name)
    assert {database, name} <= set(admin.databases())
    with pytest.raises(DatabaseExistsError):
        admin.create_database(name)
    admin.create_database(name, if_not_exists=True)
    admin.create_table(TablePath(name, "t"), make_descriptor({"id": "int"}))
    with pytest.raises(DatabaseNotEmptyError):
        admin.drop_database(name)
    admin.drop_database(name, cascade=True)
    with pytest.raises(DatabaseNotFoundError, match="create it, or correct its name"):
        admin.drop_database(name)
    admin.drop_database(name, if_exists=True)
    with pytest.raises(InvalidNameError):
        admin.create_database("not a name")


def test_tables(connection, database):
    admin, path = connection.admin(), TablePath(database, "t")
    descriptor = make_descriptor({"id": "int", "s": "char(3)"}, buckets=3, bucket_key=["id"], comment="words")
    info = admin.create_table(path, descriptor)
    assert (info.path, info.descriptor) == (path, descriptor)
    assert admin.tables(database) == ["t"]
    assert admin.table_info(path) == info
    with pytest.raises(TableExistsError):
        admin.create_table(path, descriptor)
    assert admin.create_table(path, descriptor, if_not_exists=True) == info
    with pytest.raises(DatabaseNotFoundError):
        admin.create_table(TablePath("nowhere", "t"), descriptor)
    with pytest.raises(DatabaseNotFoundError):
        admin.tables("nowhere")
    admin.drop_table(path)
    with pytest.raises(TableNotFoundError):
        admin.drop_table(path)
    admin.drop_table(path, if_exists=True)


def test_altering_properties(connection, make_table):
    admin, info = connection.admin(), make_table()
    altered = admin.alter_table(info.path, set={"table.log.ttl": "2d", "custom.note": "x"})
    assert altered.descriptor.properties == {"table.log.ttl": "2d", "custom.note": "x"}
    altered = admin.alter_table(info.path, reset=["custom.note"])
    assert altered.descriptor.properties == {"table.log.ttl": "2d"}
    assert admin.alter_table(info.path) == altered
    with pytest.raises(InvalidPropertyError):
        admin.alter_table(info.path, set={"table.log.tll": "2d"})


def test_partitions(connection, make_table):
    admin, info = connection.admin(), make_table({"id": "int", "a": "string", "b": "string"}, partitioned_by=["a", "b"])
    admin.create_partition(info.path, {"b": "2", "a": "1"})
    with pytest.raises(PartitionExistsError):
        admin.create_partition(info.path, {"a": "1", "b": "2"})
    admin.create_partition(info.path, {"a": "1", "b": "2"}, if_not_exists=True)
    (partition,) = admin.partitions(info.path)
    assert partition.name == "1$2"
    for values in ({"a": "1"}, {"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": ""}):
        with pytest.raises(InvalidPartitionError):
            admin.create_partition(info.path, values)
    admin.drop_partition(info.path, {"a": "1", "b": "2"})
    with pytest.raises(PartitionNotFoundError):
        admin.drop_partition(info.path, {"a": "1", "b": "2"})
    admin.drop_partition(info.path, {"a": "1", "b": "2"}, if_exists=True)
    plain = make_table(name="plain")
    assert admin.partitions(plain.path) == []
    with pytest.raises(InvalidPartitionError, match="no partitions"):
        admin.create_partition(plain.path, {"a": "1"})


def test_offsets(connection, make_table):
    admin, info = connection.admin(), make_table(buckets=2, bucket_key=["id"])
    with connection.append_writer(info.path) as writer:
        ends = writer.append({"id": list(range(100))}).result().offsets
    assert {bucket: answer.offset for bucket, answer in admin.list_offsets(info, OffsetSpec.earliest()).items()} == {
        0: 0,
        1: 0,
    }
    for durable in (False, True):
        latest = admin.list_offsets(info, OffsetSpec.latest(), durable=durable)
        assert {(None, bucket): ((0, answer.offset),) for bucket, answer in latest.items()} == ends
    (first,) = admin.list_offsets(info, OffsetSpec.timestamp(0), buckets=[1]).values()
    assert (first.offset, first.lake_snapshot_id) == (0, None)
    assert first.timestamp_ms > 0
    with pytest.raises(BucketNotFoundError, match=r"\[0, 2\)"):
        admin.list_offsets(info, OffsetSpec.latest(), buckets=[2])
    with pytest.raises(InvalidTimestampError):
        admin.list_offsets(info, OffsetSpec.timestamp(2**53), raise_clock=True)


def test_offsets_of_partitions(connection, make_table):
    admin, info = connection.admin(), make_table({"id": "int", "p": "string"}, partitioned_by=["p"])
    with connection.append_writer(info.path) as writer:
        writer.append([{"id": 1, "p": "a"}, {"id": 2, "p": "b"}, {"id": 3, "p": "b"}])
    counts = {}
    for partition in admin.partitions(info.path):
        counts[partition.name] = admin.list_offsets(info, OffsetSpec.latest(), partition=partition)[0].offset
    assert counts == {"a": 1, "b": 2}
    with pytest.raises(InvalidPartitionError):
        admin.list_offsets(info, OffsetSpec.latest())
    gone = admin.partitions(info.path)[0]
    admin.drop_partition(info.path, {"p": "a"})
    with pytest.raises(PartitionNotFoundError):
        admin.list_offsets(info, OffsetSpec.latest(), partition=gone)


def test_bucket_statuses(connection, make_table):
    admin, info = connection.admin(), make_table({"id": "int", "p": "string"}, partitioned_by=["p"], buckets=2)
    with connection.append_writer(info.path) as writer:
        writer.append([{"id": 1, "p": "b"}] * 10).result()
        writer.append([{"id": 1, "p": "a"}]).result()
    statuses = admin.buckets(info)
    assert [(each.partition, each.bucket.bucket) for each in statuses] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert sum(each.end_offset for each in statuses) == 11
    for each in statuses:
        assert each.high_watermark == each.end_offset
        assert (each.max_timestamp_ms is None) == (each.end_offset == 0)
        assert (each.error, each.lake_end_offset, each.start_offset) == (None, None, 0)


def test_buckets_are_listed_again_where_a_partition_is_dropped_meanwhile(connection, make_table, monkeypatch):
    admin, info = connection.admin(), make_table({"id": "int", "p": "string"}, partitioned_by=["p"])
    with connection.append_writer(info.path) as writer:
        writer.append([{"id": 1, "p": "a"}, {"id": 2, "p": "b"}])
    ask = connection.partitions

    def ask_and_drop(info, **more):
        found = ask(info, **more)
        if "a" in found:
            admin.drop_partition(info.path, {"p": "a"})
        return found

    monkeypatch.setattr(connection, "partitions", ask_and_drop)
    assert [each.partition for each in admin.buckets(info)] == ["b"]


def test_a_table_never_tiered_has_no_lake_snapshot(connection, make_table):
    with pytest.raises(LakeSnapshotNotFoundError):
        connection.admin().lake_snapshot(make_table().path)


@contextmanager
def restarting(cluster: EmbeddedCluster) -> Iterator[Connection]:
    """Give a connection whose first call finds no server; the server starts then."""
    called = threading.Event()

    def address():
        called.set()
        return cluster.address

    def start():
        assert called.wait(60)
        cluster.start()

    cluster.stop()
    starting = threading.Thread(target=start)
    starting.start()
    with Connection(address) as connection:
        yield connection
    starting.join()


def test_another_table_is_not_taken_for_the_one_that_an_outage_may_have_made():
    path = TablePath("db", "t")
    with EmbeddedCluster(lake=False) as cluster:
        cluster.connection.admin().create_database("db")
        cluster.connection.admin().create_table(path, make_descriptor({"id": "int", "v": "int"}, primary_key=["id"]))
        with restarting(cluster) as connection, pytest.raises(TableExistsError):
            connection.admin().create_table(path, make_descriptor({"name": "string"}))
        with restarting(cluster) as connection:
            same = make_descriptor({"id": "int", "v": "int"}, primary_key=["id"])
            assert connection.admin().create_table(path, same).table_id == 1


def test_nor_a_partition_that_rests_in_the_lake():
    path = TablePath("db", "t")
    definition = make_descriptor(
        {"p": "string", "v": "int"}, partitioned_by=["p"], properties={"table.datalake.enabled": True}
    )
    with EmbeddedCluster() as cluster:
        admin = cluster.connection.admin()
        admin.create_database("db")
        admin.create_table(path, definition)
        admin.create_partition(path, {"p": "x"})
        admin.drop_partition(path, {"p": "x"})
        with restarting(cluster) as connection, pytest.raises(PartitionExistsError):
            connection.admin().create_partition(path, {"p": "x"})
