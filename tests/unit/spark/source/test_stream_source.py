"""The streaming source, asked as Spark asks it: every record once, wherever it lives, whatever happens meanwhile."""

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fluss_lab.errors import (
    InvalidPropertyError,
    InvalidRequestError,
    InvalidSchemaError,
    OffsetOutOfRangeError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.changelog.table_stream import start_text
from fluss_lab.read.table_reader import TableReader
from fluss_lab.spark.source import stream_source
from tests.unit.read.kit import BUCKETS, LAKE, ModelTable
from tests.unit.spark.source.stream_kit import MONTHS, expected, same
from tests.unit.spark.streams import in_order, plain

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
def test_every_record_comes_once_over_a_random_history(make, query, seed, partitioned):
    rng = random.Random(seed)
    table = make(partitioned=partitioned)
    months = list(MONTHS)
    table.append_random(rng, 20, months)
    stream = query(table, maxRowsPerTrigger=rng.randint(10, 40), tasks=rng.randint(1, 3))
    for step in range(10):
        action = rng.choice(["append", "tier", "expire", "read", "read", "restart", "month", "replay"])
        if action == "append":
            table.append_random(rng, rng.randint(1, 60), months)
            table.clock.advance(rng.randint(0, 5))
        elif action == "tier":
            table.tier()
        elif action == "expire":
            table.tier()
            table.expire()
        elif action == "month" and len(months) < 4:
            months.append(f"2013-{step + 10}")
        elif action == "restart":
            stream.start()
        elif action == "replay" and stream.sizes:
            number = rng.randrange(len(stream.sizes))
            before = stream.rows[sum(stream.sizes[:number]) : sum(stream.sizes[: number + 1])]
            same(stream.batch(number), in_order(before))
        else:
            stream.step()
    same(stream.run(), expected(table))


def test_a_limit_is_kept_and_every_bucket_gets_on(make, query):
    table = make(partitioned=False)
    table.append_random(random.Random(1), 90, MONTHS)
    stream = query(table, maxRowsPerTrigger=10)
    while stream.step():
        before, after = (json.loads(text)["offsets"] for text in stream.offsets[-2:])
        left = {bucket: table.ends[None, int(bucket)] - offset for bucket, offset in before.items()}
        assert all(after[bucket] > before[bucket] for bucket in before if left[bucket])
    assert stream.sizes == [10] * 9
    same(stream.rows, expected(table))


def test_batches_are_the_same_in_every_run(make, query):
    table = make()
    table.append_random(random.Random(2), 100, MONTHS)
    one, other = (query(table, maxRowsPerTrigger=7) for _ in range(2))
    one.run()
    other.step()
    other.start()
    other.run()
    assert one.offsets == other.offsets
    assert repr(one.rows) == repr(other.rows)


def test_without_a_limit_a_batch_is_all_there_is_and_a_trigger_may_overrule_the_limit(make, query):
    table = make()
    table.append_random(random.Random(3), 50, MONTHS)
    whole = query(table)
    whole.run()
    assert whole.sizes == [50]
    limited = query(table, maxRowsPerTrigger=1)
    end = limited.reader.latestOffset(json.loads(limited.offsets[0]), limited.everything)
    assert json.dumps(end) == whole.offsets[-1]


def test_a_batch_waits_for_enough_rows(make, query):
    table = make()
    table.append_random(random.Random(4), 5, MONTHS)
    stream = query(table, minRowsPerTrigger=8)
    assert not stream.step()
    table.append_random(random.Random(5), 4, MONTHS)
    assert stream.step()
    assert stream.sizes == [9]
    # A query that is to end takes what is left.
    table.append_random(random.Random(6), 2, MONTHS)
    stream.pin()
    same(stream.run(), expected(table))


def test_available_now_ends_at_what_there_was(make, query):
    table = make()
    table.append_random(random.Random(7), 40, MONTHS[:1])
    stream = query(table, maxRowsPerTrigger=9)
    stream.step()
    stream.pin()
    wanted = expected(table)
    table.append_random(random.Random(8), 30, MONTHS)
    same(stream.run(), wanted)
    stream.start()
    same(stream.run(), expected(table))


def test_available_now_ends_when_a_partition_goes_meanwhile(make, query):
    table = make()
    table.append_random(random.Random(9), 40, MONTHS)
    stream = query(table, maxRowsPerTrigger=9, failOnDataLoss="false")
    stream.pin()
    table.drop_partition(MONTHS[0])
    stream.run()
    same(stream.rows, [row for row in expected(table) if row["_partition"] == MONTHS[1]])


def test_the_end_of_the_table_is_reported_to_those_who_watch(make, query):
    table = make(partitioned=False)
    table.append_random(random.Random(10), 30, MONTHS)
    stream = query(table, maxRowsPerTrigger=6)
    assert stream.reader.reportLatestOffset() is None
    stream.step()
    reported = stream.reader.reportLatestOffset()["offsets"]
    assert reported == {str(bucket): table.ends[None, bucket] for bucket in range(BUCKETS)}


# -- starts -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def layered(cluster, clock):
    """A table with records in the lake only, in lake and cluster, and in the cluster only. Tests may append to it."""
    rng = random.Random(11)
    table = ModelTable(cluster, clock, "layered")
    table.append_random(rng, 40, MONTHS)
    table.clock.advance(10)
    table.tier()
    table.expire()
    table.append_random(rng, 30, MONTHS)
    table.clock.advance(10)
    table.tier()
    table.append_random(rng, 20, MONTHS)
    table.clock.advance(10)
    return table


def starts_of(table):
    reader = TableReader(table.connection, table.path)
    moment_ms = sorted(each.timestamp_ms for each in table.records)[55]
    snapshot = table.connection.admin().lake_snapshot(table.path)
    deep = {(MONTHS[0], 0): 2, (MONTHS[1], 2): 1}
    return {
        "earliest": "earliest",
        "latest": "latest",
        "time": moment_ms,
        "snapshot": snapshot.snapshot_id,
        "seek": reader.seek(moment_ms),
        "offsets": deep,
        "read point": reader.read_point(moment_ms),
    }


def test_a_stream_starts_where_a_changelog_does(layered, query):
    reader = TableReader(layered.connection, layered.path)
    for name, start in starts_of(layered).items():
        stream = query(layered, start=start_text(layered.info, start))
        wanted = plain(reader.changelog(start=start).to_arrow())
        assert len(wanted) > (0 if name != "latest" else -1), name
        same(stream.run(), wanted)


def test_a_start_is_taken_when_the_query_is_new_and_not_again(layered, query):
    stream = query(layered, start="latest")
    before = dict(layered.ends)
    assert not stream.step()
    stream.start()
    layered.append_random(random.Random(12), 25, MONTHS)
    same(stream.run(), expected(layered, before))


def test_a_first_batch_that_is_run_again_is_what_it_was_wherever_the_query_would_start_now(layered, query):
    # Spark keeps where a batch ends, and asks a query whose first batch is not done where that starts.
    starts = {(MONTHS[0], 0): 3, (MONTHS[0], 1): 1, (MONTHS[1], 2): 2}
    killed = query(layered, start=start_text(layered.info, starts), maxRowsPerTrigger=7)
    assert killed.step()
    layered.append_random(random.Random(15), 10, [*MONTHS, "2013-11"])
    for start in ("earliest", "latest"):
        again = query(layered, start=start, maxRowsPerTrigger=7)
        again.offsets.append(killed.offsets[1])
        again.rows = again.batch(0)
        same(again.rows, in_order(killed.rows))
        new = {("2013-11", bucket): 0 for bucket in range(BUCKETS)}
        same(again.run(), expected(layered, starts | new))


def test_a_first_batch_without_records_says_where_the_query_began(layered, query):
    killed = query(layered, start="latest")
    before = dict(layered.ends)
    assert not killed.step()
    layered.append_random(random.Random(16), 10, MONTHS)
    again = query(layered, start="earliest")
    again.offsets.append(killed.offsets[0])
    assert again.batch(0) == []
    same(again.run(), expected(layered, before))


def test_buckets_that_offsets_leave_out_are_never_read_and_new_partitions_are(layered, query):
    starts = {(MONTHS[0], 1): 3}
    stream = query(layered, start=start_text(layered.info, starts))
    stream.run()
    layered.append_random(random.Random(13), 30, [*MONTHS, "2013-09"])
    starts |= {("2013-09", bucket): 0 for bucket in range(BUCKETS)}
    same(stream.run(), expected(layered, starts))


def test_partitions_that_a_seek_cannot_know_are_read_from_their_beginning(layered, query):
    layered.clock.advance(10)
    seek = TableReader(layered.connection, layered.path).seek(layered.clock.now_ms())
    starts = dict(layered.ends)
    layered.append_random(random.Random(14), 20, ["2013-10"])
    starts |= {("2013-10", bucket): 0 for bucket in range(BUCKETS)}
    stream = query(layered, start=start_text(layered.info, seek))
    same(stream.run(), expected(layered, starts))


@pytest.mark.parametrize(
    ("start", "error"),
    [
        ("soon", Exception),
        ('{"2013-01/0": 100000}', OffsetOutOfRangeError),
        ('{"nowhere/0": 0}', Exception),
        ("{", InvalidPropertyError),
    ],
)
def test_a_start_that_cannot_be_is_refused(layered, query, start, error):
    with pytest.raises(error):
        query(layered, start=start)


def test_what_tasks_get_shows_no_token(layered, query, cluster):
    stream = query(layered)
    stream.step()
    tasks = stream.tasks(0)
    assert tasks
    assert cluster.address.token not in repr(tasks)


def test_a_start_of_no_kind_is_refused(layered):
    for wrong in (None, True, 1.5, ["earliest"]):
        with pytest.raises(InvalidRequestError):
            start_text(layered.info, wrong)


# -- columns --------------------------------------------------------------------------------------------------------------


def test_a_stream_keeps_its_columns_when_the_table_gets_more(make, query):
    table = make(partitioned=False)
    table.append_random(random.Random(24), 20, MONTHS)
    stream = query(table, maxRowsPerTrigger=8)
    stream.step()
    admin = table.connection.admin()
    admin.alter_table(table.path, add_columns={"note": "string"})
    with table.connection.append_writer(table.path) as writer:
        writer.append({"id": [1000], "month": ["m"], "delay": [1], "ratio": [0.5], "dest": ["A"], "note": ["new"]})
    table.tier()
    rows = stream.run()
    assert len(rows) == 21
    assert all("note" not in row for row in rows)
    later = query(table)
    notes = [row["note"] for row in later.run()]
    assert sorted(notes, key=str) == [None] * 20 + ["new"]


def test_only_the_columns_asked_for_come_in_their_order(make, query):
    table = make()
    table.append_random(random.Random(25), 30, MONTHS)
    stream = query(table, columns="dest,id")
    rows = stream.run()
    names = ["_change_type", "_partition", "_bucket", "_log_offset", "_commit_timestamp", "dest", "id"]
    assert list(rows[0]) == stream.schema.names == names
    same(rows, expected(table, columns=("dest", "id")))
    assert len(query(table, columns="[]").run()) == 30


def test_a_log_table_streams_without_change_columns_too(make, query):
    table = make()
    table.append_random(random.Random(26), 30, MONTHS)
    rows = query(table, changelog=False).run()
    assert list(rows[0]) == ["id", "month", "delay", "ratio", "dest"]
    assert sorted(row["id"] for row in rows) == list(range(30))
    some = query(table, changelog=False, columns="id,__offset,__bucket", start="earliest").run()
    wanted = {(each.row[0], each.offset, each.bucket) for each in table.records}
    assert {(row["id"], row["__offset"], row["__bucket"]) for row in some} == wanted


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"maxRowsPerTrigger": 0}, InvalidPropertyError),
        ({"maxRowsPerTrigger": "many"}, InvalidPropertyError),
        ({"maxRowsPerTrigger": 5, "minRowsPerTrigger": 5}, InvalidPropertyError),
        ({"failOnDataLoss": "perhaps"}, InvalidPropertyError),
        ({"maxFilesPerTrigger": 3}, InvalidPropertyError),
        ({"end": "latest"}, InvalidPropertyError),
        ({"columns": "id,nothing"}, InvalidSchemaError),
    ],
    ids=str,
)
def test_options_that_a_stream_does_not_have_are_refused(make, query, options, error):
    with pytest.raises(error):
        query(make(), **options)


