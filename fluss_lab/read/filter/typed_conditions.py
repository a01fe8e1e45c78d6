"""Conditions over a table's columns, checked while they are made: literals come in their columns' own types.

A literal is brought to its column's type without changing what the comparison means.
A number that the column cannot hold exactly (``delay > 60.5`` on INT, ``tiny < 1000`` on TINYINT) moves to the nearest
one it can, in the direction that keeps the comparison's truth, or decides the comparison for every value.

FLOAT and DOUBLE columns: a whole number is meant exactly, a number with a point or an exponent is the nearest DOUBLE, as in
Python; the column's value is compared with that exactly. So ``f = 16777217`` and ``f = 0.1`` are true for no FLOAT (none has
that value; ``f = CAST(0.1 AS FLOAT)`` asks for the nearest), and ``1e999`` is infinity. Text stands for what no number
says: 'Infinity' and '-Infinity'.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from math import inf, isnan
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fluss_lab.errors import InvalidFilterError
from fluss_lab.read.filter.predicates import Among, Compare, Like, NotANumber, Null, Predicate, Reference

_LIKE: Final = re.compile(r"(?:[^\\]|\\[%_\\])*", re.DOTALL)
_SPECIAL: Final = re.compile(r"([%_\\])")
#: Room for the digits of any moment in nanoseconds: nothing is rounded on the way.
_EXACT: Final = Context(prec=50)
_INFINITE: Final = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the origin of both kinds of timestamps
_UNIT_NANOS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME: Final = re.compile(r"(\d{2}:\d{2}(?::\d{2})?)(?:\.(\d{1,9}))?")
_TIMESTAMP: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2})?)(?:\.(\d{1,9}))?)?\s*(Z|z|[+-]\d{2}:?\d{2})?"
)


class Conditions:
    """Makes the leaves of a tree of predicates over the columns of one table."""

    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        """Make it.

        Args:
            types: The columns, of the user's and the system's.
        """
        self.types = types

    def column(self, path: Sequence[str], *, exactly: bool = False) -> Reference:
        """Return the column, or field within a ROW column, of a path of names.

        Args:
            path: Names from the outside in.
            exactly: Whether another case is another name; otherwise it is the same, unless two names differ by it only.

        Raises:
            InvalidFilterError: There is none.
        """
        found, dtype = _find(path[0], self.types.items(), exactly=exactly)
        if dtype is None:
            raise InvalidFilterError(
                f"filter names an unknown column {path[0]!r}; the columns are {', '.join(self.types)}"
            )
        names = [found]
        for name in path[1:]:
            fields = [(field.name, field.type) for field in dtype] if pa.types.is_struct(dtype) else []
            found, inner = _find(name, fields, exactly=exactly)
            if inner is None:
                shown = f"the fields are {', '.join(f[0] for f in fields)}" if fields else f"it is of type {dtype}"
                raise InvalidFilterError(f"filter names an unknown field {name!r} of {'.'.join(names)!r}; {shown}")
            names.append(found)
            dtype = inner
        return Reference(tuple(names), dtype)

    def compare(self, reference: Reference, operator: str, value: Any) -> Predicate:
        """Return ``column operator value``; the value is a Python or Arrow scalar and not null."""
        fitted = fit_literal(operator, value, reference.type, str(reference))
        if fitted.value is not None:
            return Compare(reference, fitted.operator, fitted.value)
        # Decided for every value; a null stays unknown, and so does its negation: (not) among nothing says just that.
        return Among(reference, (), negated=fitted.always)

    def is_in(self, reference: Reference, values: Iterable[Any], with_null: bool) -> Predicate:
        """Return ``column IN (values)``; `with_null`: NULL is one of them."""
        fitted = [fit_literal("=", value, reference.type, str(reference)) for value in values]
        scalars = tuple(dict.fromkeys(each.value for each in fitted if each.value is not None))
        return Among(reference, scalars, with_null)

    def like(self, reference: Reference, pattern: str) -> Predicate:
        """Return ``column LIKE pattern``."""
        if not pa.types.is_string(reference.type):
            raise InvalidFilterError(f"column {str(reference)!r} of type {reference.type}: LIKE is of text only")
        return Like(reference, checked_pattern(pattern))

    def starts_with(self, reference: Reference, prefix: str) -> Predicate:
        """Return that a column's text begins with another."""
        return self.like(reference, _SPECIAL.sub(r"\\\1", prefix) + "%")

    def null(self, reference: Reference) -> Predicate:
        """Return ``column IS NULL``."""
        return Null(reference)

    def nan(self, reference: Reference) -> Predicate:
        """Return ``column IS NAN``."""
        if not pa.types.is_floating(reference.type):
            raise InvalidFilterError(
                f"column {str(reference)!r} of type {reference.type}: only FLOAT and DOUBLE can be NaN"
            )
        return NotANumber(reference)


