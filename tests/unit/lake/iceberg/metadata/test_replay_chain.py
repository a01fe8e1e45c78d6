"""Which snapshots hold which piece of a primary-key bucket's log."""

import json
import random
from dataclasses import replace

import pytest

from fluss_lab.lake.iceberg.commit.replay_start_tags import REPLAY_START_PROPERTY
from fluss_lab.lake.iceberg.metadata.partition_history import DROPS_PROPERTY
from fluss_lab.lake.iceberg.metadata.snapshot_builder import stage_delete
from fluss_lab.lake.snapshot_summary import BUCKET_OFFSET_KEY
from fluss_lab.model import ChangeType, PartitionInfo, TableInfo
from tests.readers import foreign
from tests.unit.lake.changelogs import Changelog, state_of, written
from tests.unit.lake.conftest import summary
from tests.unit.lake.keyed_logs import check_log, compact_keeping, copied, exchange, links, newest
from tests.unit.lake.rounds import tags
from tests.unit.lake.upkeep import DAY_MS, Upkeep, keyed_lake

pytestmark = pytest.mark.slow


def test_without_compactions_there_is_one_link(lake):
    keyed = keyed_lake(lake)
    for _ in range(3):
        keyed.change(random.Random(2), 10)
        snapshot_id = keyed.round()
    (link,) = links(lake, keyed.info)
    assert (link.snapshot_id, link.start, link.stop) == (snapshot_id, 0, keyed.tiered[0])
    assert [(each.snapshot_id, each.start, each.stop) for each in links(lake, keyed.info, (None, 7))] == [
        (snapshot_id, 0, 0)
    ]


def test_a_link_for_each_compaction_that_dropped_rows_of_the_bucket(lake):
    """A compaction of another bucket makes none, nor does one that keeps everything."""
    keyed = keyed_lake(lake, buckets=2)
    rng = random.Random(3)
    upkeep = Upkeep(lake, keyed.info)
    for _ in range(3):
        keyed.change(rng, 30)
        before = keyed.round()
    ends = dict(keyed.tiered)
    plan = upkeep.plan()
    plan = replace(plan, tasks=tuple(task for task in plan.tasks if task["bucket"]["bucket"] == 1))
    upkeep.commit(plan, upkeep.run(plan))
    compact_keeping(upkeep)
    keyed.change(rng, 30)
    after = keyed.round()
    assert [(each.snapshot_id, each.start, each.stop) for each in links(lake, keyed.info, (None, 1))] == [
        (before, 0, ends[1]), (after, ends[1], keyed.tiered[1])
    ]  # fmt: skip
    assert [each.snapshot_id for each in links(lake, keyed.info, (None, 0))] in ([after], [before, after])
    # A snapshot before the tagged one, and that one itself, need no other.
    assert [each.snapshot_id for each in links(lake, keyed.info, (None, 1), before)] == [before]


def test_an_older_snapshot_has_nothing_of_newer_ones(lake):
    keyed = keyed_lake(lake)
    rng = random.Random(3)
    keyed.change(rng, 30)
    first, end = keyed.round(), keyed.tiered[0]
    for _ in range(2):
        keyed.change(rng, 30)
        keyed.round()
    Upkeep(lake, keyed.info).compact()
    keyed.change(rng, 30)
    keyed.round()
    assert len(links(lake, keyed.info)) == 2
    (link,) = links(lake, keyed.info, snapshot_id=first)
    assert (link.snapshot_id, link.start, link.stop) == (first, 0, end)
    check_log(lake, keyed.info, keyed.logs, {0: end}, rng, snapshot_id=first)


def test_a_bucket_of_which_nothing_is_left_is_read_from_what_is_kept(lake):
    keyed = keyed_lake(lake)
    log = keyed.logs[0]
    log.upsert({"id": 1, "name": "a"})
    log.delete((1,))
    before = keyed.round()
    after = Upkeep(lake, keyed.info).compact().snapshot_id
    assert state_of(lake, keyed.info) == {}
    assert [(each.snapshot_id, each.start, each.stop) for each in links(lake, keyed.info)] == [
        (before, 0, 2), (after, 2, 2)
    ]  # fmt: skip
    check_log(lake, keyed.info, keyed.logs, keyed.tiered, random.Random(1))


