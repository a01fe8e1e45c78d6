"""The losses by damage of a bucket's log, and whether the lake or remote storage still holds the records."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from fluss_lab.model.names import TableBucket
from fluss_lab.server.coordinator.metadata.table_catalog import NO_PARTITION
from fluss_lab.server.inspection.findings import Finding
from fluss_lab.server.tablet.damage.damaged_ranges import DamagedRange

#: Offsets ``[start, stop)``.
Range: TypeAlias = tuple[int, int]

_TABLES: Final = "SELECT table_id, database, name FROM tables"
_PARTITIONS: Final = "SELECT partition_id, name FROM partitions"
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
    """

    tables: dict[int, str] = field(default_factory=dict)
    partitions: dict[int, str] = field(default_factory=dict)
    durable: dict[TableBucket, int] = field(default_factory=dict)
    lake: dict[TableBucket, Range] = field(default_factory=dict)
    snapshots: dict[TableBucket, int] = field(default_factory=dict)

    def title(self, bucket: TableBucket) -> str:
        """Return the name of a bucket in error messages."""
        table = self.tables.get(bucket.table_id, f"table id {bucket.table_id}")
        partition = ""
        if bucket.partition_id is not None:
            partition = f"({self.partitions.get(bucket.partition_id, f'partition id {bucket.partition_id}')})"
        return f"{table}{partition} bucket {bucket.bucket} [{bucket}]"


def read_known(path: Path) -> KnownBuckets:
    """Return what metadata of this version knows of buckets. Pass a copy: opening the file changes the files beside it.

    Raises:
        sqlite3.DatabaseError: It is damaged, or of another version.
    """
    known = KnownBuckets()
    with closing(sqlite3.connect(path)) as db:
        known.tables = {row[0]: f"{row[1]}.{row[2]}" for row in db.execute(_TABLES)}
        known.partitions = dict(db.execute(_PARTITIONS))
        known.durable = {_bucket(*row[:3]): row[3] for row in db.execute(_DURABLE)}
        known.snapshots = {_bucket(*row[:3]): row[3] for row in db.execute(_SNAPSHOTS)}
        known.lake = {_bucket(*row[:3]): (row[3], row[4]) for row in db.execute(_LAKE) if row[4] >= 0}
    return known


def _bucket(table_id: int, partition_id: int, bucket: int) -> TableBucket:
    return TableBucket(table_id, None if partition_id == NO_PARTITION else partition_id, bucket)


def losses(
    bucket: TableBucket, ranges: Iterable[DamagedRange], known: KnownBuckets | None, remote: Range | None
) -> Iterator[Finding]:
    """Yield a finding for each damaged range of a bucket: its offsets, and where else they are held.

    Args:
        bucket: The bucket.
        ranges: The damaged ranges of its log.
        known: What the metadata knows; None: it cannot be read.
        remote: The offsets that remote storage holds of the bucket.
    """
    for path, start, stop, *_ in ranges:
        title = str(bucket) if known is None else known.title(bucket)
        meaning, advice = _held((start, stop), bucket, known, remote)
        table = None if known is None else known.tables.get(bucket.table_id)
        if table is not None:
            advice += f". To continue without what cannot be read: fluss-lab repair {table} --skip-corrupt, while the server runs"
        yield Finding(path, None, f"{title}: offsets [{start}, {stop}) cannot be read", meaning, advice)


def _held(lost: Range, bucket: TableBucket, known: KnownBuckets | None, remote: Range | None) -> tuple[str, str]:
    """Return the consequence of a lost range, and the remedy."""
    lake = None if known is None else known.lake.get(bucket)
    clauses, left = [], [lost]
    for who, has in (("the lake", lake), ("remote storage", remote)):
        if has is not None and (both := (max(has[0], lost[0]), min(has[1], lost[1])))[0] < both[1]:
            clauses.append(f"{who} holds {_shown([both])}")
            left = [part for each in left for part in _without(each, both)]
    if left and known is not None:
        clauses.append(f"no other copy exists of {_shown(left)}")
    elif left:
        clauses.append(f"remote storage does not hold {_shown(left)}, and what the lake holds is not known")
    if known is not None and (snapshot := known.snapshots.get(bucket)) is not None:
        needed = "the rows need them" if snapshot < lost[1] else "the rows do not need them, the changelog does"
        clauses.append(f"the newest key-value snapshot is of offset {snapshot}: {needed}")
    text = "; ".join(clauses)
    copy = "Restore the file from a copy if there is one"
    return text[0].upper() + text[1:], copy + ("; else these records are lost" if left else "")


def _shown(ranges: Iterable[Range]) -> str:
    return ", ".join(f"[{start}, {stop})" for start, stop in ranges)


def _without(whole: Range, part: Range) -> list[Range]:
    """Return what is left of a range without another."""
    pieces = [(whole[0], min(whole[1], part[0])), (max(whole[0], part[1]), whole[1])]
    return [each for each in pieces if each[0] < each[1]]
