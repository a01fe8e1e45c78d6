"""What a table is made of at this moment: its buckets in the cluster and in the lake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from fluss_lab.client import BucketOffset, BucketStatus, Connection
from fluss_lab.errors import (
    InvalidTimestampError,
    LakeNotConfiguredError,
    LakeSnapshotNotFoundError,
    PartitionNotFoundError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.lake import FlussLogSource, LakeSource, LakeStorage, LookupContext, SupportsCreateFlussLogSource
from fluss_lab.model import LakeSnapshot, OffsetSpec, PartitionInfo, TableBucket, TableInfo
from fluss_lab.read.points import BucketKey

T = TypeVar("T")

#: A partition may be dropped between the questions of one look; more often than this is no accident.
LOOKS_MAX = 5


@dataclass(frozen=True, slots=True)
class BucketState:
    """One bucket now.

    Attributes:
        bucket: Its identity.
        partition: Name of its partition; None without partitions.
        start: First offset that the cluster holds; None when the cluster does not know the bucket any more.
        local_start: First one on a server's disk: those before are in remote storage.
        end: Offset after the last readable record, in the cluster, or in the lake when only that holds it.
        lake_end: Offsets below are in the lake (0 when none are).
    """

    bucket: TableBucket
    partition: str | None
    start: int | None
    local_start: int | None
    end: int
    lake_end: int

    @property
    def key(self) -> BucketKey:
        """Return partition name and bucket."""
        return (self.partition, self.bucket.bucket)


@dataclass(frozen=True, slots=True)
class TableState:
    """A table now: every bucket, by partition name and bucket, and the newest lake snapshot (None without)."""

    buckets: tuple[BucketState, ...]
    snapshot: LakeSnapshot | None

    @property
    def snapshot_id(self) -> int | None:
        """Return the newest lake snapshot's id."""
        return None if self.snapshot is None else self.snapshot.snapshot_id


