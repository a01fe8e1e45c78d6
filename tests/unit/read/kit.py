"""A table in a cluster with a lake, and the same table as a plain list: what every read must agree with."""

from __future__ import annotations

import random
import string
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.model.bucketing import iceberg_bucket_ids
from fluss_lab.read.table_reader import TableReader
from fluss_lab.testing import EmbeddedCluster, MockClock
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.round_report import TieringReport
from fluss_lab.tiering.round.tiering_round import run_round

OPTIONS = {
    "log.segment.file-size": "2kb",
    "log.retention.check-interval": "1d",
    "log.index.interval-size": "1kb",
    "kv.snapshot.num-retained": 1,
}
LAKE = {"table.datalake.enabled": True, "table.datalake.freshness": "1h"}
COLUMNS = {"id": "int", "month": "string", "delay": "smallint", "ratio": "double", "dest": "string"}
BUCKETS = 3
SYSTEM = ["__bucket", "__offset", "__timestamp"]


@dataclass(frozen=True)
class Record:
    """A record as the model knows it."""

    partition: str | None
    bucket: int
    offset: int
    timestamp_ms: int
    row: tuple[Any, ...]

    @property
    def key(self) -> tuple[str, int, int]:
        return (self.partition or "", self.bucket, self.offset)


class ModelTable:
    """A partitioned or plain log table with a bucket key, and all that was ever appended to it.

    The clock stands still unless it is told to move, so the timestamp of every record is known beforehand.
    """

    def __init__(self, cluster: EmbeddedCluster, clock: MockClock, name: str, *, partitioned: bool = True) -> None:
        self.cluster = cluster
        self.clock = clock
        self.partitioned = partitioned
        self.records: list[Record] = []
        self.ends: dict[tuple[str | None, int], int] = defaultdict(int)
        self.floors: dict[tuple[str | None, int], int] = defaultdict(int)
        self.partitions: set[str] = set()
        admin = cluster.connection.admin()
        admin.create_database("db", if_not_exists=True)
        self.path = TablePath("db", name)
        descriptor = make_descriptor(
            COLUMNS,
            partitioned_by=["month"] if partitioned else [],
            buckets=BUCKETS,
            bucket_key=["id"],
            properties=LAKE,
        )
        self.info: TableInfo = admin.create_table(self.path, descriptor)
        self.dropped: set[str] = set()

    @property
    def connection(self) -> Any:
        return self.cluster.connection

    def reader(self) -> TableReader:
        return TableReader(self.connection, self.path)

    # -- changing both ------------------------------------------------------------------------------------------------

    def append(self, rows: list[tuple[Any, ...]]) -> None:
        columns = list(zip(*rows, strict=True))
        table = pa.table(
            [
                pa.array(values, field.type)
                for values, field in zip(columns, self.info.schema.arrow_schema, strict=True)
            ],
            schema=self.info.schema.arrow_schema,
        )
        with self.connection.append_writer(self.path) as writer:
            writer.append(table).result()
        buckets = iceberg_bucket_ids(table.column("id").combine_chunks(), BUCKETS).to_pylist()
        for row, bucket in zip(rows, buckets, strict=True):
            key = (row[1] if self.partitioned else None, bucket)
            self.floors[key] = max(self.floors[key], self.clock.now_ms())
            self.records.append(Record(*key, self.ends[key], self.floors[key], row))
            self.ends[key] += 1
            if self.partitioned:
                self.partitions.add(row[1])

    def append_random(self, rng: random.Random, count: int, months: list[str]) -> None:
        first = len(self.records)
        self.append([random_row(rng, number, months) for number in range(first, first + count)])

    def note_as_of(self, moment_ms: int) -> None:
        """Raise the model's clock floors as a read at a time raises the servers'."""
        keys = [(name, bucket) for name in self.partitions for bucket in range(BUCKETS)]
        for key in keys if self.partitioned else [(None, bucket) for bucket in range(BUCKETS)]:
            self.floors[key] = max(self.floors[key], moment_ms + 1)

    def tier(self) -> TieringReport:
        storage = self.connection.lake_storage()
        report = run_round(self.connection, storage, LocalTieringExecutor(), table_id=self.info.table_id)
        assert report is not None
        return report

    def expire(self) -> None:
        """Let the cluster drop what the lake holds, and wait until every bucket that is tiered whole has left it."""
        admin = self.connection.admin()
        self.clock.advance(1_000)
        admin.alter_table(self.path, set={"table.log.ttl": "1ms"})
        retain(self.cluster, lambda: all(_is_expired(status) for status in admin.buckets(self.info)))
        admin.alter_table(self.path, set={"table.log.ttl": "7d"})

    def drop_partition(self, name: str) -> None:
        self.connection.admin().drop_partition(self.path, {"month": name}, discard_untiered=True)
        self.dropped.add(name)

    # -- what reads must give -----------------------------------------------------------------------------------------

    def expected(
        self, stops: dict[tuple[str | None, int], int], where: Callable[[Record], Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return the rows below the stops for which a condition is true, in reading order, with the system columns."""
        names = self.info.schema.names
        found = []
        for record in sorted(self.records, key=lambda each: each.key):
            if record.offset < stops.get((record.partition, record.bucket), 0) and (where is None or where(record)):
                row = dict(zip(names, record.row, strict=True))
                row |= {"__bucket": record.bucket, "__offset": record.offset, "__timestamp": record.timestamp_ms}
                found.append(row)
        return found

    def stops_at(self, moment_ms: int) -> dict[tuple[str | None, int], int]:
        """Return the offsets after the last record with a timestamp up to a time."""
        stops: dict[tuple[str | None, int], int] = defaultdict(int)
        for record in self.records:
            if record.timestamp_ms <= moment_ms:
                stops[record.partition, record.bucket] += 1
        return stops


def _is_expired(status: Any) -> bool:
    """Return whether a bucket that the lake holds whole has left the cluster; of others the last segments stay."""
    return status.lake_end_offset != status.end_offset or status.start_offset == status.end_offset


def until(condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    """Wait until a condition holds, asking again and again."""
    deadline, pause = time.monotonic() + timeout_s, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"{what}: waited {timeout_s} s in vain"
        pause.wait(0.01)


def retain(cluster: EmbeddedCluster, condition: Callable[[], bool]) -> None:
    """Apply retention until a condition holds: passes in the background are a day apart."""
    until(lambda: cluster.tablet().apply_retention() >= 0 and condition(), "retention")


def random_row(rng: random.Random, number: int, months: list[str]) -> tuple[Any, ...]:
    delay = None if rng.random() < 0.2 else rng.randint(-30, 300)
    ratio = rng.choice([None, float("nan"), -1.5, 0.0, -0.0, 2.25, rng.random()])
    dest = None if rng.random() < 0.2 else "".join(rng.choices(string.ascii_uppercase[:4], k=rng.randint(0, 3)))
    return (number, rng.choice(months), delay, ratio, dest)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return a read's rows as plain values, timestamps in milliseconds."""
    if "__timestamp" in table.column_names:
        place = table.column_names.index("__timestamp")
        millis = table.column("__timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        table = table.set_column(place, "__timestamp", millis)
    return table.to_pylist()


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Compare rows; NaN equals NaN, and a zero's sign counts."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert {key: repr(value) for key, value in one.items()} == {key: repr(other[key]) for key in one}
