"""Rows as JSON: what each type becomes, and that nothing of it is lost."""

import json
import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.cli.json_rows import json_line, json_objects, json_values


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([2**63 - 1, -(2**63), None]), [2**63 - 1, -(2**63), None]),
        (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
        (pa.array([True, None]), [True, None]),
        (pa.array([1.5, math.nan, math.inf, -math.inf, None]), [1.5, "NaN", "Infinity", "-Infinity", None]),
        (pa.array([0.1, math.nan, None], pa.float32()), [0.1, "NaN", None]),
        (pa.array([Decimal("1.50"), Decimal("-0.00"), None]), ["1.50", "0.00", None]),
        (pa.array([Decimal("1E-18")], pa.decimal128(38, 18)), ["0.000000000000000001"]),
        (pa.array([b"\x00\xff", b"", None]), ["AP8=", "", None]),
        (pa.array(["ä", "", None]), ["ä", "", None]),
        (pa.array(["a", None]).dictionary_encode(), ["a", None]),
        (pa.array([date(2013, 1, 1), None]), ["2013-01-01", None]),
        (pa.array([1], pa.time32("ms")), ["00:00:00.001"]),
        (pa.array([0, None], pa.timestamp("ms")), ["1970-01-01T00:00:00.000", None]),
        (pa.array([1], pa.timestamp("ns", "UTC")), ["1970-01-01T00:00:00.000000001Z"]),
        (pa.array([0], pa.timestamp("us", "Europe/Berlin")), ["1970-01-01T00:00:00.000000Z"]),
        (pa.array([timedelta(seconds=1)]), ["0:00:01"]),
        (pa.array([None, None]), [None, None]),
        (pa.array([[1.0, math.nan], [], None]), [[1.0, "NaN"], [], None]),
        (pa.array([{"x": b"\xff", "y": None}, None]), [{"x": "/w==", "y": None}, None]),
        (pa.array([[("k", Decimal("1.0"))]], pa.map_(pa.string(), pa.decimal128(3, 1))), [[["k", "1.0"]]]),
        (pa.array([[datetime(2013, 1, 1, tzinfo=timezone.utc)]]), [["2013-01-01T00:00:00Z"]]),  # noqa: UP017
    ],
)
def test_values(array, expected):
    assert json_values(array) == expected
    assert json_values(pa.concat_arrays([array, array])[len(array) :]) == expected
    json.loads(json_line(expected))


def test_instants_of_the_house_are_shown_to_the_millisecond():
    moment = pa.array([1_500_000], pa.timestamp("us", "UTC"))
    assert json_values(moment, "_commit_timestamp") == ["1970-01-01T00:00:01.500Z"]
    assert json_values(moment, "mine") == ["1970-01-01T00:00:01.500000Z"]


def test_times_beyond_the_years_of_python_are_no_error():
    assert json_values(pa.array([253402300800000], pa.timestamp("ms", "UTC"))) == ["10000-01-01T00:00:00.000Z"]


def test_times_beyond_the_years_of_python_are_no_error_within_others_either():
    days = pa.array([2_932_897, 0, None], pa.int32()).cast(pa.date32())
    moments = pa.array([253402300800000000, 1, None]).cast(pa.timestamp("us", "UTC"))
    offsets = pa.array([0, None, 2, 3], pa.int32())
    rows = pa.StructArray.from_arrays([days, moments], ["day", "at"], mask=pa.array([False, False, True]))
    assert json_values(rows) == [
        {"day": "10000-01-01", "at": "10000-01-01T00:00:00.000000Z"},
        {"day": "1970-01-01", "at": "1970-01-01T00:00:00.000001Z"},
        None,
    ]
    for lists in (pa.ListArray.from_arrays(offsets, rows), pa.MapArray.from_arrays(offsets, pa.array([1, 2, 3]), days)):
        first, second, third = json_values(lists)
        assert (len(first), second, len(third)) == (2, None, 1)
        assert json_values(lists[1:]) == [second, third]
    assert json_values(pa.ListArray.from_arrays(offsets, days)) == [["10000-01-01", "1970-01-01"], None, [None]]


def test_floats_are_read_back_bit_by_bit(seed):
    bits = np.random.default_rng(seed).integers(0, 2**32, 2000, dtype=np.uint32)
    for array in (pa.array(bits.view(np.float32)), pa.array(np.arange(1, 500) / 7)):
        wanted = array.filter(pa.compute.is_finite(array))
        read = pa.array([json.loads(json_line(each)) for each in json_values(wanted)]).cast(array.type)
        assert read.equals(wanted)


def test_a_line_is_one_line_and_ascii_where_the_terminal_is():
    value = {"a\n": 'ä\n"\u2028\x1b', "n": 2**63 - 1, "f": 0.1}
    for ascii_only in (False, True):
        line = json_line(value, ascii_only=ascii_only)
        assert "\n" not in line
        assert "\x1b" not in line
        assert json.loads(line) == value
    assert line.isascii()


def test_rows_keep_the_order_of_columns():
    batch = pa.RecordBatch.from_pydict({"b": [1, None], "a": ["x", "y"]})
    assert [list(row.items()) for row in json_objects(batch)] == [[("b", 1), ("a", "x")], [("b", None), ("a", "y")]]
