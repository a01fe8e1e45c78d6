"""Sizes that are told before rows are copied: those that they have when they were."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.errors import RecordTooLargeError
from fluss_lab.model.types import DataType
from fluss_lab.records.row_sizes import check_rows, rows_bytes, value_bytes, widest_bytes
from tests.unit.server.kv.kv_kit import maybe_null

TYPES = [
    "boolean", "tinyint", "int", "double", "decimal(30, 4)", "string", "bytes", "binary(21)", "timestamp(9)",
    "array<double>", "array<array<string>>", "map<int, string>", "row<x float, y array<row<z string>>>",
]  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_sizes_are_about_those_of_the_values_copied(name, seed):
    rng, dtype = random.Random(seed), DataType.parse(name)
    values = [maybe_null(rng, dtype) for _ in range(300)]
    column = pa.array([None, *values], dtype.arrow()).slice(1)
    sizes = value_bytes(column)
    assert sizes.shape == (300,)
    assert widest_bytes([column]) == sizes.max()
    chosen = np.array([rng.randrange(300) for _ in range(200)] + [5] * 200)
    copied = pa.concat_arrays([column.take(pa.array(chosen))])
    held = sum(buffer.size for buffer in copied.buffers() if buffer is not None)
    # Bits that tell nulls are not counted; booleans count as bytes.
    assert 0.6 * held - 1000 <= rows_bytes([column], chosen) <= 1.4 * held + 1000


def test_rows_are_counted_as_often_as_they_are_copied():
    column = pa.array(["x" * 1000] + ["y"] * 999)
    check_rows([column], np.zeros(9, np.int64), 10_000)
    check_rows([column], np.arange(1, 1000), 10_000)
    with pytest.raises(RecordTooLargeError, match="10 rows have 10040 bytes, expected at most 10000"):
        check_rows([column], np.zeros(10, np.int64), 10_000)
