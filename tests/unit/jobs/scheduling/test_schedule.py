"""Due times: what cron says, once each, also where clocks are put forward and back."""

import os
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim

from fluss_lab.errors import InvalidPropertyError, InvalidRequestError
from fluss_lab.jobs.scheduling.schedule import Schedule, local_zone

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_MS = 3_600_000


def ms(text):
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def shown(due, zone=BERLIN):
    return [datetime.fromtimestamp(each / 1000, zone).isoformat()[5:16] for each in due]


def test_a_time_that_summer_time_skips_is_due_behind_the_gap():
    due = Schedule.parse("30 2 * * *", "Europe/Berlin").due_times(
        ms("2026-03-28T00:00+01:00"), ms("2026-03-30T12:00+02:00")
    )
    assert shown(due) == ["03-28T02:30", "03-29T03:00", "03-30T02:30"]


def test_a_time_that_comes_twice_is_due_once():
    due = Schedule.parse("30 2 * * *", "Europe/Berlin").due_times(
        ms("2026-10-24T00:00+02:00"), ms("2026-10-26T12:00+01:00")
    )
    assert shown(due) == ["10-24T02:30", "10-25T02:30", "10-26T02:30"]


@pytest.mark.parametrize("start", ["2026-03-28T12:00+01:00", "2026-10-24T12:00+02:00"])
@pytest.mark.parametrize("cron", ["0 * * * *", "*/15 * * * *", "@hourly"])
def test_what_is_due_every_so_often_follows_real_time(start, cron):
    due = Schedule.parse(cron, "Europe/Berlin").due_times(ms(start), ms(start) + 24 * HOUR_MS)
    assert {later - earlier for earlier, later in pairwise(due)} == {HOUR_MS if "15" not in cron else HOUR_MS // 4}


@pytest.mark.parametrize(
    "cron", ["30 2 * * *", "*/7 * * * *", "0 1-3 * * *", "15,45 2 * * 0", "0 2,3 25-31 * *", "59 1 * * *"]
)
@pytest.mark.parametrize("start", ["2026-03-28T00:00+01:00", "2026-10-24T00:00+02:00"])
def test_going_on_from_any_due_time_gives_the_same_times(cron, start):
    """A scheduler that is killed behind one, and goes on from there, misses none and has none twice."""
    schedule = Schedule.parse(cron, "Europe/Berlin")
    due = schedule.due_times(ms(start), ms(start) + 72 * HOUR_MS)
    assert due == sorted(set(due))
    assert [schedule.next_due(each) for each in due[:-1]] == due[1:]
    assert [schedule.next_due(each - 1) for each in due] == due


def test_a_day_by_number_or_by_weekday():
    due = Schedule.parse("0 0 13 * FRI", "UTC").due_times(ms("2026-03-01T00:00Z"), ms("2026-03-31T00:00Z"))
    assert shown(due, ZoneInfo("UTC")) == ["03-06T00:00", "03-13T00:00", "03-20T00:00", "03-27T00:00"]


@pytest.mark.parametrize("hours", ["9-9/3", "09-9/2", "9-9/1,9", "4-4/7,9"])
def test_steps_from_a_value_to_itself_are_that_value(hours):
    """Cronsim has them go on to the largest value."""
    found = {each[6:] for each in shown(Schedule.parse(f"0 {hours} * * *", "UTC").due_times(0, 48 * HOUR_MS), UTC)}
    assert found == ({"04:00", "09:00"} if "4" in hours else {"09:00"})


def test_sunday_is_0_and_7():
    for day in ("0", "7", "SUN"):
        assert shown([Schedule.parse(f"0 0 * * {day}", "UTC").next_due(ms("2026-03-02T00:00Z"))]) == ["03-08T01:00"]


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
    monkeypatch.setitem(os.environ, "TZ", "UTC-3")
    with pytest.raises(InvalidRequestError, match=r"has no name \(TZ='UTC-3'\); expected one, by time_zone"):
        Schedule.parse("0 9 * * *")
    assert Schedule.parse("0 9 * * *", "UTC").zone == "UTC"


def test_the_systems_zone_is_found_by_its_name_or_refused(tmp_path):
    """A job that is put into another zone runs hours early or late."""
    link, copy, name, none = (tmp_path / each for each in ("link", "copy", "name", "none"))
    link.symlink_to("/nowhere/zoneinfo/Asia/Tokyo")
    copy.write_bytes(b"TZif2")
    name.write_text("America/Havana\n")
    assert local_zone({}, link, none) == "Asia/Tokyo"
    assert local_zone({"TZ": f":{link}"}, copy, name) == "Asia/Tokyo"
    assert local_zone({}, copy, name) == "America/Havana"
    assert local_zone({}, none, none) == "UTC"
    assert (
        local_zone({"TZ": "Europe/Berlin"}, copy, none)
        == local_zone({"TZ": ":Europe/Berlin"}, none, none)
        == "Europe/Berlin"
    )
    for environment, file in (({}, copy), ({"TZ": "EST+5"}, none), ({"TZ": str(copy)}, none), ({"TZ": "<-03>3"}, link)):
        with pytest.raises(InvalidRequestError, match="the system's has no name"):
            local_zone(environment, file, none)


#: Clocks that are put forward at midnight, by half an hour, back at midnight, over the date line, and in Berlin.
CHANGES = [
    ("Africa/Cairo", "2026-04-23"), ("America/Havana", "2026-03-08"), ("America/Santiago", "2026-09-05"), ("Asia/Beirut", "2026-03-29"),
    ("America/Sao_Paulo", "2017-10-15"), ("America/Sao_Paulo", "2018-02-17"), ("Australia/Lord_Howe", "2026-10-03"),
    ("Australia/Lord_Howe", "2026-04-04"), ("America/St_Johns", "2009-11-01"), ("Pacific/Apia", "2011-12-29"),
    ("Europe/Berlin", "2026-03-29"), ("Europe/Berlin", "2026-10-25"), ("America/Havana", "2026-11-01"),
]  # fmt: skip
MINUTE_FIELDS = ["0", "15", "30", "59", "*", "*/20", "0,30", "5-10", "45/5"]
HOUR_FIELDS = ["*", "0", "0", "1", "2", "3", "23", "*/6", "*/2", "0-2", "22-23", "0-23", "1,3"]
DAY_FIELDS = ["* * *", "* * *", "* * 0", "* * SUN", "*/2 * *", "L * *", "1-7 * 6", "* 3,10 *"]


def due_by_the_clock(cron, zone, start_ms, end_ms):
    """What a person with a clock on the wall would do, who looks at it each minute."""
    fields = CronSim(cron, datetime(2000, 1, 1))
    is_hourly = len(fields.hours) == 24
    comes_again = is_hourly or cron.startswith("*")
    seen, found, last = set(), [], None
    for moment_ms in range(start_ms - 86_400_000, end_ms + 1, 60_000):
        wall = datetime.fromtimestamp(moment_ms / 1000, zone).replace(tzinfo=None, fold=0)
        shown = [wall] if wall not in seen or comes_again else []
        if last is not None and not is_hourly:
            skipped = range(1, (wall - last) // timedelta(minutes=1))
            shown += [last + timedelta(minutes=each) for each in skipped]
        if moment_ms > start_ms and any(
            each.minute in fields.minutes and each.hour in fields.hours and each.month in fields.months and fields.match_day(each)
            for each in shown
        ):  # fmt: skip
            found.append(moment_ms)
        seen.add(wall)
        last = wall
    return found


def change_of(zone, day_ms):
    """Return the first day from a day on at which a zone's clocks change within a year, if they do."""

    def offset(ms_):
        return datetime.fromtimestamp(ms_ / 1000, zone).utcoffset()

    days = (day_ms + each * 86_400_000 for each in range(366))
    return next((each for each in days if offset(each) != offset(each + 86_400_000)), None)


def test_about_a_change_of_clocks_it_is_due_when_a_clock_on_the_wall_says(rng):
    """In any zone; asked from any moment, also from just before a due time, as the scheduler asks."""
    zones = sorted(available_timezones())
    places = [(name, ms(f"{day}T00:00Z") - 86_400_000) for name, day in CHANGES]
    while len(places) < len(CHANGES) + 10:
        name = rng.choice(zones)
        change = change_of(ZoneInfo(name), ms(f"{rng.randint(1975, 2037)}-01-01T00:00Z"))
        places += [(name, change - 12 * HOUR_MS)] if change is not None else []
    for name, start in places:
        cron = f"{rng.choice(MINUTE_FIELDS)} {rng.choice(HOUR_FIELDS)} {rng.choice(DAY_FIELDS)}"
        schedule, end = Schedule.parse(cron, name), start + 60 * HOUR_MS
        due = due_by_the_clock(schedule.cron, ZoneInfo(name), start, end)
        shown_as = f"{cron!r} in {name} about {datetime.fromtimestamp(start / 1000, UTC)}"
        assert schedule.due_times(start, end) == due, shown_as
        for each in due if len(due) < 30 else rng.sample(due, 30):
            assert schedule.next_due(each - 1) == each, shown_as
        for moment in [rng.randrange(start, end) for _ in range(10)]:
            assert schedule.due_times(moment, end) == [each for each in due if each > moment], shown_as


@pytest.mark.parametrize(
    ("cron", "zone", "day", "expected"),
    [
        ("*/30 0 * * 0", "America/Havana", "2026-03-08", ["03-08T01:00"]),
        ("0 */6 * * *", "America/Havana", "2026-03-08", ["03-08T01:00", "03-08T06:00", "03-08T12:00", "03-08T18:00"]),
        ("*/20 3 * * *", "Australia/Lord_Howe", "2026-10-04", ["10-04T03:00", "10-04T03:20", "10-04T03:40"]),
        ("0 */6 * * *", "Australia/Lord_Howe", "2026-10-04", ["10-04T00:00", "10-04T06:00", "10-04T12:00", "10-04T18:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", ["10-04T02:30"]),
        ("*/15 2 * * *", "Europe/Berlin", "2026-03-29", ["03-29T03:00"]),
        ("0 */2 * * *", "Europe/Berlin", "2026-10-25", [f"10-25T{hour:02}:00" for hour in range(0, 24, 2)]),
        ("*/30 2 * * *", "Europe/Berlin", "2026-10-25", ["10-25T02:00", "10-25T02:30"] * 2),
    ],
)  # fmt: skip
def test_nothing_is_lost_or_doubled_where_clocks_change(cron, zone, day, expected):
    there = ZoneInfo(zone)
    start, end = (
        int(datetime.fromisoformat(f"{day}T{at}").replace(tzinfo=there).timestamp() * 1000) for at in ("00:00", "23:59")
    )
    assert shown(Schedule.parse(cron, zone).due_times(start - 1, end), there) == expected


def test_what_comes_again_is_found_from_within_its_first_time():
    """At 02:50 of the first time, 02:00 to 02:45 are still to come, once more."""
    due = Schedule.parse("*/15 * * * *", "Europe/Berlin").due_times(
        ms("2026-10-25T02:50+02:00"), ms("2026-10-25T02:45+01:00")
    )
    assert shown(due) == ["10-25T02:00", "10-25T02:15", "10-25T02:30", "10-25T02:45"]
