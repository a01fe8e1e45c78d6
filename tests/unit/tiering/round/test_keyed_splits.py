"""Splits of primary-key tables: their JSON, how they are aligned to whole updates, and what they refuse to give out."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.client.kv.kv_scan import KvRecords
from fluss_lab.errors import CorruptDataError
from fluss_lab.model import TableBucket, TablePath
from fluss_lab.model.changes import ChangeType
from fluss_lab.model.json_codec import decode, encode, from_plain, to_plain
from fluss_lab.records import LogRecords
from fluss_lab.tiering.round.round_options import ROUND_DURATION_MIN_S, TieringOptions
from fluss_lab.tiering.round.split_generator import TieringLogSplit, TieringSnapshotSplit, TieringSplit, number_splits
from fluss_lab.tiering.round.tiering_committer import WrittenSplit, contiguous, starts_of
from fluss_lab.tiering.task.split_reader import (
    HELD_BYTES,
    SMALL_ROWS,
    KeyedChanges,
    coalesce_runs,
    event_count,
    in_order,
)

PATH = TablePath("db", "people")
KINDS = {"+A": 0, "+I": 1, "-U": 2, "+U": 3, "-D": 4}


def log_split(start, stop, *, follows=False, bucket=0):
    return TieringLogSplit(PATH, TableBucket(7, None, bucket), None, 1, 0, start, stop, follows)


def snapshot_split(log_offset, *, bucket=0, partition_id=None, partition=None):
    return TieringSnapshotSplit(PATH, TableBucket(7, partition_id, bucket), partition, 1, 0, 3, log_offset)


@pytest.mark.parametrize(
    "value", [snapshot_split(12), snapshot_split(2**50, partition_id=4, partition="p$ä"), log_split(3, 9, follows=True)]
)
def test_json_round_trip(value):
    assert decode(TieringSplit, encode(value), "split") == value


@pytest.mark.parametrize(
    "change", [{"snapshot_id": None}, {"log_offset": 0}, {"snapshot_id": -1}, {"kind": "other"}, {"kind": "log"}]
)
def test_json_that_is_no_snapshot_split_is_refused(change):
    with pytest.raises(CorruptDataError, match="tiering split"):
        from_plain(TieringSplit, to_plain(snapshot_split(12)) | change, "tiering split")


def test_what_a_snapshot_split_covers():
    split = snapshot_split(12)
    assert (split.start, split.end, split.replay_start) == (0, 12, 12)
    assert str(split) == "db.people bucket 0 snapshot 3 at log offset 12"
    assert (log_split(3, 9).start, log_split(3, 9).end, log_split(3, 9).replay_start) == (3, 9, 3)


# -- whole updates -----------------------------------------------------------------------------------------------------


def records(start, changes):
    """Return records from an offset on: pairs of change type and previous offset."""
    count = len(changes)
    offsets = np.arange(start, start + count, dtype=np.int64)
    return LogRecords(
        pa.record_batch({"id": pa.array(offsets)}),
        pa.array(offsets),
        pa.array(np.full(count, 5, np.int64)),
        pa.array([KINDS[kind] for kind, _ in changes], pa.int8()),
        pa.array([previous for _, previous in changes], pa.int64()),
    )


def history(random, count):
    """Return a changelog of few keys, as pairs of change type and previous offset."""
    changes, live = [], {}
    while len(changes) < count:
        key = random.randrange(5)
        offset = len(changes)
        if key not in live:
            changes.append(("+I", -1))
            live[key] = offset
        elif random.random() < 0.7:
            changes += [("-U", live[key]), ("+U", live[key])]
            live[key] = offset + 1
        else:
            changes.append(("-D", live.pop(key)))
    return changes


def in_runs(random, start, stop, changes):
    while start < stop:
        end = min(stop, start + random.randrange(1, 6))
        yield records(start, changes[start:end])
        start = end


@pytest.mark.parametrize("turn", range(20))
def test_cut_splits_give_every_record_once_and_no_update_in_two(seed, turn):
    import random as randoms

    random = randoms.Random(f"{seed}/{turn}")
    changes = history(random, 60)
    edges = sorted({0, len(changes), *(random.randrange(1, len(changes)) for _ in range(8))})
    given, ends = [], []
    for start, stop in pairwise(edges):
        split = log_split(start, stop, follows=start > 0)
        checker = KeyedChanges(split, lambda stop=stop: iter([records(stop, changes[stop : stop + 1])]))
        own = [
            offset for run in checker.check(in_runs(random, start, stop, changes)) for offset in run.offsets.to_pylist()
        ]
        assert checker.start == (start if not ends else ends[-1])
        given += own
        ends.append(own[-1] + 1 if own else checker.start)
    assert given == list(range(len(changes)))
    assert all(changes[end - 1][0] != "-U" for end in ends)


def test_the_first_split_of_a_plan_keeps_the_half_update_that_it_begins_with():
    """Its other half is in the lake already."""
    checker = KeyedChanges(log_split(4, 6), lambda: iter(()))
    assert [run.offsets.to_pylist() for run in checker.check([records(4, [("+U", 2), ("+I", -1)])])] == [[4, 5]]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ([("+A", -1)], "a change type that no primary-key table has, at offset 10"),
        ([("+I", -1), ("+I", 3)], "a previous offset that cannot be, at offset 11"),
        ([("-D", -1)], "a previous offset that cannot be, at offset 10"),
        ([("-D", 10)], "a previous offset that cannot be, at offset 10"),
        ([("+I", -1), ("-D", 12)], "a previous offset that cannot be, at offset 11"),
        ([("-U", 3), ("+I", -1)], "a -U that is not followed by its +U, or a +U without, at offset 11"),
        ([("-U", 3), ("-U", 4), ("+U", 4)], "a -U that is not followed by its +U, or a +U without, at offset 11"),
        ([("+I", -1), ("+U", 10)], "a -U that is not followed by its +U, or a +U without, at offset 11"),
        ([("-U", 3), ("+U", 4)], "a +U that replaces another row than its -U ends, at offset 11"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_changes_that_cannot_be_are_refused(changes, text, size):
    """However they are spread over runs."""
    runs = [records(10 + at, changes[at : at + size]) for at in range(0, len(changes), size)]
    checker = KeyedChanges(log_split(10, 10 + len(changes)), lambda: iter(()))
    with pytest.raises(CorruptDataError, match=r"\[10, \d+\): ") as caught:
        list(checker.check(runs))
    assert text in str(caught.value)


def test_a_last_half_update_without_the_other_is_refused():
    checker = KeyedChanges(log_split(10, 11), lambda: iter(()))
    with pytest.raises(CorruptDataError, match="no \\+U after it"):
        list(checker.check([records(10, [("-U", 3)])]))


def test_changes_without_previous_offsets_are_refused():
    whole = records(10, [("+I", -1)])
    bare = LogRecords(whole.rows, whole.offsets, whole.timestamps_ms, whole.change_types)
    with pytest.raises(CorruptDataError, match="expected changes with previous offsets"):
        list(KeyedChanges(log_split(10, 11), lambda: iter(())).check([bare]))


def test_events_are_counted_apart():
    some = records(10, [("+I", -1), ("-U", 10), ("+U", 10), ("-D", 12)])
    assert event_count(some) == 2
    assert event_count(LogRecords(some.rows, some.offsets, some.timestamps_ms)) == 0
    assert {ChangeType(kind).symbol for kind in some.change_types.to_pylist()} == {"+I", "-U", "+U", "-D"}


def rows_at(*offsets):
    count = len(offsets)
    return KvRecords(
        pa.record_batch({"id": pa.array(range(count), pa.int64())}),
        pa.array(offsets, pa.int64()),
        pa.array([5] * count, pa.int64()),
    )


def test_rows_of_a_snapshot_pass_in_order():
    runs = [rows_at(1, 5), rows_at(6), rows_at(9, 11)]
    assert list(in_order(runs, snapshot_split(12))) == runs


@pytest.mark.parametrize(
    "runs",
    [[rows_at(1, 5), rows_at(5)], [rows_at(7, 8), rows_at(2)], [rows_at(3, 2)], [rows_at(4, 4)], [rows_at(3, 12)]],
)
def test_rows_of_a_snapshot_out_of_order_are_refused(runs):
    """The lake's files are sorted by offset: deletes are placed by a search in them."""
    with pytest.raises(CorruptDataError, match="expected rows whose offsets ascend"):
        list(in_order(runs, snapshot_split(12)))


