"""Spark's expression of a key's task gives the task that the table's partitioner gives."""

import random
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

from fluss_lab.lookup.bucket_partitioner import BucketPartitioner
from fluss_lab.model import make_descriptor
from fluss_lab.spark.lookup.bucket_expression import task_column

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: By the Fluss type of the key: Arrow's, and a random value.
KEYS = {
    "tinyint": (pa.int8(), lambda r: r.randint(-128, 127)),
    "smallint": (pa.int16(), lambda r: r.randint(-(2**15), 2**15 - 1)),
    "int": (pa.int32(), lambda r: r.randint(-(2**31), 2**31 - 1)),
    "bigint": (pa.int64(), lambda r: r.choice([r.randint(-(2**63), 2**63 - 1), r.randint(-9, 9)])),
    "date": (pa.date32(), lambda r: date(1, 1, 1) + timedelta(days=r.randint(0, 3_000_000))),
    "timestamp_ltz(6)": (
        pa.timestamp("us", "UTC"),
        lambda r: EPOCH + timedelta(microseconds=r.randint(-(10**15), 10**15)),
    ),
}


def partitioner(kind, buckets):
    return BucketPartitioner.of(
        make_descriptor({"k": f"{kind} not null", "x": "int"}, primary_key=["k"], buckets=buckets)
    )


def test_every_key_goes_to_the_task_that_the_partitioner_gives_it(spark, seed):
    rng = random.Random(seed)
    for kind, (arrow, value) in KEYS.items():
        tasks = rng.randint(1, 5)
        own = partitioner(kind, tasks * rng.randint(1, 4))
        keys = pa.array([value(rng) for _ in range(500)], arrow)
        frame = spark.createDataFrame(pa.table({"k": keys}))
        column = task_column(own, pa.schema([("k", arrow)]), [F.col("k")], tasks)
        found = frame.select(column.alias("task")).toArrow()["task"]
        expected = own.partition(pa.record_batch({"k": keys}), tasks)
        assert found.to_pylist() == expected.to_pylist(), (kind, tasks, own)


@pytest.mark.parametrize(
    ("kind", "arrow"), [("string", pa.string()), ("decimal(10, 2)", pa.decimal128(10, 2)), ("boolean", pa.bool_())]
)
def test_other_keys_have_no_expression(spark, kind, arrow):
    assert task_column(partitioner(kind, 4), pa.schema([("k", arrow)]), [F.col("k")], 4) is None


def test_a_bucket_with_several_tasks_has_none(spark):
    assert task_column(partitioner("bigint", 4), pa.schema([("k", pa.int64())]), [F.col("k")], 8) is None
