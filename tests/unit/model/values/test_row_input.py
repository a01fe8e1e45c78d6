"""What is taken as rows, what is refused, and with which words."""

from __future__ import annotations

import datetime as dt
import mmap
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_lab.errors import InvalidRecordError
from fluss_lab.model import Schema, make_schema
from fluss_lab.model.values.row_input import record_batches

UTC = dt.UTC
ALL_TYPES = {
    "boolean": "boolean", "tiny": "tinyint", "small": "smallint", "int": "int", "big": "bigint", "float": "float",
    "double": "double", "char": "char(3)", "string": "string", "binary": "binary(2)", "bytes": "bytes",
    "decimal": "decimal(10,2)", "date": "date", "time": "time(3)", "timestamp": "timestamp(6)",
    "ltz": "timestamp_ltz(6)", "list": "array<int>", "map": "map<string, int>",
    "row": "row<a int, b array<string>>",
}  # fmt: skip
ROW = {
    "boolean": True, "tiny": 1, "small": 2, "int": 3, "big": 4, "float": 0.5, "double": 0.1, "char": "abc", "string": "s",
    "binary": b"ab", "bytes": b"x", "decimal": Decimal("1.25"), "date": dt.date(2020, 1, 2), "time": dt.time(1, 2, 3, 4000),
    "timestamp": dt.datetime(2020, 1, 2, 3, 4, 5, 6), "ltz": dt.datetime(2020, 1, 2, 3, 4, 5, 6, UTC), "list": [1, None],
    "map": [("a", 1), ("b", None)], "row": {"a": 1, "b": ["x", None]},
}  # fmt: skip


def one(type_text: str) -> Schema:
    return make_schema({"id": "int", "x": type_text})


def rows_of(rows: object, schema: Schema) -> list[dict]:
    batches = record_batches(rows, schema)
    assert all(batch.schema.equals(schema.arrow_schema) for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def refusal(rows: object, schema: Schema) -> str:
    with pytest.raises(InvalidRecordError) as caught:
        record_batches(rows, schema)
    return str(caught.value)


def test_every_type_from_dicts_and_back_as_it_was():
    schema = make_schema(ALL_TYPES)
    nulls = dict.fromkeys(ALL_TYPES)
    assert rows_of([ROW, nulls, ROW], schema) == [ROW, nulls, ROW]


@pytest.mark.parametrize("form", ["batch", "table", "chunks", "reader", "columns", "stream", "sliced"])
def test_every_arrow_form_of_every_type(form: str):
    schema = make_schema(ALL_TYPES)
    rows = [ROW, dict.fromkeys(ALL_TYPES), ROW]
    (batch,) = record_batches(rows, schema)
    table = pa.Table.from_batches([batch])
    given = {
        "batch": lambda: batch,
        "table": lambda: table,
        "chunks": lambda: pa.Table.from_batches([batch.slice(0, 1), batch.slice(1, 0), batch.slice(1)]),
        "reader": lambda: table.to_reader(max_chunksize=2),
        "columns": lambda: {name: table.column(name) for name in reversed(table.schema.names)},
        "stream": lambda: _Stream(table),
        "sliced": lambda: pa.Table.from_batches([batch, batch]).combine_chunks().slice(3),
    }[form]()
    assert rows_of(given, schema) == rows


class _Stream:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "rows",
    [[], (), {}, {"id": []}, pa.table({"id": pa.array([], pa.int32())}), pa.schema([]).empty_table(), pd.DataFrame()],
    ids=repr,
)
def test_no_rows_are_no_batches(rows: object):
    assert record_batches(rows, one("string")) == []


def test_missing_nullable_columns_become_null_and_order_is_the_tables():
    schema = make_schema({"a": "int", "b": "string", "c": "row<x int not null>"})
    assert rows_of({"b": ["x"], "a": [1]}, schema) == [{"a": 1, "b": "x", "c": None}]