# -- primary keys -----------------------------------------------------------------------------------------------------------


def test_the_stream_of_a_primary_key_table_is_its_changelog(cluster, query):
    admin = cluster.connection.admin()
    admin.create_database("db", if_not_exists=True)
    path = TablePath("db", "keyed")
    descriptor = make_descriptor({"id": "int", "v": "string"}, primary_key=["id"], buckets=2, properties=LAKE)
    info = admin.create_table(path, descriptor)
    rng = random.Random(27)
    reader = TableReader(cluster.connection, path)

    class Keyed:
        pass

    keyed = Keyed()
    keyed.path = path
    stream = query(keyed, maxRowsPerTrigger=7)
    with cluster.connection.upsert_writer(path) as writer:
        for number in range(30):
            writer.upsert([{"id": rng.randrange(12), "v": str(number)}]).result()
            if number % 3 == 0:
                writer.delete([{"id": rng.randrange(12)}]).result()
    wanted = plain(reader.changelog().to_arrow())
    assert {row["_change_type"] for row in wanted} == {"+I", "-U", "+U", "-D"}
    same(stream.run(), wanted)
    assert info.table_id == json.loads(stream.offsets[-1])["table_id"]
    with pytest.raises(UnsupportedError, match="changelog"):
        query(keyed, changelog=False)


