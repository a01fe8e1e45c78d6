"""Streams in Spark itself: from a table whose history is mostly in the lake, into files, and into tables."""

import json
import random

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.spark import register
from fluss_lab.spark.source.source_options import place_options
from fluss_lab.testing import EmbeddedCluster
from tests.unit.read.kit import OPTIONS, ModelTable

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, clock):
    with EmbeddedCluster(tmp_path_factory.mktemp("a lab") / "lab", options=OPTIONS, clock=clock) as running:
        yield running


@pytest.fixture(scope="module")
def session(spark, cluster):
    register(spark, place_options(cluster.address))
    return spark


@pytest.fixture
def history(cluster, clock, request):
    """A table with records in the lake only, and in the cluster only."""
    table = ModelTable(cluster, clock, f"s{abs(hash(request.node.name))}")
    table.append_random(random.Random(1), 90, ["2013-01", "2013-02"])
    table.tier()
    table.expire()
    table.append_random(random.Random(2), 30, ["2013-01", "2013-02"])
    return table


def stream(session, table, **options):
    reader = session.readStream.format("fluss").option("table", str(table.path)).option("changelog", "true")
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def events(rows):
    return sorted((row["_partition"], row["_bucket"], row["_log_offset"], row["id"]) for row in rows)


def expected(table):
    return sorted((each.partition, each.bucket, each.offset, each.row[0]) for each in table.records)


class Files:
    """A sink that knows batches by their number; it may be told to fail before or after it has written one."""

    def __init__(self, folder):
        self.folder = folder
        self.fails = {}
        folder.mkdir()

    def __call__(self, frame, batch_id):
        rows = [[list(row[:3]), row[3]] for row in events(frame.toArrow().to_pylist())]
        if self.fails.get(batch_id) == "before":
            raise RuntimeError("before")
        path = self.folder / f"{batch_id}.json"
        assert not path.exists() or json.loads(path.read_text()) == rows, "a batch came again with other rows"
        path.write_text(json.dumps(rows))
        if self.fails.get(batch_id) == "after":
            raise RuntimeError("after")

    def rows(self):
        found = [json.loads(path.read_text()) for path in self.folder.glob("*.json")]
        return sorted((*place, number) for rows in found for place, number in rows)


def test_a_stream_may_start_while_tasks_of_another_one_are_serialized(session):
    # Spark puts variables into the environment of the source then, and whoever was reading it failed.
    sources = session._jsparkSession.sessionState().dataSourceManager()
    environment = sources.lookupDataSource("fluss").dataSourceCls().envVars()
    looked_at = environment.entrySet().iterator()
    for number in range(40):
        environment.put(f"ADDED_{number}", "meanwhile")
    while looked_at.hasNext():
        looked_at.next()
    for number in range(40):
        environment.remove(f"ADDED_{number}")


def test_a_query_that_fails_and_starts_again_gives_every_event_once(session, history, tmp_path):
    files = Files(tmp_path / "files")
    files.fails = {1: "before", 2: "after"}

    def run():
        frame = stream(session, history, maxRowsPerTrigger=50)
        writer = frame.writeStream.foreachBatch(files).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    for batch_id in (1, 2):
        with pytest.raises(StreamingQueryException):
            run()
        files.fails.pop(batch_id)
        # What the batch that comes again is made of moves meanwhile; and there is a new partition.
        history.append_random(random.Random(batch_id), 10, ["2013-01", f"2014-0{batch_id}"])
        history.tier()
        history.expire()
    query = run()
    assert files.rows() == expected(history)
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    assert max(each["numInputRows"] for each in progress) <= 50
    assert json.loads(progress[-1]["sources"][0]["latestOffset"]) == json.loads(progress[-1]["sources"][0]["endOffset"])
    # Nothing more: no batch at all.
    assert not [each for each in run().recentProgress if each["numInputRows"]]


def test_a_first_batch_that_failed_comes_again_whole_wherever_the_query_is_said_to_start_by_then(
    session, history, tmp_path
):
    files = Files(tmp_path / "files")
    files.fails = {0: "after"}

    def run(start):
        frame = stream(session, history, start=start, maxRowsPerTrigger=20)
        writer = frame.writeStream.foreachBatch(files).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    begun = {f"{month}/{bucket}": 1 for month in ("2013-01", "2013-02") for bucket in range(2)}
    with pytest.raises(StreamingQueryException):
        run(json.dumps(begun))
    # The start may be held no more: the error of `Table.stream` says to give this one then, as it is not used.
    with pytest.raises(StreamingQueryException):
        run("earliest")
    files.fails = {}
    run("latest")
    assert files.rows() == [each for each in expected(history) if each[1] < 2 and each[2] >= 1]


