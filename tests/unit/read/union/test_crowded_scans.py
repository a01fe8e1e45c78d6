"""Readers that stop in the middle of a primary-key table: others are served, and they themselves go on where they were."""

import time

from fluss_lab.model import TableBucket, TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.read.union import pk_merge
from fluss_lab.testing import EmbeddedCluster

PATH = TablePath("db", "t")
OPTIONS = {"server.scanners-max": "2", "server.scanner-ttl-crowded": "10ms"}


def test_readers_that_stopped_in_the_middle_go_on_though_others_took_their_places(tmp_path):
    client = {"client.scanner.log.fetch.max-bytes": "4kb"}
    with EmbeddedCluster(tmp_path, OPTIONS, lake=False, client=client) as cluster:
        admin = cluster.connection.admin()
        admin.create_database("db")
        admin.create_table(
            PATH, make_descriptor({"id": "bigint not null", "name": "string"}, primary_key=["id"], buckets=1)
        )
        rows = [{"id": number, "name": "x" * 40} for number in range(1_000)]
        with cluster.connection.upsert_writer(PATH) as writer:
            writer.upsert(rows)
        reader = TableReader(cluster.connection, PATH)
        stopped = [reader.scan(["id"]).to_batches(50) for _ in range(6)]
        found = [[*next(each)["id"].to_pylist()] for each in stopped]
        with cluster.connection.upsert_writer(PATH) as writer:
            writer.upsert([{"id": number, "name": "later"} for number in range(0, 2_000, 2)])
        for batches, ids in zip(stopped, found, strict=True):
            for batch in batches:
                ids.extend(batch["id"].to_pylist())
            assert ids == list(range(1_000))


def test_a_reader_that_has_the_log_does_not_wait_for_a_place(tmp_path, monkeypatch):
    monkeypatch.setattr(pk_merge, "LIVE_MIN", 2)
    client = {"client.scanner.log.fetch.max-bytes": "4kb"}
    with EmbeddedCluster(
        tmp_path, {"server.scanners-max": "1", "server.scanner-ttl-crowded": "1min"}, lake=False, client=client
    ) as cluster:
        admin = cluster.connection.admin()
        admin.create_database("db")
        descriptor = make_descriptor({"id": "bigint not null", "name": "string"}, primary_key=["id"], buckets=2)
        admin.create_table(PATH, descriptor)
        with cluster.connection.upsert_writer(PATH) as writer:
            writer.upsert([{"id": number, "name": "x" * 40} for number in range(1_000)])
        info = cluster.connection.table_info(PATH)
        with cluster.connection.scan_kv(info, TableBucket(info.table_id, None, 0)) as held:
            assert held.log_offset
            begin_s = time.monotonic()
            found = TableReader(cluster.connection, PATH).scan(["id"]).to_arrow()
            assert time.monotonic() - begin_s < cluster.connection.request_timeout_ms / 2_000
        assert sorted(found["id"].to_pylist()) == list(range(1_000))
