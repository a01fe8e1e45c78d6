"""Rows by key: one client process against one server process, beside an empty gRPC call in the same run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import peer
from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures, best_of
from fluss_lab.client import Lookuper
from fluss_lab.workbench import Lab

ROWS = 1_000_000
#: In turns, so that both meet the same weather.
TURNS = 5
CALLS_A_TURN = 400


def run() -> None:
    """Measure and print."""
    figures = Figures(f"lookup: one client, one server, {ROWS:,} keys of 65-byte rows")
    with tempfile.TemporaryDirectory() as folder, Lab.open(Path(folder) / "lab") as lab:
        lab.create_database("bench")
        for buckets in (1, 4):
            table = lab.create_table(f"bench.pk{buckets}", SCHEMA, primary_key=["id"], buckets=buckets)
            with lab.connection.upsert_writer(table.path) as writer:
                for start in range(0, ROWS, 100_000):
                    batch = rows(100_000)
                    ids = pa.array(np.arange(start, start + 100_000))
                    writer.upsert(pa.RecordBatch.from_arrays([ids, *batch.columns[1:]], schema=SCHEMA))
            with lab.connection.lookuper(table.path) as lookuper:
                for keys in (1_000, 10_000, 100_000):
                    rate = best_of(3, partial(_keys_a_second, lookuper, keys))
                    goal = "300 k" if keys > 1_000 else ""
                    name = f"{keys:,} keys a call, {buckets} bucket{'s' * (buckets > 1)}"
                    figures.add(name, f"{rate / 1e3:.0f} k keys/s", goal=goal)
        with lab.connection.lookuper("bench.pk1") as lookuper:
            mine, empty = _medians_beside(lookuper)
        figures.add(
            "one key, p50", f"{mine * 1e3:.3f} ms", f"empty gRPC call {empty * 1e3:.3f} ms", mine / empty, "1.5"
        )
    figures.print()


def _keys_a_second(lookuper: Lookuper, keys: int) -> float:
    random = np.random.default_rng(keys)
    asked = [pa.table({"id": random.integers(0, ROWS, keys)}) for _ in range(max(3, 300_000 // keys))]
    started = time.perf_counter()
    found = sum(lookuper.lookup(each).num_rows for each in asked)
    return float(found / (time.perf_counter() - started))


def _medians_beside(lookuper: Lookuper) -> tuple[float, float]:
    """Return the median seconds of a lookup of one key, and of an empty call."""
    random = np.random.default_rng(7)
    with peer.channel() as channel:
        call = channel.unary_unary(peer.EMPTY_METHOD)
        pairs = [
            (
                _median(lambda: lookuper.lookup({"id": int(random.integers(0, ROWS))})),
                _median(lambda: call(b"")),
            )
            for _ in range(TURNS)
        ]
    mine, empty = (min(each) for each in zip(*pairs, strict=True))
    return mine, empty


def _median(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(CALLS_A_TURN):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return float(np.median(taken))