@pytest.mark.parametrize(
    "rows", [[{"x": "a"}], {"x": ["a"]}, pa.table({"x": ["a"]}), pd.DataFrame({"x": ["a"]})], ids=repr
)
def test_a_missing_not_null_column_is_named(rows: object):
    schema = make_schema({"id": "int not null", "x": "string"})
    text = refusal(rows, schema)
    assert "'id'" in text
    assert "INT NOT NULL" in text


@pytest.mark.parametrize(
    "rows",
    [[{"id": 1}, {"id": 1, "xx": "a"}], {"xx": ["a"]}, pa.table({"xx": ["a"]}), pd.DataFrame({"xx": ["a"]})],
    ids=repr,
)
def test_an_unknown_column_is_named_with_those_that_are(rows: object):
    text = refusal(rows, one("string"))
    assert "'xx'" in text
    assert "id, x" in text


def test_duplicate_columns_are_refused():
    assert "twice" in refusal(pa.table([[1], [2]], names=["id", "id"]), one("string"))
    assert "twice" in refusal(pd.DataFrame([[1, 2]], columns=["id", "id"]), one("string"))


@pytest.mark.parametrize("rows", [5, "text", None, [1], [{"id": 1}, 2], {"id": 5}, {"id": "abc"}, {1: [2]}], ids=repr)
def test_what_is_no_rows_is_refused(rows: object):
    assert "expected" in refusal(rows, one("string"))


def test_columns_of_different_lengths_are_refused():
    assert "'id': 2" in refusal({"id": [1, 2], "x": ["a"]}, one("string"))


# -- conversions taken -----------------------------------------------------------------------------------------------

TAKEN = [
    ("tinyint", pa.array([127], pa.int64()), 127),
    ("bigint", pa.array([1], pa.uint8()), 1),
    ("int", pa.array([1], pa.int8()), 1),
    ("double", pa.array([1], pa.int32()), 1.0),
    ("double", pa.array([0.5], pa.float16()), 0.5),
    ("float", pa.array([0.25], pa.float64()), 0.25),
    ("float", pa.array([2**24], pa.int64()), float(2**24)),
    ("decimal(10,2)", pa.array([7], pa.int64()), Decimal("7.00")),
    ("decimal(38,37)", pa.array([9], pa.int8()), Decimal(9)),
    ("decimal(10,2)", pa.array([Decimal("1.5")]), Decimal("1.50")),
    ("decimal(10,2)", pa.array([Decimal("1.50")], pa.decimal256(50, 2)), Decimal("1.50")),
    ("decimal(3,1)", pa.array([Decimal("1.20")], pa.decimal128(20, 2)), Decimal("1.2")),
    ("string", pa.array(["a"], pa.large_string()), "a"),
    ("string", pa.array(["a"], pa.string_view()), "a"),
    ("string", pa.array(["a"]).dictionary_encode(), "a"),
    ("char(2)", pa.array(["é"]).dictionary_encode(), "é"),
    ("bytes", pa.array([b"a"], pa.large_binary()), b"a"),
    ("bytes", pa.array([b"a"], pa.binary_view()), b"a"),
    ("bytes", pa.array([b"ab"], pa.binary(2)), b"ab"),
    ("binary(2)", pa.array([b"ab"], pa.binary()), b"ab"),
    ("binary(2)", pa.array([b"ab"], pa.binary_view()), b"ab"),
    ("binary(16)", pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"x" * 16], pa.binary(16))), b"x" * 16),
    ("date", pa.array([dt.date(2020, 1, 1)], pa.date64()), dt.date(2020, 1, 1)),
    ("time(0)", pa.array([3_000_000], pa.time64("us")), dt.time(0, 0, 3)),
    ("time(6)", pa.array([3], pa.time32("s")), dt.time(0, 0, 3)),
    ("timestamp(6)", pa.array([3_000], pa.timestamp("ns")), dt.datetime(1970, 1, 1, 0, 0, 0, 3)),
    ("timestamp(3)", pa.array([3], pa.timestamp("s")), dt.datetime(1970, 1, 1, 0, 0, 3)),
    ("timestamp_ltz(6)", pa.array([3], pa.timestamp("s", "Europe/Paris")), dt.datetime(1970, 1, 1, 0, 0, 3, 0, UTC)),
    ("string", pa.nulls(1), None),
    ("array<bigint>", pa.array([[1, 2]], pa.large_list(pa.int8())), [1, 2]),
    ("array<bigint>", pa.array([[1, 2]], pa.list_(pa.int8(), 2)), [1, 2]),
    ("array<bigint>", pa.array([[1, 2]], pa.list_view(pa.int8())), [1, 2]),
    ("map<string, bigint>", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), [("a", 1)]),
    ("row<a bigint, b string>", pa.array([{"b": "x", "a": 1}], pa.struct([("b", pa.string()), ("a", pa.int8())])), {"a": 1, "b": "x"}),
    ("row<a bigint, b string>", pa.array([{"a": 1}]), {"a": 1, "b": None}),
]  # fmt: skip


