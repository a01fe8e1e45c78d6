"""Partitions by the clock: which ones a table wants at a moment, and which ones are past keeping.

Names and rules are Apache Fluss's (``AutoPartitionStrategy``, ``PartitionUtils``, ``AutoPartitionManager``): a partition
is called after the hour, day, month, quarter or year that it holds, in digits from the longest unit to the shortest, so
that names sort by time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fluss_lab.errors import InvalidPartitionError, InvalidPropertyError
from fluss_lab.model.config import options
from fluss_lab.model.names import partition_values

PREFIX: Final = "table.auto-partition."
#: More can never exist beside each other by default (`options.PARTITIONS_MAX`), nor be looked through every minute.
PRECREATE_MAX: Final = 10_000
#: As Fluss calls the formats, for messages.
_FORMATS: Final = {"hour": "yyyyMMddHH", "day": "yyyyMMdd", "month": "yyyyMM", "quarter": "yyyyQ", "year": "yyyy"}
_DIGITS: Final = re.compile(r"[0-9]+")
_MONTHS: Final = 12
_UNIT_MONTHS: Final = {"month": 1, "quarter": 3, "year": _MONTHS}
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class AutoPartition:
    """How a table's partitions follow the clock.

    Attributes:
        columns: The table's partition columns.
        key: The one of them that holds the time.
        unit: ``hour``, ``day``, ``month``, ``quarter`` or ``year``.
        zone: Whose hours and days are meant.
        precreate: Partitions that shall exist, the present one and those after it; 0 with several partition columns.
        retention: Past partitions that stay; negative for all.
    """

    columns: tuple[str, ...]
    key: str
    unit: str
    zone: tzinfo
    precreate: int
    retention: int

    @staticmethod
    def of(columns: tuple[str, ...], properties: Mapping[str, str]) -> AutoPartition | None:
        """Return what checked properties say; None when the table's partitions do not follow the clock."""
        if not columns or not options.AUTO_PARTITION_ENABLED.of(properties):
            return None
        return AutoPartition(
            columns,
            options.AUTO_PARTITION_KEY.of(properties) or columns[0],
            options.AUTO_PARTITION_TIME_UNIT.of(properties),
            ZoneInfo(options.AUTO_PARTITION_TIME_ZONE.of(properties)),
            _precreate(columns, properties),
            options.AUTO_PARTITION_RETENTION.of(properties),
        )

    def value_at(self, now_ms: int, ahead: int = 0) -> str:
        """Return the time value of the partition of a moment, or of one some units later (negative: earlier).

        An hour is 60 minutes of real time: where the clocks are put forward an hour is left out, where they are put back
        two hours share a partition. The other units are those of the calendar.

        Raises:
            OverflowError: It lies outside of the years 1 to 9999.
        """
        if self.unit == "hour":
            hour = self._local(now_ms + ahead * _HOUR_MS)
            return f"{_day_name(hour)}{hour.hour:02d}"
        today = self._local(now_ms).date()
        return _day_name(today + timedelta(days=ahead)) if self.unit == "day" else self._calendar(today, ahead)

    def _local(self, moment_ms: int) -> datetime:
        try:
            return datetime.fromtimestamp(moment_ms / 1000, self.zone)
        except (ValueError, OSError) as error:  # what Python says of years that it does not have
            raise OverflowError(f"moment {moment_ms} ms") from error

    def _calendar(self, today: date, ahead: int) -> str:
        months = _UNIT_MONTHS[self.unit]
        year, month = divmod(today.year * _MONTHS + today.month - 1 + ahead * months, _MONTHS)
        if not 1 <= year <= 9999:
            raise OverflowError(f"year {year}")
        if self.unit == "year":
            return f"{year:04d}"
        return f"{year:04d}{month // 3 + 1}" if self.unit == "quarter" else f"{year:04d}{month + 1:02d}"

    def wanted_partitions(self, now_ms: int) -> list[str]:
        """Return the names of the partitions that shall exist at a moment, the earliest first, up to the year 9999."""
        names: dict[str, None] = {}
        for ahead in range(self.precreate):
            try:
                names[self.value_at(now_ms, ahead)] = None
            except OverflowError:
                break
        return list(names)

    def earliest(self, now_ms: int) -> str | None:
        """Return the smallest time value that is kept at a moment; None when all are."""
        if self.retention < 0:
            return None
        try:
            return self.value_at(now_ms, -self.retention)
        except OverflowError:
            return None

    def is_past(self, name: str, now_ms: int) -> bool:
        """Return whether the partition of a name is past keeping at a moment. One whose value is no time is kept."""
        earliest, value = self.earliest(now_ms), self.time_of(name)
        return earliest is not None and self.is_time(value) and value < earliest

    def past_since(self, name: str, now_ms: int) -> int:
        """Return since when (epoch milliseconds) a partition that is past keeping at a moment is."""
        value, units = self.time_of(name), self.retention + 1
        year, month, day, hour = int(value[:4]), 1, 1, 0
        if self.unit == "quarter":
            month = 3 * int(value[4]) - 2
        elif self.unit != "year":
            month, day, hour = int(value[4:6]), int(value[6:8] or 1), int(value[8:10] or 0)
        if self.unit in {"month", "quarter", "year"}:
            year, month = divmod(year * _MONTHS + month - 1 + units * _UNIT_MONTHS[self.unit], _MONTHS)
            month += 1
        try:
            begin = datetime(year, month, day, tzinfo=self.zone)
            if self.unit == "hour":  # it ends by the clock: where that is put back, it is two hours long
                end = begin.replace(hour=hour) + timedelta(hours=1)
                return int(end.timestamp() * 1000) + self.retention * _HOUR_MS
            return int((begin + timedelta(days=units if self.unit == "day" else 0)).timestamp() * 1000)
        except (ValueError, OverflowError):
            return now_ms

    def is_time(self, value: str) -> bool:
        """Return whether a value is a time in the unit's format."""
        if len(value) != len(_FORMATS[self.unit]) or _DIGITS.fullmatch(value) is None or not value.isascii():
            return False
        if self.unit == "quarter":
            return value[:4] != "0000" and "1" <= value[4] <= "4"
        parts = [int(value[:4]), *(int(value[at : at + 2]) for at in range(4, len(value), 2))]
        try:
            datetime(*[*parts, 1, 1][: max(3, len(parts))])  # type: ignore[arg-type]  # noqa: DTZ001
        except ValueError:
            return False
        return True

    def check(self, name: str, now_ms: int) -> None:
        """Check that a partition of this name may be made at a moment: what is past keeping would be dropped again.

        Raises:
            InvalidPartitionError: Its time is none of the unit, or past keeping.
        """
        value = self.time_of(name)
        if not self.is_time(value):
            raise InvalidPartitionError(
                f"partition {name!r}: expected a {self.unit} ({_FORMATS[self.unit]}) in {self.key!r}, by which the table is "
                f"partitioned automatically, found {value!r}"
            )
        if self.is_past(name, now_ms):
            raise InvalidPartitionError(
                f"partition {name!r}: {self.key} {value!r} is out of date: the table keeps partitions from "
                f"{self.earliest(now_ms)!r} on ({options.AUTO_PARTITION_RETENTION.key}={self.retention})"
            )

    def time_of(self, name: str) -> str:
        """Return the time value in the name of a partition."""
        return partition_values(name)[self.columns.index(self.key)]


