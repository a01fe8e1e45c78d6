"""`Lab.lookup_join`: tables of a lab looked up for frames and streams, by name and by hand."""

import json
import random
import re
import socket
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

import fluss_lab as fl
from fluss_lab.errors import (
    InvalidPropertyError,
    InvalidRequestError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.read.moment.read_point import ReadPoint
from fluss_lab.spark.lookup.batch_points import POINTS
from fluss_lab.spark.lookup.lookup_frame import JoinRequest, join_frame
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.mock_clock import wait_until
from fluss_lab.testing.sharded_rows import ShardedRows
from fluss_lab.workbench import Lab
from tests.spark.dying_lookup import DiesOnce
from tests.unit.lookup.lawbreakers import ByAdmittedChance, ByChance, Lawbreaker, OutOfRange

pytestmark = pytest.mark.spark

MODES = ("full", "remote", "auto")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with EmbeddedCluster(tmp_path_factory.mktemp("a lab") / "lab") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def lab(spark, cluster):
    # By its folder, as sources of a lab on this machine find their server, wherever it listens.
    lab = Lab(cluster.connection, folder=None, attachment=None, place={"lab": str(cluster.folder)})
    lab.compute._session = spark
    lab.create_database("nyc")
    return lab


@pytest.fixture(scope="module")
def planes(lab):
    rows = [{"tailnum": f"N{i}", "year": None if i % 7 == 0 else 1980 + i, "model": f"m{i % 5}"} for i in range(200)]
    schema = {"tailnum": "string", "year": "int", "model": "string"}
    return lab.create_table("nyc.planes", schema, rows=rows, primary_key=["tailnum"], buckets=4)


@pytest.fixture(scope="module")
def flights(spark):
    rng = random.Random(5)
    rows = [(i, rng.choice([None, "N1", f"N{rng.randrange(300)}"]), 1980 + i % 40) for i in range(400)]
    frame = spark.createDataFrame(rows, "id long, tailnum string, made int").repartition(3).cache()
    yield frame
    frame.unpersist()


def rows_of(frame):
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def own_join(frame, scan, how="left"):
    """Return Spark's own join over a union read."""
    return frame.join(frame.sparkSession.createDataFrame(scan.to_arrow()), "tailnum", how).select(
        *frame.columns, "year", "model"
    )


@pytest.mark.parametrize("mode", MODES)
def test_equals_sparks_own_join(lab, planes, flights, mode):
    """At the moment of the call, or at one before it; whatever is written meanwhile."""
    before = planes.read_point()
    planes.upsert([{"tailnum": f"N{i}", "year": 1, "model": mode} for i in range(100, 260)])
    planes.delete([{"tailnum": f"N{i}"} for i in range(20)])
    metrics = fl.LookupMetrics()
    now = lab.lookup_join(flights, planes, on="tailnum", shuffle=True, tasks=3, mode=mode, metrics=metrics)
    then = lab.lookup_join(flights, "nyc.planes", on=["tailnum"], how="inner", mode=mode, as_of=before)
    point = planes.read_point()
    planes.upsert([{"tailnum": f"N{i}", "year": 7, "model": "later"} for i in range(250)])
    assert rows_of(now) == rows_of(own_join(flights, planes.scan(read_point=point)))
    assert rows_of(then) == rows_of(own_join(flights, planes.scan(read_point=before), "inner"))
    wait_until(lambda: len(metrics.tasks()) == 3)
    assert sum(metrics.tasks().column("rows")) == flights.where("tailnum is not null").count()
    assert (
        "BucketPartitioner, 3 tasks; " + ("full" if mode != "remote" else "remote")
        in now._jdf.queryExecution().toString()
    )
    table = metrics.to_arrow()
    assert table.column_names[:4] == ["batch", "task", "partition", "attempt"]
    assert sorted(table["task"].to_pylist()) == [0, 1, 2]
    assert metrics.to_pandas()["matched"].sum() == now.where("model is not null").count()
    assert "tasks of lookup joins" in metrics._repr_html_()


@pytest.mark.parametrize("mode", ["full", "remote"])
def test_a_statement_s_tasks_find_the_server_on_another_port(lab, cluster, planes, flights, mode):
    flights.createOrReplaceTempView("flights_here")
    statement = "SELECT /*+ LOOKUP('table'='p', 'mode'='{}') */ id, p.model FROM flights_here f {} AS p ON f.tailnum = p.tailnum"
    frame = lab.sql(statement.format(mode, "LEFT JOIN nyc.planes FOR SYSTEM_TIME AS OF PROCTIME()"))
    expected, port = rows_of(frame), cluster.address.port
    cluster.stop()
    with socket.create_server(("127.0.0.1", port)):
        cluster.start()
        assert cluster.address.port != port
        assert rows_of(frame) == expected


def test_conditions_and_columns(lab, planes, flights):
    out = lab.lookup_join(
        flights, planes, on={"tailnum": "tailnum"}, columns={"model": "plane"}, where="planes.year < made"
    )
    rows = planes.scan().to_arrow().to_pylist()
    models = {row["tailnum"]: row for row in rows}

    def expected(row):
        plane = models.get(row.tailnum)
        return plane["model"] if plane and plane["year"] is not None and plane["year"] < row.made else None

    assert out.columns == ["id", "tailnum", "made", "plane"]
    assert all(row.plane == expected(row) for row in out.collect())


def test_what_is_refused(lab, planes, flights, tmp_path):
    def join(frame=flights, table="nyc.planes", **given):
        return lab.lookup_join(frame, table, **{"on": "tailnum"} | given)

    with pytest.raises(InvalidRequestError, match="expected a Spark DataFrame, found Table"):
        join(planes.scan().to_arrow())
    with pytest.raises(TableNotFoundError, match=r"nyc\.plane"):
        join(table="nyc.plane")
    with pytest.raises(InvalidRequestError, match="how: expected 'left' or 'inner', found 'outer'"):
        join(how="outer")
    with pytest.raises(InvalidRequestError, match="mode auto, full, remote, found 'fast'"):
        join(mode="fast")
    with pytest.raises(InvalidRequestError, match="with shuffle=True only"):
        join(tasks=3)
    with pytest.raises(InvalidRequestError, match=r"tasks: expected a whole number in \[1, 65536\]"):
        join(tasks=0, shuffle=True)
    with pytest.raises(InvalidPropertyError, match=r"lookup\.cache\.rows"):
        join(options={"lookup.cache.rows": 3})
    with pytest.raises(InvalidPropertyError, match="expected IGNORE or TRY_RESOLVE, found 'ALWAYS'"):
        join(options={"table.optimizer.non-deterministic-update.strategy": "ALWAYS"})
    log = lab.create_table("nyc.log", {"tailnum": "string"})
    with pytest.raises(UnsupportedError, match="no primary key"):
        join(table=log)
    source = ShardedRows.create(tmp_path / "rows", pa.table({"tailnum": ["N1"]}), shard_by=["tailnum"], shards=2)
    with pytest.raises(UnsupportedError, match="are those of a lab's tables; rows is a source of its own"):
        join(table=source, mode="full")
    assert join(table=source, how="inner").count() == flights.where("tailnum = 'N1'").count()


def test_fallbacks_of_updating_input(lab, planes, flights):
    """Each has its reason in the plan."""

    def plan(frame, **given):
        out = lab.lookup_join(frame, planes, on="tailnum", shuffle=True, tasks=2, **given)
        return out._jdf.queryExecution().toString()

    changes = flights.withColumn("_change_type", F.lit("+I"))
    resolve = {"table.optimizer.non-deterministic-update.strategy": "TRY_RESOLVE"}
    assert "[custom shuffle: BucketPartitioner, 2 tasks; " in plan(changes)
    assert "[custom shuffle: BucketPartitioner, 2 tasks; " in plan(changes, options=resolve)  # all at one moment
    # Of a stream each micro-batch finds the table as it is then.
    stream = lab["nyc.planes"].stream(columns=["tailnum"])
    assert "[custom shuffle: BucketPartitioner, 2 tasks; " in plan(stream)
    assert "[hash shuffle: updates may find other rows later, and are to be resolved (TRY_RESOLVE); " in plan(
        stream, options=resolve
    )
    assert "[custom shuffle: BucketPartitioner, 2 tasks; " in plan(stream, options=resolve, as_of=planes.read_point())
    lab.create_table(
        "nyc.small", {"id": "int", "x": "string"}, primary_key=["id"], rows=[{"id": 1, "x": "a"}], buckets=2
    )
    wide = lab.lookup_join(flights.select("id"), "nyc.small", on="id", how="inner", shuffle=True, tasks=2)
    assert "[hash shuffle: the type of id has not all values of the stream's; " in wide._jdf.queryExecution().toString()
    assert rows_of(wide) == [(1, "a")]
    other = lab.lookup_join(flights.withColumn("x", F.lit("a")), "nyc.small", on="x", columns={"id": "i"}, shuffle=True)
    assert (
        "[hash shuffle: the join keys (x) do not cover the bucket keys (id); " in other._jdf.queryExecution().toString()
    )
    assert {row.i for row in other.collect()} == {1}


def test_the_example_of_the_documentation_runs(spark, lab, tmp_path):
    """The stream of docs/spark.md, with a table that changes while it stands still."""
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    (code,) = re.findall(r"## Lookup joins\n.*?```python\n(.*?)```", page, re.DOTALL)
    if "nyc.flights" not in lab:
        lab.create_table("nyc.flights", {"id": "bigint", "tailnum": "string"}, rows=[{"id": 1, "tailnum": "N1"}])
    if (path := "nyc.planes") in lab:
        lab.drop_table(path)
    schema = {"tailnum": "string", "model": "string", "seats": "int"}
    lab.create_table(path, schema, rows=[{"tailnum": "N1", "model": "m1", "seats": 50}], primary_key=["tailnum"])
    names = {"fl": fl, "lab": lab, "folder": str(tmp_path / "checkpoint")}
    code = code.replace('.toTable("enriched")', '.format("memory").queryName("enriched").start()')
    exec(code, names)
    names["query"].processAllAvailable()
    names["query"].stop()
    assert [(row.tailnum, row.model, row.seats) for row in spark.table("enriched").collect()] == [("N1", "m1", 50)]
    wait_until(lambda: len(names["metrics"].tasks()) == 1)


def kept_points(checkpoint, name):
    """Return the point of each micro-batch, as the checkpoint has them."""
    paths = (checkpoint / POINTS / name).iterdir()
    return {int(path.name): ReadPoint.from_json(json.loads(path.read_text())["point"]) for path in paths}


@pytest.mark.parametrize("mode", ["full", "remote"])
def test_a_stream_finds_the_table_at_the_point_of_each_batch(spark, lab, tmp_path, mode):
    """While the table changes before, during and after each batch; one fails behind its output, and runs again."""
    name = f"nyc.moving_{mode}"
    schema = {"id": "bigint", "version": "int"}
    table = lab.create_table(
        name, schema, rows=[{"id": i, "version": 0} for i in range(50)], primary_key=["id"], buckets=3
    )
    source = lab.create_table(f"nyc.in_{mode}", {"k": "bigint"}, rows=[{"k": i % 60} for i in range(100)])
    rng, found, fails = random.Random(mode), {}, {2}
    checkpoint = tmp_path / "checkpoint"

    def change():
        ids = rng.sample(range(60), 20)
        table.upsert([{"id": i, "version": rng.randrange(1000)} for i in ids[:12]])
        table.delete([{"id": i} for i in ids[12:]])

    def write(batch, number):
        rows = rows_of(batch.select("k", "version"))
        change()
        assert rows_of(batch.select("k", "version")) == rows
        assert found.setdefault(number, rows) == rows
        if number in fails:
            fails.remove(number)
            raise RuntimeError("behind the output")
        source.append([{"k": rng.randrange(60)} for _ in range(100)])

    def start():
        stream = source.stream(max_rows_per_trigger=100)
        out = lab.lookup_join(stream, table, on={"k": "id"}, shuffle=True, tasks=2, mode=mode)
        return out.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint)).start()

    query = start()
    with pytest.raises(StreamingQueryException, match="behind the output"):
        query.awaitTermination(120)
    change()
    query = start()
    wait_until(lambda: len(found) > 4 or query.exception() is not None, timeout_s=120)
    query.stop()
    points = kept_points(checkpoint, name)
    assert len(found) >= 5
    for number, rows in found.items():
        versions = {row["id"]: row["version"] for row in table.scan(read_point=points[number]).to_arrow().to_pylist()}
        assert rows == sorted(((k, versions.get(k)) for k, _ in rows), key=repr)
    assert len({point.to_json() for point in points.values()}) == len(points)