def checked_pattern(pattern: str) -> str:
    r"""Return a pattern of LIKE; ``\`` stands only before ``%``, ``_`` and itself."""
    if _LIKE.fullmatch(pattern) is None:
        raise InvalidFilterError(rf"pattern {pattern[:80]!r}: expected '\' only before '%', '_' or another '\'")
    return pattern


def _find(name: str, typed: Iterable[tuple[str, pa.DataType]], *, exactly: bool) -> tuple[str, pa.DataType | None]:
    """Return the name that is meant: exactly, or the only one in another case."""
    known = dict(typed)
    if name in known:
        return name, known[name]
    near = [] if exactly else [other for other in known if other.lower() == name.lower()]
    return (near[0], known[near[0]]) if len(near) == 1 else (name, None)


# -- literals ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fitted:
    """A comparison with a literal of the column's own type.

    Attributes:
        operator: A comparison as SQL writes it: = != < <= > >=.
        value: The literal; None when no literal is needed.
        always: Without a literal: what the comparison is for every value that is not null.
    """

    operator: str
    value: pa.Scalar | None
    always: bool = False


def fit_literal(operator: str, value: Any, dtype: pa.DataType, column: str) -> Fitted:
    """Return a comparison ``column operator value`` with the literal in the column's type.

    Args:
        operator: A comparison as SQL writes it: = != < <= > >=.
        value: What the filter says: a Python value or an Arrow scalar, never null. Text stands for dates and times too.
        dtype: The column's Arrow type.
        column: Its name, for messages.

    Raises:
        InvalidFilterError: The literal is none of the column's type.
    """
    types = pa.types
    if isinstance(value, pa.Scalar) and not _is_moment(value.type):
        value = value.as_py()
    if types.is_boolean(dtype):
        return _boolean(operator, value, column)
    if types.is_integer(dtype):
        bound = 2 ** (dtype.bit_width - 1)
        return _fit_counted(operator, _number(value, dtype, column), (-bound, bound - 1), lambda n: pa.scalar(n, dtype))
    if types.is_decimal(dtype):
        limit = 10**dtype.precision - 1
        scaled = _shift(_number(value, dtype, column), dtype.scale)
        return _fit_counted(
            operator, scaled, (-limit, limit), lambda n: pa.scalar(_shift(Decimal(n), -dtype.scale), dtype)
        )
    if types.is_floating(dtype):
        return _floating(operator, value, dtype, column)
    if types.is_string(dtype):
        if not isinstance(value, str):
            raise _mismatch(column, dtype, value, "text")
        return Fitted(operator, pa.scalar(value, dtype))
    if types.is_binary(dtype) or types.is_fixed_size_binary(dtype):
        return _binary(operator, value, dtype, column)
    if types.is_date(dtype):
        return _temporal(operator, Decimal(_days(value, column)), pa.int32(), dtype)
    if types.is_time(dtype):
        nanos = _time_nanos(value, column)
        storage = pa.int32() if dtype.bit_width == 32 else pa.int64()
        return _temporal(operator, _EXACT.divide(Decimal(nanos), Decimal(_UNIT_NANOS[dtype.unit])), storage, dtype)
    if types.is_timestamp(dtype):
        nanos = _timestamp_nanos(value, dtype.tz is not None, column)
        return _temporal(operator, _EXACT.divide(Decimal(nanos), Decimal(_UNIT_NANOS[dtype.unit])), pa.int64(), dtype)
    raise InvalidFilterError(f"column {column!r} of type {dtype}: only IS NULL and IS NOT NULL apply to it")


