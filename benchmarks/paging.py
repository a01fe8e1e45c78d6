"""Pages of 200 rows of a log table in lake and log: the first, the next ones, far jumps, and back in a filtered read.

``python -m benchmarks.paging --rows 400000`` tries it small.
"""

from __future__ import annotations

import argparse
import random
import time
from statistics import median
from typing import Final

from benchmarks.data import SCHEMA, rows
from benchmarks.report import Figures
from fluss_lab.client import Connection
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.read.union.row_pages import RowPages
from fluss_lab.testing import EmbeddedCluster
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round

BUCKETS: Final = 4
PAGE_ROWS: Final = 200
PAGES: Final = 100
RUNS: Final = 5
BATCH_ROWS: Final = 50_000
#: Of a row in so many the filter is true.
ONE_IN: Final = 100
#: Of the explorer: `first` once a table is opened, `next` while scrolling.
FIRST_GOAL_S: Final = 0.3
NEXT_GOAL_S: Final = 0.1
PATH: Final = TablePath("bench", "pages")


def run(count: int = 10_000_000) -> None:
    """Measure and print."""
    figures = Figures(
        f"pages of {PAGE_ROWS} rows: a log table of {count:,} rows, nine tenths in the lake, {BUCKETS} buckets"
    )
    with EmbeddedCluster() as cluster:
        fill(cluster.connection, count)
        _measure(cluster, figures, "all rows", None)
        _measure(cluster, figures, f"one row in {ONE_IN}", f"amount = {ONE_IN // 2}")
    figures.print()


def fill(connection: Connection, count: int) -> None:
    """Make the table, and tier nine tenths of its rows."""
    admin, storage = connection.admin(), connection.lake_storage()
    assert storage is not None
    admin.create_database(PATH.database)
    lake = {"table.datalake.enabled": True, "table.datalake.freshness": "1h", "table.datalake.auto-maintenance": False}
    columns = {
        "id": "bigint not null",
        "moment": "timestamp(6)",
        "price": "double",
        "amount": "int",
        "symbol": "string",
        "note": "string",
    }
    info = admin.create_table(PATH, make_descriptor(columns, buckets=BUCKETS, properties=lake))
    assert info.schema.arrow_schema.names == SCHEMA.names
    batch, tiered = rows(BATCH_ROWS), False
    with connection.append_writer(PATH) as writer:
        for number in range(0, count, BATCH_ROWS):
            if not tiered and number >= count * 9 // 10:
                writer.flush()
                run_round(connection, storage, LocalTieringExecutor(), table_id=info.table_id)
                tiered = True
            writer.append(batch.cast(info.schema.arrow_schema))


def _measure(cluster: EmbeddedCluster, figures: Figures, what: str, where: str | None) -> None:
    firsts = []
    for number in range(RUNS):
        started = time.perf_counter()
        pages = TableReader(cluster.connection, PATH).scan(where=where, with_source=True).pages()
        pages.page(0, PAGE_ROWS)
        firsts.append(time.perf_counter() - started)
        if number < RUNS - 1:
            pages.close()
    _add(figures, f"{what}: first page, of a new scan", median(firsts), FIRST_GOAL_S)
    nexts = [_page_s(pages, number * PAGE_ROWS) for number in range(1, PAGES)]
    _add(figures, f"{what}: next page, median", median(nexts), NEXT_GOAL_S)
    _add(figures, f"{what}: next page, slowest of {PAGES}", max(nexts), FIRST_GOAL_S)
    chance = random.Random(7)
    if pages.total is None:
        started = time.perf_counter()
        pages.page(10**12, 1)
        figures.add(f"{what}: to the end, {pages.total:,} rows", f"{time.perf_counter() - started:.2f} s")
    total = pages.total or 0
    jumps = [_page_s(pages, chance.randrange(total)) for _ in range(PAGES // 2)]
    _add(figures, f"{what}: a page anywhere, median", median(jumps), NEXT_GOAL_S)
    _add(figures, f"{what}: a page anywhere, slowest of {len(jumps)}", max(jumps), FIRST_GOAL_S)


def _page_s(pages: RowPages, row: int) -> float:
    started = time.perf_counter()
    pages.page(row, PAGE_ROWS)
    return time.perf_counter() - started


def _add(figures: Figures, what: str, seconds: float, goal_s: float) -> None:
    figures.add(what, f"{seconds * 1000:.1f} ms", f"{goal_s * 1000:.0f} ms", seconds / goal_s, "1.0")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    run(parser.parse_args().rows)
