"""A store and a dict are given the same random work, and must always agree."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from fluss_lab.errors import InvalidRecordError
from fluss_lab.model.descriptor import TableDescriptor, make_descriptor
from fluss_lab.server.kv.chunk_compaction import CompactionLimits
from fluss_lab.server.kv.keys.key_hashes import ALL_BITS, KeyHash
from fluss_lab.server.kv.kv_store import KvStore
from fluss_lab.server.kv.row_memory import RowMemory
from tests.unit.server.kv.kv_kit import (
    DELETE,
    UPSERT,
    Model,
    batch,
    identities,
    identity,
    some_row,
    tuples,
)

pytestmark = pytest.mark.slow

#: So that little work is enough to merge, rewrite and split.
TINY = CompactionLimits(chunk_rows=64, at_once_rows=20, step_rows=8, pace=1, dead_part=0.3, dead_rows=2)
#: A few hash values for all keys, high bits (which choose the slot) and low ones.
FEW_HASHES = 0xC000000000000001
ONE_HASH = 0

KEYS = {
    "boolean": {"k": "boolean"},
    "tinyint": {"k": "tinyint"},
    "smallint": {"k": "smallint"},
    "int": {"k": "int"},
    "bigint": {"k": "bigint"},
    "float": {"k": "float"},
    "double": {"k": "double"},
    "decimal": {"k": "decimal(20, 2)"},
    "small decimal": {"k": "decimal(9, 2)"},
    "char": {"k": "char(80)"},
    "string": {"k": "string"},
    "bytes": {"k": "bytes"},
    "binary": {"k": "binary(9)"},
    "date": {"k": "date"},
    "time": {"k": "time(0)"},
    "time us": {"k": "time(6)"},
    "timestamp": {"k": "timestamp(3)"},
    "timestamp ns": {"k": "timestamp(9)"},
    "timestamp ltz": {"k": "timestamp_ltz(6)"},
    "two numbers": {"k": "int", "k2": "bigint"},
    "string and double": {"k": "string", "k2": "double"},
    "three": {"k": "date", "k2": "binary(3)", "k3": "boolean"},
}
VALUES = {"a": "int", "b": "string", "c": "double"}
NESTED = {"a": "array<double>", "b": "map<int, string>", "c": "row<x int, y array<string>>"}


def descriptor(keys: dict[str, str], values: dict[str, str], **properties: str) -> TableDescriptor:
    named = {{"engine": "table.merge-engine", "deletes": "table.delete.behavior",
              "version": "table.merge-engine.versioned.ver-column"}[name]: value for name, value in properties.items()}  # fmt: skip
    return make_descriptor({**values, **keys}, primary_key=list(keys), properties=named)


class Twins:
    """A store and its model."""

    def __init__(self, table: TableDescriptor, mask: int, random: random.Random, variety: int) -> None:
        self.random = random
        self.table = table
        self.mask = mask
        self.variety = variety
        self.schemas = {0: table.schema.arrow_schema}
        self.hashing = KeyHash(random.getrandbits(64), mask)
        self.limits = random.choice([TINY, CompactionLimits()])
        self.store = KvStore(table, 0, self.schemas, hashing=self.hashing, limits=self.limits)
        #: Rows in memory go to files when this looks after them.
        self.memory: RowMemory | None = None
        self.model = Model(table)
        self.log: list = []
        self.image = self.store.image()
        self.image_model = Model(table)
        self.clock = 1000

    def put(self, columns: list[str] | None = None) -> None:
        rows = [some_row(self.random, self.table, self.variety) for _ in range(self.random.randrange(1, 25))]
        # Rows as they are, sometimes: an upsert that changes nothing.
        present = list(self.model.rows.values())
        rows = [self.random.choice(present).values if present and self.random.random() < 0.2 else row for row in rows]
        kinds = [DELETE if self.random.random() < 0.25 else UPSERT for _ in rows]
        self.clock += 1
        given = batch(self.table, rows, columns)
        base = self.model.log_offset
        try:
            records = self.model.put(zip(kinds, rows, strict=True), self.clock, columns)
        except InvalidRecordError:
            with pytest.raises(InvalidRecordError):
                self.store.prepare(given, bytes(kinds), base_offset=base, columns=columns)
            return
        change = self.store.prepare(given, bytes(kinds), base_offset=base, columns=columns)
        assert list(change.change_types) == [record.kind for record in records]
        assert identities(tuples(change.rows)) == identities(record.values for record in records)
        assert change.previous_offsets.tolist() == [record.previous for record in records]
        assert change.rows.schema == self.table.schema.arrow_schema
        change.rows.validate(full=True)
        self.store.commit(change, self.clock)
        self.log.append((change.rows, change.change_types, base, self.clock, change.previous_offsets.tolist()))

    def remember(self) -> None:
        self.image, self.log = self.store.image(), []

    def restore(self) -> None:
        """Go back to the image, and replay the changelog since."""
        self.hashing = KeyHash(self.random.getrandbits(64), self.mask)
        current = max(self.schemas)
        self.store = KvStore.restore(
            self.table, current, self.schemas, self.image, hashing=self.hashing, limits=self.limits
        )
        for rows, kinds, base, timestamp, previous in self.log:
            padded = batch(
                self.table, [(*row, *[None] * (len(self.table.schema.names) - len(row))) for row in tuples(rows)]
            )
            assert self.store.replay(padded, kinds, base, timestamp).tolist() == previous

    def define(self) -> None:
        current = max(self.schemas) + 1
        columns = {column.name: column.type for column in self.table.schema.columns}
        self.table = make_descriptor(
            {**columns, f"new{current}": "string"},
            primary_key=self.table.schema.primary_key,
            properties=self.table.properties,
        )
        self.schemas = {**self.schemas, current: self.table.schema.arrow_schema}
        self.store.define(self.table, current, self.schemas)
        self.model.define(self.table)

    def check(self) -> None:
        model, store = self.model, self.store
        assert (store.log_offset, store.row_count) == (model.log_offset, len(model.rows))
        live = sorted(model.rows.values(), key=lambda each: each.offset)
        found = [
            (identity(list(row)), offset, timestamp)
            for rows, offsets, timestamps in store.view().batches(rows_max=7)
            for row, offset, timestamp in zip(tuples(rows), offsets.tolist(), timestamps.tolist(), strict=True)
        ]
        assert found == [(identity(list(each.values)), each.offset, each.timestamp_ms) for each in live]
        self._check_lookup()
        self._check_prefix()
        limit = self.random.randrange(0, 9)
        assert identities(tuples(store.limit_scan(limit))) == identities(each.values for each in live[:limit])

    def _key_rows(self, names: list[str], count: int) -> tuple[list[tuple], object]:
        rows = [some_row(self.random, self.table, self.variety) for _ in range(count)]
        return rows, batch(self.table, rows).select(names)

    def _check_lookup(self) -> None:
        names = list(self.table.schema.primary_key)
        rows, keys = self._key_rows(names, 15)
        found, got = self.store.lookup(keys)
        expected = [self.model.rows.get(self.model.key(row)) for row in rows]
        assert found.tolist() == [each is not None for each in expected]
        assert identities(tuples(got)) == identities(each.values for each in expected if each is not None)
        last = len(self.table.schema.names) - 1
        _, projected = self.store.lookup(keys, [last, 0])
        assert identities(tuples(projected)) == identities(
            (each.values[last], each.values[0]) for each in expected if each is not None
        )

    def _check_prefix(self) -> None:
        names = list(self.table.schema.primary_key)[: self.random.randrange(1, len(self.table.schema.primary_key) + 1)]
        places = [self.table.schema.names.index(name) for name in names]
        rows, prefixes = self._key_rows(names, 5)
        counts, got = self.store.prefix_lookup(prefixes)
        live = sorted(self.model.rows.values(), key=lambda each: each.offset)
        expected = [
            [
                each.values
                for each in live
                if identity([each.values[p] for p in places]) == identity([row[p] for p in places])
            ]
            for row in rows
        ]
        assert counts.tolist() == [len(each) for each in expected]
        assert counts.dtype == np.int32
        assert identities(tuples(got)) == identities(row for each in expected for row in each)

    def to_files(self) -> None:
        if self.memory is not None:
            self.memory.watch(self.store)
            self.memory.look()
            assert not self.memory.problem
            assert not self.store.unmapped_chunks()


def work(twins: Twins, steps: int, partial: bool = False, alters: bool = False) -> None:
    random = twins.random
    names = twins.table.schema.names
    keys = twins.table.schema.primary_key
    for _ in range(steps):
        columns = None
        if partial and random.random() < 0.7:
            chosen = {name for name in names if random.random() < 0.5} | set(keys)
            columns = [name for name in twins.table.schema.names if name in chosen]
        twins.put(columns)
        dice = random.random()
        if dice < 0.1:
            twins.remember()
        elif dice < 0.2:
            twins.restore()
        elif dice < 0.23 and alters:
            twins.define()
        if random.random() < 0.2:
            twins.to_files()
        if random.random() < 0.3:
            twins.check()
    twins.check()


@pytest.mark.parametrize("mask", [ALL_BITS, FEW_HASHES, ONE_HASH], ids=["hashes", "few hashes", "one hash"])
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS.keys())
def test_every_key_type_does_as_a_dict_does(keys, mask, seed):
    work(Twins(descriptor(keys, VALUES), mask, random.Random(seed), variety=12), 8)


@pytest.mark.slow
@pytest.mark.parametrize("values", [VALUES, NESTED], ids=["flat", "nested"])
@pytest.mark.parametrize("mask", [ALL_BITS, FEW_HASHES], ids=["hashes", "few hashes"])
def test_long_work_with_partial_updates_and_new_columns(values, mask, seed):
    work(Twins(descriptor({"k": "int", "k2": "string"}, values), mask, random.Random(seed), 8), 60, True, True)


@pytest.mark.parametrize("values", [VALUES, NESTED], ids=["flat", "nested"])
def test_rows_that_went_to_files_are_the_same(values, seed, tmp_path):
    twins = Twins(descriptor({"k": "int", "k2": "string"}, values), ALL_BITS, random.Random(seed), 8)
    twins.memory = RowMemory(tmp_path / "rows", 0, chunk_bytes_min=0)
    work(twins, 40, True, True)
    twins.to_files()
    assert twins.store.mapped_bytes > 0
    twins.check()


@pytest.mark.parametrize(
    "properties",
    [
        {"engine": "first_row"},
        {"engine": "first_row", "deletes": "disable"},
        {"engine": "versioned", "version": "a"},
        {"engine": "versioned", "version": "v", "deletes": "ignore"},
        {"deletes": "ignore"},
        {"deletes": "disable"},
    ],
    ids=str,
)
def test_merge_engines_and_delete_behaviors(properties, seed):
    table = descriptor({"k": "int"}, {**VALUES, "v": "timestamp(3)"}, **properties)
    twins = Twins(table, ALL_BITS, random.Random(seed), variety=40)
    work(twins, 30, partial="engine" not in properties, alters=True)


def test_partial_updates_of_a_table_with_columns_that_are_not_null(seed):
    table = descriptor({"k": "int"}, {"a": "int not null", "b": "string", "c": "double not null"})
    rng = random.Random(seed)
    twins = Twins(table, ALL_BITS, rng, variety=12)
    # Whole rows for all keys first, so that partial updates find them.
    rows = [(1, "x", 2.0, key) for key in range(-3, 9)]
    change = twins.store.prepare(batch(table, rows), bytes([UPSERT] * len(rows)), base_offset=0)
    twins.model.put(((UPSERT, row) for row in rows), 1)
    twins.store.commit(change, 1)
    twins.remember()
    work(twins, 40, partial=True)


def test_rows_that_die_while_they_are_rewritten_stay_dead(seed):
    # A job that looks at few rows with each change, and changes that hit the rows it has copied.
    rng = random.Random(seed)
    twins = Twins(descriptor({"k": "int"}, VALUES), ALL_BITS, rng, variety=120)
    twins.limits = replace(TINY, chunk_rows=500, step_rows=2)
    twins.store = KvStore(twins.table, 0, twins.schemas, hashing=twins.hashing, limits=twins.limits)
    for _ in range(60):
        twins.put()
        twins.check()


@pytest.mark.campaign
@pytest.mark.parametrize("round", range(15))
def test_much_random_work(round, seed):
    rng = random.Random(seed + round)
    keys = rng.choice(list(KEYS.values()))
    values = rng.choice([VALUES, NESTED])
    mask = rng.choice([ALL_BITS, FEW_HASHES, ONE_HASH, rng.getrandbits(64)])
    work(Twins(descriptor(keys, values), mask, rng, rng.choice([3, 12, 40])), 250, True, True)


def test_the_model_is_no_store():
    # A negative control: a model that forgot one change is noticed.
    twins = Twins(descriptor({"k": "int"}, VALUES), ALL_BITS, random.Random(1), 12)
    work(twins, 5)
    key = next(iter(twins.model.rows))
    twins.model.rows[key] = replace(twins.model.rows[key], offset=10**6)
    with pytest.raises(AssertionError):
        twins.check()
