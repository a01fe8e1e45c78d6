"""The changelog: exact offsets of any range, across the border of lake and log."""

import random

import pyarrow as pa
import pytest

from fluss_lab.client import Connection
from fluss_lab.errors import (
    BucketNotFoundError,
    InvalidRequestError,
    InvalidSchemaError,
    InvalidTimestampError,
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
    UnsupportedError,
)
from fluss_lab.read.table_reader import TableReader
from tests.unit.client.log.fetch_hook import hook_fetches
from tests.unit.read.kit import BUCKETS, rows_of

SYSTEM = ["_change_type", "_partition", "_bucket", "_log_offset", "_commit_timestamp"]


def expected(table, starts=None, stops=None, columns=("id", "month", "delay", "ratio", "dest")):
    """Return the changelog's rows by the model; a bucket that `starts` or `stops` leave out is not read."""
    names = table.info.schema.names
    found = []
    for each in sorted(table.records, key=lambda record: record.key):
        key = (each.partition, each.bucket)
        if starts is not None and (key not in starts or each.offset < starts[key]):
            continue
        if stops is not None and (key not in stops or each.offset >= stops[key]):
            continue
        row = {"_change_type": "+A"}
        if table.partitioned:
            row["_partition"] = each.partition
        row |= {"_bucket": each.bucket, "_log_offset": each.offset, "_commit_timestamp": each.timestamp_ms}
        values = dict(zip(names, each.row, strict=True))
        found.append(row | {name: values[name] for name in columns})
    return found


def found(log):
    table = log.to_arrow()
    assert table.schema == log.schema
    place = table.column_names.index("_commit_timestamp")
    millis = table.column(place).cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return rows_of(table.set_column(place, "_commit_timestamp", millis))


