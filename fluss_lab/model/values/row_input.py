"""Rows as a person gives them, converted to record batches of the table's own Arrow schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fluss_lab.errors import InvalidRecordError
from fluss_lab.model.schema import Schema
from fluss_lab.model.types import DataType
from fluss_lab.model.values.arrow_import import import_batch, import_stream, import_values
from fluss_lab.model.values.casts import CellPosition, cast_array, check_names, has_rules, value_text
from fluss_lab.model.values.pandas_frames import check_index, is_frame, is_series, series_array
from fluss_lab.model.values.python_values import array_of

#: Rows converted at a time: bounds what a conversion holds beside the input.
_ROWS_PER_BATCH: Final = 1 << 20
#: Of the values of a text or binary array, whose offsets have 32 bits.
_ARRAY_BYTES_MAX: Final = 2**31 - 1
#: Choices of columns of a schema for which it is kept what is wanted.
_FORMS_KEPT: Final = 16


@dataclass(frozen=True)
class _Form:
    """What is wanted of rows. Those of a schema are kept with it.

    Attributes:
        wanted: The columns, in the order wanted.
        spare: Further columns that may be given, and are left out.
        complete: Whether every wanted column must be given, nullable or not.
    """

    wanted: list[tuple[str, DataType]]
    spare: frozenset[str] = frozenset()
    complete: bool = False

    @staticmethod
    def of(schema: Schema, columns: tuple[str, ...] | None, others: bool) -> _Form:
        """Return what `record_batches` wants of rows."""
        kept: Callable[..., _Form] | None = schema.derived.get("row_forms")
        kept = kept or schema.derived.setdefault("row_forms", lru_cache(_FORMS_KEPT)(partial(_form_of, schema)))
        return kept(columns, others)

    @cached_property
    def types(self) -> dict[str, DataType]:
        """Return the types of the wanted columns."""
        return dict(self.wanted)

    @cached_property
    def target(self) -> pa.Schema:
        """Return the Arrow schema of the wanted columns."""
        return pa.schema([dtype.arrow_field(name) for name, dtype in self.wanted])

    @cached_property
    def _filled(self) -> list[int] | None:
        """Return which columns must have no nulls; None where there are other rules too, see `casts.has_rules`."""
        if any(has_rules(dtype.with_nullable(True)) for _, dtype in self.wanted):
            return None
        return [index for index, (_, dtype) in enumerate(self.wanted) if not dtype.nullable]

    def is_vouched_for(self, batch: pa.RecordBatch) -> bool:
        """Return whether rows are right as they are: of the target's schema, valid, and without nulls where none may be."""
        filled = self._filled
        return (
            filled is not None
            and batch.num_rows > 0
            and batch.schema.equals(self.target)
            and _is_valid(batch)
            and not any(batch.column(index).null_count for index in filled)
        )

    def check(self, names: list[str]) -> None:
        """Check the names of given columns.

        Raises:
            InvalidRecordError: One is unknown, twice there, or missing.
        """
        taken = [name for name in names if name not in self.spare]
        if self.complete and (missing := [name for name, _ in self.wanted if name not in taken]):
            found = ", ".join(map(str, names)) or "none"
            raise InvalidRecordError(
                f"column {missing[0]!r} is missing; expected each of {', '.join(self.types)}, found {found}; "
                "nothing was sent"
            )
        check_names(taken, self.wanted, "column")


def gathered_rows(rows: Any) -> Any:
    """Return rows that can be gone through several times."""
    rows = spark_as_arrow(rows)
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all()
    if hasattr(rows, "__arrow_c_stream__") and not isinstance(rows, pa.Table) and not is_frame(rows):
        return pa.table(rows)
    return rows


def spark_as_arrow(rows: Any) -> Any:
    """Return a Spark frame's rows as Arrow; anything else as it is."""
    return rows.toArrow() if type(rows).__module__.startswith("pyspark.") and hasattr(rows, "toArrow") else rows


def is_row(rows: Mapping[Any, Any]) -> bool:
    """Return whether a dict is one row, not columns: one of its values cannot be a column."""
    return not all(map(is_column, rows.values()))


