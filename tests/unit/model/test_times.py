"""Moments, durations and sizes as people write them."""

import re
import time
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest

from fluss_lab.errors import InvalidPropertyError, InvalidTimestampError
from fluss_lab.model.config.options import CLIENT_TIME_ZONE
from fluss_lab.model.times import (
    fixed_moment,
    format_duration,
    format_moment,
    parse_duration,
    parse_moment,
    parse_size,
    shown_moment,
    time_zone,
    zone_text,
)

NOON = 1_763_640_000_123


BERLIN = time_zone("Europe/Berlin")


@pytest.mark.parametrize(
    "moment",
    [
        NOON,
        np.int64(NOON),
        "2025-11-20T12:00:00.123Z",
        "2025-11-20T14:00:00.123+02:00",
        datetime(2025, 11, 20, 12, 0, 0, 123_000, tzinfo=UTC),
        datetime(2025, 11, 20, 12, 0, 0, 123_999, tzinfo=UTC),
        datetime(2025, 11, 20, 7, 0, 0, 123_000, tzinfo=timezone(timedelta(hours=-5))),
        pd.Timestamp(NOON, unit="ms", tz="America/New_York"),
        # Without a zone, in Berlin's.
        "2025-11-20 13:00:00.123",
        datetime(2025, 11, 20, 13, 0, 0, 123_000),
        pd.Timestamp("2025-11-20 13:00:00.123456789"),
        np.datetime64("2025-11-20T13:00:00.123"),
    ],
    ids=repr,
)
def test_every_form_is_the_same_moment(moment):
    assert parse_moment(moment, BERLIN) == NOON


def test_a_moment_prints_as_it_is_read():
    assert parse_moment(format_moment(NOON), BERLIN) == NOON


@pytest.fixture(params=["America/New_York", "Asia/Kolkata", "UTC"])
def system_zone(request, monkeypatch):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield time_zone(request.param)
    monkeypatch.undo()
    time.tzset()


def test_what_has_no_zone_is_in_the_systems_as_for_python(system_zone):
    for naive in (datetime(2026, 7, 1, 12), datetime(2026, 1, 1, 12)):
        expected = int(naive.timestamp() * 1000)
        for form in (naive, pd.Timestamp(naive), np.datetime64(naive), naive.isoformat()):
            assert parse_moment(form) == parse_moment(form, system_zone) == expected
    now = datetime.now()  # noqa: DTZ005 - as a person writes it
    assert abs(parse_moment(now) - time.time() * 1000) < 10_000


def test_dates_and_words_are_of_the_zone():
    for zone in (BERLIN, UTC, time_zone("Asia/Tokyo")):
        assert parse_moment(date(2026, 7, 1), zone) == parse_moment("2026-07-01", zone)
        today, before = datetime.now(zone).date(), None
        while today != before:  # once, unless midnight passes
            found = parse_moment("Today", zone), parse_moment("yesterday", zone)
            today, before = datetime.now(zone).date(), today
        assert found == (parse_moment(today, zone), parse_moment(today - timedelta(days=1), zone))
    assert parse_moment(date(2026, 7, 1), BERLIN) == parse_moment("2026-06-30T22:00:00Z")
    before, *found, after = (parse_moment(text) for text in ("now", "10 minutes ago", " 2h ago ", "now"))
    assert before <= found[0] + 600_000 <= found[1] + 7_200_000 <= after


@pytest.mark.parametrize(
    "bad",
    ["noon", "", -1, 10**18, True, None, 1.5, "2025-13-01", datetime(1969, 1, 1, tzinfo=UTC), pd.NaT, float("nan"),
     np.datetime64("NaT", "ns"), datetime(1, 1, 1), datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))), datetime.min.replace(tzinfo=UTC), np.bool_(True), b"now",
     "3 fortnights ago", "-1 days ago", "999999999 days ago", np.datetime64("10000-01-01"), object(), [1]],
    ids=lambda each: "object" if type(each) is object else repr(each),
)  # fmt: skip
def test_what_is_no_moment_is_refused(bad):
    for zone in (None, BERLIN):
        with pytest.raises(InvalidTimestampError):
            parse_moment(bad, zone)


def test_seconds_are_not_taken_for_milliseconds():
    for seconds in (1, NOON // 1000, 4_102_444_800):
        with pytest.raises(InvalidTimestampError, match="seconds"):
            parse_moment(seconds)
    with pytest.raises(InvalidTimestampError, match=r"int\(time\.time\(\) \* 1000\)"):
        parse_moment(NOON / 1000)
    assert parse_moment(0) == 0


@pytest.mark.parametrize("bad", ["Mars/Olympus", "../etc/passwd", 5, None, "/etc/passwd"])
def test_a_zone_that_is_none_is_refused(bad):
    with pytest.raises(InvalidPropertyError, match=r"client\.time-zone"):
        CLIENT_TIME_ZONE.parse(bad)


def test_a_moment_is_fixed_once():
    fixed = fixed_moment("2026-07-01 12:00", BERLIN)
    assert shown_moment(fixed) == "2026-07-01T10:00:00.000Z"
    assert fixed_moment(fixed, None) == fixed
    assert type(fixed_moment(np.int64(2**60), BERLIN)) is int
    mapping = {0: 5}
    assert fixed_moment(mapping, BERLIN) is mapping


def test_a_zone_is_shown_by_its_name_and_the_systems_with_its_offset(system_zone):
    assert zone_text(system_zone) == system_zone.key
    assert re.fullmatch(r".+ \(UTC[+-]\d\d:\d\d\)", zone_text(None))


@pytest.mark.parametrize(
    ("text", "amount_ms"),
    [("10s", 10_000), ("3 min", 180_000), ("7d", 604_800_000), ("5", 5), (7, 7), ("2 Hours", 7_200_000)],
)
def test_durations(text, amount_ms):
    assert parse_duration(text) == amount_ms
    assert parse_duration(format_duration(amount_ms)) == amount_ms


@pytest.mark.parametrize("bad", ["", "s", "-1s", "1.5s", "1 fortnight", None, True, -3])
def test_bad_durations(bad):
    with pytest.raises(InvalidPropertyError):
        parse_duration(bad)


def test_sizes():
    assert parse_size("64mb") == 64 << 20
    assert parse_size("1 GB") == 1 << 30
    assert parse_size(17) == 17
    with pytest.raises(InvalidPropertyError):
        parse_size("many")