def agree(log, rows):
    got = found(log)
    assert [list(row) for row in got[:1]] == [list(row) for row in rows[:1]]
    assert [repr(row) for row in got] == [repr(row) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
def test_any_range_is_exact_over_a_random_history(make_table, seed, partitioned):
    rng = random.Random(seed)
    table = make_table(partitioned=partitioned)
    months = ["2013-01", "2013-02"]
    seen = set()
    for step in range(30):
        table.append_random(rng, rng.choice([1, 10, 60]), months)
        table.clock.advance(rng.choice([0, 1, 100]))
        if step % 5 == 1:
            table.tier()
        if step % 5 == 3:
            table.expire()
        if step == 20:
            months.append("2013-03")
        starts = {key: rng.randint(0, end) for key, end in table.ends.items()}
        stops = {key: rng.randint(starts[key], end) for key, end in table.ends.items()}
        for key in rng.sample(sorted(starts, key=str), min(len(starts), rng.randint(0, 2))):
            del (starts if rng.random() < 0.5 else stops)[key]
        shape = (lambda key: key) if partitioned else (lambda key: key[1])
        log = table.reader().changelog(
            {shape(key): at for key, at in starts.items()}, {shape(key): at for key, at in stops.items()}
        )
        agree(log, expected(table, starts, stops))
        plan = log.explain()
        seen |= {"lake" for each in plan.buckets if each.lake} | {"log" for each in plan.buckets if each.log}
        seen |= {"both" for each in plan.buckets if each.log and each.lake}
    agree(table.reader().changelog(), expected(table))
    assert {"lake", "log"} <= seen


def test_a_range_that_crosses_the_border_is_read_from_both_sides(make_table):
    table = make_table(partitioned=False)
    table.append_random(random.Random(1), 120, ["2013-01"])
    table.tier()
    table.expire()
    table.append_random(random.Random(2), 60, ["2013-01"])
    log = table.reader().changelog()
    plan = log.explain()
    assert all(each.lake and each.log and each.lake[1] == each.log[0] for each in plan.buckets)
    assert plan.rows == 120
    assert "lake: snapshot" in repr(plan)
    agree(log, expected(table))


def test_a_start_or_end_may_be_a_time_a_seek_a_point_or_a_snapshot(make_table):
    table = make_table()
    table.append_random(random.Random(1), 40, ["2013-01"])
    first = dict(table.ends)
    point, report = table.reader().read_point(), table.tier()
    table.clock.advance(10)
    middle = table.clock.now_ms()
    table.append_random(random.Random(2), 40, ["2013-01", "2013-02"])
    seek = table.reader().seek(middle)
    # What came later at a start is read whole, at an end not at all.
    later = {key: first.get(key, 0) for key in table.ends}
    reader = table.reader()
    for start in (seek, point, report.snapshot_id, middle, "2026-01-01T00:00:00Z" if middle == 0 else middle):
        agree(reader.changelog(start), expected(table, later))
    for end in (seek, point, report.snapshot_id, middle):
        agree(reader.changelog(end=end), expected(table, stops=first))
    agree(reader.changelog("earliest", "latest"), expected(table))
    assert found(reader.changelog("latest")) == []
    agree(reader.changelog(point, buckets=[1]), [row for row in expected(table, later) if row["_bucket"] == 1])
    agree(
        reader.changelog(buckets=[("2013-02", 0)]),
        [row for row in expected(table) if (row["_partition"], row["_bucket"]) == ("2013-02", 0)],
    )


def test_columns_batches_and_frames(make_table):
    table = make_table()
    table.append_random(random.Random(3), 25, ["2013-01", "2013-02"])
    log = table.reader().changelog(columns=["dest", "id"])
    agree(log, expected(table, columns=("dest", "id")))
    batches = list(log.to_batches(4))
    assert [batch.num_rows for batch in batches] == [4] * 6 + [1]
    assert pa.Table.from_batches(batches) == log.to_arrow().combine_chunks()
    assert list(log.to_pandas().columns) == [*SYSTEM, "dest", "id"]
    nothing = table.reader().changelog(columns=[])
    assert nothing.to_arrow().column_names == SYSTEM
    assert nothing.to_arrow().num_rows == 25
    assert "2 columns" in repr(log)
    assert "dest" in log._repr_html_()


def test_its_range_is_fixed_at_first_use(make_table):
    table = make_table()
    table.append_random(random.Random(4), 10, ["2013-01"])
    log = table.reader().changelog()
    assert log.to_arrow().num_rows == 10
    table.append_random(random.Random(5), 10, ["2013-01"])
    assert log.to_arrow().num_rows == 10
    assert table.reader().changelog().to_arrow().num_rows == 20


def test_a_plan_that_is_made_later_knows_what_has_moved_to_the_lake(make_table):
    table = make_table(partitioned=False)
    table.append_random(random.Random(6), 200, ["2013-01"])
    log = table.reader().changelog()
    assert all(each.lake_stop == each.start for each in log.plan())
    table.tier()
    table.expire()
    assert any(each.lake_stop > each.start for each in log.plan())


def test_a_changelog_that_has_begun_ends_right_though_the_log_moves_to_the_lake(make_table):
    table = make_table(partitioned=False)
    for part in range(6):
        table.append_random(random.Random(part), 100, ["2013-01"])
    log = table.reader().changelog()
    batches = log.to_batches(10)
    first = next(batches)
    table.tier()
    table.expire()
    whole = pa.Table.from_batches([first, *batches])
    assert whole["_log_offset"].to_pylist() == [row["_log_offset"] for row in expected(table)]
    assert whole["id"].to_pylist() == [row["id"] for row in expected(table)]


def test_a_dropped_partition_stays_readable_from_the_lake(make_table):
    table = make_table()
    table.append_random(random.Random(6), 40, ["2013-01", "2013-02"])
    table.tier()
    table.drop_partition("2013-01")
    table.append_random(random.Random(7), 10, ["2013-02"])
    agree(table.reader().changelog(), expected(table))


@pytest.mark.parametrize(
    ("start", "end", "error", "words"),
    [
        ({0: 99}, {0: 100}, OffsetOutOfRangeError, r"expected a start in \[0, "),
        ({7: 0}, None, BucketNotFoundError, "no bucket 7"),
        ({("2013-01", 0): 0}, None, BucketNotFoundError, "bucket's number"),
        ({0: -1}, None, InvalidRequestError, "at least 0"),
        ({0: "x"}, None, InvalidRequestError, "at least 0"),
        (1.5, None, InvalidRequestError, "1.5"),
        ("begin", None, InvalidTimestampError, "expected a datetime.*'earliest', 'latest'"),
        (2**62, None, LakeSnapshotNotFoundError, str(2**62)),
    ],
)
def test_ranges_that_cannot_be_are_refused(make_table, start, end, error, words):
    table = make_table(partitioned=False)
    table.append_random(random.Random(8), 10, ["2013-01"])
    with pytest.raises(error, match=words):
        table.reader().changelog(start, end).to_arrow()


def test_what_a_log_table_has_not_is_refused(make_table):
    reader = make_table().reader()
    with pytest.raises(UnsupportedError, match="primary-key"):
        reader.changelog(net=True)
    with pytest.raises(InvalidSchemaError, match="nope"):
        reader.changelog(columns=["nope"])
    with pytest.raises(UnsupportedError, match="Lab"):
        reader.changelog().to_spark()
    assert BUCKETS == 3


@pytest.mark.parametrize("columns", [None, ["dest"], []])
def test_short_logs_of_all_buckets_come_with_one_call(make_table, rng, monkeypatch, columns):
    table = make_table(partitioned=False)
    table.append_random(rng, 20, ["2013-01"])
    table.tier()
    table.append_random(rng, 12, ["2013-01"])
    asked = []

    def watching(fetch, request):
        asked.append({each.bucket_id for each in request.tables_req[0].buckets_req})
        return fetch(request)

    names = table.info.schema.names if columns is None else columns
    with Connection(lambda: table.cluster.address) as connection:  # answers of the usual size
        hook_fetches(monkeypatch, connection, watching)
        log = TableReader(connection, table.info.path, table.cluster.connection.lake_storage()).changelog(
            columns=columns
        )
        agree(log, expected(table, columns=names))
    assert asked == [{each.bucket for each in table.records}]
