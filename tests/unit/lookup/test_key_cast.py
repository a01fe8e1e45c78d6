"""The cast of join keys: exact, null where the other type has not the value, and an error where nothing can be compared."""

import datetime as dt
from decimal import Decimal
from itertools import product

import pyarrow as pa
import pytest

from fluss_lab.errors import UnsupportedError
from fluss_lab.lookup.key_cast import KeyCasts

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
DECIMALS = [
    pa.decimal128(*shape)
    for shape in [(1, 0), (2, 0), (2, 2), (4, 1), (9, 0), (9, 9), (10, 0), (18, 0), (19, 0), (20, 5), (38, 0), (38, 18)]
]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
BINARIES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2), pa.binary(3)]
UNITS = ["s", "ms", "us", "ns"]
TIMES = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
LOCAL, ZONED = [[pa.timestamp(unit, zone) for unit in UNITS] for zone in (None, "UTC")]
SPARK_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


def cast(column, wanted):
    return KeyCasts(pa.schema([("k", wanted)])).cast([column]).column("k")


def is_lossy(found, wanted):
    casts = KeyCasts.of(pa.schema([("c", found)]), pa.schema([("k", wanted)]))
    assert casts.lossy == (() if casts.is_lossless else ("k",))
    return not casts.is_lossless


# -- numbers, as exact ones ---------------------------------------------------------------------------------------------


