"""Filters of any size and any text: an answer or an InvalidFilterError that shows the place, never more and never a hang."""

import datetime as dt
import random
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg import expressions

from fluss_lab.clock import SystemClock
from fluss_lab.errors import InvalidFilterError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.filter.filter_compiler import compile_filter
from fluss_lab.read.filter.filter_json import filter_from_json, filter_to_json
from fluss_lab.read.filter.predicates import LEAVES_MAX, Among, leaves
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

pytestmark = pytest.mark.slow

COLUMNS = {
    "id": "bigint", "k": "int", "s": "string", "f": "float", "b": "boolean", "dec": "decimal(10,2)", "day": "date",
    "ts": "timestamp(6)", "at": "timestamp_ltz(6)", "r": "row<x int>", "bin": "bytes",
}  # fmt: skip
SCHEMA = make_descriptor(COLUMNS).schema
F = pc.field
#: Their constructors' types are those of their JSON form.
ice: Any = expressions


def chained(terms, connect):
    return reduce(connect, terms)


def either(left, right):
    return left | right


@pytest.fixture(scope="module")
def reader(cluster):
    connection = cluster.connection
    connection.admin().create_database("db", if_not_exists=True)
    path = TablePath("db", "large_filters")
    info = connection.admin().create_table(
        path, make_descriptor({"id": "bigint", "k": "int"}, buckets=1, properties={"table.datalake.enabled": True})
    )
    for start in (0, 50):
        with connection.append_writer(path) as writer:
            writer.append(pa.table({"id": range(start, start + 50), "k": pa.array([5] * 50, pa.int32())}))
        if not start:
            run_round(connection, connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id)
    return TableReader(connection, path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "count"),
    [
        (" or ".join(f"id={n}" for n in range(9_000)), 100),
        (" and ".join(f"id<>{n + 5}" for n in range(7_000)), 5),
        (" or ".join(f"id in ({n}, {n + 1})" for n in range(2_000)), 100),
        (" or ".join(f"id = {n} and k < 6" for n in range(900)), 100),
        ("id in (" + ", ".join(map(str, range(10_000))) + ")", 100),
        (chained([F("id") == n for n in range(9_000)], either), 100),
        (chained([F("id") == n for n in range(20_000)], either), 100),
        (chained([~(F("id") == n) for n in range(500)], lambda a, b: a & b), 0),
        (chained([(F("id") == n) & (F("k") < 6) for n in range(900)], either), 100),
        (F("id").isin(list(range(50, 50_000))), 50),
        (ice.Or(*[ice.EqualTo("id", n) for n in range(500)]), 100),
    ],
    ids=range(11),
)
def test_a_filter_of_thousands_of_terms_is_read(reader, where, count):
    assert reader.scan(where=where).count() == count


@pytest.mark.campaign
def test_a_chain_that_would_overflow_a_usual_stack_is_read(reader):
    assert reader.scan(where=chained([F("id") == n for n in range(100_000)], either)).count() == 100


@pytest.mark.parametrize("count", [300, 1_000])
def test_the_time_to_read_an_expression_grows_with_its_terms_only(count):
    clock = SystemClock()
    computed = [(F("k") + 1) == 5, F("k").cast("string") == "5"]
    for literal in (np.int8, np.int32, int, lambda n: pa.scalar(n % 100, pa.int16()), lambda n: n + 0.5):
        terms = [F("k") == literal(n % 100) for n in range(count)]
        started = clock.monotonic_ms()
        made = compile_filter(chained([*terms, *computed], either), SCHEMA)
        assert clock.monotonic_ms() - started < 5_000
        assert len(list(leaves(made.predicate))) == 3
        assert any(isinstance(leaf, Among) for leaf in leaves(made.predicate))


def test_what_is_understood_around_a_computed_part_still_prunes():
    made = compile_filter((F("id") == 7) & (F("k") + 1 == 5), SCHEMA)
    assert str(made.prune()) == str(ice.EqualTo("id", 7))
    assert made.pushed is not None
    assert made.left_over


