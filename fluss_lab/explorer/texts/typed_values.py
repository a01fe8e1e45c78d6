"""The texts that a person types for values: each read exactly as its type has it, or refused with what was expected.

A value is plain: what Arrow takes for its type, with dates and times as whole numbers of the type's unit since 1970 or midnight.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fluss_lab.display import short
from fluss_lab.errors import InvalidRecordError
from fluss_lab.model.types import DataType
from fluss_lab.model.values.casts import INTEGERS

#: Characters of a text that an error quotes.
_QUOTED_MAX: Final = 40
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_SPECIAL: Final = {"nan": math.nan, "infinity": math.inf, "+infinity": math.inf, "-infinity": -math.inf}
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})*")
_DATE: Final = r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_CLOCK: Final = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<part>[0-9]{1,9}))?)?"
_ZONE: Final = r"(?P<zone>Z|[+-][0-9]{2}:[0-9]{2}(?::[0-9]{2})?)"
_DAY: Final = re.compile(_DATE)
_TIME: Final = re.compile(_CLOCK)
_MOMENT: Final = re.compile(rf"{_DATE}(?:[T ]{_CLOCK})? ?{_ZONE}?")
#: Digits of a second's part by unit.
UNIT_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_INT64: Final = range(-(2**63), 2**63)
#: Digits of any decimal and of what is typed too long for one.
_DIGITS: Final = Context(prec=200, Emax=99_999, Emin=-99_999, traps=[Inexact, InvalidOperation])

_Zone = dt.tzinfo | None


class _Number(str):
    """A number of JSON as it was typed."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """Names and values of a JSON object in order, with those that are there twice."""


def read_text(text: str, target: DataType, zone: _Zone) -> Any:
    """Return the value of a type that a text means.

    Numbers are taken as they are written, never rounded but to the nearest FLOAT or DOUBLE; binary as hexadecimal digits; dates
    and times as ISO-8601; arrays, maps and rows as JSON, a map also as a list of pairs.

    Args:
        text: What was typed. Of types other than texts, blanks around it do not count.
        target: The type; that it may be null does not matter: a text is never null.
        zone: In which a TIMESTAMP_LTZ without a zone is; None: the system's.

    Raises:
        InvalidRecordError: It means none; the text says what was expected and found, within a nested value also where.
    """
    if target.name in {"STRING", "CHAR"}:
        return _string(text, target, zone)
    return _READERS[target.name](text.strip(), target, zone)


def unit_of(target: DataType) -> str:
    """Return the unit of a type of times: ``s``, ``ms``, ``us`` or ``ns``."""
    return str(target.arrow().unit)


def _refusal(expected: str, text: object) -> InvalidRecordError:
    found = f'"{short(text, _QUOTED_MAX)}"' if str(text) else "nothing"
    return InvalidRecordError(f"expected {expected}, found {found}")


# -- flat types ------------------------------------------------------------------------------------------------------


def _boolean(text: str, _target: DataType, _zone: _Zone) -> bool:
    known = {"true": True, "false": False}.get(text.lower())
    if known is None:
        raise _refusal("true or false", text)
    return known


def _integer(text: str, target: DataType, _zone: _Zone) -> int:
    bits = target.arrow().bit_width
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise _refusal(f"a whole number from {least:,} to {most:,}", text)
    return int(text)


def _float(text: str, target: DataType, _zone: _Zone) -> float:
    if (special := _SPECIAL.get(text.lower())) is not None:
        return special
    if not _NUMBER.fullmatch(text):
        raise _refusal("a number, NaN, Infinity or -Infinity", text)
    value = float(text)
    with np.errstate(over="ignore", under="ignore"):
        held = float(np.float32(value)) if target.name == "FLOAT" else value
    if math.isinf(held):
        raise _refusal(f"a number that {target.name} can hold", text)
    if held == 0 and re.search("[1-9]", re.split("[eE]", text)[0]):
        raise _refusal(f"a number that {target.name} can tell from 0", text)
    return held


def _decimal(text: str, target: DataType, _zone: _Zone) -> Decimal:
    precision, scale = target.parameters
    if not _NUMBER.fullmatch(text) or len(text) > _DIGITS.prec:
        raise _refusal(f"a number, as 12.34, for {target.with_nullable(True)}", text)
    try:
        value = Decimal(text).quantize(Decimal(1).scaleb(-scale), context=_DIGITS)
    except InvalidOperation:
        value = Decimal(1).scaleb(precision)  # too large to be written out
    except Inexact:
        raise _refusal(f"at most {scale} digits after the point", text) from None
    if value.copy_abs() >= Decimal(1).scaleb(precision - scale):  # `abs` would round to 28 digits
        raise _refusal(f"at most {precision - scale} digits before the point", text)
    return value


def _string(text: str, target: DataType, _zone: _Zone) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _refusal("characters of Unicode without halves of surrogate pairs", text) from None
    if target.name == "CHAR" and len(text) > target.precision:
        raise _refusal(f"at most {target.precision} characters", f"{text[:_QUOTED_MAX]}… of {len(text):,}")
    return text


def _binary(text: str, target: DataType, _zone: _Zone) -> bytes:
    digits = "".join(text.removeprefix("0x").split())
    if not _HEX.fullmatch(digits):
        raise _refusal("pairs of hexadecimal digits, as 00ff", text)
    value = bytes.fromhex(digits)
    if target.name == "BINARY" and len(value) != target.precision:
        raise _refusal(
            f"{target.precision} bytes as hexadecimal digits", f"{short(text, _QUOTED_MAX)} ({len(value)} bytes)"
        )
    return value


def _date(text: str, _target: DataType, _zone: _Zone) -> int:
    found = _DAY.fullmatch(text)
    try:
        if found is not None:
            return dt.date(*(int(found[name]) for name in ("year", "month", "day"))).toordinal() - EPOCH.toordinal()
    except ValueError:
        pass  # no such day
    raise _refusal("a day, as 2026-11-20", text)


def _time(text: str, target: DataType, _zone: _Zone) -> int:
    found, unit = _TIME.fullmatch(text), unit_of(target)
    if found is not None and (seconds := _seconds(found)) is not None:
        return _in_units(seconds, found["part"], unit, text)
    raise _refusal(f"a time of day, as 12:00:00{_example(unit)}", text)


def _moment(text: str, target: DataType, zone: _Zone) -> int:
    found, unit, is_zoned = _MOMENT.fullmatch(text), unit_of(target), target.name == "TIMESTAMP_LTZ"
    seconds = None if found is None or found["hour"] is None else _seconds(found)
    if found is None or (seconds is None and found["hour"] is not None):
        raise _refusal(f"a time, as 2026-11-20 12:00:00{_example(unit)}{', or with +01:00' if is_zoned else ''}", text)
    if found["zone"] and not is_zoned:
        raise _refusal("a time without a zone: TIMESTAMP has none", text)
    try:
        day = dt.datetime(int(found["year"]), int(found["month"]), int(found["day"]))  # noqa: DTZ001  # of the zone below
        local = day + dt.timedelta(seconds=seconds or 0)
        since = local.replace(tzinfo=dt.UTC) - EPOCH
        since -= _offset(local, found["zone"], zone, text) if is_zoned else dt.timedelta()
        _ = EPOCH + since  # what no datetime can be is refused, with an offset too
    except (ValueError, OverflowError):
        raise _refusal("a day from 0001-01-01 to 9999-12-31", text) from None
    value = _in_units(since // dt.timedelta(seconds=1), found["part"], unit, text)
    if value not in _INT64:
        raise _refusal(f"a time that fits in 64 bits of unit {unit}", text)
    return value


def _seconds(found: re.Match[str]) -> int | None:
    """Return the seconds since midnight; None of a time that no day has."""
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    return hour * 3600 + minute * 60 + second if hour < 24 and minute < 60 and second < 60 else None


def _in_units(seconds: int, part: str | None, unit: str, text: str) -> int:
    digits = (part or "").rstrip("0")
    if len(digits) > UNIT_DIGITS[unit]:
        raise _refusal(f"at most {UNIT_DIGITS[unit]} digits of a second's part", text)
    return seconds * int(10 ** UNIT_DIGITS[unit]) + int(digits.ljust(UNIT_DIGITS[unit], "0") or 0)


def _example(unit: str) -> str:
    return f".{'123456789'[: UNIT_DIGITS[unit]]}" if UNIT_DIGITS[unit] else ""


def _offset(local: dt.datetime, written: str | None, zone: _Zone, text: str) -> dt.timedelta:
    """Return how far a local time is ahead of UTC: as written, else in the zone, where it must be there once."""
    if written:
        parts = [int(each) for each in re.findall("[0-9]+", written)]
        size = sum(part * 60**power for part, power in zip(parts, (2, 1, 0), strict=False))
        if size >= 86_400:
            raise _refusal("an offset of less than a day", text)
        return dt.timedelta(seconds=-size if written.startswith("-") else size)
    offsets = set(local_offsets(local, zone))
    if len(offsets) > 1:
        raise _refusal(
            "a time that the lab's zone has once; here its clock is changed: write the offset, as +01:00", text
        )
    return offsets.pop()


def local_offsets(local: dt.datetime, zone: _Zone) -> list[dt.timedelta]:
    """Return how far a local time may be ahead of UTC; twice the same unless the clock is changed there."""
    if zone is None:
        found = [local.replace(fold=fold).astimezone().utcoffset() for fold in (0, 1)]
    else:
        found = [local.replace(fold=fold, tzinfo=zone).utcoffset() for fold in (0, 1)]
    return [each or dt.timedelta() for each in found]


# -- nested types ----------------------------------------------------------------------------------------------------


def _parse_nested(text: str, target: DataType, zone: _Zone) -> Any:
    form = {"ARRAY": "[1, 2]", "MAP": '{"key": value} or [[key, value]]', "ROW": '{"field": value}'}[target.name]
    try:
        node = json.loads(
            text, parse_int=_Number, parse_float=_Number, parse_constant=_Number, object_pairs_hook=_Members
        )
    except RecursionError:
        raise _refusal("JSON that is nested less deeply", text) from None
    except ValueError as error:
        raise InvalidRecordError(f"expected JSON, as {form}: {error}") from None
    return _node(node, target, zone)


def _node(node: Any, target: DataType, zone: _Zone) -> Any:
    """Return the value of a part of JSON."""
    if node is None:
        if not target.nullable:
            raise InvalidRecordError(f"expected a value of {target}, found null")
        return None
    if target.name == "ARRAY":
        if not isinstance(node, list) or isinstance(node, _Members):
            raise _misfit("a JSON array, as [1, 2]", node)
        return [_parse_element(f"[{at}]", each, target.fields[0].type, zone) for at, each in enumerate(node)]
    if target.name == "MAP":
        return _map(node, target, zone)
    if target.name == "ROW":
        return _row(node, target, zone)
    is_number = target.name in INTEGERS or target.name in {"FLOAT", "DOUBLE", "DECIMAL"}
    if target.name == "BOOLEAN" and isinstance(node, bool):
        return node
    if target.name == "BOOLEAN" or not isinstance(node, str) or (isinstance(node, _Number) and not is_number):
        kind = "true or false" if target.name == "BOOLEAN" else "a number" if is_number else "a text in quotes"
        raise _misfit(kind, node)
    return read_text(str(node), target, zone)


def _parse_element(place: str, node: Any, target: DataType, zone: _Zone) -> Any:
    try:
        return _node(node, target, zone)
    except InvalidRecordError as error:
        text = str(error)
        raise InvalidRecordError(f"{place}{'' if text.startswith(('[', '.')) else ': '}{text}") from None


def _map(node: Any, target: DataType, zone: _Zone) -> list[tuple[Any, Any]]:
    key, value = target.fields[0].type.with_nullable(False), target.fields[1].type
    if isinstance(node, _Members):
        keys: list[Any] = [_key(name, key, zone) for name, _ in node]
    elif isinstance(node, list) and all(type(pair) is list and len(pair) == 2 for pair in node):
        keys = [_parse_element(f"[{at}][0]", pair[0], key, zone) for at, pair in enumerate(node)]
    else:
        raise _misfit('a JSON object, as {"key": value}, or pairs, as [[key, value]]', node)
    if len({repr(each) for each in keys}) < len(keys):
        raise InvalidRecordError("expected each key once, found one twice")
    return [(keys[at], _parse_element(f"[{at}]", pair[1], value, zone)) for at, pair in enumerate(node)]


def _key(name: str, key: DataType, zone: _Zone) -> Any:
    if key.fields:
        raise _refusal("pairs, as [[key, value]], where keys are nested", name)
    try:
        return read_text(name, key, zone)
    except InvalidRecordError as error:
        raise InvalidRecordError(f'key "{short(name, _QUOTED_MAX)}": {error}') from None


def _row(node: Any, target: DataType, zone: _Zone) -> dict[str, Any]:
    if not isinstance(node, _Members):
        raise _misfit('a JSON object, as {"field": value}', node)
    given, known = dict(node), [each.name for each in target.fields]
    if len(given) < len(node):
        raise InvalidRecordError("expected each field once, found one twice")
    for name in given:
        if name not in known:
            raise _refusal(f"the fields {short(', '.join(known), 200)}", name)
    return {each.name: _parse_element(f".{each.name}", given.get(each.name), each.type, zone) for each in target.fields}


def _misfit(expected: str, node: Any) -> InvalidRecordError:
    """Return the error for a part of JSON that is of another kind."""
    if isinstance(node, list):
        found = "an object" if isinstance(node, _Members) else "an array"
    elif isinstance(node, str) and not isinstance(node, _Number):
        found = f'"{short(node, _QUOTED_MAX)}"'
    else:
        found = short(str(node).lower(), _QUOTED_MAX)
    return InvalidRecordError(f"expected {expected}, found {found}")


_READERS: Final[dict[str, Callable[[str, DataType, _Zone], Any]]] = {
    "BOOLEAN": _boolean, "TINYINT": _integer, "SMALLINT": _integer, "INT": _integer, "BIGINT": _integer, "FLOAT": _float,
    "DOUBLE": _float, "DECIMAL": _decimal, "BYTES": _binary, "BINARY": _binary, "DATE": _date, "TIME": _time,
    "TIMESTAMP": _moment, "TIMESTAMP_LTZ": _moment, "ARRAY": _parse_nested, "MAP": _parse_nested, "ROW": _parse_nested,
}  # fmt: skip


# -- values of rows --------------------------------------------------------------------------------------------------


def plain_value(scalar: pa.Scalar, target: DataType) -> Any:
    """Return a value of a row as `read_text` returns one."""
    if not scalar.is_valid:
        return None
    if target.name == "ARRAY":
        return [plain_value(each, target.fields[0].type) for each in scalar.values]
    if target.name == "MAP":
        key, value = (field.type for field in target.fields)
        return [(plain_value(pair["key"], key), plain_value(pair["value"], value)) for pair in scalar.values]
    if target.name == "ROW":
        return {field.name: plain_value(scalar[field.name], field.type) for field in target.fields}
    return scalar.value if target.name in {"DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ"} else scalar.as_py()


def one_value(value: Any, target: DataType) -> pa.Array:
    """Return a plain value as an Arrow array of its type."""
    return pa.array([value], target.arrow())
