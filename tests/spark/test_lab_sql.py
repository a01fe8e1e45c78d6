"""A lab's own Spark: its tables by name in SQL, at the latest moment or at kept ones, and as a data source."""

import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import reduce

import numpy as np
import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fluss_lab.errors import (
    BucketNotFoundError,
    InvalidError,
    InvalidRequestError,
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
    UnsupportedError,
)
from fluss_lab.spark.session.jvm_launch import SESSION_CLASS
from fluss_lab.spark.source.table_frame import scan_to_spark
from fluss_lab.testing import wait_until
from fluss_lab.workbench import Lab
from fluss_lab.workbench.notebook.sql_magic import run_cell

pytestmark = pytest.mark.spark

LAKE = {"table.datalake.enabled": True, "table.datalake.freshness": "1h"}
TOTAL = "select count(*), sum(delay) from nyc.flights"
#: Minutes of work.
SLOW = "select sum(hash(id, 1) % 3) as delay from range(0, 20000000000, 1, 2)"


@pytest.fixture(scope="module")
def lab(spark, tmp_path_factory):
    with Lab.open(tmp_path_factory.mktemp("sql") / "lab") as lab:
        lab.create_database("nyc")
        flights = lab.create_table(
            "nyc.flights", {"id": "int", "delay": "int"}, primary_key=["id"], buckets=2, properties=LAKE
        )
        log = lab.create_table("nyc.log", {"id": "int", "delay": "int"})
        flights.upsert([{"id": number, "delay": 1} for number in range(20)])
        log.append([{"id": number, "delay": 1} for number in range(10)])
        yield lab


def one(frame):
    return tuple(frame.first())


def test_a_statement_reads_every_table_at_one_moment_and_the_next_one_afresh(lab):
    flights, log = lab.table("nyc.flights"), lab.table("nyc.log")
    first = lab.sql(TOTAL)
    assert one(first) == (20, 20)
    points = {"nyc.flights": flights.read_point()}
    moment = flights.read_point().moment_ms
    flights.upsert([{"id": number, "delay": 5} for number in range(15, 25)])
    flights.delete([{"id": 0}])
    log.append([{"id": 10, "delay": 1}])
    assert one(lab.sql(TOTAL)) == (24, 14 + 50)
    assert one(first) == (20, 20)
    assert one(lab.sql(TOTAL, read_points=points)) == (20, 20)
    joined = "select count(*), count(l.id) from nyc.flights f full join nyc.log l using (id)"
    assert one(lab.sql(joined)) == (25, 11)
    assert one(lab.sql(joined, read_points=points)) == (20, 11)
    assert one(lab.sql(joined, as_of=moment)) == (20, 10)
    assert one(lab.sql(joined, as_of=moment, read_points={"nyc.log": log.read_point()})) == (20, 11)


def test_a_read_point_of_a_table_that_is_not_named_is_refused(lab):
    point = lab.table("nyc.log").read_point()
    with pytest.raises(InvalidRequestError, match=r"nyc\.log"):
        lab.sql(TOTAL, read_points={"nyc.log": point})


def test_the_lab_s_session_reads_its_tables_by_name(lab):
    assert lab.spark.read.format("fluss").load("nyc.log").count() == lab.table("nyc.log").scan().count()
    lab.table("nyc.flights").scan(where="delay = 1").to_spark().createOrReplaceTempView("on_time")
    expected = lab.table("nyc.flights").scan(where="delay = 1").count()
    assert one(lab.spark.sql("select count(*) from on_time")) == (expected,)
    assert lab.table("nyc.flights").changelog(net=True).to_spark().count() == lab.table("nyc.flights").scan().count()


