"""The lake tables and lake snapshots that the coordinator knows, with the tiered offset of each bucket.

Offsets are kept as versions: a commit writes a row only for the buckets that moved, and the state at a snapshot is the
newest row of each bucket up to it. So a commit of few buckets of a table with thousands is small, and history is cheap.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fluss_lab.errors import ConflictError, InvalidRequestError, LakeSnapshotNotFoundError
from fluss_lab.model import PartitionInfo, TablePath
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore

#: Lake snapshots kept per table: readers use one for minutes, and rounds are seconds apart at least.
SNAPSHOTS_KEPT: Final = 100
#: Tables of which the latest offsets stay in memory: 10,000 buckets are 2 MB, and a tenth of a second less at each look.
TABLES_REMEMBERED: Final = 64

#: States of a lake table: being made, in use, being altered, being dropped, being renamed, kept under its table id.
MAKING: Final = "making"
LIVE: Final = "live"
ALTERING: Final = "altering"
DROPPING: Final = "dropping"
RENAMING: Final = "renaming"
KEPT: Final = "kept"
_STATES: Final = frozenset({MAKING, LIVE, ALTERING, DROPPING, RENAMING, KEPT})


@dataclass(frozen=True, slots=True)
class TieredOffset:
    """How far one bucket is tiered: ``[start, end)``. `start` is the first offset that can be replayed; None: not known."""

    start: int | None
    end: int
    max_timestamp_ms: int = -1


#: Partition id (or `table_catalog.NO_PARTITION`) and bucket.
PartitionBucket = tuple[int, int]
#: Marks in a row that the lake no longer holds anything of a bucket.
_NOTHING: Final = TieredOffset(None, -1)
_NO_STARTS: Final[Mapping[PartitionBucket, int]] = {}


@dataclass(frozen=True, slots=True)
class TieredSnapshot:
    """A lake snapshot: its id and how far each bucket is tiered in it.

    Attributes:
        sequence: Grows with every commit of the table; ids do not.
    """

    snapshot_id: int
    offsets: Mapping[PartitionBucket, TieredOffset]
    sequence: int


@dataclass(frozen=True, slots=True)
class LakeTableRow:
    """A lake table that this cluster made."""

    table_id: int
    path: TablePath
    state: str


@dataclass(frozen=True, slots=True)
class PartitionDrop:
    """A partition that is dropped from the lake too."""

    table_id: int
    partition: PartitionInfo


class LakeLedger:
    """Lake tables and lake snapshots, as rows of the metadata file."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        #: By table id: its latest version, and the offsets of that; see `_latest_offsets`.
        self._latest: OrderedDict[int, tuple[int, Mapping[PartitionBucket, TieredOffset]]] = OrderedDict()

    # -- lake tables -------------------------------------------------------------------------------------------------

    def tables(self) -> list[LakeTableRow]:
        """Return every lake table that may exist, by table id."""
        with self._store.read() as db:
            rows = db.execute("SELECT table_id, database, name, state FROM lake_tables ORDER BY 1")
            return [LakeTableRow(row[0], TablePath(row[1], row[2]), self._check_state(row[0], row[3])) for row in rows]

    def state(self, table_id: int) -> str | None:
        """Return the state of a table's lake table; None when it has none."""
        with self._store.read() as db:
            row = db.execute("SELECT state FROM lake_tables WHERE table_id = ?", (table_id,)).fetchone()
        return None if row is None else self._check_state(table_id, row[0])

    def _check_state(self, table_id: int, state: str) -> str:
        """Return a state after checking that it is known: an unknown one must never be settled by a drop."""
        with self._store.parse_guard(f"lake table of table id {table_id}"):
            if state not in _STATES:
                raise ValueError(f"state {state!r}")
        return state

    def set_state(self, table_id: int, path: TablePath, state: str | None) -> None:
        """Note a lake table's state; None: it is gone."""
        with self._store.write() as db:
            if state is None:
                db.execute("DELETE FROM lake_tables WHERE table_id = ?", (table_id,))
                return
            query = "INSERT INTO lake_tables VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET state = excluded.state"
            db.execute(query, (table_id, path.database, path.table, state))

    # -- partitions dropped from the lake ------------------------------------------------------------------------------

    def note_partition_drop(self, drop: PartitionDrop) -> None:
        """Note that a partition must be deleted from the lake."""
        with self._store.write() as db:
            values = (drop.partition.partition_id, drop.table_id, drop.partition.name)
            db.execute("INSERT OR IGNORE INTO lake_partition_drops VALUES (?, ?, ?, 0)", values)

    def partition_drops(self) -> list[PartitionDrop]:
        """Return the partitions still to be deleted from the lake, by id."""
        query = "SELECT table_id, partition_id, name FROM lake_partition_drops WHERE done = 0 ORDER BY partition_id"
        with self._store.read() as db:
            return [PartitionDrop(row[0], PartitionInfo(row[1], row[2])) for row in db.execute(query)]

    def partitions_gone(self, table_id: int) -> dict[int, str]:
        """Return the names by id of a table's partitions that were deleted from the lake.

        A late round may still report them, and snapshots from before hold them.
        """
        query = "SELECT partition_id, name FROM lake_partition_drops WHERE table_id = ? AND done = 1"
        with self._store.read() as db:
            return {int(row[0]): str(row[1]) for row in db.execute(query, (table_id,))}

    def end_partition_drop(self, drop: PartitionDrop) -> None:
        """Note that a partition is gone from the lake: the snapshots that there are hold it, by their ids."""
        key = (drop.table_id, drop.partition.partition_id)
        with self._store.write() as db:
            db.execute("UPDATE lake_partition_drops SET done = 1 WHERE table_id = ? AND partition_id = ?", key)
            held = [place for place in self._latest_offsets(db, drop.table_id) if place[0] == key[1]]
            if held:
                _take_out(db, drop.table_id, held)
            self._latest.pop(drop.table_id, None)

    # -- lake snapshots ----------------------------------------------------------------------------------------------

    def snapshot(self, table_id: int, snapshot_id: int | None = None) -> TieredSnapshot | None:
        """Return a lake snapshot; None when it is not known.

        Args:
            table_id: The table.
            snapshot_id: Which, with all that it holds; None: the latest, without the partitions that were deleted from the
                lake since.
        """
        with self._store.read() as db:
            found = _version(db, table_id, snapshot_id)
            if found is None:
                return None
            is_latest = snapshot_id is None or found == _version(db, table_id, None)
            offsets = self._latest_offsets(db, table_id) if is_latest else _offsets(db, table_id, found[0])
            if snapshot_id is not None and (first := _first_version(db, table_id, snapshot_id)) < found[0]:
                offsets = {**_offsets(db, table_id, first), **offsets}
            return TieredSnapshot(found[1], offsets, found[0])

    def _latest_offsets(self, db: sqlite3.Connection, table_id: int) -> Mapping[PartitionBucket, TieredOffset]:
        """Return the offsets of a table's latest version, read once: there may be a million rows of a hundred versions.

        After a transaction that was taken back the latest version is an older one; what is made then replaces what is kept.
        """
        latest = _version(db, table_id, None)
        if latest is None:
            return {}
        kept = self._latest.get(table_id)
        if kept is None or kept[0] != latest[0]:
            return self._remember(table_id, latest[0], _offsets(db, table_id, latest[0]))
        self._latest.move_to_end(table_id)
        return kept[1]

    def _remember(
        self, table_id: int, version: int, offsets: Mapping[PartitionBucket, TieredOffset]
    ) -> Mapping[PartitionBucket, TieredOffset]:
        self._latest[table_id] = version, offsets
        self._latest.move_to_end(table_id)
        while len(self._latest) > TABLES_REMEMBERED:
            self._latest.popitem(last=False)
        return offsets

    def partition_offsets(self, table_id: int, partition_id: int) -> dict[int, TieredOffset]:
        """Return how far each bucket of a partition is tiered at present; those that never were are left out."""
        query = (
            "SELECT bucket, start_offset, end_offset, max_timestamp, max(version) FROM lake_offsets "
            "WHERE table_id = ? AND partition_id = ? GROUP BY bucket"
        )
        with self._store.read() as db:
            rows = db.execute(query, (table_id, partition_id)).fetchall()
        return {int(row[0]): TieredOffset(row[1], row[2], row[3]) for row in rows if row[2] >= 0}

    def require(self, table_id: int, path: TablePath, snapshot_id: int | None) -> TieredSnapshot:
        """Return a lake snapshot.

        Raises:
            LakeSnapshotNotFoundError: The table was never tiered, or has no such snapshot, or no longer.
        """
        if (found := self.snapshot(table_id, snapshot_id)) is not None:
            return found
        if snapshot_id is None:
            raise LakeSnapshotNotFoundError(f"table {path} was never tiered: it has no lake snapshot yet")
        raise LakeSnapshotNotFoundError(
            f"table {path} has no lake snapshot {snapshot_id} (the last {SNAPSHOTS_KEPT} are kept)"
        )

    def commit(
        self,
        table_id: int,
        snapshot_id: int,
        offsets: Mapping[PartitionBucket, TieredOffset],
        now_ms: int,
        *,
        starts: Mapping[PartitionBucket, int] = _NO_STARTS,
    ) -> bool:
        """Add a lake snapshot: the previous offsets, overlaid by those given. No bucket's start or end decreases.

        Args:
            snapshot_id: The snapshot in the lake.
            offsets: The offsets of buckets that the snapshot changes; the other buckets keep theirs.
            now_ms: The time.
            starts: First offset that can still be replayed, of buckets whose end does not change; for the latest snapshot
                they may be given repeatedly.

        Returns:
            False when the snapshot already is the latest one, with the same offsets: nothing was changed.

        Raises:
            ConflictError: A bucket's offset would decrease, or the snapshot was committed before with other offsets.
            InvalidRequestError: A start after its end, or of a bucket that was never tiered.
        """
        with self._store.write() as db:
            current = self._latest_offsets(db, table_id)
            given = {**_moved_starts(table_id, current, starts), **offsets}
            merged = {key: _merge_offsets(current.get(key), offset) for key, offset in given.items()}
            return self._add(db, table_id, snapshot_id, {**current, **merged}, now_ms, floor=current)

    def repair(
        self, table_id: int, snapshot_id: int, offsets: Mapping[PartitionBucket, TieredOffset], now_ms: int
    ) -> bool:
        """Add a lake snapshot with exactly these offsets: they may decrease, and buckets left out hold nothing.

        Returns:
            As `commit`.

        Raises:
            ConflictError: The snapshot was committed before with other offsets.
            InvalidRequestError: A start after its end.
        """
        with self._store.write() as db:
            return self._add(db, table_id, snapshot_id, dict(offsets), now_ms, floor={})

    def _add(
        self,
        db: sqlite3.Connection,
        table_id: int,
        snapshot_id: int,
        wanted: Mapping[PartitionBucket, TieredOffset],
        now_ms: int,
        *,
        floor: Mapping[PartitionBucket, TieredOffset],
    ) -> bool:
        """Add a version that has these offsets and no others, none before those of the floor; see `LakeLedger.commit`."""
        latest = _version(db, table_id, None)
        version = 0 if latest is None else latest[0]
        current = self._latest_offsets(db, table_id)
        changed = {key: offset for key, offset in wanted.items() if current.get(key) != offset}
        changed |= dict.fromkeys(set(current) - set(wanted), _NOTHING)
        if _version(db, table_id, snapshot_id) is not None:
            is_latest = latest is not None and latest[1] == snapshot_id
            if is_latest and not changed:
                return False
            # Replay of the latest one may start later: an expiry deletes what came before, and creates no snapshot.
            same_ends = all(replace(offset, start=None) == _end(current, key) for key, offset in changed.items())
            if not is_latest or not same_ends:
                raise ConflictError(
                    f"lake snapshot {snapshot_id} of table {table_id} was committed before, with other offsets or followed by "
                    "others: look up the latest one and plan from it"
                )
        _check_ascending(table_id, floor, wanted)
        _write(db, table_id, version + 1, snapshot_id, changed, now_ms)
        _prune(db, table_id, version + 1 - SNAPSHOTS_KEPT)
        self._remember(table_id, version + 1, wanted)
        return True


