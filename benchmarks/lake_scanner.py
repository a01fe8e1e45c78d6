"""The log read back from the lake: a scanner, a changelog, net changes, beside pyarrow reading the same files.

A log table, and the changelog of a primary-key table whose rows were changed in several rounds; the cluster holds nothing of
either any more. Each reader is a process of its own, so that its memory is its own, and reads warm: modules and manifests
are loaded by a first read that is not timed.
``python -m benchmarks.lake_scanner --rows 200000`` tries it small.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures, millions
from fluss_lab.client import Connection, ServerAddress
from fluss_lab.model import OffsetSpec, TableInfo, TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster, MockClock
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

BUCKETS: Final = 4
BATCH_ROWS: Final = 20_000
ROUNDS: Final = 4
RUNS: Final = 3
YEAR_MS: Final = 365 * 24 * 3_600_000
DATABASE: Final = "bench"
#: How long a reader may take; it is used up only when something is broken.
PATIENCE_S: Final = 600.0


@dataclass(frozen=True)
class Reading:
    """What a reader did."""

    records: int
    seconds: float
    peak_bytes: int


def run(count: int = 2_000_000) -> None:
    """Measure and print; `count` is how many records each table's log has, about."""
    figures = Figures(f"log from the lake: {count:,} records, {BUCKETS} buckets, best of {RUNS}; goal 0.5 M rows/s")
    options = {"kv.snapshot.num-retained": 1, "log.segment.file-size": "16mb"}
    with EmbeddedCluster(options=options, clock=MockClock()) as cluster:
        bench = Bench(cluster)
        for name, info in (("log table", bench.log_table(count)), ("changelog", bench.keyed_table(count))):
            end = sum(each.require().end_offset for each in cluster.connection.admin().buckets(info))
            held = sum(
                each.require().end_offset - each.require().start_offset
                for each in cluster.connection.admin().buckets(info)
            )
            assert not held, f"{held} records are still in the cluster"
            files = bench.files(info)
            limit = _in_process(_parquet, files, not info.is_log_table)
            figures.add(f"{name}: pyarrow read{' and sort' if not info.is_log_table else ''}", _shown(limit))
            for what, reader in _READERS.items():
                if what == "net changes" and info.is_log_table:
                    continue
                ours = _in_process(reader, cluster.address.to_json(), str(info.path))
                assert ours.records == end or what == "net changes", (what, ours, end)
                # Of net changes too: how many records they were made of.
                ours = Reading(end, ours.seconds, ours.peak_bytes)
                ratio = (ours.records / ours.seconds) / (limit.records / limit.seconds)
                figures.add(f"{name}: {what}", _shown(ours), f"pyarrow {_rate(limit)}", ratio, "0.5 M rows/s")
    figures.print()


def _shown(reading: Reading) -> str:
    return f"{_rate(reading)}, peak {reading.peak_bytes / 2**20:.0f} MB"


def _rate(reading: Reading) -> str:
    return millions(reading.records / reading.seconds)


# -- the tables ---------------------------------------------------------------------------------------------------------


class Bench:
    """Makes tables whose log has left the cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._admin = cluster.connection.admin()
        self._admin.create_database(DATABASE, if_not_exists=True)

    def log_table(self, count: int) -> TableInfo:
        """Return a log table of so many rows, tiered in rounds."""
        info = self._create("flow")
        data = rows(count)
        step = -(-count // ROUNDS)
        for first in range(0, count, step):
            with self._cluster.connection.append_writer(info.path) as writer:
                for start in range(first, min(first + step, count), BATCH_ROWS):
                    writer.append(data.slice(start, min(BATCH_ROWS, first + step - start)))
            self._tier(info)
        self._leave(info)
        return info

    def keyed_table(self, count: int) -> TableInfo:
        """Return a primary-key table with so many changes: a half are inserts, the others updates of some, in rounds."""
        info = self._create("state", primary_key=["id"])
        base = rows(count // 2)
        random = np.random.default_rng(5)
        changed = [random.choice(len(base), count // 4 // ROUNDS, replace=False) for _ in range(ROUNDS)]
        for batch in [base, *(_updated(base, keys, number) for number, keys in enumerate(changed))]:
            with self._cluster.connection.upsert_writer(info.path) as writer:
                for start in range(0, len(batch), BATCH_ROWS):
                    writer.upsert(batch.slice(start, BATCH_ROWS))
            self._tier(info)
        self._leave(info)
        return info

    def _create(self, name: str, **definition: Any) -> TableInfo:
        properties = {
            "table.datalake.enabled": True,
            "table.datalake.freshness": "1h",
            "table.datalake.auto-maintenance": False,
        }
        descriptor = make_descriptor(SCHEMA, buckets=BUCKETS, properties=properties, **definition)
        return self._admin.create_table(TablePath(DATABASE, name), descriptor)

    def _tier(self, info: TableInfo) -> None:
        connection = self._cluster.connection
        storage = connection.lake_storage()
        assert storage is not None
        run_round(connection, storage, LocalTieringExecutor(), table_id=info.table_id)

    def _leave(self, info: TableInfo) -> None:
        """Let the cluster drop the log."""
        tablet = self._cluster.tablet()
        if not info.is_log_table:
            for each in self._admin.buckets(info):
                tablet.snapshot_now(each.bucket)
        tablet.apply_retention(MockClock().now_ms() + YEAR_MS)

    def files(self, info: TableInfo) -> list[str]:
        """Return the table's files in the lake, those of events included."""
        storage = self._cluster.connection.lake_storage()
        assert storage is not None
        properties = dict(storage.properties)
        table = load_catalog(properties.pop("name"), **properties).load_table((DATABASE, info.path.table))
        found = table.inspect.files()["file_path"].to_pylist()
        return [path.removeprefix("file://") for path in found]