# -- what is committed -------------------------------------------------------------------------------------------------


def written(split, *, start=None, end=None):
    return WrittenSplit(split, split.end if end is None else end, 5, object(), start=start)


def kept_of(*parts):
    planned = [each.split for each in parts]
    kept, rest = contiguous(planned, parts)
    assert len(kept) + len(rest) == len(parts)
    return [(each.begin, each.end) for each in kept]


def numbered(*splits):
    return number_splits(splits)


def test_a_snapshot_and_the_log_behind_it_join():
    first, second, third = numbered(snapshot_split(12), log_split(12, 20), log_split(20, 30, follows=True))
    assert kept_of(written(first), written(second), written(third)) == [(0, 12), (12, 20), (20, 30)]
    assert starts_of([written(first), written(second)]) == {first.table_bucket: 12}


def test_without_its_snapshot_a_bucket_is_not_begun():
    first, second = numbered(snapshot_split(12), log_split(12, 20))
    assert kept_of(written(first, end=0), written(second)) == []


def test_splits_join_where_an_update_was_kept_whole():
    first, second, third = numbered(log_split(0, 10), log_split(10, 20, follows=True), log_split(20, 30, follows=True))
    taken = [written(first, end=11), written(second, start=11), written(third)]
    assert kept_of(*taken) == [(0, 11), (11, 20), (20, 30)]
    assert kept_of(written(first), written(second, start=11), written(third)) == [(0, 10)]
    assert kept_of(written(first, end=11), written(second), written(third)) == [(0, 11)]


