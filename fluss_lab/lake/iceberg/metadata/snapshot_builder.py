"""A snapshot put together: manifests and their list written, the changes of table metadata to be committed.

Built on pyiceberg's manifest layer, below its public face: its `Transaction` copies the metadata some twenty times a
commit (seconds with a thousand snapshots), retries on its own, and knows no commit that adds delete files. The version is
pinned; the tests read the result with other people's readers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
)

from fluss_lab.errors import CommitConflictError
from fluss_lab.failpoints import failpoint
from fluss_lab.lake.iceberg.metadata.merging_manifest_writer import FileChanges, ManifestFiles, SnapshotPlace
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache
from fluss_lab.lake.iceberg.metadata.snapshot_history import (
    COMMITTED_KEY,
    FIRST_ROWS,
    PARENTS_KEY,
    START_KEY,
    change_ms,
    main_line,
    next_parents,
    parents_text,
    starts_offsets,
    summaries,
)
from fluss_lab.lake.snapshot_summary import thin_summary

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

#: Between the steps of putting a snapshot together, in order; a process that ends at one leaves nothing but orphan files.
FAILPOINTS: Final = ("lake.manifests.before", "lake.manifests.after", "lake.manifest_list.after")

#: A snapshot says when it was committed if its timestamp is later by more.
LATE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class TagRequest:
    """A tag that is set in the same commit.

    Attributes:
        name: Its name; one of that name is moved.
        snapshot_id: What it keeps.
        max_ref_age_ms: For how long Iceberg's expiry, anyone's, leaves it; None: until it is removed.
    """

    name: str
    snapshot_id: int
    max_ref_age_ms: int | None

    def update(self) -> TableUpdate:
        """Return the change of table metadata."""
        return _reference(self.name, SnapshotRefType.TAG, self.snapshot_id, self.max_ref_age_ms)


@dataclass(frozen=True, slots=True)
class StagedSnapshot:
    """A snapshot that is ready to be committed, once.

    Attributes:
        snapshot_id: What its id will be; of two, that of the second.
        updates: The changes of table metadata.
        requirements: What must hold for them: the table is the same, and its main branch, its columns and partitions are
            where they were.
        discard: Removes the manifests written. Only when it is certain that nothing was committed.
    """

    snapshot_id: int
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    discard: Callable[[], None]


def stage_delete(
    lake: Table,
    files: Sequence[DataFile],
    summary: Mapping[str, str],
    *,
    properties: Mapping[str, str] | None = None,
    tags: Sequence[TagRequest] = (),
    entries: EntryCache | None = None,
) -> StagedSnapshot:
    """Write the manifests of a snapshot of a table's main branch without some of its data and delete files.

    Args:
        lake: The table; the commit will require its present newest snapshot.
        files: Files of that snapshot, at least one.
        summary: Goes into the snapshot's summary.
        properties: Table properties that are set in the same commit.
        tags: Tags that are set in the same commit.
        entries: Decoded manifests.

    Raises:
        CommitConflictError: One of the files is not in that snapshot.
        OSError, StorageError: A manifest cannot be written.
    """
    changes = FileChanges(removed={file.file_path for file in files})
    return _stage(lake, Operation.DELETE, changes, summary, properties=properties, tags=tags, entries=entries)


def stage_row_delta(
    lake: Table,
    data: Sequence[DataFile],
    deletes: Sequence[DataFile],
    summary: Mapping[str, str],
    *,
    properties: Mapping[str, str] | None = None,
    tags: Sequence[TagRequest] = (),
    entries: EntryCache | None = None,
) -> StagedSnapshot:
    """Write the manifests of a snapshot that adds data and delete files to a table's main branch, as it was loaded.

    Manifests are merged as the table's ``commit.manifest*`` properties say, those of delete files apart.

    Args:
        lake: The table; the commit will require its present newest snapshot.
        data: The data files.
        deletes: Position-delete and equality-delete files. Without files of either kind the snapshot is an empty append.
        summary: Goes into the snapshot's summary.
        properties: Table properties that are set in the same commit.
        tags: Tags that are set in the same commit.
        entries: Decoded manifests; merging reads what it does not have.

    Raises:
        OSError, StorageError: A manifest cannot be written.
    """
    changes = FileChanges(added=[(file, None) for file in (*data, *deletes)])
    # The operations of Iceberg's own row delta: readers of increments go by them.
    operation = Operation.APPEND if not deletes else Operation.OVERWRITE if data else Operation.DELETE
    return _stage(lake, operation, changes, summary, properties=properties, tags=tags, entries=entries)


def stage_replace(
    lake: Table,
    *,
    removed: Sequence[DataFile],
    added: Sequence[tuple[DataFile, int | None]],
    summary: Mapping[str, str],
    properties: Mapping[str, str] | None = None,
    tags: Sequence[TagRequest] = (),
    entries: EntryCache | None = None,
    tidies: bool = False,
) -> StagedSnapshot:
    """Write the manifests of a snapshot that has the same rows in other files.

    Args:
        lake: The table; the commit will require its present newest snapshot.
        removed: Data and delete files of that snapshot that go.
        added: Data and delete files that come, each with its data sequence number. For rewritten rows that is the
            planned snapshot's, so that equality deletes committed since still apply to them; for merged delete files the
            largest of the merged; None: the new snapshot's own.
        summary: Goes into the snapshot's summary.
        properties: Table properties that are set in the same commit.
        tags: Tags that are set in the same commit.
        entries: Decoded manifests.
        tidies: Whether a second snapshot follows in the same commit, which does not list the manifests of what was removed.
            The first one must: another writer finds there that a file whose rows it deletes is gone. Readers of the newest
            snapshot open them in vain, and while any is of delete files some count rows by reading them. The second is what
            Iceberg's own rewrite of manifests would make; the first never is the newest.

    Raises:
        CommitConflictError: One of the removed files is not in that snapshot.
        OSError, StorageError: A manifest cannot be written.
    """
    changes = FileChanges(added, {file.file_path for file in removed})
    return _stage(
        lake, Operation.REPLACE, changes, summary, properties=properties, tags=tags, entries=entries, tidies=tidies
    )


def _stage(
    lake: Table,
    operation: Operation,
    changes: FileChanges,
    summary: Mapping[str, str],
    *,
    properties: Mapping[str, str] | None = None,
    tags: Sequence[TagRequest] = (),
    entries: EntryCache | None = None,
    tidies: bool = False,
) -> StagedSnapshot:
    metadata = lake.metadata
    place = SnapshotPlace(metadata.new_snapshot_id(), metadata.current_snapshot_id, metadata.next_sequence_number())
    entries = EntryCache() if entries is None else entries
    files = ManifestFiles(lake, place, entries)
    failpoint("lake.manifests.before")
    with files.removed_on_error():
        try:
            manifests, removed = files.write(changes)
        except KeyError as error:
            raise CommitConflictError(
                f"lake table {'.'.join(lake.name())}: {error.args[0]} is not in snapshot {metadata.current_snapshot_id} "
                "any more, so it cannot be removed; nothing was committed, plan again"
            ) from error
        failpoint("lake.manifests.after")
        given = _summary_properties(lake, summary)
        path = files.write_list(place, manifests)
        snapshots = [_snapshot(lake, place, path, _summary(lake, operation, changes, removed, given))]
        if tidies:
            snapshots += _without_emptied(lake, files, entries, snapshots[0], given)
        failpoint("lake.manifest_list.after")
    newest = snapshots[-1].snapshot_id
    updates: list[TableUpdate] = [
        *(AddSnapshotUpdate(snapshot=snapshot) for snapshot in snapshots),
        _reference(MAIN_BRANCH, SnapshotRefType.BRANCH, newest, None),
        *(tag.update() for tag in tags),
    ]
    if properties:
        updates.append(SetPropertiesUpdate(updates=dict(properties)))
    return StagedSnapshot(newest, tuple(updates), _requirements(lake, bool(properties)), files.discard)


def _without_emptied(
    lake: Table, files: ManifestFiles, entries: EntryCache, first: Snapshot, given: Mapping[str, str]
) -> list[Snapshot]:
    """Return the snapshot after one, without the manifests that nothing live is in; none where there are no such ones."""
    listed = entries.manifests(lake.io, first)
    live = [manifest for manifest in listed if manifest.has_added_files() or manifest.has_existing_files()]
    if len(live) == len(listed):
        return []
    snapshot_id = lake.metadata.new_snapshot_id()
    while snapshot_id == first.snapshot_id:
        snapshot_id = lake.metadata.new_snapshot_id()
    place = SnapshotPlace(snapshot_id, first.snapshot_id, int(first.sequence_number or 0) + 1)
    own = {**given, "manifests-kept": str(len(live)), "manifests-replaced": str(len(listed) - len(live))}
    if PARENTS_KEY in given:
        own[PARENTS_KEY] = next_parents(first.snapshot_id, given[PARENTS_KEY])
    return [_snapshot(lake, place, files.write_list(place, live), _totals(Operation.REPLACE, own, first))]


def _snapshot(lake: Table, place: SnapshotPlace, manifest_list: str, summary: Summary) -> Snapshot:
    metadata = lake.metadata
    stamp_ms, now_ms = change_ms(metadata), int(time.time() * 1000)
    if stamp_ms - now_ms > LATE_MS:
        summary = Summary(operation=summary.operation, **summary.additional_properties, **{COMMITTED_KEY: str(now_ms)})
    return Snapshot.model_validate(
        {
            "snapshot-id": place.snapshot_id,
            "parent-snapshot-id": place.parent_id,
            "manifest-list": manifest_list,
            "sequence-number": place.sequence_number,
            "summary": summary,
            "schema-id": metadata.current_schema_id,
            "timestamp-ms": stamp_ms,
        }
    )


class _AssertSameProperties(ValidatableTableRequirement):
    """The table's properties are what they were: the commit sets some that were made of them."""

    type: Literal["fluss-assert-same-properties"] = "fluss-assert-same-properties"
    properties: dict[str, str]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        if base_metadata is None or dict(base_metadata.properties) != self.properties:
            raise CommitFailedException("Requirement failed: the table's properties have changed")


