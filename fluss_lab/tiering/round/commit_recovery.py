"""The recovery of commits: a snapshot of ours that the lake has and the cluster does not know is registered before the next round.

It is what is left of a tierer that ended between the two, or whose call to the coordinator was lost. Whoever takes its table
over first commits an empty snapshot, so that the predecessor, should it still live, can commit nothing more.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fluss_lab.client import Connection, KnownBucket
from fluss_lab.client.cluster.bucket_status import lake_snapshot
from fluss_lab.client.cluster.list_offsets import OffsetQuery, list_offsets
from fluss_lab.errors import LakeAheadError, LakeSnapshotNotFoundError
from fluss_lab.failpoints import failpoint
from fluss_lab.lake import CommittedLakeSnapshot, LakeCommitter
from fluss_lab.lake.snapshot_summary import (
    LakeOffsets,
    advanced_buckets,
    committed_offsets,
    committed_starts,
    merge_offsets,
)
from fluss_lab.model import LakeOffset, OffsetSpec, PartitionInfo, TableBucket, TableInfo
from fluss_lab.model.times import format_moment
from fluss_lab.tiering.round.source_enumerator import TieringAssignment, TieringSourceEnumerator
from fluss_lab.tiering.round.split_generator import anew_text
from fluss_lab.tiering.round.tiering_committer import FlussTableLakeSnapshotCommitter, TieringCommitter


@dataclass(frozen=True, slots=True)
class RecoveredLake:
    """Where lake and cluster are once no commit is missing.

    Attributes:
        newest_id: The lake's newest snapshot, of whomever.
        partitions: Of the table, as they were after that snapshot.
        known_id: The snapshot that the cluster knows.
        known: How far each bucket is tiered in it.
    """

    newest_id: int | None
    partitions: Sequence[PartitionInfo]
    known_id: int | None
    known: LakeOffsets


class CommitRecovery:
    """Finds and registers the missing commits of one table. The first time after a takeover fences the predecessor.

    Args:
        sound: The buckets whose cluster's part can be read, where others are lost; None: all.
    """

    def __init__(
        self,
        connection: Connection,
        enumerator: TieringSourceEnumerator,
        assignment: TieringAssignment,
        sound: Mapping[TableBucket, KnownBucket] | None = None,
    ) -> None:
        self._connection = connection
        self._enumerator = enumerator
        self._assignment = assignment
        self._sound = sound
        self._fluss = FlussTableLakeSnapshotCommitter(connection, assignment)
        self._must_fence = assignment.takeover

    def catch_up(self, table: TableInfo, lake: LakeCommitter[Any, Any]) -> RecoveredLake:
        """Fence a predecessor, read where lake and cluster are, and register what was committed and never registered.

        Raises:
            FencedTieringEpochError: The table is not ours any more.
            CommitConflictError: Another commit came while the predecessor was fenced: catch up again.
            LakeSnapshotNotFoundError: The lake lost the snapshot that the cluster knows.
            ForeignCommitError: Another program changed the rows of the lake table.
            LakeAheadError: The cluster is older than the lake.
        """
        if self._must_fence:
            self._fence(table, lake)
        newest_id = lake.current_snapshot_id()
        self._enumerator.renew(self._assignment)
        # After the snapshot: a partition that is dropped from the lake later makes a newer one, so that our commit fails.
        partitions = self._partitions(table)
        known_id, known = self._registered_snapshot(table, lake, partitions)
        return RecoveredLake(newest_id, partitions, known_id, known)

    def _partitions(self, table: TableInfo) -> list[PartitionInfo]:
        return self._connection.admin().partitions(table.path) if table.descriptor.partitioned_by else []

    def _fence(self, table: TableInfo, lake: LakeCommitter[Any, Any]) -> None:
        """Commit an empty snapshot: whatever a predecessor planned, should it still live, can not be committed any more.

        What the predecessor did commit is registered first: some catalogs show no snapshot but the newest.
        """
        planned_id = lake.current_snapshot_id()
        self._enumerator.renew(self._assignment)
        _, known = self._registered_snapshot(table, lake, self._partitions(table))
        TieringCommitter(lake, self._assignment, uuid.uuid4().hex).fence(known, planned_id)
        self._must_fence = False
        failpoint("tiering.fence.after")

    def _registered_snapshot(
        self, table: TableInfo, lake: LakeCommitter[Any, Any], partitions: Sequence[PartitionInfo]
    ) -> tuple[int | None, LakeOffsets]:
        """Return the snapshot and offsets that the cluster knows, once it knows what was committed and never registered."""
        known_id, known = self._known_snapshot(table)
        missing, merged = self._missing_snapshot(table, lake, partitions, known_id, known)
        if missing is None:
            return known_id, known
        newer = advanced_buckets(merged, known)
        self._check_same_records(table, partitions, known, newer)
        first = {bucket: offset for bucket, offset in newer.items() if bucket not in known}
        self._fluss.commit(missing.snapshot_id, newer, committed_starts(missing, first))
        failpoint("tiering.register.after")
        return missing.snapshot_id, merged

    def _check_same_records(
        self, table: TableInfo, partitions: Sequence[PartitionInfo], known: LakeOffsets, newer: LakeOffsets
    ) -> None:
        """Check that what was committed and never registered are the records that the cluster has at these offsets.

        A cluster restored from a copy that is older than the lake gives the offsets to other records, which would then
        never be tiered. Those are later ones: all that the lake has are at most as old as its last one.

        Raises:
            LakeAheadError: They are not.
            FlussError: The cluster cannot say.

        Cost: a call for each bucket, only where a commit was not registered.
        """
        present = {partition.partition_id: partition for partition in partitions}
        for bucket, offset in newer.items():
            is_gone = bucket.partition_id is not None and bucket.partition_id not in present
            # What a primary-key table's first round took from a snapshot has no time of its last record.
            is_timed = offset.max_timestamp_ms >= 0 and (table.is_log_table or bucket in known)
            if is_gone or not is_timed or (self._sound is not None and bucket not in self._sound):
                continue
            query = OffsetQuery(OffsetSpec.timestamp(offset.max_timestamp_ms + 1), lake=False)
            partition = None if bucket.partition_id is None else present[bucket.partition_id]
            found = list_offsets(self._connection, table, query, partition, [bucket.bucket])[bucket.bucket]
            if found.offset < offset.end:
                raise LakeAheadError(
                    f"table {table.path} bucket {bucket.bucket}: the lake holds offsets below {offset.end}, the last of "
                    f"{format_moment(offset.max_timestamp_ms)}; of the cluster's records only those below {found.offset} are so "
                    "old: the cluster's folder is older than the lake (restored from a copy?). Nothing more of the table is "
                    f"tiered: restore the newer folder, or {anew_text(table.path)}"
                )

    def _known_snapshot(self, table: TableInfo) -> tuple[int | None, LakeOffsets]:
        try:
            snapshot = lake_snapshot(self._connection, table.path, table_id=table.table_id)
        except LakeSnapshotNotFoundError:
            return None, {}
        return snapshot.snapshot_id, snapshot.offsets

    def _missing_snapshot(
        self,
        table: TableInfo,
        lake: LakeCommitter[Any, Any],
        partitions: Sequence[PartitionInfo],
        known_id: int | None,
        known: LakeOffsets,
    ) -> tuple[CommittedLakeSnapshot | None, LakeOffsets]:
        """Return the newest lake snapshot of ours that Fluss does not know, and all offsets with it; None: there is none."""
        missing = lake.missing_lake_snapshot(known_id)
        if missing is None:
            return None, known
        recovered = committed_offsets(missing, table.table_id, _partition_ids(partitions, known))
        return missing, merge_offsets(known, recovered)


def _partition_ids(partitions: Sequence[PartitionInfo], known: Mapping[TableBucket, LakeOffset]) -> dict[str, int]:
    """Return name to id of the partitions that exist, and of dropped ones that were tiered before."""
    ids = {
        offset.partition: bucket.partition_id
        for bucket, offset in known.items()
        if offset.partition is not None and bucket.partition_id is not None
    }
    return ids | {partition.name: partition.partition_id for partition in partitions}