@pytest.mark.parametrize(("type_text", "array", "expected"), TAKEN, ids=lambda value: str(value).replace("\n", ""))
def test_what_fits_exactly_is_taken(type_text: str, array: pa.Array, expected: object):
    assert rows_of({"x": array}, one(type_text)) == [{"id": None, "x": expected}]


def test_nulls_and_slices_of_nested_columns_keep_their_rows():
    schema = make_schema({"x": "array<row<a bigint, b map<string, bigint>>>"})
    values = [None, [], [None, {"a": 1, "b": None}], [{"a": None, "b": [("k", None), ("l", 2)]}], None, [None]]
    narrow = pa.list_(pa.struct([("a", pa.int8()), ("b", pa.map_(pa.string(), pa.int8()))]))
    array = pa.array(values * 2, narrow)
    for start in range(len(values)):
        expected = [{"x": value} for value in (values * 2)[start : start + 6]]
        assert rows_of({"x": array.slice(start, 6)}, schema) == expected
        assert rows_of({"x": (values * 2)[start : start + 6]}, schema) == expected


def test_pandas_nanoseconds_that_are_whole_microseconds_are_taken():
    frame = pd.DataFrame({"x": pd.to_datetime(["2020-01-01 00:00:00.000001", None])})
    assert rows_of(frame, one("timestamp(6)"))[0]["x"] == dt.datetime(2020, 1, 1, 0, 0, 0, 1)
    zoned = pd.DataFrame({"x": pd.to_datetime(["2020-01-01"]).tz_localize("Europe/Paris")})
    assert rows_of(zoned, one("timestamp_ltz(3)"))[0]["x"] == dt.datetime(2019, 12, 31, 23, tzinfo=UTC)


def test_pandas_missing_values_are_null_in_every_dtype():
    frame = pd.DataFrame({
        "f": [1.5, np.nan], "i": pd.array([1, None], "Int64"), "s": ["a", None], "o": [Decimal("1.5"), np.nan],
        "t": pd.to_datetime(["2020-01-01", None]), "c": pd.Categorical(["x", None]), "n": pd.array(["y", pd.NA], "string"),
    }, index=[7, 3])  # fmt: skip
    types = {
        "f": "double",
        "i": "int",
        "s": "string",
        "o": "decimal(3,1)",
        "t": "timestamp(3)",
        "c": "string",
        "n": "string",
    }
    rows = rows_of(frame, make_schema(types))
    assert rows[0] | {"t": None} == {"f": 1.5, "i": 1, "s": "a", "o": Decimal("1.5"), "t": None, "c": "x", "n": "y"}
    assert rows[1] == dict.fromkeys(types)


def test_nan_of_arrow_and_of_python_stays_nan():
    schema = make_schema({"x": "double", "y": "float"})
    for rows in ([{"x": float("nan"), "y": float("inf")}], pa.table({"x": [float("nan")], "y": [float("inf")]})):
        (row,) = rows_of(rows, schema)
        assert np.isnan(row["x"])
        assert row["y"] == float("inf")


