"""A seek finds what a search by hand finds, wherever the record lives."""

import random
from datetime import UTC, datetime

import pytest

from fluss_lab.errors import InvalidTimestampError
from fluss_lab.model.times import format_moment
from tests.unit.read.kit import BUCKETS


def by_hand(table, moment_ms):
    """Return (offset, timestamp) per bucket by looking at every record."""
    found = {}
    for key, end in table.ends.items():
        later = [
            each for each in table.records if (each.partition, each.bucket) == key and each.timestamp_ms >= moment_ms
        ]
        first = min(later, key=lambda each: each.offset, default=None)
        found[key] = (end, None) if first is None else (first.offset, first.timestamp_ms)
    return found


def lives_by_hand(table, key, offset, timestamp_ms):
    starts = {
        (status.partition, status.bucket.bucket): status.start_offset
        for status in table.connection.admin().buckets(table.info)
    }
    if timestamp_ms is None:
        return "end"
    return "local" if key in starts and offset >= starts[key] else "lake"


@pytest.mark.slow
@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
def test_a_seek_agrees_with_a_search_by_hand(make_table, seed, partitioned):
    rng = random.Random(seed)
    table = make_table(partitioned=partitioned)
    lived = set()
    for step in range(12):
        table.append_random(rng, rng.choice([1, 20, 40]), ["2013-01", "2013-02"])
        table.clock.advance(rng.choice([0, 1, 7, 1000]))
        if step % 4 == 1:
            table.tier()
        if step % 4 == 2:
            table.expire()
        if step == 9 and partitioned:
            table.tier()
            table.drop_partition("2013-02")
            break
        times = [record.timestamp_ms for record in table.records]
        for moment in {rng.choice(times) + delta for delta in (-1, 0, 1)} | {0, max(times), table.clock.now_ms()}:
            check(table, min(moment, table.clock.now_ms()), lived)
    times = sorted({record.timestamp_ms for record in table.records})
    for moment in [0, *times, times[-1] + 1]:
        check(table, min(moment, table.clock.now_ms()), lived)
    assert {"lake", "end"} <= lived


def check(table, moment_ms, lived):
    seek = table.reader().seek(moment_ms)
    expected = by_hand(table, moment_ms)
    for each in seek.buckets:
        key = (each.partition, each.bucket)
        offset, timestamp_ms = expected.get(key, (0, None))
        assert (each.offset, each.timestamp_ms) == (offset, timestamp_ms), (key, moment_ms)
        assert each.lives == lives_by_hand(table, key, offset, timestamp_ms)
        lived.add(each.lives)
    assert {(each.partition, each.bucket) for each in seek.buckets} >= set(expected)


def test_a_seek_is_asked_like_a_mapping_and_shown_like_a_table(make_table):
    table, plain = make_table(), make_table(partitioned=False)
    now = table.clock.now_ms()
    table.append_random(random.Random(1), 30, ["2013-01"])
    plain.append_random(random.Random(1), 30, ["2013-01"])
    seek = table.reader().seek(format_moment(now))
    assert seek["2013-01", 1].offset == 0
    assert seek["2013-01", 1].lives == "local"
    assert len(seek) == BUCKETS
    assert set(seek) == {("2013-01", bucket) for bucket in range(BUCKETS)}
    other = plain.reader().seek(datetime.fromtimestamp(now / 1000, UTC))
    assert other[2] == other[None, 2]
    assert set(other) == set(range(BUCKETS))
    assert other.offsets == {(None, bucket): 0 for bucket in range(BUCKETS)}
    frame = seek.to_pandas()
    assert list(frame.columns) == ["partition", "bucket", "offset", "timestamp", "lives"]
    assert seek.to_arrow().num_rows == BUCKETS
    assert "3 local" in repr(seek)
    assert "2013-01" in seek._repr_html_()


def test_a_time_that_has_not_come_yet_is_the_end_of_every_bucket(make_table):
    table = make_table()
    table.append_random(random.Random(2), 30, ["2013-01"])
    for moment in (table.clock.now_ms() + 86_400_000, "2999-01-01T00:00:00Z"):
        seek = table.reader().seek(moment)
        assert seek.offsets == dict(table.ends)
        assert {each.lives for each in seek.buckets} == {"end"}
    table.append_random(random.Random(3), 30, ["2013-01"])
    log = table.reader().changelog(start=seek).to_arrow()
    assert log.num_rows == 30, "it starts where records come next"
    newest = max(log["_commit_timestamp"].to_pylist())
    assert newest == datetime.fromtimestamp(table.clock.now_ms() / 1000, UTC), "a look at the future raises no clock"


def test_a_time_that_cannot_be_is_refused(make_table):
    with pytest.raises(InvalidTimestampError):
        make_table().reader().seek("soon")
