"""Union read in Spark and in Arrow, beside Spark reading the same lake files by itself."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures, millions
from fluss_lab.workbench import Lab, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = 4_000_000
TAIL_ROWS = 100_000
BATCH_ROWS = 20_000
RUNS = 5


def run() -> None:
    """Measure and print."""
    figures = Figures(f"reading across: {ROWS:,} rows in the lake, 4 buckets, warm; seconds, best of {RUNS}")
    with tempfile.TemporaryDirectory() as folder, Lab.open(Path(folder) / "lab") as lab:
        lab.create_database("bench")
        table = lab.create_table("bench.flow", SCHEMA, buckets=4, properties={"table.datalake.enabled": True})
        _append(table, ROWS)
        table.tier()
        files = [str(path) for path in table.files().column("path")]
        for name, query in _QUERIES.items():
            limit = _seconds(lambda query=query: query(lab.spark.read.parquet(*files)))  # type: ignore[misc]
            ours = _seconds(lambda query=query: query(table.scan().to_spark()))  # type: ignore[misc]
            figures.add(
                f"Spark, {name}, all in the lake", f"{ours:.3f} s", f"read.parquet {limit:.3f} s", ours / limit, "1.5"
            )
        figures.add("Arrow, whole table", millions(ROWS / _seconds(lambda: table.scan().to_arrow())))
        figures.add("Arrow, count", f"{_seconds(lambda: table.scan().count()):.4f} s")
        _append(table, TAIL_ROWS)
        for name, query in _QUERIES.items():
            ours = _seconds(lambda query=query: query(table.scan().to_spark()))  # type: ignore[misc]
            figures.add(f"Spark, {name}, {TAIL_ROWS:,} rows in the log", f"{ours:.3f} s")
    figures.print()


def _aggregate(frame: DataFrame) -> object:
    return frame.groupBy("symbol").sum("price", "amount").collect()


def _filter(frame: DataFrame) -> object:
    return frame.where("amount = 7 and price > 900").selectExpr("max(id)", "count(*)").collect()


def _count(frame: DataFrame) -> object:
    return frame.count()


_QUERIES: dict[str, Callable[[DataFrame], object]] = {"aggregate": _aggregate, "filter": _filter, "count": _count}


def _append(table: Table, count: int) -> None:
    data = rows(count)
    with table.lab.connection.append_writer(table.path) as writer:
        for start in range(0, count, BATCH_ROWS):
            writer.append(data.slice(start, BATCH_ROWS))


def _seconds(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(RUNS):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best
