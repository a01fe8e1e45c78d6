"""Single keys are written as Arrow writes them, and read only where Arrow would read the same."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fluss_lab.records.single_key import SingleKey

TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]


def by_arrow(type, *values):
    schema = pa.schema([pa.field("id", type, nullable=False)])
    return bytes(pa.record_batch([pa.array(values, type)], schema=schema).serialize())


@pytest.mark.parametrize("type", TYPES)
def test_a_key_has_the_bytes_that_arrow_gives_it(type, rng):
    single, bits = SingleKey.of(pa.schema([("id", type)])), type.bit_width
    half = 1 << bits - 1
    for value in (0, 1, -1, half - 1, -half, *(rng.randrange(-half, half) for _ in range(20))):
        data = by_arrow(type, value)
        assert single.encode(value) == data
        assert single.decode([data]) == single.decode([memoryview(data)]) == value % (1 << bits)
    with pytest.raises(OverflowError):
        single.encode(half)


@pytest.mark.parametrize("type", TYPES)
def test_other_bytes_are_left_to_arrow(type):
    single, data = SingleKey.of(pa.schema([("id", type)])), by_arrow(type, 1)
    others = [by_arrow(other, 1) for other in TYPES if other != type]
    nothing = bytes(pa.record_batch([pa.array([None], type)], names=["id"]).serialize())
    damaged = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data) - 8)]
    for wrong in (b"", data[:-1], data + b"\0", by_arrow(type, 1, 1), by_arrow(type), nothing, *others, *damaged):
        assert single.decode([wrong]) is None
    assert single.decode([]) is None
    assert single.decode([data[:8], data[8:]]) is None


@pytest.mark.parametrize(
    "columns", [[], [("a", pa.int64()), ("b", pa.int64())], [("a", pa.string())], [("a", pa.float64())]]
)
def test_only_keys_of_one_integer_are_single_ones(columns):
    assert SingleKey.of(pa.schema(columns)) is None
