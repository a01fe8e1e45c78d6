"""The kinds of lake-enabled tables that random histories write, and random rows for them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

Row = dict[str, Any]
Value = Callable[[random.Random], Any]

_EPOCH: Final = datetime(1969, 12, 30)
#: Few values of each type, so that keys meet; edges among them.
VALUES: Final[dict[str, Value]] = {
    "boolean": lambda rng: rng.random() < 0.5,
    "tinyint": lambda rng: rng.choice([-128, -1, 0, 1, 127]),
    "smallint": lambda rng: rng.randrange(-4, 8),
    "int": lambda rng: rng.choice([-(2**31), -1, 0, 1, 2, 3, 2**31 - 1]),
    "bigint": lambda rng: rng.randrange(12),
    "string": lambda rng: rng.choice(["", "a", "b", "ab", "ünïcode", "x" * 40]),
    "bytes": lambda rng: rng.choice([b"", b"\0", b"a", b"\xff" * 20]),
    "binary(3)": lambda rng: bytes([0, 255, rng.randrange(4)]),
    "date": lambda rng: date(1969, 12, 30) + timedelta(days=rng.randrange(6)),
    "time(3)": lambda rng: time(23, 59, 59, rng.randrange(6) * 1000),
    "time(6)": lambda rng: time(0, 0, rng.randrange(3), rng.randrange(3)),
    "timestamp(3)": lambda rng: _EPOCH + timedelta(milliseconds=rng.randrange(6) * 43_200_001),
    "timestamp(6)": lambda rng: _EPOCH + timedelta(microseconds=rng.randrange(6) * 43_200_000_001),
    "timestamp_ltz(6)": lambda rng: _EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=rng.randrange(6) * 43_200_000_001),
    "decimal(9,2)": lambda rng: Decimal(rng.randrange(-3, 6)) / 4,
    "decimal(30,5)": lambda rng: Decimal(rng.randrange(-3, 6)) * 10**20 / 8,
    "double": lambda rng: rng.choice([-1.5, 0.0, 2.0**60, 1e-300]),
    "float": lambda rng: rng.choice([-1.5, 0.0, 0.25]),
}  # fmt: skip
#: Rows whose fields are never null, though they may be; in `VALUES` there are simple types only.
INNER: Final = "row<x int not null, y binary(3) not null>"
_NESTED: Final[dict[str, Value]] = {
    INNER: lambda rng: {"x": rng.randrange(3), "y": bytes([0, 255, rng.randrange(4)])},
    f"row<r {INNER} not null, s string>": lambda rng: {"r": _NESTED[INNER](rng), "s": rng.choice([None, "", "a"])},
    "array<int>": lambda rng: rng.choice([[], [None], [1, 2]]),
}
#: Values at the edges of their types, for kinds that ask for them. (-0.0 and NaN are not equal to themselves as Python compares.)
EDGES: Final[dict[str, Value]] = {
    "bigint": lambda rng: rng.choice([-(2**63), -1, 0, 1, 2, 3, 2**63 - 1]),
    "string": lambda rng: rng.choice(["", "\0", "a", "a\0b", " a", "A", "%", "'", '"', "\\", "\n", "é", "e\u0301", "\uffff", "\U0001f600", "x" * 300]),
    "bytes": lambda rng: rng.choice([b"", b"\0", b"a", b"a\0", b"\xff" * 20]),
    "date": lambda rng: rng.choice([date.min, date(1582, 10, 10), date(1969, 12, 31), date(1970, 1, 1), date.max]),
    "time(6)": lambda rng: rng.choice([time.min, time(12, 0, 0, 1), time.max]),
    "timestamp(3)": lambda rng: rng.choice([datetime(1, 1, 1), _EPOCH, datetime(2024, 3, 31, 2, 30), datetime(9999, 12, 31, 23, 59, 59, 999_000)]),
    "timestamp(6)": lambda rng: rng.choice([datetime(1, 1, 1), datetime(1582, 10, 10, microsecond=1), _EPOCH, datetime(9999, 12, 31, 23, 59, 59, 999_999)]),
    "timestamp_ltz(6)": lambda rng: rng.choice([datetime(1, 1, 2), datetime(2024, 10, 27, 1, 30), datetime(9999, 12, 30)]).replace(tzinfo=UTC),
    "decimal(38,10)": lambda rng: rng.choice([Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001"), Decimal(0)]),
    "double": lambda rng: rng.choice([math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 0.1]),
    "float": lambda rng: rng.choice([math.inf, -math.inf, 1.401298464324817e-45, 0.25]),
}  # fmt: skip
#: Values of partition columns: of two, and of characters that folders and addresses give a meaning.
PARTITIONS: Final = {"p": ("p1", "p2", "p3"), "q": ("x", "x y", "ü=/%")}
#: Types that may be a primary key of a lake-enabled table.
KEY_TYPES: Final = tuple(each for each in VALUES if each not in {"double", "float"})
#: Those of them that Iceberg does not bucket by.
_UNBUCKETED: Final = ("boolean", "tinyint", "smallint")


@dataclass(frozen=True)
class Kind:
    """How to make a table, and rows for it."""

    columns: dict[str, str]
    primary_key: tuple[str, ...] = ()
    bucket_key: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    buckets: int = 2
    properties: dict[str, str] = field(default_factory=dict)
    nulls: float = 0.2
    #: Of columns that are added later.
    added: str = "string"
    #: By type, where they are others than `VALUES`.
    values: Mapping[str, Value] = field(default_factory=dict)

    @property
    def is_keyed(self) -> bool:
        return bool(self.primary_key)

    @property
    def engine(self) -> str:
        return self.properties.get("table.merge-engine", "default")

    def key(self, rng: random.Random) -> Row:
        return {name: self._value(rng, name) for name in self.primary_key}

    def row(self, rng: random.Random) -> Row:
        needed = {*self.primary_key, *self.bucket_key, *self.partitioned_by, "v"}
        return {
            name: None if name not in needed and rng.random() < self.nulls else self._value(rng, name)
            for name in self.columns
        }

    def _value(self, rng: random.Random, name: str) -> Any:
        if name in self.partitioned_by:
            return rng.choice(PARTITIONS[name])
        return {**VALUES, **_NESTED, **self.values}[self.columns[name]](rng)

    def partition(self, row: Row) -> str | None:
        """Return the name of a row's partition."""
        return "$".join(row[name] for name in self.partitioned_by) or None

    def added_value(self, rng: random.Random) -> Any:
        """Return a value of a column that was added."""
        if self.added == "string":
            return rng.choice([None, "u", "v"])
        return None if rng.random() < self.nulls else _NESTED[self.added](rng)


