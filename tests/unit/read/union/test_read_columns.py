"""Batches of a read: joined and cut, as large as is worth it, and never so large that memory or a column's 2 GB do not hold them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.read.union import read_columns
from fluss_lab.read.union.read_columns import coalesce, rebatch
from fluss_lab.records import LogRecords


def batch(first: int, count: int, size: int) -> pa.RecordBatch:
    return pa.record_batch({"id": np.arange(first, first + count), "text": [b"x" * size] * count})


def records(first: int, count: int, size: int) -> LogRecords:
    offsets = pa.array(np.arange(first, first + count))
    return LogRecords(batch(first, count, size), offsets, pa.array(np.zeros(count, dtype=np.int64)))


def ids(batches: list[pa.RecordBatch]) -> list[int]:
    return [each for one in batches for each in one.column("id").to_pylist()]


@pytest.mark.parametrize("rows_max", [1, 3, 7, 100])
def test_small_rows_come_in_batches_of_as_many_as_asked(rows_max):
    found = list(rebatch((batch(first, 5, 10) for first in range(0, 50, 5)), batch(0, 1, 1).schema, rows_max))
    assert ids(found) == list(range(50))
    assert {each.num_rows for each in found[:-1]} <= {rows_max}


def test_large_rows_come_in_batches_of_as_many_bytes(monkeypatch):
    """They were held until there were 65,536 of them, and of what was more than 2 GB the end was left out without a word."""
    monkeypatch.setattr(read_columns, "BATCH_BYTES", 1_000)
    found = list(rebatch((batch(first, 1, 400) for first in range(20)), batch(0, 1, 1).schema))
    assert ids(found) == list(range(20))
    assert max(each.nbytes for each in found) < 1_000 + 420
    assert len(found) < 10


def test_records_are_joined_up_to_so_many_bytes(monkeypatch):
    monkeypatch.setattr(read_columns, "GATHERED_BYTES", 1_000)
    found = list(coalesce(records(first, 1, 400) for first in range(20)))
    assert ids([each.rows for each in found]) == list(range(20))
    assert max(each.rows.nbytes for each in found) < 1_000 + 420
    assert len(found) < 10
    small = list(coalesce(records(first, 1, 10) for first in range(20)))
    assert len(small) == 1
