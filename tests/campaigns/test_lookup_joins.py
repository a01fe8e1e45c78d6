"""Random lookup joins of tables: equal to Spark's own join over a union read at the same point, and each row in its task.

Of every buckets x tasks from 1 x 1 to 17 x 17 some (``FLUSS_LAB_JOINS``, default 60): tables of one key, of two with a prefix joined
on, and of partitions joined without them; part of the rows in the lake; changed after the point; keys of every type, with nulls,
duplicates, and one that 97 % of the rows have.
"""

import os
import random
from collections import Counter

import pyarrow as pa
import pytest

import fluss_lab as fl
from fluss_lab.lookup.bucket_partitioner import BucketPartitioner
from fluss_lab.spark.source.source_options import place_options
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.mock_clock import wait_until
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.workbench import Lab
from tests.spark.test_lookup_join import KEY_TYPES, agree, frame_of, own_join
from tests.unit.read.kit import OPTIONS

pytestmark = [pytest.mark.campaign, pytest.mark.spark]

JOINS = int(os.environ.get("FLUSS_LAB_JOINS", "60"))
SIZES = 17
ROWS = 150
KINDS = ("one", "two", "prefix", "parts")
LAKE = {"table.datalake.enabled": True, "table.datalake.auto-maintenance": False}
TYPES = [name for name in KEY_TYPES if name not in ("boolean", "time")]


@pytest.fixture(scope="module")
def lab(spark, tmp_path_factory):
    with EmbeddedCluster(tmp_path_factory.mktemp("a lab") / "lab", options=OPTIONS) as cluster:
        lab = Lab(cluster.connection, folder=None, attachment=None, place=place_options(cluster.address))
        lab.compute._session = spark
        lab.create_database("db")
        yield lab


class World:
    """A table of one kind and size, with rows that a seed decides."""

    def __init__(self, lab, rng, name, kind, buckets):
        self.rng, self.kind = rng, kind
        self.key_type, self.value = KEY_TYPES[rng.choice(TYPES)]
        fields = [pa.field("k", self.key_type, nullable=False), pa.field("x", pa.int32()), pa.field("s", pa.string())]
        key, bucket_key, parts = ["k"], None, None
        if kind in ("two", "prefix"):
            fields.insert(1, pa.field("n", pa.int64(), nullable=False))
            key, bucket_key = ["k", "n"], ["k"] if kind == "prefix" or rng.random() < 0.5 else None
        if kind == "parts":
            fields.insert(0, pa.field("p", pa.string(), nullable=False))
            key, parts = ["p", "k"], ["p"]
        # Iceberg has no bucket transform of two columns.
        self.has_lake = kind != "two" or bucket_key is not None
        self.schema = pa.schema(fields)
        self.table = lab.create_table(
            f"db.{name}", self.schema, primary_key=key, bucket_key=bucket_key, partitioned_by=parts, buckets=buckets,
            properties=LAKE if self.has_lake else None,
        )  # fmt: skip
        self.key = key
        self.on = ["k", "n"] if kind == "two" else ["k"]
        self.lab = lab

    def change(self, times):
        """Write and delete some rows."""
        for _ in range(times):
            rows = [self.row() for _ in range(self.rng.randint(1, 60))]
            names = self.schema.names
            columns = [pa.array([row[name] for row in rows], self.schema.field(name).type) for name in names]
            batch = pa.Table.from_arrays(columns, schema=self.schema)
            if self.rng.random() < 0.25 and times > 1:
                self.table.delete(batch.select(self.key))
            else:
                self.table.upsert(batch)

    def row(self):
        rng = self.rng
        made = {"k": self.value(rng.randrange(24)), "n": rng.randrange(3), "p": f"p{rng.randrange(3)}"}
        made |= {"x": rng.choice([None, rng.randrange(9)]), "s": rng.choice([None, "", "é", "s"])}
        return {name: made[name] for name in self.schema.names}

    def tier(self):
        storage = self.lab.connection.lake_storage()
        run_round(self.lab.connection, storage, LocalTieringExecutor(), table_id=self.table.info.table_id)

    def frame(self, spark):
        """Return rows of a stream: nulls, keys that there are not, and now and then one that nearly all have."""
        skew = self.rng.choice([0.0, 0.97])
        keys = [
            None if self.rng.random() < 0.03 else self.value(1 if self.rng.random() < skew else self.rng.randrange(30))
            for _ in range(ROWS)
        ]
        columns = {"id": list(range(ROWS)), "k": pa.array(keys, self.key_type)}
        if self.kind == "two":
            columns["n"] = pa.array([self.rng.choice([None, 0, 1, 2, 9]) for _ in range(ROWS)], pa.int64())
        self.rows = pa.table(columns)
        return frame_of(spark, self.rows).repartition(self.rng.randint(1, 3))

    def tasks_expected(self, tasks):
        """Return how many rows each task gets, by the partitioner."""
        known = self.rows.select(self.on).drop_null().combine_chunks()
        if not known.num_rows:
            return Counter()
        partitioner = BucketPartitioner.of(self.table.descriptor)
        return Counter(partitioner.partition(known.to_batches()[0], tasks).to_pylist())


@pytest.mark.parametrize("number", range(JOINS))
def test_a_join_is_sparks_own(lab, spark, seed, number):
    rng = random.Random(f"{seed} {number}")
    buckets, tasks = rng.randint(1, SIZES), rng.randint(1, SIZES)
    kind = KINDS[number % len(KINDS)]
    print(f"join {number}: {kind}, {buckets} buckets, {tasks} tasks")
    world = World(lab, rng, f"t{number}", kind, buckets)
    world.change(2)
    if world.has_lake and rng.random() < 0.7:
        world.tier()
    world.change(2)
    point = world.table.read_point()
    frame = world.frame(spark)
    mode, how, shuffle = rng.choice(["full", "remote", "auto"]), rng.choice(["left", "inner"]), rng.random() < 0.8
    metrics = fl.LookupMetrics()
    out = lab.lookup_join(
        frame, world.table, on=world.on, how=how, mode=mode, as_of=point, shuffle=shuffle, tasks=tasks if shuffle else None,
        metrics=metrics, options={"lookup.cache.max-rows": rng.choice([1, 7, 1_000])},
    )  # fmt: skip
    world.change(3)
    rows = (
        world.table.scan(read_point=point)
        .to_arrow()
        .select([*world.on, *(n for n in world.schema.names if n not in world.on)])
    )
    agree(out, own_join(frame, rows, world.on, how))
    if shuffle:
        expected = world.tasks_expected(tasks)
        wait_until(lambda: sum(row["rows"] for row in metrics.tasks()) >= sum(expected.values()))
        found = Counter({row["task"]: row["rows"] for row in metrics.tasks() if row["rows"]})
        assert found == expected
