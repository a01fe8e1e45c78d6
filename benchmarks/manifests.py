"""The first calls of a process on a table of many files, and the share of them that manifests take.

No manifest is decoded yet in a process that has just started; a service that runs keeps what it decoded. The share is an
upper limit of what a faster decoder could gain. ``python -m benchmarks.manifests --rounds 10`` tries it small.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import ManifestEntry

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures
from fluss_lab.client import Connection
from fluss_lab.lake import FetchContext, SupportsCreateFlussLogSource
from fluss_lab.lake.iceberg.metadata import snapshot_files
from fluss_lab.lake.iceberg.metadata.metadata_files import read_manifest
from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

RUNS: Final = 5
ROWS: Final = 1_000
DATABASE: Final = "bench"
#: Rounds and buckets: the lake has so many data files as their product, and a primary-key table as many delete files.
SIZES: Final = ((5, 4), (40, 4), (40, 16))


@dataclass(frozen=True)
class Bench:
    """A table of one kind, tiered in many rounds."""

    cluster: EmbeddedCluster
    info: TableInfo

    def write(self, number: int) -> None:
        """Append rows, or upsert keys of which most are there."""
        connection = self.cluster.connection
        batch = rows(ROWS, number)
        if self.info.is_log_table:
            with connection.append_writer(self.info.path) as writer:
                writer.append(batch)
        else:
            keys = np.random.default_rng(number).choice(ROWS * 4, ROWS, replace=False)
            batch = pa.record_batch([pa.array(keys), *batch.columns[1:]], schema=SCHEMA)
            with connection.upsert_writer(self.info.path) as writer:
                writer.upsert(batch)

    def tier(self, connection: Connection) -> None:
        """Run a round."""
        storage = connection.lake_storage()
        assert storage is not None
        run_round(connection, storage, LocalTieringExecutor(), table_id=self.info.table_id)

    def scan(self, connection: Connection) -> None:
        """Read the table."""
        TableReader(connection, self.info.path).scan().to_arrow()

    def filtered(self, connection: Connection) -> None:
        """Read what a filter leaves of the table: metrics are needed."""
        TableReader(connection, self.info.path).scan(where="id < 10").to_arrow()

    def changelog(self, connection: Connection) -> None:
        """Read all records of all buckets back from the lake."""
        storage = connection.lake_storage()
        assert isinstance(storage, SupportsCreateFlussLogSource)
        snapshot = connection.admin().lake_snapshot(self.info.path)
        source = storage.create_fluss_log_source(self.info)
        for bucket, end in snapshot.offsets.items():
            found = source.fetch_log_records(FetchContext(0, end.end, None, bucket.bucket, snapshot.snapshot_id))
            assert sum(map(len, found)) == end.end


def run(sizes: tuple[tuple[int, int], ...] = SIZES) -> None:
    """Measure and print."""
    figures = Figures("first calls of a process, and a round of a service: the share of manifests")
    for rounds, buckets in sizes:
        with EmbeddedCluster() as cluster:
            cluster.connection.admin().create_database(DATABASE)
            for kind in ("log table", "primary-key table"):
                _measure(figures, _bench(cluster, kind, rounds, buckets), f"{kind}, {rounds} rounds x {buckets} files")
    figures.print()


def _bench(cluster: EmbeddedCluster, kind: str, rounds: int, buckets: int) -> Bench:
    properties = {"table.datalake.enabled": True, "table.datalake.auto-maintenance": False}
    key: dict[str, Any] = {"bucket_key" if kind == "log table" else "primary_key": ["id"]}
    descriptor = make_descriptor(SCHEMA, buckets=buckets, properties=properties, **key)
    path = TablePath(DATABASE, kind.partition("-")[0].replace(" ", "_"))
    bench = Bench(cluster, cluster.connection.admin().create_table(path, descriptor))
    for number in range(rounds):
        bench.write(number)
        bench.tier(cluster.connection)
    return bench


def _measure(figures: Figures, bench: Bench, what: str) -> None:
    calls: list[tuple[str, Callable[[Connection], None], bool]] = [
        ("scan, cold", bench.scan, True),
        ("scan with a filter, cold", bench.filtered, True),
        ("changelog, cold", bench.changelog, True),
        ("round, cold", bench.tier, True),
        ("round, warm", bench.tier, False),
    ]
    for name, call, is_cold in calls:
        best = (float("inf"), 0.0)
        for number in range(RUNS):
            if call == bench.tier:
                bench.write(1_000 + number)
            connection = Connection(lambda: bench.cluster.address) if is_cold else bench.cluster.connection
            with _decoding_timed() as decoding:
                started = time.perf_counter()
                call(connection)
                best = min(best, (time.perf_counter() - started, sum(decoding)))
            if is_cold:
                connection.close()
        whole_s, decoding_s = best
        beside = f"of it manifests {decoding_s * 1000:.0f} ms"
        figures.add(f"{what}: {name}", f"{whole_s * 1000:.0f} ms", beside, decoding_s / whole_s)


@contextmanager
def _decoding_timed() -> Iterator[list[float]]:
    """Give a list to which the seconds of each manifest that is read and decoded are added."""
    seconds: list[float] = []

    def timed(*arguments: Any) -> tuple[ManifestEntry, ...]:
        started = time.perf_counter()
        entries = read_manifest(*arguments)
        seconds.append(time.perf_counter() - started)
        return entries

    with mock.patch.object(snapshot_files, "read_manifest", timed):
        yield seconds


def main() -> None:
    """Run with sizes from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--buckets", type=int, default=4)
    chosen = parser.parse_args()
    run(SIZES if chosen.rounds is None else ((chosen.rounds, chosen.buckets),))


if __name__ == "__main__":
    main()
