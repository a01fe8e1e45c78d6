"""A tiering round from log to lake snapshot, beside plain pyarrow writing the same rows with the same settings."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures, Timing, cpu_of, millions, timed
from fluss_lab.lake.iceberg.files.parquet_output import ParquetSettings, choose_encodings
from fluss_lab.lake.system_columns import BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss_lab.server.cluster import read_discovery
from fluss_lab.tiering.round.round_report import TieringReport
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.tiering.task.tiering_task import TaskProgress, run_task
from fluss_lab.workbench import Lab, Table

ROWS = 2_000_000
BUCKETS = 4
BATCH_ROWS = 20_000
RUNS = 5


def run() -> None:
    """Measure and print."""
    figures = Figures(f"tiering: {ROWS:,} rows of some 64 bytes, {BUCKETS} buckets, Spark {_spark_master()}, warm")
    with tempfile.TemporaryDirectory() as folder, Lab.open(Path(folder) / "lab") as lab:
        lab.create_database("bench")
        _round(lab, "bench.warm", 200_000)
        rounds = [_round(lab, f"bench.flow{number}", ROWS) for number in range(RUNS)]
        table, report, whole_s = min(rounds, key=lambda each: each[2])
        plain = _plain_pyarrow(lab, table, Path(folder))
        write = _write_stage(lab)
    limit = ROWS / plain.wall_s
    figures.add("end to end (one call of tier)", millions(ROWS / whole_s), f"one core of pyarrow {millions(limit)}",
                ROWS / whole_s / limit, "0.2")  # fmt: skip
    beside = f"pyarrow {millions(ROWS / plain.cpu_s)}"
    tasks_s, all_s = write.timing.cpu_s, write.timing.cpu_s + write.server_cpu_s
    figures.add("write stage, per CPU second of tasks", millions(ROWS / tasks_s), beside, plain.cpu_s / tasks_s, "0.6")
    figures.add("  the server's CPU counted too", millions(ROWS / all_s), beside, plain.cpu_s / all_s)
    for stage, seconds in report.seconds.items():
        if stage != "total":
            figures.add(f"  share of {stage}", f"{seconds:.3f} s", ratio=seconds / report.seconds["total"])
    figures.add("files, bytes", f"{report.files}, {report.bytes / 1e6:.1f} MB")
    figures.print()


def _spark_master() -> str:
    from fluss_lab.spark.session.spark_session import DEFAULT_MASTER

    return DEFAULT_MASTER


def _round(lab: Lab, path: str, count: int) -> tuple[Table, TieringReport, float]:
    table = _filled(lab, path, count)
    lab.spark  # noqa: B018 - Spark's start is not part of a round
    started = time.perf_counter()
    report = table.tier()
    return table, report, time.perf_counter() - started


def _filled(lab: Lab, path: str, count: int) -> Table:
    table = lab.create_table(path, SCHEMA, buckets=BUCKETS, properties={"table.datalake.enabled": True})
    data = rows(count)
    with table.lab.connection.append_writer(table.path) as writer:
        for start in range(0, count, BATCH_ROWS):
            writer.append(data.slice(start, BATCH_ROWS))
    return table


def _lake_rows(table: Table) -> list[pa.Table]:
    """Return what the round wrote, a table a bucket, in memory: user's and system columns."""
    names = [*SCHEMA.names, BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN]
    whole = table.scan(columns=names).to_arrow()
    return [whole.filter(pc.field(BUCKET_COLUMN) == bucket).combine_chunks() for bucket in range(BUCKETS)]


def _plain_pyarrow(lab: Lab, table: Table, folder: Path) -> Timing:
    """Time one thread of pyarrow that writes rows in memory with the settings that our files have."""
    parts = _lake_rows(table)
    settings = ParquetSettings.of(dict(lab.iceberg(table.path).properties))
    arguments = settings.writer_arguments(choose_encodings(parts[0], (OFFSET_COLUMN, TIMESTAMP_COLUMN)))
    threads = pa.cpu_count()
    pa.set_cpu_count(1)

    def write() -> None:
        for bucket, part in enumerate(parts):
            with pq.ParquetWriter(folder / f"plain-{bucket}.parquet", part.schema, **arguments) as writer:
                writer.write_table(part, row_group_size=settings.row_group_rows)

    try:
        write()
        return min((timed(write) for _ in range(RUNS)), key=lambda timing: timing.cpu_s)
    finally:
        pa.set_cpu_count(threads)


class _TimedHere:
    """Runs a round's tasks one after another in this process, and times them: the write stage alone."""

    parallelism = 1
    is_alive = True

    def __init__(self, server_pid: int) -> None:
        self.server_pid = server_pid
        self.timing = Timing(0, 0)
        self.server_cpu_s = 0.0

    def run(self, tasks: Sequence[bytes], progress: TaskProgress | None = None) -> list[bytes]:
        """Run and time the tasks."""
        results: list[bytes] = []
        before = cpu_of(self.server_pid)
        self.timing = timed(lambda: results.extend(run_task(task) for task in tasks))
        self.server_cpu_s = cpu_of(self.server_pid) - before
        return results

    def cancel(self) -> None:
        """Do nothing: the tasks run in the caller."""


def _write_stage(lab: Lab) -> _TimedHere:
    pid = read_discovery(lab.folder).servers[0].pid  # type: ignore[union-attr, arg-type]
    best: _TimedHere | None = None
    for number in range(RUNS):
        table = _filled(lab, f"bench.write{number}", ROWS)
        executor = _TimedHere(pid)
        run_round(lab.connection, lab.lake_storage(), executor, table_id=table.info.table_id, session_id=lab.session_id)
        if best is None or executor.timing.cpu_s < best.timing.cpu_s:
            best = executor
    assert best is not None
    return best