def test_a_running_query_picks_up_what_comes(session, history, cluster, tmp_path):
    files = Files(tmp_path / "files")
    frame = stream(session, history, start="latest", columns="id", maxRowsPerTrigger=7)
    query = frame.writeStream.foreachBatch(files).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        before = len(history.records)
        # An empty partition gives a batch without records, and so without tasks.
        cluster.connection.admin().create_partition(history.path, {"month": "2015-01"})
        query.processAllAvailable()
        history.append_random(random.Random(5), 40, ["2013-02", "2015-01"])
        query.processAllAvailable()
    finally:
        query.stop()
    wanted = sorted((e.partition, e.bucket, e.offset, e.row[0]) for e in history.records[before:])
    assert files.rows() == wanted


def test_a_stream_is_written_into_another_table_once(session, history, cluster, tmp_path):
    path = TablePath("db", "copy")
    columns = {"id": "int", "month": "string", "delay": "smallint", "ratio": "double", "dest": "string"}
    descriptor = make_descriptor(columns, bucket_key=["id"], buckets=2)
    cluster.connection.admin().create_table(path, descriptor)

    def run(folder):
        frame = stream(session, history, maxRowsPerTrigger=80)
        writer = frame.writeStream.format("fluss").option("table", str(path)).option("checkpointLocation", str(folder))
        writer.queryName("flights").trigger(availableNow=True).start().awaitTermination()

    checkpoint = tmp_path / "check point"
    run(checkpoint)
    history.append_random(random.Random(6), 20, ["2013-01"])
    run(checkpoint)
    # As if the driver had died before Spark took note of the last batch.
    last = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdecimal())

    def forget(kind):
        for each in (checkpoint / kind).iterdir():
            if each.name.removeprefix(".").removesuffix(".crc") == str(last):
                each.unlink()

    forget("commits")
    run(checkpoint)
    found = TableReader(cluster.connection, path).changelog().to_arrow()
    assert sorted(found.column("id").to_pylist()) == sorted(each.row[0] for each in history.records)
    assert list((checkpoint / "_fluss_sink" / "staged").iterdir()) == []
    # One that it plans again, further than it went, is not taken for the one that was written.
    forget("commits")
    forget("offsets")
    history.append_random(random.Random(7), 20, ["2013-01"])
    with pytest.raises(
        StreamingQueryException, match=f"expected batch {last} as it was, found one that ends elsewhere"
    ):
        run(checkpoint)
    assert TableReader(cluster.connection, path).changelog().to_arrow().num_rows == found.num_rows


def test_a_frame_is_written_whole_or_not(session, cluster, tmp_path):
    path = TablePath("db", "batch")
    cluster.connection.admin().create_database("db", if_not_exists=True)
    cluster.connection.admin().create_table(path, make_descriptor({"id": "bigint", "v": "string"}, buckets=3))
    frame = session.range(1000).select("id", F.concat(F.lit("v"), "id").alias("v")).repartition(3)
    writer = frame.write.format("fluss").option("staging", str(tmp_path)).mode("append")
    writer.save(str(path))
    wrong = frame.withColumn("v", F.when(F.col("id") < 990, F.col("v")).otherwise(F.raise_error(F.lit("broken"))))
    with pytest.raises(Exception, match="broken"):
        wrong.write.format("fluss").option("staging", str(tmp_path)).mode("append").save(str(path))
    found = TableReader(cluster.connection, path).changelog().to_arrow()
    assert sorted(found.column("id").to_pylist()) == list(range(1000))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Exception, match="append"):
        frame.write.format("fluss").mode("overwrite").save(str(path))


def test_a_stream_of_changes_needs_its_columns(session, cluster, tmp_path):
    path = TablePath("db", "changes")
    cluster.connection.admin().create_database("db", if_not_exists=True)
    cluster.connection.admin().create_table(path, make_descriptor({"id": "int"}, primary_key=["id"]))
    frame = session.readStream.format("fluss").load(str(path))
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException, match="changelog=true"):
        query.awaitTermination()
    with pytest.raises(AnalysisException, match="maxfilespertrigger"):
        session.readStream.format("fluss").option("maxFilesPerTrigger", "3").load(str(path))
    with pytest.raises(AnalysisException, match="expected JSON"):
        session.readStream.format("fluss").option("changelog", "true").option("start", "{").load(str(path))
