"""Type x literal x operator x form x place: what a filter keeps, against exact arithmetic in plain Python."""

import datetime as dt
import itertools
import math
import operator
import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.filter.filter_compiler import compile_filter
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

pytestmark = pytest.mark.slow

INF, NAN = math.inf, math.nan
FLT_MAX, FLT_TINY = float(np.finfo(np.float32).max), float(np.finfo(np.float32).smallest_subnormal)
DBL_MAX, DBL_TINY = float(np.finfo(np.float64).max), 5e-324
UTC = dt.UTC
OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

D, T = dt.datetime, dt.time
#: Column to its type and the values of its rows; each row of the table takes the next value, round and round.
COLUMNS = {
    "flt": ("float", [NAN, INF, -INF, 0.0, -0.0, FLT_TINY, -FLT_TINY, FLT_MAX, -FLT_MAX, 16777216.0, 16777218.0, 0.5, None]),
    "dbl": ("double", [NAN, INF, -INF, 0.0, -0.0, DBL_TINY, DBL_MAX, -DBL_MAX, 2.0**53, 2.0**53 + 2, 0.1, None]),
    "tiny": ("tinyint", [-128, 127, 0, 1, None]),
    "num": ("int", [-(2**31), 2**31 - 1, 0, 16777217, None]),
    "big": ("bigint", [-(2**63), 2**63 - 1, 0, 2**53 + 1, None]),
    "dec": ("decimal(10,2)", [Decimal("99999999.99"), Decimal("-99999999.99"), Decimal("0.00"), Decimal("1.20"), None]),
    "wide": ("decimal(38,5)", [Decimal(10**33 - 1), Decimal("-0.00001"), Decimal("1.20000"), None]),
    "txt": ("string", ["", "a", "a ", "A", "é", "'", "a\x00b", "x" * 40 + "y", None]),
    "chr": ("char(3)", ["abc", "ab ", "a", "", None]),
    "bin": ("bytes", [b"", b"\x00", b"\xff" * 20, b"\x80", None]),
    "fixed": ("binary(2)", [b"\x00\x00", b"\xff\xff", b"\x7f\x80", None]),
    "flag": ("boolean", [True, False, None]),
    "day": ("date", [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31), None]),
    "tod": ("time(6)", [T(0), T(12, 0, 0, 1), T(23, 59, 59, 999999), None]),
    "ts0": ("timestamp(0)", [D(1969, 12, 31, 23, 59, 59), D(1970, 1, 1), D(2013, 1, 1, 12), None]),
    "ts": ("timestamp(6)", [D(1, 1, 1), D(2013, 1, 1, 12, 0, 0, 1), D(9999, 12, 31, 23, 59, 59, 999999), None]),
    "at3": ("timestamp_ltz(3)", [D(1970, 1, 1, tzinfo=UTC), D(2013, 1, 1, 12, 0, 0, 1000, UTC), None]),
    "at": ("timestamp_ltz(6)", [D(1960, 2, 29, tzinfo=UTC), D(2013, 1, 1, 12, 0, 0, 1, UTC), None]),
}  # fmt: skip
NUMBERS = [0, -1, 127, 128, -129, 16777217, 2**31, 2**53 + 1, 2**63, -(2**63), 10**33, 10**40, 0.5, 0.1, 1.2, -0.0, 1.5e-46,
           3.5e38, DBL_MAX, DBL_TINY, INF, -INF, Decimal("1.20"), Decimal("1.205"), Decimal("99999999.99")]  # fmt: skip
MOMENTS = [D(1969, 12, 31, 23, 59, 59), D(1970, 1, 1), D(2013, 1, 1, 12, 0, 0, 1), D(2013, 1, 1, 12, 0, 0, 1000), D(1, 1, 1),
           D(9999, 12, 31, 23, 59, 59, 999999)]  # fmt: skip
