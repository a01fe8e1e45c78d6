"""A schedule: the due times of a cron text in a time zone."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
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
#: Steps from a value to itself, which cronsim would have go on to the largest value.
_STEPS_OF_ONE: Final = re.compile(r"\b0*(\w+)-0*\1/\d+\b", re.IGNORECASE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NONE: Final = timedelta(0)
_SECOND: Final = timedelta(seconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_HOURS: Final = 24
_LOCAL_TIME: Final = Path("/etc/localtime")
_ZONE_NAME: Final = Path("/etc/timezone")


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a job is due.

    A time of day that summer time skips is due right behind the gap, once; one that it repeats is due once, at its first
    occurrence, unless the minute begins with ``*``. Schedules of every hour follow real time: what is skipped is not due, what is
    repeated is due again.

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
            InvalidRequestError: The text cannot be read, or is never due; or the system's zone has no name.
            InvalidPropertyError: There is no such time zone.
        """
        text = _SHORTHANDS.get(cron.strip().lower(), cron)
        shown = cron if len(cron) <= 60 else cron[:60] + "..."
        if len(text) > CRON_LENGTH_MAX or not text.isascii() or not text.isprintable() or len(text.split()) != 5:
            raise InvalidRequestError(f"cron {shown!r}: {_FORM}")
        name = local_zone(os.environ) if zone is None else zone
        if not name:
            raise InvalidRequestError("time zone '': expected a name like 'Europe/Berlin' or 'UTC'")
        time_zone(name)
        try:
            next(_cronsim(text, _EPOCH))
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
        text = _cronsim(self.cron, _EPOCH).explain()
        return text[:1].lower() + text[1:]

    def next_due(self, moment_ms: int) -> int:
        """Return the first due time behind a moment, in epoch milliseconds.

        Raises:
            InvalidRequestError: Of a schedule that was not parsed here: its cron text or its zone cannot be read.
        """
        return next(self._times(moment_ms))

    def due_times(self, start_ms: int, end_ms: int) -> list[int]:
        """Return the due times in ``(start_ms, end_ms]``, ascending.

        Cost: some 10 µs for each.
        """
        return list(takewhile(lambda due_ms: due_ms <= end_ms, self._times(start_ms)))

    def _times(self, moment_ms: int) -> Iterator[int]:
        """Yield the due times behind a moment, ascending, each once."""
        try:
            zone = ZoneInfo(self.zone)
            local = _cronsim(self.cron, _first_local(moment_ms, zone))
        except (CronSimError, KeyError, ValueError, OSError) as error:
            raise InvalidRequestError(
                f"cron {self.cron!r} in {self.zone!r}: it cannot be read here ({error}); expected a cron text, and a time zone that this "
                "machine knows: enter the job again"
            ) from error
        last_ms = moment_ms
        for due in _moments(local, zone):
            due_ms = (due - _EPOCH.replace(tzinfo=None)) // _MILLISECOND
            if due_ms > last_ms:
                last_ms = due_ms
                yield due_ms


def _cronsim(text: str, start: datetime) -> CronSim:
    return CronSim(_STEPS_OF_ONE.sub(r"\1", text), start)


def _first_local(moment_ms: int, zone: ZoneInfo) -> datetime:
    """Return a local time behind which all are that are due behind a moment."""
    moment = (_EPOCH + moment_ms * _MILLISECOND).astimezone(zone)
    local = moment.replace(tzinfo=None, fold=0)
    before, behind = _offsets(local, zone)
    # At its first occurrence earlier local times will come again, too.
    return local - (before - behind) if moment.fold == 0 else local


def _moments(times: CronSim, zone: ZoneInfo) -> Iterator[datetime]:
    """Yield when local times come, ascending, in UTC; cronsim's own reckoning in a zone loses those about a change of clocks.

    Args:
        times: The local times, ascending; datetimes here have no zone.
        zone: The zone.
    """
    is_of_every_hour = len(times.hours) == _HOURS
    comes_again = is_of_every_hour or times.parts[1].startswith("*")
    again: deque[datetime] = deque()
    for local in times:
        before, behind = _offsets(local, zone)
        first = local - before
        if behind > before:
            if is_of_every_hour:
                continue
            first = _gap_end(local - behind, first, zone)
        while again and again[0] < first:
            yield again.popleft()
        yield first
        if behind < before and comes_again:
            again.append(local - behind)


def _offsets(local: datetime, zone: ZoneInfo) -> tuple[timedelta, timedelta]:
    """Return a zone's offsets before and behind the change of clocks that a local time is at; else twice the one that it has."""
    first = local.replace(tzinfo=zone)
    return first.utcoffset() or _NONE, first.replace(fold=1).utcoffset() or _NONE


def _gap_end(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment in ``(low, high]`` at which a zone's clocks are put forward."""
    before = _offset_at(low, zone)
    while (span := (high - low) // _SECOND) > 1:
        middle = low + span // 2 * _SECOND
        low, high = (middle, high) if _offset_at(middle, zone) == before else (low, middle)
    return high


def _offset_at(moment: datetime, zone: ZoneInfo) -> timedelta:
    return moment.replace(tzinfo=UTC).astimezone(zone).utcoffset() or _NONE


def local_zone(environment: Mapping[str, str], local_time: Path = _LOCAL_TIME, zone_name: Path = _ZONE_NAME) -> str:
    """Return the IANA name of the system's time zone; UTC where none is set, as the C library has it.

    Args:
        environment: With ``TZ``, which counts most.
        local_time: The file with the system's zone, which mostly is a link to that of a name.
        zone_name: The file with its name, where it is a copy.

    Raises:
        InvalidRequestError: The zone has no name: jobs in another one would run at other times than expected.
    """
    given = environment.get("TZ", "").removeprefix(":")
    file = Path(given) if given.startswith("/") else local_time
    if given and file is local_time:
        names = [given]
    elif file.is_symlink() or file.exists():
        target = str(file.readlink() if file.is_symlink() else file)
        names = [target.rpartition("zoneinfo/")[2], *_first_line(zone_name if file == local_time else None)]
    else:
        return "UTC"
    for name in names:
        with suppress(ValueError, OSError, KeyError):
            return ZoneInfo(name).key
    shown = f"TZ={given[:60]!r}" if given else str(file)
    raise InvalidRequestError(
        f"time zone: the system's has no name ({shown}); expected one, by time_zone (--time-zone): like 'Europe/Berlin' or 'UTC'"
    )


def _first_line(path: Path | None) -> list[str]:
    with suppress(OSError, ValueError):
        return [] if path is None else path.read_text().split()[:1]
    return []
