"""Pruning of data files by partition values and metrics: never a row too few."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.expressions import (
    And,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    IsNaN,
    IsNull,
    LessThan,
    NotEqualTo,
    Or,
    StartsWith,
)

from fluss_lab.errors import InvalidFilterError
from fluss_lab.model.bucketing import iceberg_bucket_ids
from tests.unit.lake.iceberg.read.test_row_source import COLUMNS, planned, rows

pytestmark = pytest.mark.slow


@pytest.fixture
def table(lake):
    return lake.table(COLUMNS, buckets=2, properties={"iceberg.write.parquet.row-group-limit": "100"})


def test_bucket_keys_prune_to_one_bucket(lake):
    table = lake.table({"id": "bigint"}, bucket_key=["id"], buckets=4)
    ids = np.arange(100)
    buckets = iceberg_bucket_ids(pa.array(ids), 4).to_numpy()
    for bucket in range(4):
        mine = pa.RecordBatch.from_arrays([pa.array(ids[buckets == bucket])], schema=table.schema.arrow_schema)
        snapshot = lake.append(table, mine, bucket=bucket)
    assert [split[1] for split in planned(lake, table, snapshot, where=EqualTo("id", 42))] == [buckets[42]]


def test_fields_that_others_renamed_prune_by_their_ids(lake):
    table = lake.table({"r": "row<x int, y int, z row<w string>>"})
    for first in (0, 100):
        row = {"r": {"x": first, "y": 1_000 + first, "z": {"w": "a"}}}
        batch = pa.RecordBatch.from_pylist([row], schema=table.schema.arrow_schema)
        snapshot = lake.append(table, batch, first)
    for old, new in (("x", "t"), ("y", "x"), ("t", "y"), ("z", "renamed")):
        with lake.load(table).update_schema() as update:
            update.rename_column(("r", old), new)
    for where in (EqualTo("r.x", 100), EqualTo("r.y", 1_100), GreaterThan("r.x", 50)):
        assert any(split[2] == 100 for split in planned(lake, table, snapshot, where=where)), where
    assert len(planned(lake, table, snapshot, where=EqualTo("r.z.w", "a"))) == 2


def test_pruning_never_loses_a_row(lake, table, seed):
    """Filters at random: what the planned files hold equals what the model holds."""
    rng = random.Random(seed)
    every = [rows(table, 200, first) for first in range(0, 1600, 200)]
    for index, batch in enumerate(every):
        snapshot = lake.append(table, batch, index * 200)
    model = pa.Table.from_batches(every)
    source = lake.storage.create_lake_source(table)

    def some(depth=0):
        if depth < 2 and rng.random() < 0.4:
            left, right = some(depth + 1), some(depth + 1)
            return (
                (And(left[0], right[0]), left[1] & right[1])
                if rng.random() < 0.5
                else (Or(left[0], right[0]), left[1] | right[1])
            )
        name = rng.choice(["id", "small", "text", "score"])
        if name == "text":
            value = f"t{rng.randrange(16)}"
            return rng.choice(
                [
                    (EqualTo(name, value), pc.field(name) == value),
                    (IsNull(name), pc.field(name).is_null()),
                    (StartsWith(name, value), pc.starts_with(pc.field(name), value)),
                ]
            )
        value = rng.randrange(-60, 60) if name == "small" else rng.randrange(1700)
        return rng.choice(
            [
                (LessThan(name, value), pc.field(name) < value),
                (GreaterThanOrEqual(name, value), pc.field(name) >= value),
                (NotEqualTo(name, value), pc.field(name) != value),
            ]
        )

    for _ in range(60):
        lake_filter, arrow_filter = some()
        splits = source.plan(snapshot, where=lake_filter)
        batches = [batch for _, batch in source.read(splits, table.schema.names, where=arrow_filter)]
        found = pa.Table.from_batches(batches, schema=model.schema)
        assert found.equals(model.filter(arrow_filter)), lake_filter


def test_filters_that_cannot_be(lake, table):
    snapshot = lake.append(table, rows(table, 5))
    source = lake.storage.create_lake_source(table)
    for where in (EqualTo("nothing", 1), EqualTo("id", "text"), "id = 1", object()):
        with pytest.raises(InvalidFilterError):
            source.plan(snapshot, where=where)


def test_not_a_number_is_kept_and_does_not_mislead_pruning(lake):
    table = lake.table({"x": "double"})
    snapshot = 0
    for first, values in enumerate([[float("nan")] * 3, [1.0, float("nan"), 5.0], [7.0]]):
        batch = pa.RecordBatch.from_arrays([pa.array(values)], schema=table.schema.arrow_schema)
        snapshot = lake.append(table, batch, first * 3)
    source = lake.storage.create_lake_source(table)
    assert pc.is_nan(lake.rows(table, snapshot).column("x")).to_pylist() == [
        True,
        True,
        True,
        False,
        True,
        False,
        False,
    ]
    for where, mask, count in [
        (GreaterThan("x", 4.0), pc.field("x") > 4, 2),
        (LessThan("x", 4.0), pc.field("x") < 4, 1),
        (IsNaN("x"), pc.field("x").is_nan(), 4),
    ]:
        splits = source.plan(snapshot, where=where)
        assert sum(batch.num_rows for _, batch in source.read(splits, ["x"], where=mask)) == count
