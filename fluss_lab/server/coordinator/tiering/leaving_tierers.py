"""Tierers that held a table when it was dropped: the lake table is dropped only after they have stopped.

A tierer learns of the drop from its next heartbeat, ends its tasks and reports the round as failed. Files that its tasks
wrote after the lake table's folder was removed would be orphans.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class _Holder:
    epoch: int
    session_id: int | None
    gone: threading.Event = field(default_factory=threading.Event)


class LeavingTierers:
    """The tierers that have not yet released a dropped table. Thread-safe.

    Args:
        timeout_ms: Longest wait for one of them. They send a heartbeat every 3 s.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000
        self._holders: dict[int, _Holder] = {}
        self._lock = threading.Lock()

    def add(self, table_id: int, epoch: int, session_id: int | None) -> None:
        """Note that a tierer held a table that is dropped."""
        with self._lock:
            self._holders[table_id] = _Holder(epoch, session_id)

    def note_round_end(self, table_id: int, epoch: int) -> None:
        """Note that a tierer's round has ended. Other tables' rounds are ignored."""
        with self._lock:
            holder = self._holders.get(table_id)
            if holder is not None and holder.epoch == epoch:
                holder.gone.set()

    def session_ended(self, session_id: int) -> None:
        """Note that a tierer's process has ended, and its round with it."""
        with self._lock:
            for holder in self._holders.values():
                if holder.session_id == session_id:
                    holder.gone.set()

    def wait(self, table_id: int) -> bool:
        """Wait until the tierer of a dropped table has stopped, and forget it.

        Returns:
            Whether it has stopped; False: it was silent for `timeout_ms`.
        """
        with self._lock:
            holder = self._holders.get(table_id)
        if holder is None:
            return True
        found = holder.gone.wait(self._timeout_s)
        with self._lock:
            self._holders.pop(table_id, None)
        return found
