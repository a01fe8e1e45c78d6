"""ListOffsets: earliest, latest and by time, here and in the lake."""

import pytest

from fluss_lab import failpoints
from fluss_lab.errors import InvalidRequestError, InvalidTimestampError, StorageError, error_from_code
from fluss_lab.testing.mock_clock import START_MS
from tests.unit.server.tablet.tablet_kit import Tablet, batch, checked, expiring_tablet

EARLIEST, LATEST, TIMESTAMP = 0, 1, 2


@pytest.fixture
def tablet(tmp_path):
    made = Tablet(tmp_path)
    made.open(0, 1)
    yield made
    made.service.close()


def _error(answer):
    assert answer.HasField("error_code"), answer
    return error_from_code(answer.error_code, answer.error_message)


def test_earliest_and_latest(tablet):
    tablet.produce({0: batch(0, 4)})
    earliest, latest = tablet.offsets(EARLIEST, 0, 1), tablet.offsets(LATEST, 0, 1)
    assert [(a.offset, a.timestamp) for a in earliest.values()] == [(0, START_MS), (0, 0)]
    assert not earliest[1].HasField("timestamp")
    assert [a.offset for a in latest.values()] == [4, 0]


def test_latest_durable_is_made_durable_first(tablet):
    tablet.produce({0: batch(0, 4)})
    assert tablet.describe()[0].durable_offset == 0
    assert tablet.offsets(LATEST, durable=True)[0].offset == 4
    assert tablet.describe()[0].durable_offset == 4
    tablet.produce({0: batch(4, 1)})
    failpoints.arm("tablet.flush.before", "eio")
    assert isinstance(_error(tablet.offsets(LATEST, durable=True)[0]), StorageError)
    assert tablet.offsets(LATEST)[0].offset == 5


def test_by_time(tablet):
    for first in range(3):
        tablet.produce({0: batch(first * 2, 2)})
        tablet.clock.advance(10)
    expected = {START_MS - 1: (0, START_MS), START_MS: (0, START_MS), START_MS + 1: (2, START_MS + 10),
                START_MS + 20: (4, START_MS + 20), START_MS + 21: (6, 0), START_MS + 10**6: (6, 0), 0: (0, START_MS)}  # fmt: skip
    for time_ms, answer in expected.items():
        found = tablet.offsets(TIMESTAMP, startTimestamp=time_ms)[0]
        assert (found.offset, found.timestamp, found.HasField("lake_snapshot_id")) == (*answer, False)
    assert isinstance(_error(tablet.offsets(TIMESTAMP, startTimestamp=-1)[0]), InvalidTimestampError)
    with pytest.raises(InvalidRequestError, match="startTimestamp"):
        tablet.offsets(TIMESTAMP)
    with pytest.raises(InvalidRequestError, match="offset_type"):
        tablet.offsets(3)


def test_a_raised_clock_keeps_the_answer(tablet):
    tablet.produce({0: batch(0, 2)})
    tablet.clock.advance(50)
    now = tablet.clock.now_ms()
    assert isinstance(
        _error(tablet.offsets(TIMESTAMP, startTimestamp=now + 1, raise_clock=True)[0]), InvalidTimestampError
    )
    assert tablet.offsets(TIMESTAMP, startTimestamp=now + 1)[0].offset == 2
    assert tablet.offsets(TIMESTAMP, startTimestamp=now, raise_clock=True)[0].offset == 2
    tablet.clock.set_wall(now - 40)
    tablet.produce({0: batch(2, 1)})
    assert tablet.offsets(TIMESTAMP, startTimestamp=now)[0].offset == 2  # the new record is not before it
    assert tablet.offsets(TIMESTAMP, startTimestamp=now)[0].timestamp == now


def test_with_fsync_a_raised_clock_counts_what_is_not_yet_durable(tmp_path):
    tablet = Tablet(tmp_path, log__durability="fsync")
    tablet.open(0)
    log = tablet.service._store.all()[0].log
    log.append(checked(batch(0, 2)))
    tablet.clock.advance(10)
    assert tablet.offsets(TIMESTAMP, startTimestamp=tablet.clock.now_ms())[0].offset == 0
    assert tablet.offsets(TIMESTAMP, startTimestamp=tablet.clock.now_ms(), raise_clock=True)[0].offset == 2


@pytest.fixture
def half_gone(tmp_path):
    """Offsets [0, 20) at 10 ms apart, of which only those of the last segments are here."""
    tablet = expiring_tablet(tmp_path)
    tablet.service.apply_retention(START_MS + 1_000 + 10 * 10)
    start = tablet.describe()[0].log_start_offset
    assert 3 < start < 12
    return tablet, start


