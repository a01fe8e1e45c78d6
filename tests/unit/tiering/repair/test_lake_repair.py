"""Repairs: whatever became of the lake, tiering goes on from there, with nothing lost that somebody still has, and said."""

import shutil

import pyarrow as pa
import pytest

from fluss_lab import failpoints
from fluss_lab.errors import (
    CommitConflictError,
    CorruptDataError,
    ForeignCommitError,
    LakeNotConfiguredError,
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
    TieringInProgressError,
)
from fluss_lab.failpoints import FailpointError
from fluss_lab.lake.snapshot_summary import ADOPTED_KEY
from fluss_lab.read.table_reader import TableReader
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.testing import EmbeddedCluster, wait_until
from fluss_lab.tiering.repair import lake_repair
from fluss_lab.tiering.repair.lake_repair import adopt, plan_repair
from fluss_lab.tiering.round.source_enumerator import TieringSession, TieringSourceEnumerator
from tests.readers import foreign
from tests.unit.tiering.kit import TAKEOVER, Tables
from tests.unit.tiering.repairs import SMALL, Keyed, age

pytestmark = pytest.mark.slow


def plan(tables, info):
    return plan_repair(tables.connection, tables.storage, info.path)


def mend(tables, info, **options):
    return adopt(tables.connection, tables.storage, info.path, **options)


def back(tables, info, steps: int) -> None:
    """Roll the lake back by some snapshots."""
    lake = tables.lake(info)
    target = lake.history()[-1 - steps].snapshot_id
    lake.manage_snapshots().rollback_to_snapshot(target).commit()


def foreign_append(tables, info, offset: int) -> None:
    """Append a row as somebody else does."""
    lake = tables.lake(info)
    row = lake.scan().to_arrow().slice(0, 1)
    at = row.schema.get_field_index("__offset")
    lake.append(row.set_column(at, row.schema.field(at), pa.array([offset], pa.int64())))


def foreign_update(tables, info) -> None:
    """Change a value as somebody else does."""
    lake = tables.lake(info)
    row = lake.scan().to_arrow().slice(0, 1)
    at = row.schema.get_field_index("name")
    which = f"id = {row['id'][0]}"
    lake.overwrite(row.set_column(at, row.schema.field(at), pa.array(["theirs"])), overwrite_filter=which)


def state(tables, info):
    reported = tables.connection.coordinator().describe_cluster(pb.DescribeClusterRequest()).tiering_states
    return next(each for each in reported if each.table_id == info.table_id)


def test_a_sound_table_needs_no_repair_and_gets_none(tables):
    info = tables.create(buckets=2)
    tables.append(info, 10)
    tables.tier(info)
    before = tables.known(info).snapshot_id
    assert plan(tables, info).reason is None
    done = mend(tables, info)
    assert "nothing to repair" in repr(done)
    assert tables.known(info).snapshot_id == before == tables.lake(info).current_snapshot().snapshot_id


def test_rows_of_somebody_else_are_accepted(tables):
    info = tables.create(buckets=2)
    tables.append(info, 10)
    tables.tier(info)
    foreign_update(tables, info)
    tables.append(info, 10)
    with pytest.raises(ForeignCommitError):
        tables.tier(info)
    planned = plan(tables, info)
    assert "was not committed by tiering" in planned.reason
    assert (planned.changed, planned.lost) == ((), ())
    assert tables.known(info).snapshot_id == planned.known_id
    mend(tables, info)
    assert tables.tier(info).rows == 10
    assert tables.lake_rows(info).num_rows == 20
    assert TableReader(tables.connection, info.path).scan(where="name = 'theirs'").count() == 1
    adopted = [each.summary.additional_properties.get(ADOPTED_KEY) for each in tables.lake(info).snapshots()]
    assert [text is not None for text in adopted] == [False, False, False, True, False]


