"""Replay of primary-key tables: every event with its own offset and time, what ranges come to, and differences."""

import random

import pyarrow as pa
import pytest

from fluss_lab.errors import CorruptDataError, OffsetOutOfRangeError, PartitionNotFoundError
from fluss_lab.lake.iceberg import IcebergLakeStorage
from fluss_lab.model.times import format_moment
from fluss_lab.read.changelog import net_changes
from fluss_lab.read.table_reader import TableReader
from tests.unit.read.keyed_changes import DAY_MS, agree, found_in

pytestmark = pytest.mark.slow

HOURS_MS = 3 * 3_600_000


def in_order(logs):
    return sorted(logs, key=lambda key: (key[0] or "", key[1]))


#: Where records lie that random ranges must meet, and how many steps more a history goes on until they have.
PLACES = {"lake", "log", "deletes"}
STEPS_MAX = 30


class Walk:
    """A random history, and random questions about it."""

    def __init__(self, table, rng):
        self.table, self.rng = table, rng
        self.points = [table.reader().read_point()]
        self.seen = set()

    def step(self, number):
        table, rng = self.table, self.rng
        table.write(rng, rng.choice([1, 5, 15]))
        table.clock.advance(rng.choice([0, 1, 100]))
        if number % 3 == 1:
            table.tier()
        if number % 6 == 4:
            table.maintain("compact")
        if number % 8 == 5:
            table.retire()
        if number % 12 == 8:
            table.maintain("expire", ahead_ms=HOURS_MS)
        if rng.random() < 0.6:
            self.points.append(table.reader().read_point())

    def ask_range(self):
        table, rng = self.table, self.rng
        starts = {key: rng.randint(0, end) for key, end in table.ends.items()}
        stops = {key: rng.randint(starts[key], end) for key, end in table.ends.items()}
        edges = [{key if table.partitioned else key[1]: at for key, at in edge.items()} for edge in (starts, stops)]
        log = table.reader().changelog(*edges)
        keys = in_order(table.logs)
        agree(log.to_arrow(), [row for key in keys for row in table.changes(key, starts[key], stops[key])])
        came_to = table.reader().changelog(*edges, net=True)
        agree(came_to.to_arrow(), [row for key in keys for row in table.net(key, starts[key], stops[key])])
        for each in log.explain().buckets:
            self.seen |= {"lake"} if each.lake else set()
            self.seen |= {"log"} if each.log else set()
            self.seen |= {"deletes"} if each.delete_files else set()

    def ask_difference(self):
        table, (before, after) = self.table, self.rng.choices(self.points, k=2)
        found = table.reader().diff(before, after)
        expected = []
        for key in in_order(table.logs):
            one, other = before.stops.get(key, 0), after.stops.get(key, 0)
            expected += table.net(key, min(one, other), max(one, other), back=other < one)
        agree(found.to_arrow(), expected)
        words = [row["_change_type"] for row in expected]
        counts = (found.added.num_rows, found.removed.num_rows, found.changed.num_rows)
        assert counts == (words.count("INSERT"), words.count("DELETE"), words.count("UPDATE_AFTER"))
        assert bool(found) == bool(words)
        self.seen |= {"back"} if any(row == "DELETE" for row in words) else set()


@pytest.mark.slow
@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
def test_ranges_net_changes_and_differences_are_exact_over_random_histories(make_keyed, seed, partitioned):
    walk = Walk(make_keyed(partitioned=partitioned), random.Random(seed))
    for number in range(13):
        walk.step(number)
        if number % 2:
            walk.ask_range()
            walk.ask_difference()
    for number in range(13, 13 + STEPS_MAX):  # which files there are, and which of them a range meets, is chance
        if walk.seen >= PLACES:
            break
        walk.step(number)
        walk.ask_range()
    assert walk.seen >= PLACES


@pytest.mark.campaign
@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
def test_long_random_histories(make_keyed, seed, partitioned):
    walk = Walk(make_keyed(partitioned=partitioned), random.Random(seed))
    for number in range(60):
        walk.step(number)
        walk.ask_range()
        walk.ask_difference()


# -- what a range comes to ----------------------------------------------------------------------------------------------


def row(key, delay, ratio=None, tags=None):
    return (key, "", delay, ratio, tags)


@pytest.fixture
def reported(make_keyed):
    """A table of one bucket with one key for every way in which a key can change, and where that begins."""
    table = make_keyed(buckets=1)
    nan = float("nan")
    table.upsert([row(1, 1), row(2, 1), row(3, 1), row(4, 1, nan, [1, None]), row(5, 1, 0.0), row(6, 1, None, [1])])
    start = table.ends[None, 0]
    table.upsert([row(1, 2), row(7, 1), row(8, 1), row(4, 2), row(5, 1, -0.0), row(6, 1, None, [1, 2])])
    table.delete([(2, ""), (3, ""), (8, "")])
    table.upsert([row(3, 9), row(7, 2), row(4, 1, nan, [1, None])])
    return table, start


