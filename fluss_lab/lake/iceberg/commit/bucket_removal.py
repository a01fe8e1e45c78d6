"""The files of whole buckets taken out of a lake table by one commit: of a dropped partition, and of buckets that a repair empties.

The commit of a dropped partition carries our commit user, so that tiering does not take it for another engine's change; no
offsets, so that what the cluster knows stays; and an id made of the partition's, so that a repetition is recognised. It is
made though there may be nothing to delete: a round that was planned before it, when the partition still was one, must not be
able to commit after it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyiceberg.exceptions import CommitFailedException

from fluss_lab.errors import CommitConflictError, TableNotFoundError
from fluss_lab.lake.iceberg.commit.commit_attempts import SnapshotCommits
from fluss_lab.lake.iceberg.commit.first_snapshot import with_first_snapshot
from fluss_lab.lake.iceberg.commit.replay_start_tags import replay_parts, tagged_snapshots
from fluss_lab.lake.iceberg.files.lake_errors import library_errors, write_error
from fluss_lab.lake.iceberg.metadata.partition_history import drops_property
from fluss_lab.lake.iceberg.metadata.snapshot_builder import (
    StagedSnapshot,
    TagRequest,
    stage_delete,
    stage_row_delta,
)
from fluss_lab.lake.iceberg.metadata.snapshot_files import BucketFiles, EntryCache, live_state, snapshot_of
from fluss_lab.lake.iceberg.metadata.snapshot_history import commit_in, main_line
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess, CatalogLockedError
from fluss_lab.lake.iceberg.table.layout import TABLE_ID_PROPERTY, checked_layout, known_layout
from fluss_lab.lake.snapshot_summary import COMMIT_ID_KEY, DROPPED_PARTITION_KEY, drop_properties
from fluss_lab.model import PartitionInfo, TableInfo
from fluss_lab.model.names import BucketKey

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


def stage_removal(
    lake: Table,
    entries: EntryCache,
    table: TableInfo,
    is_gone: Callable[[BucketKey], bool],
    summary: Mapping[str, str],
) -> StagedSnapshot:
    """Put together a snapshot without the data and delete files of some buckets; an empty one when they have none.

    Equality deletes of others that apply to every bucket stay. Files stay as long as older snapshots hold them.

    Args:
        lake: The table; the commit will require its present newest snapshot.
        entries: Decoded manifests.
        table: The table as the cluster knows it.
        is_gone: Returns whether a bucket goes, by partition name and number.
        summary: Goes into the snapshot's summary.

    Raises:
        UnsupportedError: Another engine changed the table so that its files cannot be assigned by bucket.
        StorageError: Metadata cannot be written.
    """
    gone = _files(lake, entries, table, is_gone)
    # Replay of the buckets that stay needs what a compaction by others, just before, retired.
    properties: dict[str, str] = {}
    tags: list[TagRequest] = []
    if not table.is_log_table:
        summary, properties, tags = replay_parts(table, lake, summary)
        if (name := summary.get(DROPPED_PARTITION_KEY)) is not None:
            tagged = {*tagged_snapshots(lake).values(), *(tag.snapshot_id for tag in tags)}
            properties |= drops_property(lake, tagged, {name: [lake.metadata.next_sequence_number()]})
    try:
        if gone:
            return stage_delete(lake, gone, summary, properties=properties, tags=tags, entries=entries)
        return stage_row_delta(lake, [], [], summary, properties=properties, tags=tags, entries=entries)
    except library_errors(OSError) as error:
        raise write_error(f"lake table {table.path}: its manifests", error) from error


def _files(lake: Table, entries: EntryCache, table: TableInfo, is_gone: Callable[[BucketKey], bool]) -> list[DataFile]:
    if (newest := lake.metadata.current_snapshot_id) is None:
        return []
    snapshot = snapshot_of(lake, table.path, newest)
    found = live_state(lake, table.path, known_layout(table, lake), snapshot, entries)
    return [file for key, state in found.items() if is_gone(key) for file in _own_files(lake, state)]


def _own_files(lake: Table, state: BucketFiles) -> list[DataFile]:
    spec_id = lake.spec().spec_id
    deletes = [each.file for each in state.deletes if each.file.spec_id == spec_id]
    return [*(each.file for each in state.data), *deletes]


def empty_buckets(
    access: CatalogAccess,
    entries: EntryCache,
    table: TableInfo,
    buckets: frozenset[BucketKey],
    planned: int | None,
    properties: Mapping[str, str],
) -> int:
    """Commit a snapshot without any file of some buckets, on condition that the newest one is still the planned one.

    Args:
        access: The catalog.
        entries: Decoded manifests.
        table: The table.
        buckets: By partition name and number.
        planned: The newest snapshot when that was decided.
        properties: Of the snapshot's summary; with `COMMIT_ID_KEY`.

    Returns:
        The snapshot's id.

    Raises:
        FlussError: As `SnapshotCommits.commit`.
    """

    def stage(lake: Table) -> StagedSnapshot:
        checked_layout(table, lake)
        return stage_removal(lake, entries, table, buckets.__contains__, properties)

    commits = SnapshotCommits(access, table.path, f"lake table {table.path}, repair")
    return commits.commit(stage, planned, properties)


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
        UnsupportedError: Another engine changed the table so that its files cannot be assigned by partition.
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
        lake = with_first_snapshot(access, table.path, lake)
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
