"""Readers beside the one writer: what they see is always one moment, whole."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.model.descriptor import make_descriptor
from fluss_lab.server.kv.chunk_compaction import CompactionLimits
from fluss_lab.server.kv.keys.key_hashes import KeyHash
from fluss_lab.server.kv.kv_store import KvStore
from fluss_lab.server.kv.row_memory import RowMemory

#: Keys always come in pairs of one group, which are written together with one number: a reader sees equal numbers.
GROUPS = 300
SECONDS = 3.0
LIMITS = CompactionLimits(chunk_rows=400, at_once_rows=60, step_rows=40, pace=2, dead_rows=8)
DESCRIPTOR = make_descriptor(
    {"g": "int", "side": "string", "number": "bigint", "text": "string"},
    primary_key=["g", "side"],
    bucket_key=["g"],
)
SCHEMA = DESCRIPTOR.schema.arrow_schema


def rows(groups: list[int], number: int) -> pa.RecordBatch:
    twice = np.repeat(np.array(groups, np.int32), 2)
    sides = pa.array(["left", "right"] * len(groups))
    numbers = np.full(twice.size, number)
    return pa.RecordBatch.from_arrays(
        [pa.array(twice), sides, pa.array(numbers), pa.array([f"{number}-{each}" for each in twice])], schema=SCHEMA
    )


class Reading:
    """A writer in this thread and readers in others, for some seconds."""

    def __init__(self, store: KvStore, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.done = threading.Event()
        self.errors: list[BaseException] = []
        self.looks = 0

    def reader(self, look: Callable[[random.Random], None], seed: int) -> threading.Thread:
        def run() -> None:
            rng = random.Random(seed)
            try:
                while not self.done.is_set():
                    look(rng)
                    self.looks += 1
            except BaseException as error:
                self.errors.append(error)
                self.done.set()

        return threading.Thread(target=run)

    def write(self) -> None:
        number = 0
        until = time.monotonic() + SECONDS
        while time.monotonic() < until and not self.done.is_set():
            number += 1
            groups = self.random.sample(range(GROUPS), self.random.randrange(1, 40))
            given = rows(groups, number)
            kinds = b"\4" if number % 5 == 0 else b"\3"
            change = self.store.prepare(given, kinds * given.num_rows, base_offset=self.store.log_offset)
            self.store.commit(change, number)
        self.done.set()


def both_sides(numbers: list[int], texts: list[str], groups: list[int]) -> None:
    assert [f"{number}-{group}" for number, group in zip(numbers, groups, strict=True)] == texts
    seen: dict[int, list[int]] = {}
    for group, number in zip(groups, numbers, strict=True):
        seen.setdefault(group, []).append(number)
    for group, found in seen.items():
        assert len(found) == 2, f"group {group} is torn: {found}"
        assert found[0] == found[1], f"group {group} is of two moments: {found}"


def checked(batch: pa.RecordBatch) -> None:
    both_sides(batch.column(2).to_pylist(), batch.column(3).to_pylist(), batch.column(0).to_pylist())


@pytest.mark.slow
def test_readers_see_whole_changes_only(seed, tmp_path):
    # Each look takes rows away from under the readers, and the writer.
    memory = RowMemory(tmp_path / "rows", 0, chunk_bytes_min=0)
    store = KvStore(DESCRIPTOR, 1, {1: SCHEMA}, hashing=KeyHash(seed, 0xFFF0000000000000), limits=LIMITS)
    memory.watch(store)
    reading = Reading(store, seed)

    def lookup(rng: random.Random) -> None:
        asked = rows(rng.sample(range(GROUPS), 50), 0).select(["g", "side"])
        found, got = store.lookup(asked)
        assert int(found.sum()) == got.num_rows
        checked(got)

    def prefixes(rng: random.Random) -> None:
        asked = np.array(rng.sample(range(GROUPS), 20), np.int32)
        counts, got = store.prefix_lookup(pa.record_batch([pa.array(asked)], names=["g"]))
        assert set(counts.tolist()) <= {0, 2}
        checked(got)

    def view(_rng: random.Random) -> None:
        seen = store.view()
        first = [part for part, *_ in seen.batches(rows_max=100)]
        again = [part for part, *_ in seen.batches(rows_max=100)]
        assert first == again
        if first:
            checked(pa.concat_batches(first))
        assert sum(part.num_rows for part in first) == seen.row_count

    def image(_rng: random.Random) -> None:
        held = store.image()
        again = KvStore.restore(DESCRIPTOR, 1, {1: SCHEMA}, held)
        assert again.row_count == held.row_count
        if held.row_count:
            checked(again.limit_scan(10**6))

    def to_files(_rng: random.Random) -> None:
        memory.look()
        assert not memory.problem

    looks = (lookup, prefixes, view, image, to_files)
    threads = [reading.reader(look, seed + place) for place, look in enumerate(looks)]
    for thread in threads:
        thread.start()
    reading.write()
    for thread in threads:
        thread.join(60)
    if reading.errors:
        raise reading.errors[0]
    assert reading.looks > 20
