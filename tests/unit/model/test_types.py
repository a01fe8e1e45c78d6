"""Data types: what they are in DDL, in Arrow, in JSON, and what is refused."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_lab.errors import InvalidNameError, InvalidSchemaError
from fluss_lab.model import DataType
from fluss_lab.model.types import NESTING_MAX, Field, make_type

ARROW_OF_TEXT = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "INTEGER": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "char(3)": pa.string(),
    "string": pa.string(),
    "varchar(7)": pa.string(),
    "binary(4)": pa.binary(4),
    "bytes": pa.binary(),
    "decimal(10, 2)": pa.decimal128(10, 2),
    "decimal": pa.decimal128(10, 0),
    "date": pa.date32(),
    "time": pa.time32("s"),
    "time(3)": pa.time32("ms"),
    "time(6)": pa.time64("us"),
    "time(9)": pa.time64("ns"),
    "timestamp(0)": pa.timestamp("s"),
    "timestamp(3)": pa.timestamp("ms"),
    "timestamp": pa.timestamp("us"),
    "timestamp(9)": pa.timestamp("ns"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp(3) with local time zone": pa.timestamp("ms", "UTC"),
    "array<int>": pa.list_(pa.int32()),
    "array<int not null>": pa.list_(pa.field("element", pa.int32(), nullable=False)),
    "map<string, bigint>": pa.map_(pa.string(), pa.int64()),
    "row<a int, b array<string>>": pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
}

leaf = st.sampled_from(
    [make_type(name) for name in ("BOOLEAN", "INT", "BIGINT", "STRING", "BYTES", "DATE", "DOUBLE")]
    + [
        make_type("DECIMAL", (12, 3)),
        make_type("TIME", (3,)),
        make_type("TIMESTAMP_LTZ", (6,)),
        make_type("CHAR", (2,)),
    ]
)
types = st.recursive(
    st.builds(DataType.with_nullable, leaf, st.booleans()),
    lambda inner: st.one_of(
        inner.map(lambda t: DataType("ARRAY", (), (Field("element", t),))),
        st.tuples(leaf, inner).map(
            lambda kv: DataType("MAP", (), (Field("key", kv[0].with_nullable(False)), Field("value", kv[1])))
        ),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda ts: DataType("ROW", (), tuple(Field(f"f{i}", t) for i, t in enumerate(ts)))
        ),
    ),
    max_leaves=6,
)


@pytest.mark.parametrize(("text", "arrow"), ARROW_OF_TEXT.items())
def test_a_type_text_means_one_arrow_type(text, arrow):
    assert DataType.parse(text).arrow().equals(arrow)


@settings(deadline=None)
@given(types)
def test_text_json_and_arrow_give_the_type_back(dtype):
    assert DataType.parse(str(dtype)) == dtype
    assert DataType.from_json(dtype.to_json()) == dtype
    arrow = dtype.arrow()
    assert DataType.from_arrow(arrow, dtype.nullable).arrow().equals(arrow)


@pytest.mark.parametrize(
    ("arrow", "text"),
    [
        (pa.large_string(), "STRING"),
        (pa.string_view(), "STRING"),
        (pa.large_binary(), "BYTES"),
        (pa.dictionary(pa.int8(), pa.string()), "STRING"),
        (pa.list_(pa.int8(), 3), "ARRAY<TINYINT>"),
        (pa.large_list(pa.int8()), "ARRAY<TINYINT>"),
        (pa.decimal256(20, 2), "DECIMAL(20,2)"),
    ],
)
def test_other_arrow_forms_are_taken_in(arrow, text):
    assert str(DataType.from_arrow(arrow)) == text


@pytest.mark.parametrize(
    "arrow",
    [pa.uint8(), pa.uint64(), pa.null(), pa.float16(), pa.duration("s"), pa.struct([]), pa.decimal256(60, 2)],
)
def test_arrow_types_without_a_fluss_type_are_refused(arrow):
    with pytest.raises(InvalidSchemaError):
        DataType.from_arrow(arrow)


@pytest.mark.parametrize(
    "text",
    ["", "intt", "int(3)", "decimal(39)", "decimal(2,5)", "timestamp(10)", "array<>", "array<int", "map<int>", "row<>",
     "row<a>", "int not", "int x", "array<int,int>", "char(0)", "decimal(1,2,3)", "int ;", "row<1a int>"],
)  # fmt: skip
def test_a_text_that_is_no_type_is_refused(text):
    with pytest.raises((InvalidSchemaError, InvalidNameError)):
        DataType.parse(text)


def test_nesting_has_a_limit():
    deep = "array<" * (NESTING_MAX + 1) + "int" + ">" * (NESTING_MAX + 1)
    with pytest.raises(InvalidSchemaError, match="deeper"):
        DataType.parse(deep)
    arrow = pa.int32()
    for _ in range(NESTING_MAX + 1):
        arrow = pa.list_(arrow)
    with pytest.raises(InvalidSchemaError, match="deeper"):
        DataType.from_arrow(arrow)
