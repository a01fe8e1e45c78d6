"""Rows without dead ones: the same whether few or many are dead, whatever batch they are a slice of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.lake.iceberg.read.dead_rows import DeadRows
from fluss_lab.records import row_removal


@pytest.mark.parametrize("few", [1, 2, 5, 1024])
def test_rows_are_left_out_by_their_offsets(rng, monkeypatch, few):
    monkeypatch.setattr(row_removal, "FEW_REMOVED", few)
    for _ in range(60):
        offsets = sorted(rng.sample(range(90), rng.randrange(60)))
        texts = pa.array([None if each % 5 == 0 else f"t{each}" for each in offsets], pa.string())
        batch = pa.record_batch({"text": texts, "__offset": pa.array(offsets, pa.int64())})
        low = rng.randrange(len(offsets) + 1)
        batch = batch.slice(low, rng.randrange(len(offsets) - low + 1))
        # Some twice, some that are no row's.
        arrays = tuple(
            np.array(sorted(rng.choices(range(100), k=rng.choice([0, 1, 2, 80]))), dtype=np.int64)
            for _ in range(rng.randrange(3))
        )
        stop = rng.choice([None, rng.randrange(100)])
        gone = {int(each) for array in arrays for each in array}
        found = DeadRows(arrays, stop=stop).without(batch)
        found.validate(full=True)
        assert found.schema == batch.schema
        assert found.to_pylist() == [
            row for row in batch.to_pylist() if row["__offset"] not in gone and (stop is None or row["__offset"] < stop)
        ]
