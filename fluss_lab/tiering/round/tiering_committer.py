"""The committer: a round's results go to the lake in one snapshot, then to Fluss."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fluss_lab.client import Connection
from fluss_lab.errors import (
    CommitOutcomeUnknownError,
    FlussError,
    InternalError,
    error_from_code,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.lake import LakeCommitter
from fluss_lab.lake.snapshot_summary import COMMIT_ID_KEY, LakeOffsets, commit_properties, merge_offsets
from fluss_lab.model import LakeOffset, TableBucket
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.tiering.round.source_enumerator import TieringAssignment
from fluss_lab.tiering.round.split_generator import TieringSplit

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WrittenSplit:
    """A split whose task succeeded.

    Attributes:
        split: What was planned.
        end: The bucket is written up to here; where the split begins when it was left to a later round.
        max_timestamp_ms: Timestamp of the last record.
        result: The lake's write result; its `file_count` and `size_bytes` are reported. None when the split was left out.
        start: From where on: after the split's own start when its first record belongs to the split before.
            None: from its start on.
        rows: Rows written.
        events: Ends of rows (``-U`` and ``-D``) written.
    """

    split: TieringSplit
    end: int
    max_timestamp_ms: int
    result: Any
    start: int | None = None
    rows: int = 0
    events: int = 0

    @property
    def begin(self) -> int:
        """Return from where on the bucket is written."""
        return self.split.start if self.start is None else self.start


class FlussTableLakeSnapshotCommitter:
    """Registers with Fluss which lake snapshot a table has, and how far each bucket is tiered in it."""

    def __init__(self, connection: Connection, assignment: TieringAssignment) -> None:
        self._connection = connection
        self._assignment = assignment

    def commit(
        self,
        snapshot_id: int,
        offsets: LakeOffsets,
        starts: Mapping[TableBucket, int] | None = None,
        *,
        repair: bool = False,
    ) -> None:
        """Make a lake snapshot known. Repeating it is harmless.

        Args:
            snapshot_id: Of the lake.
            offsets: How far each bucket is tiered; buckets left out stay as they are.
            starts: First offset that the lake can replay, of buckets tiered for the first time, and of those where it
                moved; buckets left out stay as they are.
            repair: The lake was accepted as it is: buckets may go back, and those left out hold nothing.

        Raises:
            FencedTieringEpochError: Another tierer holds the table. The snapshot stays; that tierer makes it known.
            TableNotFoundError: The table was dropped.
        """
        info = pb.PbLakeTableSnapshotInfo(
            table_id=self._assignment.table_id,
            snapshot_id=snapshot_id,
            tiering_epoch=self._assignment.tiering_epoch,
            coordinator_epoch=self._assignment.coordinator_epoch,
        )
        if repair:
            info.repair = True
        starts = starts or {}
        for bucket in sorted({*offsets, *starts}, key=TableBucket.sort_key):
            entry = info.buckets_req.add(partition_id=bucket.partition_id, bucket_id=bucket.bucket)
            if (offset := offsets.get(bucket)) is not None:
                entry.log_end_offset = offset.end
                if offset.max_timestamp_ms >= 0:
                    entry.log_max_timestamp = offset.max_timestamp_ms
            if bucket in starts:
                entry.log_start_offset = starts[bucket]
        request = pb.CommitLakeTableSnapshotRequest(tables_req=[info])
        response = self._connection.coordinator().commit_lake_table_snapshot(request)
        for table in response.table_resp:
            if table.HasField("error_code") and table.error_code != 0:
                raise error_from_code(table.error_code, f"{self._assignment}: {table.error_message}")


class TieringCommitter:
    """Commits one round of one table to the lake: all of it in one snapshot, or nothing.

    Args:
        lake: The lake's committer; it is not closed here.
        assignment: Who commits.
        commit_id: Unique to this commit; by it a commit of unknown outcome is found later.
    """

    def __init__(self, lake: LakeCommitter[Any, Any], assignment: TieringAssignment, commit_id: str) -> None:
        self._lake = lake
        self._assignment = assignment
        self._commit_id = commit_id

    def commit(
        self, written: Sequence[WrittenSplit], known: LakeOffsets, known_snapshot_id: int | None, planned_id: int | None
    ) -> int:
        """Commit written splits.

        Args:
            written: What `contiguous` left: every bucket's splits join without gap.
            known: How far each bucket was tiered when the round was planned.
            known_snapshot_id: The snapshot that Fluss knew then.
            planned_id: The newest lake snapshot then: the commit is conditional on it.

        Returns:
            The new snapshot's id.

        Raises:
            CommitConflictError: The lake moved on; nothing was committed and the files are removed. Plan again.
            ForeignCommitError: Another program changed the rows; nothing was committed and the files are removed.
            CommitOutcomeUnknownError: It may have been committed; the files stay, and the next round finds out.
            FlussError: Catalog or store refuse; nothing was committed and the files are removed.
        """
        results = [each.result for each in written]
        try:
            committable = self._lake.to_committable(results)
            offsets = merge_offsets(known, split_ends(written))
            properties = self._properties(offsets, known, first_starts(written, known))
            failpoint("tiering.lake_commit.before")
        except BaseException:
            self._lake.abort(results)
            raise
        try:
            return self._lake.commit(committable, planned_id, properties)
        except CommitOutcomeUnknownError as error:
            return self._look_up(known_snapshot_id, error)
        except FlussError:
            self._lake.abort(results)
            raise

    def fence(self, known: LakeOffsets, planned_id: int | None) -> int:
        """Commit an empty snapshot, so that no commit planned before it can succeed any more.

        Args:
            known: How far each bucket is tiered; Fluss knows it.
            planned_id: The newest lake snapshot.

        Raises:
            CommitConflictError: Another commit came in between: look again.
        """
        return self._lake.commit(self._lake.to_committable([]), planned_id, self._properties(known, known))

    def _properties(
        self, offsets: LakeOffsets, known: LakeOffsets, starts: Mapping[TableBucket, int] | None = None
    ) -> dict[str, str]:
        held = self._assignment
        return commit_properties(self._commit_id, held.table_id, held.tiering_epoch, offsets, known, starts)

    def _look_up(self, known_snapshot_id: int | None, unknown: CommitOutcomeUnknownError) -> int:
        try:
            newest = self._lake.missing_lake_snapshot(known_snapshot_id)
        except FlussError as error:
            log.warning("%s: looking for commit %s: %s", self._assignment, self._commit_id, error)
            raise unknown from error
        if newest is None or newest.properties.get(COMMIT_ID_KEY) != self._commit_id:
            raise unknown
        return newest.snapshot_id


def split_ends(written: Sequence[WrittenSplit]) -> dict[TableBucket, LakeOffset]:
    """Return how far the splits bring each bucket."""
    ends: dict[TableBucket, LakeOffset] = {}
    for each in written:
        bucket = each.split.table_bucket
        if bucket not in ends or ends[bucket].end < each.end:
            ends[bucket] = LakeOffset(each.end, each.max_timestamp_ms, each.split.partition_name)
    return ends


def starts_of(written: Sequence[WrittenSplit]) -> dict[TableBucket, int]:
    """Return the first offset of each bucket from which the splits have its log."""
    starts: dict[TableBucket, int] = {}
    for each in written:
        bucket, start = each.split.table_bucket, each.split.replay_start
        starts[bucket] = min(start, starts.get(bucket, start))
    return starts


def first_starts(written: Sequence[WrittenSplit], known: LakeOffsets) -> dict[TableBucket, int]:
    """Return where replay begins in each bucket that was never tiered before."""
    return {bucket: start for bucket, start in starts_of(written).items() if bucket not in known}


def contiguous(
    planned: Sequence[TieringSplit], written: Sequence[WrittenSplit]
) -> tuple[list[WrittenSplit], list[WrittenSplit]]:
    """Return the written splits that may be committed, and those that may not.

    Of each bucket the prefix counts that joins without gap from the first offset planned; a split that ends early is
    its last. Splits that wrote nothing are not committed.

    Raises:
        InternalError: A split has no result, or two.
    """
    if sorted(each.split.split_index for each in written) != list(range(len(planned))):
        raise InternalError(f"expected one result for each of {len(planned)} splits, found {len(written)} results")
    position: dict[TableBucket, int] = {}
    kept: list[WrittenSplit] = []
    rest: list[WrittenSplit] = []
    for each in sorted(written, key=lambda w: (w.split.table_bucket.sort_key(), w.split.start)):
        bucket = each.split.table_bucket
        joins = position.setdefault(bucket, each.split.start) == each.begin
        # One more: the +U of an update whose -U is the split's last record.
        if joins and each.begin < each.end <= each.split.end + 1:
            position[bucket] = each.end
            kept.append(each)
        else:
            rest.append(each)
    return kept, rest
