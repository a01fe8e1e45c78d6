"""Python values brought to a table's own types: what rows given as dicts are made of.

Arrow's own conversion is too willing (it cuts times, drops time zones, takes 1.0 for an integer), so each column's
Python types are looked at first, all values at once.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from operator import attrgetter, sub
from types import NoneType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.model.types import DataType
from fluss_lab.model.values.casts import CellPosition, cast_array, first_failing, offsets_of

_NUMBERS: Final = (int, float, np.integer, np.floating)
#: By type: the Python types taken, and among their subclasses those that are not.
_PYTHON_TYPES: Final[dict[str, tuple[tuple[type, ...], tuple[type, ...]]]] = {
    "BOOLEAN": ((bool, np.bool_), ()),
    "TINYINT": ((int, np.integer), (bool,)),
    "SMALLINT": ((int, np.integer), (bool,)),
    "INT": ((int, np.integer), (bool,)),
    "BIGINT": ((int, np.integer), (bool,)),
    "FLOAT": (_NUMBERS, (bool, np.longdouble)),
    "DOUBLE": (_NUMBERS, (bool, np.longdouble)),
    "DECIMAL": ((Decimal, int), (bool,)),
    "STRING": ((str,), ()),
    "CHAR": ((str,), ()),
    "BYTES": ((bytes, bytearray, memoryview), ()),
    "BINARY": ((bytes, bytearray, memoryview), ()),
    "DATE": ((dt.date,), (dt.datetime,)),
    "TIME": ((dt.time,), ()),
    "TIMESTAMP": ((dt.datetime,), ()),
    "TIMESTAMP_LTZ": ((dt.datetime,), ()),
    "ARRAY": ((list, tuple, np.ndarray), ()),
    "MAP": ((Mapping, list, tuple), ()),
    "ROW": ((Mapping,), ()),
}
#: By type: values of exactly these Python types are made an array in one step, all right or none.
_PLAIN_TYPES: Final[dict[str, frozenset[type]]] = {
    "BOOLEAN": frozenset({bool}),
    "TINYINT": frozenset({int}),
    "SMALLINT": frozenset({int}),
    "INT": frozenset({int}),
    "BIGINT": frozenset({int}),
    "DOUBLE": frozenset({float, int}),
    "STRING": frozenset({str}),
    "BYTES": frozenset({bytes}),
    "DATE": frozenset({dt.date}),
    "TIMESTAMP": frozenset({dt.datetime}),
    "TIMESTAMP_LTZ": frozenset({dt.datetime}),
}
_WHOLE: Final = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT"})
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of times that have no zone
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_zone_of: Final = attrgetter("tzinfo")
#: What is raised for a value that does not fit.
_UNFIT: Final = (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError)


def array_of(values: Sequence[Any], target: DataType, place: CellPosition) -> pa.Array:
    """Return Python values as an Arrow array of a type; None is null.

    A Python float given for a FLOAT is rounded to 32 bits (Python has no other floats); everything else is exact.

    Raises:
        InvalidRecordError: A value is of another type or does not fit. The text names column, first row and value.

    Cost: about as pyarrow's own conversion.
    """
    if (plain := plain_array(values, target)) is not None:
        return plain
    values = _check_types(values, target, place)
    if target.name == "ARRAY":
        made = _arrays(values, target, place)
    elif target.name == "MAP":
        made = _maps(values, target, place)
    elif target.name == "ROW":
        made = _rows(values, target, place)
    else:
        made = _scalars(values, target, place)
    return cast_array(made, target, place)


def plain_array(values: Sequence[Any], target: DataType) -> pa.Array | None:
    """Return the array of values of the usual Python types; None where there are others, or one does not fit.

    What is None is left to the way by which the first such value is found: so here each column is gone through once to see
    the types, and once by Arrow.
    """
    kinds, taken = set(map(type, values)), _PLAIN_TYPES.get(target.name)
    has_nulls = NoneType in kinds
    kinds.discard(NoneType)
    if taken is None or not kinds <= taken or (has_nulls and not target.nullable):
        return None
    if dt.datetime in taken and not _fit_unit_and_zone(values, target.arrow(), has_nulls=has_nulls):
        return None
    try:
        made = typed_array(values, target)
    except _UNFIT:
        return None
    return made if isinstance(made, pa.Array) else None  # so many texts are in several arrays


def _fit_unit_and_zone(values: Sequence[Any], arrow: pa.TimestampType, *, has_nulls: bool) -> bool:
    if arrow.unit != "us":
        return False
    if arrow.tz is not None:
        return True  # subtracting from times without a zone fails
    # From a time with a zone too another is subtracted, where the zone says that it has no offset.
    zones = [value.tzinfo for value in values if value is not None] if has_nulls else list(map(_zone_of, values))
    return zones.count(None) == len(zones)


def typed_array(values: Sequence[Any], target: DataType) -> pa.Array:
    """Return the array of values that are None or of the usual Python types, times in microseconds.

    What is widespread is made without Arrow's look at each value: whole numbers in half, times in a third of the time.

    Raises:
        _UNFIT: A value does not fit.
    """
    arrow = target.arrow()
    if pa.types.is_timestamp(arrow):
        return _times(values, arrow)
    if target.name in _WHOLE:
        try:
            return pa.array(np.fromiter(values, arrow.to_pandas_dtype(), len(values)))
        except TypeError:
            pass  # one is None
    return pa.array(values, arrow)


def _times(values: Sequence[Any], arrow: pa.TimestampType) -> pa.Array:
    epoch = _EPOCH if arrow.tz is None else _EPOCH_UTC
    try:
        # Python subtracts exactly, and only times with a zone from times with a zone.
        since = list(map(sub, values, repeat(epoch)))
    except TypeError:
        since = [None if value is None else value - epoch for value in values]
    return pa.array(since, pa.duration("us")).view(arrow)


def _check_types(values: Sequence[Any], target: DataType, place: CellPosition) -> Sequence[Any]:
    """Return the values with None for each that pandas calls missing."""
    taken, refused = _PYTHON_TYPES[target.name]
    kinds = set(map(type, values)) - {type(None)}
    if any(map(_is_missing, kinds)):
        values = [None if _is_missing(type(value)) else value for value in values]
        kinds = {kind for kind in kinds if not _is_missing(kind)}
    wrong = {kind for kind in kinds if not issubclass(kind, taken) or (refused and issubclass(kind, refused))}
    if wrong:
        index = next(index for index, value in enumerate(values) if type(value) in wrong)
        names = " or ".join(kind.__name__ for kind in taken if kind.__module__ != "numpy")
        found = type(values[index]).__name__
        raise place.refusal(index, target, values[index], f"a value of type {found}, not {names}")
    return values


def _is_missing(kind: type) -> bool:
    """Return whether a type is that of ``pandas.NA`` or ``pandas.NaT``."""
    return kind.__name__ in {"NAType", "NaTType"} and kind.__module__.startswith("pandas.")


def _scalars(values: Sequence[Any], target: DataType, place: CellPosition) -> pa.Array:
    arrow = target.arrow()
    if target.name in {"TIMESTAMP", "TIMESTAMP_LTZ"}:
        _check_zones(values, target, place)
        finer = any(hasattr(kind, "nanosecond") for kind in set(map(type, values)))  # pandas.Timestamp has them
        fine = finer and any(getattr(value, "nanosecond", 0) for value in values)
        arrow = pa.timestamp("ns" if fine else "us", arrow.tz)
    elif target.name == "TIME":
        _check_zones(values, target, place)
        arrow = pa.time64("us")
    elif target.name == "BINARY":
        arrow = pa.binary()
    elif target.name in {"STRING", "CHAR"}:
        arrow = pa.string()
    made = _convert_values(values, arrow, target, place)
    if target.name == "FLOAT":
        _check_overflow(values, made, target, place)
    return made


def _convert_values(values: Sequence[Any], arrow: pa.DataType, target: DataType, place: CellPosition) -> pa.Array:
    def convert(start: int, stop: int) -> pa.Array:
        return pa.array(values[start:stop], arrow)

    try:
        return convert(0, len(values))
    except _UNFIT as error:
        index = first_failing(len(values), convert)
        raise place.refusal(index, target, values[index], "the value does not fit exactly") from error


def _check_zones(values: Sequence[Any], target: DataType, place: CellPosition) -> None:
    aware = target.name == "TIMESTAMP_LTZ"
    zones = {type(value.tzinfo) for value in values if value is not None}
    if type(None) not in zones if aware else zones <= {type(None)}:
        return
    for index, value in enumerate(values):
        if value is not None and (value.tzinfo is not None) != aware:
            why = "a time without a zone; give it the one it is meant in" if aware else "a time with a time zone"
            raise place.refusal(index, target, value, why)


def _check_overflow(values: Sequence[Any], made: pa.Array, target: DataType, place: CellPosition) -> None:
    infinite = pc.is_inf(made)
    if pc.any(infinite, min_count=0).as_py():
        for index in np.flatnonzero(pc.fill_null(infinite, False).to_numpy(zero_copy_only=False)).tolist():
            if not np.isinf(values[index]):
                raise place.refusal(index, target, values[index], "the value does not fit in 32 bits")


# -- nested ----------------------------------------------------------------------------------------------------------


def _mask(values: Sequence[Any]) -> pa.Array | None:
    nulls = [value is None for value in values]
    return pa.array(nulls) if any(nulls) else None


def _arrays(values: Sequence[Any], target: DataType, place: CellPosition) -> pa.Array:
    offsets, parent_of = offsets_of([0 if value is None else len(value) for value in values])
    flat = [item for value in values if value is not None for item in _items(value)]
    inner = array_of(flat, target.fields[0].type, place.inner("element", parent_of))
    return pa.ListArray.from_arrays(offsets, inner, type=target.arrow(), mask=_mask(values))


def _items(value: Any) -> Any:
    """Return the items of a list; those of a numpy array of times as Python's or pandas's own."""
    return pa.array(value).to_pylist() if isinstance(value, np.ndarray) and value.dtype.kind == "M" else value


def _maps(values: Sequence[Any], target: DataType, place: CellPosition) -> pa.Array:
    pairs = [list(value.items()) if isinstance(value, Mapping) else value for value in values]
    for index, value in enumerate(pairs):
        if value is not None and not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in value):
            raise place.refusal(index, target, value, "expected a dict or a list of (key, value) pairs")
    offsets, parent_of = offsets_of([0 if value is None else len(value) for value in pairs])
    flat = [pair for value in pairs if value is not None for pair in value]
    key, value_type = target.fields[0].type.with_nullable(False), target.fields[1].type
    keys = array_of([pair[0] for pair in flat], key, place.inner("key", parent_of))
    items = array_of([pair[1] for pair in flat], value_type, place.inner("value", parent_of))
    return pa.MapArray.from_arrays(offsets, keys, items, type=target.arrow(), mask=_mask(values))


def _rows(values: Sequence[Any], target: DataType, place: CellPosition) -> pa.Array:
    known = {field.name for field in target.fields}
    present = np.array([index for index, value in enumerate(values) if value is not None], np.int64)
    dense = [value for value in values if value is not None]
    for index, value in enumerate(dense):
        if not value.keys() <= known:
            name = next(name for name in value if name not in known)
            raise place.refusal(int(present[index]), target, value, f"unknown field {name!r}")
    children = [
        array_of(
            [value.get(field.name) for value in dense],
            field.type,
            place.inner(field.name, lambda index: int(present[index])),
        )
        for field in target.fields
    ]
    made = pa.StructArray.from_arrays(children, fields=list(target.arrow()))
    if len(dense) == len(values):
        return made
    ranks = np.full(len(values), -1, np.int64)
    ranks[present] = np.arange(len(dense))
    return made.take(pa.array(ranks, mask=ranks < 0))
