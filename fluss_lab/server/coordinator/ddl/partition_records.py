"""The coordinator's records about partitions: losses by drops, progress of automatic ones, those kept past retention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fluss_lab.model import PartitionInfo, TablePath
from fluss_lab.model.json_codec import decode, encode
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore


@dataclass(frozen=True, slots=True)
class PartitionLoss:
    """A dropped partition with lost records: the table as of a time in ``[from_ms, until_ms)`` contained them."""

    table_id: int
    partition: PartitionInfo
    from_ms: int
    until_ms: int


class LostRange(NamedTuple):
    """Records of one bucket, ``[start, stop)``, that are held nowhere any more, and the time of the last one.

    Without a stop and that time, where the bucket ended is not known.
    """

    bucket: int
    start: int
    stop: int | None
    last_ms: int | None


@dataclass(frozen=True, slots=True)
class LossyDrop:
    """The drop of a partition by which records were lost; later ones of a table have larger numbers, from 1 on.

    No lost record has a timestamp before `from_ms`.
    """

    number: int
    partition: PartitionInfo
    from_ms: int
    dropped_ms: int
    lost: tuple[LostRange, ...]


@dataclass(frozen=True, slots=True)
class LossyDrops:
    """The drops of one table's partitions by which records were lost: the newest one's number (0: none), and those wanted."""

    newest: int
    wanted: tuple[LossyDrop, ...]


class PartitionLosses:
    """The losses of every table, as rows of the metadata file; they are removed with their table."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def note(self, loss: PartitionLoss) -> None:
        """Note a loss. Part of the caller's transaction. For a partition noted before, the range is widened."""
        values = (loss.table_id, loss.partition.partition_id, loss.partition.name, loss.from_ms, loss.until_ms)
        with self._store.write() as db:
            db.execute(
                "INSERT INTO partition_losses VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "from_ms = min(from_ms, excluded.from_ms), until_ms = max(until_ms, excluded.until_ms)",
                values,
            )

    def losses(self, table_id: int, time_ms: int) -> list[PartitionLoss]:
        """Return the losses that concern the table as of a time, by partition id."""
        query = (
            "SELECT partition_id, name, from_ms, until_ms FROM partition_losses "
            "WHERE table_id = ? AND from_ms <= ? AND until_ms > ? ORDER BY 1"
        )
        with self._store.read() as db:
            rows = db.execute(query, (table_id, time_ms, time_ms))
            return [PartitionLoss(table_id, PartitionInfo(row[0], row[1]), row[2], row[3]) for row in rows]

    def note_drop(self, loss: PartitionLoss, lost: Sequence[LostRange]) -> None:
        """Note which records were lost by a drop. Part of the caller's transaction."""
        partition, ranges = loss.partition, encode(list(lost)).decode()
        values = (partition.partition_id, partition.name, loss.from_ms, loss.until_ms, ranges)
        query = (
            "INSERT INTO lossy_drops SELECT ?, coalesce(max(number), 0) + 1, ?, ?, ?, ?, ? FROM lossy_drops "
            "WHERE table_id = ?"
        )
        with self._store.write() as db:
            db.execute(query, (loss.table_id, *values, loss.table_id))

    def drops(self, table_id: int, first: int, after_ms: int) -> LossyDrops:
        """Return a table's drops by which records were lost.

        Args:
            table_id: The table.
            first: Those of this number and above are wanted; 0: none.
            after_ms: And only those after this time.
        """
        newest = "SELECT coalesce(max(number), 0) FROM lossy_drops WHERE table_id = ?"
        query = (
            "SELECT number, partition_id, name, from_ms, dropped_ms, ranges FROM lossy_drops "
            "WHERE table_id = ? AND number >= ? AND dropped_ms > ? ORDER BY 1"
        )
        with self._store.read() as db:
            number = int(db.execute(newest, (table_id,)).fetchone()[0])
            rows = db.execute(query, (table_id, first, after_ms)).fetchall() if 0 < first <= number else []
        return LossyDrops(number, tuple(_lossy_drop(*row) for row in rows))


def _lossy_drop(number: int, partition_id: int, name: str, from_ms: int, dropped_ms: int, ranges: str) -> LossyDrop:
    lost = decode(list[LostRange], ranges, f"records lost by the drop of partition {name!r}")
    return LossyDrop(number, PartitionInfo(partition_id, name), from_ms, dropped_ms, tuple(lost))


@dataclass(frozen=True, slots=True)
class AutoPartitionMark:
    """How far the automatic partitions of one table have followed the clock.

    Attributes:
        present: Newest time value for which partitions were created; earlier ones are not created automatically.
        dropped: Newest time value that was dropped by retention; neither it nor earlier ones are created again.
    """

    present: str = ""
    dropped: str = ""


class AutoPartitionMarks:
    """Marks, as rows of the metadata file; they are removed with their table. Time values of a table sort as text."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def get(self, table_id: int) -> AutoPartitionMark:
        """Return the mark of a table; an empty one of a table that has none."""
        with self._store.read() as db:
            row = db.execute(
                "SELECT present, dropped FROM auto_partition_marks WHERE table_id = ?", (table_id,)
            ).fetchone()
        return AutoPartitionMark() if row is None else AutoPartitionMark(row[0], row[1])

    def raise_to(self, table_id: int, mark: AutoPartitionMark) -> AutoPartitionMark:
        """Raise a table's mark where the given one is later; return the result. It never decreases."""
        with self._store.read():  # else one that is removed in between would come back
            old = self.get(table_id)
            new = AutoPartitionMark(max(old.present, mark.present), max(old.dropped, mark.dropped))
            if new != old:
                with self._store.write() as db:
                    # The table may have been dropped meanwhile.
                    query = "SELECT ?, ?, ? WHERE EXISTS (SELECT 1 FROM tables WHERE table_id = ?)"
                    values = (table_id, new.present, new.dropped, table_id)
                    db.execute(f"INSERT OR REPLACE INTO auto_partition_marks {query}", values)
            return new

    def forget(self, table_id: int) -> None:
        """Remove a table's mark: its automatic partitioning was reconfigured."""
        with self._store.write() as db:
            db.execute("DELETE FROM auto_partition_marks WHERE table_id = ?", (table_id,))


@dataclass(frozen=True, slots=True)
class KeptPartition:
    """A partition kept past its retention, because the lake does not hold all of it.

    Attributes:
        table_id: The table's id.
        path: The table's path.
        name: The partition's.
        since_ms: When its retention ended.
        reason: Why it is kept.
    """

    table_id: int
    path: TablePath
    name: str
    since_ms: int
    reason: str