@pytest.mark.parametrize("held", [net_changes.HELD_RECORDS_MAX, 0], ids=["held", "read twice"])
def test_every_way_in_which_a_key_can_change(reported, monkeypatch, held):
    monkeypatch.setattr(net_changes, "HELD_RECORDS_MAX", held)
    table, start = reported
    log = table.reader().changelog({0: start}, net=True)
    rows = found_in(log.to_arrow())
    agree(log.to_arrow(), table.net((None, 0), start, table.ends[None, 0]))
    by_key = {}
    for each in rows:
        by_key.setdefault(each["id"], []).append(each["_change_type"])
    assert {key: sorted(words) for key, words in by_key.items()} == {
        1: ["UPDATE_AFTER", "UPDATE_BEFORE"],  # updated
        2: ["DELETE"],
        3: ["UPDATE_AFTER", "UPDATE_BEFORE"],  # deleted, and inserted again
        5: ["UPDATE_AFTER", "UPDATE_BEFORE"],  # another zero is another row
        6: ["UPDATE_AFTER", "UPDATE_BEFORE"],
        7: ["INSERT"],  # as it was updated last
    }  # 4 changed back, 8 came and went
    assert log.net
    assert "Net changelog" in repr(log)
    columns = table.reader().changelog({0: start}, columns=["delay"], net=True).to_arrow()
    assert columns.column_names[-1] == "delay"
    assert columns.num_rows == len(rows)
    assert next(batch.num_rows for batch in log.to_batches(4)) == 4


def test_wide_rows_are_not_held_for_a_second_look(reported, monkeypatch):
    monkeypatch.setattr(net_changes, "HELD_BYTES_MAX", 10)
    table, start = reported
    agree(table.reader().changelog({0: start}, net=True).to_arrow(), table.net((None, 0), start, table.ends[None, 0]))


class Astray(IcebergLakeStorage):
    """A lake whose changelog contradicts itself."""

    def create_fluss_log_source(self, info):
        whole = super().create_fluss_log_source(info)
        plain = whole.fetch_log_records

        def changed(context):
            for records in plain(context):
                previous = pa.array([max(each, 0) if each >= 0 else each for each in self.astray(records)], pa.int64())
                yield type(records)(
                    records.rows, records.offsets, records.timestamps_ms, records.change_types, previous
                )

        whole.fetch_log_records = changed
        return whole


class Forward(Astray):
    """Events end rows that come after them."""

    @staticmethod
    def astray(records):
        return [each if each < 0 else 1 << 40 for each in records.previous_offsets.to_pylist()]


class Sideways(Astray):
    """Events end the row before the one that they do."""

    @staticmethod
    def astray(records):
        return [each if each < 0 else max(each - 1, 0) for each in records.previous_offsets.to_pylist()]


@pytest.mark.parametrize(("kind", "words"), [(Forward, "to end an earlier row"), (Sideways, "found two of one key")])
def test_events_that_contradict_each_other_are_noticed(reported, kind, words):
    table, start = reported
    table.tier()
    table.leave()
    storage = kind(dict(table.connection.lake_storage().properties))
    with pytest.raises(CorruptDataError, match=words):
        TableReader(table.connection, table.path, storage).changelog({0: start}, net=True).to_arrow()


# -- differences --------------------------------------------------------------------------------------------------------


def test_a_difference_shows_what_was_added_removed_and_changed(reported):
    table, _ = reported
    table.tier()
    table.clock.advance(10)
    middle, lake = table.clock.now_ms(), table.connection.admin().lake_snapshot(table.path).snapshot_id
    table.clock.advance(10)
    table.upsert([row(1, 30), row(9, 1)])
    table.delete([(7, "")])
    reader = table.reader()
    for before in (middle, format_moment(middle), lake, reader.read_point(middle)):
        found = reader.diff(before)
        assert found.added["id"].to_pylist() == [9]
        assert found.removed["id"].to_pylist() == [7]
        assert found.changed.select(["id", "before.delay", "after.delay"]).to_pylist() == [
            {"id": 1, "before.delay": 2, "after.delay": 30}
        ]
        assert found.changed.column_names[:3] == ["id", "before.month", "after.month"]
        assert found.added.schema == table.info.schema.arrow_schema
    assert "1 added, 1 removed, 1 changed" in repr(found)
    html = found._repr_html_()
    assert html.index("+U") < html.index("+I") < html.index("-D")
    assert next(iter(found.to_pandas().columns)) == "_change_type"
    back = reader.diff(reader.read_point(), before)
    assert (back.added["id"].to_pylist(), back.removed["id"].to_pylist()) == ([7], [9])
    assert back.changed.select(["before.delay", "after.delay"]).to_pylist() == [{"before.delay": 30, "after.delay": 2}]
    same = reader.diff(before, before)
    assert not same
    assert same.to_arrow().schema == found.to_arrow().schema
    assert same.changed.schema == found.changed.schema