class _AssertSameSequence(ValidatableTableRequirement):
    """No snapshot was made, of whichever branch, since the sequence numbers of those that are added were taken."""

    type: Literal["fluss-assert-same-sequence"] = "fluss-assert-same-sequence"
    number: int

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        if base_metadata is None or base_metadata.next_sequence_number() != self.number:
            raise CommitFailedException("Requirement failed: another branch of the table was committed to meanwhile")


def _requirements(lake: Table, sets_properties: bool) -> tuple[TableRequirement, ...]:
    """Return what must hold for a snapshot that was put together on top of a table as it was loaded."""
    metadata = lake.metadata
    requirements: list[Any] = [
        AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": metadata.current_snapshot_id}),
        AssertTableUUID(uuid=metadata.table_uuid),
        # A change of columns or partitions does not move the branch.
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
    ]
    # A REST catalog knows no such requirements: it looks at sequence numbers by itself, and the last change of a property wins.
    if isinstance(lake.catalog, MetastoreCatalog):
        requirements.append(_AssertSameSequence(number=metadata.next_sequence_number()))
        if sets_properties:
            requirements.append(_AssertSameProperties(properties=dict(metadata.properties)))
    return tuple(requirements)


def _summary_properties(lake: Table, given: Mapping[str, str]) -> dict[str, str]:
    """Return what a snapshot's summary says beside counts: what was given, and what the table's history asks for."""
    metadata = lake.metadata
    parent = metadata.current_snapshot()
    carried = thin_summary(summaries(".".join(lake.name()), main_line(metadata)), given)
    if starts_offsets(parent):
        carried = {**carried, START_KEY: FIRST_ROWS}
    if parent is not None and not isinstance(lake.catalog, MetastoreCatalog):
        carried = {**carried, PARENTS_KEY: parents_text(parent)}
    return carried


