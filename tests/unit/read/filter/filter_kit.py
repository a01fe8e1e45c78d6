"""Rows that filters keep or leave out."""

import random
from decimal import Decimal

import pyarrow as pa

from fluss_lab.model import make_schema
from fluss_lab.read.filter.filter_compiler import SYSTEM_TYPES

SCHEMA = make_schema({
    "n": "int", "tiny": "tinyint", "big": "bigint", "s": "string", "d": "decimal(10,2)", "wide": "decimal(38,10)",
    "f": "float", "g": "double", "b": "boolean", "day": "date", "tod": "time(0)", "ts": "timestamp(3)",
    "at": "timestamp_ltz(6)", "bin": "bytes", "fixed": "binary(2)", "arr": "array<int>", "r": "row<x int, y row<z string>>",
})  # fmt: skip

NAN = float("nan")


def table_of(**columns):
    """Return rows with these columns given, all others null."""
    count = len(next(iter(columns.values())))
    types = {field.name: field.type for field in SCHEMA.arrow_schema} | SYSTEM_TYPES
    return pa.table({name: pa.array(columns.get(name, [None] * count), dtype) for name, dtype in types.items()})


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
