"""A dict that does what a store does, one row after another, and random rows of every type to compare them with."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from fluss_lab.errors import InvalidRecordError
from fluss_lab.model.descriptor import TableDescriptor, make_descriptor
from fluss_lab.model.types import DataType
from fluss_lab.server.kv.merge_engines import MergeRules

UPSERT, DELETE = 3, 4
INSERT, BEFORE, AFTER, REMOVE = 1, 2, 3, 4
NAN = float("nan")
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]


def identity(value: Any) -> Any:
    """Return what tells a value from all others, as bytes do: NaN is itself, -0.0 is not 0.0."""
    if isinstance(value, float):
        return ("float", struct.pack("<d", value))
    if isinstance(value, dict):
        return tuple((key, identity(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(identity(each) for each in value)
    if isinstance(value, datetime):  # pyarrow gives pandas' own for nanoseconds
        return ("datetime", value.replace(tzinfo=None).isoformat(), value.tzinfo is not None)
    return (type(value).__name__, value)


@dataclass(frozen=True)
class Record:
    kind: int
    values: tuple
    previous: int


@dataclass(frozen=True)
class Live:
    values: tuple
    offset: int
    timestamp_ms: int


@dataclass
class Model:
    """Rows by key; columns by position."""

    descriptor: TableDescriptor
    rows: dict[Any, Live] = field(default_factory=dict)
    log_offset: int = 0

    @property
    def names(self) -> list[str]:
        return self.descriptor.schema.names

    def key(self, values: Sequence[Any]) -> Any:
        return identity([values[self.names.index(name)] for name in self.descriptor.schema.primary_key])

    def put(self, operations: Iterable[tuple[int, tuple]], timestamp_ms: int, columns: Sequence[str] | None = None):
        """Apply operations in order, all or nothing, and return the changelog's records.

        Each operation is its change type and the values of all columns; those not in `columns` do not count.
        """
        before = dict(self.rows)
        given = set(self.names if columns is None else columns)
        records: list[Record] = []
        try:
            for kind, values in operations:
                self._apply(kind, values, given, records, timestamp_ms)
        except InvalidRecordError:
            self.rows = before
            raise
        self.log_offset += len(records)
        return records

    def _apply(self, kind: int, values: tuple, given: set[str], records: list[Record], timestamp_ms: int) -> None:
        rules = MergeRules.of(self.descriptor)
        key = self.key(values)
        old = self.rows.get(key)
        if kind == DELETE:
            if rules.deletes == "disable":
                raise InvalidRecordError("disabled")
            if rules.deletes == "ignore" or old is None:
                return
            new = self._deleted(old.values, given)
        else:
            new = tuple(
                value if name in given else None if old is None else old.values[place]
                for place, (name, value) in enumerate(zip(self.names, values, strict=True))
            )
            if old is not None and not self._wins(rules, old.values, new):
                return
        if new is not None:
            for column, value in zip(self.descriptor.schema.columns, new, strict=True):
                if value is None and not column.type.nullable:
                    raise InvalidRecordError(column.name)
        if old is not None and new is not None and identity(old.values) == identity(new):
            return
        previous = -1 if old is None else old.offset
        if old is None:
            records.append(Record(INSERT, new, -1))
        elif new is None:
            records.append(Record(REMOVE, old.values, previous))
        else:
            records.append(Record(BEFORE, old.values, previous))
            records.append(Record(AFTER, new, previous))
        if new is None:
            del self.rows[key]
        else:
            self.rows[key] = Live(new, self.log_offset + len(records) - 1, timestamp_ms)

    def _deleted(self, old: tuple, given: set[str]) -> tuple | None:
        if all(value is None or name in given for name, value in zip(self.names, old, strict=True)):
            return None
        keys = self.descriptor.schema.primary_key
        return tuple(
            None if name in given and name not in keys else value for name, value in zip(self.names, old, strict=True)
        )

    def _wins(self, rules: MergeRules, old: tuple, new: tuple) -> bool:
        if rules.engine == "first_row":
            return False
        if rules.engine == "versioned":
            ours, theirs = old[rules.version_column], new[rules.version_column]
            return ours is None or (theirs is not None and ours <= theirs)
        return True

    def define(self, descriptor: TableDescriptor) -> None:
        added = len(descriptor.schema.columns) - len(self.names)
        self.descriptor = descriptor
        self.rows = {
            key: Live((*live.values, *[None] * added), live.offset, live.timestamp_ms)
            for key, live in self.rows.items()
        }


# -- rows -----------------------------------------------------------------------------------------------------------------

EPOCH = datetime(2026, 3, 1)


def some_value(random: random.Random, type: DataType, variety: int = 6) -> Any:
    """Return one of a few values of a type; never null at the top."""
    number = random.randrange(variety)
    match type.name:
        case "BOOLEAN":
            return bool(number % 2)
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            return number - 3
        case "FLOAT":
            return [0.0, -0.0, NAN, 1.5, float("inf"), -2.25][number % 6] if number < 6 else float(number)
        case "DOUBLE":
            return [0.0, -0.0, NAN, OTHER_NAN, 1.1, -2.25][number % 6] if number < 6 else float(number)
        case "DECIMAL":
            return Decimal(number - 3).scaleb(-type.parameters[1]) * (
                1 if number % 2 else 10 ** min(3, type.precision - 2)
            )
        case "CHAR" | "STRING":
            return ["", "a", "ä" * 3, "seven77", "eight888", "a longer text of which the end differs: "][number % 6] + (
                str(number) if number > 4 else ""
            )
        case "BYTES":
            return [b"", b"\0", b"\0\0", b"12345678", b"123456789", bytes(20)][number % 6] + (b"x" * max(0, number - 5))
        case "BINARY":
            return number.to_bytes(4, "little").ljust(type.precision, b"\0")[: type.precision]
        case "DATE":
            return date(2026, 3, 1) + timedelta(days=number)
        case "TIME":
            return time(12, number % 60)
        case "TIMESTAMP":
            return EPOCH + timedelta(seconds=number)
        case "TIMESTAMP_LTZ":
            return (EPOCH + timedelta(seconds=number)).replace(tzinfo=UTC)
        case "ARRAY":
            return [maybe_null(random, type.fields[0].type) for _ in range(number % 3)]
        case "MAP":
            return [(place, maybe_null(random, type.fields[1].type)) for place in range(number % 3)]
        case _:
            return {each.name: maybe_null(random, each.type) for each in type.fields}


def maybe_null(random: random.Random, type: DataType) -> Any:
    return None if type.nullable and random.random() < 0.3 else some_value(random, type)


def some_row(random: random.Random, descriptor: TableDescriptor, variety: int) -> tuple:
    keys = descriptor.schema.primary_key
    return tuple(
        some_value(random, column.type, variety) if column.name in keys else maybe_null(random, column.type)
        for column in descriptor.schema.columns
    )


def arrow_schema(descriptor: TableDescriptor, columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the schema of a request's rows: keys NOT NULL, everything else nullable."""
    keys = descriptor.schema.primary_key
    fields = [each.with_nullable(each.name not in keys) for each in descriptor.schema.arrow_schema]
    return pa.schema([each for each in fields if columns is None or each.name in columns])


def batch(descriptor: TableDescriptor, rows: Sequence[tuple], columns: Sequence[str] | None = None) -> pa.RecordBatch:
    schema = arrow_schema(descriptor, columns)
    places = [descriptor.schema.names.index(name) for name in schema.names]
    arrays = [pa.array([row[place] for row in rows], each.type) for place, each in zip(places, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def tuples(rows: pa.RecordBatch) -> list[tuple]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True)) if rows.num_rows else []


def identities(rows: Iterable[tuple]) -> list[Any]:
    return [identity(list(row)) for row in rows]


def table(columns: dict[str, str], key: Sequence[str], **properties: object) -> TableDescriptor:
    named = {name.replace("__", ".").replace("_0", "-"): value for name, value in properties.items()}
    return make_descriptor(columns, primary_key=key, properties=named)
