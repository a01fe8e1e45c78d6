"""What more rows cost: a log table and a primary-key table of four buckets, through their whole way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from benchmarks.data import SCHEMA
from benchmarks.growth.meter import Axis, Meter
from benchmarks.growth.workshop import DATABASE, LAKE, Data, Workshop, read_all, workshop

BUCKETS: Final = 4
BATCH_ROWS: Final = 10_000
#: A tenth of the rows comes after the first round: it is the log's part of a union read.
TAIL: Final = 10
#: Index, offsets and rows of so many keys fit into this machine's memory beside what the reads hold.
KEYED_MAX: Final = 10_000_000


@contextmanager
def _opened() -> Iterator[Callable[[Meter, int], None]]:
    with workshop() as shop:
        yield partial(_measure, shop, Data())


def _measure(shop: Workshop, data: Data, meter: Meter, size: int) -> None:
    meter.server = shop.server
    _log_table(shop, data, meter, size)
    if size <= KEYED_MAX:
        _keyed_table(shop, data, meter, size)


def _log_table(shop: Workshop, data: Data, meter: Meter, size: int) -> None:
    table = shop.lab.create_table(f"{DATABASE}.log{size}", SCHEMA, buckets=BUCKETS, properties=LAKE)
    # Made before, so that it is not measured; an iterator lets each batch go as it is written.
    written = iter(list(data.batches(size, BATCH_ROWS)))
    meter.timed("append", lambda: shop.append(table, written))
    meter.repeated("scan of the log", lambda: table.scan().to_arrow())
    meter.timed("tiering round", table.tier)
    shop.append(table, data.batches(size // TAIL, BATCH_ROWS, size))
    meter.repeated("union read in Arrow, a tenth in the log", lambda: table.scan().to_arrow())
    meter.repeated("union read in Spark, a tenth in the log", lambda: read_all(table))
    table.tier()
    meter.timed("compaction", table.compact)
    meter.restarted("restart of the server")
    shop.lab.drop_table(table.path)


def _keyed_table(shop: Workshop, data: Data, meter: Meter, size: int) -> None:
    table = shop.lab.create_table(
        f"{DATABASE}.keyed{size}", SCHEMA, primary_key=["id"], buckets=BUCKETS, properties=LAKE
    )
    written = iter(list(data.batches(size, BATCH_ROWS)))
    meter.timed("primary key: upsert", lambda: shop.upsert(table, written))
    meter.repeated("primary key: scan before the lake has it", lambda: table.scan().to_arrow())
    meter.timed("primary key: tiering round", table.tier)
    shop.upsert(table, data.batches(size // TAIL, BATCH_ROWS, size // 2, amount=-1))
    meter.repeated("primary key: union read in Arrow, a tenth updated in the log", lambda: table.scan().to_arrow())
    meter.repeated("primary key: union read in Spark, a tenth updated in the log", lambda: read_all(table))
    meter.timed("primary key: tiering round of updates of a tenth", table.tier)
    meter.timed("primary key: compaction", table.compact)
    meter.repeated("primary key: lookup of 1,000 keys", partial(_look_up, table, size))
    meter.restarted("primary key: restart of the server")
    shop.lab.drop_table(table.path)


def _look_up(table: object, size: int) -> None:
    table.lookup([{"id": number * (size // 1_000)} for number in range(1_000)])  # type: ignore[attr-defined]


AXIS: Final = Axis(
    name="rows",
    sizes=(10_000, 31_600, 100_000, 316_000, 1_000_000, 3_160_000, 10_000_000, 20_000_000, 40_000_000),
    about="four buckets, batches of 10,000 rows; primary-key tables up to 10 M rows",
    headlines=("append", "tiering round", "union read in Arrow, a tenth in the log", "primary key: tiering round"),
    opened=_opened,
)