def test_earliest_may_lie_in_the_lake(half_gone):
    tablet, start = half_gone
    assert tablet.offsets(EARLIEST, enable_lake=True)[0].offset == start
    tablet.tell_lake(0, start + 1, start=2, snapshot_id=5)
    answer = tablet.offsets(EARLIEST, enable_lake=True)[0]
    assert (answer.offset, answer.lake_snapshot_id) == (2, 5)
    for asked in ({}, {"enable_lake": True, "local_only": True}):
        answer = tablet.offsets(EARLIEST, **asked)[0]
        assert (answer.offset, answer.timestamp, answer.HasField("lake_snapshot_id")) == (
            start,
            START_MS + start * 10,
            False,
        )


def test_a_time_whose_record_may_have_left_is_looked_for_in_the_lake(half_gone):
    tablet, start = half_gone
    tablet.tell_lake(0, start + 2, snapshot_id=5, max_timestamp_ms=START_MS + (start + 1) * 10)
    first_ms = START_MS + start * 10

    def ask(time_ms, **asked):
        answer = tablet.offsets(TIMESTAMP, startTimestamp=time_ms, **asked)[0]
        return answer.offset, answer.lake_snapshot_id if answer.HasField("lake_snapshot_id") else None

    assert ask(0, enable_lake=True) == (start, 5)
    assert ask(first_ms, enable_lake=True) == (start, 5)  # records before may have the same time
    assert ask(first_ms + 1, enable_lake=True) == (start + 1, None)
    assert ask(first_ms) == (start, None)
    assert ask(0, enable_lake=True, local_only=True) == (start, None)
    # The lake's last record is older: it cannot hold the answer.
    tablet.tell_lake(0, start, snapshot_id=6, max_timestamp_ms=first_ms - 10)
    assert ask(first_ms - 9, enable_lake=True) == (start, None)
    assert ask(first_ms - 10, enable_lake=True) == (start, 6)
    tablet.tell_lake(0, start, snapshot_id=7)  # its last time is not known
    assert ask(first_ms, enable_lake=True) == (start, 7)


@pytest.mark.parametrize(
    ("kind", "place", "asked", "expected"),
    [
        (EARLIEST, "tablet.offsets.before_start", {}, 0),
        (TIMESTAMP, "tablet.offsets.before_log", {"startTimestamp": 0}, None),
    ],
)
def test_what_leaves_for_the_lake_while_an_offset_is_looked_for_is_not_passed_over(
    tmp_path, kind, place, asked, expected
):
    """The lake as it was before the look did not lead up to the log any more, so the log's first offset was the answer."""
    tablet = expiring_tablet(tmp_path)
    tablet.tell_lake(0, 2, snapshot_id=5, max_timestamp_ms=START_MS + 10)

    def leave():
        tablet.tell_lake(0, 20, snapshot_id=6, max_timestamp_ms=START_MS + 190)
        assert tablet.service.apply_retention(START_MS + 1_000 + 10 * 10)

    failpoints.arm(place, leave)
    answer = tablet.offsets(kind, enable_lake=True, **asked)[0]
    start = tablet.describe()[0].log_start_offset
    assert start > 2
    assert (answer.offset, answer.lake_snapshot_id) == (start if expected is None else expected, 6)


def test_a_lake_with_a_hole_behind_it_is_passed_over(half_gone):
    """It was switched off for a while: who began there could not go on."""
    tablet, start = half_gone
    for end, snapshot_id in ((start - 1, None), (start, 5)):
        tablet.tell_lake(0, end, start=2, snapshot_id=5, max_timestamp_ms=START_MS + 1_000)
        for kind, asked in ((EARLIEST, {}), (TIMESTAMP, {"startTimestamp": START_MS})):
            answer = tablet.offsets(kind, enable_lake=True, **asked)[0]
            assert (answer.lake_snapshot_id if answer.HasField("lake_snapshot_id") else None) == snapshot_id
            if snapshot_id is None:
                assert (answer.offset, answer.timestamp) == (start, START_MS + start * 10)


def test_an_empty_log_leaves_times_to_the_lake(half_gone):
    tablet, _ = half_gone
    tablet.clock.advance(10_000)
    tablet.service.apply_retention()
    tablet.tell_lake(0, 20, snapshot_id=5, max_timestamp_ms=START_MS + 190)
    assert tablet.offsets(TIMESTAMP, startTimestamp=START_MS + 190, enable_lake=True)[0].lake_snapshot_id == 5
    later = tablet.offsets(TIMESTAMP, startTimestamp=START_MS + 191, enable_lake=True)[0]
    assert (later.offset, later.HasField("lake_snapshot_id")) == (20, False)


def test_a_log_that_begins_where_the_lake_does_answers_times_itself(tablet):
    tablet.produce({0: batch(0, 2)})
    tablet.tell_lake(0, 2, max_timestamp_ms=START_MS)
    assert not tablet.offsets(TIMESTAMP, startTimestamp=0, enable_lake=True)[0].HasField("lake_snapshot_id")