def _is_moment(dtype: pa.DataType) -> bool:
    """Return whether Python's types cannot hold all values of a type."""
    return bool(pa.types.is_timestamp(dtype) or pa.types.is_time(dtype) or pa.types.is_date32(dtype))


def as_integer(scalar: pa.Scalar) -> int:
    """Return a date, time or timestamp literal as the number it is stored as."""
    return int(scalar.value)


def _mismatch(column: str, dtype: pa.DataType, value: Any, expected: str) -> InvalidFilterError:
    return InvalidFilterError(
        f"column {column!r} of type {dtype}: expected {expected} to compare with, found {repr(value)[:80]}"
    )


def _number(value: Any, dtype: pa.DataType, column: str) -> Decimal:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _mismatch(column, dtype, value, "a number")
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if number.is_nan():
        raise _mismatch(column, dtype, value, "a number")
    return number


def _shift(number: Decimal, places: int) -> Decimal:
    """Return a number times a power of ten, of any size, not rounded."""
    sign, digits, exponent = number.as_tuple()
    return Decimal((sign, digits, exponent + places)) if isinstance(exponent, int) else number


def _fit_counted(operator: str, value: Decimal, bounds: tuple[int, int], make: Any) -> Fitted:
    """Fit a literal to a type of evenly spaced values, counted from `bounds[0]` to `bounds[1]`."""
    low, high = bounds
    if value < low or value > high:
        return Fitted(operator, None, _beyond(operator, value > high))
    whole = int(value.to_integral_value(rounding="ROUND_FLOOR"))
    if whole == value:
        return Fitted(operator, make(whole))
    if operator in {"=", "!="}:
        return Fitted(operator, None, operator == "!=")
    if operator in {"<", "<="}:
        return Fitted("<=", make(whole))
    return Fitted(">", make(whole))


def _beyond(operator: str, above: bool) -> bool:
    """Return the result of comparing with a literal beyond all values."""
    return {"=": False, "!=": True, "<": above, "<=": above, ">": not above, ">=": not above}[operator]


def _boolean(operator: str, value: Any, column: str) -> Fitted:
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        value = value.lower() == "true"
    if not isinstance(value, bool | np.bool_):
        raise _mismatch(column, pa.bool_(), value, "true or false")
    if operator not in {"=", "!="}:
        raise InvalidFilterError(
            f"column {column!r} of type bool: {operator} does not apply to true and false; use = or !="
        )
    return Fitted(operator, pa.scalar(bool(value)))


def _floating(operator: str, value: Any, dtype: pa.DataType, column: str) -> Fitted:
    number = _float_or_whole(value, dtype, column)
    if isinstance(number, float) and isnan(number):
        raise InvalidFilterError(f"column {column!r}: NaN equals nothing; use IS NAN or IS NOT NAN")
    kind: Any = np.float32 if pa.types.is_float32(dtype) else np.float64
    with np.errstate(over="ignore", under="ignore"):
        nearest = kind(_as_float(number))
    if float(nearest) == number:  # Python compares whole numbers with floats exactly
        return Fitted(operator, pa.scalar(float(nearest), dtype))
    if operator in {"=", "!="}:
        return Fitted(operator, None, operator == "!=")
    below = float(nearest) < number
    if operator in {"<", "<="}:
        low = nearest if below else np.nextafter(nearest, kind(-inf))
        return Fitted("<=", pa.scalar(float(low), dtype))
    high = np.nextafter(nearest, kind(inf)) if below else nearest
    return Fitted(">=", pa.scalar(float(high), dtype))


def _float_or_whole(value: Any, dtype: pa.DataType, column: str) -> float | int:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str) and _INFINITE.fullmatch(value.strip()):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _mismatch(column, dtype, value, "a number, 'Infinity' or '-Infinity'")
    if isinstance(value, Decimal):
        # "1e5" and "1.0" have an exponent, 100000 has none.
        return int(value) if value.as_tuple().exponent == 0 else float(value)
    return value


def _as_float(number: float | int) -> float:
    try:
        return float(number)
    except OverflowError:
        return inf if number > 0 else -inf


