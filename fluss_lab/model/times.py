"""Moments and durations as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from fluss_lab.errors import InvalidPropertyError, InvalidTimestampError

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


def parse_moment(value: datetime | str | int) -> int:
    """Return epoch milliseconds (UTC) of a moment.

    Args:
        value: An aware or naive `datetime` (naive means UTC), an ISO-8601 string (without zone: UTC), or
            epoch milliseconds as an integer.

    Raises:
        InvalidTimestampError: It cannot be read, or lies before 1970 or after the year 9999.
    """
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError as error:
            raise InvalidTimestampError(f"time {value!r}: expected ISO-8601 like '2026-11-20T12:00:00Z'") from error
    elif isinstance(value, int) and not isinstance(value, bool):
        return _checked(value, value)
    else:
        raise InvalidTimestampError(f"time {value!r}: expected a datetime, an ISO string, or epoch milliseconds")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return _checked((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1), value)


def _checked(timestamp_ms: int, value: object) -> int:
    if not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
        raise InvalidTimestampError(
            f"time {value!r}: expected one between 1970 and 9999 (epoch milliseconds if a number)"
        )
    return timestamp_ms


def format_moment(timestamp_ms: int) -> str:
    """Return epoch milliseconds as ISO-8601 in UTC, to the millisecond."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_duration(value: str | int | timedelta) -> int:
    """Return milliseconds of a duration: ``"10s"``, ``"3 min"``, ``"7d"``, a timedelta, or milliseconds.

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
    """Return milliseconds in the largest unit that holds them exactly: ``"3min"``."""
    for unit in ("d", "h", "min", "s"):
        if amount_ms and amount_ms % _UNITS_MS[unit] == 0:
            return f"{amount_ms // _UNITS_MS[unit]}{unit}"
    return f"{amount_ms}ms"


def parse_size(value: str | int) -> int:
    """Return bytes of a size: ``"64mb"``, ``"1 gb"``, or a number of bytes.

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
