"""Lookups in a table that is written at random, held against the plain model of it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from fluss_lab.lookup import FunctionContext, LookupFunction, LookupJoinContext, TaskInfo
from fluss_lab.lookup.planned_lookup import PlannedLookup
from fluss_lab.lookup.table_lookup import FlussLookupSource
from tests.unit.read.keyed_kit import KeyedTable, Moment

Row = dict[str, Any]
MODES = ("remote", "full")


def source_of(table: KeyedTable, mode: str, **asked: Any) -> FlussLookupSource:
    info = table.connection.table_info(table.history.path)
    return FlussLookupSource(table.connection, info, mode=mode, **asked)


def planned(
    table: KeyedTable, mode: str, names: Sequence[str], columns: Sequence[str] | None = None, *, tasks: int | None = None,
    stream: bool = True, **asked: Any,
) -> PlannedLookup:  # fmt: skip
    """Return the function of a join as a task gets it: made from its text, with its secret handed over."""
    source = source_of(table, mode, **asked)
    columns = table.history.columns if columns is None else columns
    made = source.lookup_function(
        LookupJoinContext(tuple(names), tuple(columns), tasks is not None, tasks, is_stream=stream)
    )
    text, secret = made.to_json(), made.secret()
    assert secret
    assert secret not in text
    assert secret not in repr(made)
    function = type(made).from_json(text)
    assert isinstance(function, PlannedLookup)
    function.use_secret(secret)
    return function


@contextmanager
def opened(
    function: LookupFunction, moment: Moment | None, folder: Path | None = None, task: int = 0, tasks: int = 1
) -> Iterator[LookupFunction]:
    """Open a function at a moment; None: at the point of its plan."""
    point = None if moment is None else moment.asked["read_point"].to_json()
    try:
        function.open(FunctionContext(TaskInfo(task, tasks, tasks, 0), point, folder))
        yield function
    finally:
        function.close()


def random_keys(table: KeyedTable, names: Sequence[str], rng: random.Random, count: int = 40) -> pa.RecordBatch:
    """Return keys of rows that there were at some time, and others, some of them twice."""
    events = [event.row for log in table.history.logs.values() for event in log.events]
    rows = [rng.choice(events) if events and rng.random() < 0.7 else table.kind.row(rng) for _ in range(count)]
    keys = [{name: row.get(name) for name in names} for row in rows]
    keys = [key for key in keys if None not in key.values()]
    return key_batch(table, names, keys)


def key_batch(table: KeyedTable, names: Sequence[str], keys: Sequence[Row]) -> pa.RecordBatch:
    schema = table.history.info.schema.arrow_schema
    schema = pa.schema([schema.field(name).with_nullable(False) for name in names])
    return pa.RecordBatch.from_pylist(list(keys), schema)


def found(function: LookupFunction, keys: pa.RecordBatch) -> list[list[str]]:
    """Return the rows of each key, as texts, in no order."""
    answer = function.lookup(keys)
    assert len(answer.positions) == answer.rows.num_rows
    rows: list[list[str]] = [[] for _ in range(keys.num_rows)]
    positions = answer.positions.tolist()
    assert positions == sorted(positions)
    for position, row in zip(positions, answer.rows.to_pylist(), strict=True):
        rows[position].append(repr(row))
    return [sorted(each) for each in rows]


def wanted(table: KeyedTable, moment: Moment, keys: pa.RecordBatch, columns: Sequence[str]) -> list[list[str]]:
    """Return what `found` must be, by the model."""
    names = keys.schema.names
    by_key: dict[tuple[Any, ...], list[str]] = {}
    for row in table.expected(moment.stops):
        by_key.setdefault(tuple(row[name] for name in names), []).append(repr({name: row[name] for name in columns}))
    return [sorted(by_key.get(tuple(key.values()), [])) for key in keys.to_pylist()]


def check(table: KeyedTable, function: PlannedLookup, moment: Moment, rng: random.Random) -> None:
    """Hold an open function against the model."""
    keys = random_keys(table, function.plan.join_keys, rng)
    assert found(function, keys) == wanted(table, moment, keys, function.plan.columns)