def _moved_starts(
    table_id: int, current: Mapping[PartitionBucket, TieredOffset], starts: Mapping[PartitionBucket, int]
) -> dict[PartitionBucket, TieredOffset]:
    if strange := sorted(set(starts) - set(current)):
        raise InvalidRequestError(
            f"table {table_id}, partition {strange[0][0]}, bucket {strange[0][1]}: a start without an end, and the bucket was "
            "never tiered"
        )
    return {key: TieredOffset(start, current[key].end) for key, start in starts.items()}


def _end(offsets: Mapping[PartitionBucket, TieredOffset], key: PartitionBucket) -> TieredOffset | None:
    return replace(offsets[key], start=None) if key in offsets else None


def _merge_offsets(old: TieredOffset | None, new: TieredOffset) -> TieredOffset:
    if old is None:
        return new
    # What can no longer be replayed stays so, even if a late report has an earlier start.
    start = max(old.start or 0, new.start) if new.start is not None else old.start
    return TieredOffset(start, new.end, max(old.max_timestamp_ms, new.max_timestamp_ms))


def _check_ascending(
    table_id: int, current: Mapping[PartitionBucket, TieredOffset], merged: Mapping[PartitionBucket, TieredOffset]
) -> None:
    for key, offset in merged.items():
        old = current.get(key)
        if old is not None and offset.end < old.end:
            raise ConflictError(
                f"table {table_id}, partition {key[0]}, bucket {key[1]}: the lake holds it up to {old.end} already, found "
                f"{offset.end}: plan from the latest lake snapshot"
            )
        if offset.start is not None and offset.start > offset.end:
            raise InvalidRequestError(
                f"table {table_id}, partition {key[0]}, bucket {key[1]}: expected start <= end, found "
                f"[{offset.start}, {offset.end})"
            )


