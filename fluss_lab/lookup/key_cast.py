"""The cast of a stream's join keys to a source's types, so that equal keys have equal values and equal bytes.

A cast that every value of a type survives is *lossless*. Of another one, values that the source's type does not have become
null, and so match nothing: no row could equal them. What equals what is as Spark's ``=`` has it for the two columns.

=======================================  ===================================================================
stream's and source's types              cast
=======================================  ===================================================================
integers, decimals                       exact; lossless into a type that has all values of the stream's
text; binary; boolean; date              lossless; binary into fixed length: those of that length
timestamps with, or without, time zone   exact; lossless in the same unit
times of day                             exact; lossless into the same or a finer unit
floating-point numbers                   an error: lookups compare bytes, ``=`` has ``0.0 = -0.0`` and ``NaN = NaN``
anything else                            an error
=======================================  ===================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidSchemaError, UnsupportedError
from fluss_lab.model import DataType

#: Digits that Spark has of each integer when it compares it with a decimal; and those that the values have.
_DIGITS: Final = {8: (3, 3), 16: (5, 5), 32: (10, 10), 64: (20, 19)}
_DECIMAL_DIGITS_MAX: Final = 38
_UNITS: Final = ("s", "ms", "us", "ns")

_Cast: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]


@dataclass(frozen=True)
class KeyCasts:
    """The casts of a stream's join keys to a source's.

    Attributes:
        target: The source's join keys, in their order.
        lossy: The names of those of them whose type has not all values of the stream's.
    """

    target: pa.Schema
    lossy: tuple[str, ...] = ()

    @classmethod
    def of(cls, stream: pa.Schema, target: pa.Schema) -> KeyCasts:
        """Return the casts of a stream's columns.

        Args:
            stream: Its columns, one for each of the source's keys, in the order of these.
            target: The source's join keys.

        Raises:
            UnsupportedError: Values of a pair of types cannot be compared by lookups; the text names both columns and what to do.
        """
        pairs = zip(stream, target, strict=True)
        return cls(target, tuple(key.name for column, key in pairs if not _key_cast(column, key).is_lossless))

    @property
    def is_lossless(self) -> bool:
        """Return whether no key loses a value."""
        return not self.lossy

    def cast(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return a stream's keys in the source's types; null where they were, and where the type has not the value.

        Raises:
            UnsupportedError: As of `of`.
        """
        arrays = [
            _key_cast(pa.field(key.name, column.type), key).cast(column, key.type)
            for column, key in zip(columns, self.target, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, names=self.target.names)


@dataclass(frozen=True, slots=True)
class _KeyCast:
    is_lossless: bool
    cast: _Cast


def _key_cast(column: pa.Field, key: pa.Field) -> _KeyCast:
    found, wanted = column.type, key.type
    if pa.types.is_null(found) and not pa.types.is_nested(wanted):
        return _LOSSLESS
    hint = f"cast {column.name!r} to {_text(wanted)}"
    if pa.types.is_floating(wanted):
        hint = "a lookup compares floating-point keys by their bits, = does not; join with the rows of a scan instead"
    elif _is_number(found) and _is_number(wanted):
        if (digits := _digits_compared(found, wanted)) <= _DECIMAL_DIGITS_MAX:
            return _LOSSLESS if _has_all_numbers(wanted, found) else _KeyCast(False, _numbers_that_fit)
        hint = f"Spark would round one of them, for both need {digits} digits; {hint}"
    elif pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        if (found.tz is None) == (wanted.tz is None):
            return _LOSSLESS if found.unit == wanted.unit else _KeyCast(False, _values_that_come_back)
        hint = f"one of them has a time zone; {hint}, in the zone that is meant"
    elif pa.types.is_time(found) and pa.types.is_time(wanted):
        is_finer = _UNITS.index(found.unit) <= _UNITS.index(wanted.unit)
        return _LOSSLESS if is_finer else _KeyCast(False, _values_that_come_back)
    elif _is_binary(found) and pa.types.is_fixed_size_binary(wanted):
        return _LOSSLESS if found == wanted else _KeyCast(False, _binaries_that_fit)
    elif (
        (_is_text(found) and _is_text(wanted))
        or (_is_binary(found) and _is_binary(wanted))
        or (found == wanted and (pa.types.is_boolean(found) or pa.types.is_date32(found)))
    ):
        return _LOSSLESS
    pair = f"{column.name!r} ({_text(found)}) cannot be looked up in {key.name!r} ({_text(wanted)})"
    raise UnsupportedError(f"join key {pair}: {hint}")


def _text(kind: pa.DataType) -> str:
    """Return a type in Fluss's words, where it has any."""
    try:
        return str(DataType.from_arrow(kind))
    except InvalidSchemaError:
        return str(kind)


# -- types -------------------------------------------------------------------------------------------------------------


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_decimal128(kind))