#: Column to more literals than its own values.
LITERALS = {
    **dict.fromkeys(("flt", "dbl", "tiny", "num", "big", "dec", "wide"), NUMBERS),
    "txt": ["b", "x" * 40, "\U0001f600"],
    "chr": ["abcd", "ab"],
    "bin": [b"\xff" * 19],
    "day": [dt.date(1900, 2, 28), dt.date(2020, 2, 29)],
    "tod": [T(12)],
    "ts0": MOMENTS,
    "ts": MOMENTS,
    "at3": [each.replace(tzinfo=UTC) for each in MOMENTS],
    "at": [each.replace(tzinfo=UTC) for each in MOMENTS],
}
ROWS = 39


def column_values(name):
    values = COLUMNS[name][1]
    return [values[(row + len(name)) % len(values)] for row in range(ROWS)]


def rows():
    descriptor = make_descriptor({"id": "int not null"} | {name: dtype for name, (dtype, _) in COLUMNS.items()})
    types = {column.name: column.type.arrow() for column in descriptor.schema.columns}
    arrays = {name: pa.array(column_values(name), types[name]) for name in COLUMNS}
    return pa.table({"id": pa.array(range(ROWS), pa.int32())} | arrays, schema=descriptor.schema.arrow_schema)


def exact(value, name):
    """Return a number without rounding; of a DECIMAL or whole-number column's literal, what its digits say."""
    if isinstance(value, float) and not math.isfinite(value):
        return value
    if isinstance(value, float) and name not in {"flt", "dbl"}:
        return Fraction(repr(value))
    if isinstance(value, Decimal) and name in {"flt", "dbl"}:
        return Fraction(float(value))  # written with a point: the nearest DOUBLE
    return Fraction(value)


def truth(value, word, literal, name):
    if value is None:
        return None
    if name in {"flt", "dbl", "tiny", "num", "big", "dec", "wide"}:
        value, literal = exact(value, name), exact(literal, name)
    elif isinstance(value, str):
        value, literal = value.encode(), literal.encode()
    return OPERATORS[word](value, literal)


def sql(value, name):
    match value:
        case bool() | int():
            return str(value)
        case float() if math.isinf(value):
            return "1e999" if value > 0 else "-1e999"
        case float():
            return repr(value) if "e" in repr(value) or "." in repr(value) else f"{value!r}.0"
        case Decimal():
            return str(value)
        case bytes():
            return f"X'{value.hex()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
    assert name
    return f"'{value.isoformat()}'"


def arrow(value, name):
    """Return a literal as Arrow has it; whole numbers beyond 64 bits as DECIMAL."""
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        value = Decimal(value)
    if isinstance(value, dt.datetime):
        return pa.scalar(value, pa.timestamp("us", "UTC" if value.tzinfo else None))
    return pa.scalar(value)


def cases():
    """Yield a column, operator and literal, the literal in SQL and in Arrow."""
    for name, (_, values) in COLUMNS.items():
        own = [each for each in values if each is not None and each is not NAN]
        for literal in dict.fromkeys([*own, *LITERALS.get(name, [])], None):
            words = ("=", "!=") if name == "flag" or len(own) == 0 else tuple(OPERATORS)
            for word in words:
                yield name, word, literal


def conditions(name, word, literal):
    """Yield forms of one comparison with what they keep of the column's values."""
    text = sql(literal, name)
    mirror = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(word, word)
    yield f"{name} {word} {text}", False
    yield f"not ({name} {word} {text})", True
    yield f"{text} {mirror} {name}", False
    field, scalar = pc.field(name), arrow(literal, name)
    built = {"=": field == scalar, "!=": field != scalar, "<": field < scalar, "<=": field <= scalar,
             ">": field > scalar, ">=": field >= scalar}[word]  # fmt: skip
    yield built, False
    yield ~built, True
    if word == "=":
        yield f"{name} in ({text}, null)", False
    if word == ">=":
        yield f"{name} between {text} and {text} or {name} > {text}", False


