"""Expiry of snapshots: what may go and what never does, by a clock that tests move; and the files that go with it."""

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyiceberg.manifest import DataFile

from tests.unit.lake.changelogs import state_of
from tests.unit.lake.conftest import Lake
from tests.unit.lake.iceberg.maintenance.expiry_kit import (
    appended,
    check_no_orphan,
    expiring_table,
    left,
)
from tests.unit.lake.iceberg.maintenance.test_compaction import history, rows
from tests.unit.lake.keyed_logs import exchange
from tests.unit.lake.rounds import starts, tags
from tests.unit.lake.upkeep import COLUMNS, DAY_MS, HOUR_MS, Upkeep, check, keyed_lake

pytestmark = pytest.mark.slow


@pytest.fixture
def info(lake):
    return expiring_table(lake)


@contextmanager
def clock_ahead(monkeypatch, ahead_ms) -> Iterator[None]:
    real = time.time
    with monkeypatch.context() as ahead:
        ahead.setattr("time.time", lambda: real() + ahead_ms / 1000)
        yield


def test_snapshots_go_by_age_and_count_and_their_files_with_them(lake, info):
    ids = appended(lake, info, 6)
    upkeep = Upkeep(lake, info)
    assert upkeep.expire().snapshot_ids == ()
    upkeep.clock.advance(DAY_MS + HOUR_MS)
    done = upkeep.expire()
    assert (done.snapshot_ids, left(lake, info)) == (tuple(ids[:3]), ids[3:])
    assert done.files > 0
    check_no_orphan(lake, info)
    assert upkeep.rows(names=["__offset"])["__offset"].to_pylist() == list(range(12))
    assert upkeep.expire().snapshot_ids == ()


def test_an_hour_is_never_touched(lake, info):
    ids = appended(lake, info, 4)
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(HOUR_MS - 60_000)
    assert upkeep.expire(older_than_ms=upkeep.clock.now_ms() + DAY_MS, keep=1).snapshot_ids == ()
    upkeep.clock.advance(120_000)
    assert upkeep.expire(older_than_ms=upkeep.clock.now_ms() + DAY_MS, keep=1).snapshot_ids == tuple(ids[:3])


def test_what_was_the_newest_within_the_hour_stays_however_old(lake, info, monkeypatch):
    """A read of it may go on: of a quiet table it was the newest for days."""
    ids = appended(lake, info, 4)
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(2 * DAY_MS)
    with clock_ahead(monkeypatch, 2 * DAY_MS):
        ids += appended(lake, info, 1)
    assert upkeep.expire(keep=1).snapshot_ids == tuple(ids[:3])
    upkeep.clock.advance(HOUR_MS + 60_000)
    assert upkeep.expire(keep=1).snapshot_ids == (ids[3],)


def test_a_clock_that_was_ahead_keeps_no_snapshots_until_that_time(lake, info, monkeypatch):
    """Timestamps do not go back with the clock: those of later snapshots are of that time too."""
    with clock_ahead(monkeypatch, 365 * DAY_MS):
        ids = appended(lake, info, 2)
    ids += appended(lake, info, 4)
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(HOUR_MS - 60_000)
    assert upkeep.expire(older_than_ms=upkeep.clock.now_ms()).snapshot_ids == ()
    upkeep.clock.advance(DAY_MS)
    assert upkeep.expire().snapshot_ids == tuple(ids[:3])
    check_no_orphan(lake, info)


def test_what_a_slow_clock_says_makes_no_snapshot_older(lake, info, monkeypatch):
    """Of two machines that commit, one is two hours late: by the other's clock the timestamps are right."""
    ids = appended(lake, info, 1)
    with clock_ahead(monkeypatch, -2 * HOUR_MS):
        ids += appended(lake, info, 4)
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(60_000)
    assert upkeep.expire(older_than_ms=upkeep.clock.now_ms(), keep=1).snapshot_ids == ()
    assert left(lake, info) == ids


def test_a_clock_that_was_ahead_keeps_no_tags_until_that_time(lake, seed, monkeypatch):
    keyed = keyed_lake(lake)
    upkeep, rng = Upkeep(lake, keyed.info), random.Random(seed)
    with clock_ahead(monkeypatch, 365 * DAY_MS):
        history(keyed, rng, 2)
        upkeep.compact()
    assert tags(lake, keyed.info)
    keyed.change(rng, 5)
    keyed.round()
    upkeep.clock.advance(6 * DAY_MS)
    upkeep.expire()
    assert tags(lake, keyed.info)
    upkeep.clock.advance(2 * DAY_MS)
    upkeep.expire()
    assert not tags(lake, keyed.info)
    check(keyed, upkeep, replay=False)