def check_auto_partition(columns: tuple[str, ...], properties: Mapping[str, str]) -> None:
    """Check the options of a table's automatic partitions against its partition columns.

    Raises:
        InvalidPropertyError: They do not fit; the text says why.
    """
    given = sorted(key for key in properties if key.startswith(PREFIX))
    if given and not columns:
        raise InvalidPropertyError(f"property {given[0]!r}: the table is not partitioned; give it a partition column")
    key = options.AUTO_PARTITION_KEY.of(properties)
    if key and key not in columns:
        raise InvalidPropertyError(
            f"property {options.AUTO_PARTITION_KEY.key!r}: expected one of the partition columns {list(columns)}, found {key!r}"
        )
    _check_zone(options.AUTO_PARTITION_TIME_ZONE.of(properties))
    precreate = options.AUTO_PARTITION_PRECREATE
    if precreate.of(properties) > PRECREATE_MAX:
        raise InvalidPropertyError(f"property {precreate.key!r}: expected at most {PRECREATE_MAX}")
    if not options.AUTO_PARTITION_ENABLED.of(properties) or len(columns) == 1:
        return
    if not key:
        raise InvalidPropertyError(
            f"property {options.AUTO_PARTITION_KEY.key!r}: expected the one of {list(columns)} that holds the time; with "
            "several partition columns it must be said"
        )
    if precreate.key in properties and precreate.of(properties):
        raise InvalidPropertyError(
            f"property {precreate.key!r}: expected 0 or none with several partition columns, of which only the time is "
            f"known beforehand, found {properties[precreate.key]}"
        )


def _day_name(day: date) -> str:
    return f"{day.year:04d}{day.month:02d}{day.day:02d}"


def _precreate(columns: tuple[str, ...], properties: Mapping[str, str]) -> int:
    return options.AUTO_PARTITION_PRECREATE.of(properties) if len(columns) == 1 else 0


def _check_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidPropertyError(
            f"property {options.AUTO_PARTITION_TIME_ZONE.key!r}: expected a time zone like 'UTC' or 'Europe/Berlin', found "
            f"{name!r}"
        ) from error
