"""What a filter's SQL text computes: arithmetic, functions, casts, one column with another, NULL in all of them."""

import random
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from fluss_lab.errors import InvalidFilterError
from fluss_lab.model import make_schema
from fluss_lab.read.filter.filter_compiler import SYSTEM_TYPES, compile_filter

SCHEMA = make_schema({
    "i": "int", "j": "bigint", "t": "tinyint", "f": "float", "g": "double", "d": "decimal(10,2)", "w": "decimal(38,5)", "q": "decimal(20,10)", "s": "string",
    "u": "string", "b": "boolean", "day": "date", "ts": "timestamp(3)", "us": "timestamp(6)", "at": "timestamp_ltz(6)", "r": "row<x int>",
    "c": "decimal(5,3)", "e": "decimal(6,6)", "v": "decimal(38,10)",
})  # fmt: skip
NAN = float("nan")


def kept(where, **columns):
    count = len(next(iter(columns.values())))
    types = {field.name: field.type for field in SCHEMA.arrow_schema} | SYSTEM_TYPES
    batch = pa.record_batch({name: pa.array(columns.get(name, [None] * count), dtype) for name, dtype in types.items()})
    rows = batch.append_column("row", pa.array(range(count)))
    return compile_filter(where, SCHEMA).apply(rows).column("row").to_pylist()


