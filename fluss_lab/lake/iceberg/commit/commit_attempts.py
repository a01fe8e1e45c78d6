"""Attempts to commit a snapshot: the one place that sends it, sends it again, and finds out what became of it.

A commit that fails may have happened all the same, and one that is reported as failed too; the commit id in the
snapshot's summary says. Nothing is ever applied a second time before that was looked up.
"""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import SetPropertiesUpdate

from fluss_lab.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CorruptDataError,
    FlussError,
    InternalError,
    LakeSnapshotNotFoundError,
    TableNotFoundError,
    UnavailableError,
)
from fluss_lab.failpoints import FailpointError, failpoint
from fluss_lab.lake.iceberg.commit.first_snapshot import with_first_snapshot
from fluss_lab.lake.iceberg.files.lake_errors import library_errors, write_error
from fluss_lab.lake.iceberg.metadata.foreign_commits import check_no_foreign
from fluss_lab.lake.iceberg.metadata.snapshot_builder import StagedSnapshot
from fluss_lab.lake.iceberg.metadata.snapshot_history import commit_in, main_line, since
from fluss_lab.lake.iceberg.table.catalog_access import NOT_DONE, CatalogAccess, CatalogLockedError
from fluss_lab.lake.snapshot_summary import COMMIT_ID_KEY
from fluss_lab.model import TablePath

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_LOG: Final = logging.getLogger(__name__)
#: Between the steps of a commit, in order, with those of `fluss_lab.lake.iceberg.metadata.snapshot_builder` between the first two. A process
#: that ends at one leaves orphan files or a whole commit; ``after_metadata`` is passed by every change of a table.
FAILPOINTS: Final = (
    "lake.commit.before",
    "lake.send.before",
    "lake.commit.after_metadata",
    "lake.send.after",
    "lake.commit.after",
)
#: Iceberg's properties for sending again what certainly was not committed, with their defaults: up to 4 times, the first
#: after 0.1 s; and for looking up what became of a commit: up to 3 times, after 1, 2 and 4 s.
RETRY: Final = ("commit.retry", 4, 100)
STATUS_CHECK: Final = ("commit.status-check", 3, 1000)
_MAX_WAIT_MS: Final = 60_000
_TOTAL_MS: Final = 1_800_000

#: Puts a snapshot together on top of the table as it was loaded.
Stage = Callable[["Table"], StagedSnapshot]
#: Called when the table moved on, with the snapshots since the planned one, the newest first. Returns when the commit may be
#: made on top of them all the same, and raises when not.
OnMoved = Callable[["Table", "list[Snapshot]"], None]