def test_python_floats_are_rounded_to_32_bits_but_typed_ones_are_not():
    (row,) = rows_of([{"x": 0.1}], one("float"))
    assert row["x"] == np.float32(0.1)
    text = refusal({"x": pa.array([0.5, 0.1])}, one("float"))
    assert "row 1" in text
    assert "0.1" in text


def test_numpy_scalars_and_arrays_are_taken():
    row = {"id": np.int64(3), "x": [np.float32(0.5)]}
    assert rows_of([row], one("array<double>")) == [{"id": 3, "x": [0.5]}]
    assert rows_of({"id": np.arange(2), "x": [np.array([1, 2]), None]}, one("array<int>")) == [
        {"id": 0, "x": [1, 2]},
        {"id": 1, "x": None},
    ]


def test_numpy_s_bytes_and_texts_keep_what_is_behind_a_nul():
    assert rows_of({"x": np.array([b"a\0b", b"\0\xff", b""])}, make_schema({"x": "bytes"})) == [
        {"x": b"a\0b"},
        {"x": b"\0\xff"},
        {"x": b""},
    ]
    assert rows_of({"x": np.array(["a\0b", "é"])}, make_schema({"x": "string"})) == [{"x": "a\0b"}, {"x": "é"}]


# -- conversions refused ---------------------------------------------------------------------------------------------

REFUSED = [
    ("int", ["1"], "str"), ("int", [1.0], "float"), ("int", [True], "bool"), ("int", [2**31], "2147483648"),
    ("bigint", [2**70], "fit"), ("tinyint", [-129], "-129"), ("int", [Decimal(1)], "Decimal"),
    ("boolean", [1], "int"), ("boolean", ["true"], "str"),
    ("double", ["1"], "str"), ("double", [Decimal(1)], "Decimal"), ("double", [2**53 + 1], "9007199254740993"),
    ("double", [np.longdouble("0.1")], "longdouble"), ("float", [1e300], "1e+300"), ("float", [2**24 + 1], "16777217"),
    ("decimal(4,2)", [Decimal("100")], "100"), ("decimal(4,2)", [Decimal("1.234")], "1.234"),
    ("decimal(4,2)", [1.5], "float"), ("decimal(4,2)", [Decimal("NaN")], "NaN"), ("decimal(4,2)", [100], "100"),
    ("string", [1], "int"), ("string", [b"a"], "bytes"), ("string", ["\ud800"], "fit"),
    ("char(2)", ["abc"], "at most 2"), ("bytes", ["a"], "str"), ("binary(2)", [b"abc"], "found 3"),
    ("binary(2)", [b"a"], "found 1"),
    ("date", [dt.datetime(2020, 1, 1)], "datetime"), ("date", ["2020-01-01"], "str"),
    ("time(0)", [dt.time(1, 2, 3, 4)], "exactly"), ("time(3)", [dt.time(1, 2, tzinfo=UTC)], "zone"),
    ("timestamp(0)", [dt.datetime(2020, 1, 1, 1, 1, 1, 5)], "exactly"),
    ("timestamp(6)", [dt.datetime(2020, 1, 1, tzinfo=UTC)], "zone"),
    ("timestamp_ltz(6)", [dt.datetime(2020, 1, 1)], "zone"),
    ("timestamp(6)", [dt.date(2020, 1, 1)], "date"), ("timestamp(6)", [1577836800000], "int"),
    ("timestamp(6)", [pd.Timestamp("2020-01-01 00:00:00.000000001")], "exactly"),
    ("array<int>", [5], "int"), ("array<int>", ["ab"], "str"), ("array<int>", [[1, "a"]], "x.element"),
    ("array<int not null>", [[1, None]], "NOT NULL"),
    ("map<string, int>", [[("a", 1, 2)]], "pairs"), ("map<string, int>", [{1: 1}], "x.key"),
    ("map<string, int>", [[(None, 1)]], "x.key"), ("map<string, int not null>", [{"a": None}], "x.value"),
    ("row<a int>", [{"a": 1, "b": 2}], "'b'"), ("row<a int not null>", [{}], "x.a"), ("row<a int>", [[1]], "list"),
]  # fmt: skip


