"""Rows as pandas frames: dtypes that no row changes, values that no null changes, and what comes out goes back in."""

import datetime as dt
import random
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fluss_lab.errors import InvalidRecordError, InvalidSchemaError, UnsupportedError
from fluss_lab.model import make_schema
from fluss_lab.model.values.pandas_frames import for_pandas, to_pandas
from fluss_lab.model.values.row_input import record_batches
from fluss_lab.model.values.schema_inference import schema_of

#: Beyond 2^53, where a float is another number.
ID = 2**60 + 1
FINE = pd.Timestamp("2020-09-13T12:26:40.123456789")
VALUES = {
    "boolean": [True, False],
    "tinyint": [-128, 127],
    "smallint": [-(2**15), 2**15 - 1],
    "int": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1, ID],
    "float": [0.5, float("inf")],
    "double": [0.1, -1e300],
    "char(3)": ["abc"],
    "string": ["", "ü"],
    "bytes": [b"", b"\0"],
    "binary(2)": [b"ab"],
    "decimal(38,10)": [Decimal("9999999999999999999999999999.9999999999")],
    "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "time(6)": [dt.time(23, 59, 59, 999999)],
    "timestamp(0)": [dt.datetime(2020, 1, 1)],
    "timestamp(3)": [dt.datetime(2020, 1, 1, 0, 0, 0, 1000)],
    "timestamp(6)": [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 0, 0, 0, 1)],
    "timestamp_ltz(6)": [dt.datetime(2020, 1, 1, 1, tzinfo=dt.UTC)],
    "array<bigint>": [[ID, None], [], [ID]],
    "array<boolean>": [[True, None]],
    "array<array<int>>": [[[1, None], None]],
    "array<binary(2)>": [[b"ab", None], []],
    "map<string, array<array<binary(2) not null>>>": [[("a", [[b"ab"], None]), ("b", None)]],
    "row<b array<row<c array<binary(2)>, d binary(2)> not null> not null>": [{"b": [{"c": [b"ab", None], "d": b"cd"}]}],
    "array<timestamp(6)>": [[dt.datetime(2020, 1, 1), None]],
    "map<string, bigint>": [[("a", ID), ("b", None)]],
    "row<t timestamp(9), z timestamp_ltz(9)>": [{"t": FINE, "z": FINE.tz_localize("UTC")}, {"t": None, "z": None}],
    "map<string, timestamp(9)>": [[("a", FINE), ("b", None)]],
    "array<row<t timestamp(9), l array<timestamp(9)>>>": [[{"t": FINE, "l": [FINE, None]}, None], []],
    "row<a bigint, b array<bigint>>": [{"a": ID, "b": [ID, None]}, {"a": None, "b": None}],
}
DTYPES = {"boolean": "boolean", "tinyint": "Int8", "smallint": "Int16", "int": "Int32", "bigint": "Int64"}
SCHEMA = make_schema({f"c{number}": text for number, text in enumerate(VALUES)})


def rows_of(seed: int, nulls: float) -> pa.Table:
    rng = random.Random(seed)
    rows = [
        {f"c{n}": None if rng.random() < nulls else rng.choice(values) for n, values in enumerate(VALUES.values())}
        for _ in range(rng.randrange(1, 30))
    ]
    return pa.Table.from_pylist(rows, SCHEMA.arrow_schema)


@pytest.mark.parametrize("seed", range(8))
def test_a_frame_keeps_every_value_has_the_same_dtypes_and_goes_back_in(seed):
    empty = to_pandas(SCHEMA.arrow_schema.empty_table())
    for nulls in (0.0, 0.3, 1.0):
        table = rows_of(seed, nulls)
        frame = to_pandas(table)
        assert list(frame.dtypes) == list(empty.dtypes), f"seed {seed}, nulls {nulls}"
        assert pa.Table.from_batches(record_batches(frame, SCHEMA)).equals(table), f"seed {seed}, nulls {nulls}"
        records = frame.to_dict("records")  # numpy's and pandas's scalars, NA, NaT
        flat = [name for name, text in zip(SCHEMA.names, VALUES, strict=True) if "<" not in text]
        given = [{name: row[name] for name in flat if not _is_nan(row[name])} for row in records]
        assert pa.Table.from_batches(record_batches(given, SCHEMA)).select(flat).equals(table.select(flat))


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and np.isnan(value)


