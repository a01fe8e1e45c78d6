"""Random histories of tables: what is written, and what of it each bucket's log holds.

The cluster's own log is the truth that the lake is held against; for primary-key tables the log itself is held against
a model of dicts first, so that a cluster that is wrong is not copied into the expectation.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fluss_lab.client import Connection, read_range
from fluss_lab.model import PartitionInfo, TableBucket, TableInfo, TablePath, make_descriptor
from tests.crash.kinds import KINDS, Kind, Row
from tests.stateful.model import TableModel

#: Partition name, or None, and bucket.
Place = tuple[str | None, int]
CHANGES: Final = ("+A", "+I", "-U", "+U", "-D")
DATABASE: Final = "db"
LAKE: Final = {"table.datalake.enabled": True, "table.datalake.freshness": "1h"}


@dataclass(frozen=True, slots=True)
class Event:
    """One record of a bucket's log. Its offset is its position."""

    change: str
    timestamp_ms: int
    previous: int
    row: Row

    @property
    def adds(self) -> bool:
        """Return whether it adds a row, rather than ending one."""
        return self.change[0] == "+"


@dataclass
class BucketLog:
    """All records that a bucket ever had, and the rows that they come to."""

    events: list[Event] = field(default_factory=list)

    def live(self, end: int) -> dict[int, Event]:
        """Return the records of the rows that live at an offset, by offset."""
        rows: dict[int, Event] = {}
        for offset, event in enumerate(self.events[:end]):
            if event.adds:
                rows[offset] = event
            else:
                ended = rows.pop(event.previous)
                # Columns that were added in between read as null.
                assert event.row == dict.fromkeys(event.row) | ended.row, (offset, ended, event)
        return rows