def is_column(value: object) -> bool:
    """Return whether a value of a dict can be a column: of a row, it could be an ARRAY's value at most."""
    columns = list | tuple | np.ndarray | pa.Array | pa.ChunkedArray
    return isinstance(value, columns) or is_series(value) or hasattr(value, "__arrow_c_stream__")


def record_batches(
    rows: object, schema: Schema, columns: Sequence[str] | None = None, *, others: bool = True
) -> list[pa.RecordBatch]:
    """Return rows in any accepted form as record batches of exactly the table's Arrow schema, or of some columns of it.

    Columns go by name; a nullable column that is missing becomes null. No value is changed: see `casts` and
    `python_values` for what is taken. Rows keep their order.

    Args:
        rows: A `pa.RecordBatch`, `pa.Table`, `pa.RecordBatchReader`, anything with Arrow's C stream or array
            interface, a pandas DataFrame (its index is left out; NaN is null; whole floats are taken for integers), a
            list of dicts, or a dict of columns.
        schema: The table's.
        columns: Names of the columns wanted, in the order wanted. Each must be given then, also a nullable one (what
            is left out of a partial update would be erased otherwise); other columns of the table are left out,
            unlooked at. None: all of the table's.

    Returns:
        Batches of at least one row; none for no rows.

    Raises:
        InvalidRecordError: The rows do not fit. The text names the column, and row (counted from 0 over all that was
            given) and value of the first offender.

    Cost: nothing but checks for Arrow data already in the table's types; else one pass.
    """
    form = _Form.of(schema, None if columns is None else tuple(columns), others)
    if isinstance(rows, list | tuple):
        return _dict_batches(rows, form) if rows else []
    made: list[pa.RecordBatch] = []
    base = 0
    for batch in _arrow_batches(rows, form):
        if form.is_vouched_for(batch):
            made.append(pa.RecordBatch.from_arrays(batch.columns, schema=form.target))
            base += batch.num_rows
            continue
        form.check(batch.schema.names)
        if batch.num_rows:
            made.extend(_conform_parts(batch, form, base))
            base += batch.num_rows
    return made


def _form_of(schema: Schema, columns: tuple[str, ...] | None, others: bool) -> _Form:
    if columns is None:
        return _Form([(column.name, column.type) for column in schema.columns])
    spare = frozenset(schema.names).difference(columns) if others else frozenset()
    return _Form([(name, schema.column(name).type) for name in columns], spare, complete=True)


def _is_valid(batch: pa.RecordBatch) -> bool:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False  # the long way names the column
    return True


