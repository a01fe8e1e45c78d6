"""What of a round may be committed, and what a lake snapshot says of offsets."""

import json

import pytest

from fluss_lab.errors import InternalError
from fluss_lab.lake import CommittedLakeSnapshot
from fluss_lab.lake.snapshot_summary import BUCKETS_NAMED_MAX, committed_offsets, merge_offsets, offsets_property
from fluss_lab.model import LakeOffset, TableBucket, TablePath
from fluss_lab.tiering.round.split_generator import TieringLogSplit, number_splits
from fluss_lab.tiering.round.tiering_committer import WrittenSplit, contiguous, split_ends

PATH = TablePath("db", "events")


def splits(*ranges):
    return number_splits(
        [TieringLogSplit(PATH, TableBucket(7, None, bucket), None, 0, 0, start, stop) for bucket, start, stop in ranges]
    )


def written(split, end=None, timestamp_ms=5):
    return WrittenSplit(split, split.stopping_offset if end is None else end, timestamp_ms, object())


def ranges_of(kept):
    return [(each.split.table_bucket.bucket, each.split.starting_offset, each.end) for each in kept]


def test_whole_results_are_all_kept():
    planned = splits((0, 10, 20), (1, 0, 5), (0, 20, 30))
    kept, rest = contiguous(planned, [written(each) for each in reversed(planned)])
    assert ranges_of(kept) == [(0, 10, 20), (0, 20, 30), (1, 0, 5)]
    assert rest == []


def test_after_a_short_split_the_rest_of_its_bucket_does_not_count():
    planned = splits((0, 0, 10), (0, 10, 20), (0, 20, 30), (1, 0, 5))
    kept, rest = contiguous(
        planned, [written(planned[0]), written(planned[1], 15), written(planned[2]), written(planned[3])]
    )
    assert ranges_of(kept) == [(0, 0, 10), (0, 10, 15), (1, 0, 5)]
    assert ranges_of(rest) == [(0, 20, 30)]


def test_after_an_empty_split_nothing_of_its_bucket_counts():
    planned = splits((0, 0, 10), (0, 10, 20))
    kept, rest = contiguous(planned, [written(planned[0], 0), written(planned[1])])
    assert kept == []
    assert len(rest) == 2


def test_a_result_beyond_its_split_does_not_count():
    planned = splits((0, 0, 10), (0, 10, 20))
    kept, _ = contiguous(planned, [written(planned[0], 12), written(planned[1])])
    assert kept == []


@pytest.mark.parametrize("indexes", [[0], [0, 0], [0, 1, 1]])
def test_a_missing_or_double_result_is_refused(indexes):
    planned = splits((0, 0, 10), (1, 0, 10))
    with pytest.raises(InternalError, match="one result for each"):
        contiguous(planned, [written(planned[index]) for index in indexes])


def test_ends_are_those_of_the_last_split_of_each_bucket():
    planned = splits((0, 0, 10), (0, 10, 20), (1, 3, 4))
    ends = split_ends([written(planned[1], timestamp_ms=9), written(planned[0], timestamp_ms=4), written(planned[2])])
    assert ends == {
        TableBucket(7, None, 0): LakeOffset(20, 9),
        TableBucket(7, None, 1): LakeOffset(4, 5),
    }


def test_merging_takes_the_further_offset_of_each_bucket():
    a, b, c = (TableBucket(7, None, number) for number in range(3))
    merged = merge_offsets(
        {a: LakeOffset(10, 1), b: LakeOffset(5, 1)}, {a: LakeOffset(8, 9), b: LakeOffset(6, 2), c: LakeOffset(1, 1)}
    )
    assert merged == {a: LakeOffset(10, 1), b: LakeOffset(6, 2), c: LakeOffset(1, 1)}


def test_property_of_a_table_without_partitions():
    offsets = {TableBucket(7, None, 1): LakeOffset(6, 2), TableBucket(7, None, 0): LakeOffset(10, -1)}
    assert json.loads(offsets_property(offsets, {})) == [
        {"bucket": 0, "offset": 10, "max_timestamp": -1},
        {"bucket": 1, "offset": 6, "max_timestamp": 2},
    ]


def test_property_of_partitions_names_them():
    offsets = {TableBucket(7, 3, 1): LakeOffset(6, 2, "2013-01")}
    assert json.loads(offsets_property(offsets, {})) == [
        {"partition_id": 3, "partition_name": "2013-01", "bucket": 1, "offset": 6, "max_timestamp": 2}
    ]


def test_property_of_few_buckets_names_all_also_those_at_rest():
    known = {TableBucket(7, None, number): LakeOffset(5, 1) for number in range(BUCKETS_NAMED_MAX)}
    merged = known | {TableBucket(7, None, 3): LakeOffset(6, 2)}
    assert len(json.loads(offsets_property(merged, known))) == BUCKETS_NAMED_MAX


def test_property_of_many_buckets_names_those_that_advanced():
    known = {TableBucket(7, None, number): LakeOffset(5, 1) for number in range(BUCKETS_NAMED_MAX + 1)}
    merged = known | {TableBucket(7, None, 3): LakeOffset(6, 2)}
    assert json.loads(offsets_property(merged, known)) == [{"bucket": 3, "offset": 6, "max_timestamp": 2}]


def test_committed_offsets_by_partition_name():
    snapshot = CommittedLakeSnapshot(
        1, {("a", 0): LakeOffset(4, 1), ("gone", 0): LakeOffset(9, 1), ("a", 1): LakeOffset(2, 1)}
    )
    assert committed_offsets(snapshot, 7, {"a": 31}) == {
        TableBucket(7, 31, 0): LakeOffset(4, 1, "a"),
        TableBucket(7, 31, 1): LakeOffset(2, 1, "a"),
    }


def test_committed_offsets_without_partitions():
    snapshot = CommittedLakeSnapshot(1, {(None, 2): LakeOffset(4, 1)})
    assert committed_offsets(snapshot, 7, {}) == {TableBucket(7, None, 2): LakeOffset(4, 1)}