@pytest.mark.parametrize(
    "text",
    [
        "insert into nyc.log values (1, 2)",
        "insert overwrite nyc.log select * from nyc.flights",
        "with rows as (select 1 id, 2 delay) insert into nyc.log select * from rows",
        "update nyc.flights f set delay = 0 where id = 1",
        "delete from nyc.flights where id = 1",
        "merge into nyc.flights t using nyc.log s on t.id = s.id when matched then delete",
    ],
)
def test_statements_that_write_to_a_table_say_how_it_is_done(lab, text):
    with pytest.raises(UnsupportedError, match=r"not offered.*nyc\.(log|flights); write the frame.*append, upsert"):
        lab.sql(text)


@pytest.mark.parametrize("text", ["select * from stream(nyc.log)", "select s.id from stream nyc.flights s"])
def test_a_table_that_is_asked_for_as_a_stream_is_not_read_as_it_is(lab, text):
    with pytest.raises(UnsupportedError, match=r"STREAM\(nyc\.(log|flights)\).*give the stream a name in SQL"):
        lab.sql(text)


def test_a_stream_s_start_is_checked_when_it_is_given(lab):
    log = lab.table("nyc.log")
    for wrong in (None, True, 1.5, ["earliest"], "soon", {0: -1}, {0: "x"}):
        with pytest.raises(InvalidError):
            log.stream(start=wrong)
    with pytest.raises(BucketNotFoundError):
        log.stream(start={7: 0})
    with pytest.raises(OffsetOutOfRangeError, match=r'1000000.* goes on from its checkpoint .*start="earliest"'):
        log.stream(start={0: 10**6})


def test_a_stream_starts_wherever_a_changelog_may(lab, tmp_path):
    log = lab.create_table("nyc.starts", {"id": "int"})
    log.append([{"id": 1}, {"id": 2}, {"id": 3}])
    point = log.read_point()
    moment = point.moment_ms
    log.append([{"id": 4}, {"id": 5}])
    time = datetime.fromtimestamp(moment / 1000, tz=UTC)
    starts = {
        "earliest": "earliest",
        "latest": "latest",
        "offsets": {0: 4},
        "pairs": {(None, np.int64(0)): np.int64(1)},
        "seek": log.seek(time),
        "point": point,
        "time": time,
        "text": time.isoformat(),
        "milliseconds": moment,
    }
    frames = [log.stream(start=start).select(F.lit(name).alias("name"), "id") for name, start in starts.items()]
    found = []
    query = reduce(DataFrame.unionAll, frames).writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
    query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    for name, start in starts.items():
        expected = log.changelog(start=start).to_arrow().column("id").to_pylist()
        assert sorted(row["id"] for row in found if row["name"] == name) == expected, name
    assert sorted(row["id"] for row in found if row["name"] == "point") == [4, 5]


def test_a_stream_is_of_the_table_that_it_was_asked_of(lab, tmp_path):
    rows = [{"id": 1}, {"id": 2}]
    asked = lab.create_table("nyc.asked", {"id": "int"}, rows=rows).stream(start={0: 1})
    lab.drop_table("nyc.asked")
    lab.create_table("nyc.asked", {"id": "int"}, rows=rows)
    writer = asked.writeStream.foreachBatch(lambda batch, _: batch.count())
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="made again"):
        query.awaitTermination()
    lab.drop_table("nyc.asked")


def test_a_static_side_stays_and_a_batch_reads_afresh(lab, tmp_path):
    log = lab.create_table("nyc.moves", {"id": "int"})
    names = lab.create_table("nyc.names", {"id": "int", "name": "string"}, primary_key=["id"])
    names.upsert([{"id": 1, "name": "old"}])
    joined, afresh = [], []

    def look(batch, _):
        joined.extend(row["name"] for row in batch.collect())
        batch.createOrReplaceTempView("moved")
        text = "select n.name from moved m join nyc.names n using (id)"
        afresh.extend(row["name"] for row in lab.sql(text, session=batch.sparkSession).collect())

    static = lab.spark.read.format("fluss").load("nyc.names")
    query = log.stream().select("id").join(static, "id").writeStream.foreachBatch(look)
    running = query.option("checkpointLocation", str(tmp_path)).start()
    try:
        for name in ("old", "new"):
            names.upsert([{"id": 1, "name": name}])
            log.append([{"id": 1}])
            running.processAllAvailable()
    finally:
        running.stop()
    # As README says: the join stays at the first batch's moment, lab.sql in a batch does not.
    assert (joined, afresh) == (["old", "old"], ["old", "new"])


