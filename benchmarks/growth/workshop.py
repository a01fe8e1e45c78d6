"""What the measurements of an axis share: a server process, a lab on it, data, and Spark where it is warm."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.data import SCHEMA, rows
from fluss_lab.testing import ServerProcess
from fluss_lab.workbench import Lab, Table

DATABASE: Final = "growth"
#: Maintenance is measured by itself; no round begins by one.
LAKE: Final = {
    "table.datalake.enabled": True,
    "table.datalake.freshness": "1h",
    "table.datalake.auto-maintenance": False,
}
#: Rows of data that are made once; longer data repeats them with other ids.
_BASE_ROWS: Final = 1_000_000
_WARM_ROWS: Final = 20_000


@dataclass
class Workshop:
    """A server and a lab."""

    server: ServerProcess
    lab: Lab

    def append(self, table: Table, data: Iterator[pa.RecordBatch]) -> None:
        """Append batches by one writer."""
        with self.lab.connection.append_writer(table.path) as writer:
            for batch in data:
                writer.append(batch)

    def upsert(self, table: Table, data: Iterator[pa.RecordBatch]) -> None:
        """Upsert batches by one writer."""
        with self.lab.connection.upsert_writer(table.path) as writer:
            for batch in data:
                writer.upsert(batch)

    def settle(self) -> None:
        """Let a server that was just started load what it loads at its first table of the lake."""
        name = f"{DATABASE}.first"
        self.lab.create_table(name, SCHEMA, buckets=1, properties=LAKE)
        self.lab.drop_table(name)

    def warm_spark(self) -> None:
        """Start Spark, and let it tier and read: none of it is measured."""
        keys: tuple[dict[str, Any], ...] = ({}, {"primary_key": ["id"]})
        for number, key in enumerate(keys):
            table = self.lab.create_table(f"{DATABASE}.warm{number}", SCHEMA, buckets=4, properties=LAKE, **key)
            for turn in range(3):
                batch = rows(_WARM_ROWS, turn)
                (table.upsert if key else table.append)(batch)
                table.tier()
                read_all(table)
            self.lab.drop_table(table.path)


@contextmanager
def workshop(*, spark: bool = True) -> Iterator[Workshop]:
    """Give a new server and a lab on it."""
    with (
        tempfile.TemporaryDirectory(prefix="fluss-growth-") as name,
        ServerProcess(Path(name) / "lab") as server,
        Lab.open(server.folder) as lab,
    ):
        lab.create_database(DATABASE)
        shop = Workshop(server, lab)
        if spark:
            shop.warm_spark()
        yield shop


class Data:
    """Rows with ids that go up, in batches; what they hold besides repeats after a million."""

    def __init__(self) -> None:
        self._base: pa.RecordBatch | None = None

    def batches(self, count: int, batch_rows: int, first: int = 0, **changed: Any) -> Iterator[pa.RecordBatch]:
        """Give `count` rows with ids from `first` on.

        Args:
            count: How many.
            batch_rows: In each batch but the last.
            first: The first id.
            changed: Values of other columns, for all rows.
        """
        if self._base is None:
            self._base = rows(_BASE_ROWS)
        done = 0
        while done < count:
            at = done % _BASE_ROWS
            piece = self._base.slice(at, min(batch_rows, count - done, _BASE_ROWS - at))
            length = piece.num_rows
            columns = {name: piece.column(name) for name in piece.schema.names}
            columns["id"] = pa.array(np.arange(first + done, first + done + length))
            for name, value in changed.items():
                columns[name] = pa.array(np.full(length, value), SCHEMA.field(name).type)
            yield pa.record_batch(list(columns.values()), schema=SCHEMA)
            done += length


def read_all(table: Table) -> None:
    """Read a table in Spark, all columns, and keep nothing."""
    table.scan().to_spark().write.format("noop").mode("overwrite").save()