def test_a_split_whose_only_record_belongs_to_the_one_before_leaves_no_gap():
    first, second, third = numbered(log_split(0, 10), log_split(10, 11, follows=True), log_split(11, 30, follows=True))
    assert kept_of(written(first, end=11), written(second, start=11, end=11), written(third)) == [(0, 11), (11, 30)]


def test_what_was_left_to_a_later_round_ends_its_bucket():
    first, second, third = numbered(log_split(0, 10), log_split(10, 20, follows=True), log_split(20, 30, follows=True))
    left = WrittenSplit(second, second.start, -1, None)
    assert kept_of(written(first), left, written(third)) == [(0, 10)]


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "freshness_ms", "expected_s"),
    [
        (TieringOptions(), 180_000, 180),
        (TieringOptions(), 1_000, ROUND_DURATION_MIN_S),
        (TieringOptions(round_duration_max_s=2.5), 180_000, 2.5),
    ],
)
def test_a_round_lasts_as_long_as_its_table_may_be_stale(options, freshness_ms, expected_s):
    assert options.duration_max_s(freshness_ms) == expected_s


@pytest.mark.parametrize("options", [{"round_bytes_max": 0}, {"round_duration_max_s": -1.0}])
def test_limits_that_cannot_be(options):
    with pytest.raises(ValueError, match="expected positive limits"):
        TieringOptions(**options)


# -- small runs --------------------------------------------------------------------------------------------------------


def test_small_runs_are_read_together(seed):
    import random as randoms

    random = randoms.Random(seed)
    changes = history(random, 9_000)
    sizes, at = [], 0
    while at < len(changes):
        sizes.append(min(len(changes) - at, random.choice([1, 3, 40, 2_000])))
        at += sizes[-1]
    edges = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    runs = [records(start, changes[start:stop]) for start, stop in pairwise(edges)]
    given = list(coalesce_runs(runs))
    for name in ("offsets", "timestamps_ms", "change_types", "previous_offsets"):
        assert values(given, name) == values(runs, name)
    assert [row for run in given for row in run.rows.to_pylist()] == [
        row for run in runs for row in run.rows.to_pylist()
    ]
    assert all(len(left) + len(right) >= SMALL_ROWS for left, right in pairwise(given))
    assert {id(run) for run in runs if len(run) >= SMALL_ROWS} <= {id(run) for run in given}


def values(runs, name):
    return [value for run in runs for value in getattr(run, name).to_pylist()]


def test_wide_rows_are_not_held_back_for_long():
    wide = pa.record_batch({"id": pa.array(["x" * (HELD_BYTES // 4)])})
    runs = (LogRecords(wide, pa.array([at], pa.int64()), pa.array([5], pa.int64())) for at in range(9))
    assert [len(run) for run in coalesce_runs(runs)] == [4, 4, 1]