def _updated(base: pa.RecordBatch, keys: np.ndarray[Any, np.dtype[np.int64]], number: int) -> pa.RecordBatch:
    taken = base.take(pa.array(keys))
    position = SCHEMA.get_field_index("amount")
    columns = list(taken.columns)
    columns[position] = pa.array(np.full(len(keys), number + 1_000, np.int32))
    return pa.record_batch(columns, schema=SCHEMA)


# -- the readers, each in a process of its own --------------------------------------------------------------------------


def _in_process(reader: Callable[..., int], *arguments: Any) -> Reading:
    """Run a reader in a fresh process some times; the fastest counts."""
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe(duplex=False)
    process = context.Process(target=_measured, args=(other, reader, arguments))
    process.start()
    try:
        assert mine.poll(PATIENCE_S), f"{reader.__name__} took longer than {PATIENCE_S} s"
        found = mine.recv()
    finally:
        process.kill()
        process.join()
    assert isinstance(found, Reading), found
    return found


def _measured(pipe: Any, reader: Callable[..., int], arguments: Sequence[Any]) -> None:
    best = float("inf")
    for number in range(RUNS + 1):
        started = time.perf_counter()
        records = reader(*arguments)
        if number:
            best = min(best, time.perf_counter() - started)
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    peak_kb = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    pipe.send(Reading(records, best, peak_kb * 1024))


def _parquet(files: Sequence[str], ordered: bool) -> int:
    """Read all columns of the files, bucket by bucket; a changelog has to be put in order besides."""
    count = 0
    for path in files:
        table = pq.read_table(path, partitioning=None)
        offset = next(name for name in table.column_names[::-1] if name in {"__offset", "_r8"})
        if ordered:
            table = table.sort_by(offset)
        count += table.num_rows
    return count


def _scanned(address: str, path: str) -> int:
    with _connected(address) as connection:
        info = connection.table_info(TablePath.parse(path))
        wanted = sum(each.require().end_offset for each in connection.admin().buckets(info))
        count = 0
        with connection.log_scanner(info.path) as scanner:
            scanner.subscribe_all(OffsetSpec.earliest())
            deadline = time.monotonic() + PATIENCE_S
            while count < wanted:
                assert time.monotonic() < deadline
                count += sum(len(batch.records) for batch in scanner.poll(1.0))
        return count


def _replayed(address: str, path: str) -> int:
    with _connected(address) as connection:
        return sum(batch.num_rows for batch in TableReader(connection, TablePath.parse(path)).changelog().to_batches())


def _net(address: str, path: str) -> int:
    with _connected(address) as connection:
        log = TableReader(connection, TablePath.parse(path)).changelog(net=True)
        return sum(batch.num_rows for batch in log.to_batches())


def _connected(address: str) -> Connection:
    known = ServerAddress.from_json(address)
    return Connection(lambda: known)


_READERS: Final[dict[str, Callable[[str, str], int]]] = {
    "scanner": _scanned,
    "changelog": _replayed,
    "net changes": _net,
}


def main() -> None:
    """Run with a size from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    run(parser.parse_args().rows)


if __name__ == "__main__":
    main()
