"""Lookupers that a connection keeps for tables whose rows are looked up again and again, by one call after another.

A kept one knows its table as it was when it was opened. What shows that the table has changed since (a newer schema in an
answer, a table or bucket that is gone, keys that do not fit) has it opened anew, once, and the lookup repeated: so the
result is that of a lookuper opened for this call, without asking the coordinator at each.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar, cast

import pyarrow as pa

from fluss_lab.errors import InvalidError, NotFoundError
from fluss_lab.interrupts import Held
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


@dataclass(slots=True, eq=False)
class _Kept:
    """A lookuper, how many calls use it now, and whether another one has taken its place."""

    lookuper: Keepable
    users: int = 0
    is_dropped: bool = False


class KeptLookupers:
    """Keeps those used last. Safe in any thread; one a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Name, _Kept] = OrderedDict()

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
        if not isinstance(keys, Mapping | list | tuple | pa.Table | pa.RecordBatch):
            lookuper = open_one(path, columns)
            try:
                return look(lookuper, keys)
            finally:
                lookuper.close()
        name = path, None if columns is None else tuple(columns)
        if (kept := self._taken(name)) is not None:
            try:
                found = look(cast(L, kept.lookuper), keys)
                if not (columns is None and kept.lookuper.is_outdated):
                    return found
            except (InvalidError, NotFoundError):
                pass  # as the table was: what it says of the table as it is counts
            finally:
                self._returned(kept)
            self._drop(name, kept)
        fresh = self._add(name, _Kept(open_one(path, columns), users=1))
        try:
            return look(cast(L, fresh.lookuper), keys)
        finally:
            self._returned(fresh)

    def _taken(self, name: _Name) -> _Kept | None:
        with Held(), self._lock:
            if (kept := self._kept.get(name)) is not None:
                self._kept.move_to_end(name)
                kept.users += 1
            return kept

    def _returned(self, kept: _Kept) -> None:
        with Held():
            with self._lock:
                kept.users -= 1
                is_done = kept.is_dropped and not kept.users
            if is_done:
                kept.lookuper.close()

    def _add(self, name: _Name, kept: _Kept) -> _Kept:
        with Held():
            with self._lock:
                surplus = [(name, self._kept.pop(name))] if name in self._kept else []
                self._kept[name] = kept
                while len(self._kept) > _KEPT_MAX:
                    surplus.append(self._kept.popitem(last=False))
            for each in surplus:
                self._drop(*each)
        return kept

    def _drop(self, name: _Name, kept: _Kept) -> None:
        with Held():
            with self._lock:
                if self._kept.get(name) is kept:
                    del self._kept[name]
                is_done = not kept.is_dropped and not kept.users
                kept.is_dropped = True
            if is_done:
                kept.lookuper.close()