def _summary(
    lake: Table, operation: Operation, changes: FileChanges, removed: Sequence[DataFile], given: Mapping[str, str]
) -> Summary:
    """Return the summary: what was given, the counts of added and removed files, and the table's totals."""
    metadata = lake.metadata
    names = TableProperties
    limit = metadata.properties.get(names.WRITE_PARTITION_SUMMARY_LIMIT, names.WRITE_PARTITION_SUMMARY_LIMIT_DEFAULT)
    collector = SnapshotSummaryCollector(partition_summary_limit=int(limit))
    schema, specs = metadata.schema(), metadata.specs()
    for file, _ in changes.added:
        collector.add_file(file, schema, specs[file.spec_id])
    for file in removed:
        collector.remove_file(file, schema, specs[file.spec_id])
    return _totals(operation, {**given, **collector.build()}, metadata.current_snapshot())


def _totals(operation: Operation, counted: Mapping[str, str], parent: Snapshot | None) -> Summary:
    """Return a summary with the table's totals, from those of the snapshot before."""
    # pyiceberg counts totals for three operations only; they do not depend on it.
    found = update_snapshot_summaries(
        Summary(operation=Operation.OVERWRITE, **counted),
        None if parent is None or parent.summary is None else parent.summary.additional_properties,
    )
    return Summary(operation=operation, **found.additional_properties)


def _reference(name: str, kind: SnapshotRefType, snapshot_id: int, max_ref_age_ms: int | None) -> TableUpdate:
    return SetSnapshotRefUpdate.model_validate(
        {"ref-name": name, "type": kind.value, "snapshot-id": snapshot_id, "max-ref-age-ms": max_ref_age_ms}
    )