def expected(name, word, literal, negated):
    truths = [truth(value, word, literal, name) for value in column_values(name)]
    return [row for row, each in enumerate(truths) if each is (not negated)]


def means_the_same_in_arrow(name, literal):
    """Return whether a DECIMAL of Arrow means what the whole number means: against FLOAT and DOUBLE it is the nearest DOUBLE."""
    return not (isinstance(literal, int) and not -(2**63) <= literal < 2**63 and name in {"flt", "dbl"})


def test_every_comparison_is_exact():
    table = rows()
    schema = make_descriptor({"id": "int not null"} | {name: dtype for name, (dtype, _) in COLUMNS.items()}).schema
    wrong, seen = [], 0
    for name, word, literal in cases():
        for where, negated in conditions(name, word, literal):
            if not isinstance(where, str) and not means_the_same_in_arrow(name, literal):
                continue
            seen += 1
            found = table.filter(compile_filter(where, schema).expression)["id"].to_pylist()
            if found != expected(name, word, literal, negated):
                wrong.append((str(where), found, expected(name, word, literal, negated)))
    assert not wrong, f"{len(wrong)} of {seen}: {wrong[:5]}"
    assert seen > 4_000


@pytest.fixture(scope="module")
def places(cluster):
    """The same rows in the log, in many files of a lake, in both, and as rows of a primary-key table."""
    connection = cluster.connection
    connection.admin().create_database("db", if_not_exists=True)
    columns = {"id": "int not null"} | {name: dtype for name, (dtype, _) in COLUMNS.items()}
    readers = {}
    for place, tiered in {"log": 0, "lake": ROWS, "both": 26}.items():
        path = TablePath("db", f"matrix_{place}")
        info = connection.admin().create_table(
            path, make_descriptor(columns, buckets=1, properties={"table.datalake.enabled": True})
        )
        for start in range(0, ROWS, 13):
            with connection.append_writer(path) as writer:
                writer.append(rows().slice(start, 13))
            if start < tiered:
                run_round(connection, connection.lake_storage(), LocalTieringExecutor(), table_id=info.table_id)
        readers[place] = TableReader(connection, path)
    path = TablePath("db", "matrix_keyed")
    connection.admin().create_table(path, make_descriptor(columns, primary_key=["id"], buckets=3))
    with connection.upsert_writer(path) as writer:
        writer.upsert(rows())
    readers["keyed"] = TableReader(connection, path)
    return readers


def test_a_comparison_keeps_the_same_rows_wherever_they_lie(places, seed):
    rng = random.Random(seed)
    chosen = rng.sample(list(cases()), 60)
    chosen += [("flt", word, literal) for word, literal in itertools.product(OPERATORS, [INF, -INF, FLT_MAX, 3.5e38])]
    for name, word, literal in chosen:
        where, negated = rng.choice(list(conditions(name, word, literal))[:4])
        if not means_the_same_in_arrow(name, literal):
            where, negated = f"{name} {word} {sql(literal, name)}", False
        wanted = expected(name, word, literal, negated)
        for place, reader in places.items():
            assert sorted(reader.scan(["id"], where).to_arrow()["id"].to_pylist()) == wanted, (place, str(where))


def test_both_zeros_of_a_key_are_found_in_their_buckets(cluster):
    connection = cluster.connection
    connection.admin().create_database("db", if_not_exists=True)
    path = TablePath("db", "matrix_zero_keys")
    connection.admin().create_table(path, make_descriptor({"k": "double not null"}, primary_key=["k"], buckets=5))
    with connection.upsert_writer(path) as writer:
        writer.upsert(pa.table({"k": [0.0, -0.0, 1.0, INF]}))
    reader = TableReader(connection, path)
    for where, count in (("k = 0", 2), ("k = -0.0", 2), ("k in (0, 1)", 3), ("k = 1e999", 1), ("k = 1", 1)):
        assert reader.scan(where=where).to_arrow().num_rows == count, where
