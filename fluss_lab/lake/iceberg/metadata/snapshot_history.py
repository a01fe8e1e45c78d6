"""The line of snapshots of a lake table: which are ours, and what they say."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import LakeSnapshotNotFoundError
from fluss_lab.lake.snapshot_summary import BUCKET_OFFSET_KEY, COMMIT_ID_KEY, SnapshotSummary
from fluss_lab.model import TablePath

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

#: Of the snapshot without files that a table in a REST catalog begins with, and its value there; and of those after it up to
#: the first that says how far buckets are tiered: see `fluss_lab.lake.iceberg.commit.first_snapshot`.
START_KEY: Final = "fluss-history-start"
EMPTY_START: Final = "empty"
FIRST_ROWS: Final = "rows"
#: Of our snapshots in catalogs that are servers: the ids of the snapshots before, which some of them (Nessie) show neither themselves
#: nor by id, the newest first, back to one that says how far buckets are tiered; and how many at most.
PARENTS_KEY: Final = "fluss-parent-snapshots"
PARENTS_MAX: Final = 64
#: Of our snapshots whose timestamp is not when they were committed, as a clock had been ahead before: when they were, epoch milliseconds.
COMMITTED_KEY: Final = "fluss-committed-ms"


def commit_times(metadata: TableMetadata, now_ms: int) -> dict[int, int]:
    """Return when each snapshot was committed, by its id: epoch milliseconds, never in the future, and rather too late than too early.

    After a clock was ahead timestamps do not go back (see `change_ms`), and tell no age until that time comes. A snapshot with such
    a one that does not say when it was committed was committed no later than the one that came after it.

    Args:
        metadata: The table's.
        now_ms: The time: of the newest one, if it does not say either.
    """
    times: dict[int, int] = {}
    after_ms = now_ms
    for snapshot in sorted(metadata.snapshots, key=number_of, reverse=True):
        said_ms = snapshot.timestamp_ms
        if said_ms > now_ms and (text := summary_of(snapshot).get(COMMITTED_KEY, "")).isdecimal():
            said_ms = int(text)
        after_ms = said_ms if said_ms <= now_ms else after_ms
        times[snapshot.snapshot_id] = after_ms
    return times


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


def number_of(snapshot: Snapshot) -> int:
    """Return the sequence number of a snapshot: ids are not ordered, and timestamps may be alike."""
    return int(snapshot.sequence_number or 0)


def change_ms(metadata: TableMetadata) -> int:
    """Return the time of a change of a table that is made now, epoch milliseconds: never before the last one's.

    Iceberg's Java, Rust and Go refuse a table whose snapshots, or whose last change, go back in time by a minute, as after a clock
    was set back.
    """
    logged = (each.timestamp_ms for each in metadata.snapshot_log[-1:])
    return max([int(time.time() * 1000), metadata.last_updated_ms, *logged])


def summaries(path: TablePath | str, snapshots: Iterable[Snapshot]) -> Iterator[SnapshotSummary]:
    """Yield the summaries of snapshots of a table, in their order."""
    return (SnapshotSummary(str(path), snapshot.snapshot_id, summary_of(snapshot)) for snapshot in snapshots)


def is_ours(snapshot: Snapshot) -> bool:
    """Return whether tiering committed a snapshot."""
    return SnapshotSummary("", snapshot.snapshot_id, summary_of(snapshot)).is_ours


def is_empty_start(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is the one without files that a table in a REST catalog begins with."""
    return summary_of(snapshot).get(START_KEY) == EMPTY_START


def starts_offsets(parent: Snapshot | None) -> bool:
    """Return whether it is certain that neither a snapshot nor any before it says how far a bucket is tiered."""
    summary = {} if parent is None else summary_of(parent)
    return START_KEY in summary and BUCKET_OFFSET_KEY not in summary


def keeps_rows(snapshot: Snapshot) -> bool:
    """Return whether a snapshot's operation leaves the table's rows as they were: a compaction."""
    return snapshot.summary is not None and snapshot.summary.operation.value == "replace"


