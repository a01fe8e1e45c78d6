"""Every type, awkward values, and every way in: a value is kept as it is, or refused in words, and never another one."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import math
import re
from collections import Counter
from decimal import Decimal
from functools import partial
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from fluss_lab.errors import InvalidError
from fluss_lab.model import DataType, make_schema
from fluss_lab.model.values.row_input import record_batches
from fluss_lab.workbench.load.arrow_rows import FrameRows, ParquetFiles, StreamRows
from fluss_lab.workbench.load.csv_file import CsvFiles
from fluss_lab.workbench.load.json_file import JsonFiles
from fluss_lab.workbench.load.load_columns import ColumnPlan
from tests.unit.workbench.load.value_model import meanings, plain, stored

#: Columns tried.
ROUNDS = 1_000
PARIS = ZoneInfo("Europe/Paris")
VALUES = {
    "bool": [True, False],
    "int": [0, -1, 127, -128, 128, 2**15, 2**24 + 1, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 10**39 - 1],
    "float": [0.0, -0.0, 0.5, 0.1, 1.0, 1e308, 5e-324, math.inf, -math.inf, math.nan, 2.0**24, 2.0**63, 1e39, 1e-46],
    "decimal": [Decimal(text) for text in ("0", "1.25", "1.250", "999.99", "0.001", "-1E+3", "9" * 38, "9" * 39, "58E-40", "NaN")],
    "string": ["", "a", "abc", "é", "\0", "a\0b", "x\ny", " x ", "NA", "1", "01", "0x1F", "true", "1e400", "2020-01-01", "\ud800"],
    "bytes": [b"", b"ab", b"abc", b"\0\xff", b"a\0"],
    "date": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2020, 2, 29), dt.date(9999, 12, 31)],
    "time": [dt.time(0), dt.time(23, 59, 59, 999_999), dt.time(1, 2, 3), dt.time(1, 2, 3, 4_000), dt.time(1, tzinfo=dt.UTC)],
    "local": [
        dt.datetime(1, 1, 1), dt.datetime(1677, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2020, 1, 1),
        dt.datetime(2020, 1, 1, 1, 2, 3, 4_000), dt.datetime(2262, 4, 12), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
        pd.Timestamp("2020-01-01 00:00:00.000000001"), pd.Timestamp.max,
    ],
    "utc": [
        dt.datetime(1, 1, 2, tzinfo=dt.UTC), dt.datetime(2020, 1, 1, tzinfo=PARIS), dt.datetime(2020, 10, 25, 2, 30, tzinfo=PARIS, fold=1),
        dt.datetime(2020, 1, 1, 1, 2, 3, 4, dt.timezone(dt.timedelta(hours=5, minutes=30))), pd.Timestamp("2020-01-01", tz=PARIS),
        dt.datetime(2262, 4, 12, tzinfo=dt.UTC), dt.datetime(9999, 12, 30, tzinfo=dt.UTC),
    ],
}  # fmt: skip
#: Types with the kind of values that they are made for.
TYPES = {
    "boolean": "bool", "tinyint": "int", "smallint": "int", "int": "int", "bigint": "int", "float": "float", "double": "float",
    "decimal(5,2)": "decimal", "decimal(38,0)": "decimal", "decimal(38,10)": "decimal", "string": "string", "char(2)": "string",
    "bytes": "bytes", "binary(2)": "bytes", "date": "date", "time(0)": "time", "time(3)": "time", "time(6)": "time", "time(9)": "time",
    "timestamp(0)": "local", "timestamp(3)": "local", "timestamp(6)": "local", "timestamp(9)": "local",
    "timestamp_ltz(0)": "utc", "timestamp_ltz(3)": "utc", "timestamp_ltz(6)": "utc", "timestamp_ltz(9)": "utc",
}  # fmt: skip
#: Arrow types that hold the same values, by the first word of the type.
OTHERS = {
    "int64": [pa.int8(), pa.uint8(), pa.int32(), pa.uint64(), pa.float64(), pa.float16(), pa.decimal128(30, 3), pa.decimal256(60, 5)],
    "double": [pa.float32(), pa.float16()],
    "string": [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    "binary": [pa.large_binary(), pa.binary_view(), pa.binary(2), pa.dictionary(pa.int8(), pa.binary())],
    "date32": [pa.date64()],
    "time64": [pa.time32("s"), pa.time32("ms"), pa.time64("ns")],
    "decimal128": [pa.decimal256(70, 20), pa.decimal64(18, 3), pa.decimal32(9, 2)],
    "timestamp": [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")],
    "timestamp of a zone": [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in ("UTC", "Asia/Kolkata", "+03:00")],
    "list of int64": [pa.large_list(pa.int64()), pa.list_view(pa.int64()), pa.list_(pa.int8())],
}  # fmt: skip
DTYPES = [
    "Int64", "Int8", "UInt64", "Float64", "Float32", "float32", "string", "category", "boolean", "datetime64[s]", "datetime64[ns]",
    "datetime64[us, UTC]", "datetime64[ns, Asia/Tokyo]",
]  # fmt: skip


class CannotHoldError(Exception):
    """A way in has no form for the values, so that there is nothing to be seen of it."""


def made(make, values):
    """Return a form of values that is made by others, if it holds the same values."""
    try:
        held = make()
        found = stored(held) if isinstance(held, pa.Array) else [plain(each) for each in held.tolist()]
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError, NotImplementedError) as error:
        raise CannotHoldError from error
    wanted = [plain(each) for each in values]
    absent = plain(math.nan)
    if found != wanted and [None if each == absent else each for each in wanted] != found:
        raise CannotHoldError
    return held


def arrow(values):
    return made(lambda: pa.array(values), values)


def other_arrow(values, rng):
    array = arrow(values)
    name = str(array.type).split("[")[0].split("<")[0].split("(")[0]
    if name == "list":
        name = f"list of {array.type.value_type}"
    elif name == "timestamp" and array.type.tz:
        name = "timestamp of a zone"
    if name not in OTHERS:
        raise CannotHoldError
    to = rng.choice(OTHERS[name])
    try:
        other = array.cast(to)
        same = other.cast(array.type).equals(array)
    except (pa.ArrowException, ValueError) as error:
        raise CannotHoldError from error
    if not same:
        raise CannotHoldError
    return pa.chunked_array([other.slice(0, 1), other.slice(1, 0), other.slice(1)])


def text_of(value):
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)


def as_json(value):
    if isinstance(value, list):
        return [as_json(each) for each in value]
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else text_of(value)


def csv_file(path, values):
    if any(isinstance(value, list | dict) for value in values):
        raise CannotHoldError
    file = io.StringIO()
    rows = [["x", "y"], *(["" if value is None else text_of(value), 1] for value in values)]
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    path.write_bytes(file.getvalue().encode())
    return CsvFiles([path], ",", "utf-8", None)


def json_file(path, values):
    path.write_text("\n".join(json.dumps({"x": as_json(value), "y": 1}) for value in values))
    return JsonFiles([path])


def written(make, path, values):
    try:
        return make(path, values)
    except UnicodeError as error:
        raise CannotHoldError from error


def parquet_file(path, values):
    try:
        parquet.write_table(pa.table({"x": arrow(values)}), path)
    except pa.ArrowException as error:
        raise CannotHoldError from error
    return ParquetFiles([path])


def frame(values, dtype=None):
    return pd.DataFrame({"x": made(lambda: pd.Series(values, dtype=dtype), values)})


def loaded(source, dtype):
    columns = source.examine(ColumnPlan(["x"], types={"x": dtype}))
    return list(source.batches(columns))


def way_in(way, values, dtype, path, rng):
    """Return the batches that a table would be given."""
    take = partial(record_batches, schema=make_schema({"x": dtype}))
    dicts = [{"x": value} for value in values]
    match way:
        case "dicts":
            return take(dicts)
        case "columns":
            return take({"x": values})
        case "arrow":
            return take(pa.table({"x": arrow(values)}))
        case "other arrow":
            return take(pa.table({"x": other_arrow(values, rng)}))
        case "numpy":
            array = made(lambda: np.array(values), values)
            if array.dtype == object:
                raise CannotHoldError  # Python's values, as in columns
            return take({"x": array})
        case "pandas":
            return take(frame(values))
        case "pandas objects":
            return take(frame(values, object))
        case "pandas types":
            series = made(lambda: pd.Series(values).astype(rng.choice(DTYPES)), values)
            return take(pd.DataFrame({"x": series}))
        case "csv":
            return loaded(written(csv_file, path, values), dtype)
        case "json":
            return loaded(written(json_file, path, values), dtype)
        case "parquet":
            return loaded(parquet_file(path, values), dtype)
        case "list":
            return loaded(FrameRows(dicts, "the list"), dtype)
        case "pandas frame":
            return loaded(FrameRows(frame(values, object), "the frame"), dtype)
    return loaded(StreamRows(pa.table({"x": arrow(values)}).to_reader(), "the stream"), dtype)


WAYS = [
    "dicts", "columns", "arrow", "other arrow", "numpy", "pandas", "pandas objects", "pandas types", "csv", "json", "parquet", "list",
    "pandas frame", "stream",
]  # fmt: skip


def came(way, value, found, dtype):
    """Return whether what came is what a value may come to."""
    if dtype.name == "ARRAY" and value is not None and found is not None:
        pairs = zip(value, found[1], strict=True)
        return len(value) == len(found[1]) and all(came(way, one, other, dtype.fields[0].type) for one, other in pairs)
    if dtype.name == "ROW" and value is not None and found is not None:
        return came(way, value["a"], found[1][0][1], dtype.fields[0].type)
    try:
        text = text_of(value) if way in {"csv", "json"} and value is not None else None
    except UnicodeDecodeError:
        text = None
    return found in meanings(way, value, text, dtype)


def drawn(rng):
    """Return a type and values, most of which are of its kind."""
    name = rng.choice(list(TYPES))
    kind = TYPES[name] if rng.random() < 0.7 else rng.choice(list(VALUES))
    values = [rng.choice([None, *VALUES[kind]]) for _ in range(rng.randrange(1, 4))]
    if rng.random() < 0.2:
        values.append(rng.choice(VALUES[rng.choice(list(VALUES))]))
    match rng.randrange(6):
        case 0:
            return f"array<{name}>", [None, [], values, values[:1]]
        case 1:
            return f"row<a {name}>", [None, *({"a": value} for value in values)]
    return name, values


@pytest.mark.filterwarnings("ignore")
def test_a_value_is_kept_or_refused_whichever_way_it_comes_in(tmp_path, rng):
    taken: Counter[str] = Counter()
    refusals: list[str] = []
    for number in range(ROUNDS):
        name, values = drawn(rng)
        dtype = DataType.parse(name)
        way = rng.choice(WAYS)
        try:
            batches = way_in(way, values, dtype, tmp_path / f"{number}", rng)
        except CannotHoldError:
            continue
        except InvalidError as error:
            refusals.append(str(error))
            continue
        found = [each for batch in batches for each in stored(batch.column("x"))]
        assert len(found) == len(values), (way, name, values, found)
        for value, other in zip(values, found, strict=True):
            assert came(way, value, other, dtype), (way, name, value, other)
        taken[way] += 1
    assert taken.keys() == set(WAYS)
    assert [text for text in refusals if not re.search(r"'x|\(/x|in row \d", text)] == []
