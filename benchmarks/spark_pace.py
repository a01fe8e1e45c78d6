"""Structured Streaming with small batches: how many a second, what they and waiting cost, how long a row is on its way.

Each sink gets batches of 120 rows of a large backlog; beside the tables Spark's own ``noop``, which writes nothing. CPU is that
of all processes, by what they are. ``python -m benchmarks.spark_pace --seconds 5`` tries it small.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures
from fluss_lab.server.process.discovery import read
from fluss_lab.testing import wait_until
from fluss_lab.workbench import Lab, Table

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

BACKLOG_ROWS: Final = 400_000
BATCH_ROWS: Final = 120
SECONDS: Final = 20.0
LATENCIES: Final = 20
#: CPU seconds by what spends them.
Costs: TypeAlias = dict[str, float]
#: What each process is, and its CPU seconds so far, by its number.
Spent: TypeAlias = dict[int, tuple[str, float]]
KINDS: Final = ("noop", "log table", "primary-key table")


def run(seconds: float = SECONDS) -> None:
    """Measure and print; `seconds` is how long each figure is watched."""
    figures = Figures(
        f"streams in Spark, small batches: {BATCH_ROWS} rows of a backlog, then waiting; each {seconds:g} s"
    )
    with tempfile.TemporaryDirectory() as folder, Lab.open(Path(folder) / "lab") as lab:
        lab.create_database("bench")
        table = lab.create_table("bench.flow", SCHEMA, buckets=4)
        table.append(rows(BACKLOG_ROWS))
        found = {kind: _pace(lab, table, kind, Path(folder), seconds) for kind in KINDS}
        for kind, (rate, cost) in found.items():
            beside = "" if kind == "noop" else f"noop {found['noop'][0]:.1f}"
            figures.add(f"batches a second, {kind}", f"{rate:.1f}", beside, rate / found["noop"][0])
            figures.add("  CPU of a batch", _shown(cost, 1000, "ms"))
        for kind in KINDS:
            figures.add(
                f"waiting, {kind}: CPU of a second", _shown(_idle(lab, kind, Path(folder), seconds), 1000, "ms")
            )
        figures.add("a row is in the next table, median", f"{_latency(lab, Path(folder)) * 1000:.0f} ms")
    figures.print()


def _pace(lab: Lab, table: Table, kind: str, folder: Path, seconds: float) -> tuple[float, Costs]:
    """Return batches a second, and CPU seconds of a batch by process."""
    with _query(lab, table, kind, folder, limit=BATCH_ROWS) as (query, _):
        wait_until(lambda: _batches(query) >= 10, timeout_s=300)
        before, batches, started = spent(lab), _batches(query), time.perf_counter()
        time.sleep(seconds)
        count, wall = _batches(query) - batches, time.perf_counter() - started
        cost = costs(before, spent(lab))
    return count / wall, {role: each / max(count, 1) for role, each in cost.items()}


def _idle(lab: Lab, kind: str, folder: Path, seconds: float) -> Costs:
    """Return CPU seconds of a second in which nothing comes, by process."""
    table = lab.create_table(f"bench.idle{uuid.uuid4().hex[:8]}", SCHEMA, buckets=4)
    table.append(rows(BATCH_ROWS))
    with _query(lab, table, kind, folder) as (query, _):
        query.processAllAvailable()
        time.sleep(5)
        before = spent(lab)
        time.sleep(seconds)
        cost = costs(before, spent(lab))
    return {role: each / seconds for role, each in cost.items()}


def _latency(lab: Lab, folder: Path) -> float:
    """Return the median of the seconds from an append to when the row is in the next table."""
    table = lab.create_table("bench.front", SCHEMA)
    found = []
    with _query(lab, table, "log table", folder) as (_, target):
        assert target is not None
        for number in range(LATENCIES + 5):
            started = time.perf_counter()
            table.append(rows(1))
            while target.scan().count() <= number:
                time.sleep(0.002)
            found.append(time.perf_counter() - started)
    return statistics.median(found[5:])


@contextmanager
def _query(
    lab: Lab, table: Table, kind: str, folder: Path, *, limit: int | None = None
) -> Iterator[tuple[StreamingQuery, Table | None]]:
    target = None
    if kind != "noop":
        key = ["id"] if kind == "primary-key table" else None
        types = {column.name: str(column.type) for column in table.info.schema.columns}
        target = lab.create_table(f"bench.copy{uuid.uuid4().hex[:8]}", types, primary_key=key, buckets=4)
    writer = table.stream(max_rows_per_trigger=limit).writeStream.format("noop" if target is None else "fluss")
    if target is not None:
        writer = writer.option("table", str(target.path))
    query = writer.option("checkpointLocation", str(folder / uuid.uuid4().hex)).start()
    try:
        yield query, target
    finally:
        query.stop()


def _batches(query: StreamingQuery) -> int:
    if (failure := query.exception()) is not None:
        raise failure
    progress = query.lastProgress
    return 0 if progress is None else int(progress["batchId"])


def spent(lab: Lab) -> Spent:
    """Return the CPU seconds so far of the lab's servers, and of all that this process started and that live."""
    assert lab.folder is not None
    discovery = read(lab.folder)
    assert discovery is not None
    found = {server.pid: ("server", _spent(server.pid)) for server in discovery.servers}
    parents = {pid: _parent(pid) for pid in _processes()}
    for pid in parents:
        if pid not in found and os.getpid() in _ancestors(pid, parents):
            found[pid] = ("JVM" if "java" in _command(pid) else "Python", _spent(pid))
    return found


def costs(before: Spent, after: Spent) -> Costs:
    """Return what was spent in between, by what spent it; the last of those that ended in between is left out."""
    found = dict.fromkeys(("server", "JVM", "Python"), 0.0)
    for pid, (role, seconds) in after.items():
        found[role] += seconds - before.get(pid, (role, 0.0))[1]
    return found


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while (pid := parents.get(pid, 0)) > 0:
        found.add(pid)
    return found


def _fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return ["0"] * 20


def _parent(pid: int) -> int:
    return int(_fields(pid)[1])


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def _spent(pid: int) -> float:
    return sum(map(int, _fields(pid)[11:13])) / os.sysconf("SC_CLK_TCK")


def _shown(cost: Costs, times: int, unit: str) -> str:
    parts = ", ".join(f"{role} {seconds * times:.0f}" for role, seconds in sorted(cost.items()))
    return f"{sum(cost.values()) * times:.0f} {unit} ({parts})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    run(parser.parse_args().seconds)
