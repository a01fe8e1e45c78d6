"""Rows by key: one client process against one server process, beside an empty gRPC call in the same run.

Many threads are those of one client: with the server they share the machine's cores, so CPU stands beside wall.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import peer
from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures, best_of, cpu_of
from fluss_lab.client import Lookuper
from fluss_lab.server.cluster import read_discovery
from fluss_lab.workbench import Lab, Table

ROWS = 1_000_000
#: In turns, so that both meet the same weather.
TURNS = 5
RUNS = 2
CALLS_A_TURN = 400
THREADS = (1, 2, 4, 8, 50)
THREADS_S = 2.0


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
        table = lab.table("bench.pk1")
        figures.add(
            "one key by the table, p50", f"{_median(lambda: table.lookup({'id': 77})) * 1e3:.3f} ms", goal="0.9"
        )
        for buckets in (1, 4):
            table = lab.table(f"bench.pk{buckets}")
            for threads in THREADS:
                goal = "20,000/s" if threads == max(THREADS) else ""
                found = max((_at_once(lab, table, threads) for _ in range(RUNS)), key=lambda each: each[0])
                name = f"single keys by {threads} thread{'s' * (threads > 1)}, {buckets} bucket{'s' * (buckets > 1)}"
                cpu = f"CPU a key: client {found[1] * 1e6:.0f}, server {found[2] * 1e6:.0f} us"
                figures.add(name, f"{found[0]:,.0f}/s", cpu, goal=goal)
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


def _at_once(lab: Lab, table: Table, threads: int) -> tuple[float, float, float]:
    """Return lookups a second of threads that look one key up after another, and the CPU seconds of each here and there."""
    assert lab.folder is not None
    discovery = read_discovery(lab.folder)
    assert discovery is not None
    (server,) = discovery.servers
    assert server.pid is not None
    over, counts = threading.Event(), [0] * threads

    def run(index: int) -> None:
        keys = random.Random(index)
        while not over.is_set():
            key = keys.randrange(ROWS)
            assert table.lookup({"id": key}).num_rows == 1
            counts[index] += 1

    running = [threading.Thread(target=run, args=(index,)) for index in range(threads)]
    started, here_s, there_s = time.perf_counter(), time.process_time(), cpu_of(server.pid)
    for thread in running:
        thread.start()
    time.sleep(THREADS_S)
    over.set()
    for thread in running:
        thread.join()
    total = sum(counts)
    elapsed_s = time.perf_counter() - started
    return total / elapsed_s, (time.process_time() - here_s) / total, (cpu_of(server.pid) - there_s) / total


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