def _is_text(kind: pa.DataType) -> bool:
    t = pa.types
    return any(is_a(kind) for is_a in (t.is_string, t.is_large_string, t.is_string_view))


def _is_binary(kind: pa.DataType) -> bool:
    t = pa.types
    return any(is_a(kind) for is_a in (t.is_binary, t.is_large_binary, t.is_binary_view, t.is_fixed_size_binary))


def _digits_compared(one: pa.DataType, other: pa.DataType) -> int:
    """Return how many digits Spark needs for the type in which it compares two numbers; beyond 38 it rounds."""
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return 0
    whole, scale = zip(*(_digits(kind, compared=True) for kind in (one, other)), strict=True)
    return int(max(whole) + max(scale))


def _digits(kind: pa.DataType, *, compared: bool = False) -> tuple[int, int]:
    """Return the digits before and behind the point that a number can have."""
    if pa.types.is_integer(kind):
        return _DIGITS[kind.bit_width][0 if compared else 1], 0
    return kind.precision - kind.scale, kind.scale


def _has_all_numbers(wanted: pa.DataType, found: pa.DataType) -> bool:
    if pa.types.is_integer(wanted) and pa.types.is_integer(found):
        return bool(found.bit_width <= wanted.bit_width)
    (whole, scale), (found_whole, found_scale) = _digits(wanted), _digits(found)
    # The largest integers of a type have not all of the digits that it has.
    return found_scale <= scale and found_whole <= whole - pa.types.is_integer(wanted)


# -- casts -------------------------------------------------------------------------------------------------------------


def _as_it_is(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    return values.cast(wanted)


def _values_that_come_back(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast; null where the cast back returns another value: what was cut off, or did not fit."""
    there = values.cast(wanted, safe=False)
    back = there.cast(values.type, safe=False)
    return pc.if_else(pc.equal(back, values), there, pa.scalar(None, wanted))


def _numbers_that_fit(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_integer(values.type) and pa.types.is_integer(wanted):
        return _values_that_come_back(values, wanted)
    # As wide decimals: Arrow makes them of 64-bit integers at least, and rounds only where there is a digit before the point.
    whole, scale = _digits(values.type)
    is_integer = pa.types.is_integer(values.type)
    wide = values.cast(pa.int64()).cast(pa.decimal256(19, 0)) if is_integer else values.cast(_wide(whole + 1, scale))
    wanted_whole, wanted_scale = _digits(wanted)
    least, most = (pa.scalar(bound, _wide(wanted_whole, wanted_scale)) for bound in _bounds(wanted))
    fits = pc.equal(pc.round(wide, ndigits=wanted_scale, round_mode="towards_zero"), wide)
    fits = pc.and_(fits, pc.and_(pc.greater_equal(wide, least), pc.less_equal(wide, most)))
    return pc.if_else(fits, wide, pa.scalar(None, wide.type)).cast(wanted)


def _wide(whole: int, scale: int) -> pa.DataType:
    return pa.decimal256(whole + scale, scale)


def _bounds(kind: pa.DataType) -> tuple[Decimal, Decimal]:
    if pa.types.is_integer(kind):
        return Decimal(-(1 << kind.bit_width - 1)), Decimal((1 << kind.bit_width - 1) - 1)
    # Not by arithmetic: Python's context has 28 digits.
    most = Decimal((0, (9,) * kind.precision, -kind.scale))
    return most.copy_negate(), most


def _binaries_that_fit(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    plain = values.cast(pa.binary())
    fits = pc.equal(pc.binary_length(plain), wanted.byte_width)
    return pc.if_else(fits, plain, pa.scalar(None, pa.binary())).cast(wanted)


_LOSSLESS: Final = _KeyCast(True, _as_it_is)