@pytest.mark.parametrize(
    ("where", "columns", "rows"),
    [
        ("i = j", {"i": [1, 2, None], "j": [1, 3, None]}, [0]),
        ("not i = j", {"i": [1, 2, None], "j": [1, 3, 4]}, [1]),
        ("i < t", {"i": [1, 2, 3], "t": [2, 2, 2]}, [0]),
        ("j = g", {"j": [2**53 + 1, 1], "g": [2.0**53, 1.0]}, [0, 1]),
        ("f = g", {"f": [0.1, 0.5, NAN], "g": [0.1, 0.5, NAN]}, [1]),
        ("not (f < g)", {"f": [1.0, NAN, None], "g": [2.0, 2.0, 2.0]}, [1]),
        ("d = i", {"d": [Decimal("2.00"), Decimal("2.01")], "i": [2, 2]}, [0]),
        ("w > d", {"w": [Decimal(10) ** 32, Decimal("0.00001")], "d": [Decimal("99999999.99"), Decimal("0.00")]}, [0, 1]),
        ("s = u", {"s": ["a", "b", None], "u": ["a", "c", None]}, [0]),
        ("day = ts", {"day": [date(2013, 1, 1)] * 2, "ts": [datetime(2013, 1, 1), datetime(2013, 1, 1, 1)]}, [0]),
        ("ts = us", {"ts": [datetime(2013, 1, 1)] * 2, "us": [datetime(2013, 1, 1), datetime(2013, 1, 1, 0, 0, 0, 1)]}, [0]),
        ("i between j and 5", {"i": [3, 1, 6], "j": [2, 2, 2]}, [0]),
        ("i in (j, 7, null)", {"i": [1, 7, 2], "j": [1, 0, 0]}, [0, 1]),
        ("i not in (j, 7)", {"i": [1, 7, 2, 3], "j": [1, 0, 0, None]}, [2]),
        ("i + 1 > 5", {"i": [4, 5, None]}, [1]),
        ("i + 1 > 5.5", {"i": [4, 5, None]}, [1]),
        ("i + 1 > 1e30 or i - 1 < 1e30", {"i": [4, None]}, [0]),
        ("i * i = 2147483647 * 2147483647", {"i": [2**31 - 1, 2]}, [0]),
        ("i + 2 * 3 = 10 and (i + 2) * 3 = 18", {"i": [4]}, [0]),
        ("i - 1 - 1 = 2", {"i": [4]}, [0]),
        ("-i = 4 or +i = 5 or - -i = 6", {"i": [-4, 5, 6, 7]}, [0, 1, 2]),
        ("i / 2 = 1.5", {"i": [3, 4]}, [0]),
        ("i / 0 > 0 or i / 0 is null", {"i": [3]}, [0]),
        ("i % 3 = 1", {"i": [4, 3, None]}, [0]),
        ("i % 3 = -1", {"i": [-4, 3]}, [0]),
        ("i % 0 is null", {"i": [3]}, [0]),
        ("d * 1.1 = 2.2", {"d": [Decimal("2.00"), Decimal("2.01")]}, [0]),
        ("i * 0.1 = 0.3", {"i": [3, 2]}, [0]),
        ("g * 2 > 1", {"g": [0.6, 0.5, NAN]}, [0]),
        ("not (g * 2 > 1)", {"g": [0.6, 0.5, NAN, None]}, [1, 2]),
        ("g * 2 is nan", {"g": [0.6, NAN, None]}, [1]),
        ("i + null = 1", {"i": [1]}, []),
        ("not (i + j = 1)", {"i": [1, 1, None], "j": [0, 1, 1]}, [1]),
        ("1 + 1 = 2 and 5 = 5", {"i": [1]}, [0]),
        ("r.x + 1 = 2", {"r": [{"x": 1}, {"x": None}, None]}, [0]),
        ("lower(s) = 'é' or upper(s) = 'A'", {"s": ["É", "a", "b", None]}, [0, 1]),
        ("length(s) = 2", {"s": ["é😀", "a", None]}, [0]),
        ("trim(s) = 'a'", {"s": [" a ", "b", "\ta", "a\n", "a"]}, [0, 4]),
        ("substr(s, 2, 2) = 'bc' or substring(s, 3) = 'z'", {"s": ["abcd", "xyz", "a", None]}, [0, 1]),
        ("s || u = 'ab' or concat(s, '-', u) = 'x-y'", {"s": ["a", "x", None], "u": ["b", "y", "b"]}, [0, 1]),
        ("starts_with(s, 'a%')", {"s": ["a%b", "ab", None]}, [0]),
        ("not starts_with(lower(s), 'a')", {"s": ["Ab", "b", None]}, [1]),
        ("ends_with(s, 'z') or contains(s, 'm')", {"s": ["az", "amb", "b"]}, [0, 1]),
        ("lower(s) like 'a_c%'", {"s": ["ABC", "AC", None]}, [0]),
        ("abs(i) = 3 and floor(g) = 1 and ceil(g) = 2", {"i": [-3], "g": [1.5]}, [0]),
        ("ceil(c) = 100", {"c": [Decimal("99.999"), Decimal("99.000"), Decimal("-0.001"), None]}, [0]),
        ("floor(c) = -100", {"c": [Decimal("-99.999"), Decimal("-99.000")]}, [0]),
        ("floor(v) < -9e27", {"v": [Decimal("-" + "9" * 28 + "." + "9" * 10), Decimal(0)]}, [0]),
        ("floor(e) = -1 and ceil(e) = 0 and cast(e as int) = 0", {"e": [Decimal("-0.5"), Decimal("0.5")]}, [0]),
        ("coalesce(i, j, 7) = 7", {"i": [7, None, None, 1], "j": [1, 7, None, 7]}, [0, 1, 2]),
        ("coalesce(b, false)", {"b": [True, False, None]}, [0]),
        ("not coalesce(b, false)", {"b": [True, False, None]}, [1, 2]),
        ("coalesce(day, '2013-01-01') = '2013-01-01'", {"day": [None, date(2013, 1, 2)]}, [0]),
        ("year(day) = 2013 and month(at) = 1 and day(us) = 31", {"day": [date(2013, 5, 1)], "at": [datetime(2013, 1, 1)], "us": [datetime(2013, 1, 31)]}, [0]),
        ("cast(s as int) > 5", {"s": ["6", "5", None]}, [0]),
        ("cast(g as bigint) = 1", {"g": [1.9, 2.0, -1.5]}, [0]),
        ("cast(i as decimal(10,2)) = d", {"i": [2, 3], "d": [Decimal("2.00"), Decimal("3.50")]}, [0]),
        ("cast(w as decimal(10,1)) = 1.3", {"w": [Decimal("1.25001"), Decimal("1.24")]}, [0]),
        ("cast(d as decimal(10,1)) = 0.3", {"d": [Decimal("0.25"), Decimal("0.35"), Decimal("0.24")]}, [0]),
        ("cast(d as decimal(10,0)) = -3", {"d": [Decimal("-2.50"), Decimal("-3.50"), Decimal("-2.49")]}, [0]),
        ("cast(g as decimal(10,2)) = 0.13", {"g": [0.125, 0.135, 0.1249, None]}, [0]),
        ("cast(g as decimal(10,0)) = -3", {"g": [-2.5, -3.5]}, [0]),
        ("cast(f as decimal(10,1)) = 2.5", {"f": [2.45, 2.5]}, [0, 1]),
        ("cast(g as decimal(10,2)) in (1.01, 0)", {"g": [1.005, 1.0149, 0.004, 1e-300, -0.0, 5e-324]}, [0, 1, 2, 3, 4, 5]),
        ("cast(g as decimal(38,20)) = 123456789.123", {"g": [123456789.123, 123456789.12]}, [0]),
        ("cast(q as double) = 33767.1202", {"q": [Decimal("33767.1202"), Decimal("33767.1203")]}, [0]),
        ("q = g", {"q": [Decimal("33767.1202"), Decimal("-93.7711753"), Decimal("1e-10")], "g": [33767.1202, -93.7711753, 1e-10]}, [0, 1, 2]),
        ("cast(q as float) = f", {"q": [Decimal("0.1"), Decimal("16777217")], "f": [0.1, 16777216.0]}, [0, 1]),
        ("cast(s as decimal(10,2)) = 0.5", {"s": ["0.5", "0.50", "0.4"]}, [0, 1]),
        ("cast(null as decimal(10,2)) is null", {"i": [1]}, [0]),
        ("cast(i as string) = '12'", {"i": [12, 1, None]}, [0]),
        ("cast(b as string) = 'true'", {"b": [True, False, None]}, [0]),
        ("cast(d as string) in ('-0.50', '12.00')", {"d": [Decimal("-0.50"), Decimal("12.00"), Decimal("0.05")]}, [0, 1]),
        ("cast(q as string) in ('-0.0000000050', '0.0000000000', '-12.5000000000')", {"q": [Decimal("-5e-9"), Decimal(0), Decimal("-12.5"), None]}, [0, 1, 2]),
        ("cast(day as string) in ('0001-01-01', '2013-01-31')", {"day": [date(1, 1, 1), date(2013, 1, 31)]}, [0, 1]),
        ("cast(day as string) = '+10000-01-01'", {"day": pa.array([2_932_897], pa.int32()).cast(pa.date32())}, [0]),
        ("cast(us as string) = '2013-01-01 12:00:00.5'", {"us": [datetime(2013, 1, 1, 12, 0, 0, 500_000), datetime(2013, 1, 1, 12)]}, [0]),
        ("cast(ts as string) = '2013-01-01 10:00:00'", {"ts": [datetime(2013, 1, 1, 10), None]}, [0]),
        ("cast(at as string) = '2013-01-01 12:00:00'", {"at": [datetime(2013, 1, 1, 12), datetime(2013, 1, 1, 12, 0, 0, 1)]}, [0]),
        ("cast(0.50 + i as string) = '1.50' and cast(7 as string) = '7'", {"i": [1, 2]}, [0]),
        ("cast(ts as date) = day", {"ts": [datetime(2013, 1, 1, 5)], "day": [date(2013, 1, 1)]}, [0]),
        ("cast(s as date) = '2013-01-01'", {"s": ["2013-01-01", "2013-01-02"]}, [0]),
        ("us >= cast('2013-01-01' as timestamp)", {"us": [datetime(2013, 1, 1), datetime(2012, 1, 1)]}, [0]),
        ("f = cast(0.1 as float)", {"f": [0.1, 0.2]}, [0]),
        ("i = 2 + 3", {"i": [5, 6]}, [0]),
    ],
)  # fmt: skip
def test_what_is_computed(where, columns, rows):
    assert kept(where, **columns) == rows


