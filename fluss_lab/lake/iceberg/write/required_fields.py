"""NOT NULL fields of rows that are null: Arrow lets them be null there, and writes no such thing to Parquet."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def fill_required(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in which no NOT NULL field is null that lies within a null, at any depth: what it is there, nobody sees.

    A null that is not within another one stays, to be refused.

    Cost: none for a column without such fields; else the validity bits of its nested values, which themselves are not copied.
    """
    if not _has_required(column.type):
        return column
    return pa.chunked_array([_filled(chunk, _none_of(len(chunk))) for chunk in column.chunks], column.type)


def _has_required(dtype: pa.DataType) -> bool:
    fields = [dtype.field(place) for place in range(dtype.num_fields)] if pa.types.is_struct(dtype) else []
    if pa.types.is_list(dtype):
        return _has_required(dtype.value_type)
    if pa.types.is_map(dtype):
        return _has_required(dtype.key_type) or _has_required(dtype.item_type)
    return any(not field.nullable or _has_required(field.type) for field in fields)


def _filled(array: pa.Array, hidden: pa.Array) -> pa.Array:
    """Return an array filled, given which of its values lie within a null."""
    dtype = array.type
    if not _has_required(dtype):
        return array
    if pa.types.is_struct(dtype):
        fields = _filled_fields(array, pc.or_(hidden, array.is_null()))
        return pa.StructArray.from_arrays(fields, fields=list(dtype), mask=array.is_null())
    return _around(array, array.buffers()[0], _filled(_inner(array), _none_of(len(_inner(array)))))


def _filled_fields(array: pa.StructArray, hidden: pa.Array) -> list[pa.Array]:
    found = []
    for place, field in enumerate(array.type):
        inner = _filled(array.field(place), hidden)
        if not field.nullable and inner.null_count and not pc.any(pc.and_not(inner.is_null(), hidden)).as_py():
            inner = _all_valid(inner)
        found.append(inner)
    return found


def _all_valid(array: pa.Array) -> pa.Array:
    """Return an array without its validity bits: in place of nulls is what lies there."""
    if pa.types.is_struct(array.type):
        fields = list(array.type)
        return pa.StructArray.from_arrays([array.field(place) for place in range(len(fields))], fields=fields)
    if pa.types.is_nested(array.type):
        return _around(array, None, _inner(array))
    return pa.Array.from_buffers(array.type, len(array), [None, *array.buffers()[1:]], 0, array.offset)


def _inner(array: Any) -> pa.Array:
    """Return the values within an ARRAY or MAP, those before its offset too."""
    if pa.types.is_list(array.type):
        return array.values
    entries = [array.type.key_field, array.type.item_field]
    return pa.StructArray.from_arrays([array.keys, array.items], fields=entries)


def _around(array: pa.Array, validity: pa.Buffer | None, inner: pa.Array) -> pa.Array:
    """Return an ARRAY or MAP with other values within."""
    buffers = [validity, array.buffers()[1]]
    return pa.Array.from_buffers(array.type, len(array), buffers, -1, array.offset, [inner])


def _none_of(count: int) -> pa.Array:
    return pa.repeat(pa.scalar(False), count)
