"""How soon a record that was acknowledged is in a union read of a table most of which is in the lake: milliseconds.

``python -m benchmarks.freshness --rows 100000`` tries it small.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any, Final

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures
from fluss_lab.client import Connection
from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

BUCKETS: Final = 4
BATCH_ROWS: Final = 20_000
TIMES: Final = 30
#: What is not tiered yet when the record comes.
TAIL_ROWS: Final = 10_000
#: The same where the tail came row by row, each acknowledged before the next: as many batches.
SINGLE_ROWS: Final = 1_000
DATABASE: Final = "bench"
#: A table's, by whether it has a primary key.
NAMES: Final = {False: "flow", True: "state"}


def run(count: int = 2_000_000) -> None:
    """Measure and print."""
    figures = Figures(
        f"freshness: {count:,} rows in the lake, {TAIL_ROWS:,} in the log, {BUCKETS} buckets; from ack to the end of a union "
        f"read that has the record, ms, median (largest) of {TIMES}"
    )
    with EmbeddedCluster() as cluster:
        connection = cluster.connection
        connection.admin().create_database(DATABASE)
        for kind, keyed in (("log table", False), ("primary-key table", True)):
            info = _tiered(connection, NAMES[keyed], count, keyed=keyed)
            _write(connection, info, count, TAIL_ROWS)
            first = count + TAIL_ROWS
            for what, where in (("that record", "id = {}"), ("all of the tail", f"id >= {count}")):
                _add(figures, f"{kind}, {what}", connection, info, first, where)
                first += TIMES
            info = _tiered(connection, f"{NAMES[keyed]}_singles", count, keyed=keyed)
            for number in range(SINGLE_ROWS):
                _write(connection, info, count + number, 1)
            what = f"{kind}, that record behind {SINGLE_ROWS:,} single rows"
            _add(figures, what, connection, info, count + SINGLE_ROWS, "id = {}")
    figures.print()


def _add(figures: Figures, what: str, connection: Connection, info: TableInfo, first: int, where: str) -> None:
    found = [_seen_after_ms(connection, info, first + number, where) for number in range(TIMES)]
    figures.add(what, f"{median(found):.1f} ({max(found):.1f})", "", median(found) / 100, "1.0")


def _tiered(connection: Connection, name: str, count: int, *, keyed: bool) -> TableInfo:
    """Return a table that has so many rows, all of them in the lake."""
    info = _table(connection, name, keyed=keyed)
    _write(connection, info, 0, count)
    storage = connection.lake_storage()
    assert storage is not None
    run_round(connection, storage, LocalTieringExecutor(), table_id=info.table_id)
    return info


def _table(connection: Connection, name: str, *, keyed: bool) -> TableInfo:
    definition: dict[str, Any] = {"primary_key": ["id"]} if keyed else {}
    properties = {"table.datalake.enabled": True, "table.datalake.freshness": "1h"}
    descriptor = make_descriptor(SCHEMA, buckets=BUCKETS, bucket_key=["id"], properties=properties, **definition)
    return connection.admin().create_table(TablePath(DATABASE, name), descriptor)


def _write(connection: Connection, info: TableInfo, first: int, count: int) -> None:
    data = rows(first + count).slice(first)
    if info.is_log_table:
        with connection.append_writer(info.path) as writer:
            for start in range(0, count, BATCH_ROWS):
                writer.append(data.slice(start, BATCH_ROWS))
        return
    with connection.upsert_writer(info.path) as writer:
        for start in range(0, count, BATCH_ROWS):
            writer.upsert(data.slice(start, BATCH_ROWS))


def _seen_after_ms(connection: Connection, info: TableInfo, number: int, where: str) -> float:
    _write(connection, info, number, 1)
    started = time.perf_counter()
    found = TableReader(connection, info.path).scan(columns=["id", "note"], where=where.format(number)).to_arrow()
    elapsed_ms = (time.perf_counter() - started) * 1000
    assert number in found["id"].to_pylist(), number
    return elapsed_ms


def main() -> None:
    """Run with a size from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    run(parser.parse_args().rows)


if __name__ == "__main__":
    main()