def test_a_log_table_only_grows(make_table):
    table = make_table()
    table.append_random(random.Random(1), 30, ["2013-01"])
    before = table.reader().read_point()
    table.tier()
    table.append_random(random.Random(2), 20, ["2013-01", "2013-02"])
    found = table.reader().diff(before)
    assert sorted(found.added["id"].to_pylist()) == list(range(30, 50))
    assert (found.removed.num_rows, found.changed.num_rows) == (0, 0)
    back = table.reader().diff(table.reader().read_point(), before)
    assert sorted(back.removed["id"].to_pylist()) == list(range(30, 50))
    assert back.added.num_rows == 0


def test_a_partition_that_was_dropped_with_its_rows_cannot_be_compared(make_keyed):
    table = make_keyed(partitioned=True, buckets=1)
    month = "2013-01"
    table.upsert([(1, month, 1, None, None), (2, "2013-02", 1, None, None)])
    before = table.reader().read_point()
    admin = table.connection.admin()
    admin.drop_partition(table.path, {"month": month}, lake=True)
    with pytest.raises(PartitionNotFoundError, match="not available there"):
        table.reader().diff(before)
    admin.create_partition(table.path, {"month": month})
    with pytest.raises(PartitionNotFoundError, match="not available there"):
        table.reader().diff(before)
    # Of the new one of that name, the point knows nothing: it is read from its beginning.
    writer = table.connection.upsert_writer(table.path)
    with writer:
        writer.upsert({"id": [5], "month": [month], "delay": [5], "ratio": [None], "tags": [None]}).result()
    found = table.reader().changelog(before).to_arrow()
    assert found["id"].to_pylist() == [5]


# -- what is not held any more ------------------------------------------------------------------------------------------


@pytest.fixture
def forgotten(make_keyed):
    """A table whose replay begins in the middle, as compactions and the end of their tags leave it."""
    table = make_keyed(buckets=1, keys=8)
    rng = random.Random(5)
    for _ in range(3):
        for _ in range(4):
            table.write(rng, 5)
            table.clock.advance(10)
        table.tier()
    table.maintain("compact")
    table.maintain("expire", ahead_ms=9 * DAY_MS)
    for _ in range(2):
        table.clock.advance(10)
        table.write(rng, 5)
        table.tier()
    table.leave()
    start = table.replay_starts()[None, 0]
    assert 0 < start < table.ends[None, 0]
    return table, start


def test_replay_begins_at_the_replay_start_and_says_so(forgotten):
    table, start = forgotten
    key, end = (None, 0), table.ends[None, 0]
    reader = table.reader()
    agree(reader.changelog().to_arrow(), table.changes(key, start, end))
    agree(reader.changelog({0: start}).to_arrow(), table.changes(key, start, end))
    first_ms = table.logs[key][start].timestamp_ms
    words = f"bucket 0 from offset {start} \\({format_moment(first_ms)}\\)"
    for early in ({0: start - 1}, {0: 0}, table.logs[key][0].timestamp_ms, first_ms - 1, first_ms):
        with pytest.raises(OffsetOutOfRangeError, match=words):
            reader.changelog(early).to_arrow()
    # A time after it is exact again.
    later = next(event for event in table.logs[key][start:] if event.timestamp_ms > first_ms)
    agree(reader.changelog(first_ms + 1).to_arrow(), table.changes(key, later.offset, end))
    # A range that lies before it altogether is not empty.
    with pytest.raises(OffsetOutOfRangeError, match=words):
        reader.changelog(table.logs[key][0].timestamp_ms, table.logs[key][start // 2].timestamp_ms).to_arrow()


def test_a_time_before_a_log_of_which_nothing_can_be_replayed_is_refused(make_keyed):
    table = make_keyed(buckets=1, keys=8)
    rng = random.Random(6)
    for _ in range(3):
        table.write(rng, 5)
        table.clock.advance(10)
        table.tier()
    table.maintain("compact")
    table.maintain("expire", ahead_ms=9 * DAY_MS)
    table.leave()
    end = table.ends[None, 0]
    assert table.replay_starts() == {(None, 0): end}
    last_ms = table.logs[None, 0][-1].timestamp_ms
    with pytest.raises(OffsetOutOfRangeError, match=f"bucket 0 from offset {end}"):
        table.reader().changelog(last_ms).to_arrow()
    assert table.reader().changelog(last_ms + 1).to_arrow().num_rows == 0
    assert table.reader().changelog().to_arrow().num_rows == 0


def test_a_reader_whose_records_are_forgotten_meanwhile_says_from_where_on_there_are_some(make_keyed):
    table = make_keyed(buckets=1, keys=8)
    rng = random.Random(7)
    for _ in range(4):
        table.write(rng, 5)
        table.tier()
    table.maintain("compact")
    table.leave()
    log = table.reader().changelog()
    agree(log.to_arrow(), table.changes((None, 0), 0, table.ends[None, 0]))
    table.maintain("expire", ahead_ms=9 * DAY_MS)
    with pytest.raises(OffsetOutOfRangeError, match=f"earliest available is offset {table.replay_starts()[None, 0]}"):
        log.to_arrow()
