"""What more snapshots in the lake cost: a log table of one bucket, a round of 100 rows each, never maintained."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.data import SCHEMA
from benchmarks.growth.meter import Axis, Meter
from benchmarks.growth.workshop import DATABASE, LAKE, Data, Workshop, workshop
from fluss_lab.client import Connection
from fluss_lab.clock import SystemClock
from fluss_lab.lake.iceberg import IcebergLakeStorage
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from fluss_lab.workbench import Table

ROWS: Final = 100
#: Rounds that are measured at each size: of them the mean, for every twentieth or so writes manifests anew.
ROUNDS: Final = 20
#: Snapshots that an expiry leaves.
KEPT: Final = 10


class _TwoHoursAhead(SystemClock):
    """Expiry leaves snapshots that are younger than an hour."""

    def now_ms(self) -> int:
        return super().now_ms() + 2 * 3_600_000


@contextmanager
def _opened() -> Iterator[Callable[[Meter, int], None]]:
    with workshop(spark=False) as shop:
        yield partial(_measure, shop, Data())


def _measure(shop: Workshop, data: Data, meter: Meter, size: int) -> None:
    meter.server = shop.server
    table = shop.lab.create_table(f"{DATABASE}.rounds{size}", SCHEMA, buckets=1, properties=LAKE)
    began_ms = int(time.time() * 1000)
    for number in range(size):
        _round(shop, data, table, number)
    middle_ms = (began_ms + int(time.time() * 1000)) // 2
    _reads(shop, meter, table, middle_ms)
    metadata = Path(shop.lab.iceberg(table.path).metadata_location.removeprefix("file://"))
    meter.value("file of the table's metadata", metadata.stat().st_size, "bytes")
    meter.timed("append and round of 100 rows", lambda: _rounds(shop, data, table, size), ROUNDS)
    storage = shop.lab.lake_storage()
    assert isinstance(storage, IcebergLakeStorage)
    clock = _TwoHoursAhead()
    maintenance = storage.create_lake_maintenance(table.info, clock)
    meter.timed(
        "expiry of all snapshots but ten",
        lambda: maintenance.expire_snapshots(
            older_than_ms=clock.now_ms(), keep=KEPT, protected=frozenset(), partition_ids={}
        ),
    )
    shop.lab.drop_table(table.path)


def _reads(shop: Workshop, meter: Meter, table: Table, middle_ms: int) -> None:
    meter.repeated("plan of a read", lambda: table.scan().plan())
    meter.repeated("scan", lambda: table.scan().to_arrow())
    meter.repeated("changelog", lambda: table.changelog().to_arrow())
    meter.repeated("seek by time", lambda: table.seek(middle_ms))
    meter.repeated("list of snapshots", table.snapshots)
    firsts: dict[str, Callable[[TableReader], object]] = {
        "plan of a read": lambda reader: reader.scan().plan(),
        "scan": lambda reader: reader.scan().to_arrow(),
        "seek by time": lambda reader: reader.seek(middle_ms),
    }
    for what, work in firsts.items():
        meter.repeated(f"{what}, first of a connection", partial(_first, shop, table, work))


def _first(shop: Workshop, table: Table, work: Callable[[TableReader], object]) -> None:
    with Connection(lambda: shop.server.address, folder=shop.server.folder) as connection:
        work(TableReader(connection, table.path))


def _rounds(shop: Workshop, data: Data, table: Table, done: int) -> None:
    for number in range(done, done + ROUNDS):
        _round(shop, data, table, number)


def _round(shop: Workshop, data: Data, table: Table, number: int) -> None:
    shop.append(table, data.batches(ROWS, ROWS, number * ROWS))
    run_round(shop.lab.connection, shop.lab.lake_storage(), LocalTieringExecutor(), table_id=table.info.table_id)


AXIS: Final = Axis(
    name="snapshots",
    sizes=(1, 3, 10, 32, 100, 316, 1_000),
    about="a log table of one bucket in the lake, a file of 100 rows a snapshot, rounds without Spark, never maintained",
    headlines=("plan of a read", "append and round of 100 rows", "scan, first of a connection", "seek by time"),
    opened=_opened,
)
