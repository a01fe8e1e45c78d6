"""The snapshots of a compaction put together: the same rows in other files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fluss_lab.errors import CommitConflictError, UnsupportedError
from fluss_lab.lake.iceberg.commit.replay_start_tags import changelog_retention_ms, replay_parts, replay_tag
from fluss_lab.lake.iceberg.maintenance.compaction_task import CompactedBucket
from fluss_lab.lake.iceberg.maintenance.maintenance_state import MaintenanceState
from fluss_lab.lake.iceberg.metadata.snapshot_builder import StagedSnapshot, stage_replace
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache, snapshot_of, snapshot_state
from fluss_lab.lake.iceberg.metadata.snapshot_history import number_of
from fluss_lab.lake.iceberg.table.layout import checked_layout
from fluss_lab.lake.maintenance_interfaces import CompactedFiles
from fluss_lab.model import TableInfo

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


class ReplaceCommit:
    """Puts together the snapshots of one compaction, as often as it takes. Used by one thread.

    Args:
        table: The table.
        entries: Decoded manifests.
        planned: The snapshot whose files were rewritten.
        done: What the tasks did, those that did nothing left out.
        now_ms: When, epoch milliseconds.
    """

    def __init__(
        self, table: TableInfo, entries: EntryCache, planned: int, done: Sequence[CompactedBucket], now_ms: int
    ) -> None:
        self._table = table
        self._entries = entries
        self._planned = planned
        self._done = done
        self._now_ms = now_ms
        self._removed: list[DataFile] = []
        loses = not table.is_log_table and any(each.dropped for each in done)
        self._tag = replay_tag(planned, changelog_retention_ms(table)) if loses else None

    def stage(self, lake: Table, properties: Mapping[str, str]) -> StagedSnapshot:
        """Write what the snapshots consist of, up to the manifest lists.

        Raises:
            CommitConflictError: The table is not at the planned snapshot, or lacks a file that was rewritten.
            UnsupportedError: The table is not as fluss_lab made it, or its partition spec changed.
            StorageError, OSError: A manifest cannot be written.
        """
        checked_layout(self._table, lake)
        spec_id = lake.spec().spec_id
        added = [(file, each.sequence_number) for each in self._done for file in each.written.all_files]
        if strange := [file.file_path for file, _ in added if file.spec_id != spec_id]:
            raise UnsupportedError(
                f"lake table {self._table.path}: the partition spec changed while {strange[0]} was written; plan again"
            )
        self._removed = self._files_of(lake)
        summary, changed, tags = (
            (properties, {}, []) if self._table.is_log_table else replay_parts(self._table, lake, properties)
        )
        if self._tag is not None:
            buckets = [(each.written.partition, each.written.bucket) for each in self._done if each.dropped]
            number = number_of(snapshot_of(lake, self._table.path, self._planned))
            state = MaintenanceState.of(lake.properties).with_dropped(self._now_ms, self._planned, number, buckets)
            changed |= state.to_properties()
            tags.append(self._tag)
        return stage_replace(
            lake,
            removed=self._removed,
            added=added,
            summary=summary,
            properties=changed,
            tags=tags,
            entries=self._entries,
            tidies=True,
        )

    def report(self, snapshot_id: int) -> CompactedFiles:
        """Return what was done, once it is committed."""
        added = [file for each in self._done for file in each.written.all_files]
        return CompactedFiles(
            snapshot_id,
            buckets=len(self._done),
            files_before=len(self._removed),
            files_after=len(added),
            bytes_before=sum(file.file_size_in_bytes for file in self._removed),
            bytes_after=sum(file.file_size_in_bytes for file in added),
            tag=None if self._tag is None else self._tag.name,
        )

    def _files_of(self, lake: Table) -> list[DataFile]:
        """Return the files that go, as the planned snapshot has them."""
        state = snapshot_state(self._table, lake, self._planned, self._entries)
        by_path = {
            file.file_path: file
            for bucket in state.values()
            for file in (*(each.file for each in bucket.data), *(each.file for each in bucket.deletes))
        }
        paths = [path for each in self._done for path in each.removed]
        if missing := [path for path in paths if path not in by_path]:
            raise CommitConflictError(
                f"lake table {self._table.path}: {missing[0]}, which was rewritten, is not in snapshot {self._planned}; plan "
                "the compaction again"
            )
        return [by_path[path] for path in paths]