@pytest.mark.parametrize("offset", [0, 10**6, -3])
def test_rows_of_somebody_else_with_offsets_of_other_records_are_not_accepted(tables, offset):
    """Seen: adopted, then our own compaction merged the rows of one offset into a file that no scan read."""
    info = tables.create(buckets=1)
    for _ in range(2):
        tables.append(info, 5)
        tables.tier(info)
    foreign_append(tables, info, offset)
    before = tables.lake(info).current_snapshot().snapshot_id
    for attempt in (plan, mend):
        with pytest.raises(ForeignCommitError, match=rf"bucket 0 has .* {offset}\b"):
            attempt(tables, info)
    assert tables.lake(info).current_snapshot().snapshot_id == before
    back(tables, info, 1)
    tables.append(info, 5)
    tables.tier(info)
    tables.check(info)


def test_rows_of_somebody_else_in_a_bucket_that_was_never_tiered_are_not_accepted(tables):
    """Its first records were still to come with these offsets."""
    info = tables.create(buckets=1, partitioned_by=["month"])
    tables.append(info, 3, "2013-01")
    tables.tier(info)
    tables.append(info, 3, "2013-02")
    lake = tables.lake(info)
    row = lake.scan().to_arrow().slice(0, 1)
    at = row.schema.get_field_index("month")
    lake.append(row.set_column(at, row.schema.field(at), pa.array(["2013-02"])))
    with pytest.raises(ForeignCommitError, match=r"bucket 0 of partition 2013-02 has offsets still to come: 0\."):
        mend(tables, info)
    back(tables, info, 1)
    tables.tier(info)
    tables.check(info)


def test_a_table_that_was_rolled_back_is_tiered_again_from_there(tables):
    info = tables.create(buckets=2)
    for _ in range(3):
        tables.append(info, 10)
        tables.tier(info)
    back(tables, info, 2)
    with pytest.raises(LakeSnapshotNotFoundError, match=r"fluss-lab repair db\.events --adopt"):
        tables.tier(info)
    planned = plan(tables, info)
    assert "rolled back" in planned.reason
    assert {(each.partition, each.bucket.bucket): each.known_end for each in planned.buckets} == tables.ends(info)
    assert sum(each.offset.end for each in planned.buckets if each.offset is not None) == 10
    mend(tables, info)
    assert sum(offset.end for offset in tables.known(info).offsets.values()) == 10
    assert tables.tier(info).rows == 20
    tables.check(info)


@pytest.mark.parametrize("steps", [1, 3])
def test_a_primary_key_table_that_was_rolled_back(tables, steps):
    keyed = Keyed(tables)
    for turn in range(4):
        keyed.upsert(range(turn * 5, 20 + turn * 5), f"t{turn}-")
        keyed.delete(range(turn))
        tables.tier(keyed.info)
    keyed.check()
    back(tables, keyed.info, steps)
    keyed.upsert([3, 4], "new")
    mend(tables, keyed.info)
    tables.tier(keyed.info)
    keyed.check()


def test_a_table_rolled_back_to_nothing_begins_anew(tables):
    info = tables.create(buckets=2)
    tables.append(info, 10)
    tables.tier(info)
    with tables.lake(info).manage_snapshots() as change:
        change.remove_branch("main")
    planned = plan(tables, info)
    assert planned.newest_id is None
    assert all(each.offset is None for each in planned.buckets)
    mend(tables, info)
    assert tables.known(info).offsets == {}
    tables.tier(info)
    tables.check(info)


def test_snapshots_that_were_expired_are_not_needed(tables):
    info = tables.create(buckets=2)
    tables.append(info, 10)
    tables.tier(info)
    known = tables.known(info).snapshot_id
    failpoints.arm("tiering.lake_commit.after", "error@1")  # in the lake, not told
    tables.append(info, 10)
    with pytest.raises(FailpointError):
        tables.tier(info)
    failpoints.disarm()
    tables.lake(info).maintenance.expire_snapshots().by_id(known).commit()
    with pytest.raises(LakeSnapshotNotFoundError, match="expired"):
        tables.tier(info)
    mend(tables, info)
    assert tables.tier(info).rows == 0
    tables.check(info)