class TableSource:
    """One table with everything that reads of it need."""

    def __init__(self, connection: Connection, info: TableInfo, storage: LakeStorage | None) -> None:
        self.connection = connection
        self.info = info
        self._given = storage

    def with_info(self, info: TableInfo) -> TableSource:
        """Return the same table as it is otherwise known: with the columns that it had at some time."""
        return TableSource(self.connection, info, self._given)

    def check_table(self, table_id: int) -> None:
        """Raise `TableNotFoundError` when this is not the table of that id."""
        if table_id != self.info.table_id:
            raise TableNotFoundError(
                f"table {self.info.path}: expected the one with id {table_id}, found id {self.info.table_id}: "
                "it was dropped and made again"
            )

    # -- the lake -----------------------------------------------------------------------------------------------------

    @cached_property
    def storage(self) -> LakeStorage:
        """Return the lake: the one given, else the one that the cluster is configured with."""
        storage = self._given if self._given is not None else self.connection.lake_storage()
        if storage is None:
            raise LakeNotConfiguredError(
                f"table {self.info.path}: a part of it is in the lake, and no lake is configured"
            )
        return storage

    @cached_property
    def lake_source(self) -> LakeSource:
        """Return the reader of the lake's rows."""
        return self.storage.create_lake_source(self.info)

    @cached_property
    def log_source(self) -> FlussLogSource:
        """Return the reader of the lake's rows as a log."""
        if not isinstance(self.storage, SupportsCreateFlussLogSource):
            raise UnsupportedError(f"table {self.info.path}: its lake format cannot be read as a log")
        return self.storage.create_fluss_log_source(self.info)

    def snapshot(self, snapshot_id: int | None = None) -> LakeSnapshot | None:
        """Return a lake snapshot as the cluster knows it, or the newest; None when it knows none such."""
        try:
            return self.connection.admin().lake_snapshot(self.info.path, snapshot_id)
        except (LakeSnapshotNotFoundError, LakeNotConfiguredError):
            return None

    # -- the cluster --------------------------------------------------------------------------------------------------

    def look(self) -> TableState:
        """Return the table as it is now: of each bucket, ``lake_end <= end``."""
        for attempt in range(LOOKS_MAX):
            # The lake first: what is tiered between the two questions then only looks untiered.
            snapshot = self.snapshot()
            try:
                statuses = self.connection.admin().buckets(self.info)
            except PartitionNotFoundError:
                if attempt == LOOKS_MAX - 1:
                    raise
                continue
            return self._merged(snapshot, statuses)
        raise AssertionError

    def offsets_by_time(
        self, state: TableState, timestamp_ms: int, *, raise_clock: bool = False
    ) -> dict[BucketKey, BucketOffset]:
        """Return, for every bucket of `state`, the first offset at or after a time; its end when there is none.

        Args:
            state: From `look`.
            timestamp_ms: Epoch milliseconds.
            raise_clock: Whether the servers shall give no later record a timestamp below it.

        Raises:
            InvalidTimestampError: The time is after the servers' clock.
        """
        found: dict[BucketKey, BucketOffset] = {}
        spec = OffsetSpec.timestamp(timestamp_ms)
        names = sorted({each.partition or "" for each in state.buckets if each.start is not None})
        for name in names:
            members = [each for each in state.buckets if (each.partition or "") == name and each.start is not None]
            identity = members[0].bucket.partition_id
            partition = None if identity is None else PartitionInfo(identity, name)
            answers = self.connection.admin().list_offsets(
                self.info, spec, partition=partition, buckets=[each.bucket.bucket for each in members],
                raise_clock=raise_clock,
            )  # fmt: skip
            found |= {each.key: answers[each.bucket.bucket] for each in members}
        for each in state.buckets:
            if each.start is None:
                found[each.key] = self._lake_offset_by_time(each, state.snapshot_id, timestamp_ms)
        return found

    def _lake_offset_by_time(self, bucket: BucketState, snapshot_id: int | None, timestamp_ms: int) -> BucketOffset:
        """Answer for a bucket that only the lake has."""
        if snapshot_id is None or not bucket.lake_end:
            return BucketOffset(bucket.end)
        context = LookupContext(bucket.partition, bucket.bucket.bucket, timestamp_ms, snapshot_id)
        try:
            offset, found_ms = self.log_source.lookup_log_offset_by_timestamp(context)
        except InvalidTimestampError:
            return BucketOffset(bucket.end)
        return BucketOffset(offset, found_ms, snapshot_id)

    def starts(self, state: TableState, *, log: bool = False) -> dict[BucketKey, int]:
        """Return, for every bucket of `state`, the first offset that is held anywhere: cluster or lake.

        Args:
            state: From `look`.
            log: Whether all records from there on must be held: the lake may have rows from before a gap.
        """
        found = {each.key: each.end if each.start is None else each.start for each in state.buckets}
        behind = {each.key: each.lake_end for each in state.buckets if each.lake_end and each.start != 0}
        if behind and state.snapshot is not None:
            replayed = state.snapshot.starts if log else {}
            first = {each.key: replayed.get(each.bucket, 0) for each in state.buckets}
            for split in self.lake_source.plan(state.snapshot.snapshot_id, stops=behind):
                key = (split.partition, split.bucket)
                found[key] = min(found[key], max(split.min_offset, first[key]))
        return found

    def _merged(self, snapshot: LakeSnapshot | None, statuses: Sequence[BucketStatus]) -> TableState:
        lake = {} if snapshot is None else dict(snapshot.offsets)
        found: list[BucketState] = []
        for status in statuses:
            offset = lake.pop(status.bucket, None)
            found.append(
                BucketState(
                    status.bucket,
                    status.partition,
                    status.start_offset,
                    status.local_start_offset,
                    status.high_watermark,
                    0 if offset is None else offset.end,
                )
            )
        found += [
            BucketState(bucket, offset.partition, None, None, offset.end, offset.end) for bucket, offset in lake.items()
        ]
        return TableState(tuple(sorted(found, key=lambda each: (each.partition or "", each.bucket.bucket))), snapshot)