def _conform_parts(batch: pa.RecordBatch, form: _Form, base: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in the table's types: in parts where an array of others' types has more than the 2 GB that one of ours takes."""
    try:
        yield _conform(batch, form.wanted, form.target, base)
    except (InvalidRecordError, pa.ArrowInvalid) as error:
        # Values that an encoding repeats are more than their bytes; of those Arrow says it.
        if batch.num_rows < 2 or (batch.nbytes <= _ARRAY_BYTES_MAX and isinstance(error, InvalidRecordError)):
            raise
        half = batch.num_rows // 2
        yield from _conform_parts(batch.slice(0, half), form, base)
        yield from _conform_parts(batch.slice(half), form, base + half)


def _conform(batch: pa.RecordBatch, wanted: list[tuple[str, DataType]], target: pa.Schema, base: int) -> pa.RecordBatch:
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
            raise InvalidRecordError(f"column {name!r}: not valid Arrow data: {error}; nothing was sent") from error
        arrays.append(cast_array(column, dtype, CellPosition(name, lambda at: base + at)))
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _arrow_batches(rows: object, form: _Form) -> Iterable[pa.RecordBatch]:
    if isinstance(rows, pa.RecordBatch):
        return [rows]
    if isinstance(rows, pa.Table):
        return rows.to_batches(max_chunksize=_ROWS_PER_BATCH) or [_empty(rows.schema)]
    if isinstance(rows, pa.RecordBatchReader):
        return _reader_batches(rows)
    if is_frame(rows):
        return _arrow_batches(_frame_table(rows, form), form)
    if isinstance(rows, Mapping):
        return _arrow_batches(_columns_table(rows, form), form)
    if hasattr(rows, "__arrow_c_stream__"):
        return _reader_batches(import_stream(rows, InvalidRecordError))
    if hasattr(rows, "__arrow_c_array__"):
        return [import_batch(rows)]
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
        raise InvalidRecordError(f"rows: the reader failed: {error}; nothing was sent") from error


# -- pandas, dicts ---------------------------------------------------------------------------------------------------


def _frame_table(frame: Any, form: _Form) -> pa.Table:
    check_index(frame, set(form.types))
    form.check(list(frame.columns))
    types = form.types
    names = [name for name in frame.columns if name in types]
    return pa.table([series_array(frame[name], types[name], _place(name)) for name in names], names=names)


def _columns_table(columns: Mapping[Any, Any], form: _Form) -> pa.Table:
    form.check(list(columns))
    types = form.types
    arrays = {name: _column(values, name, types[name]) for name, values in columns.items() if name in types}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidRecordError(f"columns of one length are expected, found {lengths}; nothing was sent")
    return pa.table(arrays)


def _dict_batches(rows: Sequence[Any], form: _Form) -> list[pa.RecordBatch]:
    """Return dicts as batches. Each column is made in its own type, and checked by that."""
    values = _cells(rows, form)
    arrays = [array_of(values[name], dtype, _place(name)) for name, dtype in form.wanted]
    if len(rows) <= _ROWS_PER_BATCH and all(isinstance(array, pa.Array) for array in arrays):
        return [pa.RecordBatch.from_arrays(arrays, schema=form.target)]
    batches: list[pa.RecordBatch] = pa.Table.from_arrays(arrays, schema=form.target).to_batches(_ROWS_PER_BATCH)
    return batches


def _cells(rows: Sequence[Any], form: _Form) -> dict[str, list[Any]]:
    """Return the values of each wanted column, None for what a row leaves out.

    Raises:
        InvalidRecordError: What is given is no dict, or has not the columns wanted.
    """
    wanted = form.types.keys()
    if set(map(type, rows)) == {dict} and set(map(len, rows)) == {len(wanted)}:
        try:  # as many names as are wanted, and all of these: so no others
            return {name: list(map(itemgetter(name), rows)) for name in wanted}
        except KeyError:
            pass  # the long way fills what may be left out, and names what may not
    known = wanted | form.spare
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InvalidRecordError(f"row {index}: expected a dict, found {value_text(row)}; nothing was sent")
        if not row.keys() <= known:
            unknown = next(name for name in row if name not in known)
            raise InvalidRecordError(
                f"row {index}: column {unknown!r} is unknown; expected {', '.join(wanted)}; nothing was sent"
            )
        if form.complete and not wanted <= row.keys():
            missing = next(name for name in wanted if name not in row)
            raise InvalidRecordError(
                f"row {index}: column {missing!r} is missing; expected each of {', '.join(wanted)}; nothing was sent"
            )
    return {name: [row.get(name) for row in rows] for name in wanted}


def _place(name: str) -> CellPosition:
    return CellPosition(name, lambda index: index)


def _column(values: Any, name: str, dtype: DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if is_series(values):
        return series_array(values, dtype, _place(name))
    if isinstance(values, np.ndarray) and values.ndim == 1:
        # Arrow ends the bytes and texts of numpy at their first NUL.
        is_listed = values.dtype == object or values.dtype.kind in "SU"
        return array_of(values.tolist(), dtype, _place(name)) if is_listed else _numpy(values, name, dtype)
    if isinstance(values, list | tuple):
        return array_of(values, dtype, _place(name))
    if hasattr(values, "__arrow_c_stream__"):
        return import_values(values, InvalidRecordError)
    raise InvalidRecordError(
        f"column {name!r}: expected a list, array or series of values, found {value_text(values)} "
        "(a single row is given as a list of one dict); nothing was sent"
    )


def _numpy(values: np.ndarray[Any, Any], name: str, dtype: DataType) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, ValueError) as error:
        raise _place(name).mismatch(dtype, f"numpy {values.dtype}", str(error)) from error
