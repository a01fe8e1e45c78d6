"""The batches that a scanner returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fluss_lab.display import html_table
from fluss_lab.model import TableBucket
from fluss_lab.records import LogRecords


@dataclass(frozen=True, slots=True)
class ScanBatch:
    """A run of records of one bucket.

    Attributes:
        bucket: Which bucket.
        partition: Name of its partition; None without partitions.
        records: At least one, in order of offset, following the bucket's batch before without a gap.
    """

    bucket: TableBucket
    partition: str | None
    records: LogRecords

    @property
    def rows(self) -> pa.RecordBatch:
        """Return the user's columns."""
        return self.records.rows

    def __repr__(self) -> str:
        where = "" if self.partition is None else f"{self.partition} "
        return (
            f"<ScanBatch {where}bucket {self.bucket.bucket} [{self.records.base_offset}, {self.records.next_offset})>"
        )


class ScanRecords:
    """The records of one poll: an iterable of `ScanBatch`, maybe of none."""

    def __init__(self, batches: Sequence[ScanBatch]) -> None:
        self.batches = tuple(batches)

    def __iter__(self) -> Iterator[ScanBatch]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def count(self) -> int:
        """Return the number of records."""
        return sum(len(batch.records) for batch in self.batches)

    def buckets(self) -> list[TableBucket]:
        """Return the buckets that have records here."""
        return list(dict.fromkeys(batch.bucket for batch in self.batches))

    def records(self, bucket: TableBucket) -> list[LogRecords]:
        """Return the runs of one bucket, in order."""
        return [batch.records for batch in self.batches if batch.bucket == bucket]

    def to_arrow(self) -> pa.Table | None:
        """Return the rows of all batches as one table; None when there are none."""
        return pa.Table.from_batches([batch.rows for batch in self.batches]) if self.batches else None

    def __repr__(self) -> str:
        return f"<ScanRecords {self.count:,} records of {len(self.buckets())} buckets>"

    def _repr_html_(self) -> str:
        rows = [
            (batch.partition, batch.bucket.bucket, batch.records.base_offset, batch.records.next_offset)
            for batch in self.batches
        ]
        return html_table(f"{self.count:,} records", ("partition", "bucket", "from offset", "to before offset"), rows)
