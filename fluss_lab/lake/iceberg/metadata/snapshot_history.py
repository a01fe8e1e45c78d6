"""The line of snapshots of a lake table: which are ours, what they say, and what others did between."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fluss_lab.errors import CorruptDataError, ForeignCommitError, LakeSnapshotNotFoundError
from fluss_lab.lake.format_interfaces import (
    ADOPTED_KEY,
    BUCKET_OFFSET_KEY,
    COMMIT_ID_KEY,
    COMMIT_USER,
    COMMIT_USER_KEY,
    CommittedLakeSnapshot,
)
from fluss_lab.model import LakeOffset, TablePath

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


def main_line(metadata: TableMetadata) -> Iterator[Snapshot]:
    """Yield the snapshots of the main branch, the newest first, as far back as they were not expired.

    Cost: linear; pyiceberg's own walk searches the list of snapshots for each parent.
    """
    return ancestors(metadata, metadata.current_snapshot_id)


def ancestors(metadata: TableMetadata, snapshot_id: int | None) -> Iterator[Snapshot]:
    """Yield a snapshot and those before it, as far back as they were not expired. See `main_line`."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    at = snapshot_id
    while at is not None and (snapshot := by_id.get(at)) is not None:
        yield snapshot
        at = snapshot.parent_snapshot_id


def summary_of(snapshot: Snapshot) -> dict[str, str]:
    """Return the summary of a snapshot without its operation."""
    return dict(snapshot.summary.additional_properties) if snapshot.summary is not None else {}


def is_ours(snapshot: Snapshot) -> bool:
    """Tell whether tiering committed a snapshot."""
    return _said(snapshot, COMMIT_USER_KEY) == COMMIT_USER


def _said(snapshot: Snapshot, key: str) -> str | None:
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(key)


def keeps_rows(snapshot: Snapshot) -> bool:
    """Tell whether a snapshot says that it left the table's rows as they were: a compaction."""
    return snapshot.summary is not None and snapshot.summary.operation.value == "replace"


def since(lake: Table, path: TablePath, known_snapshot_id: int | None) -> list[Snapshot]:
    """Return the snapshots of the main branch after a known one, the newest first; all for None.

    Raises:
        LakeSnapshotNotFoundError: The known one is not on the main branch any more.
    """
    newer: list[Snapshot] = []
    for snapshot in main_line(lake.metadata):
        if snapshot.snapshot_id == known_snapshot_id:
            return newer
        newer.append(snapshot)
    if known_snapshot_id is None:
        return newer
    exists = any(snapshot.snapshot_id == known_snapshot_id for snapshot in lake.metadata.snapshots)
    reason = (
        "the table was rolled back behind it, or replaced" if exists else "it was expired or the table was replaced"
    )
    raise LakeSnapshotNotFoundError(
        f"lake table {path}: snapshot {known_snapshot_id}, the newest that the cluster knows, is not in the main branch's "
        f"history (found {len(newer)} snapshot(s), the newest is {lake.metadata.current_snapshot_id}): {reason}. Roll the "
        f"table forward again, or run 'fluss-lab repair {path} --adopt' to accept the lake as it is"
    )


def commit_in(snapshots: Iterable[Snapshot], commit_id: str | None) -> Snapshot | None:
    """Return the snapshot that a commit made, if it is among these."""
    if commit_id is None:
        return None
    return next((snapshot for snapshot in snapshots if _said(snapshot, COMMIT_ID_KEY) == commit_id), None)


def check_no_foreign(path: TablePath, lake: Table, snapshots: list[Snapshot]) -> None:
    """Raise `ForeignCommitError` when one of these snapshots is somebody else's change of rows; compactions pass."""
    for snapshot in snapshots:
        if is_ours(snapshot):
            if _said(snapshot, ADOPTED_KEY) is not None:
                raise ForeignCommitError(
                    f"lake table {path}: snapshot {snapshot.snapshot_id} was committed by a repair that was cut off before the "
                    f"cluster heard of it: run 'fluss-lab repair {path} --adopt' again"
                )
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
            f"roll the table back to snapshot {snapshot.parent_snapshot_id}, or run 'fluss-lab repair {path} --adopt' to accept "
            "the change"
        )


def _rows_lost(lake: Table, snapshot: Snapshot) -> int | None:
    """Return by how many rows a compaction's files are fewer (negative: more), if delete files do not account for them."""
    lost = _count(snapshot, "deleted-records") - _count(snapshot, "added-records")
    if lost <= 0:
        return lost or None
    parent = None if snapshot.parent_snapshot_id is None else lake.metadata.snapshot_by_id(snapshot.parent_snapshot_id)
    # Rows that were deleted are not written again; how many of them an equality delete hits, no summary tells.
    if parent is None or _said(parent, "total-position-deletes") is None or _count(parent, "total-equality-deletes"):
        return None
    return lost if lost > _count(parent, "total-position-deletes") else None


def _count(snapshot: Snapshot, key: str) -> int:
    text = _said(snapshot, key) or ""
    return int(text) if text.isdecimal() else 0


def newest_committed(path: TablePath, snapshots: list[Snapshot]) -> CommittedLakeSnapshot | None:
    """Return the newest of ours among snapshots (the newest first), with the offsets of all of ours among them.

    A snapshot may name only the buckets that advanced with it, so the older ones count too; but none that is older than
    a repair's, which says all that there is.

    Raises:
        CorruptDataError: A summary that tiering cannot have written.
    """
    ours: list[Snapshot] = []
    for snapshot in snapshots:
        if is_ours(snapshot):
            ours.append(snapshot)
            if _said(snapshot, ADOPTED_KEY) is not None:
                break
    if not ours:
        return None
    offsets: dict[tuple[str | None, int], LakeOffset] = {}
    partition_ids: dict[str, int] = {}
    for snapshot in reversed(ours):
        named, ids = _offsets(path, snapshot)
        # Of a partition that was dropped and made again, what was said of the first one says nothing.
        again = {name for name, number in ids.items() if partition_ids.get(name, number) != number}
        offsets = {key: offset for key, offset in offsets.items() if key[0] not in again} | named
        partition_ids |= ids
    return CommittedLakeSnapshot(ours[0].snapshot_id, offsets, summary_of(ours[0]), partition_ids)


def summary_offsets(path: TablePath, snapshot: Snapshot) -> dict[tuple[str | None, int], LakeOffset]:
    """Return what a snapshot's own summary says of buckets.

    Raises:
        CorruptDataError: It says what tiering cannot have written.
    """
    return _offsets(path, snapshot)[0]


def _offsets(path: TablePath, snapshot: Snapshot) -> tuple[dict[tuple[str | None, int], LakeOffset], dict[str, int]]:
    """Return what a summary says of buckets, and the ids of the partitions that it names."""
    text = summary_of(snapshot).get(BUCKET_OFFSET_KEY, "[]")
    try:
        entries = json.loads(text)
        ids = {str(each["partition_name"]): int(each["partition_id"]) for each in entries if each.get("partition_id")}
        return dict(_entry(entry) for entry in entries), ids
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptDataError(
            f"lake table {path}, snapshot {snapshot.snapshot_id}: {BUCKET_OFFSET_KEY!r} in the summary is not a list of "
            f"buckets with offsets, found {text[:200]!r}: {error!r}"
        ) from error


def _entry(entry: Mapping[str, Any]) -> tuple[tuple[str | None, int], LakeOffset]:
    name = entry.get("partition_name")
    partition = None if name is None else str(name)
    offset = LakeOffset(int(entry["offset"]), int(entry.get("max_timestamp", -1)), partition)
    return (partition, int(entry["bucket"])), offset
