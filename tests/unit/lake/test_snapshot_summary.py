"""Summaries that name what advanced: merged back they say what each snapshot was given, whatever came between."""

import json
import random

import pytest

from fluss_lab.errors import CorruptDataError, ForeignCommitError
from fluss_lab.lake import snapshot_summary
from fluss_lab.lake.iceberg.metadata.snapshot_history import summaries, summary_of
from fluss_lab.lake.snapshot_summary import ADOPTED_KEY, BUCKET_OFFSET_KEY, SINCE_KEY, ReplayStart, SnapshotSummary
from fluss_lab.model import LakeOffset, TableBucket
from tests.unit.lake.conftest import summary
from tests.unit.lake.iceberg.maintenance.test_compaction import rows
from tests.unit.lake.upkeep import COLUMNS, HOUR_MS, Upkeep

BUCKETS = 40


@pytest.fixture
def info(lake):
    return lake.table(COLUMNS, buckets=BUCKETS)


def is_complete(snapshot):
    return next(summaries("t", [snapshot])).is_complete


class Told:
    """What tiering says at each commit."""

    def __init__(self, lake, info) -> None:
        self.lake, self.info = lake, info
        self.ends: dict[int, int] = {}
        self.at: dict[int, dict] = {}

    def commit(self, *buckets: int, **more: str) -> int:
        for bucket in buckets:
            self.ends[bucket] = self.ends.get(bucket, 0) + 1
        offsets = [(None, bucket, end, end) for bucket, end in self.ends.items()]
        committer = self.lake.committer(self.info)
        given = summary(offsets=offsets) | more
        at = committer.commit(committer.to_committable([]), committer.current_snapshot_id(), given)
        self.at[at] = {(None, bucket): end for bucket, end in self.ends.items()}
        return at

    def check(self) -> None:
        """Check every snapshot that says so, and what recovery merges from each known one on."""
        for each in Upkeep(self.lake, self.info).maintenance.snapshots():
            if each.ours and each.complete:
                assert {key: offset.end for key, offset in each.offsets.items()} == self.at[each.snapshot_id]
        newest = self.lake.committer(self.info).newest_lake_snapshot()
        if newest.is_complete:
            assert {key: offset.end for key, offset in newest.offsets.items()} == self.at[newest.snapshot_id]
        for known, before in list(self.at.items())[-5:]:
            found = self.lake.committer(self.info).missing_lake_snapshot(known)
            merged = before | ({} if found is None else {key: each.end for key, each in found.offsets.items()})
            assert merged == {(None, bucket): end for bucket, end in self.ends.items()}

    def snapshots(self):
        return self.lake.load(self.info).metadata.snapshots


def test_one_row_rounds_do_not_repeat_every_bucket(lake, info):
    reported = Told(lake, info)
    reported.commit(*range(BUCKETS))
    for turn in range(6):
        reported.commit(turn, turn + 1)
    first, *others = reported.snapshots()
    assert is_complete(first)
    for each in others:
        assert len(json.loads(summary_of(each)[BUCKET_OFFSET_KEY])) == 2
        assert summary_of(each)[SINCE_KEY] == str(first.snapshot_id)
    reported.check()


def test_random_histories_merge_back(lake, info, seed, monkeypatch):
    rng = random.Random(seed)
    monkeypatch.setattr(snapshot_summary, "COMPLETE_EVERY", 4)
    reported = Told(lake, info)
    upkeep = Upkeep(lake, info)
    for _ in range(20):
        what = rng.randrange(10)
        if what == 0:
            reported.ends.pop(rng.choice(list(reported.ends)), None) if reported.ends else None
            reported.commit(rng.randrange(BUCKETS))
        elif what == 1:
            reported.commit(**{ADOPTED_KEY: "so"})
        elif what == 2:
            upkeep.clock.advance(2 * HOUR_MS)
            upkeep.expire(older_than_ms=upkeep.clock.now_ms(), keep=1)
        else:
            reported.commit(*(rng.randrange(BUCKETS) for _ in range(rng.choice([1, 2, BUCKETS]))))
        assert not reported.at or lake.committer(info).newest_lake_snapshot().is_complete
    complete = [is_complete(each) for each in reported.snapshots()]
    assert any(complete)
    assert all(any(complete[max(0, at - 4) : at + 1]) for at in range(len(complete)))
    for each in upkeep.maintenance.snapshots():
        assert each.complete
        assert {key: offset.end for key, offset in each.offsets.items()} == reported.at[each.snapshot_id]


def test_expiry_keeps_what_names_all(lake, info):
    reported = Told(lake, info)
    reported.commit(*range(BUCKETS))
    for turn in range(5):
        reported.commit(turn)
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(2 * HOUR_MS)
    assert upkeep.expire(older_than_ms=upkeep.clock.now_ms(), keep=1).snapshot_ids == ()
    reported.commit(**{ADOPTED_KEY: "names all"})
    upkeep.clock.advance(2 * HOUR_MS)
    assert len(upkeep.expire(older_than_ms=upkeep.clock.now_ms(), keep=1).snapshot_ids) == 6
    assert lake.committer(info).newest_lake_snapshot().is_complete


