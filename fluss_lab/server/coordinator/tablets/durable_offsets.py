"""The durable offset of each bucket's log, as reported by its server: a log that ends before it is refused.

A bucket is noted when its server has first opened it, before the request that creates the table or partition is answered,
so that it is known here before its first record. Its durable offset follows with the server's reports: every
``bucket.report.interval`` (10 s), and when the server ends. So it may lag behind by what became durable since the last
report that arrived; it is never ahead, and never decreases.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fluss_lab.errors import ConflictError, InvalidRequestError
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore
from fluss_lab.server.coordinator.metadata.table_catalog import NO_PARTITION


class LogEnd(NamedTuple):
    """Where a bucket's log ends, and the time of its last record; -1 without any."""

    offset: int
    max_timestamp_ms: int


class DurableOffset(NamedTuple):
    """A bucket, and the end of the part of its log that is on the device."""

    table_id: int
    partition_id: int
    bucket: int
    offset: int


class DurableOffsets:
    """The known durable offsets. Thread-safe."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def of_table(self, table_id: int) -> dict[tuple[int, int], int]:
        """Return the durable offsets of a table's opened buckets, by partition id and bucket."""
        query = "SELECT partition_id, bucket, durable_offset FROM bucket_offsets WHERE table_id = ?"
        with self._store.read() as db:
            return {(int(row[0]), int(row[1])): int(row[2]) for row in db.execute(query, (table_id,))}

    def of_partitions(self, table_id: int, partition_ids: Iterable[int]) -> dict[tuple[int, int], int]:
        """Return what `of_table` returns, of some partitions: the cost of a new one does not grow with the table."""
        query = "SELECT bucket, durable_offset FROM bucket_offsets WHERE table_id = ? AND partition_id = ?"
        found: dict[tuple[int, int], int] = {}
        with self._store.read() as db:
            for each in partition_ids:
                found |= {(each, int(row[0])): int(row[1]) for row in db.execute(query, (table_id, each))}
        return found

    def raise_to(self, found: Iterable[DurableOffset]) -> None:
        """Note durable offsets that are above the known ones. Dropped buckets are skipped.

        Raises:
            StorageError: The disk refused; nothing was noted.
        """
        query = (
            "INSERT INTO bucket_offsets SELECT :table_id, :partition_id, :bucket, :offset WHERE EXISTS (SELECT 1 FROM assignments "
            "WHERE table_id = :table_id AND partition_id = :partition_id) ON CONFLICT DO UPDATE SET "
            "durable_offset = excluded.durable_offset WHERE excluded.durable_offset > durable_offset"
        )
        if rows := [each._asdict() for each in found]:
            with self._store.write() as db:
                db.executemany(query, rows)

    def report(self, request: pb.ReportBucketsRequest, coordinator_epoch: int) -> None:
        """Note a server's report.

        Raises:
            ConflictError: The report is for another coordinator.
            InvalidRequestError: An offset is negative.
            StorageError: As `raise_to`.
        """
        if request.coordinator_epoch != coordinator_epoch:
            raise ConflictError(
                f"report to coordinator epoch {request.coordinator_epoch}: this is epoch {coordinator_epoch}; register again"
            )
        if any(each.durable_offset < 0 for each in request.buckets):
            raise InvalidRequestError("durable_offset: expected at least 0")
        self.raise_to(
            DurableOffset(
                each.table_bucket.table_id,
                partition_key(each.table_bucket),
                each.table_bucket.bucket_id,
                each.durable_offset,
            )
            for each in request.buckets
        )

    def note_opened(self, table_id: int, buckets: Iterable[tuple[int, int]]) -> None:
        """Note that buckets of a table (partition id and bucket) exist on their server.

        Raises:
            StorageError: The disk refused; nothing was noted.
        """
        opened = list(buckets)
        known = self.of_partitions(table_id, {partition_id for partition_id, _ in opened})
        self.raise_to(DurableOffset(table_id, *each, 0) for each in opened if each not in known)


def partition_key(bucket: pb.PbTableBucket) -> int:
    """Return the partition id of a bucket in a message, or `NO_PARTITION`."""
    return bucket.partition_id if bucket.HasField("partition_id") else NO_PARTITION
