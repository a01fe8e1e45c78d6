"""Tables of both kinds that something happens to, and how lake and model are compared."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.testing import wait_until
from tests.unit.tiering.kit import LAKE, Tables

KEYED = {"id": "bigint", "v": "string"}
#: Segments that roll after a few records, retention that looks often, rounds by hand that take over soon.
SMALL = {
    "log.segment.file-size": "1kb", "log.retention.check-interval": "20ms", "lake.tiering.takeover": "200ms",
    "kv.snapshot.interval": "1h", "kv.snapshot.num-retained": "1",
}  # fmt: skip


class Keyed:
    """A primary-key table and what its rows should be."""

    def __init__(self, tables: Tables, name: str = "keyed", *, lake: bool = True, buckets: int = 2, **properties: Any):
        self.tables = tables
        given = (LAKE if lake else {}) | properties
        descriptor = make_descriptor(KEYED, primary_key=["id"], buckets=buckets, properties=given)
        self.path = TablePath("db", name)
        self.info: TableInfo = tables.connection.admin().create_table(self.path, descriptor)
        self.model: dict[int, str] = {}

    def upsert(self, ids, value: str) -> None:
        rows = pa.table({"id": pa.array(list(ids), pa.int64()), "v": [f"{value}{key}" for key in ids]})
        with self.tables.connection.upsert_writer(self.path) as writer:
            writer.upsert(rows)
        self.model |= {key: f"{value}{key}" for key in ids}

    def delete(self, ids) -> None:
        with self.tables.connection.upsert_writer(self.path) as writer:
            writer.delete(pa.table({"id": pa.array(list(ids), pa.int64())}))
        for key in ids:
            self.model.pop(key, None)

    def in_lake(self) -> dict[int, str]:
        """The rows that pyiceberg reads, each key once."""
        rows = self.tables.lake_rows(self.info).to_pylist()
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"]: row["v"] for row in rows}

    def check(self) -> None:
        assert self.in_lake() == self.model


def age(tables: Tables, info: TableInfo, write) -> int:
    """Write and let all that there is leave the cluster; return the least first offset that it holds then."""
    admin = tables.connection.admin()
    admin.alter_table(info.path, set={"table.log.ttl": "1ms"})
    for _ in range(4):
        write()
    take_snapshots(tables, info)
    wait_until(lambda: all(status.start_offset == status.end_offset for status in admin.buckets(info)))
    admin.alter_table(info.path, set={"table.log.ttl": "7d"})
    return min(status.start_offset for status in admin.buckets(info))


def take_snapshots(tables: Tables, info: TableInfo) -> None:
    """Have a key-value snapshot of every bucket, as the clock brings one in time."""
    if info.is_log_table:
        return
    service = tables.cluster.tablet()
    for status in tables.connection.admin().buckets(info):
        service.snapshot_now(status.bucket)
