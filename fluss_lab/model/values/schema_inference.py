"""The schema of rows that a person has: what a table of them is made with, when no types are named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidSchemaError
from fluss_lab.model.values.arrow_import import import_stream, import_values
from fluss_lab.model.values.casts import first_failing, value_text
from fluss_lab.model.values.pandas_frames import is_frame, is_series

#: What has every value of an unsigned type.
_SIGNED: Final = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.int64()}


def is_rows(value: object) -> bool:
    """Return whether a value is rows whose schema can be taken: a pandas frame, or Arrow data."""
    return is_frame(value) or isinstance(value, _ARROW) or hasattr(value, "__arrow_c_stream__")


_ARROW: Final = (pa.Table, pa.RecordBatch, pa.RecordBatchReader)


def schema_of(rows: Any) -> pa.Schema:
    """Return the Arrow schema of rows.

    Arrow data has its own. Of a pandas frame, a list of dicts or a dict of columns, each column gets the type of its
    values; times in nanoseconds get microseconds where no value has finer ones, unsigned integers the next signed type.

    Args:
        rows: Any form that `fluss_lab.model.values.row_input.record_batches` takes. The index of a frame is left out.

    Raises:
        InvalidSchemaError: A column has no one type that a table can have; the text names it, and what to do.
    """
    if isinstance(rows, _ARROW):
        return rows.schema
    if is_frame(rows):
        _check_names(list(rows.columns))
        return pa.schema([pa.field(name, _type(name, rows[name])) for name in rows.columns])
    if isinstance(rows, Mapping):
        _check_names(list(rows))
        return pa.schema([pa.field(name, _type(name, values)) for name, values in rows.items()])
    if isinstance(rows, list | tuple) and rows and all(isinstance(row, Mapping) for row in rows):
        names = list(dict.fromkeys(name for row in rows for name in row))
        _check_names(names)
        return pa.schema([pa.field(name, _type(name, [row.get(name) for row in rows])) for name in names])
    if hasattr(rows, "__arrow_c_stream__"):
        return import_stream(rows, InvalidSchemaError).schema
    raise InvalidSchemaError(
        f"schema of rows: expected a pandas frame, Arrow data, a list of dicts or a dict of columns, found {value_text(rows)}"
    )


def _check_names(names: Sequence[Any]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise InvalidSchemaError(f"column {name!r}: expected a text as its name; rename the column first")
        if names.count(name) > 1:
            raise InvalidSchemaError(f"column {name!r} is there twice; rename or drop one of them first")


def _type(name: str, values: Any) -> pa.DataType:
    array = _array(name, values)
    if pa.types.is_null(array.type):
        raise InvalidSchemaError(
            f"column {name!r} has no values to tell its type by; name the type, or drop the column"
        )
    if pa.types.is_duration(array.type):
        raise InvalidSchemaError(
            f"column {name!r}: no Fluss type holds durations; make numbers of them (pandas: .dt.total_seconds())"
        )
    if array.type in _SIGNED:
        return _signed_type(name, array)
    return _coarser(name, array) if pa.types.is_timestamp(array.type) and array.type.unit == "ns" else array.type


def _array(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if hasattr(values, "__arrow_c_stream__") and not is_series(values):
        return import_values(values, InvalidSchemaError)

    def attempt(start: int, stop: int) -> pa.Array | pa.ChunkedArray:
        part = values[start:stop]
        return (
            pa.Array.from_pandas(part)
            if hasattr(part, "dtype") and not isinstance(part, np.ndarray)
            else pa.array(part)
        )

    try:
        return attempt(0, len(values))
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        hint = "make them of one type first (pandas: .astype(str)), or name the type"
        raise InvalidSchemaError(f"column {name!r}: {_odd(values, attempt, error)}; {hint}") from error


def _odd(values: Any, attempt: Any, error: Exception) -> str:
    """Return what is wrong with values that have no one type."""
    kinds = (
        sorted({type(value).__name__ for value in list(values) if value is not None}) if _is_iterable(values) else []
    )
    if len(kinds) > 1:
        return f"its values are of several types ({', '.join(kinds)})"
    try:
        index = first_failing(len(values), attempt)
    except (ValueError, TypeError):
        return f"no type holds its values ({error})"
    return f"no type holds its values: row {index} is {value_text(list(values)[index])}"


def _is_iterable(values: Any) -> bool:
    return hasattr(values, "__iter__")


def _signed_type(name: str, array: pa.Array | pa.ChunkedArray) -> pa.DataType:
    wider = _SIGNED[array.type]
    try:
        pc.cast(array, wider)
    except pa.ArrowInvalid as error:
        raise InvalidSchemaError(
            f"column {name!r}: {array.type} has values above 2^63 - 1, which no integer type of a table holds; give the type "
            "'decimal(20, 0)', or convert the column first"
        ) from error
    return wider


def _coarser(name: str, array: pa.Array | pa.ChunkedArray) -> pa.DataType:
    to = pa.timestamp("us", array.type.tz)
    try:
        pc.cast(array, to)
    except pa.ArrowInvalid as error:
        raise InvalidSchemaError(
            f"column {name!r} has times finer than microseconds: round them (pandas: .dt.floor('us')), or keep them by naming "
            "the type 'timestamp(9)', which cannot go to the lake"
        ) from error
    return to
