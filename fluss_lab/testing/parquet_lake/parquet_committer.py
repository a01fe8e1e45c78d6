"""The committer of one round: the next version of the table names the round's files, if the table did not move on."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from fluss_lab.errors import (
    CommitConflictError,
    CorruptDataError,
    ForeignCommitError,
    InternalError,
    LakeSnapshotNotFoundError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.lake import CommittedLakeSnapshot, CommitterInitContext, LakeCommitter
from fluss_lab.lake.format_interfaces import (
    ADOPTED_KEY,
    BUCKET_OFFSET_KEY,
    COMMIT_ID_KEY,
    COMMIT_USER,
    COMMIT_USER_KEY,
    REPLAY_START_KEY,
)
from fluss_lab.model import LakeOffset
from fluss_lab.model.names import BucketKey
from fluss_lab.testing.parquet_lake.parquet_write_result import ParquetCommittable, ParquetWriteResult
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
        starts = _replay_starts(properties)
        while True:
            newest = self._folder.owned(self._table_id)
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
            following = newest.committed((*kept, *files), properties, starts)
            try:
                self._folder.publish(following)
            except FileExistsError:
                continue  # somebody made that version first: was it a commit, or did it only alter the table?
            failpoint("lake.commit.after")
            return following.version

    def abort(self, results: Sequence[ParquetWriteResult]) -> None:
        """Remove the files of results, except those that any version names."""
        try:
            newest = self._folder.owned(self._table_id)
            used = {file.name for each in self._folder.history(newest) for file in each.files}
            for file in (file for result in results for file in result.files):
                if file.name not in used:
                    self._folder.data_file(file.name).unlink(missing_ok=True)
        except Exception as error:
            _LOG.warning("%s: files stay, as it cannot be told whether they are in use: %s", self._what, error)

    def current_snapshot_id(self) -> int | None:
        """Return the id of the newest snapshot."""
        return self._folder.owned(self._table_id).snapshot_id

    def missing_lake_snapshot(self, known_snapshot_id: int | None) -> CommittedLakeSnapshot | None:
        """Return the newest snapshot of ours after the known one, with all offsets committed since."""
        newer = self._since(self._folder.owned(self._table_id), known_snapshot_id)
        self._check_no_foreign(newer)
        return committed(newer)

    def newest_lake_snapshot(self) -> CommittedLakeSnapshot | None:
        """Return the newest snapshot of ours, with all offsets ever committed."""
        return committed(list(self._folder.history(self._folder.owned(self._table_id))))

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
        for snapshot in snapshots:
            if not _is_ours(snapshot):
                raise ForeignCommitError(f"{self._what}: snapshot {snapshot.version} was not committed by tiering")
            if ADOPTED_KEY in snapshot.properties:
                raise ForeignCommitError(
                    f"{self._what}: snapshot {snapshot.version} is of a repair that the cluster never heard of: run it again"
                )


def committed(snapshots: Sequence[Manifest]) -> CommittedLakeSnapshot | None:
    """Return the newest of ours among snapshots (the newest first), with the offsets of all of ours among them.

    Raises:
        CorruptDataError: Properties that tiering cannot have written.
    """
    ours: list[Manifest] = []
    for snapshot in snapshots:
        if _is_ours(snapshot):
            ours.append(snapshot)
            if ADOPTED_KEY in snapshot.properties:
                break  # a repair says all that there is
    offsets: dict[BucketKey, LakeOffset] = {}
    partition_ids: dict[str, int] = {}
    for snapshot in reversed(ours):
        for entry in _entries(snapshot.properties, BUCKET_OFFSET_KEY):
            name, number = entry.get("partition_name"), entry.get("partition_id")
            if name is not None and number is not None and partition_ids.setdefault(name, number) != number:
                # Dropped and made again: what was said of the first one says nothing.
                offsets = {key: offset for key, offset in offsets.items() if key[0] != name}
                partition_ids[name] = number
            offset = LakeOffset(entry["offset"], entry.get("max_timestamp", -1), name)
            offsets[name, entry["bucket"]] = offset
    return CommittedLakeSnapshot(ours[0].version, offsets, ours[0].properties, partition_ids) if ours else None


def _is_ours(snapshot: Manifest) -> bool:
    return snapshot.properties.get(COMMIT_USER_KEY) == COMMIT_USER


def _replay_starts(properties: Mapping[str, str]) -> dict[BucketKey, int]:
    entries = _entries(properties, REPLAY_START_KEY)
    return {(entry.get("partition_name"), entry["bucket"]): entry["offset"] for entry in entries}


def _entries(properties: Mapping[str, str], key: str) -> list[dict[str, Any]]:
    """Return a property that lists buckets."""
    try:
        entries: list[dict[str, Any]] = json.loads(properties.get(key, "[]"))
        for entry in entries:
            int(entry["bucket"]), int(entry["offset"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptDataError(f"property {key!r}: not a list of buckets with offsets: {error!r}") from error
    return entries
