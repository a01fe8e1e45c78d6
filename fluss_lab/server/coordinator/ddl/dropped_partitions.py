"""Partitions that went with records that are nowhere else: what tables as of a time before can no longer be told from."""

from __future__ import annotations

from dataclasses import dataclass

from fluss_lab.model import PartitionInfo
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore


@dataclass(frozen=True, slots=True)
class Loss:
    """A partition with lost records: the table as of a time in ``[from_ms, until_ms)`` had some of them."""

    table_id: int
    partition: PartitionInfo
    from_ms: int
    until_ms: int


class LossLedger:
    """Losses, as rows of the metadata file; they go with their table."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def note(self, loss: Loss) -> None:
        """Note a loss. Part of the caller's transaction. Of a partition noted before, both times count."""
        values = (loss.table_id, loss.partition.partition_id, loss.partition.name, loss.from_ms, loss.until_ms)
        with self._store.write() as db:
            db.execute(
                "INSERT INTO partition_losses VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "from_ms = min(from_ms, excluded.from_ms), until_ms = max(until_ms, excluded.until_ms)",
                values,
            )

    def at(self, table_id: int, time_ms: int) -> list[Loss]:
        """Return the losses that the table as of a time has, by partition id."""
        query = (
            "SELECT partition_id, name, from_ms, until_ms FROM partition_losses "
            "WHERE table_id = ?1 AND from_ms <= ?2 AND until_ms > ?2 ORDER BY 1"
        )
        with self._store.read() as db:
            rows = db.execute(query, (table_id, time_ms))
            return [Loss(table_id, PartitionInfo(row[0], row[1]), row[2], row[3]) for row in rows]
