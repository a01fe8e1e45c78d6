"""The plug-in interface of what keeps a lake table in shape: compaction, expiry, orphan files, and what is shown of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fluss_lab.clock import Clock
from fluss_lab.closing import Closing
from fluss_lab.model import LakeOffset, TableInfo
from fluss_lab.model.names import BucketKey


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a compaction is going to do.

    Attributes:
        snapshot_id: The snapshot that it was planned from: its commit is conditional on it.
        tasks: JSON, one for each bucket that is compacted; each is done by `SupportsMaintenance.compact`, anywhere.
    """

    snapshot_id: int
    tasks: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class CompactedFiles:
    """What a compaction did.

    Attributes:
        snapshot_id: The new snapshot; None when the tasks found nothing to do.
        buckets: Buckets whose files were rewritten.
        files_before: Data and delete files that were replaced.
        files_after: Those that replaced them.
        bytes_before: Size of the former.
        bytes_after: Size of the latter.
        tag: What keeps the snapshot before it, for replay; None when nothing that replay needs was left out.
    """

    snapshot_id: int | None
    buckets: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class ExpiredSnapshots:
    """What an expiry did.

    Attributes:
        snapshot_ids: Snapshots that are gone.
        files: Data, delete and metadata files that were removed because nothing refers to them any more.
        size_bytes: Their size.
        replay_starts: By (partition, bucket): the first offset that the lake can replay now, of buckets where that is not 0.
    """

    snapshot_ids: tuple[int, ...]
    files: int
    size_bytes: int
    replay_starts: Mapping[BucketKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LakeSnapshotInfo:
    """A snapshot of a lake table, as it is shown.

    Attributes:
        snapshot_id: Its id.
        time_ms: When it was committed, epoch milliseconds.
        operation: In the format's words: append, overwrite, replace, delete.
        offsets: By (partition, bucket): how far the lake holds each bucket; empty for snapshots of others.
        added_rows: Rows in the data files that it added; None where the format does not say.
        added_files: The data files that it added; None where the format does not say.
        rows: Rows in its data files, deleted ones included; None where the format does not say.
        files: Its data files; None where the format does not say.
        deletes: Deletes in its delete files; None where the format does not say.
        ours: Whether tiering committed it.
        tags: Names that keep it.
        complete: Whether `offsets` has all that tiering says of buckets at it; not so where older snapshots would add to it.
    """

    snapshot_id: int
    time_ms: int
    operation: str
    offsets: Mapping[BucketKey, LakeOffset]
    added_rows: int | None
    added_files: int | None
    rows: int | None
    files: int | None
    deletes: int | None
    ours: bool
    tags: tuple[str, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class LakeFileInfo:
    """A file of a lake snapshot, as it is shown.

    Attributes:
        path: URI.
        content: ``data``, ``position deletes`` or ``equality deletes``.
        partition: Partition name, or None.
        bucket: Its bucket.
        rows: Rows or deletes in it.
        size_bytes: Its size.
        min_offset: Smallest log offset in it, of its events for delete files; None where the format does not say.
        max_offset: Largest log offset in it (inclusive); None where the format does not say.
        min_timestamp_ms: Earliest record in it, epoch milliseconds; None where the format does not say.
        max_timestamp_ms: Latest record in it; None where the format does not say.
    """

    path: str
    content: str
    partition: str | None
    bucket: int
    rows: int
    size_bytes: int
    min_offset: int | None
    max_offset: int | None
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TakenOffsets:
    """Offsets of a bucket's rows in the lake that cannot be theirs.

    Attributes:
        partition: Name of the bucket's partition, or None.
        bucket: Its number.
        repeated: Offsets that more than one row has; the first few.
        late: Offsets, at or behind the end of what is tiered, of rows that others wrote; the first few.
        count: How many there are.
        early: Offsets below zero, which no record has; the first few.
    """

    partition: str | None
    bucket: int
    repeated: tuple[int, ...]
    late: tuple[int, ...]
    count: int
    early: tuple[int, ...] = ()

    def __str__(self) -> str:
        place = f"bucket {self.bucket}" + ("" if self.partition is None else f" of partition {self.partition}")
        places = [
            f"{what} {', '.join(map(str, offsets))}"
            for what, offsets in (
                ("more than one row of offset", self.repeated),
                ("offsets still to come:", self.late),
                ("offsets below zero:", self.early),
            )
            if offsets
        ]
        named = len(self.repeated) + len(self.late) + len(self.early)
        return f"{place} has {' and '.join(places)}" + (f" ({self.count} in all)" if self.count > named else "")


class LakeMaintenance(Closing):
    """Keeps one lake table in shape. Used by one thread, on the driver, by the holder of the table's tiering only."""

    def begin_after(self, snapshot_id: int | None) -> None:
        """Learn that a round of this process ended a moment ago, at this snapshot: what it knows of the table is new enough.

        A format that keeps nothing of rounds does nothing.
        """
        del snapshot_id

    @abstractmethod
    def plan_compaction(self, *, force: bool) -> CompactionPlan | None:
        """Return what is worth compacting; None for nothing.

        Args:
            force: By hand: whatever can be better is done, however little, and however recent the last one was.
        """

    @abstractmethod
    def commit_compaction(
        self, plan: CompactionPlan, results: Sequence[bytes], properties: Mapping[str, str]
    ) -> CompactedFiles:
        """Commit all results of a plan's tasks in one snapshot that leaves the table's rows as they are.

        Args:
            plan: The plan.
            results: What its tasks returned.
            properties: For the snapshot's summary, with a commit id and the offsets of the snapshot before it.

        Raises:
            CommitConflictError: The table moved on; nothing was committed. The results' files are still there.
            CommitOutcomeUnknownError: Neither success nor failure is known.
        """

    @abstractmethod
    def abort_compaction(self, results: Sequence[bytes]) -> None:
        """Remove the files of results that will not be committed. Never one a snapshot refers to. Never raises."""

    def taken_offsets(self, ends: Mapping[BucketKey, int]) -> list[TakenOffsets]:
        """Return offsets of the newest snapshot that cannot be those of their rows: repeated, or of records to come.

        Args:
            ends: How far each bucket is tiered.

        Returns:
            By bucket; nothing from a format whose rows only tiering writes.
        """
        del ends
        return []

    @abstractmethod
    def expire_snapshots(
        self,
        *,
        older_than_ms: int | None,
        keep: int | None,
        protected: frozenset[int],
        partition_ids: Mapping[str, int],
        fewest: int = 1,
    ) -> ExpiredSnapshots:
        """Expire old snapshots of the main line and remove the files that nothing refers to any more.

        What others may be reading stays: snapshots younger than an hour, tagged ones while their tag lasts, the
        newest, and what branches and tags of others need.

        Args:
            older_than_ms: Snapshots committed before (epoch milliseconds) go; None: as the table's properties say.
            keep: So many of the newest stay whatever their age; None: as the table's properties say.
            protected: Ids that stay, and all that came after them.
            partition_ids: Id of each partition that the cluster knows, by name.
            fewest: Nothing is done when fewer could go and no tag's time is over: a commit for one is not worth it.

        Raises:
            CommitConflictError: Others keep committing to the table; nothing was expired.
        """

    def expiry_due(self, fewest: int) -> bool:
        """Return whether `expire_snapshots` without limits may have anything to do; no only when that is certain.

        Args:
            fewest: As there.

        Returns:
            Yes from a format that does not know without planning it.
        """
        del fewest
        return True

    @abstractmethod
    def remove_orphan_files(self, *, older_than_ms: int, dry_run: bool, ours_only: bool = False) -> list[str]:
        """Remove files in the table's folder that no snapshot and no metadata refers to: those of dead rounds.

        Args:
            older_than_ms: Only files last written before (epoch milliseconds): a round under way has written others.
            dry_run: Only report.
            ours_only: Only files that are named as this package names them.

        Returns:
            Their paths.
        """

    @abstractmethod
    def orphans_due(self, interval_ms: int) -> bool:
        """Return whether orphan files were last looked for, by `remove_orphan_files` in earnest, so long ago or longer."""

    @abstractmethod
    def snapshots(self) -> list[LakeSnapshotInfo]:
        """Return the snapshots of the main line, oldest first, as far as they were not expired."""

    @abstractmethod
    def files(self, snapshot_id: int | None = None) -> list[LakeFileInfo]:
        """Return the live files of a snapshot, the newest without an id, by partition, bucket and offset.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot.
        """

    @abstractmethod
    def schemas(self) -> list[dict[str, Any]]:
        """Return the schemas that the lake table has had, oldest first.

        Returns:
            Of each ``schema_id``, whether it is ``current``, and its ``columns`` (name to type, in the format's words).
        """

    def close(self) -> None:
        """Let go of whatever is held."""


class SupportsMaintenance(ABC):
    """A `LakeStorage` whose tables can be maintained."""

    @abstractmethod
    def create_lake_maintenance(self, table: TableInfo, clock: Clock | None = None) -> LakeMaintenance:
        """Return the maintenance of a table.

        Args:
            table: The table.
            clock: By which ages are measured; None: the machine's.

        Raises:
            TableNotFoundError: The lake table is gone.
        """

    @abstractmethod
    def compact(self, table: TableInfo, task: Mapping[str, Any]) -> bytes:
        """Do one task of a `CompactionPlan`, maybe on another machine; return its result for `LakeMaintenance.commit_compaction`.

        A task that fails leaves no file.
        """