def since(lake: Table, path: TablePath, known_snapshot_id: int | None) -> list[Snapshot]:
    """Return the snapshots of the main branch after a known one, the newest first; all for None.

    The known one need not be shown, if the oldest that is shown is ours and says that only ours are in between.

    Raises:
        LakeSnapshotNotFoundError: The known one is not on the main branch any more.
    """
    newer: list[Snapshot] = []
    for snapshot in main_line(lake.metadata):
        if snapshot.snapshot_id == known_snapshot_id:
            return newer
        newer.append(snapshot)
    if known_snapshot_id is None or (newer and str(known_snapshot_id) in _parents(newer[-1])):
        return newer
    exists = any(snapshot.snapshot_id == known_snapshot_id for snapshot in lake.metadata.snapshots)
    reason = (
        "the table was rolled back behind it, or replaced" if exists else "it was expired or the table was replaced"
    )
    raise LakeSnapshotNotFoundError(
        f"lake table {path}: snapshot {known_snapshot_id}, the newest that the cluster knows, is not in the main branch's "
        f"history (found {len(newer)} snapshot(s), the newest is {lake.metadata.current_snapshot_id}): {reason}. Roll the "
        f"table forward again, or run 'fluss-lab repair {path} --adopt' to accept the lake as it is; should the catalog have "
        "answered with an old copy of the table, the next round finds it"
    )


def parents_text(parent: Snapshot) -> str:
    """Return the value of `PARENTS_KEY` for the snapshot that follows one."""
    older = [] if BUCKET_OFFSET_KEY in summary_of(parent) else _parents(parent)
    return next_parents(parent.snapshot_id, " ".join(older))


def next_parents(parent_id: int, before: str) -> str:
    """Return the value of `PARENTS_KEY` for the snapshot that follows one whose own value is given."""
    return " ".join([str(parent_id), *before.split()][:PARENTS_MAX])


def _parents(snapshot: Snapshot) -> list[str]:
    return summary_of(snapshot).get(PARENTS_KEY, "").split() if is_ours(snapshot) else []


def check_shown(lake: Table, path: TablePath) -> None:
    """Raise `LakeSnapshotNotFoundError` when the catalog hides snapshots that may say how far buckets are tiered.

    The oldest one shown is then not the table's first, and no older metadata file is named (Nessie makes the metadata for each
    answer), of which a table that had two commits otherwise has at least one. A history that was expired is none of that: its
    metadata files are named, and expiry leaves the snapshot that names all buckets. The absence of a parent says nothing by
    itself: pyiceberg's expiry removes it too.
    """
    line = list(main_line(lake.metadata))
    if not line or lake.metadata.metadata_log or START_KEY in summary_of(line[-1]):
        return
    oldest = line[-1]
    if oldest.parent_snapshot_id is None and (oldest.sequence_number or 0) <= 1:
        return
    raise LakeSnapshotNotFoundError(
        f"lake table {path}: the cluster knows no snapshot of it, and the catalog shows none before {oldest.snapshot_id}, whose "
        f"sequence number is {oldest.sequence_number}: how far the table is tiered is not known. Run 'fluss-lab repair {path} --adopt' "
        "to accept the lake as it is, or use a catalog that keeps the history of snapshots"
    )


def is_first_of_two(snapshot: Snapshot, after: Snapshot | None) -> bool:
    """Return whether the commit that made a snapshot made the one after it too: then it never was the newest."""
    if after is None or after.parent_snapshot_id != snapshot.snapshot_id or not keeps_rows(after):
        return False
    commit_id = summary_of(snapshot).get(COMMIT_ID_KEY)
    return commit_id is not None and commit_in([after], commit_id) is not None


def commit_in(snapshots: Iterable[Snapshot], commit_id: str | None) -> Snapshot | None:
    """Return the snapshot that a commit made, if it is among these."""
    if commit_id is None:
        return None
    return next((snapshot for snapshot in snapshots if summary_of(snapshot).get(COMMIT_ID_KEY) == commit_id), None)