def asked(stream):
    """Ask where the next batch ends; return whether there is one, and how long the answer took."""
    start, limit = json.loads(stream.offsets[-1]), stream.reader.getDefaultReadLimit()
    began = time.monotonic()
    end = stream.reader.latestOffset(start, limit)
    return end != start, time.monotonic() - began


def test_a_stream_that_waits_asks_seldom_and_hears_of_records_at_once(make, query, seed):
    table = make()
    table.append_random(random.Random(seed), 20, MONTHS)
    stream = query(table, start="latest")
    # Whoever waits until all is read hears that at once; from then on an answer takes its time.
    assert not asked(stream)[0]
    found, taken_s = asked(stream)
    assert (found, taken_s > 0.4) == (False, True)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(asked, stream)
        table.append_random(random.Random(seed), 20, MONTHS[:1])
        assert answer.result()[0] or asked(stream)[0]
    # What is there and too little for a batch is no news.
    few = query(table, start="earliest", minRowsPerTrigger=1000)
    assert not asked(few)[0]
    found, taken_s = asked(few)
    assert (found, taken_s > 0.4) == (False, True)


def test_a_stream_that_waits_sees_new_partitions(make, query):
    table = make(partitioned=True)
    table.append_random(random.Random(1), 20, MONTHS)
    stream = query(table, start="latest")
    assert [asked(stream)[0] for _ in range(3)] == [False] * 3
    table.append_random(random.Random(2), 20, ["2014-01"])
    assert asked(stream)[0]


def test_a_stream_that_waits_sees_that_its_table_is_gone(make, query, cluster):
    table = make(partitioned=False)
    stream = query(table, start="latest")
    assert [asked(stream)[0] for _ in range(6)] == [False] * 6
    cluster.connection.admin().drop_table(table.info.path)
    with pytest.raises(TableNotFoundError):
        asked(stream)


def test_records_that_come_while_a_stream_waits_end_the_wait(make, query, cluster, monkeypatch):
    monkeypatch.setattr(stream_source, "_IDLE_S", 30.0)
    table = make()
    table.append_random(random.Random(1), 20, MONTHS)
    stream = query(table, start="latest")
    assert not asked(stream)[0]
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(asked, stream)
        # Once the server has it waiting, or before: both must lead there.
        table.append_random(random.Random(2), 20, MONTHS[:1])
        found, taken_s = answer.result()
    assert (found, taken_s < 20) == (True, True)
