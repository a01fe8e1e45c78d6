"""A cluster that is fuzzed, with tables whose rows must stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.model.offsets import OffsetSpec

DATABASE = "fuzz"
#: Of the canaries. No request names it.
AVIARY = "aviary"
CANARY_ROWS = 500
#: A call that takes longer hangs; long polls are asked to wait less.
TIMEOUT_S = 30.0
#: Requests that carry records: sent four times as often.
CARRIERS = ("produce_log", "put_kv", "lookup", "prefix_lookup", "fetch_log", "scan_kv")


class World:
    """The tables that requests are about, and a canary that none is about.

    Args:
        address: The server's.
    """

    def __init__(self, address: Callable[[], ServerAddress]) -> None:
        self.connection = Connection(address)
        admin = self.connection.admin()
        admin.create_database(DATABASE)
        admin.create_database(AVIARY)
        types = {"id": "bigint not null", "name": "string", "price": "double"}
        self.types = types
        self.log = admin.create_table(TablePath(DATABASE, "events"), make_descriptor(types, buckets=2))
        self.parted = admin.create_table(
            TablePath(DATABASE, "parted"),
            make_descriptor({**types, "day": "string not null"}, partitioned_by=["day"]),
        )
        admin.create_partition(self.parted.path, {"day": "d1"})
        self.keyed = self._keyed(DATABASE, "rows")
        self.canary = admin.create_table(TablePath(AVIARY, "canary"), make_descriptor(types))
        self.keyed_canary = self._keyed(AVIARY, "canary_rows")
        self.schema = self.log.descriptor.schema.arrow_schema
        rows = [{"id": number, "name": f"n{number}", "price": number / 4} for number in range(CANARY_ROWS)]
        self.rows = pa.Table.from_pylist(rows, schema=self.schema)
        with self.connection.append_writer(self.canary.path) as writer:
            writer.append(self.rows)
        with self.connection.upsert_writer(self.keyed_canary.path) as keyed:
            keyed.upsert(self.rows)

    def _keyed(self, database: str, name: str) -> Any:
        descriptor = make_descriptor(self.types, primary_key=["id"], buckets=1)
        return self.connection.admin().create_table(TablePath(database, name), descriptor)

    def check(self) -> None:
        """Check that the canaries are what they were, and that the tables under fire still take rows."""
        with self.connection.log_scanner(self.canary.path) as scanner:
            scanner.subscribe_all(OffsetSpec.earliest())
            found: list[pa.RecordBatch] = []
            while sum(rows.num_rows for rows in found) < CANARY_ROWS:
                found += [batch.records.rows for batch in scanner.poll(10)]
        assert pa.Table.from_batches(found).equals(self.rows)
        looked_up = self.connection.lookuper(self.keyed_canary.path).lookup(self.rows.select(["id"]))
        assert looked_up.cast(self.schema).equals(self.rows)
        with self.connection.append_writer(self.log.path) as writer:
            writer.append([{"id": 1, "name": "still", "price": 1.0}])
        with self.connection.upsert_writer(self.keyed.path) as keyed:
            keyed.upsert([{"id": 1, "name": "still", "price": 1.0}])

    def tidy(self) -> None:
        """Drop what requests made, so that only what is forgotten by mistake stays in memory."""
        admin = self.connection.admin()
        kept = {self.log.path, self.parted.path, self.keyed.path, self.canary.path, self.keyed_canary.path}
        for database in admin.databases():
            for name in admin.tables(database):
                if (path := TablePath(database, name)) not in kept:
                    admin.drop_table(path, if_exists=True)
            if database not in {DATABASE, AVIARY}:
                admin.drop_database(database, if_exists=True)

    def close(self) -> None:
        """Let go of the server."""
        self.connection.close()
