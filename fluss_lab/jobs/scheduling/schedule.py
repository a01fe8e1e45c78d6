"""A schedule: the due times of a cron text in a time zone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from fluss_lab.errors import InvalidRequestError
from fluss_lab.model.times import time_zone

#: Five fields of every minute of an hour, twice over, are shorter.
CRON_LENGTH_MAX: Final = 400
#: Shorthands of cron.
_SHORTHANDS: Final = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip
_FORM: Final = (
    "expected five fields (minute hour day month weekday, as in '*/5 * * * *'), or @hourly, @daily, @weekly, @monthly"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_TIME: Final = Path("/etc/localtime")


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a job is due.

    A time of day that summer time skips is due right behind the gap; one that it repeats is due once, at its first
    occurrence; schedules of every hour or every so many minutes follow real time. (Debian's cron does the same.)

    Attributes:
        cron: The cron text, with five fields.
        zone: The IANA name of the time zone.
    """

    cron: str
    zone: str

    @staticmethod
    def parse(cron: str, zone: str | None = None) -> Schedule:
        """Return the schedule of a cron text.

        >>> Schedule.parse("@daily", "UTC").cron
        '0 0 * * *'

        Args:
            cron: Five fields, or a shorthand like ``@daily``. A day that is given by its number and by its weekday is due on
                either, as in cron.
            zone: The name of the time zone; None: the system's.

        Raises:
            InvalidRequestError: The text cannot be read, or is never due.
            InvalidPropertyError: There is no such time zone.
        """
        text = _SHORTHANDS.get(cron.strip().lower(), cron)
        shown = cron if len(cron) <= 60 else cron[:60] + "..."
        if len(text) > CRON_LENGTH_MAX or not text.isascii() or not text.isprintable() or len(text.split()) != 5:
            raise InvalidRequestError(f"cron {shown!r}: {_FORM}")
        name = _local_zone() if zone is None else zone
        if not name:
            raise InvalidRequestError("time zone '': expected a name like 'Europe/Berlin' or 'UTC'")
        time_zone(name)
        try:
            next(CronSim(text, _EPOCH))
        except (CronSimError, StopIteration) as error:
            reason = str(error) or "it is never due"
            raise InvalidRequestError(f"cron {shown!r}: {reason[:1].lower()}{reason[1:]}; {_FORM}") from None
        return Schedule(" ".join(text.split()), name)

    @property
    def words(self) -> str:
        """Return when it is due in words.

        >>> Schedule("30 2 * * *", "UTC").words
        'at 02:30 every day'
        """
        text = CronSim(self.cron, _EPOCH).explain()
        return text[:1].lower() + text[1:]

    def after(self, moment_ms: int) -> int:
        """Return the first due time behind a moment, in epoch milliseconds."""
        return next(self._times(moment_ms))

    def between(self, start_ms: int, end_ms: int) -> list[int]:
        """Return the due times in ``(start_ms, end_ms]``, ascending.

        Cost: some 5 µs for each.
        """
        return list(takewhile(lambda due_ms: due_ms <= end_ms, self._times(start_ms)))

    def _times(self, moment_ms: int) -> Iterator[int]:
        start = (_EPOCH + timedelta(milliseconds=moment_ms)).astimezone(ZoneInfo(self.zone))
        for due in CronSim(self.cron, start):
            due_ms = (due - _EPOCH) // timedelta(milliseconds=1)
            if due_ms > moment_ms:
                yield due_ms


def _local_zone() -> str:
    """Return the IANA name of the system's time zone; UTC where the system has none by name."""
    names = [os.environ.get("TZ", "").removeprefix(":")]
    if _LOCAL_TIME.is_symlink():
        names.append(str(_LOCAL_TIME.readlink()).rpartition("zoneinfo/")[2])
    for name in names:
        try:
            if name:
                return ZoneInfo(name).key
        except (ValueError, OSError, KeyError):
            continue
    return "UTC"