def test_a_whole_result_is_kept_in_a_table(lab, tmp_path):
    log = lab.create_table("nyc.visits", {"id": "int", "dest": "string"})
    top = lab.create_table("nyc.top", {"dest": "string", "n": "bigint"}, primary_key=["dest"], buckets=2)
    counts = log.stream().groupBy("dest").agg(F.count("*").alias("n")).where("n < 3")

    def run(mode, table="nyc.top"):
        writer = counts.writeStream.outputMode(mode).format("fluss").option("table", table)
        writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()

    log.append([{"id": 1, "dest": "ATL"}, {"id": 2, "dest": "ATL"}, {"id": 3, "dest": "SFO"}])
    run("complete")
    assert sorted(map(tuple, top.scan().to_pandas().to_numpy().tolist())) == [("ATL", 2), ("SFO", 1)]
    log.append([{"id": 4, "dest": "ATL"}, {"id": 5, "dest": "LAX"}])
    run("complete")
    assert sorted(map(tuple, top.scan().to_pandas().to_numpy().tolist())) == [("LAX", 1), ("SFO", 1)]
    # Refused by Spark, which names no way; README does.
    log.append([{"id": 6, "dest": "LAX"}])
    with pytest.raises(StreamingQueryException, match="does not support Update"):
        run("update")


def test_a_batch_of_a_stream_joins_tables_of_the_lab_and_updates_one(lab, tmp_path):
    log = lab.table("nyc.log")
    sums = lab.create_table("nyc.sums", {"delay": "int", "n": "bigint"}, primary_key=["delay"])
    sums.upsert([{"delay": 1, "n": 0}])

    def update(batch, _):
        batch.createOrReplaceTempView("counted")
        text = "select c.delay, c.n + s.n as n from counted c join nyc.sums s using (delay)"
        sums.upsert(lab.sql(text, session=batch.sparkSession).toArrow())

    first = log.scan(columns=["id"]).count() - 3
    counted = log.stream(start={np.int64(0): np.int64(first)}).groupBy("delay").count().withColumnRenamed("count", "n")
    query = counted.writeStream.outputMode("update").foreachBatch(update)
    query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert sums.scan().to_arrow().to_pylist() == [{"delay": 1, "n": 3}]


# -- tables by their paths, and SQL in cells ---------------------------------------------------------------------------


def test_the_session_knows_tables_by_their_paths_as_they_are_now(lab):
    lab.create_table("nyc.later", {"id": "int"}, rows=[{"id": 1}])
    session = lab.spark
    assert session.table("nyc.later").columns == ["id"]
    before = session.table("nyc.later")
    lab["nyc.later"].append([{"id": 2}])
    lab["nyc.later"].alter(add_columns={"note": "string"})
    assert (before.count(), session.table("`nyc`.`later`").count()) == (1, 2)
    assert session.table("nyc.later").columns == ["id", "note"]
    session.range(3).createOrReplaceTempView("mine")
    assert session.table("mine").count() == 3
    lab.drop_table("nyc.later")
    for name in ("nyc.later", "nyc.log.x", "", "no such; thing"):
        with pytest.raises(AnalysisException):
            session.table(name)


