"""Values of the usual Python types become, by their short way, what all others become; or are left to the long one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.errors import InvalidRecordError
from fluss_lab.model.types import DataType
from fluss_lab.model.values.casts import CellPosition
from fluss_lab.model.values.python_values import array_of, plain_array

PLACE = CellPosition("x", lambda index: index)
ZONES = (dt.UTC, ZoneInfo("Europe/Paris"), dt.timezone(dt.timedelta(hours=-11, minutes=-30)), ZoneInfo("Asia/Kolkata"))


class Number(int):
    """A whole number of another type."""


class Real(float):
    """A number of another type."""


class Text(str):
    """A text of another type."""

    __slots__ = ()


class Data(bytes):
    """Bytes of another type."""


class Day(dt.date):
    """A day of another type."""


class Moment(dt.datetime):
    """A time of another type."""


class Nowhere(dt.tzinfo):
    """A zone that knows no offset."""

    def __repr__(self) -> str:
        return "Nowhere()"  # In names of tests, which all processes of a run must have alike.

    def utcoffset(self, _moment: dt.datetime | None, /) -> None:
        """Return None."""

    dst = tzname = utcoffset


def moment(rng: Random, zone: dt.tzinfo | None = None) -> dt.datetime:
    whole = dt.datetime(
        rng.choice([1, 1969, 1970, 2024, 9999]), rng.randrange(1, 13), rng.randrange(2, 28), tzinfo=zone
    )
    return whole + dt.timedelta(seconds=rng.randrange(86400), microseconds=rng.randrange(10**6))


def again(value: dt.datetime) -> Moment:
    return Moment(
        value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, value.tzinfo
    )


#: By type: a value of the usual type, and the same one of another type.
KINDS: dict[str, tuple[Callable[[Random], Any], Callable[..., Any]]] = {
    "boolean": (lambda rng: rng.random() < 0.5, np.bool_),
    "tinyint": (lambda rng: rng.randrange(-128, 128), Number),
    "smallint": (lambda rng: rng.randrange(-(2**15), 2**15), Number),
    "int": (lambda rng: rng.randrange(-(2**31), 2**31), Number),
    "bigint": (lambda rng: rng.randrange(-(2**63), 2**63), Number),
    "double": (lambda rng: rng.choice([rng.random(), rng.randrange(2**53), float("nan"), float("-inf")]), Real),
    "string": (lambda rng: "".join(rng.choices("aé€\U0001f600\0", k=rng.randrange(4))), Text),
    "bytes": (lambda rng: rng.randbytes(rng.randrange(4)), Data),
    "date": (lambda rng: moment(rng).date(), lambda day: Day(day.year, day.month, day.day)),
    "timestamp(6)": (moment, again),
    "timestamp_ltz(6)": (lambda rng: moment(rng, rng.choice(ZONES)), again),
}


@pytest.mark.parametrize("type_text", KINDS)
def test_usual_values_become_what_the_same_of_other_types_become(type_text: str, rng):
    value_of, other_of = KINDS[type_text]
    target = DataType.parse(type_text)
    for _ in range(50):
        values = [None if rng.random() < 0.2 else value_of(rng) for _ in range(rng.randrange(1, 30))]
        if type_text.startswith("timestamp_ltz"):  # out of Python's years in UTC
            values = [value for value in values if value is None or 1 < value.year < 9999]
        others = [None if value is None else other_of(value) for value in values]
        made = plain_array(values, target)
        assert made is not None
        made.validate(full=True)
        expected = array_of([*others, other_of(value_of(rng))], target, PLACE).slice(0, len(others))
        assert made.type == expected.type == target.arrow()
        assert repr(made.to_pylist()) == repr(expected.to_pylist())  # NaN is where NaN is


@pytest.mark.parametrize(
    ("type_text", "values"),
    [
        ("bigint", [1, True]),
        ("bigint", [1, 1.0]),
        ("tinyint", [1, 128]),
        ("double", [1.0, 2**53 + 1]),
        ("double", [1.0, True]),
        ("string", ["a", b"a"]),
        ("string", ["a", "\ud800"]),
        ("bytes", [b"a", "a"]),
        ("date", [dt.date(2020, 1, 1), dt.datetime(2020, 1, 1)]),
        ("timestamp(6)", [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)]),
        ("timestamp(6)", [None, dt.datetime(2020, 1, 1, tzinfo=Nowhere())]),
        ("timestamp(6)", [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=Nowhere())]),
        ("timestamp_ltz(6)", [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2020, 1, 1)]),
        ("timestamp(3)", [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, microsecond=1)]),
        ("bigint not null", [1, None]),
        ("timestamp(6) not null", [dt.datetime(2020, 1, 1), None]),
    ],
    ids=str,
)
def test_what_does_not_fit_is_left_to_the_long_way_which_names_its_row(type_text: str, values: list):
    target = DataType.parse(type_text)
    assert plain_array(values, target) is None
    assert plain_array(values[:1], target) is not None or target.precision == 3 or values[0] is None
    with pytest.raises(InvalidRecordError, match="row 1"):
        array_of(values, target, PLACE)


def test_other_units_and_types_are_left_to_the_long_way():
    assert plain_array([dt.datetime(2020, 1, 1)], DataType.parse("timestamp(3)")) is None
    assert plain_array([[1]], DataType.parse("array<int>")) is None
    assert plain_array(["abc"], DataType.parse("char(2)")) is None


def test_no_values_and_nulls_alone_are_arrays_of_the_type():
    for type_text in KINDS:
        target = DataType.parse(type_text)
        assert plain_array([], target) == pa.nulls(0, target.arrow())
        assert plain_array([None, None], target) == pa.nulls(2, target.arrow())
