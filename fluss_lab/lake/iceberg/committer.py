"""The committer of one round: all of its files in one snapshot, or nothing, on condition that nobody came between.

A commit that fails may have happened all the same, and one that is reported as failed too; the commit id in the
snapshot's summary tells. Nothing is ever applied a second time before that was looked up.
"""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyiceberg.exceptions import CommitFailedException

from fluss_lab.errors import (
    AuthenticationError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    FlussError,
    InternalError,
    LakeSnapshotNotFoundError,
    StorageError,
    TableNotFoundError,
    UnavailableError,
    UnsupportedError,
)
from fluss_lab.failpoints import FailpointError, failpoint
from fluss_lab.lake.iceberg.access import CatalogAccess, CatalogLockedError
from fluss_lab.lake.iceberg.history import check_no_foreign, commit_in, committed, since
from fluss_lab.lake.iceberg.io import delete_quietly, storage_error
from fluss_lab.lake.iceberg.layout import checked_layout
from fluss_lab.lake.iceberg.manifests import EntryCache, referenced_files
from fluss_lab.lake.iceberg.results import IcebergCommittable, IcebergWriteResult
from fluss_lab.lake.iceberg.snapshot import StagedSnapshot, stage_append
from fluss_lab.lake.interfaces import COMMIT_ID_KEY, CommittedLakeSnapshot, CommitterInitContext, LakeCommitter

if TYPE_CHECKING:
    from pyiceberg.table import Table

_LOG: Final = logging.getLogger(__name__)
#: Iceberg's properties for sending again what certainly was not committed, with their defaults: up to 4 times, the first
#: after 0.1 s; and for looking up what became of a commit: up to 3 times, after 1, 2 and 4 s.
RETRY: Final = ("commit.retry", 4, 100)
STATUS_CHECK: Final = ("commit.status-check", 3, 1000)
_MAX_WAIT_MS: Final = 60_000
_TOTAL_MS: Final = 1_800_000