def test_what_the_cluster_knows_stays_and_all_after_it(lake, info):
    ids = appended(lake, info, 5)
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(30 * DAY_MS)
    assert upkeep.expire(keep=1, protected=frozenset({ids[1]})).snapshot_ids == (ids[0],)
    assert left(lake, info) == ids[1:]


def test_properties_of_iceberg_go_before_ours(lake):
    given = {
        "iceberg.history.expire.max-snapshot-age-ms": str(2 * HOUR_MS),
        "iceberg.history.expire.min-snapshots-to-keep": "2",
    }
    info = lake.table(COLUMNS, buckets=1, properties=given)
    ids = appended(lake, info, 4)
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(3 * HOUR_MS)
    assert upkeep.expire().snapshot_ids == tuple(ids[:2])


def test_without_a_wish_there_are_never_very_many(lake, info, monkeypatch):
    from fluss_lab.lake.iceberg.maintenance import expiry_plan

    monkeypatch.setattr(expiry_plan, "SNAPSHOTS_MAX", 5)
    ids = appended(lake, info, 8)
    upkeep = Upkeep(lake, info)
    assert upkeep.expire().snapshot_ids == ()
    upkeep.clock.advance(2 * HOUR_MS)
    assert upkeep.expire().snapshot_ids == tuple(ids[:3])
    asked = lake.info(COLUMNS, buckets=1, properties={"table.datalake.snapshot-retention": "5h"})
    monkeypatch.setattr(expiry_plan, "SNAPSHOTS_MAX", 1)
    upkeep.info = asked
    assert upkeep.expire(keep=1).snapshot_ids == ()


def test_few_are_not_worth_it(lake, info):
    ids = appended(lake, info, 6)
    upkeep = Upkeep(lake, info)
    assert not upkeep.maintenance.expiry_due(1)  # all are young
    upkeep.clock.advance(2 * DAY_MS)
    assert [upkeep.maintenance.expiry_due(fewest) for fewest in (4, 3)] == [False, True]
    assert upkeep.expire(fewest=4).snapshot_ids == ()
    assert upkeep.expire(fewest=3).snapshot_ids == tuple(ids[:3])


def test_branches_and_tags_of_others_are_respected(lake, info):
    ids = appended(lake, info, 8)
    table = lake.load(info)
    table.manage_snapshots().create_tag(ids[1], "release").create_branch(
        ids[4], "audit", min_snapshots_to_keep=2
    ).commit()
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(100 * DAY_MS)
    done = upkeep.expire(keep=1)
    assert set(done.snapshot_ids) == {ids[0], ids[2], ids[5], ids[6]}
    table = lake.load(info)
    assert {"release", "audit", "main"} == set(table.metadata.refs)
    assert table.scan(snapshot_id=ids[1]).to_arrow().num_rows == 4
    assert table.scan(snapshot_id=ids[4]).to_arrow().num_rows == 10
    check_no_orphan(lake, info)


def test_somebody_elses_branch_goes_by_its_own_settings(lake, info):
    ids = appended(lake, info, 5)
    table = lake.load(info)
    table.manage_snapshots().create_branch(ids[3], "long", max_snapshot_age_ms=300 * DAY_MS).commit()
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(100 * DAY_MS)
    assert upkeep.expire(keep=1).snapshot_ids == ()
    upkeep.clock.advance(300 * DAY_MS)
    assert set(upkeep.expire(keep=1).snapshot_ids) == set(ids[:3])


def test_a_file_of_an_abandoned_line_goes_and_a_shared_one_stays(lake, info):
    ids = appended(lake, info, 3)
    abandoned = lake.append(info, rows(info, 2, 100), 100)
    lake.load(info).manage_snapshots().rollback_to_snapshot(ids[2]).commit()
    ours = lake.append(info, rows(info, 2, 6), 6)
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(2 * DAY_MS)
    assert abandoned in upkeep.expire(keep=4).snapshot_ids
    assert left(lake, info) == [*ids, ours]
    assert upkeep.rows(names=["__offset"])["__offset"].to_pylist() == list(range(8))
    check_no_orphan(lake, info)


