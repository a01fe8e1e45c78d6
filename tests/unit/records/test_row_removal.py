"""Rows without some: the same whether few or many are removed, whatever batch they are a slice of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.records import row_removal
from fluss_lab.records.row_removal import boolean_array, member_places, without_rows


@pytest.mark.parametrize("few", [1, 2, 5, 1024])
def test_rows_at_places_are_left_out(rng, monkeypatch, few):
    monkeypatch.setattr(row_removal, "FEW_REMOVED", few)
    for _ in range(60):
        numbers = list(range(rng.randrange(60)))
        texts = pa.array([None if each % 5 == 0 else f"t{each}" for each in numbers], pa.string())
        batch = pa.record_batch({"text": texts, "number": pa.array(numbers, pa.int64())})
        low = rng.randrange(len(numbers) + 1)
        batch = batch.slice(low, rng.randrange(len(numbers) - low + 1))
        # In no order, some twice.
        places = rng.choices(range(len(batch)), k=rng.choice([0, 1, 2, 80])) if len(batch) else []
        found = without_rows(batch, np.array(places, dtype=np.int64))
        found.validate(full=True)
        assert found.schema == batch.schema
        assert found.to_pylist() == [row for place, row in enumerate(batch.to_pylist()) if place not in places]


def test_members_are_found_where_they_are(rng):
    for _ in range(200):
        values = sorted(rng.sample(range(40), rng.randrange(40)))
        values = rng.choice((values, list(range(7, 7 + len(values)))))  # with gaps, or without
        members = sorted(rng.choices(range(-5, 50), k=rng.choice([0, 1, 3, 60])))
        found = member_places(np.array(values, dtype=np.int64), np.array(members, dtype=np.int64))
        assert found.tolist() == [values.index(each) for each in members if each in values]


def test_booleans_become_arrow_s():
    for count in (0, 1, 7, 8, 9, 1000):
        values = np.arange(count) % 3 == 0
        assert boolean_array(values).equals(pa.array(values))
