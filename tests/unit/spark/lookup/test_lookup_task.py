"""The lookups of a task: rows of whatever numbers and orders, and what sources and partitioners do wrong."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import types as T  # noqa: N812

from fluss_lab.errors import InvalidError, InvalidRequestError, UnsupportedError
from fluss_lab.lookup import LookupJoinContext
from fluss_lab.lookup.contract_checks import partitions_of
from fluss_lab.lookup.key_cast import KeyCasts
from fluss_lab.lookup.portable import portable_text
from fluss_lab.spark.lookup.batch_points import BATCH, CHECKPOINT, POINTS, RUN
from fluss_lab.spark.lookup.lookup_task import LookupTask, PartitionTask
from fluss_lab.spark.source.spark_types import arrow_schema
from fluss_lab.testing.sharded_rows import ShardedRows
from tests.unit.lookup.lawbreakers import Backwards, ByChance, Lawbreaker, LongNumbers, OutOfRange

TASKS = 3
ROWS = pa.table({"id": pa.array(range(30), pa.int64()), "name": [f"n{i}" for i in range(30)]})
TWICE = pa.table({"id": pa.array([i % 15 for i in range(30)], pa.int64()), "name": [f"n{i}" for i in range(30)]})


@pytest.fixture(autouse=True)
def context():
    """What Spark sets in a worker."""
    made = TaskContext._getOrCreate()
    made._partitionId, made._attemptNumber, made._taskAttemptId, made._localProperties = 1, 0, 5, {}
    yield made
    TaskContext._setTaskContext(None)


class Counts:
    """What a task counted."""

    def __init__(self):
        self.found = {}

    def add(self, key, counts):
        self.found[key] = counts


def make(folder, kind=ShardedRows, rows=ROWS):
    unique = ["id"] if rows is ROWS else []
    return kind.create(folder / "rows", rows, shard_by=["id"], shards=5, unique=unique)


def task_of(source, tasks=TASKS, is_stream=False, counts=None):
    casts = KeyCasts.of(pa.schema([("id", pa.int64())]), pa.schema([("id", pa.int64())]))
    context = LookupJoinContext(("id",), ("name",), tasks is not None, tasks, is_stream)
    partitioner = None if tasks is None else portable_text(source.get_partitioner())
    target = arrow_schema(T.StructType([T.StructField("name", T.StringType())]))
    columns = pa.schema([("name", pa.string())])
    return LookupTask(
        source=source.name, function=portable_text(source.lookup_function(context)), secret="", keys=casts, columns=columns,
        spark_columns=target, is_unique=source.is_unique(["id"]), parallelism=tasks, partitioner=partitioner, has_points=True,
        is_stream=is_stream, join="join", counts=counts,
    )  # fmt: skip


def numbers_of(source, keys, tasks=TASKS):
    return pa.array(partitions_of(source.get_partitioner(), pa.RecordBatch.from_arrays([keys], ["id"]), tasks))


def run(task, *batches):
    return [answer.to_pylist() for answer in task.run(iter(batches))]


def expected(keys, rows=ROWS):
    names = {}
    for row in rows.to_pylist():
        names.setdefault(row["id"], []).append({"name": row["name"]})
    found = [names.get(key, []) for key in keys.to_pylist()]
    return [each[0] if each else None for each in found] if rows is ROWS else found


@pytest.mark.parametrize("rows", [ROWS, TWICE], ids=["unique", "several"])
@pytest.mark.parametrize("tasks", [None, 1, TASKS])
def test_rows_of_several_numbers_in_one_task(tmp_path, rows, tasks):
    """As a union or coalescing gives them; nulls, keys without rows, batches without any, empty ones."""
    source, counts = make(tmp_path, rows=rows), Counts()
    rng = np.random.default_rng(1)
    batches = [
        pa.array([None if i % 9 == 0 else int(i) for i in rng.integers(0, 40, 50)], pa.int64()) for _ in range(3)
    ]
    batches += [pa.array([None, None], pa.int64()), pa.array([], pa.int64()), pa.array([99], pa.int64())]
    given = batches if tasks is None else [(keys, numbers_of(source, keys, tasks)) for keys in batches]
    assert run(task_of(source, tasks, counts=counts), *given) == [expected(keys, rows) for keys in batches]
    done = list(counts.found.values())
    assert [row["task"] for row in sorted(done, key=lambda row: row["task"])] == list(range(tasks or 1))
    whole = [key for keys in batches for key in keys.to_pylist()]
    assert sum(row["null_keys"] for row in done) == whole.count(None)
    assert sum(row["rows"] for row in done) == len(whole) - whole.count(None)
    assert sum(row["matched"] for row in done) == sum(
        key is not None and key in rows["id"].to_pylist() for key in whole
    )


def test_rows_with_another_number_than_the_partitioner_gives(tmp_path):
    source = make(tmp_path)
    keys = pa.array([1, 2, 3], pa.int64())
    wrong = pa.array((numbers_of(source, keys).to_numpy() + 1) % TASKS)
    with pytest.raises(InvalidError, match=r"ShardPartitioner says that it is deterministic"):
        run(task_of(source), (keys, wrong))


@pytest.mark.parametrize(
    ("partitioner", "text"),
    [(OutOfRange, r"OutOfRange.partition: expected partitions in \[0, 3\)"), (LongNumbers, "LongNumbers.*int64")],
)
def test_a_partitioner_that_returns_what_it_must_not(tmp_path, partitioner, text):
    source = make(tmp_path, Lawbreaker)
    source.partitioner = partitioner
    task = PartitionTask(portable_text(source.get_partitioner()), task_of(source, None).keys, TASKS)
    with pytest.raises(InvalidError, match=text):
        list(task.run(iter([pa.array(range(30), pa.int64())])))


def test_a_partitioner_that_lies_about_determinism(tmp_path):
    source = make(tmp_path, Lawbreaker)
    source.partitioner = ByChance
    keys = pa.array(range(30), pa.int64())
    with pytest.raises(InvalidError, match="ByChance says that it is deterministic, and gave the same join keys"):
        run(task_of(source), (keys, numbers_of(source, keys)))


def test_a_function_that_breaks_a_promise(tmp_path):
    source = make(tmp_path, Lawbreaker)
    source.function = Backwards
    with pytest.raises(InvalidError, match=r"Backwards\.lookup: expected ascending positions"):
        run(task_of(source, None), pa.array([1, 2], pa.int64()))


def test_a_stream_looks_up_at_the_kept_point(tmp_path, context):
    source = make(tmp_path)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    context._localProperties = {CHECKPOINT: checkpoint.as_uri(), RUN: "run", BATCH: "4"}
    keys = pa.array([1, 2], pa.int64())
    task = task_of(source, is_stream=True)
    first = run(task, (keys, numbers_of(source, keys)))
    source.put(pa.table({"id": pa.array([1], pa.int64()), "name": ["new"]}))
    assert run(task, (keys, numbers_of(source, keys))) == first
    assert json.loads((checkpoint / POINTS / "rows" / "4").read_text())["point"] == "1"
    context._localProperties[BATCH] = "5"
    assert run(task, (keys, numbers_of(source, keys))) == [[{"name": "new"}, None]]


def test_a_stream_outside_of_micro_batches_is_refused(tmp_path):
    source = make(tmp_path)
    keys = pa.array([1], pa.int64())
    with pytest.raises(InvalidRequestError, match="expected a micro-batch"):
        run(task_of(source, is_stream=True), (keys, numbers_of(source, keys)))


def test_values_beyond_sparks_types_are_refused(tmp_path):
    source = make(tmp_path)
    task = task_of(source, None)
    object.__setattr__(task, "spark_columns", pa.schema([("name", pa.int32())]))
    with pytest.raises(UnsupportedError, match="column 'name'"):
        run(task, pa.array([1], pa.int64()))


def test_no_secret_is_shown(tmp_path):
    task = task_of(make(tmp_path), None)
    object.__setattr__(task, "secret", "s3cret")
    assert "s3cret" not in repr(task)
