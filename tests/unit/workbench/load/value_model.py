"""What a value is, apart from how it is held: the model that rows are compared with, whichever way they came in."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from fluss_lab.model import DataType

_SIZE: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_EXACT: Final = Context(prec=200)
#: Ways in by which floats have 64 bits, or are texts.
_TYPED: Final = {"arrow", "other arrow", "numpy", "csv", "json", "parquet", "stream"}
#: From here on a float of 32 bits is infinite.
_FLOAT_END: Final = 3.4028235677973366e38
#: What stands for no value in a CSV column of another type than text.
_CSV_NULLS: Final = {"", "NA", "NULL", "null", "nan", "NaN"}


def plain(value: Any) -> Any:
    """Return a Python value in a form in which equal ones are the same, and others are not."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    match value:
        case bool() | np.bool_():
            return "bool", bool(value)
        case int() | np.integer():
            return _number(Decimal(int(value)))
        case float() | np.floating():
            return _number(Decimal(float(value)))
        case Decimal():
            return _number(value)
        case pd.Timestamp():
            return "utc" if value.tzinfo else "local", value.as_unit("ns").value
        case dt.datetime():
            since = value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC if value.tzinfo else None)
            return "utc" if value.tzinfo else "local", since // dt.timedelta(microseconds=1) * 1000
        case dt.date():
            return "date", (value - dt.date(1970, 1, 1)).days
        case dt.time():
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return "time", seconds * 10**9 + value.microsecond * 1000
        case list():
            return "list", tuple(map(plain, value))
        case dict():
            return "row", tuple((name, plain(each)) for name, each in value.items())
    return type(value).__name__, value


def _number(value: Decimal) -> Any:
    return ("number", value.normalize(_EXACT) + 0) if value.is_finite() else ("number", str(value))


def stored(values: pa.Array) -> list[Any]:
    """Return what an Arrow array holds in the same form; of times too that Python has not."""
    types, kind = pa.types, values.type
    if types.is_list(kind):
        return [("list", tuple(stored(each.values))) if each.is_valid else None for each in values]
    if types.is_struct(kind):
        fields = [(field.name, stored(inner)) for field, inner in zip(kind, values.flatten(), strict=True)]
        rows = [("row", tuple((name, inner[at]) for name, inner in fields)) for at in range(len(values))]
        return [row if valid.as_py() else None for row, valid in zip(rows, values.is_valid(), strict=True)]
    if types.is_timestamp(kind):
        name = "utc" if kind.tz else "local"
        return _counted(values.cast(pa.int64()), name, _SIZE[kind.unit])
    if types.is_time(kind):
        return _counted(values.cast(pa.int32() if types.is_time32(kind) else pa.int64()), "time", _SIZE[kind.unit])
    if types.is_date32(kind):
        return _counted(values.cast(pa.int32()), "date", 1)
    return [plain(value) for value in values.to_pylist()]


def _counted(values: pa.Array, name: str, size: int) -> list[Any]:
    return [None if value is None else (name, value * size) for value in values.to_pylist()]


def meanings(way: str, value: Any, text: str | None, dtype: DataType) -> list[Any]:
    """Return what a value may come to by a way in; an error it may always be.

    Args:
        way: Of the test.
        value: As it was given.
        text: How a file of texts had it; None: there was none.
        dtype: The column's type.
    """
    found = [plain(value)]
    if isinstance(value, float) and dtype.name == "FLOAT" and way not in _TYPED and abs(value) < _FLOAT_END:
        found.append(plain(np.float32(value)))  # Python has no other floats
    if isinstance(value, float | Decimal) and math.isnan(value) and way.startswith("pandas"):
        found.append(None)
    if text is not None:
        found += _of_text(way, text, dtype)
    return found


def _rounded(value: float, dtype: DataType) -> Any:
    with np.errstate(over="ignore"):
        made = float(np.float32(value)) if dtype.name == "FLOAT" else value
    return plain(made) if math.isinf(made) == math.isinf(value) and (made == 0) == (value == 0) else ()


def _of_text(way: str, text: str, dtype: DataType) -> list[Any]:
    if dtype.name in {"STRING", "CHAR"}:
        return [plain(text)]
    if way == "csv" and text.strip() in _CSV_NULLS - ({"nan"} if dtype.name in {"FLOAT", "DOUBLE"} else set()):
        return [None]
    if dtype.name in {"BYTES", "BINARY"}:
        return [("bytes", text.encode()), ("bytes", text.strip().encode())]
    try:
        return [_read(text, dtype)]
    except (ValueError, KeyError, ArithmeticError):
        return []


def _read(text: str, dtype: DataType) -> Any:
    match dtype.name:
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            return plain(int(text))
        case "DECIMAL":
            return plain(Decimal(text))
        case "FLOAT" | "DOUBLE":
            exact, made = Decimal(text), _rounded(float(text), dtype)
            is_lost = exact.is_finite() and (math.isinf(float(text)) or (float(text) == 0) != (exact == 0))
            is_other = text.strip("+-").isdigit() and made != plain(exact)
            return () if is_lost or is_other else made
        case "BOOLEAN":
            return plain({"true": True, "false": False, "1": True, "0": False}[text.lower()])
        case "DATE":
            return plain(dt.date.fromisoformat(text))
        case "TIME":
            return plain(dt.time.fromisoformat(text))
    moment = dt.datetime.fromisoformat(text)
    return plain(moment) if (moment.tzinfo is not None) == (dtype.name == "TIMESTAMP_LTZ") else ()
