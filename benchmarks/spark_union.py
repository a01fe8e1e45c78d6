"""Union reads in Spark beside Spark's own Parquet reader over the same files of the lake.

CPU seconds are those of Spark's JVM, its Python workers and this process; the cluster is a process of its own, whose CPU is
told apart. ``python -m benchmarks.spark_union --rows 500000 --rounds 5`` tries it small.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.data import SCHEMA, rows
from benchmarks.processes import cpu_of_all, cpu_of_tree, tree
from benchmarks.report import Figures
from fluss_lab.server.process.discovery import read
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.workbench import Lab, Table

BUCKETS: Final = 4
RUNS: Final = 5
BATCH_ROWS: Final = 20_000
LAKE: Final = {
    "table.datalake.enabled": True,
    "table.datalake.freshness": "1h",
    "table.datalake.auto-maintenance": False,
}
Query = Callable[[Any], Any]


@dataclass(frozen=True)
class Size:
    """How much is written: so many rows and a tail a tenth of that; then so many rounds of updates."""

    rows: int = 5_000_000
    rounds: int = 50
    updates: int = 10_000


DEFAULT: Final = Size()


@dataclass
class Cost:
    """What one read took."""

    wall_s: float
    cpu_s: float
    server_s: float = 0.0
    peak_mb: float = 0.0


def run(size: Size = DEFAULT) -> None:
    """Measure and print."""
    figures = Figures(
        f"Spark union read: {size.rows:,} rows in {BUCKETS} buckets, CPU (wall) seconds, median of {RUNS}"
    )
    with tempfile.TemporaryDirectory() as folder, Lab.open(Path(folder) / "lab") as lab:
        lab.create_database("bench")
        bench = Bench(lab, size)
        _log_table(bench, figures)
        _keyed_table(bench, figures)
        lab.spark.stop()
    figures.print()


def _log_table(bench: Bench, figures: Figures) -> None:
    table = bench.log_table("bench.log")
    _log_queries(bench, figures, table, "log table, all in the lake", "1.25")
    table.append(bench.tail())
    _log_queries(bench, figures, table, "log table, 10 % tail", "1.3")


def _log_queries(bench: Bench, figures: Figures, table: Table, what: str, goal: str) -> None:
    for name, query in QUERIES.items():
        bench.compare(figures, f"{what}: {name}", Read(bench, table, None, query), goal)


def _keyed_table(bench: Bench, figures: Figures) -> None:
    table = bench.keyed_table("bench.keyed")
    clean = _keyed_queries(bench, figures, table, "primary key, clean", "1.3")
    table.upsert(bench.changes(0, bench.size.rows // 10))
    _keyed_queries(bench, figures, table, "primary key, 10 % tail", "1.6")
    other = bench.keyed_table("bench.updated")
    rounds = f"after {bench.size.rounds} rounds"
    for number in range(bench.size.rounds):
        other.upsert(bench.changes(number + 1, bench.size.updates))
        bench.tier(other)
    after = _keyed_queries(bench, figures, other, f"primary key, {rounds}", "")
    for name, cost in after.items():
        before = clean[name].cpu_s
        ratio = cost.cpu_s / before
        figures.add(f"{rounds} beside clean: {name}", f"{cost.cpu_s:.2f}", f"clean {before:.2f}", ratio, "1.5")


def _keyed_queries(bench: Bench, figures: Figures, table: Table, what: str, goal: str) -> dict[str, Cost]:
    return {
        name: bench.compare(figures, f"{what}: {name}", Read(bench, table, columns, query), goal)
        for name, (columns, query) in KEYED_QUERIES.items()
    }


def _whole(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _sum(frame: Any) -> Any:
    return frame.selectExpr("sum(amount)", "sum(price)").collect()


QUERIES: Final[dict[str, Query]] = {
    "count": lambda frame: frame.count(),
    "aggregate": lambda frame: frame.groupBy("symbol").agg({"amount": "sum", "price": "max"}).collect(),
    "sum of 2 columns": _sum,
}
#: By the columns that the scan is asked for: None for all.
KEYED_QUERIES: Final[dict[str, tuple[list[str] | None, Query]]] = {
    "all columns": (None, _whole),
    "sum of 2 columns": (["amount", "price"], _sum),
}


class Read:
    """One read of a table, ours and Spark's own.

    Args:
        bench: Whose table.
        table: Which.
        columns: That the scan is asked for; None: all.
        query: What is asked of the frame.
    """

    def __init__(self, bench: Bench, table: Table, columns: list[str] | None, query: Query) -> None:
        self._bench = bench
        self._table = table
        self._columns = columns
        self._query = query

    def ours(self) -> None:
        """Read lake and log."""
        self._query(self._table.scan(self._columns).to_spark())

    def plain(self) -> None:
        """Read the lake's files as they are."""
        self._query(self._bench.files(self._table, self._columns))