def test_what_others_compacted_is_read_before_a_round_tagged_it(lake):
    keyed = keyed_lake(lake)
    rng = random.Random(4)
    for _ in range(2):
        keyed.change(rng, 20)
        keyed.round()
    foreign.compact(lake.load(keyed.info), rng)
    assert tags(lake, keyed.info) == {}
    check_log(lake, keyed.info, keyed.logs, keyed.tiered, rng)


def test_delete_files_without_a_telling_name_are_opened(lake):
    """Somebody may have renamed them; events of a name that says nothing still come."""
    keyed = keyed_lake(lake)
    rng = random.Random(6)
    for _ in range(2):
        keyed.change(rng, 20)
        keyed.round()
    table = lake.load(keyed.info)
    state = state_of(lake, keyed.info)[(None, 0)]
    old = state.deletes[-1].file
    exchange(table, [old], [copied(old, "plain.parquet")])
    (link,) = links(lake, keyed.info)
    assert len(link.events) == len(state.deletes)
    check_log(lake, keyed.info, keyed.logs, keyed.tiered, rng)


PARTS = {"id": "bigint not null", "name": "string", "p": "string not null"}


def commit_partition(lake, info: TableInfo, log: Changelog, span, number: int, *, known, name="a") -> int:
    """Commit a round of a partition, whose id may be another than the last one's of its name."""
    lake.rounds += 1
    result = written(lake, info, log.run(*span), partition=name)
    entry = {"partition_id": number, "partition_name": name, "bucket": 0, "offset": span[1], "max_timestamp": 1}
    committer = lake.committer(info)
    given = summary() | {BUCKET_OFFSET_KEY: json.dumps([entry])}
    return committer.commit(committer.to_committable([result]), known, given)


def partition_log(info: TableInfo, rng, count, name="a") -> Changelog:
    log = Changelog(info.schema.arrow_schema, ("id", "p"))
    for _ in range(count):
        number = rng.randrange(10)
        if rng.random() < 0.3:
            log.delete((number, name))
        else:
            log.upsert({"id": number, "name": f"{rng.randrange(10**6)}", "p": name})
    return log


@pytest.mark.parametrize("is_reported", [True, False])
def test_a_partition_made_again_under_its_name_has_a_log_of_its_own(lake, seed, is_reported):
    """A tag keeps files of the first one: they are not the second one's. Even if nobody says any more that it was dropped."""
    rng = random.Random(seed)
    info = lake.table(PARTS, primary_key=["id", "p"], partitioned_by=["p"], buckets=1)
    first, second = partition_log(info, rng, 60), partition_log(info, rng, 30)
    known = commit_partition(lake, info, first, (0, 30), 1, known=None)
    known = commit_partition(lake, info, first, (30, first.end), 1, known=known)
    Upkeep(lake, info).compact()
    assert tags(lake, info)
    check_log(lake, info, {0: first}, {0: first.end}, rng, partition="a")
    if is_reported:
        lake.catalog.drop_partition(info, PartitionInfo(1, "a"))
        assert lake.storage.create_fluss_log_source(info).earliest_offset("a", 0, newest(lake, info)) is None
    else:
        table = lake.load(info)
        state = state_of(lake, info)[("a", 0)]
        files = [each.file for each in (*state.data, *state.deletes)]
        staged = stage_delete(table, files, {"commit-user": "__fluss_lake_tiering"})
        table.catalog.commit_table(table, staged.requirements, staged.updates)
    commit_partition(lake, info, second, (0, second.end), 2, known=newest(lake, info))
    check_log(lake, info, {0: second}, {0: second.end}, rng, partition="a")


def cut(log: Changelog, offset: int) -> int:
    """Return where a round may end: an update's two records are in one snapshot."""
    return offset + (log.log[offset].kind is ChangeType.UPDATE_AFTER)


