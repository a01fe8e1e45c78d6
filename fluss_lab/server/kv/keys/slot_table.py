"""Tables of slots: hashes and entries with linear probing, searched for whole batches at once.

A key's home is its hash as a share of the table: homes are in the order of hashes, whatever the size. Memory of a large
table is taken as it is touched, and a part that was cut out is given back.
"""

from __future__ import annotations

import mmap
import sys
from typing import Final

import numpy as np
import numpy.typing as npt

from fluss_lab.server.kv.keys.key_hashes import Hashes, Longs

HASH, ENTRY = 0, 1
#: Entries: 0 for a slot never used, -1 for one whose key was deleted, else the offset and one.
EMPTY, GONE = 0, -1
SLOT_BYTES: Final = 16
#: Larger tables have memory of their own, not the allocator's.
_OWN_BYTES_MIN: Final = 1 << 20
#: Slots looked at together once the first one did not answer: two cache lines.
_WINDOW: Final = np.arange(1, 9)
#: Slots looked at together for an empty one.
_RUN: Final = 64
_HALF: Final = np.uint64(32)


class SlotTable:
    """Slots of (hash, entry). Not safe in several threads.

    Args:
        size: Slots; below 2**32. Some must always stay empty.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        #: Slots that are not empty, and those of them whose key was deleted.
        self.used = self.gone = 0
        self._own: mmap.mmap | None = None
        nbytes = size * SLOT_BYTES
        if nbytes >= _OWN_BYTES_MIN:
            # Zeros come page by page when they are touched: no stall, however large the table.
            self._own = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._flat: npt.NDArray[np.int64] = np.frombuffer(self._own, np.int64, 2 * size)
        else:
            self._flat = np.zeros(2 * size, np.int64)
        # The flat one has the same numbers in a row: taking single ones from it is several times faster.
        self._slots = self._flat.reshape(-1, 2)
        self._scale = np.uint64(size)

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of all slots, touched or not."""
        return self.size * SLOT_BYTES

    def homes(self, hashes: Hashes) -> Longs:
        """Return where to look for hashes first."""
        return ((hashes >> _HALF) * self._scale >> _HALF).view(np.int64)

    def home(self, hash: int) -> int:
        """Return what `homes` gives for one."""
        return (hash >> 32) * self.size >> 32

    def _wrap(self, places: Longs) -> Longs:
        """Return places less than a table behind the end as those at its beginning."""
        return np.where(places >= self.size, places - self.size, places)

    def _entries(self, places: Longs) -> Longs:
        return self._flat.take(places * 2 + ENTRY)

    def write(self, places: Longs, entries: Longs) -> None:
        """Give slots other entries."""
        self._flat[places * 2 + ENTRY] = entries

    def search(self, hashes: Hashes, places: Longs) -> tuple[Longs, Longs]:
        """Return slot and entry of the first match at or after each place; the entry is 0 where there is none."""
        wanted = hashes.view(np.int64)
        places = self._wrap(places)
        found = self._slots.take(places, axis=0)
        entries = found[:, ENTRY].copy()
        active = np.flatnonzero((entries != EMPTY) & ((found[:, HASH] != wanted) | (entries == GONE)))
        while active.size:
            window = self._wrap(places[active][:, None] + _WINDOW)
            found = self._slots.take(window.ravel(), axis=0).reshape(*window.shape, 2)
            entry = found[:, :, ENTRY]
            ends = (entry == EMPTY) | ((found[:, :, HASH] == wanted[active][:, None]) & (entry > 0))
            ended, first = _first(ends)
            places[active] = window.ravel().take(first)
            entries[active] = np.where(ended, entry.ravel().take(first), EMPTY)
            active = active[~ended]
        return places, entries

    def first(self, hash: int) -> int:
        """Return the entry of the first match of one hash, as `search` does for many; 0 where there is none."""
        wanted = hash - (1 << 64) if hash >> 63 else hash
        slot, item = self.home(hash), self._flat.item
        while (entry := item(2 * slot + ENTRY)) != EMPTY:
            if entry != GONE and item(2 * slot + HASH) == wanted:
                return entry
            slot = slot + 1 if slot + 1 < self.size else 0
        return EMPTY

    def insert(self, hashes: Hashes, entries: Longs) -> None:
        """Put entries, all different, into free slots; there is room for them."""
        wanted = hashes.view(np.int64)
        places = self._free(self.homes(hashes))
        self.used += entries.size
        while True:
            # Several may want the same slot: the last one written has it, the others look on.
            self.write(places, entries)
            lost = np.flatnonzero(self._entries(places) != entries)
            if not lost.size:
                self._flat[places * 2] = wanted
                return
            self._settle(places, wanted, lost)
            wanted, entries = wanted[lost], entries[lost]
            places = self._free(places[lost])

    def _settle(self, places: Longs, wanted: Longs, lost: Longs) -> None:
        won = np.ones(places.size, np.bool_)
        won[lost] = False
        self._flat[places[won] * 2] = wanted[won]

    def _free(self, places: Longs) -> Longs:
        """Return the first empty slot at or after each place."""
        taken = np.flatnonzero(self._entries(places) != EMPTY)
        while taken.size:
            window = self._wrap(places[taken][:, None] + _WINDOW)
            ended, first = _first(self._entries(window) == EMPTY)
            places[taken] = window.ravel().take(first)
            taken = taken[~ended]
        return places

    def remove(self, places: Longs) -> None:
        """Note that the keys of slots are deleted."""
        self.write(places, np.full(places.size, GONE))
        self.gone += places.size

    # -- moving --------------------------------------------------------------------------------------------------------

    def run(self, place: int) -> int:
        """Return how many slots from one on, behind the end those at the beginning, come before an empty one."""
        length = 0
        while True:
            window = self._wrap(place + np.arange(length, length + _RUN))
            empty = self._entries(window) == EMPTY
            if empty.any():
                return length + int(empty.argmax())
            length += _RUN

    def cut(self, place: int, count: int) -> tuple[Hashes, Longs]:
        """Take out what lies in slots from one on, and leave them empty; return hashes and entries."""
        pieces = []
        while count:
            part = self._slots[place : place + count]
            self.used -= int(np.count_nonzero(part[:, ENTRY]))
            pieces.append(part[part[:, ENTRY] > 0])
            part[:] = EMPTY
            self._give_back(place, place + len(part))
            count -= len(part)
            place = 0
        found = np.concatenate(pieces)
        return np.ascontiguousarray(found[:, HASH]).view(np.uint64), found[:, ENTRY].copy()

    def _give_back(self, start: int, stop: int) -> None:
        """Let the system have the pages of empty slots, where it gives zeros again when they are touched."""
        if self._own is None or not sys.platform.startswith("linux"):
            return
        first = -(-start * SLOT_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE
        length = stop * SLOT_BYTES // mmap.PAGESIZE * mmap.PAGESIZE - first
        if length > 0:
            self._own.madvise(mmap.MADV_DONTNEED, first, length)


def _first(ends: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.bool_], Longs]:
    """Return for each row whether it has an end, and the flat index of its first one, or of its last element."""
    width = ends.shape[1]
    first = ends.argmax(axis=1)
    row = np.arange(first.size) * width
    ended = ends.ravel().take(row + first)
    return ended, row + np.where(ended, first, width - 1)
