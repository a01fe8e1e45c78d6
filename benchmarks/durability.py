"""Acknowledged after fsync: writers of small batches, each waiting for its answer, beside fsync itself."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures, best_of
from fluss_lab.workbench import Lab, Table

WRITERS = 8
BATCH_ROWS = 100
BATCHES = 400
RUNS = 3


def run() -> None:
    """Measure and print."""
    figures = Figures(f"durability: {WRITERS} writers, {BATCH_ROWS} rows a batch, one batch of each under way")
    with tempfile.TemporaryDirectory() as folder:
        for durability, goal in (("fsync", "60,000"), ("ack", "")):
            with Lab.open(Path(folder) / durability, durability=durability) as lab:
                lab.create_database("bench")
                table = lab.create_table("bench.small", SCHEMA)
                rate = best_of(RUNS, partial(_append, lab, table))
                figures.add(f"durability={durability}", f"{rate:,.0f} rows/s", goal=goal)
        syncs = best_of(RUNS, partial(_syncs, Path(folder)))
        figures.add("fdatasync after each batch, one writer, no server", f"{syncs * BATCH_ROWS:,.0f} rows/s")
    figures.print()


def _append(lab: Lab, table: Table) -> float:
    """Return rows a second, acknowledged, of all writers together."""
    batch = rows(BATCH_ROWS)
    ready = threading.Barrier(WRITERS + 1)

    def work() -> None:
        with lab.connection.append_writer(table.path) as writer:
            writer.append(batch).result()
            ready.wait()
            for _ in range(BATCHES):
                writer.append(batch).result()

    threads = [threading.Thread(target=work) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    ready.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return WRITERS * BATCHES * BATCH_ROWS / (time.perf_counter() - started)


def _syncs(folder: Path) -> float:
    """Return how often a second a batch can be written and made durable, by itself."""
    data = bytes(pa.py_buffer(rows(BATCH_ROWS).serialize()))
    fd = os.open(folder / "bare", os.O_WRONLY | os.O_CREAT)
    try:
        started = time.perf_counter()
        for _ in range(BATCHES):
            os.write(fd, data)
            os.fdatasync(fd)
        return BATCHES / (time.perf_counter() - started)
    finally:
        os.close(fd)


if __name__ == "__main__":
    run()
