"""A writer's own rows: which one an offset is, in little memory."""

import sys

import numpy as np
import pytest

from fluss_lab.lake.iceberg.write.pk_split_writer import BLOCK_ROWS, SplitOffsets


def held_bytes(rows: SplitOffsets) -> int:
    return sum(packed.nbytes + sys.getsizeof(base) for base, packed in rows._blocks)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.001])
def test_random_offsets_in_random_portions(seed, share):
    rng = np.random.default_rng(seed)
    rows, count = SplitOffsets(), 3 * BLOCK_ROWS
    base = int(rng.integers(0, 2**40))
    gaps = rng.geometric(share, size=count)
    offsets = base + np.cumsum(gaps).astype(np.int64)
    for portion in np.split(offsets, np.sort(rng.integers(0, count, size=40))):
        if len(portion):
            rows.append(portion)
    assert len(rows) == count
    asked = rng.integers(base - 10, offsets[-1] + 10, size=5000)
    asked[:2500] = rng.choice(offsets, size=2500)
    ordinals = {int(offset): ordinal for ordinal, offset in enumerate(offsets)}
    assert rows.locate(asked).tolist() == [ordinals.get(int(offset), -1) for offset in asked]
    assert held_bytes(rows) <= count * 8 + 1000


def test_rows_of_a_changelog_take_a_bit_an_offset():
    rows = SplitOffsets()
    for start in range(0, 2_000_000, 100_000):
        rows.append(np.arange(start, start + 100_000, 2, dtype=np.int64))
    assert held_bytes(rows) < 2_000_000 / 8 + 2000


def test_asked_between_appends_and_without_rows():
    rows = SplitOffsets()
    assert rows.locate(np.array([0, 5], dtype=np.int64)).tolist() == [-1, -1]
    rows.append(np.array([5, 7], dtype=np.int64))
    assert rows.locate(np.array([7, 6, 5, 4, 8], dtype=np.int64)).tolist() == [1, -1, 0, -1, -1]
    rows.append(np.array([2**62], dtype=np.int64))
    assert rows.locate(np.array([2**62, 7], dtype=np.int64)).tolist() == [2, 1]
    assert rows.locate(np.array([], dtype=np.int64)).tolist() == []
