"""Random rows of every kind that readers of files stumble over, and random queries of them, for a comparison with Spark's own."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from typing import Any, Final

COLUMNS: Final = {
    "k": "int",
    "p": "string",
    "b": "boolean",
    "i": "smallint",
    "l": "bigint",
    "f": "float",
    "d": "double",
    "n": "decimal(12,3)",
    "s": "string",
    "x": "bytes",
    "day": "date",
    "ts": "timestamp(6)",
    "tl": "timestamp_ltz(6)",
    "r": "row<a int, d double, q row<t string, y float>>",
    "e": "array<int>",
}
PARTITIONS: Final = ["a", "b é"]
ZONES: Final = ["UTC", "America/New_York", "Asia/Kathmandu", "Pacific/Apia"]

_TIMES: Final = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1582, 10, 10, 1, 2, 3),
    dt.datetime(2024, 3, 10, 2, 30),
    dt.datetime(2024, 11, 3, 1, 30, 0, 1),
]
_FLOATS: Final = [0.0, -0.0, float("nan"), float("inf"), 1.5, -2.25]
_TEXTS: Final = [
    "",
    "a",
    "A",
    "ab",
    "ab ",
    "é",
    "e\u0301",
    "😀",
    "a%b",
    "a_b",
    "a\\b",
    "\ud7ff",
    "\uffff",
    "NaN",
    "x" * 70,
]
_VALUES: Final[dict[str, list[Any]]] = {
    "b": [True, False],
    "i": [-32768, 32767, 0, 5],
    "l": [-(2**63), 2**63 - 1, 2**53, 2**53 + 1, 0],
    "f": _FLOATS,
    "d": [*_FLOATS, 5e-324, 0.1],
    "n": [decimal.Decimal(text) for text in ("0.000", "1.500", "-1.500", "999999999.999", "0.001")],
    "s": _TEXTS,
    "x": [b"", b"\0", b"ab", b"\xff\xfe", b"x" * 70],
    "day": [dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(1582, 10, 4), dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "ts": [*_TIMES, dt.datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "tl": [each.replace(tzinfo=dt.UTC) for each in _TIMES],
}
#: Literals to compare a column with; of other types too.
_LITERALS: Final = {
    "b": ["true", "'false'"],
    "i": ["5", "-32768", "5.5", "2147483648", "double('nan')", "'5'"],
    "l": ["0", "9007199254740993", "9007199254740992D", "9223372036854775807", "-0.5"],
    "f": ["0", "-0.0D", "float('nan')", "1.5", "'NaN'", "double('inf')"],
    "d": ["0", "-0.0D", "double('nan')", "1.5", "0.1F", "0.1", "-1"],
    "n": ["0", "1.5", "1.5000", "0.0005", "1e2", "'1.5'"],
    "s": ["''", "'ab'", "'ab '", "'a\\\\b'", "'é'", "'\uffff'", "'NaN'"],
    "x": ["X''", "X'6162'", "X'FFFE'", "'ab'"],
    "day": ["date'1970-01-01'", "date'1582-10-04'", "'1969-12-31'", "timestamp'1970-01-01 00:00:00'"],
    "ts": ["timestamp_ntz'2024-03-10 02:30:00'", "date'1970-01-01'", "timestamp'2024-11-03 01:30:00'"],
    "tl": ["timestamp'2024-03-10 02:30:00Z'", "date'1970-01-01'", "timestamp_ntz'1582-10-10 01:02:03'"],
}
#: Conditions beyond comparisons, of a table's columns with ``{0}`` before them.
_CONDITIONS: Final = [
    "{0}s like 'a%'", "{0}s like 'a\\\\_b'", "{0}s like '%\\\\\\\\%'", "{0}s like 'a/%b' escape '/'", "{0}s ilike 'AB%'",
    "startswith({0}s, 'a')", "length({0}s) > 1", "trim({0}s) = 'ab'", "hex({0}x) like '6%'", "isnan({0}d)",
    "{0}f + 1 > 1", "{0}n * 2 > 1", "cast({0}l as double) >= 9007199254740992", "year({0}day) = 1969",
    "hour({0}tl) = 2", "cast({0}tl as date) = date'2024-03-10'", "cast({0}ts as timestamp) < {0}tl",
    "cast({0}day as string) like '1582%'", "{0}r.a > 0", "{0}r.d > 0", "{0}r.q.t = 'ab'", "{0}r.q.y <> 0",
    "{0}r.q is null", "{0}r is not null", "size({0}e) > 1", "get({0}e, 0) = 5", "coalesce({0}i, 0) = 0",
]  # fmt: skip


def random_row(rng: random.Random, number: int) -> dict[str, Any]:
    """Return a row with a key."""
    return {"k": number, "p": rng.choice(PARTITIONS)} | {
        name: _value(rng, name) for name in COLUMNS if name not in {"k", "p"}
    }


def _value(rng: random.Random, name: str) -> Any:
    if rng.random() < 0.2:
        return None
    if name == "r":
        inner = None if rng.random() < 0.3 else {"t": _value(rng, "s"), "y": _value(rng, "f")}
        return {"a": _value(rng, "i"), "d": _value(rng, "d"), "q": inner}
    if name == "e":
        return [_value(rng, "i") for _ in range(rng.randrange(4))]
    return rng.choice(_VALUES[name])


def random_query(rng: random.Random) -> str:
    """Return a query of the tables ``{t}`` and ``{u}``, whose rows are in no order but that of all columns that it gives."""

    def where(before: str = "") -> str:
        return _condition(rng, 2, before)

    name = rng.choice(list(_LITERALS))
    # Which of 0.0 and -0.0, which are equal, is the largest depends on the order of rows.
    least, most = rng.sample([each for each in _LITERALS if each not in {"f", "d"}], 2)
    chosen = ", ".join(rng.sample([*_LITERALS, "r.a", "r.q.t", "r.q.y", "r"], 3))
    limit = f"{rng.randrange(1, 9)} offset {rng.randrange(3)}"
    return rng.choice([
        f"select {chosen} from {{t}} where {where()}",
        f"select {chosen} from {{t}} where {where()}",
        f"select count(*), count({name}), min({least}), max({most}) from {{t}} where {where()}",
        f"select {name}, count(*), max({most}) from {{t}} where {where()} group by {name}",
        f"select {chosen} from {{t}} where {where()} order by {name} nulls last, k, p limit {limit}",
        f"select a.k, b.k from {{t}} a join {{u}} b on a.{name} = b.{name} where a.k < 20 and {where('a.')}",
        f"select a.k, count(b.k) from {{t}} a left join {{u}} b on a.{name} <=> b.{name} and {where('b.')} group by a.k",
        f"select k from {{t}} where {name} {rng.choice(['', 'not '])}in (select {name} from {{u}} where {where()})",
        f"select a.k from {{t}} a where exists (select 1 from {{u}} b where b.{name} = a.{name} and {where('b.')})",
        f"select k, (select max(b.l) from {{u}} b where b.i = a.i and {where('b.')}) from {{t}} a",
        f"with c as (select * from {{t}} where {where()}) select {chosen} from c where {where()}",
        f"select {name} from {{t}} where {where()} {rng.choice(['union', 'intersect', 'except all'])} select {name} from {{u}}",
        f"select a.k, l.c from {{t}} a, lateral (select count(*) c from {{u}} b where b.i = a.i and {where('b.')}) l",
        f"select * from (select p, b, k from {{t}} where {where()}) pivot (count(k) for b in (true, false))",
        f"select k, part from {{t}} lateral view explode(e) parts as part where {where()}",
        f"select k, p, row_number() over (partition by b order by k, p) from {{t}} where {where()}",
    ])  # fmt: skip


def _condition(rng: random.Random, depth: int, before: str) -> str:
    if depth and rng.random() < 0.6:
        parts = [_condition(rng, depth - 1, before) for _ in range(2)]
        return rng.choice([f"({parts[0]} and {parts[1]})", f"({parts[0]} or {parts[1]})", f"not ({parts[0]})"])
    if rng.random() < 0.4:
        return rng.choice(_CONDITIONS).format(before)
    name = rng.choice(list(_LITERALS))
    one, two, three = (rng.choice([*_LITERALS[name], "null"]) for _ in range(3))
    operator = rng.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
    return rng.choice([
        f"{before}{name} {operator} {one}",
        f"{before}{name} {operator} {one}",
        f"{before}{name} in ({one}, {two}, {three})",
        f"{before}{name} not in ({one}, {two})",
        f"{before}{name} between {one} and {two}",
        f"{before}{name} is {rng.choice(['', 'not '])}null",
    ])  # fmt: skip
