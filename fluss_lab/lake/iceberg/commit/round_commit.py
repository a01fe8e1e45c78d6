"""The committer of one round: all of its files in one snapshot, or nothing, on condition that no other commit came between.

Writers place deletes in the files of the planned snapshot. What they could not place (the row may be in another split of
the same round) is placed here, when all files of the round are known; and when another engine's compaction has put the rows
into other files meanwhile, all deletes of the round are placed anew. Data files stay as they are.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import CommitOutcomeUnknownError, FlussError, InternalError, UnsupportedError
from fluss_lab.failpoints import failpoint
from fluss_lab.lake.format_interfaces import CommitterInitContext, LakeCommitter
from fluss_lab.lake.iceberg.commit.commit_attempts import SnapshotCommits, moved_on_error
from fluss_lab.lake.iceberg.commit.replay_start_tags import replay_parts
from fluss_lab.lake.iceberg.files.durable_io import delete_quietly
from fluss_lab.lake.iceberg.metadata.foreign_commits import check_no_foreign
from fluss_lab.lake.iceberg.metadata.snapshot_builder import StagedSnapshot, stage_row_delta
from fluss_lab.lake.iceberg.metadata.snapshot_files import (
    BucketFiles,
    EntryCache,
    lake_file,
    referenced_files,
    snapshot_state,
)
from fluss_lab.lake.iceberg.metadata.snapshot_history import (
    check_shown,
    is_ours,
    main_line,
    since,
    summaries,
)
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from fluss_lab.lake.iceberg.table.layout import LakeLayout, check_owner
from fluss_lab.lake.iceberg.write.delete_writer import place_again
from fluss_lab.lake.iceberg.write.lake_write_result import IcebergCommittable, IcebergWriteResult
from fluss_lab.lake.iceberg.write.row_locator import OffsetFile, offset_files
from fluss_lab.lake.iceberg.write.write_target import WriteTarget
from fluss_lab.lake.snapshot_summary import CommittedLakeSnapshot, newest_committed, newest_of_history
from fluss_lab.model.config.options import DATALAKE_DELETE_MODE
from fluss_lab.model.names import BucketKey

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_LOG: Final = logging.getLogger(__name__)
#: Passed after the deletes of each bucket were placed; see also `fluss_lab.lake.iceberg.commit.commit_attempts`.
FAILPOINTS: Final = ("lake.place.after",)


@dataclass(frozen=True, slots=True)
class _PlacedDeletes:
    """Delete files that are right for one snapshot.

    Attributes:
        deletes: All that are committed.
        written: Those among them that were written here.
    """

    deletes: tuple[DataFile, ...]
    written: tuple[DataFile, ...] = ()


class RowDelta:
    """Puts together the snapshot of one round, as often as it takes. Used by one thread.

    Args:
        context: Of the committer.
        entries: Decoded manifests.
        committable: The round's files.
        planned: The snapshot that the writers placed deletes in.
        properties: For the snapshot's summary.
    """

    def __init__(
        self,
        context: CommitterInitContext,
        entries: EntryCache,
        committable: IcebergCommittable,
        planned: int | None,
        properties: Mapping[str, str],
    ) -> None:
        self._context = context
        self._table = context.table
        self._what = f"lake table {self._table.path}, round {context.round_id}"
        self._entries = entries
        self._committable = committable
        self._planned = planned
        self._properties = properties
        self._io: FileIO | None = None
        #: By the snapshot in whose files deletes are placed, and by the snapshot that was put together with them.
        self._placed: dict[int | None, _PlacedDeletes] = {}
        self._staged: dict[int, _PlacedDeletes] = {}

    def stage(self, lake: Table) -> StagedSnapshot:
        """Write what the table as it is needs, up to the manifest list.

        Raises:
            UnsupportedError: The table is not as fluss_lab made it, or its partition spec changed.
            CommitConflictError: Files of the newest snapshot are gone.
            CorruptDataError: A row that ends is in two live files; or a file is not what it should be.
            StorageError, OSError: A file cannot be written.
        """
        self._io = lake.io
        layout = self._entries.layout(self._table, lake)
        committable, spec_id = self._committable, lake.spec().spec_id
        if strange := [file.file_path for file in committable.all_files if file.spec_id != spec_id]:
            raise UnsupportedError(
                f"{self._what}: the table's partition spec changed while {strange[0]} was written; plan again"
            )
        placed = self._place_deletes(lake, layout)
        summary, properties, tags = (
            (self._properties, {}, [])
            if self._table.is_log_table
            else replay_parts(self._table, lake, self._properties)
        )
        staged = stage_row_delta(
            lake, committable.files, placed.deletes, summary, properties=properties, tags=tags, entries=self._entries
        )
        self._staged[staged.snapshot_id] = placed
        return staged

    def settle(self, snapshot_id: int) -> None:
        """Remove delete files that the committed snapshot does not have. Never raises."""
        committed = self._staged.get(snapshot_id)
        if committed is None:
            # An earlier attempt's, of whose files nothing is known: those that are left are removed as orphans.
            return
        kept = {file.file_path for file in committed.deletes}
        self._remove([file for file in self._delete_files() if file.file_path not in kept])

    def discard(self) -> None:
        """Remove the delete files written here: it is certain that nothing was committed. Never raises."""
        self._remove([file for placed in self._placed.values() for file in placed.written])

    def _delete_files(self) -> list[DataFile]:
        written = [file for placed in self._placed.values() for file in placed.written]
        return [*self._committable.deletes, *self._committable.unplaced, *written]

    def _remove(self, files: Sequence[DataFile]) -> None:
        for file in files:
            if self._io is not None and not delete_quietly(self._io, file.file_path):
                _LOG.warning("%s: file %s could not be removed", self._what, file.file_path)

    def _place_deletes(self, lake: Table, layout: LakeLayout) -> _PlacedDeletes:
        base = lake.metadata.current_snapshot_id
        if base not in self._placed:
            self._placed[base] = self._place(lake, layout, base)
        return self._placed[base]

    def _place(self, lake: Table, layout: LakeLayout, base: int | None) -> _PlacedDeletes:
        """Return the round's deletes as they are right in a snapshot; what is right already stays."""
        by_equality = DATALAKE_DELETE_MODE.of(self._table.descriptor.properties) == "equality"
        moved = base != self._planned and not by_equality and bool(self._committable.deletes)
        by_bucket: defaultdict[BucketKey, list[IcebergWriteResult]] = defaultdict(list)
        for result in self._committable.results:
            by_bucket[(result.partition, result.bucket)].append(result)
        if not moved and not self._committable.unplaced:
            return _PlacedDeletes(self._committable.deletes)
        states = {} if by_equality else snapshot_state(self._table, lake, base, self._entries)
        target = WriteTarget.of(layout, lake)
        right: list[DataFile] = []
        written: list[DataFile] = []
        try:
            for key, results in by_bucket.items():
                stay = [] if moved else [file for result in results for file in result.deletes]
                again = [file for result in results for file in (*(result.deletes if moved else ()), *result.unplaced)]
                right += stay
                if again:
                    files = self._files_of(lake, layout, states.get(key), results)
                    written += place_again(target, lake.io, again, files, *key, self._context.round_id)
                    failpoint("lake.place.after")
        except BaseException:
            self._remove(written)
            raise
        return _PlacedDeletes((*right, *written), tuple(written))

    def _files_of(
        self, lake: Table, layout: LakeLayout, state: BucketFiles | None, results: Sequence[IcebergWriteResult]
    ) -> list[OffsetFile]:
        own = [lake_file(lake.io, self._table.path, layout, file, 0) for result in results for file in result.files]
        return offset_files([*(state.data if state is not None else ()), *own])


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
            ForeignCommitError: Another engine changed the table's rows; nothing was committed.
            CommitOutcomeUnknownError: It may have happened; look for the commit id before acting.
            UnsupportedError: The table is not as fluss_lab made it; nothing was committed.
            CorruptDataError: A row that ends is in two files; nothing was committed.
            StorageError: A file or metadata cannot be written; nothing was committed.
            TableNotFoundError: The lake table is gone.

        After an error that says that nothing was committed the write results' files are still there, for `abort`.
        """
        delta = RowDelta(self._context, self._entries, committable, planned_snapshot_id, properties)
        commits = SnapshotCommits(self._access, self._path, self._what)
        try:
            snapshot_id = commits.commit(
                delta.stage,
                planned_snapshot_id,
                properties,
                on_moved=self._on_moved,
                base=self._access.rounds.take(self._path),
            )
        except CommitOutcomeUnknownError:
            raise
        except FlussError:
            delta.discard()
            raise
        delta.settle(snapshot_id)
        self._access.rounds.leave(self._path, commits.committed)
        return snapshot_id

    def _on_moved(self, lake: Table, newer: list[Snapshot]) -> None:
        """Let pass what left the rows as they were and is not ours; what is ours, this round was not planned with."""
        check_no_foreign(self._path, lake, newer)
        if any(is_ours(snapshot) for snapshot in newer):
            raise moved_on_error(self._what, newer)

    def abort(self, results: Sequence[IcebergWriteResult]) -> None:
        """Remove the files of write results that will not be committed, except those that a snapshot refers to.

        When that is not known, nothing is removed. Never raises.

        Cost: every manifest of the table that was not decoded before is read.
        """
        files = [file.file_path for result in results for file in result.all_files]
        if not files:
            return
        try:
            self._remove_unreferenced(files)
        except Exception as error:
            _LOG.warning(
                "%s: %d files stay, as it is not known whether they are in use: %s", self._what, len(files), error
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
            UnsupportedError: The lake has another table of that name.
            UnavailableError: The catalog is locked or does not answer; try again.
        """
        lake = self._load()
        check_owner(self._context.table, lake)
        self._access.rounds.plan(self._path, lake)
        current: int | None = lake.metadata.current_snapshot_id
        return current

    def missing_lake_snapshot(self, known_snapshot_id: int | None) -> CommittedLakeSnapshot | None:
        """Return the newest snapshot of ours after the known one, with all offsets committed since; None without.

        Raises:
            LakeSnapshotNotFoundError: The known snapshot is not on the main branch any more; or none is known, and the
                catalog hides the history that says how far the table is tiered.
            ForeignCommitError: Another engine changed the table's rows since.
            CorruptDataError: A summary of ours cannot be read.
            TableNotFoundError: The lake table is gone.
            UnavailableError: The catalog is locked or does not answer; try again.
        """
        lake = self._access.rounds.planned_table(self._path)
        if lake is None or not _has(lake, known_snapshot_id):
            lake = self._load()
        if known_snapshot_id is None:
            check_shown(lake, self._path)
        newer = since(lake, self._path, known_snapshot_id)
        check_no_foreign(self._path, lake, newer)
        return newest_committed(summaries(self._path, newer))

    def newest_lake_snapshot(self) -> CommittedLakeSnapshot | None:
        """Return the newest snapshot of ours on the main branch, whatever others did since: see `LakeCommitter`.

        Raises:
            CorruptDataError, TableNotFoundError, UnavailableError: As `missing_lake_snapshot`.
        """
        return newest_of_history(summaries(self._path, main_line(self._load().metadata)))

    def close(self) -> None:
        """Leave the table as the round was planned with it, when the round had nothing to commit."""
        self._access.rounds.leave(self._path)

    def _load(self) -> Table:
        return self._access.load_table(self._path)


def _has(lake: Table, snapshot_id: int | None) -> bool:
    return snapshot_id is None or lake.metadata.snapshot_by_id(snapshot_id) is not None
