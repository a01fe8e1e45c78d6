"""Rows out of lake files in Arrow: ours beside ``pyarrow.dataset`` over the same files; a primary-key table clean and dirty.

``python -m benchmarks.lake_rows --rows 200000 --rounds 10 --updates 2000`` tries it small. Ours gives the rows that live,
checked and in the table's own types; pyarrow gives whatever is in the data files.
"""

from __future__ import annotations

import argparse
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.data import SCHEMA, rows
from benchmarks.lake_reading import BATCH_ROWS, DATABASE, Bench, Size
from benchmarks.report import Figures, Timing, timed
from fluss_lab.lake import LakeSource, LakeSplit
from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

RUNS: Final = 7
LOOK_S: Final = 0.002
#: At most so much of pyarrow's time; with deletes at most so much of the time without.
GOAL_PEER: Final = "0.6"
GOAL_DIRTY: Final = "1.5"


@dataclass(frozen=True)
class Query:
    """What is read.

    Attributes:
        columns: Names.
        where: Which rows; None: all.
    """

    columns: Sequence[str]
    where: pc.Expression | None = None


DEFAULT: Final = Size(5_000_000, 50, 10_000)


def run(size: Size = DEFAULT) -> None:
    """Measure and print."""
    title = f"rows of lake files: {size.keys:,} rows; dirty: {size.rounds} rounds of {size.updates:,} updates"
    figures = Figures(f"{title}, 4 buckets; wall (CPU) seconds")
    with EmbeddedCluster() as cluster:
        bench = Bench(cluster.connection, size)
        log = _log_table(bench)
        clean = bench.create("clean")
        bench.write(clean, bench.final())
        dirty = bench.create("dirty")
        for batch in (bench.first(), *bench.updates()):
            bench.write(dirty, batch)
        for name, query in _queries(size).items():
            _beside_pyarrow(figures, bench, log, name, query)
            _dirty_beside_clean(figures, bench, clean, dirty, name, query)
        figures.add("primary key, count: dirty", _shown(_counted(bench, dirty)))
        bench.compact(dirty)
        for name, query in _queries(size).items():
            _dirty_beside_clean(figures, bench, clean, dirty, f"{name}, compacted", query)
        _counts(figures, bench, clean, dirty)
    figures.add("peak memory of the process, MB", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}")
    figures.print()


def _queries(size: Size) -> dict[str, Query]:
    names = SCHEMA.names
    some = (pc.field("id") >= size.keys // 2) & (pc.field("id") < size.keys // 2 + size.keys // 100)
    return {
        "full scan": Query(names),
        "2 of 6 columns": Query(["id", "amount"]),
        "1 % by a range": Query(names, some),
        "0.2 % anywhere": Query(names, pc.field("symbol") == "SYM00007"),
    }


def _log_table(bench: Bench) -> TableInfo:
    properties = {"table.datalake.enabled": True, "table.datalake.freshness": "1h"}
    info = bench.connection.admin().create_table(
        TablePath(DATABASE, "log"), make_descriptor(SCHEMA, buckets=4, properties=properties)
    )
    whole = rows(bench.size.keys)
    with bench.connection.append_writer(info.path) as writer:
        for start in range(0, len(whole), BATCH_ROWS):
            writer.append(whole.slice(start, BATCH_ROWS))
    run_round(bench.connection, bench.storage, LocalTieringExecutor(), table_id=info.table_id)
    return info


def _planned(bench: Bench, info: TableInfo) -> tuple[LakeSource, list[LakeSplit]]:
    source = bench.storage.create_lake_source(info)
    snapshot = bench.load(info.path.table).current_snapshot()
    assert snapshot is not None
    return source, source.plan(snapshot.snapshot_id)


def _beside_pyarrow(figures: Figures, bench: Bench, info: TableInfo, name: str, query: Query) -> None:
    _, splits = _planned(bench, info)
    files = [split.path.removeprefix("file://") for split in splits]

    def peer() -> Iterator[pa.RecordBatch]:
        scanner = ds.dataset(files, format="parquet").scanner(columns=list(query.columns), filter=query.where)
        yield from scanner.to_batches()

    ours, found, memory = _best(_reader(bench, info, query))
    theirs, expected, their_memory = _best(peer)
    assert found == expected, (name, found, expected)
    figures.add(f"log table, {name}", _shown(ours), f"pyarrow {_shown(theirs)}", theirs.wall_s / ours.wall_s, GOAL_PEER)
    figures.add("   the same per CPU second", "", "", theirs.cpu_s / ours.cpu_s)
    figures.add("   memory above the start, MB", f"{memory:.0f}", f"pyarrow {their_memory:.0f}")


def _dirty_beside_clean(
    figures: Figures, bench: Bench, clean: TableInfo, dirty: TableInfo, name: str, query: Query
) -> None:
    beside, expected, _ = _best(_reader(bench, clean, query))
    measured, found, memory = _best(_reader(bench, dirty, query))
    assert found == expected, (name, found, expected)
    ratio = measured.wall_s / beside.wall_s
    figures.add(f"primary key, {name}: dirty", _shown(measured), f"clean {_shown(beside)}", ratio, GOAL_DIRTY)
    figures.add("   the same in CPU seconds", "", "", measured.cpu_s / beside.cpu_s)
    figures.add("   memory above the start, MB", f"{memory:.0f}")


def _counts(figures: Figures, bench: Bench, clean: TableInfo, dirty: TableInfo) -> None:
    for name, info in (("clean", clean), ("dirty, compacted", dirty)):
        figures.add(f"primary key, count: {name}", _shown(_counted(bench, info)))


def _counted(bench: Bench, info: TableInfo) -> Timing:
    _, splits = _planned(bench, info)

    def count() -> None:
        assert bench.storage.create_lake_source(info).count(splits) == bench.size.keys

    return min((timed(count) for _ in range(RUNS)), key=lambda each: each.wall_s)


def _reader(bench: Bench, info: TableInfo, query: Query) -> Callable[[], Iterator[pa.RecordBatch]]:
    _, splits = _planned(bench, info)

    def read() -> Iterator[pa.RecordBatch]:
        # A source of its own each time: nothing that one keeps is of use to the next.
        source = bench.storage.create_lake_source(info)
        yield from (batch for _, batch in source.read(splits, query.columns, where=query.where))

    return read


def _best(read: Callable[[], Iterator[pa.RecordBatch]]) -> tuple[Timing, int, float]:
    """Return the fastest of some reads, the rows that each found, and the memory that one took."""
    found = 0

    def work() -> None:
        nonlocal found
        found = sum(batch.num_rows for batch in read())

    work()
    best = min((timed(work) for _ in range(RUNS)), key=lambda each: each.wall_s)
    with _watched() as peak:
        work()
    return best, found, peak[0]


@contextmanager
def _watched() -> Iterator[list[float]]:
    """Give a place where the most megabytes will be that Arrow held beyond what it held at first."""
    peak, done = [0.0], threading.Event()
    before = pa.total_allocated_bytes()

    def watch() -> None:
        while not done.wait(LOOK_S):
            peak[0] = max(peak[0], (pa.total_allocated_bytes() - before) / 1e6)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def _shown(timing: Timing) -> str:
    return f"{timing.wall_s:.3f} ({timing.cpu_s:.3f})"


def main() -> None:
    """Run with sizes from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=DEFAULT.keys)
    parser.add_argument("--rounds", type=int, default=DEFAULT.rounds)
    parser.add_argument("--updates", type=int, default=DEFAULT.updates)
    chosen = parser.parse_args()
    run(Size(chosen.rows, chosen.rounds, chosen.updates))


if __name__ == "__main__":
    main()
