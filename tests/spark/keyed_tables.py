"""Primary-key tables with a history, for tests of what Spark reads; and their comparison with what Arrow reads."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.read.table_reader import TableReader
from fluss_lab.spark.source.table_frame import scan_to_spark
from fluss_lab.testing import EmbeddedCluster, MockClock
from fluss_lab.testing.tierers import LocalTieringExecutor
from fluss_lab.tiering.round.tiering_round import run_round
from tests.unit.read.kit import rows_of, same

COLUMNS = {"id": "int", "month": "string", "delay": "smallint", "ratio": "double", "dest": "string"}
SYSTEM = ["__bucket", "__offset", "__timestamp"]
KEY = ["id", "month"]
MONTHS = ["2013/01 é", "2013-02"]


class Flights:
    """A primary-key table whose rows come, change and go."""

    def __init__(self, cluster: EmbeddedCluster, clock: MockClock, name: str, *, lake: bool = True) -> None:
        self.cluster = cluster
        self.clock = clock
        self.path = TablePath("db", name)
        admin = cluster.connection.admin()
        admin.create_database("db", if_not_exists=True)
        definition = make_descriptor(
            COLUMNS,
            primary_key=KEY,
            partitioned_by=["month"],
            buckets=2,
            properties={"table.datalake.enabled": lake, "table.datalake.freshness": "1h"},
        )
        self.info = admin.create_table(self.path, definition)

    def reader(self) -> TableReader:
        return TableReader(self.cluster.connection, self.path)

    def write(self, rng: random.Random, count: int) -> None:
        """Upsert some rows, then delete a tenth as many; a moment passes before each."""
        rows = [_row(rng) for _ in range(count)]
        with self.cluster.connection.upsert_writer(self.path) as writer:
            self.clock.advance(10)
            writer.upsert(pa.Table.from_pylist(rows, self.info.schema.arrow_schema))
            writer.flush()
            self.clock.advance(10)
            gone = [{name: row[name] for name in KEY} for row in rows[: count // 10]]
            writer.delete(
                pa.Table.from_pylist(gone, pa.schema([self.info.schema.arrow_schema.field(name) for name in KEY]))
            )
        self.clock.advance(10)

    def put(self, keys: Iterable[tuple[int, str]]) -> None:
        """Upsert rows of keys, all alike."""
        self.clock.advance(10)
        rows = [{"id": number, "month": month, "delay": 7, "ratio": 0.5, "dest": "ORD"} for number, month in keys]
        with self.cluster.connection.upsert_writer(self.path) as writer:
            writer.upsert(pa.Table.from_pylist(rows, self.info.schema.arrow_schema))

    def tier(self) -> None:
        storage = self.cluster.connection.lake_storage()
        run_round(self.cluster.connection, storage, LocalTieringExecutor(), table_id=self.info.table_id)


def _row(rng: random.Random) -> dict[str, Any]:
    return {
        "id": rng.randrange(60),
        "month": rng.choice(MONTHS),
        "delay": rng.choice([None, rng.randrange(-20, 200)]),
        "ratio": rng.choice([None, 0.0, -0.0, 2.25, float("nan"), float("inf"), rng.uniform(-5, 5)]),
        "dest": rng.choice([None, "ATL", "BOS", "a'b", "é"]),
    }


def agree(session: Any, scan: Any) -> Any:
    """Check that Spark gives the scan's rows: values and order of columns. Return the frame."""
    frame = scan_to_spark(session, scan)
    expected = scan.to_arrow()
    found = frame.toArrow()
    assert found.column_names == expected.column_names == frame.columns
    same(sorted(rows_of(found), key=repr), sorted(rows_of(expected), key=repr))
    return frame
