"""Filters mean what they say: SQL against a plain evaluation, other forms against SQL, pruning against the rows."""

import datetime as dt
import random
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg import expressions
from pyiceberg.expressions.visitors import bind, expression_evaluator
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.types import BooleanType, DecimalType, DoubleType, IntegerType, LongType, NestedField, StringType

from fluss_lab.errors import InvalidFilterError
from fluss_lab.model import make_schema
from fluss_lab.read.filter.filter_compiler import compile_filter
from tests.unit.read.filter.filter_kit import NAN, SCHEMA, Random, table_of

#: Their constructors' types are those of their JSON form.
ice: Any = expressions


def kept(where, **columns):
    """Return which rows a filter keeps, by position."""
    table = table_of(**columns)
    found = table.append_column("row", pa.array(range(table.num_rows))).filter(compile_filter(where, SCHEMA).expression)
    return found["row"].to_pylist()


# -- SQL ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "column", "values", "rows"),
    [
        ("n > 1", "n", [1, 2, None], [1]),
        ("1 < n", "n", [1, 2, None], [1]),
        ("N = 2", "n", [1, 2, None], [1]),
        ("not n = 2", "n", [1, 2, None], [0]),
        ("n <> 2", "n", [1, 2, None], [0]),
        ("n = null", "n", [1, None], []),
        ("not n = null", "n", [1, None], []),
        ("n is null", "n", [1, None], [1]),
        ("n is not null", "n", [1, None], [0]),
        ("n in (1, 3)", "n", [1, 2, 3, None], [0, 2]),
        ("n not in (1, 3)", "n", [1, 2, 3, None], [1]),
        ("n in (1, null)", "n", [1, 2, None], [0]),
        ("n not in (1, null)", "n", [1, 2, None], []),
        ("not (n in (1, null))", "n", [1, 2, None], []),
        ("n between 2 and 3", "n", [1, 2, 3, 4, None], [1, 2]),
        ("n not between 2 and 3", "n", [1, 2, 3, 4, None], [0, 3]),
        ("n > 1.5", "n", [1, 2, None], [1]),
        ("n >= 1.5", "n", [1, 2, None], [1]),
        ("n <= 1.5", "n", [1, 2, None], [0]),
        ("n < -1.5", "n", [-1, -2, None], [1]),
        ("n = 1.5", "n", [1, 2, None], []),
        ("n != 1.5", "n", [1, 2, None], [0, 1]),
        ("not (n = 1.5)", "n", [1, 2, None], [0, 1]),
        ("not (n != 1.5)", "n", [1, 2, None], []),
        ("tiny < 1000", "tiny", [1, 127, None], [0, 1]),
        ("tiny > 1000", "tiny", [1, 127, None], []),
        ("not tiny > 1000", "tiny", [1, 127, None], [0, 1]),
        ("tiny >= -129", "tiny", [-128, None], [0]),
        ("big > 9223372036854775806", "big", [2**63 - 1, 2**63 - 2], [0]),
        ("big < 1e30", "big", [2**63 - 1, None], [0]),
        ("d = 1.2", "d", [Decimal("1.20"), Decimal("1.21")], [0]),
        ("d > 1.205", "d", [Decimal("1.20"), Decimal("1.21")], [1]),
        ("wide = 1234567890123456789012345678.0123456789", "wide", [Decimal("1234567890123456789012345678.0123456789")], [0]),
        ("f = 0.1", "f", [0.1, 0.2, None], []),
        ("f = cast(0.1 as float)", "f", [0.1, 0.2, None], [0]),
        ("f < 0.1", "f", [0.1, 0.0, None], [1]),
        ("f >= 0.1", "f", [0.1, 0.0, NAN], [0]),
        ("g = 0.1", "g", [0.1, 0.2, None], [0]),
        ("f = 16777217", "f", [2.0**24, 2.0**24 + 2], []),
        ("f != 16777217", "f", [2.0**24, NAN, None], [0, 1]),
        ("f < 16777217", "f", [2.0**24, 2.0**24 + 2], [0]),
        ("f >= 16777217", "f", [2.0**24, 2.0**24 + 2], [1]),
        ("g = 9007199254740993", "g", [2.0**53, 2.0**53 + 2], []),
        ("g > 9007199254740993", "g", [2.0**53, 2.0**53 + 2], [1]),
        ("f = 'Infinity'", "f", [float("inf"), 3e38, NAN], [0]),
        ("f <= '-inf'", "f", [float("inf"), float("-inf"), NAN], [1]),
        ("f = 1e999", "f", [float("inf"), 3e38, NAN], [0]),
        ("n < 1e99999", "n", [1, None], [0]),
        ("d = 1e-99999", "d", [Decimal("0.00")], []),
        ("d >= 1e-99999", "d", [Decimal("0.00"), Decimal("0.01")], [1]),
        ("f < 1e300", "f", [0.1, float("inf"), NAN, None], [0]),
        ("f > 1e300", "f", [0.1, float("inf"), NAN, None], [1]),
        ("g > 1", "g", [2.0, NAN, None], [0]),
        ("not (g > 1)", "g", [2.0, NAN, None, 0.5], [1, 3]),
        ("g != 2", "g", [2.0, NAN, None], [1]),
        ("g in (0, 7)", "g", [0.0, -0.0, NAN, None, 7.0], [0, 1, 4]),
        ("g not in (0)", "g", [0.0, -0.0, NAN, None, 7.0], [2, 4]),
        ("g = 0", "g", [0.0, -0.0, NAN], [0, 1]),
        ("g is nan", "g", [2.0, NAN, None], [1]),
        ("g is not nan", "g", [2.0, NAN, None], [0]),
        ("b", "b", [True, False, None], [0]),
        ("not b", "b", [True, False, None], [1]),
        ("b is true", "b", [True, False, None], [0]),
        ("b is not true", "b", [True, False, None], [1, 2]),
        ("b = false", "b", [True, False, None], [1]),
        ("s = 'it''s'", "s", ["it's", "its"], [0]),
        ("s like 'a%'", "s", ["a", "ab", "ba", "a\nb", None], [0, 1, 3]),
        ("s not like 'a%'", "s", ["a", "b", None], [1]),
        ("s like '_b%c'", "s", ["abxc", "éb\nc", "bc"], [0, 1]),
        (r"s like 'a\%%'", "s", ["a%x", "ab"], [0]),
        ("s like '100.'", "s", ["100.", "1000"], [0]),
        ("day >= '2013-01-31'", "day", [dt.date(2013, 1, 30), dt.date(2013, 1, 31), None], [1]),
        ("day = date '2013-01-31'", "day", [dt.date(2013, 1, 31)], [0]),
        ("tod > '12:00:00.5'", "tod", [dt.time(12), dt.time(12, 0, 1), None], [1]),
        ("ts = '2013-01-01 00:00:00.123'", "ts", [dt.datetime(2013, 1, 1, 0, 0, 0, 123000)], [0]),
        ("ts < '2013-01-01T00:00:00.1235'", "ts", [dt.datetime(2013, 1, 1, 0, 0, 0, 123000)], [0]),
        ("at >= '2013-01-01T02:00:00+02:00'", "at", [dt.datetime(2013, 1, 1, tzinfo=dt.UTC)], [0]),
        ("at = timestamp '2013-01-01'", "at", [dt.datetime(2013, 1, 1, tzinfo=dt.UTC)], [0]),
        ("bin = X'00FF'", "bin", [b"\x00\xff", b"\x00"], [0]),
        ("bin > x''", "bin", [b"\x00", b""], [0]),
        ("fixed = X'0001'", "fixed", [b"\x00\x01", None], [0]),
        ("fixed != X'000102'", "fixed", [b"\x00\x01", None], [0]),
        ("arr is not null", "arr", [[1], None], [0]),
        ("r.x = 3", "r", [{"x": 3, "y": None}, None], [0]),
        ("r.y.z = 'a'", "r", [{"x": 3, "y": {"z": "a"}}], [0]),
        ("true", "n", [1, None], [0, 1]),
        ("null or n = 1", "n", [1, 2], [0]),
        ("not (n = 1 and g > 2)", "n", [1, 2], [1]),
        ('"n" = 1 and `n` = 1', "n", [1, 2], [0]),
        ("__offset between 3 and 4", "__offset", [2, 3, 4, 5], [1, 2]),
    ],
)  # fmt: skip
def test_sql_keeps_the_rows_for_which_it_is_true(where, column, values, rows):
    assert kept(where, **{column: values}) == rows


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("nope = 1", "unknown column 'nope'; the columns are n, tiny"),
        (
            's = "x"',
            "unknown column 'x'; the columns are n, .*; double quotes are those of names, a text has single ones",
        ),
        ("r.nope = 1", "unknown field 'nope' of 'r'; the fields are x, y"),
        ("n.x = 1", "it is of type int32"),
        ("n = 'x'", "column 'n' of type int32: expected a number"),
        ("s = 5", "expected text"),
        ("b > true", "use = or !="),
        ("arr = 3", "only IS NULL and IS NOT NULL apply"),
        ("n like 'a%'", "LIKE is of text"),
        ("n is nan", "only FLOAT and DOUBLE"),
        (r"s like '\x'", "expected"),
        ("day = '2013-02-31'", "expected a date"),
        ("ts = '2013-01-01Z'", "without zone"),
        ("at = 5", "expected a moment"),
        ("bin = 'x'", "expected bytes"),
        ("bin = X'0'", "two hexadecimal digits"),
        ("", "character 1: expected a column or a value, found the end"),
        ("n = ", "character 5: expected a column or a value, found the end after 'n = '"),
        ("n = 1 or", "expected a column or a value, found the end"),
        ("n = 1 2", "character 7 at '2': expected AND, OR or the end, found '2'"),
        ("(n = 1", r"expected '\)'"),
        ("n", "expected a comparison after 'n'"),
        ("n ! 1", "character 3 at '! 1': cannot be read"),
        ("s = 'abc", "character 5 at .*a quote that is not closed"),
        ("n in ()", "expected a column or a value"),
        ("n = 1 and tiny = 'x'", "character 11 at .*tiny = 'x'.*expected a number"),
        ("n = b", "cannot compare a whole number with true or false"),
        ("s + 1 = 2", "is of numbers, found text"),
        ("n = (n > 1)", "expected a value, found the condition 'n > 1'"),
        ("sqrt(n) = 2", "no function 'sqrt'; offered are abs, "),
        ("lower(n) = 'a'", "lower is of text, found a whole number"),
        ("substr(s) = 'a'", "substr takes 2 to 3 values, found 1"),
        ("cast(n as blob) = 1", "BLOB"),
        ("cast(b as int) = 1", "CAST of true or false to a whole number is not offered"),
        ("cast(f as string) = '1'", r"CAST of a double to text is not offered: .*CAST to DECIMAL\(p, s\) first"),
        ("cast(1e2 as string) = '100'", "write the text in single quotes"),
        ("ts = at", "cannot compare a timestamp with a timestamp with zone"),
        ("cast('x' as int) = n", "x"),
        ("arr = arr", "no kernel|cannot"),
        ("n = 1e123456", "exponent"),
        ("n not 5", "expected IN, BETWEEN or LIKE"),
        ("n not null", "expected IN, BETWEEN or LIKE"),
        ("n at time zone 'x' = 1", "expected a column, a value or a function, found \"n at time zone 'x'\""),
        ("select = 1", "unknown column 'select'"),
        ("not " * 200 + "b", "levels"),
        ("(" * 200 + "b" + ")" * 200, "levels"),
    ],
)
def test_sql_that_cannot_be_is_refused_with_its_place(where, words):
    with pytest.raises(InvalidFilterError, match=words):
        compile_filter(where, SCHEMA)