class History:
    """One table that is written at random.

    Args:
        connection: To the cluster.
        kind: Of `KINDS`.
        rng: Whose choices they are.
        name: The table's name.
        properties: Of the table, beside the kind's.
        more: Further properties.
    """

    def __init__(
        self,
        connection: Connection,
        kind: str,
        rng: random.Random,
        name: str | None = None,
        *,
        properties: Mapping[str, Any] = LAKE,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self.connection = connection
        self.kind: Kind = KINDS[kind]
        self.rng = rng
        self.path = TablePath(DATABASE, name or kind)
        self.added: list[str] = []
        self.logs: dict[Place, BucketLog] = {}
        #: Partitions that the cluster dropped and the lake may still have.
        self.frozen: set[str] = set()
        admin = connection.admin()
        admin.create_database(DATABASE, if_not_exists=True)
        descriptor = make_descriptor(
            dict(self.kind.columns),
            primary_key=self.kind.primary_key,
            partitioned_by=self.kind.partitioned_by,
            buckets=self.kind.buckets,
            bucket_key=self.kind.bucket_key,
            properties={**self.kind.properties, **properties, **(more or {})},
        )
        self.info: TableInfo = admin.create_table(self.path, descriptor)
        self.model = TableModel(self.info.descriptor)
        self._appended = 0

    @property
    def changes(self) -> int:
        """Return how many records were written, those of dropped partitions left out."""
        return self._appended + sum(len(bucket.log) for bucket in self.model.buckets.values())

    @property
    def columns(self) -> list[str]:
        return [*self.kind.columns, *self.added]

    # -- changes -------------------------------------------------------------------------------------------------------

    def write(self, rows_max: int = 30) -> None:
        """Write some rows: appends, or upserts of whole or partial rows, or deletes."""
        count = self.rng.randrange(1, rows_max + 1)
        if not self.kind.is_keyed:
            self._append([self._row() for _ in range(count)])
            return
        chance = self.rng.random()
        if self.kind.engine == "default" and chance < 0.25:
            self._delete([self.kind.key(self.rng) for _ in range(count)])
        elif self.kind.engine == "default" and chance < 0.4:
            self._upsert_some(count)
        else:
            self._upsert([self._row() for _ in range(count)])

    def add_column(self) -> None:
        name = f"added{len(self.added)}"
        self.info = self.connection.admin().alter_table(self.path, add_columns={name: self.kind.added})
        self.added.append(name)
        self.model.add_column(name)

    def drop_partition(self, *, lake: bool) -> bool:
        """Drop a partition; tell whether there was one. Its log is remembered unless it goes from the lake too."""
        partitions = sorted(self._partitions())
        if not partitions:
            return False
        name = self.rng.choice(partitions)
        self.read()
        self.connection.admin().drop_partition(self.path, self.partition_values(name), lake=lake, discard_untiered=True)
        self.model.drop_partition(name)
        if lake:
            self.logs = {place: log for place, log in self.logs.items() if place[0] != name}
        else:
            self.frozen.add(name)
        return True

    def partition_values(self, name: str) -> Row:
        """Return the values of the partition columns of a partition."""
        return dict(zip(self.kind.partitioned_by, name.split("$"), strict=True))

    def _row(self) -> Row:
        row = self.kind.row(self.rng)
        while self.kind.partition(row) in self.frozen:
            row = self.kind.row(self.rng)
        return row | {name: self.kind.added_value(self.rng) for name in self.added}

    def _append(self, rows: list[Row]) -> None:
        with self.connection.append_writer(self.path) as writer:
            writer.append(rows).result()
        self._appended += len(rows)

    def _upsert(self, rows: list[Row]) -> None:
        with self.connection.upsert_writer(self.path) as writer:
            writer.upsert(rows).result()
        self.model.upsert([self.model.full(row) for row in rows], 0)

    def _upsert_some(self, count: int) -> None:
        others = [name for name in self.columns if name not in self.kind.primary_key]
        chosen = set(self.rng.sample(others, self.rng.randrange(1, len(others) + 1)))
        columns = [name for name in self.columns if name in chosen or name in self.kind.primary_key]
        rows = [{name: row[name] for name in columns} for row in (self._row() for _ in range(count))]
        with self.connection.upsert_writer(self.path, columns=columns) as writer:
            writer.upsert(rows).result()
        self.model.upsert(rows, 0)

    def _delete(self, keys: list[Row]) -> None:
        held = [key for key in keys if self.kind.partition(key) not in self.frozen]
        if not held:
            return
        with self.connection.upsert_writer(self.path) as writer:
            writer.delete(held).result()
        self.model.delete(held, 0)

    # -- truth ---------------------------------------------------------------------------------------------------------

    def read(self) -> dict[Place, BucketLog]:
        """Return every bucket's log, up to what the cluster holds now. Held against the model."""
        partitions = {each.partition_id: name for name, each in self._partitions().items()}
        for status in self.connection.admin().buckets(self.info):
            bucket: TableBucket = status.bucket
            if bucket.partition_id is not None and bucket.partition_id not in partitions:
                continue
            partition = None if bucket.partition_id is None else partitions[bucket.partition_id]
            log = self.logs.setdefault((partition, bucket.bucket), BucketLog())
            self._follow(log, bucket, partition, status.require().end_offset)
        if self.kind.is_keyed:
            self._check_model()
        return self.logs

    def _follow(self, log: BucketLog, bucket: TableBucket, partition: str | None, end: int) -> None:
        start = len(log.events)
        if start >= end:
            return
        runs = read_range(
            self.connection, self.info, bucket, start, end, partition=partition, lake=False, previous_offsets=True
        )
        for run in runs:
            changes = [0] * len(run) if run.change_types is None else run.change_types.to_pylist()
            previous = [-1] * len(run) if run.previous_offsets is None else run.previous_offsets.to_pylist()
            assert run.offsets.to_pylist() == list(range(len(log.events), run.next_offset))
            columns = (changes, run.timestamps_ms.to_pylist(), previous, run.rows.to_pylist())
            log.events += [Event(CHANGES[c], ms, p, row) for c, ms, p, row in zip(*columns, strict=True)]

    def _check_model(self) -> None:
        for place, bucket in self.model.buckets.items():
            log = self.logs.get(place, BucketLog())
            assert [(each.change, each.previous) for each in log.events] == [
                (each.change, each.previous) for each in bucket.log
            ], (self.path, place)
            for mine, theirs in zip(log.events, bucket.log, strict=True):
                assert all(theirs.row[name] == value for name, value in mine.row.items()), (place, mine, theirs)

    def _partitions(self) -> dict[str, PartitionInfo]:
        if not self.kind.partitioned_by:
            return {}
        return {each.name: each for each in self.connection.admin().partitions(self.path)}
