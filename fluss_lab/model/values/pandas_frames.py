"""Rows as pandas frames, and back: one mapping of types, which no row and no null changes.

====================  =======================================================================================
type                  in pandas
====================  =======================================================================================
BOOLEAN               ``boolean``, null is ``pandas.NA``
TINYINT ... BIGINT    ``Int8``, ``Int16``, ``Int32``, ``Int64``, null is ``pandas.NA``
FLOAT, DOUBLE         ``float32``, ``float64``; null is NaN
TIMESTAMP(p)          ``datetime64`` of seconds, ms, us or ns; null is ``NaT``
TIMESTAMP_LTZ(p)      the same in UTC
all others            Python objects: ``str``, ``bytes``, ``date``, ``time``, ``Decimal``; an ARRAY is a numpy array (of
                      ``Timestamp`` where its times have a zone), a MAP a list of pairs, a ROW a dict, and integers within
                      are never made floats; null is None
====================  =======================================================================================

Every frame that the project gives is made here. Back in, ``NA``, ``NaT`` and None are null, and so is NaN.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidRecordError, UnsupportedError
from fluss_lab.model.types import DataType
from fluss_lab.model.values.casts import INTEGERS, CellPosition
from fluss_lab.model.values.python_values import array_of
from fluss_lab.model.values.required_fields import cast_column

if TYPE_CHECKING:
    import pandas as pd

_NULLABLE: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "Int8",
    pa.int16(): "Int16",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
}
#: The number of a time that is none.
_NAT: Final = -(2**63)
#: Stands for those of a type that has none.
_NO_CATEGORIES: Final = np.array([], np.int64)
#: From here on a float may stand for several integers.
_FLOAT_EXACT_MAX: Final = 2**53


def to_pandas(rows: pa.Table) -> pd.DataFrame:
    """Return rows as a pandas frame, by the mapping of this module.

    Raises:
        UnsupportedError: pandas cannot hold a value (a time of day with nanoseconds, a date after the year 9999).
    """
    plain = _with_loose_bytes(rows.replace_schema_metadata())
    for name, column in zip(plain.column_names, plain.columns, strict=True):
        if (unit := _time_unit(column.type)) and any(map(_has_nat, column.chunks)):
            raise UnsupportedError(
                f"to_pandas: column {name!r} has the time {_NAT} {unit}, which is pandas's word for none; use to_arrow(), of a table "
                "scan().to_arrow()"
            )
    try:
        frame = plain.to_pandas(types_mapper=_dtypes().get, integer_object_nulls=True)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise UnsupportedError(
            f"to_pandas: column {_unshown(plain)!r} has a value that pandas cannot hold ({error}); use to_arrow(), of a table scan().to_arrow()"
        ) from error
    for place, dtype in enumerate(rows.schema.types):
        if _has_lost_times(dtype):
            frame.isetitem(place, frame.iloc[:, place].map(lambda value, dtype=dtype: _with_times(value, dtype)))
    return frame


def _time_unit(dtype: pa.DataType) -> str:
    """Return the unit of a type's first times; empty where it has none."""
    if pa.types.is_timestamp(dtype):
        return str(dtype.unit)
    return next(filter(None, (_time_unit(dtype.field(place).type) for place in range(dtype.num_fields))), "")


def _has_nat(values: pa.Array) -> bool:
    """Return whether some values have a time that pandas takes for null."""
    if pa.types.is_timestamp(values.type):
        return bool(pc.min(values.view(pa.int64())).as_py() == _NAT)
    if pa.types.is_struct(values.type):
        return any(map(_has_nat, values.flatten()))
    if pa.types.is_map(values.type):
        first, stop = values.offsets[0].as_py(), values.offsets[-1].as_py()
        return any(_has_nat(each.slice(first, stop - first)) for each in (values.keys, values.items))
    return pa.types.is_list(values.type) and _has_nat(values.flatten())


def _with_loose_bytes(rows: pa.Table) -> pa.Table:
    """Return rows whose ARRAYs of BINARY are of BYTES: Arrow makes no objects of lists of values of one length."""
    for place, field in enumerate(rows.schema):
        if (loose := _loose(field.type)) != field.type:
            rows = rows.set_column(place, field.with_type(loose), cast_column(rows.column(place), loose))
    return rows


def _loose(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_list(dtype):
        inner = dtype.value_type
        return pa.list_(
            dtype.value_field.with_type(pa.binary() if pa.types.is_fixed_size_binary(inner) else _loose(inner))
        )
    if pa.types.is_map(dtype):
        return pa.map_(
            dtype.key_field.with_type(_loose(dtype.key_type)), dtype.item_field.with_type(_loose(dtype.item_type))
        )
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(_loose(field.type)) for field in dtype])
    return dtype


def _has_lost_times(dtype: pa.DataType, *, inside: bool = False) -> bool:
    """Return whether a type has times that Arrow changes: nanoseconds within a ROW or MAP to integers, zones within an ARRAY away."""
    if pa.types.is_timestamp(dtype):
        return inside and dtype.unit == "ns"
    if pa.types.is_list(dtype):
        inner = dtype.value_type
        return inner.tz is not None if pa.types.is_timestamp(inner) else _has_lost_times(inner)
    if pa.types.is_map(dtype):
        return _has_lost_times(dtype.key_type, inside=True) or _has_lost_times(dtype.item_type, inside=True)
    return pa.types.is_struct(dtype) and any(_has_lost_times(field.type, inside=True) for field in dtype)


