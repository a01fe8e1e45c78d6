"""The union read equals the model: over random histories, at read points of any age, whatever moved meanwhile."""

import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from msgspec import structs

from fluss_lab.errors import (
    BucketNotFoundError,
    CorruptDataError,
    InvalidFilterError,
    InvalidPartitionError,
    InvalidRequestError,
    InvalidSchemaError,
    InvalidTimestampError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.model.times import format_moment
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.read.table_reader import TableReader
from fluss_lab.read.union.read_parts import Request
from fluss_lab.read.union.read_plan import read_rows
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from tests.unit.read.kit import SYSTEM, retain, rows_of, same
from tests.unit.read.types import ALL_TYPES, all_types_rows

pytestmark = pytest.mark.slow

COLUMNS = ["id", "month", "delay", "ratio", "dest", *SYSTEM]

#: SQL beside the same in Python, where None means unknown.
FILTERS = [
    ("delay > 60", lambda r: r[2] is not None and r[2] > 60),
    ("not (delay > 60)", lambda r: r[2] is not None and r[2] <= 60),
    ("delay is null or dest = 'A'", lambda r: r[2] is None or r[4] == "A"),
    ("ratio > 0", lambda r: r[3] is not None and r[3] > 0),
    ("not (ratio > 0)", lambda r: r[3] is not None and not r[3] > 0),
    ("ratio != 2.25", lambda r: r[3] is not None and r[3] != 2.25),
    ("ratio is nan", lambda r: r[3] is not None and r[3] != r[3]),
    ("dest like 'A%' and month = '2013-02'", lambda r: r[4] is not None and r[4].startswith("A") and r[1] == "2013-02"),
    ("dest not in ('A', 'B')", lambda r: r[4] is not None and r[4] not in {"A", "B"}),
    ("month in ('2013-01', '2013-03') and delay between 0 and 90.5",
     lambda r: r[1] in {"2013-01", "2013-03"} and r[2] is not None and 0 <= r[2] <= 90),
    ("id in (3, 17, 300) and delay is not null", lambda r: r[0] in {3, 17, 300} and r[2] is not None),
    ("id = 5 or id = 8", lambda r: r[0] in {5, 8}),
    ("id < 40 or id >= 180", lambda r: r[0] < 40 or r[0] >= 180),
]  # fmt: skip


class Readings:
    """Read points of a history, and what a read at each must give."""

    def __init__(self, table):
        self.table = table
        self.taken = []

    def take(self):
        point = self.table.reader().read_point()
        self.taken.append((point, dict(self.table.ends)))

    def take_past(self, rng):
        times = [record.timestamp_ms for record in self.table.records] or [self.table.clock.now_ms()]
        # The present millisecond is not over as long as the clock stands.
        moment = min(rng.choice(times) + rng.choice([-1, 0, 0, 1]), self.table.clock.now_ms() - 1)
        if moment < self.table.info.created_ms:
            return
        point = self.table.reader().read_point(rng.choice([moment, format_moment(moment)]))
        self.table.note_as_of(moment)
        self.taken.append((point, dict(self.table.stops_at(moment))))

    def check_one(self, rng):
        point, stops = rng.choice(self.taken)
        if rng.random() < 0.3:
            point = ReadPoint.from_json(point.to_json())
        choice = rng.random()
        expected = self.table.expected(stops)
        if choice < 0.3:
            same(rows_of(self.table.reader().scan(COLUMNS, read_point=point).to_arrow()), expected)
        elif choice < 0.7:
            sql, condition = rng.choice(FILTERS)
            scan = self.table.reader().scan(COLUMNS, sql, read_point=point)
            expected = [row for row in expected if condition(tuple(row.values()))]
            same(rows_of(scan.to_arrow()), expected)
            assert scan.count() == len(expected)
        elif choice < 0.85:
            limit = rng.randint(0, len(expected) + 2)
            scan = self.table.reader().scan(COLUMNS, limit=limit, read_point=point)
            same(rows_of(scan.to_arrow()), expected[:limit])
            assert scan.count() == len(expected[:limit])
        else:
            buckets = rng.sample(range(3), rng.randint(1, 3))
            scan = self.table.reader().scan(COLUMNS, buckets=buckets, read_point=point)
            expected = [row for row in expected if row["__bucket"] in buckets]
            same(rows_of(pa.Table.from_batches(scan.to_batches(7), scan.schema)), expected)
            assert scan.count() == len(expected)


@pytest.mark.slow
@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
def test_a_union_read_equals_the_model_over_a_random_history(make_table, seed, partitioned):
    rng = random.Random(seed)
    table = make_table(partitioned=partitioned)
    readings = Readings(table)
    months = ["2013-01", "2013-02"]
    table.append_random(rng, 20, months)
    readings.take()
    for _ in range(100):
        match rng.choice(
            ["append"] * 4 + ["tick"] * 3 + ["point", "past", "tier", "tier", "expire", "month"] + ["read"] * 6
        ):
            case "append":
                table.append_random(rng, rng.choice([1, 5, 60]), months)
            case "tick":
                table.clock.advance(rng.choice([1, 10, 1000]))
            case "point":
                readings.take()
            case "past":
                readings.take_past(rng)
            case "tier":
                table.tier()
            case "expire":
                table.expire()
            case "month":
                months = [*months, f"2013-{len(months) + 1:02}"][:5]
            case "read":
                readings.check_one(rng)
    table.tier()
    for name in sorted(table.partitions)[:1]:
        if partitioned:
            table.drop_partition(name)
    for point, stops in readings.taken:
        same(rows_of(table.reader().scan(COLUMNS, read_point=point).to_arrow()), table.expected(stops))
    same(rows_of(table.reader().scan(COLUMNS).to_arrow()), table.expected(table.ends))


def test_rows_say_where_they_came_from(make_table):
    table = make_table()
    table.append_random(random.Random(1), 50, ["2013-01"])
    table.tier()
    table.append_random(random.Random(2), 7, ["2013-01"])
    found = table.reader().scan(["id"], with_source=True).to_arrow()
    sources = dict(zip(found["id"].to_pylist(), found["_source"].to_pylist(), strict=True))
    assert sources == {number: "lake" if number < 50 else "log" for number in range(57)}


def test_a_scan_reads_at_one_moment_however_often_it_is_used(make_table):
    table = make_table()
    table.append_random(random.Random(1), 10, ["2013-01"])
    scan = table.reader().scan()
    assert scan.count() == 10
    table.append_random(random.Random(1), 10, ["2013-01", "2013-02"])
    table.tier()
    assert scan.to_arrow().num_rows == scan.count() == len(scan.to_pandas()) == 10
    assert table.reader().scan().count() == 20


def test_a_read_that_has_begun_ends_right_though_the_log_moves_to_the_lake(make_table):
    table = make_table(partitioned=False)
    table.append_random(random.Random(3), 400, ["2013-01"])
    scan = table.reader().scan(COLUMNS, with_source=True)
    batches = scan.to_batches(10)
    first = next(batches)
    table.tier()
    table.expire()
    starts = [status.start_offset for status in table.connection.admin().buckets(table.info)]
    assert all(start > 0 for start in starts), "nothing has left the cluster: the test shows nothing"
    whole = pa.Table.from_batches([first, *batches])
    same(rows_of(whole.drop_columns("_source")), table.expected(table.ends))
    assert set(whole["_source"].to_pylist()) == {"log", "lake"}


def test_a_read_point_whose_hint_is_unknown_is_read_from_the_newest_snapshot(make_table):
    table = make_table()
    table.append_random(random.Random(4), 30, ["2013-01"])
    table.tier()
    text = table.reader().read_point().to_json()
    point = ReadPoint.from_json(text)
    unknown = ReadPoint.from_json(text.replace(str(point.snapshot_id), "42"))
    assert unknown.snapshot_id == 42
    scan = table.reader().scan(COLUMNS, read_point=unknown)
    same(rows_of(scan.to_arrow()), table.expected(table.ends))
    assert scan.explain().snapshot_id == point.snapshot_id


def test_records_that_are_held_nowhere_any_more_are_an_error_not_missing_rows(cluster, clock):
    admin = cluster.connection.admin()
    admin.create_database("db", if_not_exists=True)
    path = TablePath("db", "unlaked")
    info = admin.create_table(path, make_descriptor({"id": "int"}))
    for number in range(40):
        with cluster.connection.append_writer(path) as writer:
            writer.append(pa.table({"id": pa.array([number] * 20, pa.int32())}))
    reader = TableReader(cluster.connection, path)
    point = reader.read_point()
    assert reader.scan(read_point=point).to_arrow().num_rows == 800
    clock.advance(10_000)
    admin.alter_table(path, set={"table.log.ttl": "1ms"})
    retain(cluster, lambda: admin.buckets(info)[0].start_offset > 0)
    with pytest.raises(OffsetOutOfRangeError, match="take a new read point"):
        reader.scan(read_point=point).to_arrow()
    start = admin.buckets(info)[0].start_offset
    fresh = reader.read_point()
    assert (fresh.buckets[0].start, fresh.buckets[0].stop) == (start, 800)
    assert reader.scan(read_point=fresh).count() == reader.scan(read_point=fresh).to_arrow().num_rows == 800 - start


def test_every_type_comes_back_as_the_table_has_it_from_lake_and_log(cluster):
    path = TablePath("db", "types")
    cluster.connection.admin().create_database("db", if_not_exists=True)
    descriptor = make_descriptor(ALL_TYPES, properties={"table.datalake.enabled": True})
    info = cluster.connection.admin().create_table(path, descriptor)
    rows = all_types_rows(info, 50)
    reader = TableReader(cluster.connection, path)
    with cluster.connection.append_writer(path) as writer:
        writer.append(rows)
    from_log = reader.scan([*info.schema.names, *SYSTEM]).to_arrow()
    run_round(cluster.connection, cluster.connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id)
    scan = reader.scan([*info.schema.names, *SYSTEM], with_source=True)
    from_lake = scan.to_arrow()
    assert set(from_lake["_source"].to_pylist()) == {"lake"}
    from_lake = from_lake.drop_columns("_source")
    assert from_lake.schema == from_log.schema
    assert from_log.schema.field("tiny").type == pa.int8()
    same(rows_of(from_lake.select(info.schema.names)), rows_of(rows))
    same(rows_of(from_lake), rows_of(from_log))


# -- what is asked -----------------------------------------------------------------------------------------------------


def test_columns_come_in_the_order_asked(make_table):
    table = make_table()
    table.append_random(random.Random(5), 5, ["2013-01"])
    reader = table.reader()
    assert reader.scan().schema == table.info.schema.arrow_schema
    asked = ["__offset", "dest", "id", "__timestamp"]
    assert reader.scan(asked).to_arrow().column_names == asked
    assert reader.scan(["__bucket"]).to_arrow().schema == pa.schema([pa.field("__bucket", pa.int32(), nullable=False)])


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"columns": ["nope"]}, InvalidSchemaError, "no column 'nope'"),
        ({"columns": []}, InvalidRequestError, "at least one"),
        ({"columns": ["id", "id"]}, InvalidSchemaError, "twice"),
        ({"columns": ["_source"]}, InvalidSchemaError, "with_source"),
        ({"where": "nope = 1"}, InvalidFilterError, "unknown column 'nope'"),
        ({"where": pc.field("nope") > 1}, InvalidFilterError, "nope"),
        ({"buckets": [3]}, BucketNotFoundError, r"\[0, 3\)"),
        ({"limit": -1}, InvalidRequestError, "limit"),
        ({"as_of": "soon"}, InvalidTimestampError, "ISO-8601"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_said_at_once(make_table, asked, error, words):
    table = make_table()
    with pytest.raises(error, match=words):
        table.reader().scan(**asked)


def test_a_time_after_the_servers_clock_is_refused(make_table):
    table = make_table()
    table.append_random(random.Random(6), 3, ["2013-01"])
    now = table.clock.now_ms()
    with pytest.raises(InvalidTimestampError):
        table.reader().scan(as_of=now + 1)
    table.clock.advance(1)
    assert table.reader().scan(as_of=now).count() == 3


def test_now_by_the_machines_own_clock_is_not_refused():
    with EmbeddedCluster(lake=False) as cluster:
        cluster.connection.admin().create_database("db")
        path = TablePath("db", "t")
        cluster.connection.admin().create_table(path, make_descriptor({"id": "int"}))
        reader = TableReader(cluster.connection, path)
        for _ in range(50):
            reader.read_point(datetime.now(UTC))


def test_a_read_at_a_time_stays_true_though_the_clock_steps_back_behind_it(make_table):
    table = make_table()
    table.append_random(random.Random(7), 5, ["2013-01"])
    now = table.clock.now_ms()
    table.clock.advance(1)
    scan = table.reader().scan(COLUMNS, as_of=now)
    table.note_as_of(now)
    table.clock.set_wall(now)
    table.append_random(random.Random(8), 5, ["2013-01"])
    table.clock.advance(1)
    again = table.reader().scan(COLUMNS, as_of=now)
    same(rows_of(again.to_arrow()), rows_of(scan.to_arrow()))
    same(rows_of(table.reader().scan(COLUMNS).to_arrow()), table.expected(table.ends))


def test_partitions_and_buckets_that_are_not_there(make_table):
    table, plain = make_table(), make_table(partitioned=False)
    table.append_random(random.Random(9), 3, ["2013-01"])
    with pytest.raises(PartitionNotFoundError, match="1999"):
        table.reader().scan(partitions=["1999"]).count()
    with pytest.raises(InvalidPartitionError, match="no partitions"):
        plain.reader().scan(partitions=["2013-01"])
    assert table.reader().scan(partitions=["2013-01"]).count() == 3


def test_a_read_point_of_a_table_that_was_made_again_is_refused(cluster, make_table):
    table = make_table()
    point = table.reader().read_point()
    cluster.connection.admin().drop_table(table.path)
    cluster.connection.admin().create_table(table.path, table.info.descriptor)
    with pytest.raises(TableNotFoundError, match="made again"):
        table.reader().scan(read_point=point)


def test_a_scan_without_a_session_has_no_spark(make_table):
    with pytest.raises(UnsupportedError, match="Lab"):
        make_table().reader().scan().to_spark()


def test_a_plan_is_explained(make_table):
    table = make_table()
    table.append_random(random.Random(10), 60, ["2013-01", "2013-02"])
    table.tier()
    table.append_random(random.Random(11), 30, ["2013-01", "2013-02"])
    everything = table.reader().scan().explain()
    assert everything.rows == 60
    assert everything.log_records == 30
    assert everything.size_bytes > 0
    pruned = table.reader().scan(where="month = '2013-02' and id < 1000").explain()
    assert {each.partition for each in pruned.buckets} == {"2013-02"}
    assert pruned.files_pruned == everything.files - pruned.files == 3
    assert pruned.buckets_pruned == 3
    assert "6 files" in repr(everything)
    assert "pruned" in repr(pruned)
    assert "2013-02" in pruned._repr_html_()
    nothing = table.reader().scan(where="id > 5000").explain()
    assert nothing.files == 0
    assert nothing.files_pruned == 6
    table.clock.advance(1)
    scan = table.reader().scan(where="id > 5", limit=3, partitions=["2013-01"], buckets=[1])
    assert "id > 5" in repr(scan)
    assert "limit</span> 3" in scan._repr_html_()


def test_an_offset_filter_cuts_what_is_read(make_table):
    table = make_table(partitioned=False)
    table.append_random(random.Random(12), 90, ["2013-01"])
    table.tier()
    scan = table.reader().scan(COLUMNS, "__offset >= 5 and __offset < 8 and __bucket = 1")
    expected = [row for row in table.expected(table.ends) if row["__bucket"] == 1 and 5 <= row["__offset"] < 8]
    same(rows_of(scan.to_arrow()), expected)
    assert [(each.bucket, each.lake) for each in scan.explain().buckets] == [(1, (5, 8))]


def test_every_row_of_a_point_comes_once_wherever_the_lake_ends_by_then(make_table):
    table, rng = make_table(partitioned=False), random.Random(13)
    taken = []
    for _ in range(12):
        table.append_random(rng, 1, ["2013-01"])
        taken.append((table.reader().read_point(), dict(table.ends)))
    for _ in range(2):
        table.tier()
        table.append_random(rng, 9, ["2013-01"])
        taken.append((table.reader().read_point(), dict(table.ends)))
        # Points that end in the middle of a file, one before its end, at it, and behind it in the log.
        for point, stops in taken:
            scan = table.reader().scan(COLUMNS, read_point=point)
            same(rows_of(scan.to_arrow()), table.expected(stops))
            assert scan.count() == sum(stops.values())


def test_a_read_at_a_time_holds_that_time_and_nothing_later(make_table):
    table, rng = make_table(partitioned=False), random.Random(14)
    table.clock.advance(2)
    for _ in range(4):
        table.append_random(rng, 5, ["2013-01"])
        table.clock.advance(1)
    first = table.records[0].timestamp_ms
    for moment, count in ((first - 1, 0), (first, 5), (first + 1, 10), (first + 3, 20)):
        found = table.reader().scan(COLUMNS, as_of=moment)
        same(rows_of(found.to_arrow()), table.expected(table.stops_at(moment)))
        assert found.count() == count


def test_a_bucket_key_asked_for_leads_to_its_bucket(cluster, make_table):
    table = make_table(partitioned=False)
    table.append_random(random.Random(13), 90, ["2013-01"])
    scan = table.reader().scan(COLUMNS, "id = 7 and delay is not null or id = 7 and delay is null")
    same(rows_of(scan.to_arrow()), [row for row in table.expected(table.ends) if row["id"] == 7])
    assert len(scan.explain().buckets) == 1
    assert table.reader().scan(where="id in (1.5)").explain().buckets == []
    path = TablePath("db", "by_boolean")
    cluster.connection.admin().create_table(path, make_descriptor({"k": "boolean"}, buckets=5, bucket_key=["k"]))
    with cluster.connection.append_writer(path) as writer:
        writer.append(pa.table({"k": [True, False, True]}))
    scan = TableReader(cluster.connection, path).scan(where="k")
    assert scan.count() == 2
    assert len(scan.explain().buckets) == 1


def test_a_file_that_is_missing_is_an_error_not_missing_rows(make_table):
    table = make_table(partitioned=False)
    table.append_random(random.Random(14), 60, ["2013-01"])
    table.tier()
    table.expire()
    split = table.reader().scan().plan().splits[1]
    Path(split.path.removeprefix("file://")).unlink()
    with pytest.raises(CorruptDataError, match=Path(split.path).name):
        table.reader().scan().to_arrow()
    with pytest.raises(CorruptDataError):
        table.reader().changelog().to_arrow()


def test_a_file_that_a_newer_snapshot_does_without_is_not_missed(make_table):
    table = make_table(partitioned=False)
    table.append_random(random.Random(15), 60, ["2013-01"])
    table.tier()
    scan = table.reader().scan(COLUMNS)
    old = scan.plan()
    table.append_random(random.Random(16), 10, ["2013-01"])
    table.tier()
    # As after a compaction and an expiry: the plan's files are gone, the newest snapshot has others.
    gone = replace(old, parts=tuple(
        replace(part, splits=tuple(structs.replace(split, path=split.path + ".gone") for split in part.splits))
        for part in old.parts
    ))  # fmt: skip
    batches = list(read_rows(scan.source, gone, Request(scan.columns, None)))
    same(rows_of(pa.Table.from_batches(batches)), rows_of(scan.to_arrow()))
