"""The pictures of a table, as its ``plot``: where its records are, its snapshots, its files, how far the lake lagged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fluss_lab.client import Connection, KnownBucket
from fluss_lab.errors import FlussError, LakeSnapshotNotFoundError
from fluss_lab.lake import LakeSnapshotInfo
from fluss_lab.model import TablePath
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.config.options import DATALAKE_FRESHNESS
from fluss_lab.workbench.lake_upkeep import LakeUpkeep

if TYPE_CHECKING:
    from fluss_lab.display.plot_style import Picture


@check_arguments
class TablePlot:
    """Pictures of one table by matplotlib (the extra ``demo``), of how it is when they are made.

    Each is a figure of matplotlib on a transparent ground, readable in light and dark, which a notebook shows as the
    value of its cell.

    Args:
        connection: To the cluster.
        path: The table.
        upkeep: Its lake side.
    """

    def __init__(self, connection: Connection, path: TablePath, upkeep: LakeUpkeep) -> None:
        self._connection = connection
        self._path = path
        self._upkeep = upkeep

    def offsets(self) -> Picture:
        """Return where the records of each bucket are: an upper lane for the lake, a lower one for the log.

        A tick is where a read changes from the one to the other. What only remote storage holds of the log is paler.
        Many buckets are drawn in one lane each, more than 400 as sums of their partitions, or of buckets beside each other.

        Raises:
            UnsupportedError: matplotlib is not installed.
            TableNotFoundError: The table was dropped.
        """
        from fluss_lab.workbench.cards.table_plots import Band, offsets_picture

        info = self._connection.admin().table_info(self._path)
        ends, starts = {}, {}
        if info.descriptor.lake_enabled:
            try:
                lake = self._connection.admin().lake_snapshot(self._path, table_id=info.table_id)
                ends, starts = dict(lake.offsets), dict(lake.starts)
            except LakeSnapshotNotFoundError:
                pass
        bands, unknown = [], 0
        statuses = {each.bucket: each for each in self._connection.admin().buckets(info, patient=False)}
        for bucket in sorted({*statuses, *ends}, key=lambda each: each.bucket):
            status, offset = statuses.get(bucket), ends.get(bucket)
            if status is not None and not isinstance(status, KnownBucket):
                unknown += 1
                continue
            partition = status.partition if status is not None else offset.partition if offset is not None else None
            lake_end = 0 if offset is None else offset.end
            lake_start = min(starts.get(bucket, 0), lake_end)
            if status is None:
                bands.append(Band(partition, bucket.bucket, lake_start, lake_end, lake_end, lake_end, lake_end))
                continue
            start = status.local_start_offset if isinstance(status.start, FlussError) else status.start
            bands.append(
                Band(
                    partition, bucket.bucket, lake_start, lake_end, start, max(start, status.local_start_offset),
                    status.end_offset,
                )
            )  # fmt: skip
        bands.sort(key=lambda each: (each.partition or "", each.bucket))
        return offsets_picture(str(self._path), bands, unknown)

    def snapshots(self) -> Picture:
        """Return the lake snapshots on a time line: a bar for a round, as high as it added rows, a diamond for a compaction.

        Raises:
            UnsupportedError: matplotlib is not installed.
            LakeNotConfiguredError: The table is not lake-enabled.
        """
        from fluss_lab.workbench.cards.table_plots import snapshots_picture

        return snapshots_picture(str(self._path), self._snapshots())

    def lag(self) -> Picture:
        """Return how far the lake lagged behind: the age of the oldest record that it did not hold, beside the freshness.

        It grows until a round ends, which brings it down: `Table.lag_history` has the numbers.

        Raises:
            UnsupportedError: matplotlib is not installed; or the server is of an older release, which keeps no rounds.
            LakeNotConfiguredError: The table is not lake-enabled.
        """
        from fluss_lab.workbench.cards.table_plots import lag_picture

        freshness_ms = DATALAKE_FRESHNESS.of(self._connection.table_info(self._path).descriptor.properties)
        return lag_picture(str(self._path), self._upkeep.lag_samples(), freshness_ms)

    def files(self, snapshot_id: int | None = None) -> Picture:
        """Return the files of a lake snapshot by bucket, each as wide as it is large; None: of the newest.

        Raises:
            UnsupportedError: matplotlib is not installed.
            LakeNotConfiguredError: The table is not lake-enabled.
            LakeSnapshotNotFoundError: There is no such snapshot.
        """
        from fluss_lab.workbench.cards.table_plots import files_picture

        return files_picture(str(self._path), self._upkeep.lake_files(snapshot_id))

    def _snapshots(self) -> Sequence[LakeSnapshotInfo]:
        return self._upkeep.lake_snapshots()

    def __repr__(self) -> str:
        return f"<pictures of {self._path}: .offsets(), .snapshots(), .lag(), .files()>"