def test_files_in_rewritten_manifests_stay(lake):
    """Manifests are merged: what only an old one names may be in a new one too."""
    merging = {"iceberg.commit.manifest.min-count-to-merge": "2", "table.datalake.snapshots-min": 1}
    info = lake.table(COLUMNS, buckets=1, properties=merging)
    appended(lake, info, 5)
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(2 * DAY_MS)
    assert len(upkeep.expire().snapshot_ids) == 4
    assert upkeep.rows(names=["__offset"])["__offset"].to_pylist() == list(range(10))
    check_no_orphan(lake, info)


def test_manifests_that_only_snapshots_in_the_middle_have_stay(lake):
    """An abandoned snapshot names manifests of its parents, which neither the oldest nor the newest of the line has."""
    info = lake.table(COLUMNS, buckets=1, properties={"iceberg.commit.manifest.min-count-to-merge": "5"})
    ids = appended(lake, info, 3)
    abandoned = lake.append(info, rows(info, 2, 100), 100)
    lake.load(info).manage_snapshots().rollback_to_snapshot(ids[2]).commit()
    ids += [lake.append(info, rows(info, 2, first), first) for first in (6, 8)]
    table = lake.load(info)
    assert len(table.current_snapshot().manifests(table.io)) == 1
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(2 * DAY_MS)
    assert upkeep.expire(keep=5).snapshot_ids == (abandoned,)
    for number, snapshot_id in enumerate(ids, 1):
        assert Lake(lake.folder).load(info).scan(snapshot_id=snapshot_id).to_arrow().num_rows == 2 * number
    check_no_orphan(lake, info)


def test_a_tag_keeps_what_a_compaction_retired_until_its_time_is_over(lake):
    keyed = keyed_lake(lake, 2, properties={"table.datalake.snapshots-min": 1})
    rng = random.Random(1)
    history(keyed, rng, 4)
    upkeep = Upkeep(lake, keyed.info)
    upkeep.compact()
    ends = dict(keyed.tiered)
    history(keyed, rng, 2)
    upkeep.clock.advance(6 * DAY_MS)
    done = upkeep.expire()
    assert done.snapshot_ids
    assert done.replay_starts == {}
    check(keyed, upkeep)
    upkeep.clock.advance(2 * DAY_MS)
    done = upkeep.expire(fewest=100)
    assert done.replay_starts == {(None, bucket): end for bucket, end in ends.items()}
    assert tags(lake, keyed.info) == {}
    check(keyed, upkeep, replay=False)
    held = keyed.replayed()
    for bucket, end in ends.items():
        assert [offset for offset in held[bucket] if offset >= end] == list(range(end, keyed.tiered[bucket]))
    table = lake.load(keyed.info)
    assert starts(table.properties["fluss.replay-start"]) == done.replay_starts
    assert '"retired":{}' in table.properties["fluss.maintenance"]
    check_no_orphan(lake, keyed.info)
    keyed.change(rng, 5)
    keyed.round()
    reported = lake.load(keyed.info).current_snapshot().summary["fluss-replay-start"]
    assert starts(reported) == done.replay_starts


def test_only_buckets_whose_rows_were_dropped_lose_replay(lake):
    keyed = keyed_lake(lake, 2, properties={"table.datalake.snapshots-min": 1})
    for number in range(0, 40, 2):
        keyed.logs[0].upsert({"id": number, "name": "a"})
        keyed.logs[1].upsert({"id": number + 1, "name": "a"})
    keyed.round()
    keyed.logs[0].delete((2,))
    keyed.round()
    upkeep = Upkeep(lake, keyed.info)
    assert upkeep.compact().tag is not None
    upkeep.clock.advance(8 * DAY_MS)
    assert upkeep.expire().replay_starts == {(None, 0): keyed.tiered[0]}
    assert keyed.replayed()[1] == list(range(20))


def test_somebody_elses_compaction_counts_for_every_bucket(lake):
    """Which buckets it dropped rows of nobody wrote down: all that the tagged snapshot has files of."""
    keyed = keyed_lake(lake, 2, properties={"table.datalake.snapshots-min": 1})
    rng = random.Random(2)
    history(keyed, rng, 3)
    keyed.compact(0, ours=False)
    ends = dict(keyed.tiered)
    keyed.change(rng, 5)
    keyed.round()
    upkeep = Upkeep(lake, keyed.info)
    assert len(tags(lake, keyed.info)) == 1
    upkeep.clock.advance(8 * DAY_MS)
    assert upkeep.expire().replay_starts == {(None, bucket): end for bucket, end in ends.items()}
    check_no_orphan(lake, keyed.info)