_OTHERS: Final = {"name": "string", "x": "double"}
#: A user's columns may have the names of a delete file's own.
_TRICKY: Final = {"pos": "int", "file_path": "string", "row": "double"}

KINDS: Final[dict[str, Kind]] = {
    "log": Kind({"id": "bigint", **_OTHERS}, bucket_key=("id",)),
    "log_parts": Kind({"id": "bigint", "p": "string", **_OTHERS}, partitioned_by=("p",)),
    "log_types": Kind({f"c{number}": each for number, each in enumerate(VALUES)}),
    "log_nested": Kind({f"c{number}": each for number, each in enumerate(_NESTED)}, nulls=0.4, added=INNER),
    "log_edges": Kind(
        {"q": "string", **{f"c{number}": each for number, each in enumerate(EDGES)}, "p": "string"},
        bucket_key=("c1",), partitioned_by=("p", "q"), values=EDGES,
    ),
    "pk": Kind({"id": "bigint", **_OTHERS}, ("id",)),
    "pk_edges": Kind(
        {"k": "string", "q": "string", "n": "bigint", "p": "string", **{f"c{number}": each for number, each in enumerate(EDGES)}},
        ("k", "q", "n", "p"), ("k",), partitioned_by=("p", "q"), values=EDGES,
    ),
    "pk_nested": Kind(
        {"id": "bigint", **{f"c{number}": each for number, each in enumerate(_NESTED)}}, ("id",), nulls=0.4, added=INNER
    ),
    "pk_tricky": Kind({"id": "bigint", **_TRICKY}, ("id",)),
    "pk_parts": Kind({"id": "bigint", "p": "string", **_OTHERS}, ("id", "p"), partitioned_by=("p",)),
    "pk_prefix": Kind({"g": "int", "word": "string", **_OTHERS}, ("g", "word"), bucket_key=("g",)),
    "pk_moments": Kind(
        {"d": "date", "t": "time(3)", "at": "timestamp(6)", "n": "decimal(9,2)", "b": "bytes", **_OTHERS},
        ("d", "t", "at", "n", "b"), ("d",),
    ),
    "pk_types": Kind({"id": "bigint", **{f"c{number}": each for number, each in enumerate(VALUES)}}, ("id",), nulls=0.4),
    "pk_first": Kind({"id": "bigint", **_OTHERS}, ("id",), properties={"table.merge-engine": "first_row"}),
    "pk_versioned": Kind(
        {"id": "bigint", "v": "bigint", **_OTHERS}, ("id",),
        properties={"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "v"},
    ),
    **{
        f"pk_by_{each.replace('(', '_').replace(')', '').replace(',', '_')}": Kind(
            {"k": each, "g": "int", **_OTHERS}, ("k", "g"), ("g",) if each in _UNBUCKETED else ("k",), buckets=3
        )
        for each in KEY_TYPES
    },
}  # fmt: skip
LOGS: Final = tuple(name for name, kind in KINDS.items() if not kind.is_keyed)
KEYED: Final = tuple(name for name, kind in KINDS.items() if kind.is_keyed)