def test_what_is_no_filter_is_refused():
    with pytest.raises(InvalidFilterError, match="found int"):
        compile_filter(5, SCHEMA)
    assert compile_filter(None, SCHEMA) is None


def test_sql_agrees_with_three_valued_logic_by_hand(seed):
    source = Random(seed)
    rows = [source.row() for _ in range(60)]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    for _ in range(300):
        text, evaluate = source.condition()
        assert kept(text, **columns) == [place for place, row in enumerate(rows) if evaluate(row) is True], text


def test_an_escaped_pattern_keeps_the_rows_that_python_keeps(seed):
    rng = random.Random(seed)
    texts = ["".join(rng.choices("a%_\\.\n é", k=rng.randint(0, 4))) for _ in range(300)]
    signs = {
        "%": ".*", "_": ".", r"\%": "%", r"\_": "_", r"\\": r"\\", "a": "a", ".": r"\.", "\n": "\n", " ": " ", "é": "é",
    }  # fmt: skip
    for _ in range(200):
        chosen = [*rng.choices(list(signs), k=rng.randint(0, 3)), rng.choice([r"\%", r"\_", r"\\"])]
        rng.shuffle(chosen)
        regex = re.compile("".join(signs[sign] for sign in chosen), re.DOTALL)
        rows = [row for row, text in enumerate(texts) if regex.fullmatch(text)]
        pattern = "".join(chosen)
        assert kept(f"s like '{pattern}'", s=texts) == rows, pattern
        assert kept(f"s || '' like '{pattern}'", s=texts) == rows, pattern
        assert kept(f"s not like '{pattern}'", s=[*texts, None]) == sorted({*range(len(texts))} - {*rows}), pattern


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("t in ('00:00:00.000000001', '00:00:00.000001001')", [1, 2]),
        ("t = '00:00:00.000000001' or t = '12:00:00'", [1]),
        ("t not in ('00:00:00.000000001')", [0, 2]),
        ("t != '00:00:00.000000001' and t != '00:00:00.000001001'", [0]),
        (pc.field("t").isin(pa.array([1, 0], pa.time64("ns"))), [0, 1]),
    ],
    ids=str,
)
def test_a_list_of_times_is_exact_to_the_nanosecond(where, rows):
    schema = make_schema({"t": "time(9)"})
    times = pa.table({"t": pa.array([0, 1, 1001, None], pa.time64("ns")), "row": range(4)})
    assert times.filter(compile_filter(where, schema).expression)["row"].to_pylist() == rows