def test_without_any_snapshot_of_ours_the_files_must_agree(tables):
    info = tables.create(buckets=2)
    for _ in range(2):
        tables.append(info, 10)
        tables.tier(info)
    foreign_update(tables, info)
    lake = tables.lake(info)
    newest = lake.current_snapshot().snapshot_id
    for snapshot in lake.snapshots():
        if snapshot.snapshot_id != newest:
            tables.lake(info).maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    planned = plan(tables, info)
    assert "expired" in planned.reason
    assert planned.changed == ()
    mend(tables, info)
    tables.append(info, 5)
    assert tables.tier(info).rows == 5


def test_what_others_retired_and_expired_is_not_read_as_if_it_were_there(tables, rng):
    """Two compactions, and an expiry that leaves the second one alone: the rows of before are refused, not fewer."""
    keyed = Keyed(tables, buckets=1, **{"table.datalake.auto-maintenance": False})
    keyed.upsert(range(5), "a")
    keyed.upsert(range(4), "b")
    tables.tier(keyed.info)
    for _ in range(2):
        foreign.compact(tables.lake(keyed.info), rng)
    lake = tables.lake(keyed.info)
    for snapshot in lake.snapshots()[:-1]:
        tables.lake(keyed.info).maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    assert [each.cuts_history for each in plan(tables, keyed.info).buckets] == [True]
    mend(tables, keyed.info)
    known, key = tables.known(keyed.info), (None, 0)
    end = tables.ends(keyed.info)[key]
    assert list(known.starts.values()) == [end]
    source = tables.storage.create_lake_source(keyed.info)
    with pytest.raises(OffsetOutOfRangeError, match=f"from offset {end} on"):
        source.plan(known.snapshot_id, stops={key: 5})
    keyed.upsert([7], "c")
    tables.tier(keyed.info)
    keyed.check()


def test_a_gap_is_named_and_accepted_only_by_a_word(tables):
    tables.cluster.restart(SMALL)
    info = tables.create()
    tables.append(info, 10)
    tables.tier(info)
    admin = tables.connection.admin()
    admin.alter_table(info.path, set={"table.datalake.enabled": False})
    start = age(tables, info, lambda: tables.append(info, 100))
    with pytest.raises(LakeNotConfiguredError):
        plan(tables, info)
    info = admin.alter_table(info.path, set={"table.datalake.enabled": True})
    tables.append(info, 7)
    with pytest.raises(OffsetOutOfRangeError, match=r"fluss-lab repair db\.events --adopt --accept-gaps"):
        tables.tier(info)
    (bucket,) = plan(tables, info).lost
    assert bucket.lost == (10, start)
    with pytest.raises(OffsetOutOfRangeError, match=rf"bucket 0 \[10, {start}\)\. Nothing was changed"):
        mend(tables, info)
    assert tables.known(info).offsets[bucket.bucket].end == 10
    mend(tables, info, accept_gaps=True)
    assert (tables.known(info).offsets[bucket.bucket].end, tables.known(info).starts[bucket.bucket]) == (start, start)
    tables.tier(info)
    held = sorted(tables.lake_rows(info)["__offset"].to_pylist())
    assert held == [*range(10), *range(start, 417)]
    # The gap is not read over: a scan has what there is, the log begins behind it.
    assert sorted(TableReader(tables.connection, info.path).scan().to_arrow()["id"].to_pylist()) == held
    changes = TableReader(tables.connection, info.path).changelog().to_arrow()
    assert changes["_log_offset"].to_pylist() == list(range(start, 417))


