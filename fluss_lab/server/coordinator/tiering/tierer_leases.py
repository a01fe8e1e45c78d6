"""The lease that a tierer has of a table: after which silence it ends, and after which a round asked by hand takes it over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from fluss_lab.errors import TieringInProgressError
from fluss_lab.model.config.options import TIERING_HEARTBEAT_TIMEOUT, TIERING_TAKEOVER
from fluss_lab.server.coordinator.tiering.table_tiering import TableTiering


@dataclass(slots=True)
class TiererLease:
    """A tierer's lease of a table.

    Attributes:
        session_id: The tierer's process; None: only its heartbeats show that it lives.
        heard_ms: Monotonic time of its last heartbeat.
        takeover: Whether an earlier epoch did not end by itself.
        has_ended: Whether its process has ended.
    """

    session_id: int | None
    heard_ms: int
    takeover: bool
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long a silent tierer keeps a table.

    Attributes:
        heartbeat_timeout_ms: Silence after which it counts as dead.
        takeover_ms: Silence after which a round asked by hand may take over.
    """

    heartbeat_timeout_ms: int
    takeover_ms: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Return the times that cluster options set."""
        return cls(TIERING_HEARTBEAT_TIMEOUT.of(options), TIERING_TAKEOVER.of(options))

    def end_reason(self, lease: TiererLease, now_ms: int) -> str | None:
        """Return why a round has ended without its tierer's report; None: it goes on."""
        if lease.has_ended:
            return "the tierer's process ended during the round"
        silent_ms = now_ms - lease.heard_ms
        return f"no heartbeat for {silent_ms} ms" if silent_ms >= self.heartbeat_timeout_ms else None

    def takeover_reason(self, lease: TiererLease, table: TableTiering, now_ms: int) -> str:
        """Return why a round ends that one asked by hand takes over.

        Raises:
            TieringInProgressError: Its tierer lives, as far as is known.
        """
        silent_ms = now_ms - lease.heard_ms
        if silent_ms < self.takeover_ms and not lease.has_ended:
            raise TieringInProgressError(
                f"table {table.path}: a tierer holds it (epoch {table.epoch}, last heartbeat {silent_ms} ms ago); wait for "
                f"it, or for {self.takeover_ms} ms of silence"
            )
        return self.end_reason(lease, now_ms) or f"taken over after {silent_ms} ms without a heartbeat"
