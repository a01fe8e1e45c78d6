"""The rows of a dropped partition deleted from a lake table, by one commit that keeps to the rules of tiering's own.

The commit carries our commit user, so that tiering does not take it for somebody else's change; no offsets, so that what
the cluster knows stays; and an id made of the partition's, so that it is recognised when it is asked for again. It is
made though there may be nothing to delete: a round that was planned before it, when the partition still was one, must not
be able to commit after it.
"""

from __future__ import annotations

import random
import time
from typing import Final

from pyiceberg.exceptions import CommitFailedException

from fluss_lab.errors import CommitConflictError, TableNotFoundError
from fluss_lab.lake.iceberg.commit.bucket_removal import stage_removal
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache
from fluss_lab.lake.iceberg.metadata.snapshot_history import commit_in, main_line
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess, CatalogLockedError
from fluss_lab.lake.iceberg.table.layout import TABLE_ID_PROPERTY
from fluss_lab.lake.snapshot_summary import COMMIT_ID_KEY, drop_properties
from fluss_lab.model import PartitionInfo, TableInfo

#: A commit that loses against a round's is made again; rounds of one table commit seconds apart.
TRIES: Final = 8
_PAUSE_S: Final = 0.05


def drop_partition(access: CatalogAccess, entries: EntryCache, table: TableInfo, partition: PartitionInfo) -> None:
    """Delete a partition's rows, its delete files with them; doing it again changes nothing.

    Its files stay as long as older snapshots hold them.

    Args:
        access: The catalog.
        entries: Decoded manifests.
        table: The table.
        partition: Id and name.

    Raises:
        CommitConflictError: Others keep committing; nothing was deleted, try again.
        UnsupportedError: Somebody changed the table so that its files cannot be told by partition.
        StorageError: Metadata cannot be written.
        UnavailableError: The catalog is locked or does not answer; try again.
    """
    what = f"drop partition {partition.name!r} of lake table {table.path}"
    summary = drop_properties(table.table_id, partition)
    for attempt in range(TRIES):
        try:
            lake = access.load_table(table.path)
        except TableNotFoundError:
            return
        if lake.properties.get(TABLE_ID_PROPERTY) != str(table.table_id):
            return
        if commit_in(main_line(lake.metadata), summary[COMMIT_ID_KEY]) is not None:
            return
        staged = stage_removal(lake, entries, table, lambda key: key[0] == partition.name, summary)
        try:
            access.commit(what, lake, staged.requirements, staged.updates, repeatable=True)
        except CatalogLockedError:
            staged.discard()
        except CommitFailedException:
            # The manifests stay: an attempt that a network held back must find them.
            pass
        else:
            return
        time.sleep(_PAUSE_S * (attempt + 1) * (1 + random.random()))  # noqa: S311
    raise CommitConflictError(f"{what}: others committed to the table {TRIES} times meanwhile; try again")
