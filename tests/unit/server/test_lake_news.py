"""What tablet servers know of the lake: told by the coordinator after each commit, and again when they start."""

from __future__ import annotations

import random

import pytest

from fluss_lab.errors import OffsetOutOfRangeError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.tablet.buckets.bucket import LakeState
from fluss_lab.testing import EmbeddedCluster, MockClock
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from tests.unit.read.keyed_changes import DAY_MS, KeyedTable
from tests.unit.server.tablet.tablet_kit import TABLE_ID, Tablet, expiring_tablet


def reported(tablet, end, *, sequence, snapshot_id, start=0):
    message = pb.PbNotifyLakeTableOffsetReqForBucket(
        table_id=TABLE_ID, bucket_id=0, snapshot_id=snapshot_id, commit_sequence=sequence
    )
    if end is not None:
        message.log_start_offset, message.log_end_offset, message.log_max_timestamp = start, end, 10 * end
    tablet.service.set_lake_offsets([message])
    return tablet.service._store.get(tablet_bucket(tablet)).lake


def tablet_bucket(tablet):
    return tablet.service._store.all(TABLE_ID)[0].id


def test_a_late_word_of_an_older_commit_changes_nothing(tmp_path):
    """Ids of lake snapshots are not ordered: 4 is newer than 9 here."""
    tablet = Tablet(tmp_path)
    tablet.open(0)
    assert reported(tablet, 5, sequence=1, snapshot_id=9) == LakeState(9, 0, 5, 50)
    newest = reported(tablet, 8, sequence=3, snapshot_id=4, start=2)
    assert newest == LakeState(4, 2, 8, 80)
    assert reported(tablet, 7, sequence=2, snapshot_id=7) == newest
    assert reported(tablet, None, sequence=2, snapshot_id=7) == newest
    assert reported(tablet, 8, sequence=3, snapshot_id=4, start=2) == newest
    # A repair may take back, and a late word from before it does not undo that.
    assert reported(tablet, None, sequence=4, snapshot_id=1) is None
    assert reported(tablet, 8, sequence=3, snapshot_id=4) is None
    assert reported(tablet, 3, sequence=5, snapshot_id=2) == LakeState(2, 0, 3, 30)


def test_a_bucket_that_was_deleted_and_made_again_begins_afresh(tmp_path):
    tablet = Tablet(tmp_path)
    tablet.open(0)
    reported(tablet, 5, sequence=7, snapshot_id=9)
    bucket = tablet_bucket(tablet)
    tablet.service._store.release(bucket, delete=True)
    tablet.open(0)
    assert tablet.service._store.get(bucket).lake is None
    assert reported(tablet, 1, sequence=1, snapshot_id=3) == LakeState(3, 0, 1, 10)


def test_an_offset_before_the_replay_start_is_out_of_range_and_the_earliest_is_named(tmp_path):
    tablet = expiring_tablet(tmp_path)
    tablet.service.apply_retention(tablet.clock.now_ms() + 5_000)
    start = tablet.describe()[0].log_start_offset
    assert start > 6
    reported(tablet, start, sequence=1, snapshot_id=9, start=4)
    bucket = tablet.service._store.get(tablet_bucket(tablet))
    for offset in (4, start - 1):
        assert bucket.fetch(offset, 1, at_least_one=True, enable_lake=True) == bucket.lake
    with pytest.raises(OffsetOutOfRangeError, match=rf"in the lake one in \[4, {start}\); the earliest is 4"):
        bucket.fetch(3, 1, at_least_one=True, enable_lake=True)
    with pytest.raises(OffsetOutOfRangeError, match=f"did not allow .*; the earliest is {start}"):
        bucket.fetch(4, 1, at_least_one=True, enable_lake=False)


def test_a_commit_is_reported_with_its_place_in_the_order():
    """What a server is told when it registers, and what it is told later, are of one order."""
    with EmbeddedCluster() as cluster:
        admin = cluster.connection.admin()
        admin.create_database("db")
        properties = {"table.datalake.enabled": True}
        info = admin.create_table(TablePath("db", "t"), make_descriptor({"id": "bigint"}, properties=properties))
        seen = []
        for _ in range(2):
            for number in range(2):
                with cluster.connection.append_writer(info.path) as writer:
                    writer.append({"id": [number]}).result()
                storage = cluster.connection.lake_storage()
                run_round(cluster.connection, storage, LocalTieringExecutor(), table_id=info.table_id)
                store = cluster.tablet()._store
                seen.append(store._lake_sequences[store.all()[0].id])
            cluster.restart()
            store = cluster.tablet()._store
            seen.append(store._lake_sequences[store.all()[0].id])
    assert seen == sorted(seen)
    assert seen[2] == seen[1] > seen[0] > 0
    assert seen[3] > seen[2]


@pytest.mark.slow
def test_a_restarted_tablet_server_knows_the_lake_again(seed):
    """Snapshot, start, end and time of both kinds of tables, on each of two servers."""
    clock = MockClock()
    with EmbeddedCluster(clock=clock, tablet_servers=2) as cluster:
        keyed = KeyedTable(cluster, clock, "k", keys=8)
        rng = random.Random(seed)
        for _ in range(3):
            for _ in range(3):
                keyed.write(rng, 5)
                clock.advance(10)
            keyed.tier()
        keyed.maintain("compact")
        keyed.maintain("expire", ahead_ms=9 * DAY_MS)
        connection = cluster.connection
        admin = connection.admin()
        plain = admin.create_table(
            TablePath("db", "p"),
            make_descriptor({"id": "bigint"}, buckets=2, properties={"table.datalake.enabled": True}),
        )
        with connection.append_writer(plain.path) as writer:
            for number in range(8):
                writer.append({"id": [number]}).result()
        run_round(connection, connection.lake_storage(), LocalTieringExecutor(), table_id=plain.table_id)
        before = known(cluster)
        assert len(before) == 4
        assert all(lake is not None for lake in before.values())
        for table in (keyed.info, plain):
            snapshot = admin.lake_snapshot(table.path)
            for bucket, offset in snapshot.offsets.items():
                start = snapshot.starts.get(bucket, 0)
                expected = LakeState(snapshot.snapshot_id, start, offset.end, offset.max_timestamp_ms)
                assert before[bucket] == expected
                assert offset.max_timestamp_ms > 0
        assert all(before[bucket].start > 0 for bucket in before if bucket.table_id == keyed.info.table_id)
        for server_id in (0, 1):
            cluster.stop_tablet(server_id)
            cluster.start_tablet(server_id)
            assert known(cluster) == before
        cluster.restart()
        assert known(cluster) == before


def known(cluster):
    stores = [cluster.tablet(server_id)._store for server_id in (0, 1)]
    return {bucket.id: bucket.lake for store in stores for bucket in store.all()}
