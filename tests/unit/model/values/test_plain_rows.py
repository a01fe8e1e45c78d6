"""What is let through at a glance is right, and becomes what the long way makes of it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fluss_lab.errors import InvalidRecordError
from fluss_lab.model import make_schema
from fluss_lab.model.values.plain_rows import PlainRows
from fluss_lab.model.values.row_input import is_row, record_batches

COLUMNS = {
    "flag": "boolean", "tiny": "tinyint", "small": "smallint", "int": "int", "big": "bigint not null", "double": "double",
    "string": "string", "word": "string", "bytes": "bytes", "date": "date", "timestamp": "timestamp(6)",
}  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "flag": [True, False, None, 1, 0.0, np.True_],
    "tiny": [-128, 127, 128, -129, True, 1.0, np.int8(1), Decimal(1)],
    "small": [2**15 - 1, 2**15],
    "int": [-(2**31), 2**31, "1", "\ud800"],
    "big": [2**63 - 1, -(2**63), 2**63, 10**30, None, pd.NA],
    "double": [0.1, float("nan"), float("inf"), 2**53, 2**53 + 1, -(2**53) - 1, True, np.float64(1.5), Decimal("0.1"), "1"],
    "string": ["", "é", "\0", "x" * 256, "x" * 257, "\ud800", b"x", 1],
    "word": ["é", "\ud800", b"x"],
    "bytes": [b"", b"x" * 256, b"x" * 257, bytearray(b"x"), "x", "eHg="],
    "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.datetime(2020, 1, 1), "2020-01-01", pd.Timestamp(2020, 1, 1)],
    "timestamp": [
        dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
        pd.Timestamp(1), pd.NaT, "2020-01-01T00:00:00", 0, dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, fold=1),
    ],
}  # fmt: skip
RIGHT = {"big": 1, "string": "s", "double": 0.5}
ROWS = [RIGHT | {name: value} for name, values in VALUES.items() for value in values] + [
    {}, {"string": "s"}, RIGHT | {"other": 1}, RIGHT | {1: 2}, dict.fromkeys(COLUMNS), dict(reversed(RIGHT.items())),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=repr)
@pytest.mark.parametrize("columns", [None, ["string", "big"]], ids=["all", "two"])
def test_what_passes_becomes_what_the_long_way_makes_of_it(row, columns):
    schema = make_schema(COLUMNS)
    plain = PlainRows.of(schema, columns)
    assert plain is not None
    found = plain.look_at(row)
    if found is None:
        return
    (expected,) = record_batches([row, row], schema, columns)
    made = plain.batch([found, found])
    assert made.schema.equals(expected.schema)
    # NaN is not equal to itself.
    assert repr(made.to_pylist()) == repr(expected.to_pylist())


def test_common_rows_pass():
    schema = make_schema(COLUMNS)
    plain = PlainRows.of(schema)
    assert plain is not None
    row = {name: values[0] for name, values in VALUES.items()}
    assert plain.look_at(row) is not None
    assert plain.look_at(RIGHT) is not None
    assert plain.look_at(dict.fromkeys(COLUMNS) | RIGHT) is not None


@pytest.mark.parametrize(
    "kind", ["timestamp(3)", "timestamp(9)", "timestamp_ltz(6)", "float", "decimal(10,2)", "array<int>"]
)
def test_other_types_take_the_long_way(kind):
    assert PlainRows.of(make_schema({"id": "int", "x": kind})) is None


def test_no_row_that_passes_is_larger_than_said():
    plain = PlainRows.of(make_schema({"a": "string", "b": "bytes", "c": "bigint"}))
    assert plain is not None
    found = plain.look_at({"a": "\U0001f600" * 256, "b": b"x" * 256, "c": 1})
    assert found is not None
    assert plain.batch([found]).nbytes <= plain.row_bytes_max + 16
    assert plain.look_at({"a": "\U0001f600" * 257}) is None


def test_one_row_is_distinguished_from_columns():
    assert is_row({"id": 1, "tags": ["a"]})
    assert is_row({"id": None})
    assert not is_row({"id": [1], "name": np.array(["a"])})
    assert not is_row({})


def test_rows_that_leave_columns_out_or_have_more_are_judged_one_by_one():
    schema = make_schema({"a": "int", "b": "int not null"})
    (batch,) = record_batches([{"b": 1}, {"a": 1, "b": 2}, {"b": 3, "a": None}], schema)
    assert batch.to_pylist() == [{"a": None, "b": 1}, {"a": 1, "b": 2}, {"a": None, "b": 3}]
    with pytest.raises(InvalidRecordError, match="row 1: column 'c' is unknown"):
        record_batches([{"a": 1, "b": 2}, {"a": 1, "c": 2}], schema)
