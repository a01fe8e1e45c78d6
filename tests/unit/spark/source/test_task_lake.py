"""The lake that tasks of a read get: no catalog, none of its secrets, and the rows that were planned."""

import random
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyspark.serializers import CPickleSerializer

from fluss_lab.errors import StorageError, UnavailableError
from fluss_lab.lake import lake_storage
from fluss_lab.lake.iceberg.table.catalog_access import sqlite_file
from fluss_lab.lake.iceberg.table.pinned_table import METADATA_LOCATION
from fluss_lab.spark.source.batch_reader import make_reader, source_schema
from fluss_lab.spark.source.source_options import parse_options, place_options
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor, maintain_by_hand
from tests.spark.keyed_tables import Flights
from tests.unit.read.kit import OPTIONS, rows_of
from tests.unit.spark.streams import plain

pytestmark = pytest.mark.slow

MONTHS = ["2013-01", "2013-02"]
SECRETS = {
    "datalake.iceberg.s3.secret-access-key": "secret-of-the-files",
    "datalake.iceberg.credential": "id:secret-of-the-catalog",
}


@pytest.fixture(scope="module")
def cluster(clock):
    with EmbeddedCluster(options=OPTIONS | SECRETS, clock=clock) as running:
        yield running


@pytest.fixture
def filled(make):
    """A log table with rows in the lake alone, and in the log."""
    table = make()
    table.append_random(random.Random(4), 60, MONTHS)
    table.tier()
    table.expire()
    table.append_random(random.Random(5), 30, MONTHS)
    return table


class Read:
    """A read by the data source, planned here; its tasks get copies, as in another process."""

    def __init__(self, cluster, table, **options):
        given = parse_options({"table": str(table.path), "tasks": "2", **options} | place_options(cluster.address))
        self.reader = make_reader(given, source_schema(given))
        self.partitions = self.reader.partitions()

    def rows(self):
        pickler, found = CPickleSerializer(), []
        for partition in self.partitions:
            reader, own = pickler.loads(pickler.dumps((self.reader, partition)))
            found += [row for batch in reader.read(own) for row in plain(pa.Table.from_batches([batch]))]
        return found

    @property
    def sent(self):
        return b"".join(CPickleSerializer().dumps(each) for each in self.partitions)


@contextmanager
def catalog_away(cluster):
    """Take the catalog's file away, as it is on another machine; nothing may be put into its place."""
    file = sqlite_file(cluster.connection.lake_storage().properties["uri"])
    away = file.rename(file.with_suffix(".away"))
    try:
        yield
        assert not file.exists(), "a task made a catalog of its own"
    finally:
        file.unlink(missing_ok=True)
        away.rename(file)


def by_id(rows):
    return sorted(map(repr, rows))


def test_tasks_of_a_scan_ask_no_catalog(cluster, filled):
    read = Read(cluster, filled)
    with catalog_away(cluster):
        found = read.rows()
    assert by_id(found) == by_id(rows_of(filled.reader().scan().to_arrow()))


def test_tasks_of_a_primary_key_table_ask_no_catalog(cluster, clock):
    table = Flights(cluster, clock, "keyed")
    for number in range(3):
        table.write(random.Random(number), 40)
        table.tier()
    table.write(random.Random(9), 20)
    read = Read(cluster, table)
    with catalog_away(cluster):
        found = read.rows()
    assert by_id(found) == by_id(rows_of(table.reader().scan().to_arrow()))


def test_tasks_of_a_changelog_ask_no_catalog(cluster, filled):
    read = Read(cluster, filled, changelog="true")
    with catalog_away(cluster):
        found = read.rows()
    assert by_id(found) == by_id(plain(filled.reader().changelog().to_arrow()))


def test_tasks_of_a_stream_ask_no_catalog(cluster, filled, query):
    stream = query(filled)
    stream.step()
    tasks = stream.tasks(0)
    with catalog_away(cluster):
        found = stream.read(tasks)
    assert by_id(found) == by_id(plain(filled.reader().changelog().to_arrow()))
    assert all(b"secret-of-the-catalog" not in CPickleSerializer().dumps(each) for each in tasks)


def test_what_is_sent_to_tasks_has_the_files_secrets_and_no_catalog_s(cluster, filled):
    for options in ({}, {"changelog": "true"}):
        read = Read(cluster, filled, **options)
        assert b"secret-of-the-files" in read.sent
        assert b"secret-of-the-catalog" not in read.sent
        assert b"sqlite" not in read.sent
        assert all("secret" not in f"{each!r} {each}" for each in read.partitions)


def test_a_table_that_moved_on_is_read_by_the_catalog_that_the_cluster_has(cluster, filled):
    read = Read(cluster, filled)
    expected = by_id(rows_of(filled.reader().scan().to_arrow()))
    replace_files(filled)
    with catalog_away(cluster), pytest.raises(UnavailableError, match=r"changed since .*run the query again"):
        read.rows()
    assert by_id(read.rows()) == expected


def test_a_snapshot_that_came_later_is_had_of_the_catalog_at_once(cluster, filled):
    connection, info = cluster.connection, filled.info
    source = connection.lake_storage().create_lake_source(info)
    before = connection.admin().lake_snapshot(filled.path).snapshot_id
    expected = source.plan(before)
    pinned = lake_storage("iceberg", source.pinned_properties(before))
    pinned.renew_from(connection.lake_storage)
    filled.tier()
    after = connection.admin().lake_snapshot(filled.path).snapshot_id
    assert after != before
    assert pinned.create_lake_source(info).plan(after) == connection.lake_storage().create_lake_source(info).plan(after)
    with catalog_away(cluster):
        assert pinned.create_lake_source(info).plan(before) == expected


def test_a_metadata_file_that_is_refused_is_had_of_the_catalog(cluster, filled):
    """As when credentials that the catalog gave have ended; here it is a name that no file system takes."""
    connection, info = cluster.connection, filled.info
    snapshot_id = connection.admin().lake_snapshot(filled.path).snapshot_id
    source = connection.lake_storage().create_lake_source(info)
    place = {METADATA_LOCATION: f"file:///{300 * 'x'}.metadata.json"}
    pinned = lake_storage("iceberg", source.pinned_properties(snapshot_id) | place)
    pinned.renew_from(connection.lake_storage)
    assert pinned.create_lake_source(info).plan(snapshot_id) == source.plan(snapshot_id)
    with catalog_away(cluster), pytest.raises(StorageError, match=r"xxx\.metadata\.json"):
        pinned.create_lake_source(info).plan(snapshot_id)


def test_a_metadata_file_that_was_removed_is_none_of_a_task_s_worries(cluster, filled):
    read = Read(cluster, filled)
    lake = cluster.connection.lake_storage().access.load_table(filled.path)
    expected = by_id(rows_of(filled.reader().scan().to_arrow()))
    lake.io.delete(lake.metadata_location)
    try:
        with catalog_away(cluster), pytest.raises(UnavailableError, match="run the query again"):
            read.rows()
        replace_files(filled)
        assert by_id(read.rows()) == expected
    finally:
        assert by_id(rows_of(filled.reader().scan().to_arrow())) == expected


def replace_files(table):
    """Put the rows of a table into other files, and remove those that there were."""
    connection, table_id = table.connection, table.info.table_id
    table.tier()
    for action in ("compact", "expire"):
        maintain_by_hand(
            connection, connection.lake_storage(), LocalTieringExecutor(), action, table_id, ahead_ms=86_400_000
        )
