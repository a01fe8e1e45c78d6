"""Tiering rounds of other kinds: long, short, of primary-key tables, and one bucket by several tasks."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures, Timing, millions, timed
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.round_report import STAGES, TieringReport
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.tiering.task.tiering_task import TaskProgress, run_task
from fluss_lab.workbench import Lab, Table

LONG_ROWS = 20_000_000
ROWS = 2_000_000
KEYED_ROWS = 1_000_000
BUCKETS = 4
BATCH_ROWS = 20_000
RUNS = 5
SHORT_ROWS = 1_000
SHORT_RUNS = 20
LAKE = {"table.datalake.enabled": True}


def run() -> None:
    """Measure and print."""
    figures = Figures(f"rounds, {BUCKETS} buckets unless told, warm")
    with tempfile.TemporaryDirectory() as folder, Lab.open(Path(folder) / "lab") as lab:
        lab.create_database("bench")
        lab.spark  # noqa: B018 - Spark's start is not part of a round
        _short(figures, lab)
        _long(figures, lab)
        _keyed(figures, lab)
        _one_bucket(figures, lab)
    figures.print()


# -- many rows, few rows -----------------------------------------------------------------------------------------------


def _long(figures: Figures, lab: Lab) -> None:
    for count, goal in ((ROWS, 1.2e6), (LONG_ROWS, 2e6)):
        runs = [
            _round(_filled(lab, f"bench.log{count}_{number}", count)) for number in range(RUNS if count == ROWS else 2)
        ]
        report, whole_s = min(runs, key=lambda each: each[1])
        rate = count / whole_s
        figures.add(f"{count:,} rows of a log table", millions(rate), f"goal {millions(goal)}", rate / goal, "1.0")
        _stages(figures, report)


def _short(figures: Figures, lab: Lab) -> None:
    table = _filled(lab, "bench.short", SHORT_ROWS)
    keyed = _keyed_table(lab, "bench.short_keyed")
    for name, each in (("log", table), ("primary-key", keyed)):
        runs = []
        for turn in range(SHORT_RUNS):
            data = rows(SHORT_ROWS, turn)
            (each.upsert if each is keyed else each.append)(data)
            runs.append(_round(each))
        median_s = statistics.median(seconds for _, seconds in runs[3:])
        report, best_s = min(runs, key=lambda run: run[1])
        figures.add(
            f"{SHORT_ROWS:,} fresh rows of a {name} table, median",
            f"{median_s:.3f} s",
            "goal 1.5 s",
            median_s / 1.5,
            "1.0",
        )
        figures.add("  best", f"{best_s:.3f} s")
        _stages(figures, report)


def _stages(figures: Figures, report: TieringReport) -> None:
    for stage in STAGES:
        if stage in report.seconds and stage != "total":
            seconds = report.seconds[stage]
            figures.add(f"  share of {stage}", f"{seconds:.3f} s", ratio=seconds / report.seconds["total"])


def _round(table: Table) -> tuple[TieringReport, float]:
    started = time.perf_counter()
    report = table.tier()
    return report, time.perf_counter() - started


def _filled(lab: Lab, path: str, count: int, buckets: int = BUCKETS) -> Table:
    table = lab.create_table(path, SCHEMA, buckets=buckets, properties=LAKE)
    with lab.connection.append_writer(table.path) as writer:
        for first in range(0, count, ROWS):
            data = rows(min(ROWS, count - first), first)
            for start in range(0, data.num_rows, BATCH_ROWS):
                writer.append(data.slice(start, BATCH_ROWS))
    return table


# -- primary-key tables ------------------------------------------------------------------------------------------------


def _keyed_table(lab: Lab, path: str, *, maintained: bool = True) -> Table:
    properties = LAKE | {"table.datalake.auto-maintenance": maintained}
    return lab.create_table(path, SCHEMA, primary_key=["id"], buckets=BUCKETS, properties=properties)


def _keyed(figures: Figures, lab: Lab) -> None:
    """Time a round of upserts, half of new keys and half of keys that the lake has, beside one of as many appended rows.

    Maintenance follows a round, and its cost with it, on its own conditions: it is told apart.
    """
    plain = [_round(_filled(lab, f"bench.plain{number}", KEYED_ROWS)) for number in range(RUNS)]
    keyed = [_round(_half_updated(lab, f"bench.keyed{number}")) for number in range(RUNS)]
    (report, keyed_s), (_, plain_s) = (min(each, key=lambda run: run[1]) for each in (keyed, plain))
    figures.add(
        f"{KEYED_ROWS:,} upserts, half of them updates",
        millions(KEYED_ROWS / keyed_s),
        f"log table {millions(KEYED_ROWS / plain_s)}",
        plain_s / keyed_s,
        "0.3",
    )
    _stages(figures, report)
    half, whole = _half_updated(lab, "bench.keyed"), _filled(lab, "bench.plain", KEYED_ROWS)
    cpu_s = [_timed_here(lab, table).cpu_s for table in (half, whole)]
    figures.add("  write stage, CPU", f"{cpu_s[0]:.2f} s", f"log table {cpu_s[1]:.2f} s", cpu_s[1] / cpu_s[0])
    report, _ = _round(_half_updated(lab, "bench.kept", maintained=True))
    figures.add("  compaction of all files after it", f"{report.seconds.get('maintain', 0):.3f} s")


def _half_updated(lab: Lab, path: str, *, maintained: bool = False) -> Table:
    """Return a table whose lake has a million rows, and whose log behind has as many upserts, half of these keys."""
    table = _keyed_table(lab, path, maintained=maintained)
    data, random = rows(KEYED_ROWS * 3 // 2), np.random.default_rng(3)
    with lab.connection.upsert_writer(table.path) as writer:
        for start in range(0, KEYED_ROWS, BATCH_ROWS):
            writer.upsert(data.slice(start, BATCH_ROWS))
    table.tier()
    updated = data.take(pa.array(random.permutation(KEYED_ROWS)[: KEYED_ROWS // 2]))
    updated = updated.set_column(2, "price", pa.array(np.full(updated.num_rows, -1.0)))
    with lab.connection.upsert_writer(table.path) as writer:
        for start in range(0, KEYED_ROWS // 2, BATCH_ROWS // 2):
            writer.upsert(data.slice(KEYED_ROWS + start, BATCH_ROWS // 2))
            writer.upsert(updated.slice(start, BATCH_ROWS // 2))
    return table


# -- one bucket, several tasks -----------------------------------------------------------------------------------------


class _Here:
    """Runs a round's tasks one after another in this process, and times them."""

    is_alive = True

    def __init__(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self.tasks = 0
        self.timing = Timing(0, 0)

    def run(self, tasks: Sequence[bytes], progress: TaskProgress | None = None) -> list[bytes]:
        """Run and time the tasks."""
        results: list[bytes] = []
        self.tasks = len(tasks)
        self.timing = timed(lambda: results.extend(run_task(task) for task in tasks))
        return results

    def cancel(self) -> None:
        """Do nothing: the tasks run in the caller."""


def _timed_here(lab: Lab, table: Table, parallelism: int = 1) -> Timing:
    executor = _Here(parallelism)
    options = TieringOptions(split_bytes_max=1 << 40)
    run_round(lab.connection, lab.lake_storage(), executor, table_id=table.info.table_id, options=options)
    return executor.timing


def _one_bucket(figures: Figures, lab: Lab) -> None:
    best = {}
    for parallelism in (1, 2):
        tables = [_filled(lab, f"bench.one{parallelism}_{number}", ROWS, buckets=1) for number in range(RUNS)]
        best[parallelism] = min(_timed_here(lab, table, parallelism).cpu_s for table in tables)
    one, two = (best[each] / ROWS * 1e6 for each in (1, 2))
    figures.add(
        f"{ROWS:,} rows of one bucket, two tasks, CPU", f"{two:.3f} us a row", f"one {one:.3f} us", one / two, "1.0"
    )
    cores = os.cpu_count() or 1
    if cores >= 4:
        seconds = {each: _spark_s(lab, each) for each in (1, 2)}
        figures.add("  by the clock", f"{seconds[2]:.2f} s", f"one {seconds[1]:.2f} s", seconds[1] / seconds[2], "1.8")


def _spark_s(lab: Lab, tasks: int) -> float:
    """Return the seconds of the write stage of so many tasks of one bucket on Spark."""
    from fluss_lab.spark.tiering.spark_executor import SparkTieringExecutor

    found = []
    for number in range(RUNS):
        table = _filled(lab, f"bench.clock{tasks}_{number}", ROWS, buckets=1)
        size = sum(each.require().size_bytes for each in lab.connection.admin().buckets(table.info))
        options = TieringOptions(split_bytes_min=-(-size // tasks), split_bytes_max=-(-size // tasks))
        executor = SparkTieringExecutor(lab.spark)
        report = run_round(lab.connection, lab.lake_storage(), executor, table_id=table.info.table_id, options=options)
        assert report is not None
        assert report.splits == tasks
        found.append(report.seconds["write"])
    return min(found)
