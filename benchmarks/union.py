"""Union reads in Arrow beside pyarrow's own dataset reader over the same files; freshness; memory.

``python -m benchmarks.union --rows 400000 --rounds 5`` tries it small.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures, millions
from fluss_lab.workbench import Lab, Table

BUCKETS: Final = 4
RUNS: Final = 5
BATCH_ROWS: Final = 20_000
LAKE: Final = {
    "table.datalake.enabled": True,
    "table.datalake.freshness": "1h",
    "table.datalake.auto-maintenance": False,
}

#: Reads a table batch by batch in a process of its own, and tells its peak; files that are mapped do not count.
_MEMORY: Final = """
import json, sys, threading
from pathlib import Path
from fluss_lab.workbench import Lab

def own():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("RssAnon"))

folder, name = sys.argv[1:]
with Lab.open(folder) as lab:
    begin, peak, done = own(), [0.0], threading.Event()
    def watch():
        while not done.wait(0.005):
            peak[0] = max(peak[0], own())
    threading.Thread(target=watch, daemon=True).start()
    count = sum(batch.num_rows for batch in lab.table(name).scan().to_batches())
    done.set()
print(json.dumps({"rows": count, "peak_mb": peak[0], "begin_mb": begin}))
"""


@dataclass(frozen=True)
class Size:
    """How much is written."""

    rows: int = 4_000_000
    rounds: int = 50
    updates: int = 10_000
    appends: int = 300


DEFAULT: Final = Size()


def run(size: Size = DEFAULT) -> None:
    """Measure and print."""
    figures = Figures(f"union reads in Arrow: {size.rows:,} rows, {BUCKETS} buckets, warm, best of {RUNS}")
    with tempfile.TemporaryDirectory() as folder, Lab.open(Path(folder) / "lab") as lab:
        lab.create_database("bench")
        bench = _Bench(lab, size, figures)
        bench.log_table()
        bench.keyed_table()
        bench.keyed_table_after_rounds()
        bench.never_tiered()
        bench.freshness("bench.fresh", {})
        bench.freshness("bench.fresh_keyed", {"primary_key": ["id"]})
        bench.memory(Path(folder) / "lab")
    figures.print()


class _Bench:
    def __init__(self, lab: Lab, size: Size, figures: Figures) -> None:
        self._lab = lab
        self._size = size
        self._figures = figures
        self._random = np.random.default_rng(5)

    def log_table(self) -> None:
        """Measure a log table, all in the lake and with a tenth of it in the log."""
        table = self._create("bench.flow", {"bucket_key": ["id"]})
        self._append(table, rows(self._size.rows))
        table.tier()
        self._compare("log table, all in the lake", table, self._size.rows)
        self._append(table, rows(self._size.rows // 10))
        self._compare("log table, a tenth in the log", table, self._size.rows * 11 // 10)

    def keyed_table(self) -> None:
        """Measure a primary-key table, clean and with updates of a tenth of its rows in the log."""
        table = self._create("bench.keyed", {"primary_key": ["id"]})
        base = rows(self._size.rows)
        self._upsert(table, base)
        table.tier()
        self._compare("primary-key table, clean", table, self._size.rows)
        keys = self._random.choice(self._size.rows, self._size.rows // 10, replace=False)
        self._upsert(table, _changed(base, keys, 1))
        self._compare("primary-key table, a tenth updated in the log", table, self._size.rows)

    def keyed_table_after_rounds(self) -> None:
        """Measure a primary-key table after many rounds of updates, without a compaction."""
        table = self._create("bench.worn", {"primary_key": ["id"]})
        base = rows(self._size.rows)
        self._upsert(table, base)
        table.tier()
        clean = self._compare("primary-key table, before rounds of deletes", table, self._size.rows)
        for number in range(self._size.rounds):
            keys = self._random.choice(self._size.rows, self._size.updates, replace=False)
            self._upsert(table, _changed(base, keys, number + 2))
            table.tier()
        worn = self._compare(f"primary-key table, after {self._size.rounds} rounds of deletes", table, self._size.rows)
        self._figures.add(
            "after the rounds beside before", f"{worn:.3f} s", f"clean {clean:.3f} s", worn / clean, "at most 1.5"
        )

    def never_tiered(self) -> None:
        """Measure tables that have no lake."""
        count = self._size.rows // 4
        log = self._create("bench.unlaked", {"bucket_key": ["id"]}, lake=False)
        self._append(log, rows(count))
        plain = _seconds(lambda: log.scan().to_arrow(), count)
        self._figures.add("log table without a lake", millions(count / plain))
        keyed = self._create("bench.unlaked_keyed", {"primary_key": ["id"]}, lake=False)
        base = rows(count)
        self._upsert(keyed, base)
        first = keyed.read_point()
        seconds = _seconds(lambda: keyed.scan().to_arrow(), count)
        how = _how(keyed)
        self._figures.add(
            f"primary-key table without a lake ({how})", millions(count / seconds),
            f"log table {millions(count / plain)}", plain / seconds,
        )  # fmt: skip
        self._upsert(keyed, _changed(base, self._random.choice(count, count // 10, replace=False), 1))
        seconds = _seconds(lambda: keyed.scan(read_point=first).to_arrow(), count)
        self._figures.add("the same, as it was before a tenth was updated", millions(count / seconds))

    def freshness(self, name: str, definition: dict[str, Any]) -> None:
        """Measure how long after its acknowledgement a small write is seen by a union read."""
        table = self._create(name, definition or {"bucket_key": ["id"]})
        base = rows(50_000)
        (self._upsert if definition else self._append)(table, base)
        table.tier()
        waits = []
        for number in range(self._size.appends):
            one = _changed(base, np.array([number % 1000]), number + 1_000)
            (self._upsert if definition else self._append)(table, one)
            started = time.perf_counter()
            found = table.scan(where=f"amount = {number + 1_000}").to_arrow()
            waits.append(time.perf_counter() - started)
            assert found.num_rows == 1, (number, found)
        waits.sort()
        p50, p99 = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
        kind = "primary-key table" if definition else "log table"
        self._figures.add(
            f"{kind}: a fresh row is read after its ack, p50 / p99", f"{p50 * 1e3:.1f} / {p99 * 1e3:.1f} ms", "",
            p99 / 0.1, "at most 1 (100 ms)",
        )  # fmt: skip

    def memory(self, folder: Path) -> None:
        """Measure the peak of a process that reads batch by batch, at two sizes."""
        for name, definition in (("small", 10), ("large", 1)):
            table = self._create(f"bench.{name}", {"primary_key": ["id"]})
            self._upsert(table, rows(self._size.rows // definition))
            table.tier()
        for label, tables in (("primary-key table", ("bench.small", "bench.large")),):
            peaks = [_peak(folder, name) for name in tables]
            self._figures.add(
                f"to_batches, {label}: peak of {peaks[1]['rows']:,} rows", f"{peaks[1]['peak_mb']:.0f} MB",
                f"{peaks[0]['rows']:,} rows {peaks[0]['peak_mb']:.0f} MB, idle {peaks[0]['begin_mb']:.0f} MB",
                peaks[1]["peak_mb"] / peaks[0]["peak_mb"],
            )  # fmt: skip

    # -- inside --------------------------------------------------------------------------------------------------------

    def _create(self, name: str, definition: dict[str, Any], *, lake: bool = True) -> Table:
        return self._lab.create_table(name, SCHEMA, buckets=BUCKETS, properties=LAKE if lake else {}, **definition)

    def _append(self, table: Table, batch: pa.RecordBatch) -> None:
        with table.writer() as writer:
            for piece in _pieces(batch):
                writer.append(piece)  # type: ignore[union-attr]

    def _upsert(self, table: Table, batch: pa.RecordBatch) -> None:
        with table.writer() as writer:
            for piece in _pieces(batch):
                writer.upsert(piece)  # type: ignore[union-attr]

    def _compare(self, what: str, table: Table, count: int) -> float:
        """Add a line: rows a second beside those that pyarrow reads of the same files; return our seconds."""
        plan = table.scan().plan()
        files = [split.path.removeprefix("file://") for split in plan.splits]
        in_files = sum(split.rows for split in plan.splits)
        columns = SCHEMA.names
        theirs = _seconds(lambda: ds.dataset(files).to_table(columns=columns), in_files)
        ours = _seconds(lambda: table.scan().to_arrow(), count)
        self._figures.add(
            what, f"{millions(count / ours)}, {ours:.3f} s", f"pyarrow.dataset {millions(in_files / theirs)}",
            (count / ours) / (in_files / theirs), "at least 0.6",
        )  # fmt: skip
        counted = time.perf_counter()
        assert table.scan().count() == count
        self._figures.add(f"{what}: count()", f"{time.perf_counter() - counted:.4f} s")
        return ours


def _how(table: Table) -> str:
    return "live rows" if any(each.live for each in table.scan().explain().buckets) else "log folded"


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(batch), BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


def _changed(base: pa.RecordBatch, keys: np.ndarray[Any, np.dtype[np.int64]], amount: int) -> pa.RecordBatch:
    taken = base.take(pa.array(keys))
    place = SCHEMA.get_field_index("amount")
    return taken.set_column(place, SCHEMA.field(place), pa.array(np.full(len(keys), amount, np.int32)))


def _seconds(work: Callable[[], pa.Table], count: int) -> float:
    best = float("inf")
    for _ in range(RUNS):
        started = time.perf_counter()
        found = work()
        best = min(best, time.perf_counter() - started)
        assert found.num_rows == count, (found.num_rows, count)
    return best


def _peak(folder: Path, name: str) -> dict[str, Any]:
    found = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(folder), name], check=True, capture_output=True, text=True
    )
    reported: dict[str, Any] = json.loads(found.stdout)
    return reported


def main() -> None:
    """Run with sizes from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=DEFAULT.rows)
    parser.add_argument("--rounds", type=int, default=DEFAULT.rounds)
    parser.add_argument("--updates", type=int, default=DEFAULT.updates)
    parser.add_argument("--appends", type=int, default=DEFAULT.appends)
    chosen = parser.parse_args()
    run(Size(chosen.rows, chosen.rounds, chosen.updates, chosen.appends))


if __name__ == "__main__":
    main()
