"""Lookupers that a connection keeps for tables whose rows are looked up again and again, by one call after another.

A kept one knows its table as it was when it was opened. What shows that the table has changed since (a newer schema in an
answer, a table or bucket that is gone, keys that do not fit) has it opened anew, once, and the lookup repeated: so the
result is that of a lookuper opened for this call, without asking the coordinator at each. A drop by this client forgets
those of the table: a server may hear of it later, and would answer from the rows that were dropped.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, TypeVar, cast

import pyarrow as pa

from fluss_lab.errors import InvalidError, NotFoundError
from fluss_lab.interrupts import Held, may_arrive
from fluss_lab.model import TablePath

#: Tables and choices of columns; each has a few kilobytes, and threads only after large or concurrent lookups.
_KEPT_MAX: Final = 64


class Keepable(Protocol):
    """What is kept: a `Lookuper`."""

    @property
    def is_outdated(self) -> bool:
        """Return whether the table has a newer schema than this knows."""
        ...

    def close(self) -> None:
        """End its threads."""
        ...


L = TypeVar("L", bound=Keepable)
_Name: TypeAlias = tuple[TablePath, tuple[str, ...] | None]


#: What can be gone through twice.
_REPEATABLE: Final = (Mapping, list, tuple, pa.Table, pa.RecordBatch)
#: Keys in these types are looked at first: asking whether something is a mapping takes ten times as long.
_PLAIN_KEYS: Final = frozenset({dict, list, tuple, pa.Table, pa.RecordBatch})


@dataclass(slots=True, eq=False)
class _Kept:
    """A lookuper, an entry for each call that uses it now, and whether another one has taken its place.

    Single steps of lists are atomic, so a call takes no lock, which fifty threads would wait for. Who drops it says so
    before looking for users, who uses it says so before looking whether it was dropped: so one of both closes it, or both.
    """

    lookuper: Keepable
    users: list[None] = field(default_factory=list)
    is_dropped: bool = False
    #: When it was used last, by the count of uses.
    used: int = 0


class KeptLookupers:
    """Keeps those used last. Safe in any thread; one a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[_Name, _Kept] = {}
        self._uses = itertools.count()
        #: Changes whenever some are forgotten: one that was opened before is not kept after.
        self._era = 0

    def lookup(
        self,
        open_one: Callable[[TablePath, Sequence[str] | None], L],
        path: TablePath,
        columns: Sequence[str] | None,
        keys: object,
        look: Callable[[L, object], pa.Table],
    ) -> pa.Table:
        """Return what a lookup finds, as a lookuper opened for it would.

        Args:
            open_one: `Connection.lookuper` of the connection that keeps these.
            path: The table.
            columns: As `open_one` takes them.
            keys: What is looked up. It is gone through twice, so readers of Arrow are looked up by a lookuper of their own.
            look: `Lookuper.lookup` or `Lookuper.prefix_lookup`.
        """
        if type(keys) not in _PLAIN_KEYS and not isinstance(keys, _REPEATABLE):
            lookuper = open_one(path, columns)
            try:
                return look(lookuper, keys)
            finally:
                lookuper.close()
        name = path, None if columns is None else tuple(columns)
        if (kept := self._take_uninterrupted(name)) is not None:
            try:
                found = look(cast(L, kept.lookuper), keys)
                if not (columns is None and kept.lookuper.is_outdated):
                    return found
            except (InvalidError, NotFoundError):
                pass  # as the table was: what it says of the table as it is counts
            finally:
                self._give_back_uninterrupted(kept)
            self._drop(name, kept)
        era = self._era
        fresh = self._add(name, open_one(path, columns), era)
        try:
            return look(cast(L, fresh.lookuper), keys)
        finally:
            self._give_back_uninterrupted(fresh)

    def forget(self, database: str, table: str | None = None) -> None:
        """Drop those of a table, or of all tables of a database: they were dropped, which their servers may not know yet."""
        with Held():
            with self._lock:
                self._era += 1
                kept = list(self._kept.items())
            for name, each in kept:
                if name[0].database == database and table in {None, name[0].table}:
                    self._drop(name, each)

    def _take_uninterrupted(self, name: _Name) -> _Kept | None:
        if not may_arrive():
            return self._take(name)
        with Held():
            return self._take(name)

    def _take(self, name: _Name) -> _Kept | None:
        if (kept := self._kept.get(name)) is None:
            return None
        kept.users.append(None)
        if kept.is_dropped:
            self._give_back(kept)
            return None
        kept.used = next(self._uses)
        return kept

    def _give_back_uninterrupted(self, kept: _Kept) -> None:
        if not may_arrive():
            self._give_back(kept)
            return
        with Held():
            self._give_back(kept)

    def _give_back(self, kept: _Kept) -> None:
        kept.users.pop()
        if kept.is_dropped and not kept.users:
            kept.lookuper.close()

    def _add(self, name: _Name, lookuper: Keepable, era: int) -> _Kept:
        kept = _Kept(lookuper, [None], used=next(self._uses))
        with Held():
            with self._lock:
                if era != self._era:
                    kept.is_dropped = True
                    return kept
                surplus = [(name, self._kept.pop(name))] if name in self._kept else []
                self._kept[name] = kept
                while len(self._kept) > _KEPT_MAX:
                    oldest = min(self._kept, key=lambda each: self._kept[each].used)
                    surplus.append((oldest, self._kept.pop(oldest)))
            for each in surplus:
                self._drop(*each)
        return kept

    def _drop(self, name: _Name, kept: _Kept) -> None:
        with Held():
            with self._lock:
                if self._kept.get(name) is kept:
                    del self._kept[name]
            kept.is_dropped = True
            if not kept.users:
                kept.lookuper.close()
