"""The buckets that the coordinator's metadata knows, read from a file on which no server works."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from fluss_lab.model.names import TableBucket
from fluss_lab.server.coordinator.metadata.lab_identity import LabIdentity
from fluss_lab.server.coordinator.metadata.table_catalog import NO_PARTITION

#: Offsets ``[start, stop)``.
Range: TypeAlias = tuple[int, int]

_VALUES: Final = "SELECT key, value FROM meta"
_TABLES: Final = "SELECT table_id, database, name, created_ms FROM tables"
_PARTITIONS: Final = "SELECT partition_id, name, created_ms FROM partitions"
_DURABLE: Final = "SELECT table_id, partition_id, bucket, durable_offset FROM bucket_offsets"
_SNAPSHOTS: Final = "SELECT table_id, partition_id, bucket, max(log_offset) FROM kv_snapshots GROUP BY 1, 2, 3"
#: SQLite: beside max(), other columns are those of the row that has it.
_LAKE: Final = (
    "SELECT table_id, partition_id, bucket, coalesce(start_offset, 0), end_offset, max(version) FROM lake_offsets "
    "GROUP BY 1, 2, 3"
)


@dataclass(slots=True)
class KnownBuckets:
    """What the coordinator's metadata knows of buckets.

    Attributes:
        tables: Names by table id.
        partitions: Names by partition id.
        durable: The durable offset of each log, as reported last.
        lake: The offsets that the lake holds of each bucket.
        snapshots: The offset from which each primary-key table's bucket is replayed: that of its newest snapshot.
        made_ms: When each table and partition was made, by its id.
        lab: What names buckets; None: it is not known.
    """

    tables: dict[int, str] = field(default_factory=dict)
    partitions: dict[int, str] = field(default_factory=dict)
    durable: dict[TableBucket, int] = field(default_factory=dict)
    lake: dict[TableBucket, Range] = field(default_factory=dict)
    snapshots: dict[TableBucket, int] = field(default_factory=dict)
    made_ms: tuple[dict[int, int], dict[int, int]] = field(default_factory=lambda: ({}, {}))
    lab: LabIdentity | None = None

    def place(self, bucket: TableBucket) -> str:
        """Return the name of a bucket's table and partition in error messages."""
        table = self.tables.get(bucket.table_id, f"table id {bucket.table_id}")
        partition = ""
        if bucket.partition_id is not None:
            partition = f"({self.partitions.get(bucket.partition_id, f'partition id {bucket.partition_id}')})"
        return f"{table}{partition}"

    def title(self, bucket: TableBucket) -> str:
        """Return the name of a bucket in error messages."""
        return f"{self.place(bucket)} bucket {bucket.bucket} [{bucket}]"

    def identity(self, bucket: TableBucket) -> str:
        """Return the identity by which a bucket's folder is marked; empty where the metadata does not know the bucket."""
        tables, partitions = self.made_ms
        table_id, partition_id, number = bucket.table_id, bucket.partition_id, bucket.bucket
        if self.lab is None or table_id not in tables:
            return ""
        if partition_id is None:
            return self.lab.of_bucket(table_id, tables[table_id], NO_PARTITION, 0, number)
        if partition_id not in partitions:
            return ""
        return self.lab.of_bucket(table_id, tables[table_id], partition_id, partitions[partition_id], number)

    def is_marked(self, bucket: TableBucket) -> bool:
        """Return whether a bucket's folder has its mark from the beginning: see `LabIdentity.is_marked`."""
        partition_id = NO_PARTITION if bucket.partition_id is None else bucket.partition_id
        return self.lab is not None and self.lab.is_marked(bucket.table_id, partition_id)


def read_known(path: Path) -> KnownBuckets:
    """Return what metadata of this version knows of buckets. Pass a copy: opening the file changes the files beside it.

    Raises:
        sqlite3.DatabaseError: It is damaged, or of another version.
    """
    known = KnownBuckets()
    with closing(sqlite3.connect(path)) as db:
        tables, partitions = db.execute(_TABLES).fetchall(), db.execute(_PARTITIONS).fetchall()
        known.tables = {row[0]: f"{row[1]}.{row[2]}" for row in tables}
        known.partitions = {row[0]: row[1] for row in partitions}
        known.made_ms = {row[0]: row[3] for row in tables}, {row[0]: row[2] for row in partitions}
        known.lab = LabIdentity.find(dict(db.execute(_VALUES)))
        known.durable = {_bucket(*row[:3]): row[3] for row in db.execute(_DURABLE)}
        known.snapshots = {_bucket(*row[:3]): row[3] for row in db.execute(_SNAPSHOTS)}
        known.lake = {_bucket(*row[:3]): (row[3], row[4]) for row in db.execute(_LAKE) if row[4] >= 0}
    return known


def _bucket(table_id: int, partition_id: int, bucket: int) -> TableBucket:
    return TableBucket(table_id, None if partition_id == NO_PARTITION else partition_id, bucket)