def test_a_long_list_prunes_by_its_range():
    values = list(range(10, 5_000, 2))
    made = compile_filter(F("k").isin(values), SCHEMA)
    assert str(made.prune()) == str(ice.And(ice.GreaterThanOrEqual("k", 10), ice.LessThanOrEqual("k", 4_998)))
    rows = pa.table({"k": pa.array([9, 10, 11, 4_998, 5_000, None], pa.int32())})
    assert rows.filter(made.expression)["k"].to_pylist() == [10, 4_998]
    assert rows.filter(compile_filter(~F("k").isin(values), SCHEMA).expression)["k"].to_pylist() == [9, 11, 5_000, None]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (" or ".join(f"k = {n} and id > {n}" for n in range(3_000)), f"at most {LEAVES_MAX} conditions, found 6000"),
        (chained([F("k") > n for n in range(LEAVES_MAX + 1)], either), f"at most {LEAVES_MAX} conditions"),
        (chained([F("k")] * 5_000, lambda a, b: a + b) > 1, "levels of functions"),
        (reduce(lambda a, n: ~((a & (F("k") > n)) | F("b")), range(200), F("k") > 0), "levels of"),
        (reduce(lambda a, n: ice.Not(ice.And(a, ice.EqualTo("k", n))), range(150), ice.EqualTo("k", 0)), "levels of"),
        ("k = 1 or " * 20_000, "at most 100000"),
        ("s = '\ud800'", "character 6 at .*half of one"),
        ("- " * 5_000 + "k = 1", "levels"),
        ("k " + "+ 1 " * 5_000 + "> 1", "levels"),
        ("(" * 5_000, "levels"),
        ("lower(" * 5_000, "levels"),
        ("k = " + "9" * 99_000 + " and nope = 1", "unknown column 'nope'"),
        (pc.field(0) > 1, "named, not numbered"),
        (pc.utf8_upper(F("k")) == "A", "no kernel"),
    ],
    ids=range(14),
)
def test_too_much_is_refused_in_few_words(where, words):
    with pytest.raises(InvalidFilterError, match=words) as refusal:
        compile_filter(where, SCHEMA)
    assert len(str(refusal.value)) < 900


PIECES = [
    *COLUMNS, *COLUMNS, "r.x", "nope", '"k"', "`s`", "1", "-2", "1.5", "1e999", ".5", "1e-7", "99999999999999999999", "'a'",
    "'it''s'", "'2013-01-01'", "'2013-01-01T00:00:00Z'", "'0001-01-01T00:00:00+14:00'", "'9999-12-31 23:59:59-14:00'", "'%a\\%'",
    "X'00ff'", "X'0'", "null", "true", "false", "nan", "date", "timestamp", "time", "=", "<>", "<", ">=", "and", "or", "not",
    "in", "between", "like", "is", "is null", "is not true", "+", "-", "*", "/", "%", "||", "(", ")", ",", ".", "cast(", "as int",
    "as decimal(5,1)", "lower(", "coalesce(", "substr(", "length(", "abs(", "year(", "starts_with(", "'", '"', "\\", ";", "--",
    "/*", "é", "\x00", "\ud800", "٣", "\n", "limit 5", "\u00a0",
]  # fmt: skip
SOUND = [
    "k + 1 > id * 2 and s like 'a%'", "cast(s as int) in (1, k, null)", "not (f between 0.1 and 1e999)", "dec * 1.5 <= k / 3",
    "coalesce(s, 'x') || 'y' = upper(s)", "day = cast(ts as date) or at is not null", "substr(s, 2, 3) <> 'ab'", "r.x % 2 = 1",
    "abs(-k) = 5 and year(ts) >= 2013", "b is not true or starts_with(s, 'a')", "bin > X'00' and -k < +5",
]  # fmt: skip


def texts(rng):
    """Yield texts that may be filters: pieces thrown together, sound ones with something changed, joined or nested."""
    for _ in range(1_500):
        yield " ".join(rng.choice(PIECES) for _ in range(rng.randint(1, 9)))
    for text in SOUND:
        for _ in range(60):
            at, end = sorted(rng.randrange(len(text) + 1) for _ in range(2))
            yield text[:at] + rng.choice([" ", "", *PIECES]) + text[rng.choice([at, end]) :]
        yield "not (" * rng.randrange(120) + text + ")" * rng.randrange(120)


def test_any_text_is_a_filter_or_refused(seed):
    rng = random.Random(seed)
    types = {column.name: column.type.arrow() for column in SCHEMA.columns}
    system = {"__bucket": pa.int32(), "__offset": pa.int64(), "__timestamp": pa.timestamp("us", "UTC")}
    moment = dt.datetime(2013, 1, 1)
    row = {
        "id": 1,
        "k": 2,
        "s": "a",
        "f": 0.5,
        "b": True,
        "day": dt.date(2013, 1, 1),
        "ts": moment,
        "r": {"x": 3},
        "bin": b"a",
    }
    rows = pa.Table.from_pylist([row, {}], pa.schema(list((types | system).items()))).to_batches()[0]
    read, refusals, failed = 0, [], []
    for text in texts(rng):
        try:
            made = compile_filter(text, SCHEMA)
        except InvalidFilterError as refusal:
            refusals.append(str(refusal))
            continue
        read += 1
        made.prune()
        again = filter_from_json(filter_to_json(made), SCHEMA)
        try:
            found = made.apply(rows)
        except InvalidFilterError as refusal:
            failed.append(str(refusal))
            continue
        assert found.num_rows <= 2
        assert again.apply(rows).num_rows == found.num_rows, text
    assert all(compile_filter(text, SCHEMA) for text in SOUND)
    assert max(map(len, refusals)) < 1_000
    assert all(each.startswith("where") for each in refusals)
    assert all("cannot be computed" in each for each in failed)
    assert read > 20