def test_buckets_of_a_primary_key_table_are_written_anew_behind_a_gap(tables):
    tables.cluster.restart(SMALL)
    keyed, turns = Keyed(tables), iter(range(100))
    keyed.upsert(range(50), "first")
    tables.tier(keyed.info)
    admin = tables.connection.admin()
    admin.alter_table(keyed.path, set={"table.datalake.enabled": False})
    keyed.delete(range(10))
    age(tables, keyed.info, lambda: keyed.upsert(range(20, 80), f"t{next(turns)}-"))
    info = admin.alter_table(keyed.path, set={"table.datalake.enabled": True})
    keyed.upsert([11], "last")
    with pytest.raises(OffsetOutOfRangeError):
        tables.tier(info)
    planned = plan(tables, info)
    assert [each.empties for each in planned.lost] == [True, True]
    mend(tables, info, accept_gaps=True)
    assert tables.lake_rows(info).num_rows == 0
    tables.tier(info)
    keyed.check()
    starts = tables.known(info).starts
    assert all(starts[each.bucket] > each.lost[0] for each in planned.lost)
    keyed.upsert(range(0, 80, 7), "after")
    keyed.delete([79])
    tables.tier(info)
    keyed.check()


def test_only_the_bucket_with_the_gap_is_written_anew(tables):
    tables.cluster.restart(SMALL)
    keyed = Keyed(tables, buckets=4)
    keyed.upsert(range(50), "first")
    tables.tier(keyed.info)
    (one, *others) = [status.bucket for status in tables.connection.admin().buckets(keyed.info)]
    lake_before = {row["id"]: row["__bucket"] for row in tables.lake_rows(keyed.info).to_pylist()}
    mine = [key for key in range(2000) if lake_before.get(key) == one.bucket]
    admin = tables.connection.admin()
    admin.alter_table(keyed.path, set={"table.datalake.enabled": False, "table.log.ttl": "1ms"})
    for turn in range(30):
        keyed.upsert(mine, f"t{turn}-")
    tables.cluster.tablet().snapshot_now(one)
    wait_until(lambda: admin.buckets(keyed.info)[0].start_offset > len(mine), timeout_s=60)
    info = admin.alter_table(keyed.path, set={"table.datalake.enabled": True, "table.log.ttl": "7d"})
    assert [each.bucket for each in plan(tables, info).lost] == [one]
    mend(tables, info, accept_gaps=True)
    assert {row["__bucket"] for row in tables.lake_rows(info).to_pylist()} == {each.bucket for each in others}
    assert set(tables.known(info).offsets) == set(others)
    tables.tier(info)
    keyed.check()


@pytest.mark.parametrize("point", lake_repair.FAILPOINTS)
@pytest.mark.parametrize("kind", ["log", "primary key"])
def test_a_repair_cut_off_is_finished_by_the_next(tables, point, kind):
    """Nobody tiers before: an emptied bucket of which the cluster believes the old offset would stay empty."""
    tables.cluster.restart(SMALL)
    admin = tables.connection.admin()
    if kind == "log":
        info = tables.create()
        write = lambda: tables.append(info, 100)  # noqa: E731
    else:
        keyed = Keyed(tables)
        info, turns = keyed.info, iter(range(100))
        write = lambda: keyed.upsert(range(60), f"t{next(turns)}-")  # noqa: E731
    write()
    tables.tier(info)
    admin.alter_table(info.path, set={"table.datalake.enabled": False})
    age(tables, info, write)
    info = admin.alter_table(info.path, set={"table.datalake.enabled": True})
    write()
    failpoints.arm(point, "error@1")
    with pytest.raises(FailpointError, match=point):
        mend(tables, info, accept_gaps=True)
    if point == "tiering.adopt_lake.after":
        with pytest.raises(ForeignCommitError, match="cut off before the cluster knew of it"):
            tables.tier(info)
        if kind == "primary key":
            assert all(each.offset is None for each in plan(tables, info).buckets)
    mend(tables, info, accept_gaps=True)
    tables.tier(info)
    assert plan(tables, info).reason is None
    # What is gone from both is not promised to readers of the log.
    first = {status.bucket: status.start_offset for status in admin.buckets(info)}
    assert all(tables.known(info).starts[bucket] >= start for bucket, start in first.items())
    if kind == "primary key":
        keyed.check()
    else:
        offsets = tables.lake_rows(info)["__offset"].to_pylist()
        assert len(set(offsets)) == len(offsets)
        assert sorted(offsets)[-1] == 599