def expire_drop(lake, info, upkeep, drop, *, ids, by) -> None:
    """Expire the snapshot that drops a partition, and all others that may go."""
    if by == "others":
        lake.load(info).maintenance.expire_snapshots().by_id(drop).commit()
    elif by == "an older lab's":
        lake.load(info).transaction().remove_properties(DROPS_PROPERTY).commit_transaction()
    upkeep.clock.advance(2 * DAY_MS)
    upkeep.expire(partition_ids=ids)
    assert drop not in [each.snapshot_id for each in lake.load(info).metadata.snapshots]


@pytest.mark.parametrize("by", ["ours", "others", "an older lab's"])
def test_a_drop_is_remembered_while_a_tag_keeps_the_dropped_rows(lake, seed, by):
    """The tagged snapshot says nothing of the partition, as a round names only what advanced where there are many buckets."""
    rng = random.Random(seed)
    given = {"table.datalake.snapshots-min": 1}
    info = lake.table(PARTS, primary_key=["id", "p"], partitioned_by=["p"], buckets=1, properties=given)
    first, second, other = partition_log(info, rng, 60), partition_log(info, rng, 30), partition_log(info, rng, 60, "b")
    known = commit_partition(lake, info, first, (0, first.end), 1, known=None)
    low, high = cut(other, 20), cut(other, 40)
    known = commit_partition(lake, info, other, (0, low), 2, known=known, name="b")
    tagged = commit_partition(lake, info, other, (low, high), 2, known=known, name="b")
    upkeep, ids = Upkeep(lake, info), {"a": 3, "b": 2}
    upkeep.compact()
    assert {each.snapshot_id for each in tags(lake, info).values()} == {tagged}
    lake.catalog.drop_partition(info, PartitionInfo(1, "a"))
    drop = newest(lake, info)
    known = commit_partition(lake, info, second, (0, second.end), 3, known=drop)
    commit_partition(lake, info, other, (high, other.end), 2, known=known, name="b")
    expire_drop(lake, info, upkeep, drop, ids=ids, by=by)
    check_log(lake, info, {0: second}, {0: second.end}, rng, partition="a")
    check_log(lake, info, {0: other}, {0: other.end}, rng, partition="b")
    # With the tag goes what was remembered; the start of the second one's log is not where the first one ended.
    upkeep.clock.advance(6 * DAY_MS)
    assert tagged in upkeep.expire(partition_ids=ids).snapshot_ids
    assert lake.load(info).properties[DROPS_PROPERTY] == "{}"
    check_log(lake, info, {0: second}, {0: second.end}, rng, partition="a")


def test_where_replay_of_a_dropped_partition_began_goes_with_it(lake, seed):
    """Nothing says any more which of two of the name the start is of, once others expired what named the second one."""
    rng = random.Random(seed)
    info = lake.table(PARTS, primary_key=["id", "p"], partitioned_by=["p"], buckets=1)
    first, second, other = partition_log(info, rng, 60), partition_log(info, rng, 30), partition_log(info, rng, 30, "b")
    commit_partition(lake, info, first, (0, first.end), 1, known=None)
    upkeep = Upkeep(lake, info)
    upkeep.compact()
    upkeep.clock.advance(8 * DAY_MS)
    assert upkeep.expire(partition_ids={"a": 1}).replay_starts == {("a", 0): first.end}
    before = lake.load(info).properties[REPLAY_START_PROPERTY]
    lake.catalog.drop_partition(info, PartitionInfo(1, "a"))
    known = commit_partition(lake, info, second, (0, second.end), 3, known=newest(lake, info))
    commit_partition(lake, info, other, (0, other.end), 2, known=known, name="b")
    table = lake.load(info)
    expiry = table.maintenance.expire_snapshots()
    for snapshot in table.metadata.snapshots[:-1]:
        expiry.by_id(snapshot.snapshot_id)
    expiry.commit()
    check_log(lake, info, {0: second}, {0: second.end}, rng, partition="a")
    # Of a lab of an older release, which kept it, expiry takes it away, once.
    lake.load(info).transaction().set_properties({REPLAY_START_PROPERTY: before}).commit_transaction()
    upkeep.expire(partition_ids={"a": 3, "b": 2})
    check_log(lake, info, {0: second}, {0: second.end}, rng, partition="a")
    assert not upkeep.maintenance.expiry_due(1)