def _with_times(value: Any, dtype: pa.DataType) -> Any:
    """Return a value, as Arrow makes it, with times that are what they were."""
    import pandas as pd

    if value is None:
        return None
    if pa.types.is_struct(dtype):
        return {field.name: _with_times(value[field.name], field.type) for field in dtype}
    if pa.types.is_map(dtype):
        return [(_with_times(key, dtype.key_type), _with_times(item, dtype.item_type)) for key, item in value]
    if pa.types.is_list(dtype) and _has_lost_times(dtype):
        found = np.empty(len(value), object)
        found[:] = [_with_times(each, dtype.value_type) for each in value]
        return found
    if pa.types.is_timestamp(dtype) and isinstance(value, int):
        return pd.Timestamp(value, tz=dtype.tz)
    is_bare = pa.types.is_timestamp(dtype) and dtype.tz is not None and isinstance(value, np.datetime64)
    return pd.Timestamp(value).tz_localize(dtype.tz) if is_bare else value


@cache
def _dtypes() -> dict[pa.DataType, Any]:
    import pandas as pd

    return {arrow: pd.array([], name).dtype for arrow, name in _NULLABLE.items()}


def _unshown(rows: pa.Table) -> str:
    for name in rows.column_names:
        try:
            rows.select([name]).to_pandas(types_mapper=_dtypes().get, integer_object_nulls=True)
        except (pa.ArrowException, ValueError, OverflowError):
            return str(name)
    return ""


def for_pandas(schema: pa.Schema) -> pa.Schema:
    """Return the schema with a note by which Arrow's own ``to_pandas`` maps top-level columns as `to_pandas` does.

    For Arrow tables that are handed out without a ``to_pandas`` of ours beside them.
    """
    columns = [
        {"name": field.name, "field_name": field.name, "pandas_type": str(field.type), "numpy_type": dtype}
        | {"metadata": None}
        for field in schema
        if (dtype := _NULLABLE.get(field.type)) is not None
    ]
    note = {"index_columns": [], "column_indexes": [], "columns": columns}
    return schema.with_metadata({"pandas": json.dumps(note)}) if columns else schema


# -- in --------------------------------------------------------------------------------------------------------------


def is_frame(value: object) -> bool:
    """Return whether a value is a pandas DataFrame; nothing is one before pandas is imported, by whichever thread."""
    return _is_pandas(value, "DataFrame")


def is_series(value: object) -> bool:
    """Return whether a value is a pandas Series."""
    return _is_pandas(value, "Series")


def _is_pandas(value: object, name: str) -> bool:
    kind = getattr(sys.modules.get("pandas"), name, None)
    return kind is not None and isinstance(value, kind)


def check_index(frame: Any, wanted: set[str]) -> None:
    """Check that no wanted column is in the index of a frame, which is left out of its rows.

    Raises:
        InvalidRecordError: One is.
    """
    if inside := [name for name in frame.index.names if name in wanted and name not in frame.columns]:
        raise InvalidRecordError(
            f"column {inside[0]!r} is the frame's index, which is left out; call reset_index() first; nothing was sent"
        )


def series_array(series: Any, dtype: DataType, place: CellPosition) -> pa.Array | pa.ChunkedArray:
    """Return the values of a pandas Series in Arrow: of about a type, to be cast to it.

    Floats are taken for integers where each is a whole number: pandas makes floats of integers beside a missing value.

    Raises:
        InvalidRecordError: They do not fit.
    """
    if series.dtype == object:
        absent = series.isna()
        values = [None if missing else value for value, missing in zip(series, absent, strict=True)]
        return array_of(values, dtype, place)
    if getattr(series.dtype, "categories", _NO_CATEGORIES).dtype == object:
        return _of_categories(series.cat.remove_unused_categories(), dtype, place)
    try:
        array = pa.Array.from_pandas(series)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise place.mismatch(dtype, f"pandas {series.dtype}", str(error)) from error
    if dtype.name in INTEGERS and pa.types.is_floating(array.type):
        return _whole(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array, dtype, place)
    return array


def _of_categories(series: Any, dtype: DataType, place: CellPosition) -> pa.Array:
    """Return values of categories that are Python objects: each may be of another type, and Arrow would change them."""
    codes: np.ndarray[Any, Any] = series.cat.codes.to_numpy()
    row_of = lambda code: place.row_of(int(np.argmax(codes == code)))  # noqa: E731
    values = array_of(list(series.cat.categories), dtype.with_nullable(True), CellPosition(place.column, row_of))
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), values)


def _whole(array: pa.Array, dtype: DataType, place: CellPosition) -> pa.Array:
    array = pc.cast(array, pa.float64())
    exact = pc.and_(pc.equal(pc.floor(array), array), pc.less_equal(pc.abs(array), float(_FLOAT_EXACT_MAX)))
    if not pc.all(exact, min_count=0).as_py():
        index = pc.index(pc.fill_null(exact, True), False).as_py()
        value = array[index].as_py()
        why = "not a whole number; round it first"
        if abs(value) > _FLOAT_EXACT_MAX:
            why = "a float of this size may stand for several integers; read the column as 'Int64'"
        raise place.refusal(index, dtype, value, why)
    return pc.cast(array, pa.int64())
