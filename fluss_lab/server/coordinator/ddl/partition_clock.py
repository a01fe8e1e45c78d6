"""The progress of a table's partitions with the clock: past ones do not come back when the clock is set back."""

from __future__ import annotations

from dataclasses import dataclass

from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore


@dataclass(frozen=True, slots=True)
class AutoMark:
    """How far one table has come.

    Attributes:
        present: Newest present time value for which partitions were made; earlier ones are not made by themselves.
        dropped: Newest time value that was dropped as past keeping; neither it nor earlier ones are made again.
    """

    present: str = ""
    dropped: str = ""


class AutoMarks:
    """Marks, as rows of the metadata file; they go with their table. Time values of a table sort as text."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def get(self, table_id: int) -> AutoMark:
        """Return the mark of a table; an empty one of a table that has none."""
        with self._store.read() as db:
            row = db.execute(
                "SELECT present, dropped FROM auto_partition_marks WHERE table_id = ?", (table_id,)
            ).fetchone()
        return AutoMark() if row is None else AutoMark(row[0], row[1])

    def raise_to(self, table_id: int, mark: AutoMark) -> AutoMark:
        """Raise a table's mark where that is later; return it. It never goes back."""
        old = self.get(table_id)
        new = AutoMark(max(old.present, mark.present), max(old.dropped, mark.dropped))
        if new != old:
            with self._store.write() as db:
                # It may have been dropped in between.
                query = "SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM tables WHERE table_id = ?1)"
                db.execute(f"INSERT OR REPLACE INTO auto_partition_marks {query}", (table_id, new.present, new.dropped))
        return new

    def forget(self, table_id: int) -> None:
        """Forget a table's mark: a person said anew how its partitions follow the clock."""
        with self._store.write() as db:
            db.execute("DELETE FROM auto_partition_marks WHERE table_id = ?", (table_id,))
