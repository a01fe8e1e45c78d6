"""Frames of a primary-key table's files and the log's end: in how many scans they are read, and what making them costs."""

import random

import pytest
from py4j.clientserver import ClientServerConnection

from fluss_lab.client import Connection
from fluss_lab.read.table_reader import TableReader
from fluss_lab.read.union import pk_merge
from fluss_lab.spark.source.table_frame import scan_to_spark
from tests.spark.keyed_tables import MONTHS, SYSTEM, Flights, agree

pytestmark = pytest.mark.spark

#: By two of them dead rows are found.
ASKED = {
    "neither": ["month", "id"],
    "bucket": ["month", "__bucket", "id"],
    "offset": ["month", "delay", "__offset"],
    "both": ["month", "__offset", "__bucket", "dest"],
}
#: Calls of the JVM that the making of a frame may take for each scan of it, of which Spark's own reader takes a third.
CALLS_MAX = 125
#: A call that only lets an object go, of one that Python no longer has.
RELEASES = "m\nd\n"


@pytest.fixture(scope="module")
def histories(cluster, clock):
    """Tables by which of the lake's files have rows that the log ended; the log has new rows as well."""
    rng = random.Random(23)
    found = {}
    for name, updated in {"clean": [], "holed": MONTHS, "mixed": MONTHS[:1]}.items():
        found[name] = table = Flights(cluster, clock, name)
        table.write(rng, 150)
        table.tier()
        rows = table.reader().scan(["id", "month"]).to_arrow().to_pylist()
        again = [(row["id"], row["month"]) for row in rows if row["month"] in updated][::2]
        table.put([*again, *[(number, month) for number in range(1_000, 1_020) for month in MONTHS]])
    return found


def plan_of(frame):
    return frame._jdf.queryExecution().sparkPlan().toString()


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize(("name", "scans"), [("clean", 1), ("holed", 2), ("mixed", 2)])
def test_the_log_s_end_is_read_with_the_first_of_the_lake_s_files(spark, histories, asked, name, scans):
    frame = agree(spark, histories[name].reader().scan(asked))
    # Where both columns by which dead rows are found were asked for, neither can be null in the log's rows.
    apart = name == "holed" and {"__bucket", "__offset"} <= set(asked)
    assert plan_of(frame).count("FileScan parquet") == scans + apart


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("name", ["clean", "holed", "mixed"])
def test_rows_of_lake_and_log_are_distinguished(spark, histories, asked, name):
    frame = agree(spark, histories[name].reader().scan(asked, with_source=True))
    assert {row["_source"] for row in frame.select("_source").distinct().collect()} == {"lake", "log"}


@pytest.mark.parametrize("name", ["clean", "holed", "mixed"])
def test_a_subquery_may_look_at_each_row(spark, histories, name):
    """Of the union of several scans too, where Spark's optimizer fails with one of its rules."""
    rows = histories[name].reader().scan(["id", "month", "delay"]).to_arrow().to_pylist()
    frame = scan_to_spark(spark, histories[name].reader().scan(["id", "month", "delay"]))
    frame.createOrReplaceTempView("each")
    text = "select (select max(b.delay) from each b where b.id = a.id), exists (select 1 from each b where b.id = a.id + 1) from each a"
    found = [tuple(row) for row in spark.sql(text).collect()]
    spark.catalog.dropTempView("each")
    of_id: dict[int, list[int]] = {}
    for row in rows:
        of_id.setdefault(row["id"], []).extend([] if row["delay"] is None else [row["delay"]])
    expected = [(max(of_id[row["id"]], default=None), row["id"] + 1 in of_id) for row in rows]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_conditions_of_rows_hold_in_both(spark, histories):
    agree(spark, histories["holed"].reader().scan(["id", "month"], where="delay > 20 or dest is null"))


def test_rows_that_are_too_large_for_a_file_are_read_by_tasks_alone(spark, cluster, histories, monkeypatch):
    read, again = pk_merge.read_range, []

    def watched(*args, previous_offsets, **named):
        again.append(not previous_offsets)
        return read(*args, previous_offsets=previous_offsets, **named)

    monkeypatch.setattr(pk_merge, "read_range", watched)
    with Connection(lambda: cluster.address, {"client.spark.tail-file-size-max": "1kb"}) as connection:
        frame = scan_to_spark(spark, TableReader(connection, histories["holed"].path).scan())
        assert again
        assert not any(again)
        assert "BatchScan fluss_lab_log" in plan_of(frame)
        agree(spark, TableReader(connection, histories["holed"].path).scan())


@pytest.mark.parametrize("asked", [None, [*SYSTEM, "id", "month"]], ids=["all", "with system columns"])
@pytest.mark.parametrize("name", ["clean", "holed"])
def test_a_frame_is_made_in_few_calls_of_the_jvm(spark, histories, monkeypatch, asked, name):
    scan_to_spark(spark, histories[name].reader().scan(asked))  # What is looked up once a context.
    calls = []
    send = ClientServerConnection.send_command

    def counted(connection, command):
        if not command.startswith(RELEASES):
            calls.append(command)
        return send(connection, command)

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    frame = scan_to_spark(spark, histories[name].reader().scan(asked))
    monkeypatch.undo()
    scans = plan_of(frame).count("FileScan parquet")
    assert 10 * scans < len(calls) <= CALLS_MAX * scans
