"""What a person gives as rows, brought to record batches of the table's own Arrow schema."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fluss_lab.errors import InvalidRecordError
from fluss_lab.model.casts import Place, cast_array, check_names, has_rules, shown
from fluss_lab.model.literals import array_of
from fluss_lab.model.schema import Schema
from fluss_lab.model.types import DataType

#: Rows converted at a time: bounds what a conversion holds beside the input.
_ROWS_PER_BATCH: Final = 1 << 20


def record_batches(rows: object, schema: Schema) -> list[pa.RecordBatch]:
    """Return rows in any accepted form as record batches of exactly the table's Arrow schema.

    Columns go by name; a nullable column that is missing becomes null. No value is changed: see `casts` and
    `literals` for what is taken. Rows keep their order.

    Args:
        rows: A `pa.RecordBatch`, `pa.Table`, `pa.RecordBatchReader`, anything with Arrow's C stream or array
            interface, a pandas DataFrame (its index is left out; NaN in float columns is null), a list of dicts, or
            a dict of columns.
        schema: The table's.

    Returns:
        Batches of at least one row; none for no rows.

    Raises:
        InvalidRecordError: The rows do not fit. The text names the column, and row (counted from 0 over all that was
            given) and value of the first offender.

    Cost: nothing but checks for Arrow data already in the table's types; else one pass.
    """
    wanted = [(column.name, column.type) for column in schema.columns]
    target = schema.arrow()
    plain = not any(has_rules(dtype) for _, dtype in wanted)
    made: list[pa.RecordBatch] = []
    base = 0
    for batch in _arrow_batches(rows, wanted):
        if plain and batch.num_rows and batch.schema.equals(target) and _is_valid(batch):
            made.append(pa.RecordBatch.from_arrays(batch.columns, schema=target))
            base += batch.num_rows
            continue
        check_names(batch.schema.names, wanted, "column")
        if batch.num_rows:
            made.append(_conformed(batch, wanted, target, base))
            base += batch.num_rows
    return made


def _is_valid(batch: pa.RecordBatch) -> bool:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False  # the long way names the column
    return True


def _conformed(
    batch: pa.RecordBatch, wanted: list[tuple[str, DataType]], target: pa.Schema, base: int
) -> pa.RecordBatch:
    arrays = []
    for name, dtype in wanted:
        index = batch.schema.get_field_index(name)
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, dtype.arrow()))
            continue
        column = batch.column(index)
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidRecordError(f"column {name!r}: not valid Arrow data: {error}; no row was appended") from error
        arrays.append(cast_array(column, dtype, Place(name, lambda at: base + at)))
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _arrow_batches(rows: object, wanted: list[tuple[str, DataType]]) -> Iterable[pa.RecordBatch]:
    if isinstance(rows, pa.RecordBatch):
        return [rows]
    if isinstance(rows, pa.Table):
        return rows.to_batches(max_chunksize=_ROWS_PER_BATCH) or [_empty(rows.schema)]
    if isinstance(rows, pa.RecordBatchReader):
        return _reader_batches(rows)
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(rows, pandas.DataFrame):
        return _arrow_batches(_frame_table(rows, wanted), wanted)
    if isinstance(rows, Mapping):
        return _arrow_batches(_columns_table(rows, wanted), wanted)
    if isinstance(rows, list | tuple):
        return _arrow_batches(_dicts_table(rows, wanted), wanted)
    if hasattr(rows, "__arrow_c_stream__"):
        return _reader_batches(pa.RecordBatchReader.from_stream(rows))
    if hasattr(rows, "__arrow_c_array__"):
        return [pa.record_batch(rows)]
    raise InvalidRecordError(
        f"rows: expected Arrow data, a pandas DataFrame, a list of dicts or a dict of columns, found {type(rows).__name__}"
    )


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows, so that the columns of an empty table are checked like any other's."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], names=schema.names)


def _reader_batches(reader: pa.RecordBatchReader) -> Iterable[pa.RecordBatch]:
    try:
        yield _empty(reader.schema)
        yield from reader
    except (pa.ArrowException, OSError) as error:
        raise InvalidRecordError(f"rows: the reader failed: {error}; no row was appended") from error


# -- pandas, dicts ---------------------------------------------------------------------------------------------------


def _frame_table(frame: Any, wanted: list[tuple[str, DataType]]) -> pa.Table:
    names = list(frame.columns)
    check_names(names, wanted, "column")
    types = dict(wanted)
    return pa.table([_series(frame[name], name, types[name]) for name in names], names=names)


def _columns_table(columns: Mapping[Any, Any], wanted: list[tuple[str, DataType]]) -> pa.Table:
    check_names(list(columns), wanted, "column")
    types = dict(wanted)
    arrays = {name: _column(values, name, types[name]) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidRecordError(f"columns of one length are expected, found {lengths}; no row was appended")
    return pa.table(arrays)


def _dicts_table(rows: Sequence[Any], wanted: list[tuple[str, DataType]]) -> pa.Table:
    types = dict(wanted)
    known = types.keys()
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InvalidRecordError(f"row {index}: expected a dict, found {shown(row)}; no row was appended")
        if not row.keys() <= known:
            unknown = next(name for name in row if name not in known)
            raise InvalidRecordError(
                f"row {index}: column {unknown!r} is unknown; expected {', '.join(known)}; no row was appended"
            )
    return pa.table({name: array_of([row.get(name) for row in rows], dtype, _place(name)) for name, dtype in wanted})


def _place(name: str) -> Place:
    return Place(name, lambda index: index)


def _column(values: Any, name: str, dtype: DataType) -> pa.Array | pa.ChunkedArray:
    pandas = sys.modules.get("pandas")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if pandas is not None and isinstance(values, pandas.Series):
        return _series(values, name, dtype)
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return array_of(values.tolist(), dtype, _place(name)) if values.dtype == object else _numpy(values, name, dtype)
    if isinstance(values, list | tuple):
        return array_of(values, dtype, _place(name))
    raise InvalidRecordError(
        f"column {name!r}: expected a list, array or series of values, found {shown(values)} "
        "(a single row is given as a list of one dict); no row was appended"
    )


def _numpy(values: np.ndarray[Any, Any], name: str, dtype: DataType) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, ValueError) as error:
        raise _place(name).mismatch(dtype, f"numpy {values.dtype}", str(error)) from error


def _series(series: Any, name: str, dtype: DataType) -> pa.Array | pa.ChunkedArray:
    if series.dtype == object:
        absent = series.isna()
        values = [None if missing else value for value, missing in zip(series, absent, strict=True)]
        return array_of(values, dtype, _place(name))
    try:
        return pa.Array.from_pandas(series)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise _place(name).mismatch(dtype, f"pandas {series.dtype}", str(error)) from error
