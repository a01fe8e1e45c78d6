"""The execution of a plan: short ends of logs come with one call, whatever the number of buckets."""

import pytest

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.repair.lake_repair import adopt
from fluss_lab.tiering.round.tiering_round import run_round
from tests.readers.audit import load_table
from tests.unit.client.log.fetch_hook import watch_fetches
from tests.unit.read.kit import rows_of

BUCKETS = 8
ROWS = 200


@pytest.fixture(scope="module")
def connection():
    with EmbeddedCluster() as cluster:
        cluster.connection.admin().create_database("plans")
        yield cluster.connection


@pytest.fixture(scope="module", params=[False, True], ids=["log", "keyed"])
def table(connection, request):
    """A table with rows in each of its buckets, of which none is in the lake."""
    keys = {"primary_key": ["id"]} if request.param else {"bucket_key": ["id"]}
    path = TablePath("plans", "keyed" if request.param else "log")
    admin = connection.admin()
    admin.create_table(path, make_descriptor({"id": "bigint", "s": "string"}, buckets=BUCKETS, **keys))
    written = [{"id": number, "s": f"s{number}"} for number in range(ROWS)]
    with connection.upsert_writer(path) if request.param else connection.append_writer(path) as writer:
        (writer.upsert if request.param else writer.append)(written).result()
    return path, written


@pytest.fixture
def fetches(connection, monkeypatch):
    """How many buckets each fetch has asked for."""
    return watch_fetches(monkeypatch, connection)


def by_id(found):
    return sorted(rows_of(found), key=lambda each: each["id"])


def test_all_ends_of_the_log_come_with_one_call(connection, table, fetches):
    path, written = table
    assert by_id(TableReader(connection, path).scan().to_arrow()) == written
    assert fetches == [BUCKETS]


def test_a_filter_and_chosen_columns_are_those_of_the_call_too(connection, table, fetches):
    path, written = table
    found = TableReader(connection, path).scan(columns=["s"], where="id >= 150").to_arrow()
    assert sorted(found["s"].to_pylist()) == sorted(each["s"] for each in written[150:])
    assert fetches == [BUCKETS]


def test_rows_are_counted_with_one_call_and_those_of_a_log_with_none(connection, table, fetches):
    path, written = table
    reader = TableReader(connection, path)
    assert reader.scan().count() == len(written)
    assert fetches == ([] if reader.info.is_log_table else [BUCKETS])
    fetches.clear()
    assert reader.scan(where="id >= 150").count() == len(written[150:])
    assert fetches == [BUCKETS]


def test_a_reader_of_some_rows_fetches_bucket_by_bucket(connection, table, fetches):
    path, _ = table
    assert TableReader(connection, path).scan(limit=3).to_arrow().num_rows == 3
    assert set(fetches) == {1}
    assert len(fetches) < BUCKETS


def test_one_bucket_is_fetched_by_its_reader(connection, table, fetches):
    path, _ = table
    assert TableReader(connection, path).scan(buckets=[0]).to_arrow().num_rows
    assert fetches == [1]


def test_a_limit_counts_rows_and_not_those_that_others_deleted_in_the_lake(connection):
    """Seen: `head()` of a table was empty, because somebody had deleted its first rows."""
    path, storage = TablePath("plans", "shorter"), connection.lake_storage()
    descriptor = make_descriptor({"id": "int"}, buckets=2, properties={"table.datalake.enabled": True})
    info = connection.admin().create_table(path, descriptor)
    for first in (0, 10, 20):
        with connection.append_writer(path) as writer:
            writer.append([{"id": number} for number in range(first, first + 10)]).result()
        if first < 20:
            run_round(connection, storage, LocalTieringExecutor(), table_id=info.table_id)
    load_table(connection, path).delete("__offset < 4 and __bucket = 0 or id = 8")
    adopt(connection, storage, path)
    reader = TableReader(connection, path)
    every = reader.scan().to_arrow()["id"].to_pylist()
    assert len(every) < 30
    for limit in range(len(every) + 2):
        scan = reader.scan(limit=limit)
        assert scan.to_arrow()["id"].to_pylist() == every[:limit]
        assert scan.count() == len(every[:limit])
        with scan.pages() as pages:
            assert pages.page(0, 100).to_arrow()["id"].to_pylist() == every[:limit]
