"""Typed texts: each type's values read exactly, written back the same, and everything else refused with what was expected."""

import datetime as dt
import math
import zoneinfo
from decimal import Decimal

import pytest

from fluss_lab.errors import InvalidRecordError
from fluss_lab.explorer.texts.code_lines import record_code
from fluss_lab.explorer.texts.typed_values import one_value, plain_value, read_text
from fluss_lab.explorer.texts.value_texts import typed_text
from fluss_lab.model import TablePath
from fluss_lab.model.types import DataType
from tests.unit.explorer.record_texts import GOOD, WRONG

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
PATH = TablePath("a", "b")


def read(text, kind, zone=BERLIN):
    return read_text(text, DataType.parse(kind), zone)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in GOOD.items() for text in texts])
@pytest.mark.parametrize("zone", [BERLIN, dt.UTC, None], ids=["berlin", "utc", "system"])
def test_a_value_written_back_is_the_same(kind, text, zone):
    target = DataType.parse(kind)
    held = one_value(read_text(text, target, zone), target)
    back = typed_text(plain_value(held[0], target), target, zone)
    again = one_value(read_text(back, target, zone), target)
    assert repr(plain_value(again[0], target)) == repr(plain_value(held[0], target))
    assert again.validate(full=True) is None


@pytest.mark.parametrize(
    ("kind", "text", "expected"), [(kind, *pair) for kind, pairs in WRONG.items() for pair in pairs]
)
def test_what_is_no_value_is_refused_with_what_was_expected(kind, text, expected):
    with pytest.raises(InvalidRecordError) as refused:
        read(text, kind)
    assert expected in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("decimal(10,2)", "1.500", Decimal("1.50")), ("bigint", " 9223372036854775807 ", 2**63 - 1), ("float", "0.1", 0.10000000149011612),
        ("double", "0.1", 0.1), ("bytes", "0x00 FF", b"\x00\xff"), ("date", "1970-01-02", 1), ("time(3)", "00:00:01.5", 1_500),
        ("timestamp(9)", "1970-01-01 00:00:00.000000001", 1), ("timestamp(6)", "1969-12-31 23:59:59.999999", -1),
        ("string", " a ", " a "), ("string", "", ""), ("array<int>", "[]", []),
        ("map<int, string>", '{"1": "a", "2": null}', [(1, "a"), (2, None)]), ("map<row<a int>, int>", '[[{"a": 1}, 2]]', [({"a": 1}, 2)]),
        ("array<bigint>", "[9223372036854775807]", [2**63 - 1]), ("array<decimal(38,20)>", "[0.12345678901234567891]", [Decimal("0.12345678901234567891")]),
        ("timestamp_ltz(3)", "2026-07-01 12:00:00", 1_782_900_000_000), ("timestamp_ltz(3)", "2026-07-01T12:00:00Z", 1_782_907_200_000),
        ("timestamp_ltz(3)", "2026-10-25 02:30:00+01:00", 1_792_891_800_000),
    ],
)  # fmt: skip
def test_values_are_exact(kind, text, value):
    assert read(text, kind) == value


def test_a_time_that_the_zone_has_twice_or_not_needs_its_offset():
    for text in ("2026-10-25 02:30:00", "2026-03-29 02:30:00"):
        with pytest.raises(InvalidRecordError, match="write the offset"):
            read(text, "timestamp_ltz(3)")
        assert read(text, "timestamp(3)") == read(text, "timestamp_ltz(3)", dt.UTC)
    first, second = (
        read("2026-10-25 02:30:00+02:00", "timestamp_ltz(3)"),
        read("2026-10-25 02:30:00+01:00", "timestamp_ltz(3)"),
    )
    assert second - first == 3_600_000
    target = DataType.parse("timestamp_ltz(3)")
    assert [typed_text(each, target, BERLIN)[19:] for each in (first, second)] == ["+02:00", "+01:00"]


def test_a_day_that_nobody_can_type_has_no_text():
    assert typed_text(10_000_000, DataType.parse("date"), None) is None
    assert typed_text(2**62, DataType.parse("timestamp(3)"), None) is None


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in GOOD.items() for text in texts])
def test_the_literal_of_a_value_is_the_value(kind, text):
    import pyarrow as pa

    from fluss_lab.model.schema import make_schema
    from fluss_lab.model.values.row_input import record_batches

    schema = make_schema({"x": kind})
    target = schema.column("x").type
    value = read_text(text, target, BERLIN)
    taken = []

    class Here:
        """Takes what a line gives to a table."""

        schema = pa.schema([target.arrow_field("x")])
        append = staticmethod(taken.append)

    names = {"lab": type("Lab", (), {"table": staticmethod(lambda _path: Here)})}
    exec("\n".join(record_code(PATH, "append", {"x": (value, target)})), names)
    (batch,) = record_batches(taken[0], schema)
    found = plain_value(batch.column(0)[0], target)
    exact = plain_value(one_value(value, target)[0], target)
    assert repr(found) == repr(exact) or (isinstance(exact, float) and math.isnan(exact))