def test_the_session_s_own_sql_knows_tables_by_their_paths_as_they_are_now(lab):
    lab.create_table("nyc.own", {"id": "int"}, rows=[{"id": number} for number in range(5)])
    session = lab.spark
    first = session.sql("select count(*) from nyc.own")
    lab["nyc.own"].append([{"id": 5}])
    assert (one(first), one(session.sql("select count(*) from nyc.own"))) == ((5,), (6,))
    assert one(session.sql("select count(*) from nyc.own where id < :low or id = :one", {"low": 2, "one": 4})) == (3,)
    assert one(session.sql("select count(own.id) from nyc.own where nyc.own.id < ?", [2])) == (2,)
    assert one(session.sql("select count(*) from {rows} where id > 0.5", rows=session.range(3))) == (2,)
    session.range(3).createOrReplaceTempView("mine")
    assert one(session.sql("select count(*) from mine where id > 0.5")) == (2,)
    assert [row.col_name for row in session.sql("describe nyc.own").collect()] == ["id"]
    with pytest.raises(AnalysisException) as raised:
        session.sql("select * from nyc.ow")
    assert "is nyc.own meant?" in shown(raised.value)
    with pytest.raises(UnsupportedError, match="INSERT"):
        session.sql("insert into nyc.own values (1)")
    with pytest.raises(PySparkException, match="PARSE_SYNTAX_ERROR"):
        session.sql("selec 1.5")


def shown(error):
    return re.sub(r"\x1b\[[\d;]*m", "", error._render_traceback_()[0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("selec 1", "ParseException: [PARSE_SYNTAX_ERROR]"),
        ("select nope from nyc.log", "AnalysisException: [UNRESOLVED_COLUMN"),
        ("select * from nyc.lgo", "cannot be found. table nyc.lgo does not exist; is nyc.log meant?"),
        ("select count(*) from nyc.log where assert_true(id < 0) is null", "'(id < 0)' is not true!"),
    ],
)
def test_what_spark_refuses_is_a_paragraph_and_said_once(lab, capfd, text, words):
    with pytest.raises(PySparkException) as raised:
        run_cell("--lab lab", text, {"lab": lab})
    reported = shown(raised.value)
    assert words in reported
    assert not [word for word in ("__fluss_lab_", "\tat ", "'Project", "+- ") if word in reported]
    assert '"logger"' not in "".join(capfd.readouterr()), "pyspark's own log of the same error"


@pytest.mark.parametrize(
    "fetch",
    [
        lambda lab: run_cell("", SLOW, {"lab": lab}),
        lambda lab: lab.sql(SLOW).toPandas(),
        lambda lab: lab.spark.sql(SLOW).toArrow(),
        lambda lab: lab["nyc.log"].append(lab.sql(SLOW)),
    ],
    ids=["cell", "pandas", "arrow", "append"],
)
def test_a_fetch_that_is_stopped_ends_with_its_query_and_the_next_one_runs(lab, fetch):
    context, main = lab.spark.sparkContext, threading.main_thread().ident
    tracker = context.statusTracker()

    def interrupt():
        wait_until(lambda: len(tracker.getActiveJobsIds()) > 0)
        signal.pthread_kill(main, signal.SIGINT)

    context.setLocalProperty("ours", "kept")
    thread = threading.Thread(target=interrupt)
    thread.start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a notebook's, not Spark's own
    try:
        with pytest.raises(KeyboardInterrupt):
            fetch(lab)
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join(60)
    wait_until(lambda: len(tracker.getActiveJobsIds()) == 0)
    assert run_cell("", "select count(*) as n from nyc.log", {"lab": lab})["n"].tolist() == [lab["nyc.log"].count()]
    assert context.getLocalProperty("ours") == "kept"
    assert not len(context.getJobTags()), "the session is as it was"


def test_sql_in_a_cell_is_a_frame_shown_and_kept(lab, capsys):
    names = {"lab": lab}
    made = run_cell("--into kept", "select id, delay from nyc.log order by id limit 3", names)
    assert names["kept"] is made
    assert made["id"].tolist() == [0, 1, 2]
    assert str(made["id"].dtype) == "Int32"
    assert len(run_cell("--limit 2 select id from nyc.log", None, names)) == 2
    assert "The first 2 rows; there are more" in capsys.readouterr().out
    assert len(run_cell("--limit all", "select id from nyc.log", names)) >= 10
    assert run_cell("", "create or replace temporary view cell as select 1", names) is None
    moment = lab["nyc.log"].read_point().moment_ms
    before = len(run_cell("", "select * from nyc.log", names))
    lab["nyc.log"].append([{"id": 100}])
    assert len(run_cell(f"--as-of {moment}", "select * from nyc.log", names)) == before
    assert len(run_cell("", "select * from nyc.log", names)) == before + 1
    with pytest.raises(UnsupportedError, match="INSERT"):
        run_cell("", "insert into nyc.log values (1, 1)", names)


