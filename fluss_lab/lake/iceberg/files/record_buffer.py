"""Records kept until there are enough to write: small batches are copied together, so that they take little memory."""

from __future__ import annotations

from typing import Final

from fluss_lab.records import LogRecords, joined

#: A batch of fewer rows is small: what Arrow spends on it beside its values, some 0.5 kB a column, matters.
SMALL_ROWS: Final = 1024
#: So many small batches are copied together at a time: 1 to 2 MB of overhead of tiny ones.
SMALL_BATCHES_MAX: Final = 256


class GatheredRecords:
    """Runs of records in the order in which they were given. Used by one thread."""

    def __init__(self) -> None:
        self._runs: list[LogRecords] = []
        #: How many of the last runs are small.
        self._small = 0
        self.rows = 0
        self.size_bytes = 0

    def append(self, records: LogRecords) -> None:
        """Take records."""
        self._runs.append(records)
        self.rows += len(records)
        self.size_bytes += records.rows.nbytes
        self._small = self._small + 1 if len(records) < SMALL_ROWS else 0
        if self._small == SMALL_BATCHES_MAX:
            self._runs[-self._small :] = [joined(self._runs[-self._small :])]
            self._small = 0

    def take(self) -> list[LogRecords]:
        """Return what was gathered, at most a few small runs among it, and begin anew."""
        taken, self._runs = self._runs, []
        self._small = self.rows = self.size_bytes = 0
        return taken
