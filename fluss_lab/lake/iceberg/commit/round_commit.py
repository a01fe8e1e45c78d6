"""The committer of one round: all of its files in one snapshot, or nothing, on condition that nobody came between."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import CommitOutcomeUnknownError, FlussError, InternalError
from fluss_lab.lake.format_interfaces import CommitterInitContext, LakeCommitter
from fluss_lab.lake.iceberg.commit.replay_tags import changelog_retention_ms
from fluss_lab.lake.iceberg.commit.row_delta import RowDelta
from fluss_lab.lake.iceberg.commit.snapshot_commit import SnapshotCommits, moved_on
from fluss_lab.lake.iceberg.files.durable_io import delete_quietly
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache, referenced_files
from fluss_lab.lake.iceberg.metadata.snapshot_history import check_no_foreign, is_ours, main_line, since, summaries
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from fluss_lab.lake.iceberg.write.lake_write_result import IcebergCommittable, IcebergWriteResult
from fluss_lab.lake.snapshot_summary import CommittedLakeSnapshot, newest_committed, newest_of_history

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_LOG: Final = logging.getLogger(__name__)


class IcebergLakeCommitter(LakeCommitter[IcebergWriteResult, IcebergCommittable]):
    """Commits a round to one Iceberg table. Used by one thread."""

    def __init__(self, access: CatalogAccess, entries: EntryCache, context: CommitterInitContext) -> None:
        self._access = access
        self._entries = entries
        self._context = context
        self._path = context.table.path
        self._what = f"lake table {self._path}, round {context.round_id}"

    def to_committable(self, results: Sequence[IcebergWriteResult]) -> IcebergCommittable:
        """Return the files of all results, by bucket and offset.

        Raises:
            InternalError: Two results hold the same offset of a bucket, or one is of another table.
        """
        ordered = sorted(results, key=lambda result: (result.partition or "", result.bucket, result.start_offset))
        previous: IcebergWriteResult | None = None
        for result in ordered:
            if result.table_id != self._context.table.table_id:
                raise InternalError(f"{self._what}: a write result is of table id {result.table_id}")
            same = previous is not None and (previous.partition, previous.bucket) == (result.partition, result.bucket)
            if same and previous is not None and result.all_files and previous.end_offset > result.start_offset:
                raise InternalError(
                    f"{self._what}: two splits of partition {result.partition}, bucket {result.bucket} hold offset "
                    f"{result.start_offset}"
                )
            previous = result if result.all_files else previous
        return IcebergCommittable(tuple(ordered))

    def commit(
        self, committable: IcebergCommittable, planned_snapshot_id: int | None, properties: Mapping[str, str]
    ) -> int:
        """Commit all files in one snapshot, on condition that the table's newest one is still the planned one.

        When nothing but others' compactions came between, the commit is made on top of them, with the round's deletes
        placed anew; a primary-key table's snapshot before each is kept by a tag for the changelog's retention. For
        everything else see `SnapshotCommits`.

        Args:
            committable: From `to_committable`; without files an empty snapshot is made.
            planned_snapshot_id: The newest snapshot when the round was planned; None for a table without any.
            properties: For the snapshot's summary; with `COMMIT_ID_KEY`, and `REPLAY_START_KEY` when the round has buckets
                whose log in the lake does not begin at 0.

        Returns:
            The snapshot's id: of this commit, or of an earlier one with the same commit id since the planned snapshot.

        Raises:
            CommitConflictError: The table moved on, or the catalog stayed locked; nothing was committed.
            ForeignCommitError: Somebody else changed the table's rows; nothing was committed.
            CommitOutcomeUnknownError: It may have happened; look for the commit id before acting.
            UnsupportedError: The table is not as fluss_lab made it; nothing was committed.
            CorruptDataError: A row that ends is in two files; nothing was committed.
            StorageError: A file or metadata cannot be written; nothing was committed.
            TableNotFoundError: The lake table is gone.

        After an error that says that nothing was committed the write results' files are still there, for `abort`.
        """
        delta = RowDelta(self._context, self._entries, committable, planned_snapshot_id, properties)
        commits = SnapshotCommits(
            self._access, self._path, self._what, changelog_retention_ms=changelog_retention_ms(self._context.table)
        )
        try:
            snapshot_id = commits.commit(delta.stage, planned_snapshot_id, properties, on_moved=self._on_moved)
        except CommitOutcomeUnknownError:
            raise
        except FlussError:
            delta.discard()
            raise
        delta.settle(snapshot_id)
        return snapshot_id

    def _on_moved(self, lake: Table, newer: list[Snapshot]) -> None:
        """Let pass what left the rows as they were and is not ours; what is ours, this round was not planned with."""
        check_no_foreign(self._path, lake, newer)
        if any(is_ours(snapshot) for snapshot in newer):
            raise moved_on(self._what, newer)

    def abort(self, results: Sequence[IcebergWriteResult]) -> None:
        """Remove the files of write results that will not be committed, except those that a snapshot refers to.

        When that cannot be told, nothing is removed. Never raises.

        Cost: every manifest of the table that was not decoded before is read.
        """
        files = [file.file_path for result in results for file in result.all_files]
        if not files:
            return
        try:
            self._remove_unreferenced(files)
        except Exception as error:
            _LOG.warning(
                "%s: %d files stay, as it cannot be told whether they are in use: %s", self._what, len(files), error
            )

    def _remove_unreferenced(self, files: Sequence[str]) -> None:
        lake = self._load()
        used = referenced_files(lake, self._entries)
        for file in files:
            if file not in used and not delete_quietly(lake.io, file):
                _LOG.warning("%s: file %s could not be removed", self._what, file)

    def current_snapshot_id(self) -> int | None:
        """Return the id of the newest snapshot on the main branch; None for a table without any.

        Raises:
            TableNotFoundError: The lake table is gone.
            UnavailableError: The catalog is locked or does not answer; try again.
        """
        return self._load().metadata.current_snapshot_id

    def missing_lake_snapshot(self, known_snapshot_id: int | None) -> CommittedLakeSnapshot | None:
        """Return the newest snapshot of ours after the known one, with all offsets committed since; None without.

        Raises:
            LakeSnapshotNotFoundError: The known snapshot is not on the main branch any more.
            ForeignCommitError: Somebody else changed the table's rows since.
            CorruptDataError: A summary of ours cannot be read.
            TableNotFoundError: The lake table is gone.
            UnavailableError: The catalog is locked or does not answer; try again.
        """
        lake = self._load()
        newer = since(lake, self._path, known_snapshot_id)
        check_no_foreign(self._path, lake, newer)
        return newest_committed(summaries(self._path, newer))

    def newest_lake_snapshot(self) -> CommittedLakeSnapshot | None:
        """Return the newest snapshot of ours on the main branch, whatever others did since: see `LakeCommitter`.

        Raises:
            CorruptDataError, TableNotFoundError, UnavailableError: As `missing_lake_snapshot`.
        """
        return newest_of_history(summaries(self._path, main_line(self._load().metadata)))

    def _load(self) -> Table:
        return self._access.load_table(self._path)
