"""Offsets of a stream as text, and how a limit of rows is shared by buckets."""

import json
from dataclasses import replace

import pytest

from fluss_lab.errors import CorruptDataError, FlussError, InvalidRequestError
from fluss_lab.model import TableBucket
from fluss_lab.read.changelog.stream_offsets import NO_PARTITION, StreamOffset
from tests.damage.damages import flipped_bits


def plain(offsets):
    return StreamOffset("db.t", 7, {TableBucket(7, None, bucket): offset for bucket, offset in offsets.items()})


def parted(offsets, names, newest):
    buckets = {TableBucket(7, number, bucket): offset for (number, bucket), offset in offsets.items()}
    return StreamOffset("db.t", 7, buckets, names, newest)


@pytest.mark.parametrize(
    "offset",
    [
        plain({}),
        plain({0: 0, 1: 2**40, 10: 3}),
        parted({}, {}, 4),
        parted({(3, 0): 5, (3, 1): 0, (11, 0): 9}, {3: "2013/01 é", 11: "a$b"}, 12),
        replace(plain({0: 5}), origin={TableBucket(7, None, 0): 2}),
        replace(parted({(3, 0): 5}, {3: "a"}, 3), origin={TableBucket(7, 3, 0): 2}),
        replace(plain({}), origin={}),
        replace(parted({(3, 0): 5}, {3: "a"}, 3), lossy_drops=0),
        replace(parted({(3, 0): 5}, {3: "a"}, 3), lossy_drops=12),
    ],
    ids=[
        "empty",
        "plain",
        "no partition",
        "partitions",
        "first",
        "first of partitions",
        "first of nothing",
        "no lossy drop",
        "lossy drops",
    ],
)
def test_an_offset_reads_what_it_wrote(offset):
    text = json.dumps(offset.to_json())
    assert StreamOffset.from_json(json.loads(text)) == offset


def test_an_offset_in_which_a_byte_was_changed_is_refused_or_the_same():
    offset = parted({(3, 0): 5, (3, 1): 70, (11, 0): 9}, {3: "2013", 11: "a"}, 12)
    text = json.dumps(offset.to_json()).encode()
    refused = 0
    for changed in flipped_bits(text):
        try:
            value = json.loads(changed)
        except ValueError:
            continue
        try:
            assert StreamOffset.from_json(value) == offset, changed
        except FlussError:
            refused += 1
    assert refused > 100


def test_an_offset_of_before_checksums_is_read_and_a_wrong_checksum_is_damage():
    value = plain({0: 5}).to_json()
    assert StreamOffset.from_json({**value, "crc": value["crc"]}) == plain({0: 5})
    with pytest.raises(CorruptDataError, match="restore the checkpoint"):
        StreamOffset.from_json({**value, "offsets": {"0": 6}})
    del value["crc"]
    assert StreamOffset.from_json(value) == plain({0: 5})


def test_equal_offsets_have_equal_texts_whatever_their_order():
    one = parted({(3, 1): 5, (3, 0): 6, (1, 0): 7}, {3: "b", 1: "a"}, 3)
    other = parted({(1, 0): 7, (3, 0): 6, (3, 1): 5}, {1: "a", 3: "b"}, 3)
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"version": 0, "table": "db.t", "table_id": 7, "offsets": {}},
        {"version": 1, "table": "db.t", "offsets": {}},
        {"version": 1, "table": "db.t", "table_id": 7, "offsets": {"x": 1}},
        {"version": 1, "table": "db.t", "table_id": 7, "offsets": {"0": -1}},
        {"version": 1, "table": "db.t", "table_id": 7, "offsets": {"0": True}},
        {"version": 1, "table": "db.t", "table_id": 7, "partitions": {"3": {"offsets": {}}}},
        {"version": 1, "table": "db.t", "table_id": 7, "partitions": []},
    ],
    ids=str,
)
def test_what_is_no_offset_is_refused(value):
    with pytest.raises(InvalidRequestError):
        StreamOffset.from_json(value)


def test_only_partitions_made_later_are_new():
    offset = parted({(3, 0): 5}, {3: "a"}, 8)
    assert offset.begin(TableBucket(7, 3, 0)) == 5
    assert offset.begin(TableBucket(7, 9, 0)) == 0
    assert offset.begin(TableBucket(7, 5, 0)) is None
    assert plain({0: 1}).begin(TableBucket(7, None, 1)) is None
    assert parted({}, {}, NO_PARTITION).begin(TableBucket(7, 0, 0)) == 0