@pytest.mark.parametrize("prefix", ["C:\\tmp", "a\\", "a%", "\\\\"])
def test_a_text_that_begins_with_a_backslash_or_wildcard_as_written_is_found(prefix):
    texts = [f"{prefix}x", prefix, prefix.replace("\\", "\\\\"), prefix[:-1], "ab", None]
    rows = [row for row, text in enumerate(texts) if text is not None and text.startswith(prefix)]
    for where in (pc.starts_with(pc.field("s"), prefix), ice.StartsWith("s", prefix), f"starts_with(s, '{prefix}')"):
        assert kept(where, s=texts) == rows


def test_a_decided_filter_keeps_the_same_rows(seed):
    source = Random(seed)
    rows = [source.row() for _ in range(40)]
    for _ in range(200):
        text, evaluate = source.condition()
        known = {name: value for name, value in source.row().items() if value is not None and name in {"n", "s"}}
        same = [row | known for row in rows]
        columns = {name: [row[name] for row in same] for name in same[0]}
        expected = [place for place, row in enumerate(same) if evaluate(row) is True]
        left = compile_filter(text, SCHEMA).decide(known)
        if isinstance(left, bool):
            assert expected == (list(range(len(same))) if left else []), text
            continue
        assert not left.columns & set(known)
        table = table_of(**columns).append_column("row", pa.array(range(len(same))))
        assert table.filter(left.expression)["row"].to_pylist() == expected, text


