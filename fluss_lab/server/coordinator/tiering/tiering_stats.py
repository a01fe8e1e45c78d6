"""The statistics of each table's rounds since the coordinator started: for metrics, nothing is decided by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fluss_lab.clock import Clock


@dataclass(slots=True)
class RoundStats:
    """Of one table.

    Attributes:
        pending_ms: Since when it has waited for a tierer (monotonic milliseconds); None: it does not wait.
        granted_ms: Since when a tierer has had it (monotonic milliseconds); None: none has.
        duration_ms: How long the last round that finished took; None before the first.
        size_bytes: Of the files that it wrote.
        records: Rows that it wrote.
        failures: Rounds that failed.
    """

    pending_ms: int | None = None
    granted_ms: int | None = None
    duration_ms: int | None = None
    size_bytes: int | None = None
    records: int | None = None
    failures: int = 0


#: Of a table that nothing was seen of.
NOTHING: Final = RoundStats()


class TieringStats:
    """Keeps the figures of every table. Called under the lock of the tiering's states.

    Args:
        clock: Its monotonic time is what is measured.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tables: dict[int, RoundStats] = {}

    def pending(self, table_id: int) -> None:
        """A table begins to wait for a tierer."""
        stats = self._of(table_id)
        stats.pending_ms, stats.granted_ms = self._clock.monotonic_ms(), None

    def granted(self, table_id: int) -> None:
        """A tierer has got it."""
        stats = self._of(table_id)
        stats.pending_ms, stats.granted_ms = None, self._clock.monotonic_ms()

    def finished(self, table_id: int, *, size_bytes: int | None, records: int | None) -> None:
        """Its round finished; called before the table moves on."""
        stats = self._of(table_id)
        if stats.granted_ms is not None:
            stats.duration_ms = self._clock.monotonic_ms() - stats.granted_ms
        stats.size_bytes, stats.records = size_bytes, records

    def failed(self, table_id: int) -> None:
        """Its round failed."""
        self._of(table_id).failures += 1

    def forget(self, table_id: int) -> None:
        """The table is gone, or is not tiered any more."""
        self._tables.pop(table_id, None)

    def of(self, table_id: int) -> RoundStats:
        """Return the figures of a table."""
        return self._tables.get(table_id, NOTHING)

    def pending_time_ms(self, table_id: int) -> int:
        """Return how long a table has waited for a tierer; 0 when it does not wait."""
        since_ms = self.of(table_id).pending_ms
        return 0 if since_ms is None else max(0, self._clock.monotonic_ms() - since_ms)

    def _of(self, table_id: int) -> RoundStats:
        return self._tables.setdefault(table_id, RoundStats())
