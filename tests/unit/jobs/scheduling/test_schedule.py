"""Due times: what cron says, once each, also where clocks are put forward and back."""

import os
import time
from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from fluss_lab.errors import InvalidPropertyError, InvalidRequestError
from fluss_lab.jobs.scheduling.schedule import Schedule

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_MS = 3_600_000


def ms(text):
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def shown(due, zone=BERLIN):
    return [datetime.fromtimestamp(each / 1000, zone).isoformat()[5:16] for each in due]


def test_a_time_that_summer_time_skips_is_due_behind_the_gap():
    due = Schedule.parse("30 2 * * *", "Europe/Berlin").between(
        ms("2026-03-28T00:00+01:00"), ms("2026-03-30T12:00+02:00")
    )
    assert shown(due) == ["03-28T02:30", "03-29T03:00", "03-30T02:30"]


def test_a_time_that_comes_twice_is_due_once():
    due = Schedule.parse("30 2 * * *", "Europe/Berlin").between(
        ms("2026-10-24T00:00+02:00"), ms("2026-10-26T12:00+01:00")
    )
    assert shown(due) == ["10-24T02:30", "10-25T02:30", "10-26T02:30"]


@pytest.mark.parametrize("start", ["2026-03-28T12:00+01:00", "2026-10-24T12:00+02:00"])
@pytest.mark.parametrize("cron", ["0 * * * *", "*/15 * * * *", "@hourly"])
def test_what_is_due_every_so_often_follows_real_time(start, cron):
    due = Schedule.parse(cron, "Europe/Berlin").between(ms(start), ms(start) + 24 * HOUR_MS)
    assert {later - earlier for earlier, later in pairwise(due)} == {HOUR_MS if "15" not in cron else HOUR_MS // 4}


@pytest.mark.parametrize(
    "cron", ["30 2 * * *", "*/7 * * * *", "0 1-3 * * *", "15,45 2 * * 0", "0 2,3 25-31 * *", "59 1 * * *"]
)
@pytest.mark.parametrize("start", ["2026-03-28T00:00+01:00", "2026-10-24T00:00+02:00"])
def test_going_on_from_any_due_time_gives_the_same_times(cron, start):
    """A scheduler that is killed behind one, and goes on from there, misses none and has none twice."""
    schedule = Schedule.parse(cron, "Europe/Berlin")
    due = schedule.between(ms(start), ms(start) + 72 * HOUR_MS)
    assert due == sorted(set(due))
    assert [schedule.after(each) for each in due[:-1]] == due[1:]
    assert [schedule.after(each - 1) for each in due] == due


def test_a_day_by_number_or_by_weekday():
    due = Schedule.parse("0 0 13 * FRI", "UTC").between(ms("2026-03-01T00:00Z"), ms("2026-03-31T00:00Z"))
    assert shown(due, ZoneInfo("UTC")) == ["03-06T00:00", "03-13T00:00", "03-20T00:00", "03-27T00:00"]


def test_sunday_is_0_and_7():
    for day in ("0", "7", "SUN"):
        assert shown([Schedule.parse(f"0 0 * * {day}", "UTC").after(ms("2026-03-02T00:00Z"))]) == ["03-08T01:00"]


@pytest.mark.parametrize(
    "cron",
    [
        "", " ", "* * * *", "* * * * * *", "61 * * * *", "*/0 * * * *", "a b c d e", "0 0 31 2 *", "0 0 30 2 *", "* * * * 8",
        "@reboot", "0 0 * * * ; rm -rf /", "* * * * *\n* * * * *", "0\0 * * * *", "1-99999999999999999999 * * * *", "٣ * * * *",
        "0 " * 100_000, "0," * 100_000 + " * * * *", "R R * * *", "H * * * *", "5-1 * * * *", "-1 * * * *", "0x1 * * * *",
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused_at_once(cron):
    started_s = time.thread_time()
    with pytest.raises(InvalidRequestError, match="expected five fields") as refused:
        Schedule.parse(cron, "UTC")
    assert len(str(refused.value)) < 400
    assert time.thread_time() - started_s < 1


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "/etc/passwd", "a\0b", "EUROPE/" + "x" * 5000])
def test_an_unknown_zone_is_refused(zone):
    with pytest.raises(InvalidPropertyError, match="time zone"):
        Schedule.parse("@daily", zone)
    with pytest.raises(InvalidRequestError, match="time zone"):
        Schedule.parse("@daily", "")


def test_without_a_zone_it_is_the_systems(monkeypatch):
    monkeypatch.setitem(os.environ, "TZ", "Asia/Tokyo")
    assert Schedule.parse("0 9 * * *").zone == "Asia/Tokyo"
    monkeypatch.setitem(os.environ, "TZ", "no zone at all")
    assert ZoneInfo(Schedule.parse("0 9 * * *").zone)
