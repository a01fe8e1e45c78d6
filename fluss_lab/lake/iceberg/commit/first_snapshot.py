"""The empty snapshot that a lake table in a REST catalog begins with, so that no commit of rows ever requires that there be none.

Every commit is conditional on the newest snapshot, and the first one on there being no snapshot. That condition some servers
accept without looking at it (Nessie 0.99): a second first commit replaces the first one's snapshot, and its rows are gone. The
id of a snapshot that exists they do compare. So whoever creates the table commits a snapshot without files, before anybody can
tier into it. It is of the operation of compactions, which leave the rows as they are, and carries no commit user: to
tiering, replay and engines that read increments it is nothing that happened.

Two of them at once are harmless: neither has rows, and what was planned on the one that is replaced is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fluss_lab.errors import CommitConflictError
from fluss_lab.lake.iceberg.files.lake_errors import library_errors, write_error
from fluss_lab.lake.iceberg.metadata.snapshot_builder import stage_replace
from fluss_lab.lake.iceberg.metadata.snapshot_history import EMPTY_START, START_KEY
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from fluss_lab.model import TablePath

if TYPE_CHECKING:
    from pyiceberg.table import Table

#: Another creation's snapshot came in between: it is there at the next look.
TRIES: Final = 3


def with_first_snapshot(access: CatalogAccess, path: TablePath, lake: Table) -> Table:
    """Return a lake table as it is to be committed to: in a REST catalog it has a snapshot, an empty one if need be.

    Args:
        access: The catalog.
        path: The table.
        lake: The table as it was loaded; returned as it is where nothing is to be done.

    Raises:
        CommitConflictError: The catalog refuses the snapshot, and has none.
        StorageError: Its manifest list cannot be written.
        CommitOutcomeUnknownError, UnavailableError: Try again; nothing but the empty snapshot may be there.

    Cost: nothing for a table that has a snapshot; else one commit and two loads.
    """
    from pyiceberg.exceptions import CommitFailedException

    if not access.is_rest or lake.metadata.current_snapshot_id is not None:
        return lake
    what = f"lake table {path}: its first snapshot, without rows"
    # It may have been loaded a while ago.
    lake = access.load_table(path)
    refused: Exception | None = None
    for _ in range(TRIES):
        if lake.metadata.current_snapshot_id is not None:
            return lake
        try:
            staged = stage_replace(lake, removed=[], added=[], summary={START_KEY: EMPTY_START})
        except library_errors(OSError) as error:
            raise write_error(what, error) from error
        try:
            access.commit(what, lake, staged.requirements, staged.updates, repeatable=True)
        except CommitFailedException as error:
            # What was written stays: it may have landed though it was reported as failed.
            refused = error
        lake = access.load_table(path)
    if lake.metadata.current_snapshot_id is None:
        raise CommitConflictError(f"{what}: nothing was committed: {refused}; try again") from refused
    return lake