@pytest.mark.parametrize(("type_text", "bad", "words"), REFUSED, ids=str)
def test_python_values_that_do_not_fit_are_refused_with_column_row_and_value(type_text: str, bad: list, words: str):
    text = refusal([{"x": None}, {"x": None}, {"x": bad[0]}, {"x": bad[0]}], one(type_text))
    assert "'x" in text
    assert "row 2" in text
    assert words in text
    assert "nothing was sent" in text


REFUSED_ARROW = [
    ("int", pa.array([None, 1, 2**31]), "row 2"),
    ("int", pa.array([1.0]), "round"),
    ("int", pa.array([True]), "bool"),
    ("int", pa.array(["1"]), "string"),
    ("bigint", pa.array([0, 2**63], pa.uint64()), "row 1"),
    ("double", pa.array([1, 2**53 + 1]), "row 1"),
    ("double", pa.array([Decimal(1)]), "decimal"),
    ("boolean", pa.array([1]), "int64"),
    ("decimal(4,2)", pa.array([1.5]), "double"),
    ("decimal(4,2)", pa.array([1, 100]), "row 1"),
    ("decimal(4,2)", pa.array([Decimal("1.00"), Decimal("1.234")]), "row 1"),
    ("string", pa.array([1]), "int64"),
    ("string", pa.array([b"a"]), "binary"),
    ("char(1)", pa.array(["a", "bc"], pa.large_string()), "row 1"),
    ("bytes", pa.array(["a"]), "string"),
    ("binary(2)", pa.array([b"ab", b"abc"]), "row 1"),
    ("binary(2)", pa.array([b"abc"], pa.binary(3)), "row 0"),
    ("date", pa.array([1], pa.timestamp("us")), "date"),
    ("date", pa.array([1], pa.int32()), "int32"),
    ("time(0)", pa.array([0, 1], pa.time64("us")), "row 1"),
    ("timestamp(6)", pa.array([0, 1], pa.timestamp("ns")), "row 1"),
    ("timestamp(6)", pa.array([0], pa.timestamp("us", "UTC")), "TIMESTAMP_LTZ"),
    ("timestamp_ltz(6)", pa.array([0], pa.timestamp("us")), "time zone"),
    ("timestamp(9)", pa.array([0, 2**60], pa.timestamp("s")), "row 1"),
    ("timestamp(6)", pa.array(["2020-01-01"]), "string"),
    # Nanoseconds taken for milliseconds: no lake could hold them.
    ("timestamp(3)", pa.array([0, None, 1_764_460_800_000_000_000], pa.timestamp("ms")), "row 2"),
    ("timestamp(0)", pa.array([0, -(2**63 // 10**6) - 1], pa.timestamp("s")), "microseconds"),
    ("timestamp_ltz(3)", pa.array([-(2**63)], pa.timestamp("ms", "UTC")), "another unit"),
    (
        "array<row<t timestamp(3)>>",
        pa.array([[], [{"t": 2**60}]], pa.list_(pa.struct([("t", pa.timestamp("ms"))]))),
        "row 1",
    ),
    ("array<int>", pa.array([1]), "int64"),
    ("array<int>", pa.array([[1], None, [2, 2**40]]), "row 2"),
    ("array<int not null>", pa.array([[1], [], [2, None]], pa.list_(pa.int32())), "row 2"),
    ("array<char(1)>", pa.array([["a"], ["bc"]]), "row 1"),
    ("map<string, int>", pa.array([[("a", "x")]], pa.map_(pa.string(), pa.string())), "x.value"),
    ("map<string, int not null>", pa.array([[], [("a", None)]], pa.map_(pa.string(), pa.int32())), "row 1"),
    ("row<a int not null>", pa.array([{"a": 1}, None, {"a": None}]), "row 2"),
    ("row<a int>", pa.array([{"b": 1}]), "'b'"),
    ("row<a int, b int not null>", pa.array([{"a": 1}]), "'b'"),
]


@pytest.mark.parametrize(("type_text", "array", "words"), REFUSED_ARROW, ids=lambda value: str(value).replace("\n", ""))
def test_arrow_values_that_do_not_fit_are_refused(type_text: str, array: pa.Array, words: str):
    text = refusal({"x": array}, one(type_text))
    assert "'x" in text
    assert words in text


@pytest.mark.parametrize("type_text", ["timestamp(0)", "timestamp_ltz(3)"])
def test_coarse_times_are_taken_as_far_as_microseconds_reach(type_text: str):
    dtype = make_schema({"x": type_text}).arrow_schema.field("x").type
    reach = (2**63 - 1) // {"s": 10**6, "ms": 10**3}[dtype.unit]
    array = pa.array([None, -reach, reach], dtype)
    (batch,) = record_batches(pa.table({"x": array}), make_schema({"x": type_text}))
    assert batch.column(0).equals(array)
    array.cast(pa.timestamp("us", dtype.tz))  # as a lake has it


def test_a_null_row_hides_its_fields():
    schema = one("row<a int not null, b array<int not null> not null>")
    expected = [{"id": None, "x": None}, {"id": None, "x": {"a": 1, "b": [2]}}]
    loose = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int32()))])
    assert rows_of({"x": pa.array([None, {"a": 1, "b": [2]}], loose)}, schema) == expected
    assert rows_of({"x": [None, {"a": 1, "b": [2]}]}, schema) == expected


