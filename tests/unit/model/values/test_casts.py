"""Arrow arrays in every form that Arrow, and whoever writes it, has for the same values."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from fluss_lab.model import DataType
from fluss_lab.model.values.casts import CellPosition, cast_array

VALUES = {
    "STRING": ["a", "", "é😀", "long" * 9],
    "CHAR(3)": ["abc"],
    "BYTES": [b"", b"\x00\xff"],
    "BINARY(2)": [b"ab"],
    "INT": [1, -(2**31)],
    "BIGINT": [2**62],
    "FLOAT": [1.5],
    "DOUBLE": [1.5, -0.0],
    "BOOLEAN": [True, False],
    "DATE": [date(1969, 1, 2)],
    "TIME(3)": [time(1, 2, 3, 4000)],
    "TIMESTAMP(6)": [datetime(2020, 1, 1, 1, 1, 1, 5)],
    "TIMESTAMP_LTZ(6)": [datetime(2020, 1, 1, tzinfo=UTC)],
    "DECIMAL(10,2)": [Decimal("1.25")],
}
WIDER = {pa.string(): (pa.large_string(), pa.string_view()), pa.binary(): (pa.large_binary(), pa.binary_view())}


def forms(array: pa.Array) -> Iterator[pa.Array]:
    """Yield an array of flat values in other types and encodings, each whole and as slices."""
    for plain in (array, *(array.cast(other) for other in WIDER.get(array.type, ()))):
        values = plain.to_pylist()
        distinct = sorted({each for each in values if each is not None}, key=repr)
        codes = [None if each is None else distinct.index(each) for each in values]
        dictionary = pa.DictionaryArray.from_arrays(pa.array(codes, pa.uint32()), pa.array(distinct, plain.type))
        for form in (plain, run_end_encoded(plain), dictionary):
            yield from (form, form[1:], form[2:5], form[:0])


def run_end_encoded(array: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(array) + 1), pa.int32()), array)


def nested(name: str, inner: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield a type of each kind that has seven values of another one, and an array of it in each form of that kind."""
    starts, sizes = [0, 2, 2, 5], [2, 0, 3, 2]
    offsets = pa.array([*starts, 7])
    keys = pa.array([f"k{number}" for number in range(7)])
    for array in (
        pa.ListArray.from_arrays(offsets.cast(pa.int32()), inner),
        pa.LargeListArray.from_arrays(offsets, inner),
        pa.ListViewArray.from_arrays(pa.array(starts, pa.int32()), pa.array(sizes, pa.int32()), inner),
        pa.LargeListViewArray.from_arrays(pa.array(starts), pa.array(sizes), inner),
    ):
        yield f"ARRAY<{name}>", array
        yield f"ARRAY<{name}>", array[1:3]
    maps = pa.MapArray.from_arrays(offsets.cast(pa.int32()), keys, inner)
    yield f"MAP<STRING,{name}>", maps
    yield f"MAP<STRING,{name}>", maps[1:]
    # A null map has entries behind it, as some writers leave them.
    hidden = pa.Array.from_buffers(maps.type, 4, [pa.py_buffer(b"\x0a"), maps.buffers()[1]], children=[_entries(maps)])
    yield f"MAP<STRING,{name}>", hidden
    for mask in (None, pa.array([True, False, False, True, False, True, True])):
        rows = pa.StructArray.from_arrays([inner], ["x"], mask=mask)
        yield f"ROW<x {name}>", rows
        yield f"ROW<x {name}>", rows[2:]
        yield f"ROW<x {name}>", run_end_encoded(rows[2:])
        yield f"ARRAY<ROW<x {name}>>", pa.ListArray.from_arrays(offsets.cast(pa.int32()), rows)


def _entries(maps: pa.MapArray) -> pa.StructArray:
    fields = [maps.type.key_field, maps.type.item_field]
    return pa.StructArray.from_arrays([maps.keys, maps.items], fields=fields)


@pytest.mark.parametrize("name", VALUES)
def test_every_form_of_arrow_has_the_same_values(name):
    some = VALUES[name]
    values = [some[0], None, some[-1], some[0], some[0], None, some[-1]]
    for array in forms(pa.array(values, DataType.parse(name).arrow())):
        for text, form in [(name, array), *(nested(name, array) if len(array) == len(values) else ())]:
            made = cast_array(form, DataType.parse(text), CellPosition("c", lambda row: row))
            made.validate(full=True)
            assert made.type == DataType.parse(text).arrow(), form.type
            assert made.to_pylist() == form.to_pylist(), form.type
            assert DataType.from_arrow(form.type).arrow() == made.type, form.type
