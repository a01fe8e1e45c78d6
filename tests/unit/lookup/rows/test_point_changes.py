"""What leads from one read point to another: which records, of which buckets, and where none do."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.errors import CorruptDataError, error_code
from fluss_lab.lookup.rows.point_changes import ends, own_buckets, ranges_between
from fluss_lab.model import TablePath
from fluss_lab.read.moment.read_point import PointBucket, ReadPoint, UnknownPointBucket
from fluss_lab.records import LogRecords

POINT = ReadPoint(
    TablePath("db", "t"), 7, 1, 0, False, None,
    tuple(PointBucket(name, number, bucket, 0, 10) for number, name in ((1, "a"), (2, "b")) for bucket in range(2)),
)  # fmt: skip


def moved(point, **stops):
    """Return a point with other ends, given as ``a0=12``; None: without the bucket."""
    buckets = []
    for each in point.buckets:
        stop = stops.get(f"{each.partition}{each.bucket}", each.stop)
        if stop is not None:
            buckets.append(PointBucket(each.partition, each.partition_id, each.bucket, 0, stop))
    return replace(point, buckets=tuple(buckets))


def ranges(old, new, numbers=None):
    found = ranges_between(old, new, numbers)
    return found and {f"{each.partition}{each.bucket.bucket}": (each.start, each.stop) for each in found}


def test_records_between_points_are_those_of_their_buckets():
    later = moved(POINT, a0=12, b1=11)
    assert ranges(POINT, POINT) == []
    assert ranges(POINT, later) == {"a0": (10, 12), "b1": (10, 11)}
    assert ranges(POINT, later, {1}) == {"b1": (10, 11)}
    assert ranges(moved(POINT, b0=None, b1=None), later) == {"a0": (10, 12), "b0": (0, 10), "b1": (0, 11)}


def test_no_records_lead_back_or_to_where_a_partition_is_missing():
    assert ranges(POINT, moved(POINT, a0=9)) is None
    assert ranges(POINT, moved(POINT, a0=9), {1}) == []
    assert ranges(POINT, moved(POINT, b0=None, b1=None)) is None
    again = replace(POINT, buckets=(*POINT.buckets[:2], *(PointBucket("b", 3, bucket, 0, 4) for bucket in range(2))))
    assert ranges(POINT, again) is None


def test_a_bucket_that_was_not_known_is_an_error_of_those_who_want_it():
    lost = UnknownPointBucket("b", 2, 1, error_code(CorruptDataError("")), "bytes failed their checks")
    point = replace(moved(POINT, b1=None), unknown=(lost,))
    assert [each.bucket for each in own_buckets(point, {0})] == [0, 0]
    for numbers in (None, {1}):
        with pytest.raises(CorruptDataError, match="bytes failed their checks"):
            own_buckets(point, numbers)


def test_changes_that_do_not_say_what_they_are_are_damage():
    offsets = pa.array([5, 6])
    rows = pa.record_batch({"id": [1, 1]})
    assert ends(LogRecords(rows, offsets, offsets, pa.array([2, 3], pa.int8()))).tolist() == [True, False]
    with pytest.raises(CorruptDataError, match=r"changes \[5, 7\): expected change types, found none"):
        ends(LogRecords(rows, offsets, offsets))
    assert np.array_equal(ends(LogRecords(rows, offsets, offsets, pa.array([1, 4], pa.int8()))), [False, True])
