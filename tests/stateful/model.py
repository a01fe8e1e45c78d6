"""What a cluster should hold, in lists and dicts: the oracle of the state machine."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from fluss_lab.model import TableDescriptor
from fluss_lab.model.bucketing import fluss_bucket_ids, iceberg_bucket_ids

Row = dict[str, object]


@dataclass
class Event:
    """One record of the log."""

    change: str
    row: Row
    timestamp_ms: int
    previous: int = -1


@dataclass
class BucketModel:
    """One bucket: every record it ever had, and the live rows with the offsets of their records."""

    log: list[Event] = field(default_factory=list)
    rows: dict[tuple[object, ...], tuple[Row, int]] = field(default_factory=dict)

    def add(self, change: str, row: Row, now_ms: int, previous: int = -1) -> int:
        self.log.append(Event(change, dict(row), now_ms, previous))
        return len(self.log) - 1


class TableModel:
    """One table. Rows are dicts of all its present columns."""

    def __init__(self, descriptor: TableDescriptor) -> None:
        self.descriptor = descriptor
        self.columns = [column.name for column in descriptor.schema.columns]
        self.key = descriptor.schema.primary_key
        self.engine = descriptor.properties.get("table.merge-engine", "default")
        self.buckets: dict[tuple[str | None, int], BucketModel] = {}
        if not descriptor.partitioned_by:
            self.add_partition(None)

    @property
    def partitions(self) -> list[str | None]:
        return sorted({partition for partition, _ in self.buckets}, key=str)

    def add_partition(self, name: str | None) -> None:
        for bucket in range(self.descriptor.buckets):
            self.buckets.setdefault((name, bucket), BucketModel())

    def drop_partition(self, name: str) -> None:
        self.buckets = {place: bucket for place, bucket in self.buckets.items() if place[0] != name}

    def add_column(self, name: str) -> None:
        """Every record and row reads as null in a new column."""
        self.columns.append(name)
        for bucket in self.buckets.values():
            for event in bucket.log:
                event.row[name] = None
            bucket.rows = {key: ({**row, name: None}, offset) for key, (row, offset) in bucket.rows.items()}

    def place(self, row: Row) -> tuple[str | None, int]:
        partition = "$".join(str(row[name]) for name in self.descriptor.partitioned_by) or None
        if not self.descriptor.bucket_key or self.descriptor.buckets == 1:
            return partition, 0
        schema = self.descriptor.schema
        keys = [pa.array([row[name]], schema.column(name).type.arrow()) for name in self.descriptor.bucket_key]
        iceberg = self.descriptor.bucketing == "iceberg"
        count = self.descriptor.buckets
        return partition, (iceberg_bucket_ids(keys[0], count) if iceberg else fluss_bucket_ids(keys, count))[0].as_py()

    def key_of(self, row: Row) -> tuple[object, ...]:
        return tuple(row[name] for name in self.key)

    # -- changes -----------------------------------------------------------------------------------------------------

    def append(self, rows: list[Row], now_ms: int) -> None:
        for row in rows:
            place = self.place(row)
            if place not in self.buckets:
                self.add_partition(place[0])
            self.buckets[place].add("+A", self.full(row), now_ms)

    def full(self, row: Row) -> Row:
        return {name: row.get(name) for name in self.columns}

    def upsert(self, rows: list[Row], now_ms: int) -> None:
        """Upsert rows in order; columns that a row leaves out keep their value."""
        for row in rows:
            place = self.place(row)
            if place not in self.buckets:
                self.add_partition(place[0])
            self._upsert(self.buckets[place], row, now_ms)

    def _upsert(self, bucket: BucketModel, row: Row, now_ms: int) -> None:
        key = self.key_of(row)
        if key not in bucket.rows:
            new = self.full(row)
            bucket.rows[key] = (new, bucket.add("+I", new, now_ms))
            return
        old, offset = bucket.rows[key]
        new = {**old, **row}
        if self.engine == "first_row" or new == old:
            return
        if self.engine == "versioned" and new["v"] < old["v"]:  # type: ignore[operator]
            return
        bucket.add("-U", old, now_ms, offset)
        bucket.rows[key] = (new, bucket.add("+U", new, now_ms, offset))

    def delete(self, keys: list[Row], now_ms: int) -> None:
        for key_row in keys:
            bucket = self.buckets.get(self.place(key_row))
            if bucket is None or self.engine != "default":
                continue
            found = bucket.rows.pop(self.key_of(key_row), None)
            if found is not None:
                bucket.add("-D", found[0], now_ms, found[1])

    # -- answers -----------------------------------------------------------------------------------------------------

    def lookup(self, key_row: Row) -> Row | None:
        bucket = self.buckets.get(self.place(key_row))
        found = None if bucket is None else bucket.rows.get(self.key_of(key_row))
        return None if found is None else found[0]

    def first_at(self, place: tuple[str | None, int], time_ms: int) -> int:
        """Return the first offset at or after a time; the end when there is none."""
        log = self.buckets[place].log
        return next((offset for offset, event in enumerate(log) if event.timestamp_ms >= time_ms), len(log))
