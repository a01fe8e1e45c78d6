"""Lookup joins in Spark beside Spark's own hash join of the same data, and beside lookups without a shuffle.

The stream is a frame of 5 M rows with 6 columns in Parquet files, the table has 1 M rows in 8 buckets, nine tenths of them in
the lake. CPU seconds are those of Spark's JVM, its Python workers and this process; the server's are given apart.
``python -m benchmarks.lookup_join --rows 500000 --keys 100000`` tries it small.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.data import SCHEMA
from benchmarks.report import Figures
from benchmarks.spark_union import Bench, Cost, median_cost
from benchmarks.spark_union import Size as BenchSize
from fluss_lab.testing import wait_until
from fluss_lab.workbench import Lab, LookupMetrics, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKETS: Final = 8
TASKS: Final = 8
RUNS: Final = 5
BATCH_ROWS: Final = 20_000
#: Of the table, what the cache of a task may hold where lookups are compared.
CACHED: Final = 0.2
TRIGGER_ROWS: Final = 10_000
TRIGGERS: Final = 12
WANTED: Final = ["price", "symbol"]
LAKE: Final = {
    "table.datalake.enabled": True,
    "table.datalake.freshness": "1h",
    "table.datalake.auto-maintenance": False,
}


@dataclass(frozen=True)
class Size:
    """How many rows the stream has, and how many keys the table."""

    rows: int = 5_000_000
    keys: int = 1_000_000


DEFAULT: Final = Size()


def run(size: Size = DEFAULT) -> None:
    """Measure and print."""
    figures = Figures(
        f"lookup join: {size.rows:,} rows, a table of {size.keys:,} keys in {BUCKETS} buckets, CPU (wall) seconds, median of {RUNS}"
    )
    with tempfile.TemporaryDirectory() as folder, Lab.open(Path(folder) / "lab") as lab:
        lab.create_database("bench")
        bench = Bench(lab, BenchSize(rows=size.keys))
        table = _table(bench)
        lab.spark.conf.set("spark.sql.shuffle.partitions", str(TASKS))
        frame = _frame(lab, size, Path(folder) / "stream")
        full = _joins(bench, figures, frame, table, size)
        _cached(bench, figures, frame, table, size, full)
        _triggers(figures, lab, table, Path(folder))
        lab.spark.stop()
    figures.print()


def _table(bench: Bench) -> Table:
    table = bench.lab.create_table("bench.dim", SCHEMA, primary_key=["id"], buckets=BUCKETS, properties=LAKE)
    rows = bench.changes(0, bench.size.rows)
    edge = bench.size.rows * 9 // 10
    for start, stop in ((0, edge), (edge, bench.size.rows)):
        with bench.lab.connection.upsert_writer(table.path) as writer:
            for first in range(start, stop, BATCH_ROWS):
                writer.upsert(rows.slice(first, min(BATCH_ROWS, stop - first)))
        if stop == edge:
            bench.tier(table)
    return table


def _frame(lab: Lab, size: Size, folder: Path) -> DataFrame:
    """Return the stream: keys spread over the table's, and five columns more."""
    made = lab.spark.range(size.rows).selectExpr(
        "id as n",
        f"pmod(hash(id), {size.keys}) * 1L as id",
        "n * 2 as a",
        "cast(n as string) as b",
        "n * 0.5 as c",
        "cast(n % 100 as int) as d",
    )
    made.write.parquet(str(folder))
    return lab.spark.read.parquet(str(folder))


