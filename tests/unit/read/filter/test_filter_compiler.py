"""Filters mean what they say: SQL against a plain evaluation, other forms against SQL, pruning against the rows."""

import datetime as dt
import random
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
from fluss_lab.read.filter.filter_compiler import SYSTEM_TYPES, compile_filter
from fluss_lab.read.filter.predicates import Applied, leaves, to_arrow

SCHEMA = make_schema({
    "n": "int", "tiny": "tinyint", "big": "bigint", "s": "string", "d": "decimal(10,2)", "wide": "decimal(38,10)",
    "f": "float", "g": "double", "b": "boolean", "day": "date", "tod": "time(0)", "ts": "timestamp(3)",
    "at": "timestamp_ltz(6)", "bin": "bytes", "fixed": "binary(2)", "arr": "array<int>", "r": "row<x int, y row<z string>>",
})  # fmt: skip
NAN = float("nan")
#: Their constructors' types are those of their JSON form.
ice: Any = expressions


def table_of(**columns):
    """Return rows with these columns given, all others null."""
    count = len(next(iter(columns.values())))
    types = {field.name: field.type for field in SCHEMA.arrow()} | SYSTEM_TYPES
    return pa.table({name: pa.array(columns.get(name, [None] * count), dtype) for name, dtype in types.items()})


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