@dataclass(frozen=True, slots=True)
class _Retries:
    """How often something is tried again, and after which pauses: one family of a lake table's properties."""

    count: int
    min_wait_ms: int
    max_wait_ms: int
    total_ms: int

    @staticmethod
    def of(properties: Mapping[str, str], family: tuple[str, int, int]) -> _Retries:
        """Read `RETRY` or `STATUS_CHECK` of a lake table."""
        prefix, count, min_wait_ms = family
        return _Retries(
            int(properties.get(f"{prefix}.num-retries", count)),
            int(properties.get(f"{prefix}.min-wait-ms", min_wait_ms)),
            int(properties.get(f"{prefix}.max-wait-ms", _MAX_WAIT_MS)),
            int(properties.get(f"{prefix}.total-timeout-ms", _TOTAL_MS)),
        )

    def pauses_s(self) -> Iterator[float]:
        """Yield how long to wait before each further try, until there are no more."""
        deadline = time.monotonic() + self.total_ms / 1000
        for attempt in range(self.count):
            if time.monotonic() >= deadline:
                return
            wait_ms = float(min(self.min_wait_ms << attempt, self.max_wait_ms))
            yield wait_ms * (1 + 0.1 * random.random()) / 1000  # noqa: S311


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
            if same and previous is not None and result.files and previous.end_offset > result.start_offset:
                raise InternalError(
                    f"{self._what}: two splits of partition {result.partition}, bucket {result.bucket} hold offset "
                    f"{result.start_offset}"
                )
            previous = result if result.files else previous
        return IcebergCommittable(tuple(file for result in ordered for file in result.files))

    def commit(
        self, committable: IcebergCommittable, planned_snapshot_id: int | None, properties: Mapping[str, str]
    ) -> int:
        """Commit all files in one snapshot, on condition that the table's newest one is still the planned one.

        A commit that certainly did not happen (a locked catalog, a change of properties in between) is sent again as
        the table's ``commit.retry.*`` say, one of unknown outcome is looked up as ``commit.status-check.*`` say. Commits
        by others are told from it by the condition, never overwritten.

        Args:
            committable: From `to_committable`; without files an empty snapshot is made.
            planned_snapshot_id: The newest snapshot when the round was planned; None for a table without any.
            properties: For the snapshot's summary; with `COMMIT_ID_KEY`.

        Returns:
            The snapshot's id: of this commit, or of an earlier one with the same commit id since the planned snapshot.

        Raises:
            CommitConflictError: The table moved on, or the catalog stayed locked; nothing was committed.
            ForeignCommitError: Somebody else changed the table's rows; nothing was committed.
            CommitOutcomeUnknownError: It may have happened; look for the commit id before acting.
            UnsupportedError: The table is not as fluss_lab made it; nothing was committed.
            StorageError: Metadata cannot be written; nothing was committed.
            TableNotFoundError: The lake table is gone.
        """
        if not properties.get(COMMIT_ID_KEY):
            raise InternalError(f"{self._what}: a commit needs {COMMIT_ID_KEY!r} in its properties")
        failpoint("lake.commit.before")
        snapshot_id = self._commit(committable, planned_snapshot_id, properties)
        failpoint("lake.commit.after")
        return snapshot_id

    def _commit(self, committable: IcebergCommittable, planned: int | None, properties: Mapping[str, str]) -> int:
        lake = self._load()
        commit_id = properties[COMMIT_ID_KEY]
        pauses = _Retries.of(lake.properties, RETRY).pauses_s()
        while (landed := self._landed(lake, planned, commit_id)) is None:
            checked_layout(self._context.table, lake)
            staged = self._stage(lake, committable, properties)
            refusal = self._send(lake, staged)
            if refusal is None:
                return self._confirm(staged.snapshot_id, planned, properties)
            if not isinstance(refusal, CommitFailedException | CatalogLockedError):
                return self._look_up(lake, planned, properties, refusal)
            # Looked at before anything is sent again: it may have landed though it was reported as failed.
            lake = self._load_after(refusal, properties)
            if (landed := self._landed(lake, planned, commit_id)) is not None:
                return landed
            if (pause_s := next(pauses, None)) is None:
                raise CommitConflictError(
                    f"{self._what}: nothing was committed: {refusal}; plan the round again"
                ) from refusal
            time.sleep(pause_s)
            lake = self._load_after(refusal, properties)
        return landed

    def _stage(self, lake: Table, committable: IcebergCommittable, properties: Mapping[str, str]) -> StagedSnapshot:
        spec_id = lake.spec().spec_id
        if strange := [file.file_path for file in committable.files if file.spec_id != spec_id]:
            raise UnsupportedError(
                f"{self._what}: the table's partition spec changed while {strange[0]} was written; plan again"
            )
        try:
            return stage_append(lake, committable.files, properties)
        except OSError as error:
            raise storage_error(f"{self._what}: its manifests", error) from error

    def _send(self, lake: Table, staged: StagedSnapshot) -> Exception | None:
        """Send a commit once; return why it failed, when it must be looked at whether it did.

        Raises:
            StorageError, AuthenticationError: It certainly did not happen, and another attempt would not either.
        """
        try:
            self._access.commit(self._what, lake, staged.requirements, staged.updates)
        except (StorageError, AuthenticationError):
            staged.discard()
            raise
        except CatalogLockedError as error:
            staged.discard()
            return error
        except FailpointError:
            raise
        except Exception as error:
            # Also after a refusal the manifests stay: an attempt that a network held back must find them.
            return error
        return None

    def _landed(self, lake: Table, planned: int | None, commit_id: str) -> int | None:
        """Return the snapshot that our commit made already; None when the table is still where the round was planned.

        Raises:
            CommitConflictError, ForeignCommitError: It is elsewhere, and our commit is not in it.
        """
        try:
            newer = since(lake, self._path, planned)
        except LakeSnapshotNotFoundError as error:
            raise CommitConflictError(
                f"{self._what}: planned at snapshot {planned}, which is not in the table's history any more; plan again"
            ) from error
        if (ours := commit_in(newer, commit_id)) is not None:
            return int(ours.snapshot_id)
        if not newer:
            return None
        check_no_foreign(self._path, newer)
        raise CommitConflictError(
            f"{self._what}: planned at snapshot {planned}, but the newest is {newer[0].snapshot_id} now; nothing was "
            "committed, plan the round again"
        )

    def _confirm(self, snapshot_id: int, planned: int | None, properties: Mapping[str, str]) -> int:
        """Read the table again: what the catalog says must be what it holds."""
        lake = self._load_after(None, properties)
        if (ours := commit_in(since(lake, self._path, planned), properties[COMMIT_ID_KEY])) is not None:
            return int(ours.snapshot_id)
        raise CommitOutcomeUnknownError(
            f"{self._what}: the catalog reported snapshot {snapshot_id} as committed, but the table does not have it; look "
            f"at the table's history for {COMMIT_ID_KEY}={properties[COMMIT_ID_KEY]}"
        )

    def _look_up(self, before: Table, planned: int | None, properties: Mapping[str, str], cause: Exception) -> int:
        """Find out whether a commit of unknown outcome happened. What was written for it stays."""
        commit_id = properties[COMMIT_ID_KEY]
        for pause_s in itertools.chain([0.0], _Retries.of(before.properties, STATUS_CHECK).pauses_s()):
            time.sleep(pause_s)
            try:
                newer = since(self._load(), self._path, planned)
            except (UnavailableError, OSError) as error:
                _LOG.warning("%s: looking for commit %s: %s", self._what, commit_id, error)
                continue
            except FlussError:
                break
            if (ours := commit_in(newer, commit_id)) is not None:
                return int(ours.snapshot_id)
        raise CommitOutcomeUnknownError(
            f"{self._what}: the commit failed with {type(cause).__name__}: {cause}; it was looked for and not found, but it "
            f"may still arrive. Look for {COMMIT_ID_KEY}={commit_id} in the table's history before acting"
        ) from cause

    def _load_after(self, cause: Exception | None, properties: Mapping[str, str]) -> Table:
        """Load the table after a commit was sent: not being able to leaves its outcome unknown."""
        try:
            return self._load()
        except TableNotFoundError:
            raise
        except (FlussError, OSError) as error:
            raise CommitOutcomeUnknownError(
                f"{self._what}: a commit was sent, but the table cannot be read: {error}; look for "
                f"{COMMIT_ID_KEY}={properties[COMMIT_ID_KEY]} in its history before acting"
            ) from cause or error

    def abort(self, results: Sequence[IcebergWriteResult]) -> None:
        """Remove the files of write results that will not be committed, except those that a snapshot refers to.

        When that cannot be told, nothing is removed. Never raises.

        Cost: every manifest of the table that was not decoded before is read.
        """
        files = [file.file_path for result in results for file in result.files]
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
        newer = since(self._load(), self._path, known_snapshot_id)
        check_no_foreign(self._path, newer)
        return committed(self._path, newer)

    def _load(self) -> Table:
        return self._access.load_table(self._path)
