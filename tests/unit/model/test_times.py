"""Moments, durations and sizes as people write them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from fluss_lab.errors import InvalidPropertyError, InvalidTimestampError
from fluss_lab.model.times import format_duration, format_moment, parse_duration, parse_moment, parse_size

NOON = 1_763_640_000_123


@pytest.mark.parametrize(
    "moment",
    [
        NOON,
        "2025-11-20T12:00:00.123Z",
        "2025-11-20 12:00:00.123",
        "2025-11-20T14:00:00.123+02:00",
        datetime(2025, 11, 20, 12, 0, 0, 123_000, tzinfo=UTC),
        datetime(2025, 11, 20, 12, 0, 0, 123_999),
        datetime(2025, 11, 20, 7, 0, 0, 123_000, tzinfo=timezone(timedelta(hours=-5))),
    ],
)
def test_every_form_is_the_same_moment(moment):
    assert parse_moment(moment) == NOON


def test_a_moment_prints_as_it_is_read():
    assert parse_moment(format_moment(NOON)) == NOON


@pytest.mark.parametrize(
    "bad", ["noon", "", -1, 10**18, True, None, 1.5, "2025-13-01", datetime(1969, 1, 1, tzinfo=UTC)]
)
def test_what_is_no_moment_is_refused(bad):
    with pytest.raises(InvalidTimestampError):
        parse_moment(bad)


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
