"""The commits of other engines to a lake table: those that change no rows, and those that stop tiering."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fluss_lab.errors import ForeignCommitError
from fluss_lab.lake.iceberg.metadata.snapshot_history import keeps_rows, summaries, summary_of
from fluss_lab.lake.snapshot_summary import check_registered
from fluss_lab.model import TablePath

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


def check_no_foreign(path: TablePath, lake: Table, snapshots: list[Snapshot]) -> None:
    """Raise `ForeignCommitError` when one of these snapshots is a change of rows by another engine; compactions pass."""
    for snapshot, summary in zip(snapshots, summaries(path, snapshots), strict=True):
        if summary.is_ours:
            check_registered(summary)
            continue
        operation = snapshot.summary.operation.value if snapshot.summary is not None else "unknown"
        if not keeps_rows(snapshot):
            found = f"(operation {operation}) was not committed by tiering and changes the table's rows"
        elif (lost := _rows_lost(lake, snapshot)) is not None:
            found = (
                f"(operation {operation}) was not committed by tiering, and its summary says that {lost} rows are gone"
            )
        else:
            continue
        raise ForeignCommitError(
            f"lake table {path}: snapshot {snapshot.snapshot_id} {found}. Tiering stops, so that nothing is lost or doubled: "
            f"roll the table back to snapshot {snapshot.parent_snapshot_id}, or see by 'fluss-lab repair {path} --adopt' whether the "
            "change can be accepted (not rows with offsets of other records, nor changes of a primary-key table's rows)"
        )


def _rows_lost(lake: Table, snapshot: Snapshot) -> int | None:
    """Return by how many rows a compaction's files are fewer (negative: more), if delete files do not account for them."""
    lost = _count(snapshot, "deleted-records") - _count(snapshot, "added-records")
    if lost <= 0:
        return lost or None
    parent = None if snapshot.parent_snapshot_id is None else lake.metadata.snapshot_by_id(snapshot.parent_snapshot_id)
    # Rows that were deleted are not written again; how many of them an equality delete hits, no summary tells.
    if (
        parent is None
        or summary_of(parent).get("total-position-deletes") is None
        or _count(parent, "total-equality-deletes")
    ):
        return None
    return lost if lost > _count(parent, "total-position-deletes") else None


def _count(snapshot: Snapshot, key: str) -> int:
    text = summary_of(snapshot).get(key, "")
    return int(text) if text.isdecimal() else 0
