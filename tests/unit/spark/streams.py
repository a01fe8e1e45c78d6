"""A streaming query without Spark: what Spark asks of a source, asked in its order, offsets kept as text as it does."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.serializers import CPickleSerializer
from pyspark.sql.streaming.datasource import ReadAllAvailable

from fluss_lab.spark.source.batch_reader import source_schema
from fluss_lab.spark.source.source_options import parse_options, place_options
from fluss_lab.spark.source.stream_source import FlussStreamReader


class Query:
    """A query of one table. Batches are planned by a reader; every task gets a copy of it, as in another process.

    Args:
        cluster: An `EmbeddedCluster`.
        table: Path of the table.
        changelog: Whether the stream is of changes.
        options: Further options.
    """

    def __init__(self, cluster: Any, table: str, *, changelog: bool = True, **options: Any) -> None:
        given = {"table": table, "changelog": str(changelog).lower()} | {k: str(v) for k, v in options.items()}
        self._cluster = cluster
        self._given = given
        self.rows: list[dict[str, Any]] = []
        self.offsets: list[str] = []
        self.sizes: list[int] = []
        self.start()

    def start(self) -> None:
        """Start the query, or start it again from its offsets."""
        options = parse_options(self._given | place_options(self._cluster.address))
        self.schema = source_schema(options)
        self.reader = FlussStreamReader(options, self.schema)
        if not self.offsets:
            self.offsets.append(json.dumps(self.reader.initialOffset()))

    def pin(self) -> None:
        """Let the query end at what there is now."""
        self.reader.prepareForTriggerAvailableNow()

    def step(self) -> bool:
        """Run one batch; return whether there was one."""
        before = self.offsets[-1]
        limit = self.reader.getDefaultReadLimit()
        after = json.dumps(self.reader.latestOffset(json.loads(before), limit))
        if after == before:
            return False
        self.offsets.append(after)
        batch = self.batch(len(self.offsets) - 2)
        self.sizes.append(len(batch))
        self.rows += batch
        return True

    def run(self) -> list[dict[str, Any]]:
        """Run batches until there is nothing to read; return the rows of all batches of the query."""
        while self.step():
            pass
        return self.rows

    def tasks(self, number: int) -> list[Any]:
        """Return the tasks of a batch."""
        start, end = self.offsets[number : number + 2]
        return list(self.reader.partitions(json.loads(start), json.loads(end)))

    def batch(self, number: int) -> list[dict[str, Any]]:
        """Return the rows of a batch, read now."""
        return self.read(self.tasks(number))

    def read(self, tasks: list[Any]) -> list[dict[str, Any]]:
        """Return the rows of tasks."""
        found: list[dict[str, Any]] = []
        pickler = CPickleSerializer()
        for task in tasks:
            reader, partition = pickler.loads(pickler.dumps((self.reader, task)))
            for batch in reader.read(partition):
                found += plain(pa.Table.from_batches([batch]))
        return found

    def close(self) -> None:
        """End the query."""
        self.reader.stop()

    @property
    def everything(self) -> Any:
        """Return the limit of a trigger that takes all."""
        return ReadAllAvailable()


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as plain values, times in milliseconds."""
    for name in ("_commit_timestamp", "__timestamp"):
        if name in table.column_names:
            place = table.column_names.index(name)
            millis = table.column(place).cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
            table = table.set_column(place, name, millis)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows by partition, bucket and offset."""
    return sorted(rows, key=lambda row: (row.get("_partition") or "", row["_bucket"], row["_log_offset"]))
