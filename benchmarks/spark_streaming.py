"""Structured Streaming: a table's log from the servers and from the lake, and into another table.

Each figure is one batch of a query of its own, from its start to its end, Spark being warm; beside it is the same changelog
read in a batch, and for the sink one writer in this process. ``python -m benchmarks.spark_streaming --rows 200000`` tries it
small.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures, millions
from fluss_lab.testing import wait_until
from fluss_lab.workbench import Lab, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS: Final = 4_000_000
BATCH_ROWS: Final = 20_000
BUCKETS: Final = 4
RUNS: Final = 3
#: What the lake holds leaves the servers at once, but for the last segment.
CONFIG: Final = {"log.retention.check-interval": "100ms", "log.segment.file-size": "8mb"}
LAKE: Final = {"table.datalake.enabled": True, "table.datalake.freshness": "1h"}


def run(count: int = ROWS) -> None:
    """Measure and print; `count` is how many rows the table has."""
    figures = Figures(f"streams in Spark: {count:,} rows, {BUCKETS} buckets, one batch, best of {RUNS}")
    with tempfile.TemporaryDirectory() as folder, Lab.open(Path(folder) / "lab", config=CONFIG) as lab:
        lab.create_database("bench")
        table = lab.create_table("bench.flow", SCHEMA, buckets=BUCKETS, properties=LAKE)
        appended = _append(table, count)
        places = Path(folder)
        for where in ("servers", "lake"):
            if where == "lake":
                table.tier()
                table.alter(set={"table.log.ttl": "1ms"})
                wait_until(lambda: all(each["start"] == each["end"] for each in table.buckets()), timeout_s=120)
            batch = best(count, lambda: _batch(table))
            stream = best(count, lambda: _stream(table.stream(), "noop", places))
            figures.add(f"stream from the {where}", millions(stream), f"batch {millions(batch)}", stream / batch)
            figures.add(f"stream from the {where}, 2 columns", millions(best(count, lambda: _two(table, places))))
        sent = best(count, lambda: _copy(lab, table, places))
        figures.add("stream into a log table", millions(sent), f"one writer {millions(appended)}", sent / appended)
        figures.add(
            "peak memory of this process", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"
        )
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        figures.add("peak memory of a child process", f"{peak:.0f} MB")
    figures.print()


def best(count: int, work: Callable[[], object]) -> float:
    """Return rows a second of the fastest run; a first one warms up."""
    rate = 0.0
    for number in range(RUNS + 1):
        started = time.perf_counter()
        work()
        if number:
            rate = max(rate, count / (time.perf_counter() - started))
    return rate


def _append(table: Table, count: int) -> float:
    data = rows(count)
    started = time.perf_counter()
    with table.lab.connection.append_writer(table.path) as writer:
        for start in range(0, count, BATCH_ROWS):
            writer.append(data.slice(start, BATCH_ROWS))
    return count / (time.perf_counter() - started)


def _batch(table: Table) -> None:
    table.changelog().to_spark().write.format("noop").mode("overwrite").save()


def _two(table: Table, folder: Path) -> None:
    _stream(table.stream(columns=["id", "amount"]), "noop", folder)


def _copy(lab: Lab, table: Table, folder: Path) -> None:
    path = f"bench.copy{uuid.uuid4().hex[:8]}"
    lab.create_table(path, SCHEMA, buckets=BUCKETS)
    _stream(table.stream(), "fluss", folder, table=path)
    lab.drop_table(path)


def _stream(frame: DataFrame, kind: str, folder: Path, **options: str) -> None:
    writer = frame.writeStream.format(kind).options(**options)
    writer = writer.option("checkpointLocation", str(folder / uuid.uuid4().hex))
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    run(parser.parse_args().rows)