@pytest.mark.parametrize(("text", "dtype"), DTYPES.items())
def test_integers_and_booleans_are_nullable_types(text, dtype):
    schema = make_schema({"x": text}).arrow_schema
    for values in ([], [1], [None], [1, None]):
        table = pa.Table.from_pylist([{"x": None if v is None else VALUES[text][0]} for v in values], schema)
        assert to_pandas(table)["x"].dtype == dtype
        # An Arrow table that was handed out, by Arrow's own method.
        assert table.replace_schema_metadata(for_pandas(schema).metadata).to_pandas()["x"].dtype == dtype


def test_times_in_nanoseconds_are_times_within_rows_and_maps_too():
    schema = make_schema(
        {"r": "row<t timestamp(9)>", "m": "map<timestamp(9), int>", "l": "array<row<t timestamp_ltz(9)>>"}
    )
    row = {"r": {"t": FINE}, "m": [(FINE, 1)], "l": [{"t": FINE.tz_localize("UTC")}]}
    frame = to_pandas(pa.Table.from_pylist([row, dict.fromkeys(row)], schema.arrow_schema))
    assert [frame["r"][0], frame["m"][0], list(frame["l"][0])] == list(row.values())
    assert [frame[name][1] for name in row] == [None, None, None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_within_arrays_keep_their_zone(unit):
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    zoned = f"array<timestamp_ltz({digits})>"
    schema = make_schema(
        {"a": zoned, "n": f"array<{zoned}>", "r": f"row<a {zoned}>", "b": f"array<timestamp({digits})>"}
    )
    moment = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)
    row = {"a": [moment, None], "n": [[moment], None], "r": {"a": [moment]}, "b": [moment.replace(tzinfo=None)]}
    table = pa.Table.from_pylist([row, dict.fromkeys(row)], schema.arrow_schema)
    frame = to_pandas(table)
    for found in (frame["a"][0][0], frame["n"][0][0][0], frame["r"][0]["a"][0]):
        assert isinstance(found, dt.datetime)
        assert (found, str(found.tzinfo)) == (moment, "UTC")
    assert frame["a"][0][1] is pd.NaT
    assert frame["a"][1] is None
    assert frame["b"][0].dtype.kind == "M", "those without a zone stay as they are"
    assert pa.Table.from_batches(record_batches(frame, schema)).equals(table)


def test_what_pandas_cannot_hold_is_said_with_its_column():
    table = pa.table({"a": [1], "t": pa.array([1], pa.time64("ns"))})
    with pytest.raises(UnsupportedError, match=r"'t'.*to_arrow"):
        to_pandas(table)


def _within_row(times):
    return pa.StructArray.from_arrays([times], ["f"])


#: How a value lies in others, and whether all of the type are shown.
_NESTS = {
    "flat": (lambda times: times, True),
    "array": (lambda times: pa.ListArray.from_arrays([0, 0, len(times)], times), True),
    "row": (_within_row, False),
    "map": (lambda times: pa.MapArray.from_arrays(pa.array([0, 2, 3], pa.int32()), ["a", "b", "c"], times), False),
    "rows": (lambda times: pa.ListArray.from_arrays([0, 0, len(times)], _within_row(times)), False),
}


@pytest.mark.parametrize("nest", _NESTS)
@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("unit", ["us", "ns"])
def test_the_time_that_is_none_to_pandas_is_not_shown_as_null(unit, zone, nest):
    make, shows_all = _NESTS[nest]

    def table(number):
        return pa.table({"t": make(pa.array([5, None, number], pa.timestamp(unit, zone)))})

    with pytest.raises(UnsupportedError, match=rf"'t' has the time -9223372036854775808 {unit}.*to_arrow"):
        to_pandas(table(-(2**63)))
    assert to_pandas(table(7))["t"].notna().any()
    if shows_all:
        shown = to_pandas(table(-(2**63) + 1))["t"]
        assert [pd.isna(each) for each in (shown if nest == "flat" else shown.iloc[1])] == [False, True, False]


# -- floats that pandas made of integers ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "Float64"])
@pytest.mark.parametrize("text", ["tinyint", "int", "bigint"])
def test_whole_floats_of_a_frame_are_integers_and_nan_is_null(dtype, text):
    frame = pd.DataFrame({"x": pd.array([1, None, -7], dtype)})
    (batch,) = record_batches(frame, make_schema({"x": text}))
    assert batch["x"].to_pylist() == [1, None, -7]