@pytest.mark.parametrize(
    ("clause", "alias"),
    [
        ("timestamp as of '{0}'", "later"),
        ("FOR SYSTEM_TIME AS OF '{0}'", "later"),
        ("for /* a comment */ timestamp as -- another\n of '{0}' as then", "then"),
        ("timestamp as of timestamp '{0}'", "later"),
        ("timestamp as of cast('{0}' as timestamp) + interval 1 millisecond - interval 1 millisecond then", "then"),
    ],
)
def test_a_statement_reads_a_table_at_a_moment_of_its_own(lab, clause, alias):
    table = lab.create_table("nyc.later", {"id": "int"}, rows=[{"id": 1}])
    point = table.read_point()
    wait_until(lambda: time.time() * 1000 > point.moment_ms + 2, 5)
    table.append([{"id": 2}])
    then = datetime.fromtimestamp(point.moment_ms / 1000, UTC).isoformat()
    try:
        text = f"select max({alias}.id), (select max(nyc.later.id) from nyc.later) from nyc.later {clause.format(then)}"
        assert one(lab.sql(text)) == (1, 2)
        assert one(lab.sql(f"{text} where {alias}.id < 5")) == (1, 2)
    finally:
        lab.drop_table("nyc.later")


@pytest.mark.parametrize(
    ("clause", "words"),
    [
        ("version as of 'tag'", "VERSION AS OF 'tag': expected the id of a lake snapshot"),
        ("timestamp as of null", "found NULL"),
        ("timestamp as of 'nope'", "time 'nope'"),
        ("timestamp as of '1999-01-01'", "there was none at"),
        ("timestamp as of '9999-01-01T00:00:00Z'", "9999"),
    ],
)
def test_a_moment_that_cannot_be_is_refused(lab, clause, words):
    with pytest.raises(InvalidError, match=re.escape(words)):
        lab.sql(f"select * from nyc.log {clause}")


@pytest.mark.parametrize("number", [17, 1_700_000_000_000, 2**62])
def test_a_version_is_a_snapshot_and_never_a_time(lab, number):
    with pytest.raises(LakeSnapshotNotFoundError, match=f"snapshot {number}"):
        lab.sql(f"select * from nyc.flights version as of {number}")


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.session.timeZone": "Asia/Tokyo"},
        {"spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY"},
    ],
    ids=["without zones", "Julian"],
)
def test_days_and_times_are_the_same_in_a_session_that_takes_them_for_others(lab, settings):
    times = [datetime(1, 1, 1, 12, tzinfo=UTC), *(datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in range(8))]
    rows = [{"id": number, "day": each.date(), "at": each} for number, each in enumerate(times)]
    table = lab.create_table(
        "nyc.times", {"id": "int", "day": "date", "at": "timestamp_ltz(6)"}, properties=LAKE, rows=rows
    )
    table.tier()
    session = lab.spark.newSession()
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        assert sorted(scan_to_spark(session, table.scan()).toArrow().to_pylist(), key=lambda row: row["id"]) == rows
        late = table.scan(where="at >= '2024-01-01T05:00:00Z'")
        assert scan_to_spark(session, late).count() == late.count() == 3
        text = "select count(*) from nyc.times timestamp as of current_timestamp()"
        assert one(lab.sql(text, session=session)) == (len(rows),)
    finally:
        lab.drop_table("nyc.times")