def _version(db: sqlite3.Connection, table_id: int, snapshot_id: int | None) -> tuple[int, int] | None:
    """Return version and id of a snapshot; the latest without an id."""
    query = "SELECT version, snapshot_id FROM lake_snapshots WHERE table_id = ?"
    values: Sequence[int] = (table_id,)
    if snapshot_id is not None:
        query, values = f"{query} AND snapshot_id = ?", (table_id, snapshot_id)
    row = db.execute(f"{query} ORDER BY version DESC LIMIT 1", values).fetchone()
    return None if row is None else (int(row[0]), int(row[1]))


def _first_version(db: sqlite3.Connection, table_id: int, snapshot_id: int) -> int:
    """Return the version in which a snapshot was committed; later ones have it without partitions deleted since."""
    query = "SELECT min(version) FROM lake_snapshots WHERE table_id = ? AND snapshot_id = ?"
    return int(db.execute(query, (table_id, snapshot_id)).fetchone()[0])


def _take_out(db: sqlite3.Connection, table_id: int, places: Sequence[PartitionBucket]) -> None:
    """Note that the lake no longer holds anything of some buckets: in a version of the latest snapshot after its first."""
    latest = _version(db, table_id, None)
    assert latest is not None
    version, snapshot_id = latest
    if _first_version(db, table_id, snapshot_id) == version:
        copied = "SELECT table_id, version + 1, snapshot_id, committed_ms FROM lake_snapshots"
        db.execute(f"INSERT INTO lake_snapshots {copied} WHERE table_id = ? AND version = ?", (table_id, version))
        version += 1
    rows = [(table_id, *place, version, _NOTHING.start, _NOTHING.end, _NOTHING.max_timestamp_ms) for place in places]
    db.executemany("INSERT OR REPLACE INTO lake_offsets VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    _prune(db, table_id, version - SNAPSHOTS_KEPT)


def _offsets(db: sqlite3.Connection, table_id: int, version: int) -> dict[PartitionBucket, TieredOffset]:
    # SQLite: beside max(), other columns are those of the row that has it.
    query = (
        "SELECT partition_id, bucket, start_offset, end_offset, max_timestamp, max(version) FROM lake_offsets "
        "WHERE table_id = ? AND version <= ? GROUP BY partition_id, bucket"
    )
    rows = db.execute(query, (table_id, version))
    return {(row[0], row[1]): TieredOffset(row[2], row[3], row[4]) for row in rows if row[3] >= 0}


def _write(
    db: sqlite3.Connection,
    table_id: int,
    version: int,
    snapshot_id: int,
    changed: Mapping[PartitionBucket, TieredOffset],
    now_ms: int,
) -> None:
    db.execute("INSERT INTO lake_snapshots VALUES (?, ?, ?, ?)", (table_id, version, snapshot_id, now_ms))
    db.executemany(
        "INSERT INTO lake_offsets VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (table_id, partition_id, bucket, version, offset.start, offset.end, offset.max_timestamp_ms)
            for (partition_id, bucket), offset in changed.items()
        ],
    )


def _prune(db: sqlite3.Connection, table_id: int, newest_gone: int) -> None:
    """Delete snapshots up to a version, and the offsets that only they need; one that has later versions is kept whole."""
    row = db.execute(
        "SELECT snapshot_id FROM lake_snapshots WHERE table_id = ? AND version = ?", (table_id, newest_gone + 1)
    ).fetchone()
    newest_gone = newest_gone if row is None else min(newest_gone, _first_version(db, table_id, row[0]) - 1)
    if newest_gone < 1:
        return
    db.execute("DELETE FROM lake_snapshots WHERE table_id = ? AND version <= ?", (table_id, newest_gone))
    db.execute(
        "DELETE FROM lake_offsets AS old WHERE table_id = :id AND version <= :gone AND EXISTS (SELECT 1 FROM lake_offsets "
        "WHERE table_id = :id AND partition_id = old.partition_id AND bucket = old.bucket AND version > old.version "
        "AND version <= :gone + 1)",
        {"id": table_id, "gone": newest_gone},
    )
    # What held nothing already then has nothing left to hide.
    query = "DELETE FROM lake_offsets WHERE table_id = ? AND version <= ? AND end_offset < 0"
    db.execute(query, (table_id, newest_gone + 1))
