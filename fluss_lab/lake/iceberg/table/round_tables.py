"""The lake table that a round works on, handed from one step to the next: each would otherwise ask the catalog once more.

A round needs the newest table twice: when it is planned, and when it has committed. What is done in between is right for
the table as it was planned, or the commit is refused: it is conditional on that snapshot. And what follows a commit was
looked at by that commit.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from fluss_lab.model import TablePath

if TYPE_CHECKING:
    from pyiceberg.table import Table

#: Tables of which is kept how rounds left them. Metadata is shared with the catalog's own cache.
KEPT: Final = 24


class RoundTables:
    """Lake tables as rounds loaded them. Safe in any thread; each table has one round at a time, as its holder's."""

    def __init__(self) -> None:
        self._planned: dict[TablePath, Table] = {}
        self._left: LRUCache[TablePath, Table] = LRUCache(KEPT)
        self._lock = threading.Lock()

    def plan(self, path: TablePath, lake: Table) -> None:
        """Keep a table that was loaded just now: a round is planned with it."""
        with self._lock:
            self._planned[path] = lake
            self._left.pop(path, None)

    def planned_table(self, path: TablePath) -> Table | None:
        """Return the table that the round under way is planned with."""
        with self._lock:
            return self._planned.get(path)

    def take(self, path: TablePath) -> Table | None:
        """Return what `planned` does, for the commit: from then on the round goes by it no more."""
        with self._lock:
            return self._planned.pop(path, None)

    def leave(self, path: TablePath, lake: Table | None = None) -> None:
        """Keep the table as a round left it: as it was loaded after the commit, or without one as it was planned with."""
        with self._lock:
            lake = lake or self._planned.pop(path, None)
            if lake is not None:
                self._left[path] = lake

    def left_table(self, path: TablePath, snapshot_id: int | None) -> Table | None:
        """Return the table as a round left it, once; None where that was not with this snapshot as its newest."""
        with self._lock:
            lake = self._left.pop(path, None)
        return lake if lake is not None and lake.metadata.current_snapshot_id == snapshot_id else None
