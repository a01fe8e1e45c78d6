"""The lake side of a table in the hand: its listings, and its upkeep by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from fluss_lab.errors import LakeNotConfiguredError, UnsupportedError
from fluss_lab.lake import LakeFileInfo, LakeMaintenance, LakeSnapshotInfo, LakeStorage, SupportsMaintenance
from fluss_lab.model import TableInfo, TablePath
from fluss_lab.model.argument_checks import checked
from fluss_lab.model.times import format_moment, parse_duration
from fluss_lab.tiering.maintenance.lake_maintenance import ORPHAN_AGE_MS, TableMaintenance
from fluss_lab.tiering.maintenance.maintenance_report import CompactionReport, ExpiryReport, OrphanReport
from fluss_lab.tiering.maintenance.manual_maintenance import NoTieringExecutor, maintain
from fluss_lab.tiering.task.task_executor import TieringExecutor
from fluss_lab.workbench.listing import Listing

if TYPE_CHECKING:
    from fluss_lab.workbench.table_context import TableContext

ReportT = TypeVar("ReportT")

_INT, _LONG, _TEXT = pa.int32(), pa.int64(), pa.string()
_SNAPSHOT_COLUMNS: Final = {
    "snapshot_id": _LONG, "time": _TEXT, "operation": _TEXT, "ours": pa.bool_(), "rows": _LONG, "files": _LONG,
    "total_rows": _LONG, "total_files": _LONG, "deletes": _LONG, "tags": pa.list_(_TEXT),
    "offsets": pa.list_(
        pa.struct({"partition_name": _TEXT, "bucket": _INT, "offset": _LONG, "max_timestamp": _LONG})
    ),
}  # fmt: skip
_FILE_COLUMNS: Final = {
    "content": _TEXT, "partition": _TEXT, "bucket": _INT, "first_offset": _LONG, "last_offset": _LONG,
    "first_time": _TEXT, "last_time": _TEXT, "rows": _LONG, "bytes": _LONG, "path": _TEXT,
}  # fmt: skip
_SCHEMA_COLUMNS: Final = {"schema_id": _INT, "current": pa.bool_(), "columns": None}


@checked
class LakeUpkeep:
    """The lake side of a table: a part of `fluss_lab.workbench.table.Table`."""

    lab: TableContext
    path: TablePath

    @property
    def info(self) -> TableInfo:
        """Return path, ids and definition as the cluster has them now.

        Raises:
            TableNotFoundError: It was dropped.
        """
        return self.lab.connection.admin().table_info(self.path)

    # -- what is in the lake -------------------------------------------------------------------------------------------

    def snapshots(self) -> Listing:
        """Return the lake snapshots, oldest first.

        Returns:
            ``snapshot_id``, ``time``, ``operation``, ``ours`` (committed by tiering), ``rows`` and ``files`` that it
            added, ``total_rows`` and ``total_files`` that it has, ``deletes`` among the rows, ``tags`` that keep it, and
            ``offsets``: how far each bucket is tiered in it, as far as the snapshot itself says so.
        """
        with self._maintenance() as lake:
            rows = [_snapshot_row(snapshot) for snapshot in lake.snapshots()]
        return Listing(f"snapshots of {self.path}", rows, _SNAPSHOT_COLUMNS)

    def files(self, snapshot_id: int | None = None) -> Listing:
        """Return the data and delete files of a lake snapshot: partition, bucket, offsets, times, rows, bytes, path.

        Args:
            snapshot_id: Which; None: the newest.

        Raises:
            LakeSnapshotNotFoundError: There is no such snapshot.
        """
        with self._maintenance() as lake:
            rows = [_file_row(file) for file in lake.files(snapshot_id)]
        return Listing(f"files of {self.path}", rows, _FILE_COLUMNS)

    def lake_schemas(self) -> Listing:
        """Return the schemas that the lake table has had: ``schema_id``, ``current``, ``columns`` (name to type)."""
        with self._maintenance() as lake:
            return Listing(f"lake schemas of {self.path}", lake.schemas(), _SCHEMA_COLUMNS)

    # -- keeping it in shape -------------------------------------------------------------------------------------------

    def compact(self) -> CompactionReport:
        """Rewrite the table's files in the lake so that it is read as fast as if it had been written at once. On Spark.

        The rows stay as they are; a tag keeps what the changelog needs for ``table.datalake.changelog-retention``.

        Raises:
            LakeNotConfiguredError: The table is not lake-enabled.
            TieringInProgressError: A living tierer works on it; try again when its round is over.
            CommitConflictError: Somebody else committed to the lake table meanwhile; nothing was changed, try again.
        """
        return self._maintain(lambda held: held.compact(force=True), self._executor())

    def expire_snapshots(
        self, older_than: str | int | timedelta | None = None, *, keep: int | None = None
    ) -> ExpiryReport:
        """Remove old lake snapshots, and the files that nothing refers to any more.

        Those younger than an hour stay, and so does whatever a branch or tag keeps. After it, reads at a past time and
        the changelog reach back as far as the snapshots and tags that are left.

        Args:
            older_than: A duration, as ``"7d"``; None: as ``table.datalake.snapshot-retention`` says.
            keep: So many stay, however old; None: as ``table.datalake.snapshots-min`` says.

        Raises:
            InvalidPropertyError: No duration.
            LakeNotConfiguredError, TieringInProgressError, CommitConflictError: As `compact`.
        """
        age_ms = None if older_than is None else parse_duration(older_than)
        return self._maintain(lambda held: held.expire(older_than_ms=age_ms, keep=keep))

    def remove_orphan_files(
        self, *, dry_run: bool = False, older_than: str | int | timedelta = ORPHAN_AGE_MS
    ) -> OrphanReport:
        """Remove files in the lake table's folder that nothing refers to: of rounds that were killed, mostly.

        Args:
            dry_run: Only tell which.
            older_than: A duration. Younger files stay: another engine may have written them and commit them yet.

        Raises:
            InvalidPropertyError: No duration.
            LakeNotConfiguredError, TieringInProgressError: As `compact`.
        """
        age_ms = parse_duration(older_than)
        return self._maintain(lambda held: held.remove_orphans(older_than_ms=age_ms, dry_run=dry_run))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _maintain(
        self, action: Callable[[TableMaintenance], ReportT], executor: TieringExecutor | None = None
    ) -> ReportT:
        return maintain(
            self.lab.connection,
            self._lake(),
            executor or NoTieringExecutor(),
            action,
            table_id=self.info.table_id,
            session_id=self.lab.session_id,
        )

    def _executor(self) -> TieringExecutor:
        from fluss_lab.spark.tiering.spark_executor import POOL

        storage = self._lake()
        return self.lab.compute.executor(storage, f"{POOL}-{self.path}")

    def _maintenance(self) -> LakeMaintenance:
        storage = self._lake()
        if not isinstance(storage, SupportsMaintenance):
            raise UnsupportedError(f"table {self.path}: its lake format offers no maintenance")
        return storage.create_lake_maintenance(self.info)

    def _lake(self) -> LakeStorage:
        if not self.info.descriptor.lake_enabled:
            raise LakeNotConfiguredError(f"table {self.path} is not lake-enabled; set table.datalake.enabled")
        return self.lab.lake_storage()


def _snapshot_row(snapshot: LakeSnapshotInfo) -> dict[str, Any]:
    offsets = [
        {"partition_name": partition, "bucket": bucket, "offset": offset.end, "max_timestamp": offset.max_timestamp_ms}
        for (partition, bucket), offset in snapshot.offsets.items()
    ]
    values = (
        snapshot.snapshot_id, format_moment(snapshot.time_ms), snapshot.operation, snapshot.ours, snapshot.added_rows,
        snapshot.added_files, snapshot.rows, snapshot.files, snapshot.deletes, list(snapshot.tags), offsets,
    )  # fmt: skip
    return dict(zip(_SNAPSHOT_COLUMNS, values, strict=True))


def _file_row(file: LakeFileInfo) -> dict[str, Any]:
    times = [None if each is None else format_moment(each) for each in (file.min_timestamp_ms, file.max_timestamp_ms)]
    values = (
        file.content, file.partition, file.bucket, file.min_offset, file.max_offset, *times, file.rows,
        file.size_bytes, file.path,
    )  # fmt: skip
    return dict(zip(_FILE_COLUMNS, values, strict=True))