@pytest.mark.parametrize(
    ("value", "why"),
    [(1.5, "whole"), (2.0**53 + 2, "Int64"), (float("inf"), "Int64"), (-(2.0**60), "Int64"), (1e10, "exactly")],
)
def test_floats_that_are_no_integer_are_refused_with_their_row(value, why):
    text = "int" if why == "exactly" else "bigint"
    frame = pd.DataFrame({"x": [1.0, np.nan, value]})
    with pytest.raises(InvalidRecordError, match=f"'x', row 2.*{why}"):
        record_batches(frame, make_schema({"x": text}))


def test_floats_that_are_not_of_pandas_are_no_integers():
    for rows in ([{"x": 1.0}], {"x": [1.0]}, pa.table({"x": [1.0]}), {"x": np.array([1.0])}):
        with pytest.raises(InvalidRecordError):
            record_batches(rows, make_schema({"x": "bigint"}))


def test_a_column_in_the_index_of_a_frame_is_not_left_out_silently():
    frame = pd.DataFrame({"id": [1], "note": ["a"]}).set_index("note")
    with pytest.raises(InvalidRecordError, match=r"'note'.*reset_index"):
        record_batches(frame, make_schema({"id": "int", "note": "string"}))
    assert record_batches(frame.rename_axis("row"), make_schema({"id": "int", "note": "string"}))


# -- the schema of a frame --------------------------------------------------------------------------------------------


def test_a_frame_of_a_csv_is_a_schema():
    frame = pd.DataFrame({
        "id": [1, 2], "u": np.array([1, 2], "uint32"), "n": [1.0, np.nan], "b": [True, False], "s": ["a", None],
        "at": pd.to_datetime(["2026-01-01", None]).astype("datetime64[ns]"), "d": [Decimal("1.25"), None],
        "day": [dt.date(2026, 1, 1), None], "c": pd.Categorical(["x", "y"]), "i": pd.array([1, None], "Int32"),
        "z": pd.to_datetime(["2026-01-01"] * 2).tz_localize("Europe/Berlin"), "raw": [b"x", None],
    })  # fmt: skip
    schema = make_schema(frame, ["id"])
    assert {column.name: str(column.type) for column in schema.columns} == {
        "id": "BIGINT NOT NULL", "u": "BIGINT", "n": "DOUBLE", "b": "BOOLEAN", "s": "STRING", "at": "TIMESTAMP(6)",
        "d": "DECIMAL(3,2)", "day": "DATE", "c": "STRING", "i": "INT", "z": "TIMESTAMP_LTZ(6)", "raw": "BYTES",
    }  # fmt: skip
    (batch,) = record_batches(frame, schema)
    assert batch["at"].to_pylist() == [dt.datetime(2026, 1, 1), None]


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (pd.DataFrame({"x": [1, "a"]}), r"'x'.*int, str"),
        (pd.DataFrame({"x": [None, None]}), "'x' has no values"),
        (pd.DataFrame({"x": pd.to_timedelta([1])}), "'x'.*total_seconds"),
        (pd.DataFrame({"x": np.array([2**63], "uint64")}), r"'x'.*decimal\(20, 0\)"),
        (pd.DataFrame({"x": pd.to_datetime(["2020-01-01 00:00:00.000000001"])}), r"'x'.*floor\('us'\)"),
        (pd.DataFrame({"x": [object()]}), "'x'"),
        (pd.DataFrame({"x": pd.period_range("2020-01", periods=1, freq="M")}), "'x'"),
        (pd.DataFrame([[1]]), "column 0: expected a text"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "twice"),
        (pd.DataFrame({("a", "b"): [1]}), "expected a text"),
        (pd.DataFrame(), "1 to 2000 columns"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, pd.DataFrame) else each,
)
def test_a_frame_that_is_no_schema_is_refused_with_what_to_do(frame, why):
    with pytest.raises(InvalidSchemaError, match=why):
        make_schema(frame)


def test_every_form_of_rows_has_a_schema():
    table = pa.table({"a": [1], "b": ["x"]})
    for rows in (table, table.to_batches()[0], table.to_reader(), {"a": [1], "b": ["x"]}, [{"a": 1}, {"b": "x"}]):
        assert schema_of(rows) == table.schema
    for rows in ([], 5, "text", [1]):
        with pytest.raises(InvalidSchemaError):
            schema_of(rows)
