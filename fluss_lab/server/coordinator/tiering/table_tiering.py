"""The tiering of one table: its states, when its next round or retry is due, and its row of the metadata file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from fluss_lab.errors import (
    CorruptDataError,
    FlussError,
    ForeignCommitError,
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.model import TablePath
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore

#: A failed table is retried after 2, 4, 8, ... s, at most 5 min: a broken catalog gets a dozen retries an hour, one with a
#: passing fault is retried within the freshness of most tables. A round requested by hand never waits.
BACKOFF_FIRST_MS: Final = 2_000
BACKOFF_MAX_MS: Final = 300_000
#: Failures that every retry repeats until a person acts: `fluss-lab repair`, or a change in the lake.
FOR_A_PERSON: Final = (
    ForeignCommitError, LakeSnapshotNotFoundError, TableNotFoundError, OffsetOutOfRangeError, CorruptDataError,
    UnsupportedError,
)  # fmt: skip


class TieringState(StrEnum):
    """The states of a table's tiering."""

    NEW = "New"
    INITIALIZED = "Initialized"
    SCHEDULED = "Scheduled"
    PENDING = "Pending"
    TIERING = "Tiering"
    TIERED = "Tiered"
    FAILED = "Failed"


#: State -> the states it may follow.
PREDECESSORS: Final[dict[TieringState, frozenset[TieringState]]] = {
    TieringState.NEW: frozenset(),
    TieringState.INITIALIZED: frozenset(),
    TieringState.SCHEDULED: frozenset({TieringState.NEW, TieringState.INITIALIZED, TieringState.TIERED}),
    TieringState.PENDING: frozenset({TieringState.SCHEDULED, TieringState.FAILED, TieringState.TIERED}),
    TieringState.TIERING: frozenset({TieringState.PENDING}),
    TieringState.TIERED: frozenset({TieringState.TIERING}),
    TieringState.FAILED: frozenset({TieringState.TIERING}),
}


@dataclass(frozen=True, slots=True)
class TableTiering:
    """A table's tiering, as stored.

    Attributes:
        since_ms: When the table was created or its lake enabled.
        last_tiered_ms: When its last round finished; None before the first.
        unfinished: Whether the holder of an earlier epoch may still wake up and commit.
        failures: Failed rounds since the last finished one.
        last_error: The error of the last failed round.
    """

    table_id: int
    path: TablePath
    freshness_ms: int
    state: TieringState
    since_ms: int
    epoch: int = 0
    last_tiered_ms: int | None = None
    unfinished: bool = False
    failures: int = 0
    last_error: str | None = None

    @property
    def due_ms(self) -> int:
        """Return when the next round is due."""
        return max(self.since_ms, self.last_tiered_ms or 0) + self.freshness_ms

    def retry_delay_ms(self, error: type[FlussError] | None) -> int:
        """Return how long a table waits after a failed round.

        Args:
            error: What the round failed with; None: it is not known.
        """
        if error in FOR_A_PERSON:
            return BACKOFF_MAX_MS
        return min(BACKOFF_FIRST_MS << min(max(0, self.failures - 1), 20), BACKOFF_MAX_MS)

    def clamp_times(self, now_ms: int) -> TableTiering:
        """Return the same with no time in the future: when the clock stepped back, the wait begins now."""
        last_ms = None if self.last_tiered_ms is None else min(self.last_tiered_ms, now_ms)
        return replace(self, since_ms=min(self.since_ms, now_ms), last_tiered_ms=last_ms)


def write_tiering(store: MetadataStore, table: TableTiering) -> None:
    """Write a table's row. Part of the caller's transaction."""
    with store.write() as db:
        values = (
            table.table_id, table.state.value, table.epoch, table.since_ms, table.last_tiered_ms,
            int(table.unfinished), table.failures, table.last_error,
        )  # fmt: skip
        db.execute("INSERT OR REPLACE INTO tiering VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)


def stored_tiering(store: MetadataStore, table_id: int) -> TableTiering | None:
    """Return a table as its row has it, without path, freshness and state, which the caller fills in; None: it has no row."""
    with store.read() as db:
        query = (
            "SELECT epoch, since_ms, last_tiered_ms, unfinished, failures, last_error FROM tiering WHERE table_id = ?"
        )
        row = db.execute(query, (table_id,)).fetchone()
    if row is None:
        return None
    epoch, since_ms, last_tiered_ms, unfinished, failures, last_error = row
    nowhere, state = TablePath("_", "_"), TieringState.INITIALIZED
    return TableTiering(
        table_id, nowhere, 0, state, since_ms, epoch, last_tiered_ms, bool(unfinished), failures, last_error
    )