def test_nulls_in_not_null_columns_are_reported_by_row_over_all_chunks():
    schema = make_schema({"id": "int not null"})
    table = pa.table({"id": pa.chunked_array([[1, 2], [3, None]], pa.int32())})
    assert "row 3" in refusal(table, schema)
    assert "row 3" in refusal(table.to_reader(), schema)
    assert "row 1" in refusal([{"id": 1}, {}], schema)
    assert "row 1" in refusal(pd.DataFrame({"id": pd.array([1, None], "Int32")}), schema)


def test_rows_of_the_tables_own_schema_are_taken_as_they_are_unless_it_says_too_much():
    schema = make_schema({"id": "int not null", "x": "string"})
    right = pa.record_batch([pa.array([1, 2], pa.int32()), pa.array(["a", None])], schema=schema.arrow_schema)
    (taken,) = record_batches(right, schema)
    assert taken.column(1).buffers()[2].address == right.column(1).buffers()[2].address
    wrong = pa.record_batch([pa.array([1, None], pa.int32()), pa.array(["a", "b"])], schema=schema.arrow_schema)
    assert "row 3" in refusal(pa.Table.from_batches([right, wrong]), schema)


def test_damaged_arrow_data_is_refused():
    damaged = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")]
    )
    assert "not valid" in refusal({"x": damaged}, one("string"))


def test_unsupported_pandas_dtypes_are_refused():
    assert "'x'" in refusal(pd.DataFrame({"x": pd.period_range("2020-01", periods=1, freq="M")}), one("string"))
    assert "'x'" in refusal(pd.DataFrame({"x": pd.to_timedelta([1])}), one("bigint"))
    assert "'x'" in refusal(pd.DataFrame({"x": pd.Categorical([2**64])}), one("bigint"))