def test_a_table_that_is_made_again_ends_the_stream(spark, lab, tmp_path):
    schema = {"id": "bigint", "version": "int"}
    lab.create_table("nyc.gone", schema, rows=[{"id": 1, "version": 1}], primary_key=["id"])
    source = lab.create_table("nyc.in_gone", {"id": "bigint"}, rows=[{"id": 1}])
    out = lab.lookup_join(source.stream(), "nyc.gone", on="id")
    found = []

    def start(frame):
        writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    query = start(out)
    query.processAllAvailable()
    lab.drop_table("nyc.gone")
    lab.create_table("nyc.gone", schema, rows=[{"id": 1, "version": 2}], primary_key=["id"])
    source.append([{"id": 1}])
    with pytest.raises(StreamingQueryException, match="TableNotFoundError"):
        query.awaitTermination(120)
    # Also by a join with the new one.
    query = start(lab.lookup_join(source.stream(), "nyc.gone", on="id"))
    with pytest.raises(StreamingQueryException, match="it was dropped and made again"):
        query.awaitTermination(120)
    assert [row.version for row in found] == [1]


def test_an_altered_table_keeps_its_columns_in_a_join(lab, flights):
    table = lab.create_table("nyc.altered", {"id": "bigint", "x": "int"}, rows=[{"id": 1, "x": 1}], primary_key=["id"])
    out = lab.lookup_join(flights.select("id"), table, on="id", how="inner")
    table.alter(add_columns={"y": "int"})
    table.upsert([{"id": 1, "x": 2, "y": 2}])
    assert [tuple(row) for row in out.collect()] == [(1, 1)]
    assert lab.lookup_join(flights.select("id"), table, on="id", how="inner").columns == ["id", "x", "y"]


