"""`Lab.lookup_join`: tables of a lab looked up for frames and streams, by name and by hand."""

import random
import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

import fluss_lab as fl
from fluss_lab.errors import (
    InvalidPropertyError,
    InvalidRequestError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.spark.source.source_options import place_options
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.mock_clock import wait_until
from fluss_lab.testing.sharded_rows import ShardedRows
from fluss_lab.workbench import Lab

pytestmark = pytest.mark.spark

MODES = ("full", "remote", "auto")


@pytest.fixture(scope="module")
def lab(spark, tmp_path_factory):
    with EmbeddedCluster(tmp_path_factory.mktemp("a lab") / "lab") as cluster:
        lab = Lab(cluster.connection, folder=None, attachment=None, place=place_options(cluster.address))
        lab.compute._session = spark
        lab.create_database("nyc")
        yield lab


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
    narrow = changes.withColumn("tailnum", F.col("tailnum").cast("string")).withColumn(
        "made", F.col("made").cast("long")
    )
    assert "[custom shuffle: BucketPartitioner" in plan(narrow)


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
