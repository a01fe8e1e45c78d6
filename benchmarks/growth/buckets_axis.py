"""What more buckets cost, the rows being as many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from benchmarks.data import SCHEMA
from benchmarks.growth.meter import Axis, Meter
from benchmarks.growth.workshop import DATABASE, LAKE, Data, Workshop, workshop
from fluss_lab.workbench import Table

ROWS: Final = 200_000
BATCH_ROWS: Final = 20_000


@contextmanager
def _opened() -> Iterator[Callable[[Meter, int], None]]:
    with workshop() as shop:
        yield partial(_measure, shop, Data())


def _measure(shop: Workshop, data: Data, meter: Meter, size: int) -> None:
    meter.server = shop.server
    log = _table(shop, meter, size, "log")
    meter.timed("append", lambda: shop.append(log, data.batches(ROWS, BATCH_ROWS)))
    meter.repeated("status of its buckets", log.buckets)
    meter.repeated("scan of the log", lambda: log.scan().to_arrow())
    meter.timed("tiering round, the first", log.tier)
    shop.append(log, data.batches(ROWS, BATCH_ROWS, ROWS))
    meter.timed("tiering round, the second", log.tier)
    shop.append(log, data.batches(BATCH_ROWS, BATCH_ROWS))
    meter.repeated("plan of a union read", lambda: log.scan().plan())
    meter.repeated("union read in Arrow", lambda: log.scan().to_arrow())
    meter.repeated("`lab.status()`", shop.lab.status)
    keyed = _table(shop, meter, size, "keyed")
    meter.timed("primary key: upsert", lambda: shop.upsert(keyed, data.batches(ROWS, BATCH_ROWS)))
    meter.timed("primary key: tiering round", keyed.tier)
    shop.upsert(keyed, data.batches(BATCH_ROWS, BATCH_ROWS))
    meter.repeated("primary key: union read in Arrow", lambda: keyed.scan().to_arrow())
    meter.restarted("restart of the server")
    shop.settle()
    meter.timed("drop of the table", lambda: shop.lab.drop_table(log.path))
    shop.lab.drop_table(keyed.path)


def _table(shop: Workshop, meter: Meter, size: int, kind: str) -> Table:
    key: dict[str, Any] = {"primary_key" if kind == "keyed" else "bucket_key": ["id"]}
    make = partial(shop.lab.create_table, f"{DATABASE}.{kind}{size}", SCHEMA, buckets=size, properties=LAKE, **key)
    return make() if kind == "keyed" else meter.timed("create a table", make)


AXIS: Final = Axis(
    name="buckets",
    sizes=(1, 3, 10, 32, 100, 316, 1_000),
    about="one table, 200,000 rows by a key in batches of 20,000, whatever the buckets",
    headlines=("tiering round, the second", "union read in Arrow", "restart of the server", "`lab.status()`"),
    opened=_opened,
)
