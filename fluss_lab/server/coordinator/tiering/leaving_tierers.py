"""Tierers that held a table when it was dropped: the lake table goes when they have stopped, not under their hands.

A tierer hears of the drop by its next heartbeat, ends its tasks and reports the round as failed. Files that its tasks
wrote after the lake table's folder was removed would belong to nobody.
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
    """Who has yet to let go of a dropped table. Safe in any thread.

    Args:
        patience_ms: How long one is waited for. They ask every 3 s whether the table is still theirs.
    """

    def __init__(self, patience_ms: int) -> None:
        self._patience_s = patience_ms / 1000
        self._holders: dict[int, _Holder] = {}
        self._lock = threading.Lock()

    def add(self, table_id: int, epoch: int, session_id: int | None) -> None:
        """Note that a tierer held a table that is dropped."""
        with self._lock:
            self._holders[table_id] = _Holder(epoch, session_id)

    def left(self, table_id: int, epoch: int) -> None:
        """A tierer's round has ended; of a table that nobody leaves, nothing happens."""
        with self._lock:
            holder = self._holders.get(table_id)
            if holder is not None and holder.epoch == epoch:
                holder.gone.set()

    def session_ended(self, session_id: int) -> None:
        """A tierer's process is gone, and its round with it."""
        with self._lock:
            for holder in self._holders.values():
                if holder.session_id == session_id:
                    holder.gone.set()

    def wait(self, table_id: int) -> bool:
        """Wait until the tierer of a dropped table has stopped, and forget it.

        Returns:
            Whether it has; False: it was silent for as long as one waits.
        """
        with self._lock:
            holder = self._holders.get(table_id)
        if holder is None:
            return True
        found = holder.gone.wait(self._patience_s)
        with self._lock:
            self._holders.pop(table_id, None)
        return found
