"""The split generator: what the cluster holds durably and the lake does not, cut into splits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from fluss_lab.client import BucketStatus, Connection
from fluss_lab.errors import CorruptDataError, OffsetOutOfRangeError
from fluss_lab.model import LakeOffset, OffsetSpec, PartitionInfo, TableBucket, TableInfo
from fluss_lab.tiering.options import TieringOptions
from fluss_lab.tiering.splits import TieringLogSplit, number_splits

#: Bytes of a record whose bucket does not tell its size (an empty answer cannot happen for a bucket that lags).
RECORD_BYTES_GUESS: Final = 64


@dataclass(frozen=True, slots=True)
class LogRange:
    """Records ``[start, stop)`` of one bucket that wait to be tiered, and about how many bytes they are."""

    bucket: TableBucket
    partition: str | None
    start: int
    stop: int
    size_bytes: int

    @property
    def records(self) -> int:
        """Return how many records wait."""
        return self.stop - self.start


class TieringSplitGenerator:
    """Plans the splits of one table.

    Args:
        connection: To the cluster.
        table: The table.
        partitions: Its partitions; empty for a table without.
        options: Limits of the round and its splits.
    """

    def __init__(
        self, connection: Connection, table: TableInfo, partitions: Sequence[PartitionInfo], options: TieringOptions
    ) -> None:
        self._connection = connection
        self._table = table
        self._partitions = {partition.partition_id: partition for partition in partitions}
        self._options = options

    def generate(self, tiered: Mapping[TableBucket, LakeOffset], parallelism: int) -> list[TieringLogSplit]:
        """Return the splits of a round, biggest first; none when the lake is up to date.

        Of a bucket that was tiered, from the end of what the lake holds; of another, from the first record that the
        cluster holds. To the last *durable* record: what a power loss could take back never gets into the lake.

        Args:
            tiered: How far each bucket is tiered.
            parallelism: Tasks that run at once: buckets are cut so that all have work, but never finer than
                `TieringOptions.split_bytes_min`.

        Raises:
            OffsetOutOfRangeError: Records left the cluster before they were tiered; the lake would have a gap.
            CorruptDataError: The lake holds more of a bucket than the cluster ever wrote, or a bucket has stopped.

        Cost: one call for the table, and one (which makes records durable) for each partition that lags.
        """
        ranges = limit_records(self._lagging(tiered), self._options.round_records_max)
        size_bytes = split_size(ranges, parallelism, self._options)
        splits = [split for each in ranges for split in self._cut(each, size_bytes)]
        weights = {each.bucket: each.size_bytes / each.records for each in ranges}
        splits.sort(key=lambda s: (-s.records * weights[s.table_bucket], s.table_bucket.sort_key(), s.starting_offset))
        return number_splits(splits)

    def _lagging(self, tiered: Mapping[TableBucket, LakeOffset]) -> list[LogRange]:
        found: dict[int | None, list[tuple[BucketStatus, int]]] = {}
        for status in self._connection.admin().buckets(self._table):
            bucket = status.bucket
            if bucket.partition_id is not None and bucket.partition_id not in self._partitions:
                continue  # dropped, or made since the partitions were listed
            start = self._start(status, tiered.get(bucket))
            if start < status.end_offset:
                found.setdefault(bucket.partition_id, []).append((status, start))
        return [each for partition_id, buckets in found.items() for each in self._durable(partition_id, buckets)]

    def _durable(self, partition_id: int | None, buckets: list[tuple[BucketStatus, int]]) -> Iterable[LogRange]:
        partition = None if partition_id is None else self._partitions[partition_id]
        latest = self._connection.admin().list_offsets(
            self._table,
            OffsetSpec.latest(),
            partition=partition,
            buckets=[status.bucket.bucket for status, _ in buckets],
            lake=False,
            durable=True,
        )
        for status, start in buckets:
            stop = latest[status.bucket.bucket].offset
            if start < stop:
                name = None if partition is None else partition.name
                size_bytes = _record_bytes(status) * (stop - start)
                yield LogRange(status.bucket, name, start, stop, max(1, int(size_bytes)))

    def _start(self, status: BucketStatus, tiered: LakeOffset | None) -> int:
        """Return the first offset of a bucket to tier, after checking that lake and log fit together."""
        if tiered is None:
            return status.start_offset
        where = f"table {self._table.path} bucket {self._name(status.bucket)}"
        if tiered.end < status.start_offset:
            raise OffsetOutOfRangeError(
                f"{where}: the lake holds offsets below {tiered.end}, the cluster those from {status.start_offset} on; "
                f"[{tiered.end}, {status.start_offset}) left the cluster before they were tiered. Nothing more of the "
                "table is tiered, since the lake would have a gap. To go on without these records, create the table anew"
            )
        if tiered.end > status.end_offset:
            raise CorruptDataError(
                f"{where}: the lake holds offsets below {tiered.end}, the cluster only those below "
                f"{status.end_offset}; the cluster's folder is older than the lake (restored from a copy?)"
            )
        return tiered.end

    def _name(self, bucket: TableBucket) -> str:
        partition = None if bucket.partition_id is None else self._partitions.get(bucket.partition_id)
        return f"{bucket.bucket}" if partition is None else f"{bucket.bucket} of partition {partition.name}"

    def _cut(self, each: LogRange, size_bytes: int) -> Iterable[TieringLogSplit]:
        for start, stop in cut(each.start, each.stop, -(-each.size_bytes // size_bytes)):
            yield TieringLogSplit(self._table.path, each.bucket, each.partition, 0, 0, start, stop)


def limit_records(ranges: Sequence[LogRange], records_max: int) -> list[LogRange]:
    """Return the ranges shortened, each by the same share (but to at least one record), to a number in all."""
    total = sum(each.records for each in ranges)
    if total <= records_max:
        return list(ranges)
    limited = []
    for each in ranges:
        taken = max(1, each.records * records_max // total)
        size_bytes = max(1, each.size_bytes * taken // each.records)
        limited.append(replace(each, stop=each.start + taken, size_bytes=size_bytes))
    return limited


def split_size(ranges: Sequence[LogRange], parallelism: int, options: TieringOptions) -> int:
    """Return about how many bytes a split should have: what gives every worker one, within the options' bounds."""
    total = sum(each.size_bytes for each in ranges)
    fair = -(-total // max(1, parallelism))
    return min(max(fair, options.split_bytes_min), options.split_bytes_max)


def cut(start: int, stop: int, pieces: int) -> list[tuple[int, int]]:
    """Return ``[start, stop)`` as at most so many ranges of nearly equal length, none of them empty."""
    length = stop - start
    pieces = max(1, min(pieces, length))
    return list(pairwise(start + length * index // pieces for index in range(pieces + 1)))


def _record_bytes(status: BucketStatus) -> float:
    records = status.end_offset - status.local_start_offset
    return status.size_bytes / records if records > 0 and status.size_bytes > 0 else RECORD_BYTES_GUESS
