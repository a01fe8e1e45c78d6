"""What more tables cost a server and those who look at it: tables of four buckets, a row or more in each bucket."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from benchmarks.data import SCHEMA
from benchmarks.growth.meter import Axis, Meter
from benchmarks.growth.workshop import DATABASE, LAKE, Data, Workshop, workshop
from benchmarks.processes import cpu_of_all, resident_bytes
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.workbench import Table
from fluss_lab.workbench.health.doctor import checks

BUCKETS: Final = 4
ROWS: Final = 100
BATCH_ROWS: Final = 20_000
#: A tick of CPU time is 10 ms: a share of 0.1 % is seen.
IDLE_S: Final = 10.0
#: After writes a server makes recovery points and the like for a second or two.
SETTLED_S: Final = 3.0


@contextmanager
def _opened() -> Iterator[Callable[[Meter, int], None]]:
    yield _measure


def _measure(meter: Meter, size: int) -> None:
    with workshop(spark=False) as shop:
        meter.server = shop.server
        lab, data = shop.lab, Data()
        names = [f"{DATABASE}.t{number:05d}" for number in range(size)]
        tables = meter.timed("create all tables, one call each", partial(_created, shop, names))
        for table in tables:
            shop.append(table, data.batches(ROWS, ROWS))
        big = lab.create_table(f"{DATABASE}.big", SCHEMA, buckets=BUCKETS, properties=LAKE)
        meter.repeated("append of 20,000 rows to one", lambda: shop.append(big, data.batches(BATCH_ROWS, BATCH_ROWS)))
        meter.repeated("`lab.tables()`", lab.tables)
        meter.repeated("`lab.status()`", lab.status)
        meter.repeated("a table's state", tables[0].buckets)
        meter.repeated("doctor", lambda: list(checks(shop.server.folder, lab.connection)))
        coordinator = lab.connection.coordinator()
        meter.repeated("states of all tables", lambda: coordinator.describe_cluster(pb.DescribeClusterRequest()))
        _idle(shop, meter)
        meter.restarted("restart of the server")
        meter.value("memory of the server after a restart", resident_bytes(shop.server.pid), "bytes")


def _created(shop: Workshop, names: list[str]) -> list[Table]:
    return [shop.lab.create_table(name, SCHEMA, buckets=BUCKETS, properties=LAKE) for name in names]


def _idle(shop: Workshop, meter: Meter) -> None:
    time.sleep(SETTLED_S)
    pids = [shop.server.pid]
    meter.value("memory of the server", resident_bytes(pids[0]), "bytes")
    before = cpu_of_all(pids)
    time.sleep(IDLE_S)
    meter.value("CPU of the idle server, of a core", (cpu_of_all(pids) - before) / IDLE_S * 100, "%")


AXIS: Final = Axis(
    name="tables",
    sizes=(1, 3, 10, 32, 100, 200),
    about="four buckets and 100 rows each",
    headlines=("`lab.status()`", "restart of the server", "memory of the server", "CPU of the idle server, of a core"),
    opened=_opened,
)
