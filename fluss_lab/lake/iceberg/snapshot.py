"""A snapshot put together: manifests and their list written, the changes of table metadata to be committed.

Built on pyiceberg's snapshot producer, below its public face: its `Transaction` copies the metadata some twenty times a
commit (seconds with a thousand snapshots) and retries on its own. The version is pinned; the tests read the result with
other people's readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AssertTableUUID, TableRequirement, TableUpdate
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata


class _PlainTransaction(Transaction):
    """A transaction that stages nothing: its metadata is the table's own, not a copy."""

    @property
    def table_metadata(self) -> TableMetadata:
        """Return the table's metadata."""
        return self._table.metadata


@dataclass(frozen=True, slots=True)
class StagedSnapshot:
    """A snapshot that is ready to be committed, once.

    Attributes:
        snapshot_id: What its id will be.
        updates: The changes of table metadata.
        requirements: What must hold for them: the table is the same, and its main branch is where it was.
        producer: pyiceberg's, which knows the manifests written.
    """

    snapshot_id: int
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    producer: Any

    def discard(self) -> None:
        """Remove the manifests written. Only when it is certain that nothing was committed."""
        self.producer._clean_all_uncommitted()


def stage_append(lake: Table, files: Sequence[DataFile], summary: Mapping[str, str]) -> StagedSnapshot:
    """Write the manifests of an append to a table's main branch, as it was loaded.

    Manifests are merged as the table's ``commit.manifest*`` properties say.

    Args:
        lake: The table; the commit will require its present newest snapshot.
        files: The data files; none makes an empty snapshot.
        summary: Goes into the snapshot's summary.

    Raises:
        OSError: A manifest cannot be written.
    """
    producer = _MergeAppendFiles(
        operation=Operation.APPEND, transaction=_PlainTransaction(lake), io=lake.io, snapshot_properties=dict(summary)
    )
    for file in files:
        producer.append_data_file(file)
    return _staged(lake, producer)


def stage_delete(lake: Table, files: Sequence[DataFile], summary: Mapping[str, str]) -> StagedSnapshot:
    """Write the manifests of a snapshot of a table's main branch without some of its data files.

    Args:
        lake: The table; the commit will require its present newest snapshot.
        files: Data files of that snapshot, at least one.
        summary: Goes into the snapshot's summary.

    Raises:
        OSError: A manifest cannot be written.
    """
    producer = _OverwriteFiles(
        operation=Operation.DELETE, transaction=_PlainTransaction(lake), io=lake.io, snapshot_properties=dict(summary)
    )
    for file in files:
        producer.delete_data_file(file)
    return _staged(lake, producer)


def _staged(lake: Table, producer: Any) -> StagedSnapshot:
    try:
        updates, requirements = producer._commit()
    except BaseException:
        producer._clean_all_uncommitted()
        raise
    required = (*requirements, AssertTableUUID(uuid=lake.metadata.table_uuid))
    return StagedSnapshot(producer.snapshot_id, updates, required, producer)