def holds(kind, number):
    """Return whether a type has a number, which is given as an integer of units of 10 ** -40."""
    if pa.types.is_integer(kind):
        low, high, step = -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1, 10**40
        return number % step == 0 and low <= number // step <= high
    step = 10 ** (40 - kind.scale)
    return number % step == 0 and abs(number // step) < 10**kind.precision


def exact(value):
    """Return a value in units of 10 ** -40."""
    sign, digits, exponent = Decimal(value).as_tuple()
    return (-1) ** sign * int("".join(map(str, digits))) * 10 ** (40 + exponent)


def value_of(kind, number):
    if pa.types.is_integer(kind):
        return number // 10**40
    unscaled = number // 10 ** (40 - kind.scale)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -kind.scale))


def edges(kind):
    """Return numbers about the ends of a type, and one more step."""
    if pa.types.is_integer(kind):
        top, step = (1 << kind.bit_width - 1) * 10**40, 10**40
    else:
        top, step = 10 ** (kind.precision - kind.scale + 40), 10 ** (40 - kind.scale)
    return [sign * (top + steps * step) for sign in (1, -1) for steps in (-1, 0, 1)] + [
        0,
        step,
        -step,
        step // 10,
        10**40,
    ]


def compared_digits(found, wanted):
    whole = [SPARK_DIGITS[kind] if kind in SPARK_DIGITS else kind.precision - kind.scale for kind in (found, wanted)]
    return max(whole) + max(0 if kind in SPARK_DIGITS else kind.scale for kind in (found, wanted))


@pytest.mark.parametrize("found", INTEGERS + DECIMALS, ids=str)
def test_numbers_are_cast_exactly_or_match_nothing(rng, found):
    for wanted in INTEGERS + DECIMALS:
        if compared_digits(found, wanted) > 38 and not (found in INTEGERS and wanted in INTEGERS):
            continue
        pool = [*edges(found), *edges(wanted)]
        pool += [rng.randrange(-(10 ** rng.randrange(1, 79)), 10 ** rng.randrange(1, 79)) for _ in range(50)]
        numbers = [number for number in pool if holds(found, number)]
        values = [*(value_of(found, number) for number in numbers), None]
        given = cast(pa.array(values, found), wanted)
        given.validate(full=True)
        assert given.type == wanted
        back = [None if value is None else exact(value) for value in given.to_pylist()]
        assert back == [*(number if holds(wanted, number) else None for number in numbers), None]
        assert is_lossy(found, wanted) == any(
            not holds(wanted, number) for number in edges(found) if holds(found, number)
        )


def test_numbers_that_spark_would_round_to_compare_them_are_refused():
    with pytest.raises(
        UnsupportedError, match=r"'c' \(BIGINT\) cannot be looked up in 'k' \(DECIMAL\(38,19\)\): Spark would"
    ):
        is_lossy(pa.int64(), pa.decimal128(38, 19))
    with pytest.raises(UnsupportedError, match=r"both need 76 digits; cast 'c' to DECIMAL\(38,38\)"):
        is_lossy(pa.decimal128(38, 0), pa.decimal128(38, 38))
    assert not is_lossy(pa.decimal128(38, 38), pa.decimal128(38, 38))


def test_slices_and_empty_columns_are_cast():
    column = pa.array([1, 300, None, 4])
    assert cast(column.slice(1, 3), pa.int8()).to_pylist() == [None, None, 4]
    assert cast(column.slice(1, 3), pa.decimal128(3, 0)).to_pylist() == [300, None, 4]
    for found, wanted in [(pa.int64(), pa.int8()), (pa.int32(), pa.decimal128(4, 2)), (pa.binary(), pa.binary(2))]:
        assert cast(pa.array([], found), wanted).to_pylist() == []


# -- times -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", [LOCAL, ZONED], ids=["local", "with zone"])
def test_timestamps_are_cast_exactly_or_match_nothing(rng, kinds):
    for found, wanted in product(kinds, kinds):
        steps = 10 ** (3 * UNITS.index(found.unit)), 10 ** (3 * UNITS.index(wanted.unit))
        ends = [0, 1, -1, 999, 1000, -1000, 2**63 - 1, -(2**63), 10**18, -(10**18), 9_223_372_036, -9_223_372_037]
        values = [*ends, *(rng.randrange(-(2**63), 2**63) >> rng.randrange(63) for _ in range(50))]
        column = pa.array([*values, None], pa.int64()).cast(found)
        given = cast(column, wanted)
        assert given.type == wanted
        expected = [divmod(value * steps[1], steps[0]) for value in values]
        fits = [rest == 0 and -(2**63) <= whole < 2**63 for whole, rest in expected]
        wholes = [whole if fit else None for (whole, _), fit in zip(expected, fits, strict=True)]
        assert given.cast(pa.int64()).to_pylist() == [*wholes, None]
        assert is_lossy(found, wanted) == (found.unit != wanted.unit)


def test_zones_are_names_of_the_same_moments():
    column = pa.array([0, 1_000_001], pa.timestamp("us", "Europe/Berlin"))
    assert cast(column, pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist() == [0, 1_000_001]
    assert cast(column, pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist() == [0, None]


def test_times_of_day_are_cast_exactly_or_match_nothing():
    for found, wanted in product(TIMES, TIMES):
        steps = 10 ** (3 * UNITS.index(found.unit)), 10 ** (3 * UNITS.index(wanted.unit))
        values = [0, 1, 1000, 86_399, 86_400 * steps[0] - 1]
        column = pa.array([*values, None], f"int{found.bit_width}").cast(found)
        expected = [divmod(value * steps[1], steps[0]) for value in values]
        wholes = [whole if rest == 0 else None for whole, rest in expected]
        assert cast(column, wanted).cast(f"int{wanted.bit_width}").to_pylist() == [*wholes, None]
        assert is_lossy(found, wanted) == (steps[0] > steps[1])


# -- text, bytes and the rest -------------------------------------------------------------------------------------------


def test_text_is_the_same_text_in_every_form():
    for found, wanted in product(TEXTS, TEXTS):
        values = ["", "a", "é🚀", "x" * 40, None]
        assert cast(pa.array(values, found), wanted).to_pylist() == values
        assert not is_lossy(found, wanted)


def test_bytes_fit_a_fixed_length_or_match_nothing():
    for found, wanted in product(BINARIES, BINARIES):
        length = found.byte_width if pa.types.is_fixed_size_binary(found) else None
        values = [value for value in (b"", b"ab", b"\0\0", b"abc") if length in (None, len(value))] + [None]
        fits = wanted.byte_width if pa.types.is_fixed_size_binary(wanted) else None
        expected = [value if fits is None or value is None or len(value) == fits else None for value in values]
        assert cast(pa.array(values, found), wanted).to_pylist() == expected
        assert is_lossy(found, wanted) == (fits is not None and found != wanted)


@pytest.mark.parametrize("values", [[True, False, None], [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]])
def test_booleans_and_dates_stay_as_they_are(values):
    column = pa.array(values)
    assert cast(column, column.type).to_pylist() == values
    assert not is_lossy(column.type, column.type)


@pytest.mark.parametrize(
    "wanted", [pa.int8(), pa.decimal128(9, 2), pa.string(), pa.binary(2), pa.time32("s"), LOCAL[0]], ids=str
)
def test_a_column_of_nulls_matches_nothing(wanted):
    assert cast(pa.nulls(2), wanted).to_pylist() == [None, None]
    assert not is_lossy(pa.null(), wanted)


# -- what cannot be compared ---------------------------------------------------------------------------------------------

KINDS = {
    "number": [pa.int32(), pa.decimal128(9, 2)],
    "text": [pa.string()],
    "binary": [pa.binary(), pa.binary(2)],
    "boolean": [pa.bool_()],
    "date": [pa.date32()],
    "time": [pa.time64("us")],
    "local timestamp": [pa.timestamp("us")],
    "timestamp": [pa.timestamp("us", "UTC")],
    "float": [pa.float32(), pa.float64()],
    "nested": [pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.map_(pa.string(), pa.int32())],
    "other": [
        pa.uint8(),
        pa.date64(),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
}


@pytest.mark.parametrize(("one", "other"), [*product(KINDS, KINDS)])
def test_only_types_of_one_kind_are_compared(one, other):
    for found, wanted in product(KINDS[one], KINDS[other]):
        if one == other and one not in ("float", "nested", "other"):
            is_lossy(found, wanted)
            continue
        with pytest.raises(UnsupportedError, match=r"join key 'c' \(.*\) cannot be looked up in 'k' \("):
            is_lossy(found, wanted)
        with pytest.raises(UnsupportedError, match="cannot be looked up in 'k'"):
            cast(pa.array([], found), wanted)


def test_the_error_says_what_to_do():
    def text(found, wanted):
        with pytest.raises(UnsupportedError) as caught:
            KeyCasts.of(pa.schema([("day", found)]), pa.schema([("at", wanted)]))
        return str(caught.value)

    assert (
        text(pa.string(), pa.int32()) == "join key 'day' (STRING) cannot be looked up in 'at' (INT): cast 'day' to INT"
    )
    assert "one of them has a time zone; cast 'day' to TIMESTAMP(6), in the zone" in text(ZONED[2], LOCAL[2])
    assert text(pa.float64(), pa.int32()).endswith("cast 'day' to INT")
    assert text(pa.float64(), pa.float64()).endswith("= does not; join with the rows of a scan instead")


def test_keys_are_named_and_typed_as_the_source_s():
    keys = pa.schema([("b", pa.int32()), ("a", pa.string())])
    columns = pa.schema([("id", pa.int64()), ("name", pa.string())])
    casts = KeyCasts.of(columns, keys)
    assert casts.lossy == ("b",)
    batch = casts.cast([pa.array([1, 2**40]), pa.array(["x", None])])
    assert batch.schema.equals(keys)
    assert batch.to_pylist() == [{"b": 1, "a": "x"}, {"b": None, "a": None}]
    with pytest.raises(ValueError, match="zip"):
        KeyCasts.of(columns, pa.schema([("b", pa.int32())]))
