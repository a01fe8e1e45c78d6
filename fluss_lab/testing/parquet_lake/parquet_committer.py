"""The committer of one round: the next version of the table names the round's files, if the table did not move on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from fluss_lab.errors import (
    CommitConflictError,
    ForeignCommitError,
    InternalError,
    LakeSnapshotNotFoundError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.lake import CommittedLakeSnapshot, CommitterInitContext, LakeCommitter
from fluss_lab.lake.snapshot_summary import (
    COMMIT_ID_KEY,
    REPLAY_START_KEY,
    SnapshotSummary,
    check_registered,
    newest_committed,
    newest_of_history,
    read_starts,
)
from fluss_lab.model.names import BucketKey
from fluss_lab.testing.parquet_lake.parquet_writer import ParquetCommittable, ParquetWriteResult
from fluss_lab.testing.parquet_lake.table_versions import LakeFile, LakeFolder, Manifest

_LOG: Final = logging.getLogger(__name__)


class ParquetLakeCommitter(LakeCommitter[ParquetWriteResult, ParquetCommittable]):
    """Commits a round to one table."""

    def __init__(self, folder: LakeFolder, context: CommitterInitContext) -> None:
        self._folder = folder
        self._table_id = context.table.table_id
        self._what = f"lake table {context.table.path}, round {context.round_id}"

    def to_committable(self, results: Sequence[ParquetWriteResult]) -> ParquetCommittable:
        """Return the files of all results, by bucket and offset."""
        if strangers := [result.table_id for result in results if result.table_id != self._table_id]:
            raise InternalError(f"{self._what}: a write result is of table id {strangers[0]}")
        files = [file for result in results for file in result.files]
        files.sort(key=lambda file: (file.partition or "", file.bucket, file.min_offset))
        for before, after in pairwise(files):
            if before.key == after.key and before.max_offset >= after.min_offset:
                raise InternalError(f"{self._what}: two splits of bucket {after.key} hold offset {after.min_offset}")
        return ParquetCommittable(tuple(files))

    def commit(
        self, committable: ParquetCommittable, planned_snapshot_id: int | None, properties: Mapping[str, str]
    ) -> int:
        """Publish the next version, on condition that the newest snapshot is the planned one."""
        return self.commit_on(planned_snapshot_id, properties, frozenset(), committable.files)

    def commit_on(
        self,
        planned_snapshot_id: int | None,
        properties: Mapping[str, str],
        emptied: frozenset[BucketKey],
        files: Sequence[LakeFile] = (),
    ) -> int:
        """Commit files, and leave out those that some buckets had: see `commit`."""
        commit_id = properties.get(COMMIT_ID_KEY)
        if not commit_id:
            raise InternalError(f"{self._what}: a commit needs {COMMIT_ID_KEY!r} in its properties")
        failpoint("lake.commit.before")
        starts = read_starts(properties.get(REPLAY_START_KEY, "[]"), f"{self._what}, property {REPLAY_START_KEY!r}")
        while True:
            newest = self._folder.newest_of(self._table_id)
            try:
                newer = self._since(newest, planned_snapshot_id)
            except LakeSnapshotNotFoundError as error:
                raise CommitConflictError(f"{self._what}: planned at a snapshot that is gone: {error}") from error
            if landed := [each for each in newer if each.properties.get(COMMIT_ID_KEY) == commit_id]:
                return landed[0].version
            if newer:
                self._check_no_foreign(newer)
                raise CommitConflictError(
                    f"{self._what}: planned at snapshot {planned_snapshot_id}, but the newest is {newer[0].version}; "
                    "nothing was committed, plan again"
                )
            kept = (file for file in newest.files if file.key not in emptied)
            following = newest.next_committed((*kept, *files), properties, starts)
            try:
                self._folder.publish(following)
            except FileExistsError:
                continue  # another process made that version first: was it a commit, or did it only alter the table?
            failpoint("lake.commit.after")
            return following.version

    def abort(self, results: Sequence[ParquetWriteResult]) -> None:
        """Remove the files of results, except those that any version names."""
        try:
            newest = self._folder.newest_of(self._table_id)
            used = {file.name for each in self._folder.history(newest) for file in each.files}
            for file in (file for result in results for file in result.files):
                if file.name not in used:
                    self._folder.data_file(file.name).unlink(missing_ok=True)
        except Exception as error:
            _LOG.warning("%s: files stay, as it is not known whether they are in use: %s", self._what, error)

    def current_snapshot_id(self) -> int | None:
        """Return the id of the newest snapshot."""
        return self._folder.newest_of(self._table_id).snapshot_id

    def missing_lake_snapshot(self, known_snapshot_id: int | None) -> CommittedLakeSnapshot | None:
        """Return the newest snapshot of ours after the known one, with all offsets committed since."""
        newer = self._since(self._folder.newest_of(self._table_id), known_snapshot_id)
        self._check_no_foreign(newer)
        return newest_committed(self._summaries(newer))

    def newest_lake_snapshot(self) -> CommittedLakeSnapshot | None:
        """Return the newest snapshot of ours, with all offsets ever committed."""
        return newest_of_history(self._summaries(self._folder.history(self._folder.newest_of(self._table_id))))

    def _since(self, newest: Manifest, known: int | None) -> list[Manifest]:
        """Return the snapshots after a known one, the newest first."""
        newer: list[Manifest] = []
        for snapshot in self._folder.history(newest):
            if snapshot.version == known:
                return newer
            newer.append(snapshot)
        if known is not None:
            raise LakeSnapshotNotFoundError(f"{self._what}: the table has no snapshot {known}")
        return newer

    def _check_no_foreign(self, snapshots: Sequence[Manifest]) -> None:
        for summary in self._summaries(snapshots):
            if not summary.is_ours:
                raise ForeignCommitError(f"{self._what}: snapshot {summary.snapshot_id} was not committed by tiering")
            check_registered(summary)

    def _summaries(self, snapshots: Iterable[Manifest]) -> Iterator[SnapshotSummary]:
        return (SnapshotSummary(str(self._folder.table_path), each.version, each.properties) for each in snapshots)
