"""Tasks of reads of a lake behind a REST catalog: it is stopped when they are planned, and their rows come all the same."""

import random
import uuid
from contextlib import closing

import pytest

from fluss_lab.lake import lake_storage
from fluss_lab.testing import EmbeddedCluster, MockClock
from tests.unit.read.kit import OPTIONS, ModelTable, rows_of
from tests.unit.spark.source.test_task_lake import Read, by_id
from tools.beyond.rest_catalog_server import RestCatalogServer

pytestmark = [pytest.mark.beyond, pytest.mark.slow]

MONTHS = ["2013-01", "2013-02"]


def planned(folder, lake):
    """Return a read that is planned, and the rows that it should give; the cluster runs until the generator is closed."""
    clock = MockClock()
    options = {f"datalake.iceberg.{key}": value for key, value in lake.items()}
    with EmbeddedCluster(folder / "lab", OPTIONS | options, clock=clock) as cluster:
        table = ModelTable(cluster, clock, "t")
        for number in range(2):
            table.append_random(random.Random(number), 60, MONTHS)
            table.tier()
        table.expire()
        table.append_random(random.Random(9), 30, MONTHS)
        yield Read(cluster, table), by_id(rows_of(table.reader().scan().to_arrow()))


def test_tasks_ask_no_rest_catalog(minio, tmp_path):
    name = f"tasks{uuid.uuid4().hex[:8]}"
    sql = {"name": name, "type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": minio.make_bucket(name)}
    with RestCatalogServer({**sql, **minio.lake_options()}, credential="id:secret-of-the-catalog") as server:
        running = planned(tmp_path, {**server.lake_options(), **minio.lake_options()})
        read, expected = next(running)
    with closing(running):
        assert by_id(read.rows()) == expected
        assert b"secret-of-the-catalog" not in read.sent
        assert minio.secret_key.encode() in read.sent


def test_credentials_that_have_ended_are_had_anew(minio, backends, tmp_path):
    lake = backends.lake("sqlite", tmp_path)
    clock = MockClock()
    options = {f"datalake.iceberg.{key}": value for key, value in lake.items()}
    with EmbeddedCluster(tmp_path / "lab", OPTIONS | options, clock=clock) as cluster:
        table = ModelTable(cluster, clock, "t")
        table.append_random(random.Random(1), 30, MONTHS)
        table.tier()
        snapshot_id = cluster.connection.admin().lake_snapshot(table.path).snapshot_id
        source = cluster.connection.lake_storage().create_lake_source(table.info)
        pinned = lake_storage("iceberg", source.pinned_properties(snapshot_id) | {"s3.secret-access-key": "ended"})
        pinned.renew_from(cluster.connection.lake_storage)
        again = pinned.create_lake_source(table.info)
        names = ["id", "month", "dest", "__offset"]
        rows = [batch for _, batch in again.read(again.plan(snapshot_id), names)]
        assert rows == [batch for _, batch in source.read(source.plan(snapshot_id), names)]
        assert sum(batch.num_rows for batch in rows) == 30


def test_tasks_ask_no_nessie(nessie, backends, tmp_path):
    running = planned(tmp_path, backends.lake("nessie", tmp_path))
    read, expected = next(running)
    nessie.process.stop()
    try:
        with closing(running):
            assert by_id(read.rows()) == expected
    finally:
        nessie.process.start()
