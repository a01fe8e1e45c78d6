"""Moments and durations as people write them.

A moment is epoch milliseconds inside; what a person gives without a zone is in the zone of ``client.time-zone``, by
default the system's, as Python's own ``datetime.timestamp()`` has it. Texts for people always carry the zone.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np

from fluss_lab.errors import InvalidPropertyError, InvalidTimestampError

#: What is taken as a moment.
Moment = datetime | date | str | int


class SnapshotId(int):
    """A moment that is a lake snapshot's id, and no time whatever number it is."""

    __slots__ = ()


_UNITS_MS: Final = {
    "ms": 1, "milli": 1, "millis": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1_000, "sec": 1_000, "secs": 1_000, "second": 1_000, "seconds": 1_000,
    "min": 60_000, "m": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
_BYTES: Final = {"": 1, "b": 1, "bytes": 1, "k": 2**10, "kb": 2**10, "kib": 2**10, "m": 2**20, "mb": 2**20, "mib": 2**20,
                 "g": 2**30, "gb": 2**30, "gib": 2**30, "t": 2**40, "tb": 2**40, "tib": 2**40}  # fmt: skip

#: The year 9999: what `datetime` can show.
TIMESTAMP_MS_MAX: Final = 253_402_300_799_999


#: Whole numbers from 1 up to here are epoch seconds given for milliseconds: as those they are of 1970 to 1973.
_SECONDS_MAX: Final = 100_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AGO: Final = re.compile(r"(\d{1,9})\s*([a-z]+)\s+ago")
_FORMS: Final = (
    "a datetime, a date, ISO-8601 text like '2026-11-20T12:00:00Z', 'now', 'today', 'yesterday', '10 minutes ago', or epoch "
    "milliseconds"
)


def time_zone(name: str) -> tzinfo | None:
    """Return a time zone by its name in the IANA database; None, which is the system's, for the empty name.

    Raises:
        InvalidPropertyError: There is none of that name.
    """
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise InvalidPropertyError(f"time zone {name!r}: expected a name like 'Europe/Berlin' or 'UTC'") from error


def zone_text(zone: tzinfo | None) -> str:
    """Return a time zone as people read it: its name, or that and the present offset of the system's."""
    if isinstance(zone, ZoneInfo):
        return zone.key
    now = datetime.now(zone).astimezone(zone)
    return f"{now.tzname()} (UTC{now.isoformat()[-6:]})"


def parse_moment(value: Any, zone: tzinfo | None = None) -> int:
    """Return epoch milliseconds (UTC) of a moment.

    >>> parse_moment("2013-01-01T12:00:00+01:00")
    1357038000000
    >>> parse_moment("2013-01-01", zone=UTC)
    1356998400000

    Args:
        value: A `datetime` (also pandas's and numpy's), a `date` (its first moment), ISO-8601 text, ``"now"``, ``"today"``,
            ``"yesterday"`` (their first moment), ``"10 minutes ago"``, or epoch milliseconds as a whole number.
        zone: The zone of what has none; None: the system's.

    Raises:
        InvalidTimestampError: It cannot be read, lies before 1970 or after the year 9999, or is a number of seconds.
    """
    number = whole_number(value)
    if number is not None:
        return _of_number(number)
    try:
        moment = _of_text(value.strip(), zone) if isinstance(value, str) else _of_object(value)
    except OverflowError:
        moment = None
    if moment is None:
        raise InvalidTimestampError(f"time {value!r}: expected {_FORMS}{_hint(value)}")
    try:
        if moment.utcoffset() is None:
            moment = moment.astimezone(UTC) if zone is None else moment.replace(tzinfo=zone)
        timestamp_ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    except (OverflowError, ValueError, OSError):
        timestamp_ms = -1
    return _check_range(timestamp_ms, value)


def whole_number(value: Any) -> int | None:
    """Return a whole number of Python, numpy or pandas as Python's; None for anything else, booleans included."""
    if isinstance(value, SnapshotId):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return int(value) if isinstance(value, np.integer) and not isinstance(value, np.timedelta64) else None


def _of_number(number: int) -> int:
    if 0 < number < _SECONDS_MAX:
        raise InvalidTimestampError(
            f"time {number}: expected epoch milliseconds, found what must be seconds "
            f"({format_moment(number * 1000)}): multiply by 1000"
        )
    return _check_range(number, number)


def _of_text(text: str, zone: tzinfo | None) -> datetime | None:
    word = text.lower()
    if word == "now":
        return _now()
    if word in {"today", "yesterday"}:
        local = _now().astimezone(zone).replace(tzinfo=None)
        return datetime.combine(local.date() - timedelta(days=word == "yesterday"), datetime.min.time())
    if (match := _AGO.fullmatch(word)) is not None and (unit_ms := _UNITS_MS.get(match[2])) is not None:
        back_ms = int(match[1]) * unit_ms
        return None if back_ms > TIMESTAMP_MS_MAX else _now() - timedelta(milliseconds=back_ms)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _now() -> datetime:
    return _EPOCH + timedelta(milliseconds=time.time_ns() // 1_000_000)


def _of_object(value: Any) -> datetime | None:
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, datetime):
        # Of pandas there is a datetime that is none, and one with nanoseconds.
        if value != value:  # noqa: PLR0124
            return None
        found: datetime = value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
        return found
    return datetime.combine(value, datetime.min.time()) if isinstance(value, date) else None


def _hint(value: object) -> str:
    if isinstance(value, float | np.floating):
        return "; a float may be time.time(), in seconds: give int(time.time() * 1000)"
    return ""


def fixed_moment(value: Any, zone: tzinfo | None) -> Any:
    """Return a moment that is written relatively or without a zone as one that means the same at any time and place.

    Numbers, which may be ids of snapshots, become Python's; all that is no moment stays.

    Raises:
        InvalidTimestampError: It is a text or object of a time that cannot be.
    """
    number = whole_number(value)
    if number is not None:
        return number
    if not isinstance(value, str | date | np.datetime64):
        return value
    return _EPOCH + timedelta(milliseconds=parse_moment(value, zone))


def shown_moment(value: Any) -> str:
    """Return what was given as a moment for a text: ISO-8601 with its zone where it is a datetime."""
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return format_moment((value - _EPOCH) // timedelta(milliseconds=1))
    return repr(value)


def _check_range(timestamp_ms: int, value: object) -> int:
    if not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
        raise InvalidTimestampError(
            f"time {value!r}: expected one between 1970 and 9999 (epoch milliseconds if a number)"
        )
    return timestamp_ms


def format_moment(timestamp_ms: int) -> str:
    """Return epoch milliseconds as ISO-8601 in UTC, to the millisecond."""
    moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def future_error(timestamp_ms: int, now_ms: int) -> InvalidTimestampError:
    """Return the error for a time after the server's clock."""
    shown = format_moment(timestamp_ms) if timestamp_ms <= TIMESTAMP_MS_MAX else str(timestamp_ms)
    return InvalidTimestampError(
        f"time {shown} is after the server's clock ({format_moment(now_ms)}): what will be then is not yet known"
    )


def parse_duration(value: str | int | timedelta) -> int:
    """Return milliseconds of a duration: ``"10s"``, ``"3 min"``, ``"7d"``, a timedelta, or milliseconds.

    >>> parse_duration("3 min")
    180000

    Raises:
        InvalidPropertyError: It cannot be read or is negative.
    """
    if isinstance(value, timedelta):
        amount_ms = value // timedelta(milliseconds=1)
    elif isinstance(value, int) and not isinstance(value, bool):
        amount_ms = value
    else:
        match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", value) if isinstance(value, str) else None
        unit = _UNITS_MS.get((match[2] or "ms").lower()) if match else None
        if match is None or unit is None:
            raise InvalidPropertyError(f"expected a duration like '10s', '3min' or '7d', found {value!r}")
        amount_ms = int(match[1]) * unit
    if not 0 <= amount_ms < 2**53:
        raise InvalidPropertyError(f"expected a duration of at least 0 and below 285,000 years, found {value!r}")
    return amount_ms


def format_duration(amount_ms: int) -> str:
    """Return milliseconds in the largest unit that holds them exactly.

    >>> format_duration(180_000), format_duration(90_000)
    ('3min', '90s')
    """
    for unit in ("d", "h", "min", "s"):
        if amount_ms and amount_ms % _UNITS_MS[unit] == 0:
            return f"{amount_ms // _UNITS_MS[unit]}{unit}"
    return f"{amount_ms}ms"


def parse_size(value: str | int) -> int:
    """Return bytes of a size: ``"64mb"``, ``"1 gb"``, or a number of bytes.

    >>> parse_size("64mb")
    67108864

    Raises:
        InvalidPropertyError: It cannot be read or is negative.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", value) if isinstance(value, str) else None
    unit = _BYTES.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise InvalidPropertyError(f"expected a size like '64mb' or '1gb', found {value!r}")
    return int(match[1]) * unit


def format_size(size_bytes: int) -> str:
    """Return a size as people read it: ``"1.5 MB"``."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