def test_a_tag_that_somebody_elses_expiry_removed_is_noticed(lake):
    keyed = keyed_lake(lake, properties={"table.datalake.snapshots-min": 1})
    rng = random.Random(3)
    history(keyed, rng, 3)
    upkeep = Upkeep(lake, keyed.info)
    before = lake.load(keyed.info).metadata.current_snapshot_id
    tag = upkeep.compact().tag
    end = keyed.tiered[0]
    history(keyed, rng, 2)
    lake.load(keyed.info).manage_snapshots().remove_tag(tag).commit()
    done = upkeep.expire()
    assert done.replay_starts == {(None, 0): end}
    assert before not in done.snapshot_ids  # younger than an hour
    assert upkeep.expire().snapshot_ids == ()
    # Gone with its snapshot: what is left after it says no less.
    rng = random.Random(4)
    tag = upkeep.compact().tag
    gone = tags(lake, keyed.info)[tag].snapshot_id
    history(keyed, rng, 2)
    table = lake.load(keyed.info)
    table.manage_snapshots().remove_tag(tag).commit()
    lake.load(keyed.info).maintenance.expire_snapshots().by_id(gone).commit()
    start = upkeep.expire().replay_starts[(None, 0)]
    assert end < start <= keyed.tiered[0]
    assert [each for each in keyed.replayed()[0] if each >= start] == list(range(start, keyed.tiered[0]))


@pytest.mark.slow
def test_random_histories_with_compaction_and_expiry(lake, seed):
    rng = random.Random(seed)
    given = {
        "table.datalake.snapshots-min": 2,
        "table.datalake.changelog-retention": "30h",
        "table.datalake.snapshot-retention": "3h",
    }
    keyed = keyed_lake(lake, properties=given)
    upkeep = Upkeep(lake, keyed.info)
    for turn in range(12):
        keyed.change(rng, rng.randrange(1, 20))
        keyed.round()
        if rng.random() < 0.5:
            upkeep.compact(force=rng.random() < 0.5)
        upkeep.clock.advance(rng.randrange(6 * HOUR_MS))
        if rng.random() < 0.5:
            done = upkeep.expire(fewest=rng.choice([1, 3]))
            start = done.replay_starts.get((None, 0), 0)
            assert [each for each in keyed.replayed()[0] if each >= start] == list(range(start, keyed.tiered[0]))
        check_no_orphan(lake, keyed.info)
        if turn % 4 == 3:
            check(keyed, upkeep, replay=False)


def test_many_snapshots_go_in_little_time(lake, info):
    """Linear in the number of snapshots: pyiceberg's own way by ids is not."""
    import time

    from pyiceberg.table.update import AddSnapshotUpdate

    appended(lake, info, 2)
    table = lake.load(info)
    template = table.current_snapshot()
    updates = []
    for number in range(1500):
        copy = {
            "snapshot_id": 10**6 + number,
            "sequence_number": 3 + number,
            "parent_snapshot_id": None,
            "timestamp_ms": template.timestamp_ms + number,
        }
        updates.append(AddSnapshotUpdate(snapshot=template.model_copy(update=copy)))
    lake.storage.access.commit("test", table, (), tuple(updates))
    upkeep = Upkeep(lake, info)
    upkeep.clock.advance(2 * DAY_MS)
    began = time.process_time()
    assert len(upkeep.expire().snapshot_ids) == 1500
    assert time.process_time() - began < 20
    assert upkeep.rows(names=["__offset"])["__offset"].to_pylist() == [0, 1, 2, 3]


def test_a_file_outside_of_the_tables_folders_stays(lake):
    """A manifest may name any file; what expiry removes is the table's own."""
    info = lake.table(COLUMNS, buckets=1)
    outside = lake.folder / "somebody" / "important.parquet"
    outside.parent.mkdir()
    lake.append(info, rows(info, 2))
    (file,) = state_of(lake, info)[(None, 0)].data
    shutil.copy(file.file.file_path.removeprefix("file://"), outside)
    table = lake.load(info)
    named = DataFile(*file.file._data)
    named._data[1] = f"file://{outside}"
    named.spec_id = file.file.spec_id
    exchange(table, [file.file], [named])
    lake.append(info, rows(info, 2, 2), 2)
    upkeep = Upkeep(lake, info)
    assert upkeep.compact(force=True) is not None
    upkeep.clock.advance(10 * HOUR_MS)
    assert upkeep.expire(older_than_ms=upkeep.clock.now_ms(), keep=1).snapshot_ids
    assert outside.exists()
    assert str(outside) not in {each.path for each in upkeep.maintenance.files()}