@pytest.mark.parametrize(
    ("where", "columns"),
    [
        ("j + 1 > 0", {"j": [2**63 - 1]}),
        ("j * j > 0", {"j": [2**62]}),
        ("-j > 0", {"j": [-(2**63)]}),
        ("cast(s as int) = 1", {"s": ["x"]}),
        ("cast(j as int) = 1", {"j": [2**40]}),
    ],
)
def test_what_cannot_be_computed_for_a_row_fails_and_says_so(where, columns):
    with pytest.raises(InvalidFilterError, match="cannot be computed for some row"):
        kept(where, **columns)


@pytest.mark.parametrize(
    ("where", "columns"),
    [
        ("i < 2 and cast(s as int) = 5", {"i": [1, 2, 1], "s": ["5", "x", "6"]}),
        ("not (s = 'x' or cast(s as int) <> 5)", {"s": ["5", "x", None]}),
        ("cast(g as decimal(10,2)) = 1.5 and g < 100 and (j + 1 > 0 and j < 7)", {"g": [1.5, float("inf")], "j": [1, 2**63 - 1]}),
        ("(i = 1 or i = 3) and cast(s as int) = 5 or i = 4 and j * 2 = 0", {"i": [1, 2, 5], "j": [0, 2**63 - 1, 2**62], "s": ["5", "x", "y"]}),
        ("cast(s as int) = 5 and false or i = 1", {"i": [1, 2], "s": ["x", "x"]}),
    ],
)  # fmt: skip
def test_nothing_is_computed_of_rows_that_other_conditions_leave_out(where, columns):
    """Seen: files had been filtered by them already, so that a filter failed as long as such a row was in the log only."""
    assert kept(where, **columns) == [0]


