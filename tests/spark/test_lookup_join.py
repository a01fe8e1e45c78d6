"""Lookup joins of static frames give what Spark's own join gives, however rows are distributed; their plans say how."""

import datetime
import decimal
import random

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

from fluss_lab.errors import InvalidFilterError, InvalidRequestError, UnsupportedError
from fluss_lab.lookup.contract_checks import partitions_of
from fluss_lab.spark.lookup.lookup_frame import JoinRequest, join_frame
from fluss_lab.spark.lookup.task_counts import TaskCounts
from fluss_lab.testing.mock_clock import wait_until
from fluss_lab.testing.sharded_rows import ShardedRows

pytestmark = pytest.mark.spark

TASKS = 3
UTC = datetime.UTC
DAY = datetime.datetime(2013, 1, 1)
#: Name -> type of the source's key, and the value of a number.
KEY_TYPES = {
    "boolean": (pa.bool_(), lambda i: i % 2 == 0),
    "tinyint": (pa.int8(), lambda i: i - 20),
    "smallint": (pa.int16(), lambda i: i * 700),
    "int": (pa.int32(), lambda i: i * 50_000_000),
    "bigint": (pa.int64(), lambda i: i << 57),
    "decimal": (pa.decimal128(20, 3), lambda i: decimal.Decimal(i * 10**14) / 1000),
    "string": (pa.string(), lambda i: f"é{i}" if i else ""),
    "binary": (pa.binary(), lambda i: f"b{i}".encode()),
    "date": (pa.date32(), lambda i: DAY.date() + datetime.timedelta(i)),
    "timestamp": (pa.timestamp("us"), lambda i: DAY + datetime.timedelta(microseconds=i)),
    "timestamp_ltz": (pa.timestamp("us", "UTC"), lambda i: (DAY + datetime.timedelta(hours=i)).replace(tzinfo=UTC)),
    "time": (pa.time64("us"), lambda i: datetime.time(i % 24, 1, 2, i)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sources")


@pytest.fixture(scope="module")
def plane_rows():
    return pa.table(
        {
            "tailnum": [f"N{i}" for i in range(40)],
            "year": pa.array([None if i % 7 == 0 else 1980 + i for i in range(40)], pa.int32()),
            "model": [None if i % 11 == 0 else f"m{i % 5}" for i in range(40)],
        }
    )


@pytest.fixture(scope="module")
def planes(folder, plane_rows):
    return ShardedRows.create(folder / "planes", plane_rows, shard_by=["tailnum"], shards=4, unique=["tailnum"])


@pytest.fixture(scope="module")
def visits(folder):
    """Several rows a key."""
    rows = pa.table({"tailnum": [f"N{i % 13}" for i in range(60)], "place": [f"p{i}" for i in range(60)]})
    return ShardedRows.create(folder / "visits", rows, shard_by=["tailnum"], shards=5)


@pytest.fixture(scope="module")
def flights(spark):
    rng = random.Random(3)
    tails = [None, *(f"N{i}" for i in range(60))]
    rows = [(i, "N1" if rng.random() < 0.5 else rng.choice(tails), 1980 + i % 40) for i in range(300)]
    frame = spark.createDataFrame(rows, "id long, tailnum string, made int").repartition(3).cache()
    yield frame
    frame.unpersist()


def rows_of(frame):
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def frame_of(spark, rows):
    """Return rows in Spark's own types: it takes times without a zone for times with one."""
    plain = [field.name for field in rows.schema if pa.types.is_timestamp(field.type) and field.type.tz is None]
    frame = spark.createDataFrame(rows)
    return frame.withColumns({name: F.col(name).cast("timestamp_ntz") for name in plain})


def own_join(frame, rows, on, how, condition=None):
    """Return Spark's own join with rows, by keys of the same names."""
    side = frame_of(frame.sparkSession, rows)
    renamed = side.select(*[F.col(name).alias(f"r_{name}") for name in side.columns])
    match = F.lit(True)
    for name in on:
        match = match & (frame[name] == renamed[f"r_{name}"])
    if condition is not None:
        match = match & F.expr(condition)
    joined = frame.join(renamed, match, how)
    kept = [name for name in side.columns if name not in on]
    return joined.select(*frame.columns, *[F.col(f"r_{name}").alias(name) for name in kept])


def agree(out, own):
    assert [(field.name, field.dataType) for field in out.schema] == [(f.name, f.dataType) for f in own.schema]
    assert rows_of(out) == rows_of(own)


def plan_of(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize("name", KEY_TYPES)
def test_every_type_of_key(spark, folder, seed, name):
    """Nulls, duplicates, keys without rows, one key that most rows have; unique keys and others; all shuffles."""
    rng = random.Random(f"{seed} {name}")
    kind, value = KEY_TYPES[name]
    numbers = rng.sample(range(40), 25) if name != "boolean" else [1]
    is_unique = rng.random() < 0.5
    held = numbers if is_unique else [rng.choice(numbers) for _ in range(50)]
    rows = pa.table({"k": pa.array([value(i) for i in held], kind), "found": list(range(len(held)))})
    unique = ["k"] if is_unique else []
    source = ShardedRows.create(
        folder / f"{name} {seed}", rows, shard_by=["k"], shards=rng.randint(1, 6), unique=unique
    )
    keys = [
        None if (r := rng.random()) < 0.05 else value(numbers[0] if r < 0.6 else rng.randrange(40)) for _ in range(120)
    ]
    frame = frame_of(spark, pa.table({"id": list(range(120)), "k": pa.array(keys, kind)})).repartition(2)
    how = rng.choice(["left", "inner"])
    request = JoinRequest({"k": "k"}, how, shuffle=rng.random() < 0.7, tasks=rng.randint(1, 7))
    agree(join_frame(frame, source, request), own_join(frame, rows, ["k"], how))


@pytest.mark.parametrize(("how", "shuffle"), [("left", True), ("inner", False)])
def test_conditions_are_part_of_the_match(flights, planes, plane_rows, visits, how, shuffle):
    request = JoinRequest({"tailnum": "tailnum"}, how, where="planes.year < made", alias="planes", shuffle=shuffle)
    agree(join_frame(flights, planes, request), own_join(flights, plane_rows, ["tailnum"], how, "r_year < made"))
    # A row that is not there fulfils nothing, and a comment ends with its line.
    request = JoinRequest(
        {"tailnum": "tailnum"}, how, where="planes.year is null -- ok", alias="planes", shuffle=shuffle
    )
    agree(join_frame(flights, planes, request), own_join(flights, plane_rows, ["tailnum"], how, "r_year is null"))
    rows = pa.table({"tailnum": [f"N{i % 13}" for i in range(60)], "place": [f"p{i}" for i in range(60)]})
    request = JoinRequest({"tailnum": "tailnum"}, how, where="v.place > concat('p', id)", alias="v", shuffle=shuffle)
    agree(join_frame(flights, visits, request), own_join(flights, rows, ["tailnum"], how, "r_place > concat('p', id)"))


def test_names_of_a_condition(spark, planes):
    """The source's name is its row, whatever the stream has of that name; its columns need not be among those wanted."""
    frame = spark.createDataFrame([("N1", 1, 2050), ("N2", 2, 1900)], "tailnum string, year int, planes int").alias(
        "planes"
    )
    request = JoinRequest(
        {"tailnum": "tailnum"}, columns={"model": "m"}, where="planes.year < 1982 and year = 1", alias="planes"
    )
    assert rows_of(join_frame(frame, planes, request)) == [("N1", 1, 2050, "m1"), ("N2", 2, 1900, None)]
    for where in ("planes.nothing = 1", "planes.year <", "year)) or ((true", "1 = (select 1)"):
        with pytest.raises(
            InvalidFilterError, match=r"(?s)lookup join with planes: where .*columns are tailnum, year, model"
        ):
            join_frame(frame, planes, JoinRequest({"tailnum": "tailnum"}, columns={}, where=where, alias="planes"))


def test_columns(spark, planes):
    frame = spark.createDataFrame([("N1", "x")], "tailnum string, model string")
    with pytest.raises(InvalidRequestError, match=r"already.*columns=\{\"model\": \"planes_model\""):
        join_frame(frame, planes, JoinRequest({"tailnum": "tailnum"}, alias="planes"))
    with pytest.raises(InvalidRequestError, match="another looked-up column has a column 'A' already"):
        join_frame(frame, planes, JoinRequest({"tailnum": "tailnum"}, columns={"model": "a", "year": "A"}))
    with pytest.raises(InvalidRequestError, match="no column 'nope'; its columns are tailnum, year, model"):
        join_frame(frame, planes, JoinRequest({"tailnum": "tailnum"}, columns={"nope": "nope"}))
    with pytest.raises(InvalidRequestError, match=r"frame has no column 'nope'.*tailnum, model"):
        join_frame(frame, planes, JoinRequest({"nope": "tailnum"}))
    with pytest.raises(InvalidRequestError, match="'tailnum' is joined on twice"):
        join_frame(frame, planes, JoinRequest({"tailnum": "tailnum", "model": "tailnum"}))
    with pytest.raises(InvalidRequestError, match="expected columns to join on"):
        join_frame(frame, planes, JoinRequest({}))
    named = join_frame(
        frame, planes, JoinRequest({"tailnum": "tailnum"}, columns={"model": "their `m`", "tailnum": "t.n"})
    )
    assert named.columns == ["tailnum", "model", "their `m`", "t.n"]
    assert rows_of(named) == [("N1", "x", "m1", "N1")]
    assert rows_of(join_frame(frame, planes, JoinRequest({"tailnum": "tailnum"}, "inner", columns={}))) == [("N1", "x")]
    assert "lookup" not in plan_of(join_frame(frame, planes, JoinRequest({"tailnum": "tailnum"}, columns={})))


def test_keys_that_cannot_be_compared(spark, planes):
    number = spark.createDataFrame([(1,)], "tailnum long")
    with pytest.raises(UnsupportedError, match="join key 'tailnum'"):
        join_frame(number, planes, JoinRequest({"tailnum": "tailnum"}))
    folded = spark.sql("select 'N1' collate UTF8_LCASE as tailnum")
    with pytest.raises(UnsupportedError, match="UTF8_LCASE"):
        join_frame(folded, planes, JoinRequest({"tailnum": "tailnum"}))
    twice = spark.sql("select 'N1' as tailnum, 'N2' as tailnum")
    with pytest.raises(InvalidRequestError, match="it has 2 of that name"):
        join_frame(twice, planes, JoinRequest({"tailnum": "tailnum"}))


def test_plans_say_how_and_why(flights, planes, visits, folder):
    def plan(source, **request):
        return plan_of(join_frame(flights, source, JoinRequest(**{"on": {"tailnum": "tailnum"}} | request)))

    assert "lookup planes by tailnum [no shuffle: not asked for; all shards]" in plan(planes)
    asked = {"shuffle": True, "tasks": TASKS}
    assert "[custom shuffle: ShardPartitioner, 3 tasks; own shards]" in plan(planes, **asked)
    assert "[hash shuffle: the join keys (model) do not cover the bucket keys (tailnum); all shards]" in plan(
        planes, on={"tailnum": "model"}, columns={"year": "year"}, **asked
    )
    whole = ShardedRows.create(folder / "whole", pa.table({"tailnum": ["N1"]}), shard_by=["tailnum"], shards=1)
    assert "[no shuffle: whole wants its input distributed as it is; all shards]" in plan(whole, **asked)


@pytest.mark.parametrize(("tasks", "shards"), [(1, 1), (3, 4), (4, 2), (5, 3), (17, 16), (2, 17)])
def test_placement(flights, folder, plane_rows, tasks, shards):
    """Each row is in the task that the partitioner gives it, and each task has the rows of its shards and no other."""
    name = f"placed {tasks} {shards}"
    source = ShardedRows.create(folder / name, plane_rows, shard_by=["tailnum"], shards=shards, unique=["tailnum"])
    counts = TaskCounts(flights.sparkSession.sparkContext)
    out = join_frame(flights, source, JoinRequest({"tailnum": "tailnum"}, shuffle=True, tasks=tasks, counts=counts))
    placed = out.select("tailnum", "model", F.spark_partition_id().alias("at")).toArrow().combine_chunks()
    keys = pa.RecordBatch.from_arrays([pa.concat_arrays(placed["tailnum"].chunks)], ["tailnum"])
    partitioner = source.get_partitioner()
    expected = [0] * len(placed) if partitioner is None else partitions_of(partitioner, keys, tasks).tolist()
    assert partitioner is None or placed["at"].to_pylist() == expected
    models = dict(zip(plane_rows["tailnum"].to_pylist(), plane_rows["model"].to_pylist(), strict=True))
    assert [models.get(key) for key in placed["tailnum"].to_pylist()] == placed["model"].to_pylist()
    if partitioner is not None:
        known = pa.RecordBatch.from_arrays([pa.array(plane_rows["tailnum"].to_pylist())], ["tailnum"])
        of_rows = partitions_of(partitioner, known, tasks).tolist()
        wait_until(lambda: sum(row["rows"] + row["null_keys"] for row in counts.rows()) == len(placed))
        assert all(row["rows_cached"] == of_rows.count(row["task"]) for row in counts.rows() if row["rows"])


def test_rows_are_looked_up_once(flights, planes):
    """Whatever is filtered or counted behind the join."""
    counts = TaskCounts(flights.sparkSession.sparkContext)
    out = join_frame(
        flights, planes, JoinRequest({"tailnum": "tailnum"}, "inner", shuffle=True, tasks=2, counts=counts)
    )
    found = out.where("model = 'm1' and year > 1990").groupBy("model").agg(F.max("year"), F.count("*")).collect()
    assert found
    wait_until(lambda: len(counts.rows()) == 2)
    assert sum(row["rows"] + row["null_keys"] for row in counts.rows()) == flights.count()
    assert sum(row["null_keys"] for row in counts.rows()) == flights.where("tailnum is null").count()


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_what_spark_does_with_a_join(spark, flights, planes, plane_rows, visits, adaptive):
    """Unions and coalescing shift and merge tasks; frames are cached, limited, joined with themselves and looked up again."""
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        request = JoinRequest({"tailnum": "tailnum"}, shuffle=True, tasks=TASKS)
        out = join_frame(flights, planes, request)
        own = own_join(flights, plane_rows, ["tailnum"], "left")
        agree(out.union(out).coalesce(2), own.union(own))
        agree(
            out.union(flights.selectExpr("*", "1 as year", "'x' as model")).coalesce(1).where("year > 1"),
            own.where("year > 1"),
        )
        assert out.limit(7).count() == 7
        cached = out.cache()
        assert rows_of(cached) == rows_of(cached) == rows_of(own)
        cached.unpersist()
        both = out.alias("a").join(out.alias("b"), "id").selectExpr("id", "a.model", "b.year")
        assert rows_of(both) == rows_of(own.select("id", "model", "year"))
        again = JoinRequest({"tailnum": "tailnum"}, "inner", columns={"place": "place"}, shuffle=True, tasks=5)
        chained = join_frame(out, visits, again)
        rows = pa.table({"tailnum": [f"N{i % 13}" for i in range(60)], "place": [f"p{i}" for i in range(60)]})
        agree(chained, own_join(own, rows, ["tailnum"], "inner"))
        empty = join_frame(flights.where("id < 0"), planes, request)
        assert empty.count() == 0
        assert empty.columns == out.columns
        few = flights.where("id in (1, 2)")
        agree(
            join_frame(few, planes, JoinRequest({"tailnum": "tailnum"}, shuffle=True, tasks=17)),
            own_join(few, plane_rows, ["tailnum"], "left"),
        )
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", before)


@pytest.mark.parametrize("tasks", [1, 4])
@pytest.mark.parametrize("source", ["planes", "visits"])
def test_changes_of_a_key_stay_in_order(spark, planes, visits, request, tasks, source):
    """Those that come from one task, as those of a bucket do."""
    rows = [("+I" if i < 50 else "+U", f"N{i % 50}", i) for i in range(2000)]
    changes = (
        spark.createDataFrame(rows, "_change_type string, tailnum string, seq int")
        .repartition(3, "tailnum")
        .sortWithinPartitions("seq")
    )
    found = {"planes": planes, "visits": visits}[source]
    out = join_frame(changes, found, JoinRequest({"tailnum": "tailnum"}, shuffle=True, tasks=tasks))
    seen = {}
    for row in out.select("tailnum", "seq", F.spark_partition_id().alias("at")).toLocalIterator():
        at, last = seen.get(row.tailnum, (row.at, -1))
        assert row.at == at
        assert row.seq >= last
        seen[row.tailnum] = (at, row.seq)
    assert len(seen) == 50
