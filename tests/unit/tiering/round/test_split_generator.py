"""Splits and their JSON, and how ranges are cut and limited."""

from itertools import pairwise

import pytest

from fluss_lab.errors import CorruptDataError
from fluss_lab.model import TableBucket, TablePath
from fluss_lab.model.json_codec import decode, encode, from_plain, to_plain
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.split_generator import (
    TieringLogSplit,
    TieringSplit,
    UntieredRange,
    cut_range,
    limit_ranges,
    number_splits,
    split_size,
)

PATH = TablePath("db", "events")


def split(bucket=0, start=0, stop=10, partition_id=None, partition=None):
    return TieringLogSplit(PATH, TableBucket(7, partition_id, bucket), partition, 1, 0, start, stop)


@pytest.mark.parametrize("value", [split(), split(3, 5, 6), split(1, 0, 2**40, partition_id=12, partition="2013-01$ä")])
def test_json_round_trip(value):
    assert decode(TieringSplit, encode(value), "split") == value


@pytest.mark.parametrize(
    "change",
    [
        {"table_bucket": None}, {"starting_offset": "x"}, {"starting_offset": True}, {"stopping_offset": 0},
        {"table_path": "db.events"}, {"table_path": {"database": "db", "table": "no table"}}, {"kind": "snapshot"}, {"more": 1},
    ],
)  # fmt: skip
def test_json_that_is_no_split_is_refused(change):
    with pytest.raises(CorruptDataError, match="tiering split: "):
        from_plain(TieringSplit, to_plain(split()) | change, "tiering split")


@pytest.mark.parametrize(("start", "stop"), [(5, 5), (6, 5), (-1, 5)])
def test_a_split_is_never_empty(start, stop):
    with pytest.raises(ValueError, match="start < stop"):
        split(0, start, stop)


def test_numbering_fills_position_and_count():
    numbered = number_splits([split(0), split(1), split(2)])
    assert [(each.split_index, each.number_of_splits) for each in numbered] == [(0, 3), (1, 3), (2, 3)]


def test_cut_pieces_join_and_are_even(rng):
    for _ in range(300):
        start, length, pieces = rng.randrange(10**9), rng.randrange(1, 10**6), rng.randrange(1, 50)
        parts = cut_range(start, start + length, pieces)
        assert parts[0][0] == start
        assert parts[-1][1] == start + length
        assert all(left[1] == right[0] for left, right in pairwise(parts))
        sizes = [high - low for low, high in parts]
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1
        assert len(parts) == min(pieces, length)


def log_range(bucket, start, stop, size_bytes):
    return UntieredRange(TableBucket(1, None, bucket), None, start, stop, size_bytes)


def test_a_round_within_its_limit_is_left_alone():
    ranges = [log_range(0, 0, 60, 600), log_range(1, 5, 45, 400)]
    assert limit_ranges(ranges, 100, 1000) == ranges


def test_a_limited_round_takes_the_same_share_of_every_bucket():
    limited = limit_ranges([log_range(0, 0, 9_000, 90), log_range(1, 100, 1_100, 10)], 1_000, 1_000)
    assert [(each.start, each.stop) for each in limited] == [(0, 900), (100, 200)]


def test_a_limited_round_takes_at_least_one_record_of_a_bucket():
    limited = limit_ranges([log_range(0, 0, 10**9, 10**9), log_range(1, 0, 3, 3)], 10, 10**9)
    assert limited[1].stop == 1


@pytest.mark.parametrize(
    ("size_bytes", "parallelism", "expected"),
    [
        (10 << 20, 8, 16 << 20),  # little data: files are not made tiny
        (320 << 20, 4, 80 << 20),  # a share for each worker
        (4 << 40, 4, 256 << 20),  # much data: tasks stay bounded
    ],
)
def test_split_size(size_bytes, parallelism, expected):
    assert split_size([log_range(0, 0, 100, size_bytes)], parallelism, TieringOptions()) == expected


@pytest.mark.parametrize(
    "options", [{"split_bytes_min": 0}, {"split_bytes_min": 9, "split_bytes_max": 8}, {"replans_max": -1}]
)
def test_options_that_cannot_be(options):
    with pytest.raises(ValueError, match="expected"):
        TieringOptions(**options)
