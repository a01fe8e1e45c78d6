"""The text of every type of value: exact where it is whole, bounded, without what has no shape of its own."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from fluss_lab.explorer.texts.cell_texts import cell_texts
from tests.unit.display.card_rules import HOSTILE, IDS

MOMENT = datetime(2013, 1, 1, 5, 0, 7, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([2**63 - 1, -(2**63), None]), ["9223372036854775807", "-9223372036854775808", None]),
        (pa.array([1.0, float("nan"), float("inf"), -float("inf"), -0.0, 1e308, 0.1]), ["1.0", "NaN", "Infinity", "-Infinity", "-0.0", "1e+308", "0.1"]),
        (pa.array([0.1, 3.4e38], pa.float32()), ["0.1", "3.4e+38"]),
        (pa.array([True, False, None]), ["true", "false", None]),
        (pa.array([Decimal("1.50"), Decimal("-0.00")], pa.decimal128(10, 2)), ["1.50", "0.00"]),
        (pa.array(["", "a", None]), ["", "a", None]),
        (pa.array([b"", b"\x00\xff", b"x" * 40]), ["(0 bytes)", "00ff (2 bytes)", f"{'78' * 32}… (40 bytes)"]),
        (pa.array([b"abc"], pa.binary(3)), ["616263 (3 bytes)"]),
        (pa.array([date(2013, 1, 1), date(1, 1, 1)]), ["2013-01-01", "0001-01-01"]),
        (pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32()), ["1970-01-01", "2147483647 days after 1970"]),
        (pa.array([18_007_250], pa.time32("ms")), ["05:00:07.250"]),
        (pa.array([18_007_000_000_001], pa.time64("ns")), ["05:00:07.000000001"]),
        (pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("us")), ["2013-01-01 05:00:07.250"]),
        (pa.array([0, -1], pa.int64()).cast(pa.timestamp("s")), ["1970-01-01 00:00:00", "1969-12-31 23:59:59"]),
        (pa.array([2**62], pa.int64()).cast(pa.timestamp("s")), [f"{2**62} s after 1970"]),
        (pa.array([2**62, -(2**62) - 1, -500_000], pa.int64()).cast(pa.timestamp("us")), ["4611686018427.387904 s after 1970", "-4611686018427.387905 s after 1970", "1969-12-31 23:59:59.500"]),
        (pa.array([1], pa.int64()).cast(pa.timestamp("ns")), ["1970-01-01 00:00:00.000000001"]),
        (pa.array([[1, None], [], None], pa.list_(pa.int32())), ["[1, null]", "[]", None]),
        (pa.array([["a", "b"], ['a", "b'], ['"']]), ['["a", "b"]', '["a\\", \\"b"]', '["\\""]']),
        (pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int32())), ['{"a": 1, "b": null}']),
        (pa.array([{"a": "x\n", "b": 1.0}], pa.struct({"a": pa.string(), "b": pa.float64()})), ['{a: "x\\n", b: 1.0}']),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)  # fmt: skip
def test_the_text_of_a_type(values, texts):
    assert cell_texts(values, UTC)[0] == texts


def test_times_with_a_zone_are_shown_in_the_labs():
    column = pa.array([MOMENT], pa.timestamp("ms", "UTC"))
    assert cell_texts(column, timezone(timedelta(hours=2)))[0] == ["2013-01-01 07:00:07.250"]
    assert cell_texts(pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("ms")), timezone(timedelta(hours=2)))[0] == [
        "2013-01-01 05:00:07.250"
    ]


@pytest.mark.parametrize("text", [each for each in HOSTILE if "\ud800" not in each], ids=IDS[:-4] + IDS[-3:])
def test_a_hostile_text_is_visible_and_bounded(text):
    (shown,), cut = cell_texts(pa.array([text]), UTC)
    assert shown.isprintable()
    assert len(shown) <= 200
    assert cut == ([0] if len(text) > 200 else [])
    (nested,), _ = cell_texts(pa.array([[text]]), UTC)
    assert nested.isprintable()
    assert len(nested) <= 200


def test_what_is_cut_is_said():
    texts, cut = cell_texts(pa.array(["a" * 200, "b" * 201, "\t" * 150, b"".join([b"x"] * 3).decode()]), UTC)
    assert [len(text) for text in texts] == [200, 200, 200, 3]
    assert cut == [1, 2]
    assert cell_texts(pa.array([b"x" * 33]), UTC)[1] == [0]
    assert cell_texts(pa.array([list(range(1_000))]), UTC)[1] == [0]


def test_a_page_of_long_values_costs_what_is_shown():
    column = pa.array(["x" * 1_000_000] * 20)
    texts, cut = cell_texts(column, UTC, 10)
    assert texts == ["x" * 10] * 20
    assert cut == list(range(20))


NESTED = pa.struct({"name": pa.string(), "tags": pa.map_(pa.string(), pa.list_(pa.string()))})


@pytest.mark.parametrize("length", [10, 100, 1_000, 20_000])
@pytest.mark.parametrize(
    "values",
    [
        pa.array([["x" * 900], ["x"], None]),
        pa.array([list(range(60)), [1], None]),
        pa.array([[("k", "x" * 900)], [("k", "x")], None], pa.map_(pa.string(), pa.string())),
        pa.array([{"a": "x" * 900}, {"a": "x"}, None]),
        pa.array([{"name": "n", "tags": [("t", ["x" * 900, "y"])]}, {"name": "n", "tags": []}, None], NESTED),
        pa.array([{"name": "n", "tags": [(str(n), [str(n)]) for n in range(300)]}, {"name": None, "tags": None}, None], NESTED),
    ],
    ids=str,
)  # fmt: skip
def test_a_nested_text_is_whole_or_said_to_be_cut(values, length):
    whole, none_cut = cell_texts(values, UTC, 1_000_000)
    assert none_cut == []
    texts, cut = cell_texts(values, UTC, length)
    assert texts == [None if text is None else text[:length] for text in whole]
    assert cut == [at for at, text in enumerate(whole) if text is not None and len(text) > length]
    assert cell_texts(values.slice(1), UTC, length) == (texts[1:], [at - 1 for at in cut if at])


def test_bytes_within_others_are_cut_like_bytes():
    assert cell_texts(pa.array([[b"x" * 33], [b"x"]]), UTC)[1] == [0]


def test_a_page_of_long_lists_costs_what_is_shown():
    column = pa.array([[0]]).take(pa.array([0] * 3))
    many = pa.ListArray.from_arrays(pa.array([0, 5_000_000, 10_000_000], pa.int32()), pa.nulls(10_000_000, pa.int8()))
    assert [len(text) for text in cell_texts(many, UTC)[0]] == [200, 200]
    assert cell_texts(column, UTC)[0] == ["[0]"] * 3