class Bench:
    """Makes the tables and measures reads of them."""

    def __init__(self, lab: Lab, size: Size) -> None:
        self.lab = lab
        self.size = size
        self._random = np.random.default_rng(11)
        self._base = rows(size.rows)

    def log_table(self, name: str) -> Table:
        """Make a log table that is all in the lake."""
        table = self.lab.create_table(name, SCHEMA, buckets=BUCKETS, properties=LAKE)
        for start in range(0, self.size.rows, BATCH_ROWS):
            table.append(self._base.slice(start, BATCH_ROWS))
        self.tier(table)
        return table

    def keyed_table(self, name: str) -> Table:
        """Make a primary-key table that is all in the lake."""
        table = self.lab.create_table(name, SCHEMA, primary_key=["id"], buckets=BUCKETS, properties=LAKE)
        with self.lab.connection.upsert_writer(table.path) as writer:
            for start in range(0, self.size.rows, BATCH_ROWS):
                writer.upsert(self._base.slice(start, BATCH_ROWS))
        self.tier(table)
        return table

    def tier(self, table: Table) -> None:
        """Run a round in this process: Spark's workers shall hold nothing but what reads need."""
        run_round(self.lab.connection, self.lab.lake_storage(), LocalTieringExecutor(), table_id=table.info.table_id)

    def tail(self) -> pa.RecordBatch:
        """Return a tenth as many rows."""
        return self._base.slice(0, self.size.rows // 10)

    def changes(self, seed: int, count: int) -> pa.RecordBatch:
        """Return some keys' rows with another amount."""
        keys = np.random.default_rng(seed).choice(self.size.rows, count, replace=False)
        taken = self._base.take(pa.array(keys))
        position = SCHEMA.get_field_index("amount")
        columns = [*taken.columns]
        columns[position] = pa.array(np.full(count, seed + 1_000, np.int32))
        return pa.record_batch(columns, schema=SCHEMA)

    def files(self, table: Table, columns: list[str] | None = None) -> Any:
        """Return the frame of the lake's data files, as anyone would read them."""
        paths = [split.path for split in table.scan().plan().splits]
        frame = self.lab.spark.read.parquet(*paths)
        return frame.select(*(columns or SCHEMA.names))

    def compare(self, figures: Figures, what: str, read: Read, goal: str) -> Cost:
        """Measure a read beside Spark's own of the same files, in turns, and print."""
        # Each one's first time is its warming up.
        read.ours()
        read.plain()
        mine, other = [], []
        for _ in range(RUNS):
            mine.append(self.measured(read.ours))
            other.append(self.measured(read.plain))
        cost, beside = median_cost(mine), median_cost(other)
        figures.add(
            f"{what} (server {cost.server_s:.2f}, workers' peak {cost.peak_mb:.0f} MB)",
            f"{cost.cpu_s:.2f} ({cost.wall_s:.2f})",
            f"{beside.cpu_s:.2f} ({beside.wall_s:.2f})",
            cost.cpu_s / beside.cpu_s,
            goal,
        )
        return cost

    def measured(self, work: Callable[[], Any]) -> Cost:
        """Return what a read takes: of this process, of all that it started but the cluster, and of that."""
        assert self.lab.folder is not None
        found = read(self.lab.folder)
        servers = {each.pid for each in found.servers} if found is not None else set()
        before, server, started = cpu_of_tree(servers), cpu_of_all(servers), time.perf_counter()
        with _peak(servers) as peak:
            work()
        wall_s = time.perf_counter() - started
        return Cost(wall_s, cpu_of_tree(servers) - before, cpu_of_all(servers) - server, peak[0])


def median_cost(costs: list[Cost]) -> Cost:
    """Return the middle of each figure, and the highest peak."""
    return Cost(
        statistics.median(each.wall_s for each in costs),
        statistics.median(each.cpu_s for each in costs),
        statistics.median(each.server_s for each in costs),
        max(each.peak_mb for each in costs),
    )


@contextmanager
def _peak(servers: set[int]) -> Iterator[list[float]]:
    """Watch the memory of Spark's Python workers; what is mapped from files does not count."""
    peak, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            peak[0] = max([peak[0], *(_own_mb(pid) for pid in tree(servers) if _is_worker(pid))])

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _is_worker(pid: int) -> bool:
    try:
        return b"-m\0fluss_lab.spark.session.worker_daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _own_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon")), 0.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=DEFAULT.rows)
    parser.add_argument("--rounds", type=int, default=DEFAULT.rounds)
    parser.add_argument("--updates", type=int, default=DEFAULT.updates)
    run(Size(**vars(parser.parse_args())))