def _binary(operator: str, value: Any, dtype: pa.DataType, column: str) -> Fitted:
    if not isinstance(value, bytes | bytearray):
        raise _mismatch(column, dtype, value, "bytes (X'00ff' in SQL)")
    if pa.types.is_fixed_size_binary(dtype) and len(value) != dtype.byte_width:
        if operator in {"=", "!="}:
            return Fitted(operator, None, operator == "!=")
        raise _mismatch(column, dtype, value, f"{dtype.byte_width} bytes")
    return Fitted(operator, pa.scalar(bytes(value), dtype))


def _temporal(operator: str, amount: Decimal, storage: pa.DataType, dtype: pa.DataType) -> Fitted:
    bound = 2 ** (storage.bit_width - 1)
    return _fit_counted(operator, amount, (-bound, bound - 1), lambda n: pa.scalar(n, storage).cast(dtype))


def _days(value: Any, column: str) -> int:
    if isinstance(value, pa.Scalar) and pa.types.is_date32(value.type):
        return as_integer(value)
    if isinstance(value, str) and _DATE.fullmatch(value.strip()):
        try:
            value = date.fromisoformat(value.strip())
        except ValueError:
            raise _mismatch(column, pa.date32(), value, "a date like '2013-01-31'") from None
    if isinstance(value, datetime) or not isinstance(value, date):
        raise _mismatch(column, pa.date32(), value, "a date like '2013-01-31'")
    return (value - date(1970, 1, 1)).days


def _time_nanos(value: Any, column: str) -> int:
    fraction = 0
    if isinstance(value, pa.Scalar) and pa.types.is_time(value.type):
        return as_integer(value) * _UNIT_NANOS[value.type.unit]
    if isinstance(value, str) and (match := _TIME.fullmatch(value.strip())):
        fraction = int((match[2] or "").ljust(9, "0"))
        value = _parse(time.fromisoformat, match[1])
    if not isinstance(value, time) or value.tzinfo is not None:
        raise InvalidFilterError(f"column {column!r}: expected a time of day like '13:30:00', found {repr(value)[:80]}")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return (seconds * 10**6 + value.microsecond) * 10**3 + fraction


def _timestamp_nanos(value: Any, zoned: bool, column: str) -> int:
    """Return nanoseconds since 1970. Without a zone, text means UTC for a zoned column; others take no zone."""
    fraction = 0
    shown = value
    if isinstance(value, pa.Scalar) and pa.types.is_timestamp(value.type) and (value.type.tz is not None) == zoned:
        return as_integer(value) * _UNIT_NANOS[value.type.unit]
    if isinstance(value, str) and (match := _TIMESTAMP.fullmatch(value.strip())):
        fraction = int((match[3] or "").ljust(9, "0"))
        text = f"{match[1]}T{match[2] or '00:00'}{(match[4] or '').upper()}"
        value = _parse(datetime.fromisoformat, text)
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001 - a date has no zone
    if isinstance(value, datetime) and (nanos := getattr(value, "nanosecond", None)) is not None:  # of pandas
        fraction, value = int(nanos), value.replace(nanosecond=0).to_pydatetime()  # type: ignore[call-arg, attr-defined]
    if not isinstance(value, datetime):
        kind = "a moment like '2013-01-31T12:00:00Z'" if zoned else "a timestamp like '2013-01-31 12:00:00'"
        raise InvalidFilterError(f"column {column!r}: expected {kind}, found {repr(shown)[:80]}")
    if value.tzinfo is not None:
        if not zoned:
            raise InvalidFilterError(
                f"column {column!r} is a TIMESTAMP without zone: expected no zone, found {repr(shown)[:80]}"
            )
        # Not by astimezone: the first and last hours of what Python can say have no other zone.
        offset = value.utcoffset() or timedelta()
        value = value.replace(tzinfo=None)
        return int(((value - _EPOCH) - offset) // timedelta(microseconds=1)) * 10**3 + fraction
    micros = (value - _EPOCH) // timedelta(microseconds=1)
    return int(micros) * 10**3 + fraction


def _parse(read: Any, text: str) -> Any:
    try:
        return read(text)
    except ValueError:
        return text
