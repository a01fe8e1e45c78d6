"""NOT NULL fields of rows that are null: Arrow lets them be null there, but casts no such thing, nor writes it to Parquet.

What they are there nobody sees. A file of Parquet does not say it either: read back, such a field is empty bytes, a zero, or null
where the whole column is not in the file.
"""

from __future__ import annotations

from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

Column = TypeVar("Column", pa.Array, pa.ChunkedArray)


def cast_column(column: Column, dtype: pa.DataType) -> Column:
    """Return a column in another type, whatever NOT NULL fields are within its nulls, at any depth.

    Raises:
        pa.ArrowInvalid, pa.ArrowNotImplementedError: A value has no such form; a null that is not within another one is
            where there may be none.

    Cost: that of Arrow's cast; with such fields also the validity bits of nested values, which themselves are not copied but for
    BINARY.
    """
    if not _has_required(column.type):
        return column.cast(dtype)
    if isinstance(column, pa.Array):
        return _fill(column, _none_of(len(column)), dtype).cast(dtype)
    chunks = [_fill(chunk, _none_of(len(chunk)), dtype) for chunk in column.chunks]
    return pa.chunked_array(chunks, column.type).cast(dtype)


def as_written(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows as Arrow writes them to Parquet.

    Cost: as `cast_column`; without NOT NULL fields within other columns none.
    """
    if not any(_has_required(field.type) for field in batch.schema):
        return batch
    return pa.RecordBatch.from_arrays([cast_column(each, each.type) for each in batch.columns], schema=batch.schema)


def _has_required(dtype: pa.DataType) -> bool:
    fields = [dtype.field(place) for place in range(dtype.num_fields)] if pa.types.is_struct(dtype) else []
    if _is_list(dtype):
        return _has_required(dtype.value_type)
    if pa.types.is_map(dtype):
        return _has_required(dtype.key_type) or _has_required(dtype.item_type)
    return any(not field.nullable or _has_required(field.type) for field in fields)


def _is_list(dtype: pa.DataType) -> bool:
    """Return whether a type is an ARRAY's, also as others write it."""
    return bool(pa.types.is_list(dtype) or pa.types.is_large_list(dtype))


def _fill(array: pa.Array, hidden: pa.Array, target: pa.DataType) -> pa.Array:
    """Return an array filled.

    Args:
        array: Any.
        hidden: Which of its values lie within a null.
        target: What it is going to be cast to.
    """
    dtype = array.type
    if pa.types.is_fixed_size_binary(target) and (pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype)):
        return pc.if_else(hidden, pa.scalar(bytes(target.byte_width), dtype), array)
    if not _has_required(dtype):
        return array
    if pa.types.is_struct(dtype):
        fields = _filled_fields(array, pc.or_(hidden, array.is_null()), target)
        return pa.StructArray.from_arrays(fields, fields=list(dtype), mask=array.is_null())
    inner = _inner(array)
    return _around(array, array.buffers()[0], _fill(inner, _none_of(len(inner)), _inner_type(target)))


def _filled_fields(array: pa.StructArray, hidden: pa.Array, target: pa.DataType) -> list[pa.Array]:
    found = []
    for place, field in enumerate(array.type):
        inner = array.field(place)
        if not field.nullable or _has_required(field.type):
            inner = _fill(inner, hidden, target.field(place).type)
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
    if _is_list(array.type):
        return array.values
    entries = [array.type.key_field, array.type.item_field]
    return pa.StructArray.from_arrays([array.keys, array.items], fields=entries)


def _inner_type(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if _is_list(dtype) else pa.struct([dtype.key_field, dtype.item_field])


def _around(array: pa.Array, validity: pa.Buffer | None, inner: pa.Array) -> pa.Array:
    """Return an ARRAY or MAP with other values within."""
    buffers = [validity, array.buffers()[1]]
    return pa.Array.from_buffers(array.type, len(array), buffers, -1, array.offset, [inner])


def _none_of(count: int) -> pa.Array:
    return pa.repeat(pa.scalar(False), count)