def test_a_session_that_finds_columns_by_name_gives_the_same_rows(lab):
    table = lab.create_table("nyc.ratios", {"id": "int", "ratio": "double"}, properties=LAKE)
    table.append([{"id": number, "ratio": number / 4} for number in range(8)])
    table.tier()
    session = lab.spark.newSession()
    session.conf.set("spark.sql.parquet.fieldId.read.enabled", "false")
    assert one(lab.sql("select count(ratio), sum(ratio) from nyc.ratios where ratio > 1", session=session)) == (3, 4.5)


def test_a_read_of_another_session_leaves_the_active_one_alone(lab):
    """Spark looks for the source of a write in the active session, which may have none of that name."""
    lab.create_table("nyc.nothing", {"id": "int"})
    dirty = lab.create_table("nyc.dirty", {"id": "int", "v": "int"}, primary_key=["id"], properties=LAKE)
    dirty.upsert([{"id": number, "v": 0} for number in range(20)])
    dirty.tier()
    dirty.upsert([{"id": number, "v": 1} for number in range(5)])
    lab.spark.createDataFrame([(1,)], "id int")  # makes it the active one
    other = lab.spark.newSession()
    assert one(lab.sql("select count(*), sum(v) from nyc.dirty", session=other)) == (20, 5)
    assert one(lab.sql("select count(*) from nyc.nothing", session=other)) == (0,)
    active = getattr(lab.spark._jvm, SESSION_CLASS).getActiveSession()
    assert active.get().equals(lab.spark._jsparkSession)


def test_frames_are_written_and_streamed_in_any_thread(lab, tmp_path):
    """A thread of Python has one of the JVM, without an active session, and so has the main one after an interrupt."""
    copy = lab.create_table("nyc.copied", {"id": "int", "delay": "int"})

    def work():
        rows = lab.sql("select id, delay from nyc.log")
        rows.write.format("fluss").option("table", "nyc.copied").option("staging", str(tmp_path)).mode("append").save()
        stream = lab["nyc.log"].stream(start="earliest").writeStream.format("fluss").option("table", "nyc.copied")
        query = stream.option("checkpointLocation", str(tmp_path / "stream")).trigger(availableNow=True).start()
        query.awaitTermination()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()
    assert copy.count() == 2 * lab["nyc.log"].count()


def test_variables_of_a_statement_move_no_name(lab):
    lab.spark.conf.set("some.wide.text", "'more than the variable''s own name is long'")
    text = "select ${some.wide.text} as text, log.id from nyc.log where nyc.log.id = 3"
    assert one(lab.sql(text)) == ("more than the variable's own name is long", 3)
    assert one(lab.spark.sql(text)) == one(lab.sql(text))
    other = lab.spark.newSession()
    other.conf.set("some.wide.text", "'x'")
    assert one(lab.sql(text, session=other)) == ("x", 3)


def test_open_labs_share_spark_and_are_not_taken_for_each_other(lab, tmp_path):
    with Lab.open(tmp_path / "other") as other:
        other.create_database("nyc")
        other.create_table("nyc.log", {"id": "int", "delay": "int"})
        rows, stream, found = lab.sql("select id, delay from nyc.log"), lab["nyc.log"].stream(), []
        assert one(other.sql("select count(*) from nyc.log")) == (0,)
        writer = rows.write.format("fluss").mode("append").option("staging", str(tmp_path))
        for ask in (lambda: writer.save("nyc.log"), lambda: lab.spark.read.format("fluss").load("nyc.log").count()):
            with pytest.raises(PySparkException, match="which lab"):
                ask()
        assert other["nyc.log"].scan().count() == 0
        query = stream.writeStream.foreachBatch(lambda batch, _: found.append(batch.count()))
        query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
        assert found == [lab["nyc.log"].scan().count()]
        for each, count in ((lab, rows.count()), (other, 0)):
            assert len(run_cell("", "select * from nyc.log", {"only": each})) == count
        writer.option("lab", str(other.folder)).save("nyc.log")
        assert other["nyc.log"].scan().count() == rows.count()
    assert lab.spark.read.format("fluss").load("nyc.log").count() == rows.count()