def _whole(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _joins(bench: Bench, figures: Figures, frame: DataFrame, table: Table, size: Size) -> Cost:
    lab = bench.lab
    metrics = LookupMetrics()

    def ours() -> None:
        options = {"lookup.full.max-rows": str(size.keys)}
        _whole(
            lab.lookup_join(
                frame,
                table,
                on="id",
                columns=WANTED,
                shuffle=True,
                mode="full",
                tasks=TASKS,
                options=options,
                metrics=metrics,
            )
        )

    def own() -> None:
        _whole(frame.join(table.scan(["id", *WANTED]).to_spark().hint("SHUFFLE_HASH"), "id", "left"))

    mine, other = _in_turns(bench, ours, own)
    _add(figures, "custom shuffle, own buckets loaded, beside Spark's hash join", mine, other, "1.3")
    cached = metrics.to_arrow()["rows_cached"].to_pylist()
    last = cached[-TASKS:]
    figures.add(
        "rows that a task holds, least and most",
        f"{min(last):,} to {max(last):,}",
        f"of {size.keys:,}",
        sum(last) / size.keys,
        "1.0",
    )
    return mine


def _cached(bench: Bench, figures: Figures, frame: DataFrame, table: Table, size: Size, full: Cost) -> None:
    lab = bench.lab
    options = {"lookup.cache.max-rows": str(int(size.keys * CACHED))}

    def with_shuffle() -> None:
        _whole(
            lab.lookup_join(
                frame, table, on="id", columns=WANTED, shuffle=True, mode="remote", tasks=TASKS, options=options
            )
        )

    def without() -> None:
        _whole(lab.lookup_join(frame, table, on="id", columns=WANTED, mode="remote", options=options))

    mine, other = _in_turns(bench, with_shuffle, without, runs=1)
    for what, beside in (("own buckets loaded", full), ("such a cache", mine)):
        figures.add(
            f"remote lookups without a shuffle, a cache of {CACHED:.0%}, beside a custom shuffle with {what}",
            f"{other.cpu_s + other.server_s:.2f} ({other.wall_s:.2f})",
            f"{beside.cpu_s + beside.server_s:.2f} ({beside.wall_s:.2f})",
            other.wall_s / beside.wall_s,
            "3.0 and more",
        )


def _in_turns(bench: Bench, ours: Callable[[], None], other: Callable[[], None], runs: int = RUNS) -> tuple[Cost, Cost]:
    if runs > 1:  # the first time of each is its warming up
        ours()
        other()
    mine, beside = [], []
    for _ in range(runs):
        mine.append(bench.measured(ours))
        beside.append(bench.measured(other))
    return median_cost(mine), median_cost(beside)


def _add(figures: Figures, what: str, mine: Cost, beside: Cost, goal: str) -> None:
    figures.add(
        f"{what} (server {mine.server_s:.2f}, workers' peak {mine.peak_mb:.0f} MB)",
        f"{mine.cpu_s:.2f} ({mine.wall_s:.2f})",
        f"{beside.cpu_s:.2f} ({beside.wall_s:.2f})",
        mine.wall_s / beside.wall_s,
        goal,
    )


def _triggers(figures: Figures, lab: Lab, table: Table, folder: Path) -> None:
    """Measure triggers of a stream of 10,000 rows each while the table changes."""
    for mode in ("full", "remote"):
        stream = lab.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", TRIGGER_ROWS).load()
        keyed = stream.selectExpr("value as id", "timestamp")
        joined = lab.lookup_join(
            keyed,
            table,
            on="id",
            columns=WANTED,
            shuffle=True,
            mode=mode,
            tasks=lab.spark.sparkContext.defaultParallelism,
        )
        place = str(folder / uuid.uuid4().hex)
        query = joined.writeStream.format("noop").option("checkpointLocation", place).start()
        wait_until(partial(_has_run, query), timeout_s=120)
        query.stop()
        if (error := query.exception()) is not None:
            raise error
        spent = [each["durationMs"]["triggerExecution"] for each in query.recentProgress[3:]]
        figures.add(
            f"trigger of {TRIGGER_ROWS:,} rows, {mode}, median",
            f"{statistics.median(spent):.0f} ms",
            "600 ms",
            statistics.median(spent) / 600,
            "1.0",
        )


def _has_run(query: Any) -> bool:
    return len(query.recentProgress) >= TRIGGERS or not query.isActive


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=DEFAULT.rows)
    parser.add_argument("--keys", type=int, default=DEFAULT.keys)
    run(Size(**vars(parser.parse_args())))
