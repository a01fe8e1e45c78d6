"""A column of every type, and rows with nulls and edges in each."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from fluss_lab.model import TableInfo

#: Every type that a lake-enabled table can have.
ALL_TYPES: Final = {
    "id": "bigint not null",
    "flag": "boolean",
    "tiny": "tinyint",
    "small": "smallint",
    "num": "int",
    "big": "bigint",
    "flt": "float",
    "dbl": "double",
    "chr": "char(3)",
    "txt": "string",
    "fixed": "binary(2)",
    "bin": "bytes",
    "dec": "decimal(10,2)",
    "wide": "decimal(38,5)",
    "day": "date",
    "tod0": "time(0)",
    "tod": "time(6)",
    "ts0": "timestamp(0)",
    "ts": "timestamp(6)",
    "at3": "timestamp_ltz(3)",
    "at": "timestamp_ltz(6)",
    "arr": "array<tinyint>",
    "map": "map<string,smallint>",
    "rec": "row<x tinyint, y timestamp_ltz(6), z array<time(0)>>",
}


def all_types_row(n: int) -> dict[str, Any]:
    """Return the row of a number; every fifth is null but for its id."""
    if n % 5 == 4:
        return {"id": n}
    moment = dt.datetime(2013, 1, 1) + dt.timedelta(days=n, seconds=n)  # noqa: DTZ001 - of a column without time zone
    return {
        "id": n,
        "flag": n % 2 == 0,
        "tiny": [-128, 127, 0, n % 100][n % 4],
        "small": n * 300 - 5000,
        "num": [-(2**31), 2**31 - 1, n][n % 3],
        "big": [-(2**63), 2**63 - 1, n][n % 3],
        "flt": [float("nan"), float("inf"), -0.0, n / 4][n % 4],
        "dbl": [float("nan"), float("-inf"), 0.0, -n / 8][n % 4],
        "chr": f"a{n:02}"[:3],
        "txt": ["", "x'\"\\\n", "é😀", f"x{n}"][n % 4],
        "fixed": bytes([n % 256, 255 - n % 256]),
        "bin": bytes([n % 256]) * (n % 3),
        "dec": Decimal(n * 7 - 100) / 4 if n % 2 == 0 else Decimal("-99999999.99"),
        "wide": Decimal(10) ** 32 * (n % 2) + Decimal(n),
        "day": dt.date(1960, 1, 1) + dt.timedelta(days=n * 999),
        "tod0": dt.time(n % 24, n % 60, 59),
        "tod": dt.time(n % 24, n % 60, 59, n * 1000 + 1),
        "ts0": moment,
        "ts": moment + dt.timedelta(microseconds=n),
        "at3": moment.replace(tzinfo=dt.UTC) + dt.timedelta(milliseconds=n),
        "at": dt.datetime(1960, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=n * 999, microseconds=n),
        "arr": [n % 50, None][: n % 3],
        "map": [("k", n), ("n", None)][: n % 3],
        "rec": {"x": n % 9, "y": moment.replace(tzinfo=dt.UTC), "z": [dt.time(n % 24)]},
    }


def all_types_rows(info: TableInfo, count: int) -> pa.Table:
    """Return that many rows of a table with these columns."""
    return pa.Table.from_pylist([all_types_row(n) for n in range(count)], info.schema.arrow_schema)


def plain(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as values that compare: NaN equals NaN, and zeros have their sign."""
    return plain_rows(rows.to_pylist())


def plain_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows as `plain` does."""
    return [{name: _comparable(value) for name, value in row.items()} for row in rows]


def _comparable(value: Any) -> Any:
    if isinstance(value, float) and (math.isnan(value) or value == 0):
        return repr(value)
    return value