# -- pyiceberg ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "sql"),
    [
        (ice.EqualTo("n", 1), "n = 1"),
        (ice.And(ice.In("s", ["a", "ab"]), ice.Not(ice.StartsWith("s", "a%"))), "s in ('a', 'ab')"),
        (ice.Or(ice.NotIn("n", [1, 2]), ice.IsNull("s")), "n not in (1, 2) or s is null"),
        (ice.GreaterThan("at", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)), "at > '2020-01-01T00:00:00Z'"),
        (ice.LessThan("day", dt.date(2020, 1, 1)), "day < '2020-01-01'"),
        (ice.LessThanOrEqual("tod", dt.time(1, 2, 3)), "tod <= '01:02:03'"),
        (ice.NotEqualTo("d", Decimal("1.2")), "d != 1.2"),
        (ice.NotNaN("g"), "g is not nan"),
        (ice.AlwaysTrue(), "true"),
        (ice.EqualTo("r.x", 3), "r.x = 3"),
    ],
    ids=str,
)
def test_a_pyiceberg_expression_is_what_the_same_sql_is(where, sql):
    made, expected = compile_filter(where, SCHEMA), compile_filter(sql, SCHEMA)
    table = table_of(n=[1, 2, 3, None], s=["a", "a%b", None, "ab"], g=[1.0, NAN, None, 2.0],
                     d=[Decimal("1.20"), Decimal("2.00"), None, None], r=[{"x": 3, "y": None}, None, None, None])  # fmt: skip
    assert repr(table.filter(made.expression).to_pylist()) == repr(table.filter(expected.expression).to_pylist())
    assert made.columns == expected.columns


def test_a_pyiceberg_expression_over_an_unknown_column_is_refused():
    with pytest.raises(InvalidFilterError, match="unknown column 'nope'"):
        compile_filter(ice.EqualTo("nope", 1), SCHEMA)