@dataclass(frozen=True, slots=True)
class Retries:
    """How often something is tried again, and after which pauses: one family of a lake table's properties."""

    count: int
    min_wait_ms: int
    max_wait_ms: int
    total_ms: int

    @staticmethod
    def of(properties: Mapping[str, str], family: tuple[str, int, int]) -> Retries:
        """Read `RETRY` or `STATUS_CHECK` of a lake table."""
        prefix, count, min_wait_ms = family
        return Retries(
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


class SnapshotCommits:
    """Commits snapshots to one lake table. Used by one thread.

    Args:
        access: The catalog.
        path: The table.
        what: Who commits, for messages.
    """

    def __init__(self, access: CatalogAccess, path: TablePath, what: str) -> None:
        self._access = access
        self._path = path
        self._what = what
        self._committed: Table | None = None

    @property
    def committed(self) -> Table | None:
        """Return the table as it was loaded after the commit, with the commit in it; None before."""
        return self._committed

    def commit(
        self,
        stage: Stage,
        planned: int | None,
        properties: Mapping[str, str],
        *,
        on_moved: OnMoved | None = None,
        base: Table | None = None,
    ) -> int:
        """Commit what `stage` puts together, on condition that the table's newest snapshot is still the planned one.

        A commit that certainly did not happen (a locked catalog, a change of properties in between) is sent again as
        the table's ``commit.retry.*`` say, one of unknown outcome is looked up as ``commit.status-check.*`` say. Commits
        by others are found by the condition, never overwritten.

        Args:
            stage: Called once for each time that the commit is sent, with the table as it is then. It should check what it
                needs of the table, and raise what it finds.
            planned: The newest snapshot when the commit was planned; None for a table without any.
            properties: Of the snapshot's summary; with `COMMIT_ID_KEY`.
            on_moved: Called when the table moved on; absent: that is refused.
            base: The table as it was loaded a while ago: the commit is tried on top of it. Should the table have moved on
                since, the catalog refuses, and it is loaded.

        Returns:
            The snapshot's id: of this commit, or of an earlier one with the same commit id since the planned snapshot.

        Raises:
            CommitConflictError: The table moved on, or the catalog stayed locked; nothing was committed.
            ForeignCommitError: Another engine changed the table's rows; nothing was committed.
            CommitOutcomeUnknownError: It may have happened; look for the commit id before acting.
            StorageError: Metadata cannot be written; nothing was committed.
            TableNotFoundError: The lake table is gone.
            FlussError: As `stage` and `on_moved`; nothing was committed.
        """
        commit_id = properties.get(COMMIT_ID_KEY)
        if not commit_id:
            raise InternalError(f"{self._what}: a commit needs {COMMIT_ID_KEY!r} in its properties")
        failpoint("lake.commit.before")
        snapshot_id = self._commit(stage, planned, commit_id, on_moved or self._refuse, base)
        failpoint("lake.commit.after")
        return snapshot_id

    def _commit(self, stage: Stage, planned: int | None, commit_id: str, on_moved: OnMoved, base: Table | None) -> int:
        loaded = base or self._access.load_table(self._path)
        lake = loaded
        if loaded.metadata.current_snapshot_id is None:
            lake = with_first_snapshot(self._access, self._path, loaded)
        pauses = Retries.of(lake.properties, RETRY).pauses_s()
        while (landed := self._landed_snapshot(lake, planned, commit_id, on_moved)) is None:
            staged = self._stage(lake, stage) if lake is not base else self._stage_on(lake, stage)
            if staged is None:
                lake = self._access.load_table(self._path)
                continue
            refusal = self._send(lake, staged)
            if refusal is None:
                return self._confirm(staged.snapshot_id, planned, commit_id)
            if not isinstance(refusal, CommitFailedException | CatalogLockedError):
                return self._look_up(lake, planned, commit_id, refusal)
            # Looked at before anything is sent again: it may have landed though it was reported as failed.
            lake = self._load_after(refusal, commit_id)
            if (landed := self._landed_snapshot(lake, planned, commit_id, on_moved)) is not None:
                return landed
            if (pause_s := next(pauses, None)) is None:
                raise CommitConflictError(f"{self._what}: nothing was committed: {refusal}; plan it again") from refusal
            time.sleep(pause_s)
            lake = self._load_after(refusal, commit_id)
        return landed

    def _stage_on(self, base: Table, stage: Stage) -> StagedSnapshot | None:
        """Return what is staged on top of a table that was loaded a while ago; None when that takes the table of now.

        Its files may have expired meanwhile, or the credentials that came with it; and what it sets among the properties
        is made of those that it had: a REST catalog does not compare them.
        """
        try:
            staged = self._stage(base, stage)
        except FailpointError:
            raise
        except FlussError as error:
            _LOG.info("%s: the table is loaded again: %s", self._what, error)
            return None
        if any(isinstance(each, SetPropertiesUpdate) for each in staged.updates):
            staged.discard()
            return None
        return staged

    def _stage(self, lake: Table, stage: Stage) -> StagedSnapshot:
        try:
            return stage(lake)
        except FileNotFoundError as error:
            raise CorruptDataError(
                f"{self._what}: a file of the table's newest snapshot is missing: {error}; nothing was committed. Restore it "
                "from a copy, or roll the table back to a snapshot that is whole"
            ) from error
        except library_errors(OSError) as error:
            raise write_error(f"{self._what}: its manifests", error) from error

    def _send(self, lake: Table, staged: StagedSnapshot) -> Exception | None:
        """Send a commit once; return why it failed, when it must be looked at whether it did.

        Raises:
            FlussError: Of `NOT_DONE`: it certainly did not happen, and another attempt would not either.
        """
        try:
            failpoint("lake.send.before")
            self._access.commit(self._what, lake, staged.requirements, staged.updates)
            failpoint("lake.send.after")
        except NOT_DONE:
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

    def _landed_snapshot(self, lake: Table, planned: int | None, commit_id: str, on_moved: OnMoved) -> int | None:
        """Return the snapshot that our commit made already; None when it can be made on top of the table as it is.

        Raises:
            CommitConflictError, ForeignCommitError: The table moved on, and our commit is not in it.
        """
        if (ours := self._find(lake, planned, commit_id)) is not None:
            return int(ours.snapshot_id)
        try:
            newer = since(lake, self._path, planned)
        except LakeSnapshotNotFoundError as error:
            raise CommitConflictError(
                f"{self._what}: planned at snapshot {planned}, which is not in the table's history any more; plan again"
            ) from error
        if newer:
            on_moved(lake, newer)
        return None

    def _refuse(self, lake: Table, newer: list[Snapshot]) -> None:
        check_no_foreign(self._path, lake, newer)
        raise moved_on_error(self._what, newer)

    def _confirm(self, snapshot_id: int, planned: int | None, commit_id: str) -> int:
        """Read the table again: what the catalog says must be what it holds."""
        if (ours := self._find(self._load_after(None, commit_id), planned, commit_id)) is not None:
            return int(ours.snapshot_id)
        raise CommitOutcomeUnknownError(
            f"{self._what}: the catalog reported snapshot {snapshot_id} as committed, but the table does not have it; look "
            f"at the table's history for {COMMIT_ID_KEY}={commit_id}"
        )

    def _look_up(self, before: Table, planned: int | None, commit_id: str, cause: Exception) -> int:
        """Find out whether a commit of unknown outcome happened. What was written for it stays."""
        for pause_s in itertools.chain([0.0], Retries.of(before.properties, STATUS_CHECK).pauses_s()):
            time.sleep(pause_s)
            try:
                ours = self._find(self._access.load_table(self._path), planned, commit_id)
            except (UnavailableError, OSError) as error:
                _LOG.warning("%s: looking for commit %s: %s", self._what, commit_id, error)
                continue
            except FlussError:
                break
            if ours is not None:
                return int(ours.snapshot_id)
        raise CommitOutcomeUnknownError(
            f"{self._what}: the commit failed with {type(cause).__name__}: {cause}; it was looked for and not found, but it "
            f"may still arrive. Look for {COMMIT_ID_KEY}={commit_id} in the table's history before acting"
        ) from cause

    def _find(self, lake: Table, planned: int | None, commit_id: str) -> Snapshot | None:
        """Return the snapshot that a commit made, looking back to the planned one, or as far as there is history without it."""
        newer = itertools.takewhile(lambda snapshot: snapshot.snapshot_id != planned, main_line(lake.metadata))
        if (ours := commit_in(newer, commit_id)) is not None:
            self._committed = lake
        return ours

    def _load_after(self, cause: Exception | None, commit_id: str) -> Table:
        """Load the table after a commit was sent: not being able to leaves its outcome unknown."""
        try:
            return self._access.load_table(self._path)
        except TableNotFoundError:
            raise
        except (FlussError, OSError) as error:
            raise CommitOutcomeUnknownError(
                f"{self._what}: a commit was sent, but the table cannot be read: {error}; look for "
                f"{COMMIT_ID_KEY}={commit_id} in its history before acting"
            ) from cause or error


def moved_on_error(what: str, newer: list[Snapshot]) -> CommitConflictError:
    """Return the error for a table that has snapshots, the newest first, that a commit's plan does not know."""
    return CommitConflictError(
        f"{what}: planned at snapshot {newer[-1].parent_snapshot_id}, but the newest is {newer[0].snapshot_id} now; nothing "
        "was committed, plan it again"
    )