def test_a_constant_that_is_computed_prunes_as_a_literal_does():
    assert str(compile_filter("i = 2 + 3", SCHEMA).prune()) == str(compile_filter("i = 5", SCHEMA).prune())
    assert compile_filter("i = 2 + 3", SCHEMA).pushed is not None


class Sums:
    """Random sums over columns as SQL, and the same by hand: an integer or None."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def value(self, depth=0):
        rng = self.rng
        if depth == 3 or rng.random() < 0.3:
            name = rng.choice(["i", "j", "t", None])
            number = rng.randrange(-5, 6)
            return (str(number), lambda _: number) if name is None else (name, lambda row: row[name])
        (one, left), (other, right) = self.value(depth + 1), self.value(depth + 1)
        word = rng.choice(["+", "-", "*", "%"])
        return f"({one} {word} {other})", lambda row: _sum(left(row), word, right(row))


def _sum(left, word, right):
    if left is None or right is None or (word == "%" and right == 0):
        return None
    if word == "%":
        return abs(left) % abs(right) * (-1 if left < 0 else 1)
    return {"+": left + right, "-": left - right, "*": left * right}[word]


def test_sums_are_those_of_plain_python(seed):
    source = Sums(seed)
    values = [None, -7, -1, 0, 1, 2, 5, 100]
    rows = [{name: source.rng.choice(values) for name in ("i", "j", "t")} for _ in range(40)]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    for _ in range(80):
        (one, left), (other, right) = source.value(), source.value()
        pairs = [(left(row), right(row)) for row in rows]
        wanted = [place for place, (a, b) in enumerate(pairs) if a is not None and b is not None and a <= b]
        assert kept(f"{one} <= {other}", **columns) == wanted, (one, other)
