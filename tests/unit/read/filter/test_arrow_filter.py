"""Filters given as Arrow expressions: understood, applied as they are, or refused."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_lab.errors import InvalidFilterError
from fluss_lab.read.filter.filter_compiler import compile_filter
from fluss_lab.read.filter.predicates import Applied, leaves, to_arrow
from tests.unit.read.filter.filter_kit import NAN, SCHEMA, Random, table_of

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