def test_a_task_that_dies_is_run_again(flights, tmp_path):
    rows = pa.table({"tailnum": [f"N{i}" for i in range(50)], "place": list(range(50))})
    source = Lawbreaker.create(tmp_path / "rows", rows, shard_by=["tailnum"], shards=4, unique=["tailnum"])
    source.function = DiesOnce
    out = join_frame(flights, source, JoinRequest({"tailnum": "tailnum"}, shuffle=True, tasks=3))
    found = rows_of(out)
    places = {f"N{i}": i for i in range(50)}
    expected = [(*row, places.get(row.tailnum)) for row in flights.collect()]
    assert found == sorted(expected, key=repr)
    assert (tmp_path / "rows" / "died").exists()


def test_errors_of_tasks_name_what_is_wrong(flights, tmp_path):
    rows = pa.table({"tailnum": [f"N{i}" for i in range(50)], "place": list(range(50))})
    source = Lawbreaker.create(tmp_path / "rows", rows, shard_by=["tailnum"], shards=4, unique=["tailnum"])
    for partitioner, text in (
        (OutOfRange, "OutOfRange.partition: expected partitions in"),
        (ByChance, "ByChance says that it is deterministic"),
    ):
        source.partitioner = partitioner
        with pytest.raises(PythonException, match=f"fluss_lab.errors.InvalidError: .*{text}"):
            join_frame(flights, source, JoinRequest({"tailnum": "tailnum"}, shuffle=True, tasks=3)).collect()


def test_a_partitioner_by_chance_is_not_for_updates(flights, tmp_path):
    """Such a stream is distributed by the join keys, and each task looks up in all shards."""
    rows = pa.table({"tailnum": [f"N{i}" for i in range(50)], "place": list(range(50))})
    source = Lawbreaker.create(tmp_path / "rows", rows, shard_by=["tailnum"], shards=4, unique=["tailnum"])
    source.partitioner = ByAdmittedChance
    request = JoinRequest({"tailnum": "tailnum"}, shuffle=True, tasks=3)
    inserts = join_frame(flights, source, request)
    assert "[custom shuffle: ByAdmittedChance, 3 tasks; " in inserts._jdf.queryExecution().toString()
    changes = flights.withColumn("_change_type", F.lit("+I"))
    out = join_frame(changes, source, request)
    reason = "[hash shuffle: ByAdmittedChance is not deterministic, and the input has updates; "
    assert reason in out._jdf.queryExecution().toString()
    own = changes.join(flights.sparkSession.createDataFrame(rows), "tailnum", "left").select(*changes.columns, "place")
    assert rows_of(out) == rows_of(own)