@pytest.mark.parametrize(
    ("type_text", "values", "words"),
    [
        ("date", [dt.date(2020, 1, 1), dt.datetime(2020, 1, 2, 3)], "row 2: expected DATE"),
        ("timestamp_ltz(6)", [dt.datetime(2020, 1, 1, tzinfo=UTC), 5], "row 2: expected TIMESTAMP_LTZ"),
        ("double", [0.5, True], "row 2: expected DOUBLE"),
        ("time(0)", [dt.time(1), 0.1], "row 2: expected TIME"),
    ],
)
def test_categories_of_several_types_are_judged_one_by_one(type_text: str, values: list, words: str):
    kinds = pd.CategoricalDtype(pd.Index([*values, "unused"], dtype=object))
    series = pd.Series([values[0], None, values[1]], dtype=object).astype(kinds)
    assert words in refusal(pd.DataFrame({"x": series}), one(type_text))
    rows = rows_of(pd.DataFrame({"x": series[:2]}), one(type_text))
    assert [row["x"] for row in rows] == [values[0], None]


def test_random_integers_pass_exactly_when_they_fit(rng):
    for _ in range(200):
        bits = rng.choice([8, 16, 32, 64])
        values = [rng.randrange(-(2**63), 2**63) >> rng.randrange(64) for _ in range(rng.randrange(1, 40))]
        schema = make_schema({"x": {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}[bits]})
        wrong = [index for index, value in enumerate(values) if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)]
        for rows in ({"x": values}, {"x": pa.array(values, pa.int64())}):
            if wrong:
                assert f"row {wrong[0]}:" in refusal(rows, schema)
            else:
                assert rows_of(rows, schema) == [{"x": value} for value in values]


def test_many_dicts_come_in_several_batches_in_their_order():
    rows = [{"id": 1, "x": "a"}] * (1 << 20) + [{"id": 2, "x": "b"}]
    first, second = record_batches(rows, one("string"))
    assert first.num_rows == 1 << 20
    assert second.to_pylist() == [{"id": 2, "x": "b"}]


def long_texts(sizes: list[int], large: pa.DataType) -> pa.Array:
    """Values of zero bytes: pages of memory that nobody wrote to take no room."""
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return pa.Array.from_buffers(
        large, len(sizes), [None, pa.py_buffer(ends), pa.py_buffer(mmap.mmap(-1, int(ends[-1])))]
    )


@pytest.mark.parametrize("large", [pa.large_string(), pa.large_binary()], ids=str)
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_values_behind_2_gb_of_others_are_taken(large, nested):
    """Seen: the second part of a Polars frame with 2 GB of texts was refused: "the value does not fit exactly"."""
    texts = long_texts([2**31, 3, 0, 5], large).slice(1)
    kind = "string" if large == pa.large_string() else "bytes"
    column = pa.LargeListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int64()), texts) if nested else texts
    rows = pa.record_batch({"id": [1, 2, 3], "x": column})
    found = rows_of(rows, one(f"array<{kind}>" if nested else kind))
    value = (lambda count: "\0" * count) if kind == "string" else bytes
    assert [row["x"] for row in found] == [[value(count)] if nested else value(count) for count in (3, 0, 5)]


@pytest.mark.campaign  # it takes 5 GB of memory
@pytest.mark.parametrize("form", ["batch", "table", "dictionary", "nested", "view"])
def test_columns_of_more_than_2_gb_are_taken_in_parts(form):
    count, size = 2_400, 1 << 20
    texts = long_texts([size] * count, pa.large_string())
    column = {
        "dictionary": lambda: pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array(["\0" * size])),
        "nested": lambda: pa.LargeListArray.from_arrays(np.arange(count + 1), texts),
        "view": lambda: pa.array(["\0" * size] * count, pa.string_view()),
    }.get(form, lambda: texts)()
    rows = (pa.table if form == "table" else pa.record_batch)({"id": np.arange(count, dtype=np.int32), "x": column})
    made = record_batches(rows, one("array<string>" if form == "nested" else "string"))
    assert np.concatenate([batch.column("id").to_numpy() for batch in made]).tolist() == list(range(count))
    lengths = [pc.binary_length(pc.list_flatten(b["x"]) if form == "nested" else b["x"]) for b in made]
    assert pa.chunked_array(lengths).to_pylist() == [size] * count
