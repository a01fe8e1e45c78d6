"""Rows as JSON: one object a line, every value readable back without loss.

Numbers stay numbers, also of 64 bits; decimals are texts; NaN and the infinities are the texts ``NaN``, ``Infinity`` and
``-Infinity``; times are ISO-8601, with ``Z`` where the type is an instant; bytes are base64.
"""

from __future__ import annotations

import itertools
import json
import math
from base64 import b64encode
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

#: Columns of the house that hold instants to the millisecond, in microseconds.
_MILLISECONDS: Final = frozenset({"_commit_timestamp", "__timestamp"})
_INSTANT_MS: Final = pa.timestamp("ms", "UTC")


def json_line(value: Any, *, ascii_only: bool = False) -> str:
    """Return a value as a line of JSON, without its end."""
    line = msgspec.json.encode(value).decode()
    return json.dumps(json.loads(line), separators=(",", ":")) if ascii_only else line


def json_objects(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield a batch's rows as objects that `json_line` takes."""
    names = batch.schema.names
    columns = [json_values(column, name) for name, column in zip(names, batch.columns, strict=True)]
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))


def json_values(array: pa.Array, name: str = "") -> list[Any]:
    """Return a column's values as JSON has them.

    Args:
        array: The column.
        name: What it is called: instants of the house are shown to the millisecond.
    """
    types, found = pa.types, array.type
    if types.is_dictionary(found):
        return json_values(array.dictionary_decode(), name)
    if types.is_timestamp(found):
        return _times(array, _INSTANT_MS if name in _MILLISECONDS else None)
    if types.is_date(found) or types.is_time(found):
        return list(array.cast(pa.string()).to_pylist())
    if types.is_float32(found):
        # The shortest text that means the same 32 bits, not that of the 64 bits that it is widened to.
        return [_number(None if text is None else float(text)) for text in array.cast(pa.string()).to_pylist()]
    if types.is_struct(found) or types.is_list(found) or types.is_map(found):
        return _nested_values(array)
    values: list[Any] = array.to_pylist()
    if types.is_boolean(found) or types.is_integer(found) or types.is_string(found) or types.is_null(found):
        return values
    return [_plain_value(value) for value in values]


def _nested_values(array: pa.Array) -> list[Any]:
    """Return a column's values as JSON has them, of lists and rows each value within; times also of years that Python has not."""
    types, found = pa.types, array.type
    if types.is_struct(found):
        fields = [_nested_values(each) for each in array.flatten()]
        rows = zip(*fields, strict=True) if fields else itertools.repeat((), len(array))
        names = [field.name for field in found]
        whole: list[Any] = [dict(zip(names, row, strict=True)) for row in rows]
    elif types.is_list(found) or types.is_map(found):
        edges = array.offsets.to_pylist()
        inner = [array.values] if types.is_list(found) else [array.keys, array.items]
        values = [_nested_values(each[edges[0] : edges[-1]]) for each in inner]
        entries = values[0] if types.is_list(found) else list(map(list, zip(*values, strict=True)))
        whole = [entries[start - edges[0] : stop - edges[0]] for start, stop in itertools.pairwise(edges)]
    elif types.is_temporal(found):
        return [_moment(scalar) for scalar in array]
    else:
        return [_plain_value(value) for value in array.to_pylist()]
    return [value if is_there else None for value, is_there in zip(whole, array.is_valid().to_pylist(), strict=True)]


def _moment(scalar: pa.Scalar) -> Any:
    try:
        return _plain_value(scalar.as_py())
    except (OverflowError, ValueError):
        return json_values(pa.array([scalar], scalar.type))[0]


def _plain_value(value: Any) -> Any:
    """Return a value of Python, which is no list and no row, as JSON has it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, timedelta) or not hasattr(value, "isoformat"):
        return str(value)
    return str(value.isoformat()).replace("+00:00", "Z")


def _number(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _times(array: pa.Array, wanted: pa.DataType | None) -> list[str | None]:
    if array.type.tz is not None:
        array = array.cast(wanted or pa.timestamp(array.type.unit, "UTC"), safe=False)
    return [None if text is None else text.replace(" ", "T", 1) for text in array.cast(pa.string()).to_pylist()]