ICEBERG = IcebergSchema(
    NestedField(1, "n", IntegerType()),
    NestedField(2, "g", DoubleType()),
    NestedField(3, "s", StringType()),
    NestedField(4, "b", BooleanType()),
    NestedField(5, "d", DecimalType(10, 2)),
    NestedField(6, "__offset", LongType()),
)


def test_pruning_is_true_wherever_the_filter_is(seed):
    source = Random(seed)
    rows = [source.row() for _ in range(60)]
    pruned = 0
    for _ in range(200):
        text, evaluate = source.condition()
        pruning = compile_filter(text, SCHEMA).prune()
        if pruning is None:
            continue
        pruned += 1
        bind(ICEBERG, pruning, case_sensitive=True)
        decide = expression_evaluator(ICEBERG, pruning, case_sensitive=True)
        for row in rows:
            if evaluate(row) is True and row["g"] == row["g"]:
                assert decide(_Struct([*row.values(), 0])), text
    assert pruned > 20


class _Struct:
    """A row as pyiceberg's evaluator takes it: n, g, s, b, d in the order of `Random.row`."""

    def __init__(self, values):
        self._data = values

    def __getitem__(self, place):
        return self._data[place]


def test_ordinary_filters_do_prune():
    assert compile_filter("n > 5 and s = 'x'", SCHEMA).prune() is not None
    assert str(compile_filter("s like 'ab%c'", SCHEMA).prune()) == str(ice.StartsWith("s", "ab"))
    assert compile_filter("n not in (1)", SCHEMA).prune() is None


def test_rows_stay_in_order_when_they_are_filtered():
    batch = pa.record_batch({"n": pa.array(range(500_000), pa.int32())})
    found = compile_filter("n >= 10", SCHEMA).apply(batch)
    assert found.column("n").to_pylist() == list(range(10, 500_000))


# -- filters that are kept ---------------------------------------------------------------------------------------------


def test_a_text_means_what_it_means_in_each_schema():
    days, text = make_schema({"v": "date", "w": "int"}), make_schema({"v": "string"})
    made = compile_filter("v > '2020-01-01'", days)
    assert compile_filter("v > '2020-01-01'", days) is made
    found = pa.table({"v": [dt.date(2020, 1, 1), dt.date(2020, 1, 2)]}).filter(made.expression)
    assert found["v"].to_pylist() == [dt.date(2020, 1, 2)]
    found = pa.table({"v": ["2020-01-01 ", "20"]}).filter(compile_filter("v > '2020-01-01'", text).expression)
    assert found["v"].to_pylist() == ["2020-01-01 "]
    assert compile_filter("w = 1", days).columns == {"w"}
    for _ in range(2):
        with pytest.raises(InvalidFilterError, match="w"):
            compile_filter("w = 1", text)


def test_few_filters_are_kept_and_no_long_ones():
    schema = make_schema({"v": "int"})
    first = compile_filter("v = 0", schema)
    for number in range(1, 50):
        assert str(compile_filter(f"v = {number}", schema).prune()) == str(ice.EqualTo("v", number))
    again = compile_filter("v = 0", schema)
    assert again is not first
    assert again.predicate == first.predicate
    long = f"v = 1 {'or v = 2 ' * 100}"
    assert compile_filter(long, schema) is not compile_filter(long, schema)


def test_what_is_left_of_a_filter_is_derived_of_what_is_left():
    made = compile_filter("n > 1 and s = 'x' and g > 2", SCHEMA)
    assert made.prune() is not None
    assert made.left_over
    assert "g" not in str(made.pushed)
    left = made.decide({"n": 5, "g": 3.0})
    expected = compile_filter("s = 'x'", SCHEMA)
    assert (left.predicate, left.columns, left.left_over) == (expected.predicate, expected.columns, False)
    assert (str(left.pushed), str(left.prune())) == (str(expected.pushed), str(expected.prune()))
    assert made.decide({"n": 0}) is False
    assert made.decide({"__bucket": 1}) is made


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("true", True), ("false", False), ("true and n > 1", "n > 1"), ("false and n > 1", False),
        ("true or n > 1", True), ("n > 1 or n > 1", "n > 1 or n > 1"),
    ],
)  # fmt: skip
def test_a_filter_is_decided_as_far_as_it_can_be_where_nothing_of_it_is_known(text, left):
    for known in ({}, {"__bucket": 3}, {"s": "x"}):
        found = compile_filter(text, SCHEMA).decide(known)
        if isinstance(left, bool):
            assert found is left
        else:
            assert found.predicate == compile_filter(left, SCHEMA).predicate
