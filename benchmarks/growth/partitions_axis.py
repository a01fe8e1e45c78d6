"""What more partitions cost, the rows being as many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.data import SCHEMA
from benchmarks.growth.meter import Axis, Meter
from benchmarks.growth.workshop import DATABASE, LAKE, Data, Workshop, workshop

ROWS: Final = 200_000
BATCH_ROWS: Final = 20_000
#: Rows of a round in which only one partition moves.
FEW: Final = 1_000


@contextmanager
def _opened() -> Iterator[Callable[[Meter, int], None]]:
    with workshop() as shop:
        yield partial(_measure, shop, Data())


def _measure(shop: Workshop, data: Data, meter: Meter, size: int) -> None:
    meter.server = shop.server
    table = shop.lab.create_table(
        f"{DATABASE}.days{size}", SCHEMA.append(pa.field("day", pa.string())),
        buckets=1, partitioned_by=["day"], properties=LAKE,
    )  # fmt: skip
    days = [f"d{number:05d}" for number in range(size)]
    admin = shop.lab.connection.admin()
    meter.timed(
        "create the partitions in one call", lambda: admin.create_partitions(table.path, [{"day": day} for day in days])
    )
    meter.timed("append", lambda: shop.append(table, _of_days(data.batches(ROWS, BATCH_ROWS), days)))
    meter.repeated("status of its buckets", table.buckets)
    meter.repeated("scan of the log", lambda: table.scan().to_arrow())
    meter.timed("tiering round of all partitions", table.tier)
    shop.append(table, _of_days(data.batches(ROWS, BATCH_ROWS), days))
    meter.timed("tiering round of all partitions, the second", table.tier)
    shop.append(table, _of_days(data.batches(FEW, FEW), days[:1]))
    meter.timed("tiering round of one partition", table.tier)
    shop.append(table, _of_days(data.batches(FEW, FEW), days[-1:]))
    where = f"day = '{days[-1]}'"
    meter.repeated("plan of a union read", lambda: table.scan().plan())
    meter.repeated("plan of a read of one partition", lambda: table.scan(where=where).plan())
    meter.repeated("union read of one partition", lambda: table.scan(where=where).to_arrow())
    meter.repeated("union read in Arrow", lambda: table.scan().to_arrow())
    meter.repeated("`lab.status()`", shop.lab.status)
    meter.restarted("restart of the server")
    shop.settle()
    meter.timed("drop of the table", lambda: shop.lab.drop_table(table.path))


def _of_days(batches: Iterator[pa.RecordBatch], days: list[str]) -> Iterator[pa.RecordBatch]:
    """Give the rows a partition each, in turns."""
    names = pa.array(days)
    for batch in batches:
        chosen = names.take(pa.array(np.arange(batch.num_rows) % len(days)))
        yield pa.record_batch([*batch.columns, chosen], names=[*batch.schema.names, "day"])


AXIS: Final = Axis(
    name="partitions",
    sizes=(1, 3, 10, 32, 100, 316, 1_000, 2_000),
    about="one table of one bucket a partition, 200,000 rows in batches of 20,000, whatever the partitions",
    headlines=(
        "tiering round of all partitions, the second", "tiering round of one partition", "union read of one partition",
        "plan of a union read",
    ),
    opened=_opened,
)  # fmt: skip
