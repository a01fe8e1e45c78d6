"""Peak memory of one tiering task by the length of its split: it should not grow with it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures
from fluss_lab.client.kv.kv_snapshot_reader import KvSnapshot
from fluss_lab.errors import UnavailableError
from fluss_lab.model.json_codec import to_plain
from fluss_lab.testing import wait_until
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.round.split_generator import TieringSnapshotSplit
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.tiering.task.tiering_task import TaskProgress
from fluss_lab.workbench import Lab, Table

SIZES = (100_000, 1_000_000, 10_000_000)
BATCH_ROWS = 20_000
CONFIG = {"kv.snapshot.interval": "2s"}
#: One split, however long.
WHOLE = TieringOptions(split_bytes_max=1 << 40)

#: Files that are mapped count as memory of a process while there is plenty; what is its own is told apart.
_RUN = """
import json, sys, threading
from pathlib import Path
from fluss_lab.tiering.task.tiering_task import run_task
from fluss_lab.tiering.task.tiering_task import TaskResult

def own():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("RssAnon"))

peak, done = [0.0], threading.Event()
def watch():
    while not done.wait(0.01):
        peak[0] = max(peak[0], own())
threading.Thread(target=watch, daemon=True).start()
result = TaskResult.from_bytes(run_task(sys.stdin.buffer.read()))
done.set()
if result.error is not None:
    raise result.error
print(json.dumps({"rows": result.rows, "events": result.events, "peak_mb": peak[0], "end_mb": own()}))
"""


class _Captured:
    """Keeps the tasks of a round instead of running them."""

    parallelism = 1
    is_alive = True

    def __init__(self) -> None:
        self.tasks: list[bytes] = []

    def run(self, tasks: Sequence[bytes], progress: TaskProgress | None = None) -> list[bytes]:
        """Keep the tasks, and end the round."""
        self.tasks = list(tasks)
        raise UnavailableError("only the tasks were wanted")

    def cancel(self) -> None:
        """Do nothing."""


def run() -> None:
    """Measure and print."""
    figures = Figures("memory: peak of one task's process by rows of its split, MB")
    with tempfile.TemporaryDirectory() as folder, Lab.open(Path(folder) / "lab", config=CONFIG) as lab:
        lab.create_database("bench")
        _kind(figures, "log table", _log_table(lab))
        keyed = _keyed_table(lab, "bench.keyed", SIZES[-1])
        _kind(figures, "primary-key table, half updates", _tasks(keyed))
        small = _keyed_table(lab, "bench.small", SIZES[-1] // 10)
        _kind(figures, "key-value snapshot", _snapshot_task(small) | _snapshot_task(keyed))
    figures.print()


def _kind(figures: Figures, name: str, tasks: dict[int, bytes]) -> None:
    first = None
    for size, task in tasks.items():
        found = run_apart(task)
        first = first or found["peak_mb"]
        written = f"{found['rows']:,.0f} rows, {found['events']:,.0f} events"
        figures.add(f"{name}, {size:,} records", f"{found['peak_mb']:.0f} MB", written, found["peak_mb"] / first)


def run_apart(task: bytes) -> dict[str, float]:
    """Run a task in a process of its own; return its peak memory in MB, and what it wrote."""
    done = subprocess.run([sys.executable, "-c", _RUN], input=task, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode())
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _tasks(table: Table) -> dict[int, bytes]:
    """Return a task for the first so many records of a table of one bucket, by their number."""
    captured = _Captured()
    lab = table.lab
    with contextlib.suppress(UnavailableError):
        run_round(lab.connection, lab.lake_storage(), captured, table_id=table.info.table_id, options=WHOLE)
    value = json.loads(captured.tasks[0])
    tasks = {}
    for size in SIZES:
        split = value["split"] | {"stopping_offset": min(size, value["split"]["stopping_offset"])}
        tasks[size] = json.dumps(value | {"split": split, "round_id": uuid.uuid4().hex}).encode()
    return tasks


def _log_table(lab: Lab) -> dict[int, bytes]:
    table = lab.create_table("bench.log", SCHEMA, buckets=1, properties={"table.datalake.enabled": True})
    data = rows(SIZES[-1])
    with lab.connection.append_writer(table.path) as writer:
        for start in range(0, SIZES[-1], BATCH_ROWS):
            writer.append(data.slice(start, BATCH_ROWS))
    return _tasks(table)


def _keyed_table(lab: Lab, path: str, records: int) -> Table:
    """Fill a table so that a quarter of the records are inserts, the others halves of updates of random rows."""
    table = lab.create_table(path, SCHEMA, primary_key=["id"], buckets=1, properties={"table.datalake.enabled": True})
    keys = records // 4
    data, random = rows(keys), np.random.default_rng(7)
    with lab.connection.upsert_writer(table.path) as writer:
        for start in range(0, keys, BATCH_ROWS):
            writer.upsert(data.slice(start, BATCH_ROWS))
            # One update is two records; three records of updates come for each insert.
            chosen = random.integers(0, min(keys, start + BATCH_ROWS), BATCH_ROWS * 3 // 2)
            prices = pa.array(np.round(random.random(len(chosen)) * 1_000, 2))
            writer.upsert(data.take(pa.array(chosen)).set_column(2, "price", prices))
    return table


def _snapshot_task(table: Table) -> dict[int, bytes]:
    """Return a task that reads the latest key-value snapshot of a table of one bucket, by the offsets that it covers."""
    admin = table.lab.connection.admin()
    (status,) = admin.buckets(table.info)
    wait_until(lambda: _covers(admin.latest_kv_snapshots(table.path)[0], status.require().end_offset))
    latest = admin.latest_kv_snapshots(table.path)[0]
    assert latest is not None
    value = json.loads(_tasks(table)[SIZES[0]])
    split = TieringSnapshotSplit(table.path, status.bucket, None, 1, 0, latest.snapshot_id, latest.log_offset)
    return {latest.log_offset: json.dumps(value | {"split": to_plain(split), "round_id": uuid.uuid4().hex}).encode()}


def _covers(snapshot: KvSnapshot | None, offset: int) -> bool:
    return snapshot is not None and snapshot.log_offset >= offset
