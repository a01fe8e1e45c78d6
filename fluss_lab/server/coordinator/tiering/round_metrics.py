"""The statistics of each table's rounds since the coordinator started, for metrics only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fluss_lab.clock import Clock


@dataclass(slots=True)
class RoundStats:
    """The statistics of one table.

    Attributes:
        pending_ms: When it became pending (monotonic milliseconds); None: it is not pending.
        granted_ms: When a tierer got it (monotonic milliseconds); None: no tierer has it.
        duration_ms: Duration of the last finished round; None before the first.
        size_bytes: Bytes of the files that it wrote.
        records: Rows that it wrote.
        failures: Rounds that failed.
    """

    pending_ms: int | None = None
    granted_ms: int | None = None
    duration_ms: int | None = None
    size_bytes: int | None = None
    records: int | None = None
    failures: int = 0


#: The statistics of a table without a round.
NOTHING: Final = RoundStats()


class TieringStats:
    """The statistics of every table. Called under the lock of `TieringManager`.

    Args:
        clock: Durations are differences of its monotonic time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tables: dict[int, RoundStats] = {}

    def pending(self, table_id: int) -> None:
        """Note that a table is pending."""
        stats = self._stats(table_id)
        stats.pending_ms, stats.granted_ms = self._clock.monotonic_ms(), None

    def note_grant(self, table_id: int) -> None:
        """Note that a tierer got a table."""
        stats = self._stats(table_id)
        stats.pending_ms, stats.granted_ms = None, self._clock.monotonic_ms()

    def note_finish(self, table_id: int, *, size_bytes: int | None, records: int | None) -> None:
        """Note that a table's round finished; call this before the table's next state."""
        stats = self._stats(table_id)
        if stats.granted_ms is not None:
            stats.duration_ms = self._clock.monotonic_ms() - stats.granted_ms
        stats.size_bytes, stats.records = size_bytes, records

    def note_failure(self, table_id: int) -> None:
        """Note that a table's round failed."""
        self._stats(table_id).failures += 1

    def forget(self, table_id: int) -> None:
        """Forget a table that was dropped, or is no longer tiered."""
        self._tables.pop(table_id, None)

    def of(self, table_id: int) -> RoundStats:
        """Return the statistics of a table."""
        return self._tables.get(table_id, NOTHING)

    def pending_time_ms(self, table_id: int) -> int:
        """Return how long a table has been pending; 0 when it is not."""
        since_ms = self.of(table_id).pending_ms
        return 0 if since_ms is None else max(0, self._clock.monotonic_ms() - since_ms)

    def _stats(self, table_id: int) -> RoundStats:
        return self._tables.setdefault(table_id, RoundStats())
