"""Which moment of a table is meant: zones, times before it was made, numbers of numpy and pandas, buckets that are not."""

import random
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from fluss_lab.errors import BucketNotFoundError, InvalidRequestError, InvalidTimestampError, OffsetOutOfRangeError
from fluss_lab.model.times import format_moment
from fluss_lab.read.changelog.table_stream import start_text

NEW_YORK = ZoneInfo("America/New_York")


@pytest.fixture
def table(make_table):
    made = make_table(partitioned=False)
    made.clock.advance(5_000)
    made.append_random(random.Random(1), 20, ["2013-01"])
    made.clock.advance(5_000)
    made.append_random(random.Random(2), 20, ["2013-01"])
    made.clock.advance(5_000)
    return made


def naive_forms(moment_ms: int) -> list[object]:
    naive = datetime.fromtimestamp(moment_ms / 1000, NEW_YORK).replace(tzinfo=None)
    return [naive, naive.isoformat(), pd.Timestamp(naive), np.datetime64(naive)]


def test_times_without_a_zone_are_in_that_of_the_lab(table, monkeypatch):
    between = table.records[0].timestamp_ms + 1000
    monkeypatch.setattr(table.connection, "time_zone", NEW_YORK)
    reader = table.reader()
    for moment in [*naive_forms(between), between, np.int64(between), format_moment(between)]:
        scan = reader.scan(as_of=moment)
        assert scan.count() == 20, moment
        assert format_moment(between) in repr(scan.explain())
        assert reader.seek(moment).moment_ms == between
        log = reader.changelog(start=moment)
        assert log.to_arrow().num_rows == 20, moment
        assert reader.changelog(end=moment).to_arrow().num_rows == 20, moment
        assert reader.diff(moment).added.num_rows == 20
        if not isinstance(moment, int | np.integer):
            assert format_moment(between) in repr(log)
            assert start_text(table.info, moment, NEW_YORK) == format_moment(between)


def test_a_time_before_the_table_was_made_is_no_empty_table(table):
    made = table.info.created_ms
    reader = table.reader()
    assert reader.scan(as_of=made).count() == 0
    for early in (made - 1, format_moment(made - 1), datetime(1990, 1, 1), 0):
        for ask in (lambda at: reader.scan(as_of=at), reader.read_point, reader.diff, lambda at: reader.diff(made, at)):
            with pytest.raises(InvalidTimestampError, match=f"made at {format_moment(made)}"):
                ask(early)
        # The first record at or after it is known, and so are those before it: none.
        assert set(reader.seek(early).offsets.values()) == {0}
        assert reader.changelog(start=early).to_arrow().num_rows == 40
        assert reader.changelog(end=early).to_arrow().num_rows == 0


def test_seconds_floats_and_microseconds_are_refused(table):
    reader, now = table.reader(), table.clock.now_ms()
    for ask in (lambda at: reader.scan(as_of=at), reader.seek, lambda at: reader.changelog(at).to_arrow(), reader.diff):
        for wrong in (now / 1000, float(now), np.float64(now), pd.NaT):
            with pytest.raises((InvalidTimestampError, InvalidRequestError)):
                ask(wrong)
    for ask in (lambda at: reader.scan(as_of=at), reader.seek, lambda at: reader.changelog(at).to_arrow()):
        with pytest.raises(InvalidTimestampError, match="seconds"):
            ask(now // 1000)


def test_numbers_of_pandas_are_numbers(table):
    report = table.tier()
    table.append_random(random.Random(3), 5, ["2013-01"])
    table.clock.advance(5_000)
    reader = table.reader()
    frame = reader.changelog().to_pandas()
    ids = pd.Series([report.snapshot_id], dtype="Int64")
    assert reader.scan(as_of=ids[0]).count() == 40
    assert reader.changelog(start=ids[0]).to_arrow().num_rows == 5
    starts = frame.groupby("_bucket")["_log_offset"].max().to_dict()
    assert reader.changelog(start=dict(starts)).to_arrow().num_rows == len(starts)
    numbers = list(frame["_bucket"].unique()[:1])
    assert set(reader.changelog(buckets=numbers).to_arrow()["_bucket"].to_pylist()) == set(numbers)
    assert reader.scan(as_of=frame["_commit_timestamp"].iloc[-1] + timedelta(0)).count() == 45


def test_the_moment_of_a_lake_snapshot_is_that_of_its_newest_record(table):
    report = table.tier()
    newest_ms = max(record.timestamp_ms for record in table.records)
    table.clock.advance(5_000)
    table.append_random(random.Random(3), 5, ["2013-01"])
    assert table.reader().read_point(report.snapshot_id).moment_ms == newest_ms < table.clock.now_ms()
    assert f" from {format_moment(newest_ms)} to " in repr(table.reader().diff(report.snapshot_id))


def test_buckets_and_starts_that_are_not_are_errors(table, make_table):
    reader = table.reader()
    for wrong in ([9], [-1], [True], [0.0], ["0"], [None], [(None, 9)], [("x", 0)], [(0, 0, 0)], [[0]]):
        with pytest.raises(BucketNotFoundError):
            reader.changelog(buckets=wrong).to_arrow()
    end = table.ends[None, 0]
    assert reader.changelog(start={0: end}).to_arrow().num_rows == 0
    with pytest.raises(OffsetOutOfRangeError, match=f"found {end + 1}"):
        reader.changelog(start={0: end + 1}).to_arrow()
    for wrong in ({0: -1}, {0: 1.0}, {0: "1"}, {0: None}, {0: True}):
        with pytest.raises(InvalidRequestError):
            reader.changelog(start=wrong).to_arrow()
    for wrong in ({9: 0}, {"0": 0}, {(0, 0, 0): 0}, {None: 0}, {("x", 0): 0}):
        with pytest.raises(BucketNotFoundError):
            reader.changelog(start=wrong).to_arrow()