def test_a_line_that_others_cut_is_not_taken_for_the_whole(lake, info):
    reported = Told(lake, info)
    first = reported.commit(*range(BUCKETS))
    second, third = reported.commit(1), reported.commit(2)
    lake.load(info).maintenance.expire_snapshots().by_id(first).commit()
    assert not lake.committer(info).newest_lake_snapshot().is_complete
    assert [each.complete for each in Upkeep(lake, info).maintenance.snapshots()] == [False, False]
    reported.at = {second: reported.at[second], third: reported.at[third]}
    reported.check()
    reported.commit(3)
    assert is_complete(reported.snapshots()[-1])
    assert lake.committer(info).newest_lake_snapshot().is_complete


def test_a_bucket_that_is_gone_is_not_named_any_more(lake, info):
    reported = Told(lake, info)
    reported.commit(*range(BUCKETS))
    reported.commit(3)
    del reported.ends[7]
    reported.commit(4)
    assert is_complete(reported.snapshots()[-1])
    found = Upkeep(lake, info).maintenance.snapshots()[-1]
    assert (None, 7) not in found.offsets


def test_tables_of_few_buckets_say_all_every_time(lake):
    info = lake.table(COLUMNS, buckets=4)
    for turn in range(3):
        lake.append(info, rows(info, 2, 2 * turn), 2 * turn)
    assert all(is_complete(each) for each in lake.load(info).metadata.snapshots)


# -- what any format has from the module -------------------------------------------------------------------------------

PARTITIONED = {TableBucket(7, 31, 0): LakeOffset(10, 5, "a"), TableBucket(7, 32, 1): LakeOffset(4, 2, "b")}


def summary_of_commit(snapshot_id, offsets, known=None, **more):
    properties = snapshot_summary.commit_properties(f"c{snapshot_id}", 7, 3, offsets, known or {}, **more)
    return SnapshotSummary("db.t", snapshot_id, properties)


def test_what_is_written_is_read_back():
    found = summary_of_commit(1, PARTITIONED, starts={TableBucket(7, 32, 1): 3, TableBucket(7, 31, 0): 0})
    newest = snapshot_summary.newest_committed([found])
    assert snapshot_summary.committed_offsets(newest, 7, {"a": 31, "b": 32}) == PARTITIONED
    assert snapshot_summary.committed_starts(newest, PARTITIONED) == {
        TableBucket(7, 31, 0): 0,
        TableBucket(7, 32, 1): 3,
    }


def test_newer_snapshots_count_over_older_ones_and_others_do_not():
    first = summary_of_commit(1, PARTITIONED)
    other = SnapshotSummary("db.t", 2, {BUCKET_OFFSET_KEY: "no JSON"})
    third = summary_of_commit(3, {TableBucket(7, 31, 0): LakeOffset(20, 9, "a")})
    found = snapshot_summary.newest_committed([third, other, first])
    assert (found.snapshot_id, found.properties["fluss-commit-id"]) == (3, "c3")
    assert found.offsets == {("a", 0): LakeOffset(20, 9, "a"), ("b", 1): LakeOffset(4, 2, "b")}
    assert snapshot_summary.newest_committed([other]) is None


def test_a_partition_made_again_has_nothing_of_the_first_one():
    again = summary_of_commit(2, {TableBucket(7, 40, 1): LakeOffset(1, 9, "a")})
    found = snapshot_summary.newest_committed([again, summary_of_commit(1, PARTITIONED)])
    assert found.offsets == {("a", 1): LakeOffset(1, 9, "a"), ("b", 1): LakeOffset(4, 2, "b")}
    assert snapshot_summary.committed_offsets(found, 7, {"a": 31, "b": 32}) == {
        TableBucket(7, 32, 1): LakeOffset(4, 2, "b")
    }
    known, newer = {("a", 0): ReplayStart(8, 31), ("b", 1): ReplayStart(5, 32)}, {("a", 1): ReplayStart(2, 40)}
    assert snapshot_summary.merge_starts(known, newer) == {("b", 1): ReplayStart(5, 32), ("a", 1): ReplayStart(2, 40)}


def test_a_replay_start_does_not_go_back():
    starts = snapshot_summary.merge_starts({(None, 0): ReplayStart(8)}, {(None, 0): ReplayStart(3)})
    assert starts == {(None, 0): ReplayStart(8)}
    assert snapshot_summary.read_starts(snapshot_summary.write_starts(starts), "it") == starts


def test_nothing_older_than_a_repair_counts_and_nothing_may_follow_it_unregistered():
    repair = summary_of_commit(2, {TableBucket(7, None, 0): LakeOffset(3, 1)}, adopted="x" * 999)
    older = summary_of_commit(1, {TableBucket(7, None, 1): LakeOffset(9, 1)})
    assert snapshot_summary.newest_committed([repair, older]).offsets == {(None, 0): LakeOffset(3, 1)}
    assert len(repair.properties[ADOPTED_KEY]) == 500
    snapshot_summary.check_registered(older)
    with pytest.raises(ForeignCommitError, match=r"db\.t: snapshot 2 .*--adopt"):
        snapshot_summary.check_registered(repair)


@pytest.mark.parametrize("text", ["no JSON", "[1]", '[{"bucket": 0}]', '[{"bucket": "x", "offset": 1}]', "7"])
def test_what_tiering_cannot_have_written_is_an_error(text):
    found = SnapshotSummary("db.t", 5, {**summary_of_commit(5, {}).properties, BUCKET_OFFSET_KEY: text})
    with pytest.raises(CorruptDataError, match=r"db\.t, snapshot 5, property 'fluss-bucket-offset'"):
        snapshot_summary.newest_committed([found])
    with pytest.raises(CorruptDataError, match="it: no list of buckets with offsets: "):
        snapshot_summary.read_starts(text, "it")