def test_a_repair_after_a_repair(tables):
    """What was said before the first counts no more, and its own word not as one that nobody heard."""
    info = tables.create(buckets=2)
    for _ in range(2):
        tables.append(info, 10)
        tables.tier(info)
    back(tables, info, 1)
    mend(tables, info)
    tables.append(info, 10)
    tables.tier(info)
    foreign_update(tables, info)
    planned = plan(tables, info)
    assert planned.changed == ()
    mend(tables, info)
    assert tables.tier(info).rows == 0
    assert tables.lake_rows(info).num_rows == 30


def test_a_lake_ahead_of_the_cluster_cannot_be_accepted(tmp_path):
    """The cluster's part of the folder comes from an older copy."""
    folder, copy = tmp_path / "lab", tmp_path / "copy"
    with EmbeddedCluster(folder, options=TAKEOVER) as cluster:
        tables = Tables(cluster)
        info = tables.create()
        tables.append(info, 10)
        tables.tier(info)
        cluster.stop()
        shutil.copytree(folder, copy)
        cluster.start()
        tables.append(info, 10)
        tables.tier(info)
        cluster.stop()
        for path in copy.iterdir():
            if path.is_dir() and path.name != "lake":
                shutil.rmtree(folder / path.name)
                shutil.copytree(path, folder / path.name)
            elif path.is_file():
                shutil.copy(path, folder / path.name)
        for left in folder.glob("metadata.db-*"):
            left.unlink()
        cluster.start()
        with pytest.raises(CorruptDataError, match="below 20, the cluster only those below 10"):
            plan(tables, info)


def test_a_living_tierer_is_waited_for(tables):
    info = tables.create()
    tables.append(info, 10)
    tables.tier(info)
    foreign_update(tables, info)
    with TieringSession(tables.connection) as session:
        enumerator = TieringSourceEnumerator(tables.connection, session.session_id, 0.05)
        assignment = enumerator.request(info.table_id)
        with enumerator.hold(assignment, lambda: None), pytest.raises(TieringInProgressError):
            mend(tables, info)
    mend(tables, info)
    # The table is due at once, and its trouble forgotten.
    assert (state(tables, info).state, state(tables, info).failures) == ("Pending", 0)


def test_a_commit_in_between_is_not_passed_over(tables, monkeypatch):
    info = tables.create()
    tables.append(info, 10)
    tables.tier(info)
    foreign_update(tables, info)
    real = lake_repair._commit

    def late(*arguments):
        foreign_update(tables, info)
        return real(*arguments)

    monkeypatch.setattr(lake_repair, "_commit", late)
    with pytest.raises((CommitConflictError, ForeignCommitError)):
        mend(tables, info)
    monkeypatch.undo()
    mend(tables, info)
    assert tables.tier(info).rows == 0


def test_partitions_that_only_the_lake_has_keep_their_offsets(tables):
    info = tables.create(partitioned_by=["month"])
    tables.append(info, 10, "2013-01")
    tables.append(info, 10, "2013-02")
    tables.tier(info)
    tables.connection.admin().drop_partition(info.path, {"month": "2013-01"}, lake=False)
    foreign_update(tables, info)
    before = tables.known(info).offsets
    mend(tables, info)
    assert tables.known(info).offsets == before
    tables.append(info, 3, "2013-02")
    assert tables.tier(info).rows == 3


def test_a_partition_that_only_the_lake_had_is_lost_when_it_is_rolled_back(tables):
    info = tables.create(partitioned_by=["month"])
    tables.append(info, 10, "2013-02")
    tables.tier(info)
    tables.append(info, 10, "2013-01")
    tables.tier(info)
    tables.connection.admin().drop_partition(info.path, {"month": "2013-01"}, lake=False)
    back(tables, info, 1)
    with pytest.raises(OffsetOutOfRangeError, match=r"bucket 0 of partition 2013-01 \[0, 10\)"):
        mend(tables, info)
    mend(tables, info, accept_gaps=True)
    assert [offset.partition for offset in tables.known(info).offsets.values()] == ["2013-02"]
    assert tables.tier(info).rows == 0
