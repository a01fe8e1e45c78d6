"""A lake in MinIO beside one in a folder: rounds, reads, and the requests that each makes of the store and of the catalog.

The same tables in three lakes: a folder with a catalog in SQLite, a bucket with such a catalog, a bucket with Nessie; each figure
of one beside the other's in turn. ``python -m benchmarks.object_store --rows 100000`` tries it small. Server and tasks
run in this process, so that nothing but the lake differs; MinIO works beside them, on the same cores.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count as count_up
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures, Timing, millions, timed
from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from tools.beyond.fault_proxy import FaultProxy
from tools.beyond.minio_server import MinioServer
from tools.beyond.nessie_server import NessieServer
from tools.beyond.pinned_parts import PartUnavailableError

ROWS: Final = 1_000_000
SHORT_ROWS: Final = 1_000
BUCKETS: Final = 4
BATCH_ROWS: Final = 100_000
RUNS: Final = 5
SHORT_RUNS: Final = 11
#: What the others are held against.
FOLDER: Final = "folder, SQLite"
KEYS: Final[Mapping[str, Sequence[str]]] = {"log table": (), "primary-key table": ("id",)}
_DATABASE: Final = "bench"
_UNTIMED: Final = {"table.datalake.enabled": True, "table.datalake.freshness": "1h"}


@dataclass(frozen=True)
class Place:
    """A cluster with a lake somewhere."""

    cluster: EmbeddedCluster

    def create(self, name: str, key: Sequence[str]) -> TableInfo:
        """Create a table."""
        descriptor = make_descriptor(SCHEMA, primary_key=key, buckets=BUCKETS, properties=_UNTIMED)
        return self.cluster.connection.admin().create_table(TablePath(_DATABASE, name), descriptor)

    def write(self, info: TableInfo, whole: pa.RecordBatch) -> None:
        """Write rows."""
        connection = self.cluster.connection
        if not info.is_log_table:
            with connection.upsert_writer(info.path) as writer:
                for start in range(0, len(whole), BATCH_ROWS):
                    writer.upsert(whole.slice(start, BATCH_ROWS))
            return
        with connection.append_writer(info.path) as appender:
            for start in range(0, len(whole), BATCH_ROWS):
                appender.append(whole.slice(start, BATCH_ROWS))

    def tier(self, info: TableInfo) -> Timing:
        """Time a round."""
        connection = self.cluster.connection
        storage = connection.lake_storage()
        assert storage is not None
        return timed(lambda: run_round(connection, storage, LocalTieringExecutor(), table_id=info.table_id))

    def read(self, info: TableInfo, count: int) -> Timing:
        """Time a read of all rows, which are in the lake."""
        found: list[int] = []
        reader = TableReader(self.cluster.connection, info.path)
        timing = timed(lambda: found.append(len(reader.scan().to_arrow())))
        assert found == [count], (found, count)
        return timing


def run(count: int = ROWS) -> None:
    """Measure and print."""
    try:
        with ExitStack() as stack:
            minio = stack.enter_context(MinioServer())
            nessie = stack.enter_context(NessieServer(minio, minio.make_bucket("nessie")))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            lakes = {
                FOLDER: {},
                "MinIO, SQLite": _of_sqlite(minio, folder / "timed.db", "timed"),
                "MinIO, Nessie": nessie.lake_options(),
            }
            _measure(stack, lakes, count)
            _count(stack, minio, folder)
    except PartUnavailableError as error:
        print(f"object_store: not measured: {error}")


def _of_sqlite(minio: MinioServer, file: Path, bucket: str, endpoint: str | None = None) -> dict[str, str]:
    place = {"type": "sql", "uri": f"sqlite:///{file}", "warehouse": minio.make_bucket(bucket)}
    return {**place, **minio.lake_options(endpoint)}


def _place(stack: ExitStack, lake: Mapping[str, str]) -> Place:
    options = {f"datalake.iceberg.{key}": value for key, value in lake.items()}
    cluster = stack.enter_context(EmbeddedCluster(options=options))
    cluster.connection.admin().create_database(_DATABASE)
    return Place(cluster)


# -- times ---------------------------------------------------------------------------------------------------------------


def _measure(stack: ExitStack, lakes: Mapping[str, Mapping[str, str]], count: int) -> None:
    places = {name: _place(stack, lake) for name, lake in lakes.items()}
    figures = Figures(
        f"a lake in MinIO: {count:,} rows of some 64 bytes, {BUCKETS} buckets; medians, CPU without MinIO's"
    )
    whole, of_rows = rows(count), partial(_pace, count)
    for kind, key in KEYS.items():
        warm = {name: [place.create(f"warm_{len(key)}", key)] for name, place in places.items()}
        tables = {
            name: [place.create(f"t{len(key)}_{run}", key) for run in range(RUNS)] for name, place in places.items()
        }
        for name, place in places.items():
            _round(rows(SHORT_ROWS), place, warm[name][0])
        for what, action, among, runs, shown in (
            ("round", partial(_round, whole), tables, RUNS, of_rows),
            (f"round of {SHORT_ROWS:,} rows", partial(_short_round, count_up()), warm, SHORT_RUNS, _seconds),
            ("first read of all rows", partial(Place.read, count=count), tables, RUNS, of_rows),
            ("the same again", partial(Place.read, count=count), tables, RUNS, of_rows),
        ):
            timings: dict[str, list[Timing]] = {name: [] for name in places}
            for number in range(runs):
                # In turn, so that what else the machine does strikes all.
                for name, place in places.items():
                    timings[name].append(action(place, among[name][number % len(among[name])]))
            _add(figures, f"{kind}: {what}", timings, shown)
    figures.print()


def _round(written: pa.RecordBatch, place: Place, info: TableInfo) -> Timing:
    place.write(info, written)
    return place.tier(info)


def _short_round(seeds: Iterator[int], place: Place, info: TableInfo) -> Timing:
    """Time a round of a few rows that have other values each time: rows that are there as they are make no records."""
    return _round(rows(SHORT_ROWS, next(seeds)), place, info)


def _pace(count: int, timing: Timing) -> str:
    return f"{millions(count / timing.wall_s)}, CPU {timing.cpu_s:.2f} s"


def _seconds(timing: Timing) -> str:
    return f"{timing.wall_s:.3f} s, CPU {timing.cpu_s:.3f} s"


def _add(figures: Figures, what: str, timings: Mapping[str, Sequence[Timing]], shown: Callable[[Timing], str]) -> None:
    """Add a line for each place but the first, which is what they stand beside."""
    medians = {
        name: Timing(
            statistics.median(each.wall_s for each in several), statistics.median(each.cpu_s for each in several)
        )
        for name, several in timings.items()
    }
    beside = medians.pop(FOLDER)
    for name, median in medians.items():
        figures.add(f"{what}: {name}", shown(median), f"{FOLDER}: {shown(beside)}", median.wall_s / beside.wall_s)


# -- requests ------------------------------------------------------------------------------------------------------------


def _count(stack: ExitStack, minio: MinioServer, folder: Path) -> None:
    """Count the requests of a short round after others, and of the first read after it, by proxies that are too slow to time.

    Those that Nessie makes of the store itself are among the store's: somebody pays for them too.
    """
    store = stack.enter_context(FaultProxy(minio.port))
    nessie = NessieServer(minio, minio.make_bucket("counted-nessie"), store_endpoint=store.endpoint)
    catalog = stack.enter_context(FaultProxy(stack.enter_context(nessie).port))
    lakes = {
        "MinIO, SQLite": _of_sqlite(minio, folder / "counted.db", "counted", store.endpoint),
        "MinIO, Nessie": nessie.lake_options(f"{catalog.endpoint}/iceberg/"),
    }
    figures = Figures(
        f"requests of a round of {SHORT_ROWS:,} rows in {BUCKETS} buckets, and of the first read after it"
    )
    seeds = count_up()
    for name, lake in lakes.items():
        place = _place(stack, lake)
        for kind, key in KEYS.items():
            info = place.create(f"counted_{name[7:].lower()}_{len(key)}", key)
            for _ in range(3):
                _short_round(seeds, place, info)
            place.write(info, rows(SHORT_ROWS, next(seeds)))
            count = SHORT_ROWS if key else 4 * SHORT_ROWS
            for what, work in (("round", place.tier), ("read", partial(place.read, count=count))):
                with store.counted() as of_store, catalog.counted() as of_catalog:
                    work(info)
                figures.add(f"{kind}: {what}: {name}", f"store {_shown(of_store)}", f"catalog {_shown(of_catalog)}")
    figures.print()


def _shown(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {method}" for method, number in sorted(counted.items())) or "0"


def main() -> None:
    """Run with a size from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    run(parser.parse_args().rows)


if __name__ == "__main__":
    main()