class Random:
    """Random conditions over a few columns as SQL, and the same evaluated by hand: True, False or None."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def row(self):
        rng = self.rng
        return {
            "n": rng.choice([None, -3, 0, 1, 2, 7]),
            "g": rng.choice([None, NAN, -0.5, 0.0, 1.0, 2.5]),
            "s": rng.choice([None, "", "a", "ab", "b", "é"]),
            "b": rng.choice([None, True, False]),
            "d": rng.choice([None, Decimal("-1.00"), Decimal("0.50"), Decimal("2.00")]),
        }

    def condition(self, depth=0):
        rng = self.rng
        if depth < 3 and rng.random() < 0.6:
            match rng.choice(["and", "or", "not"]):
                case "not":
                    text, inner = self.condition(depth + 1)
                    return f"not ({text})", lambda row: _not(inner(row))
                case word:
                    (one, left), (other, right) = self.condition(depth + 1), self.condition(depth + 1)
                    both = _and if word == "and" else _or
                    return f"({one} {word} {other})", lambda row: both(left(row), right(row))
        return self.leaf()

    def leaf(self):
        rng = self.rng
        name = rng.choice(["n", "g", "d", "s", "b"])
        match rng.choice(["compare", "compare", "in", "null", "like" if name == "s" else "compare"]):
            case "null":
                negated = rng.random() < 0.5
                return f"{name} is {'not ' * negated}null", lambda row: (row[name] is None) != negated
            case "in":
                values = [self.literal(name) for _ in range(rng.randint(1, 3))]
                texts = [text for text, _ in values] + ["null"] * (rng.random() < 0.2)
                found = [value for _, value in values]
                with_null = "null" in texts
                return f"{name} in ({', '.join(texts)})", lambda row: _in(row[name], found, with_null)
            case "like":
                return "s like 'a%'", lambda row: None if row["s"] is None else row["s"].startswith("a")
        operator = rng.choice(["=", "!="] if name == "b" else ["=", "!=", "<", "<=", ">", ">="])
        text, value = self.literal(name)
        return f"{name} {operator} {text}", lambda row: _compare(row[name], operator, value)

    def literal(self, name):
        rng = self.rng
        if name == "s":
            value = rng.choice(["", "a", "ab", "b"])
            return f"'{value}'", value
        if name == "b":
            value = rng.choice([True, False])
            return str(value), value
        value = rng.choice([-3, -1, 0, 1, 2, Decimal("0.5"), Decimal("1.255"), 10**12])
        return str(value), value


def _not(value):
    return None if value is None else not value


def _and(one, other):
    return False if one is False or other is False else None if one is None or other is None else True


def _or(one, other):
    return True if one or other else None if one is None or other is None else False


def _compare(left, operator, right):
    if left is None:
        return None
    if isinstance(left, float):
        right = float(right)
    return {"=": left == right, "!=": left != right, "<": left < right, "<=": left <= right, ">": left > right,
            ">=": left >= right}[operator]  # fmt: skip


def _in(value, values, with_null):
    if value is None:
        return None
    if isinstance(value, float):
        values = [float(each) for each in values]
    return True if value in values else None if with_null else False


def test_sql_agrees_with_three_valued_logic_by_hand(seed):
    source = Random(seed)
    rows = [source.row() for _ in range(60)]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    for _ in range(300):
        text, evaluate = source.condition()
        assert kept(text, **columns) == [place for place, row in enumerate(rows) if evaluate(row) is True], text


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


# -- Arrow -------------------------------------------------------------------------------------------------------------

F = pc.field
UNDERSTOOD = [
    F("n") > 60,
    pc.scalar(60) < F("n"),
    F("n") == pc.scalar(pa.scalar(3, pa.int32())),
    (F("n") > 60) & (F("s") == 'A"T\\L\n') | ~F("b"),
    ~((F("n") > 60) & F("s").is_null()),
    F("n").isin([1, 2]),
    F("s").isin(["a", "b"]),
    F("s").is_null(),
    F("s").is_valid(),
    F("g").is_nan(),
    F("g") > 1.5,
    F("f") > 0.5,
    F("at") > dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    F("ts") <= dt.datetime(2020, 1, 1, 1, 2, 3, 4000),
    F("day") == dt.date(2020, 1, 1),
    F("d") == Decimal("1.20"),
    F("b"),
    pc.starts_with(F("s"), "a%b"),
    pc.match_like(F("s"), "a%b_"),
    F("bin") == b"\x00a",
    F("fixed") == b"ab",
    F("tiny") == 300,
    ~F("n").isin([1, 2]),
    ~(F("n").isin([1, 2]) & F("b")),
    F("n").isin([1, None]),
    F("n").isin(list(range(1_000))),
    F("f") == 0.1,
    F("f") == 16777217,
    F("big") > 0.5,
    F("n") < float("inf"),
    F("r", "x") == 1,
    F("at") > pa.scalar(5, pa.timestamp("s", "Europe/Berlin")),
]
NOT_UNDERSTOOD = [
    F("n") + 1 > 2,
    F("g") == NAN,
    F("n").isin([*range(1_000), None]),
    F("g").isin([float(each) for each in range(1_001)]),
    F("g").is_null(nan_is_null=True),
    F("g").isin([0.0, 1.0]),
    pc.if_else(F("b"), F("n"), 1) > 2,
]


@pytest.mark.parametrize("where", UNDERSTOOD, ids=str)
def test_an_arrow_expression_of_plain_words_is_understood(where):
    assert not any(isinstance(leaf, Applied) for leaf in leaves(compile_filter(where, SCHEMA).predicate))


@pytest.mark.parametrize("where", NOT_UNDERSTOOD, ids=str)
def test_an_arrow_expression_that_means_something_else_in_sql_is_applied_as_it_is(where):
    made = compile_filter(where, SCHEMA)
    assert isinstance(made.predicate, Applied)
    assert made.prune() is None
    assert made.pushed is None
    assert made.left_over
    assert made.expression.equals(where)


def test_an_arrow_expression_is_understood_as_what_it_does(seed):
    source = Random(seed)
    rows = [source.row() for _ in range(60)]
    table = table_of(**{name: [row[name] for row in rows] for name in rows[0]})
    understood = 0
    for _ in range(300):
        where = _arrow_condition(source.rng)
        made = compile_filter(where, SCHEMA)
        understood += not any(isinstance(leaf, Applied) for leaf in leaves(made.predicate))
        again, once = table.filter(to_arrow(made.predicate)), table.filter(where)
        assert repr(again.to_pylist()) == repr(once.to_pylist()), str(where)
    assert understood > 100


@pytest.mark.parametrize(
    ("where", "columns"),
    [
        (F("n") > 1, ["n"]),
        ((F("n") + F("big") > 1) | F("s").is_null(), ["n", "big", "s"]),
        (F("r", "x") == 1, ["r"]),
        (pc.if_else(F("b"), F("__offset"), 1) > 2, ["b", "__offset"]),
        (pc.scalar(True), []),
    ],
    ids=str,
)
def test_the_columns_of_an_arrow_expression_are_known(where, columns):
    assert compile_filter(where, SCHEMA).columns == set(columns)


def _arrow_condition(rng, depth=0):
    if depth < 3 and rng.random() < 0.5:
        match rng.choice(["and", "or", "not"]):
            case "not":
                return ~_arrow_condition(rng, depth + 1)
            case word:
                one, other = _arrow_condition(rng, depth + 1), _arrow_condition(rng, depth + 1)
                return one & other if word == "and" else one | other
    name = rng.choice(["n", "g", "s", "b", "d"])
    match rng.choice(["compare", "in", "null"]):
        case "null":
            return rng.choice([F(name).is_null(), F(name).is_valid()])
        case "in" if name in {"n", "s"}:
            return F(name).isin([1, 2] if name == "n" else ["a", "b"])
    value = {"n": rng.choice([0, 1, 2]), "g": rng.choice([0.0, 1.0, 2.5, 1]), "s": rng.choice(["", "a"]),
             "b": rng.choice([True, False]), "d": Decimal("0.50")}[name]  # fmt: skip
    field = F(name)
    choices = [field == value, field != value]
    if name != "b":
        choices += [field < value, field >= value, pc.scalar(value) < field]
    return rng.choice(choices)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (F("nope") > 1, "nope"),
        (F("N") > 1, "'N'|[(]N[)]"),
        (F("n") + F("nope") > 1, "nope"),
        (pc.field(0) > 1, "named, not numbered"),
        (F("n"), "bool"),
        (F("n") == "x", "no kernel"),
        (F("n") + 1, "bool"),
    ],
    ids=str,
)
def test_an_arrow_expression_that_cannot_be_is_refused(where, words):
    with pytest.raises(InvalidFilterError, match=words):
        compile_filter(where, SCHEMA)


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
