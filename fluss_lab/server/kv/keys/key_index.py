"""The indexes of live rows by key and by the first columns of a key.

The first is an open-addressing table from hashes to log offsets, probed for whole batches at once.

Different keys may have the same hash, so the caller compares keys: `HashIndex.find` gives a first candidate,
`HashIndex.find_next` the one after it. Not safe in several threads; the store has a lock for that.

A table that is full or littered is moved into another of the right size step by step, a few slots with every change, so
that no single call pays for it. Meanwhile both tables are searched; inserts go into the new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.server.kv.keys.key_hashes import Hashes, KeyHash, Longs
from fluss_lab.server.kv.keys.row_equality import Mask, equal_across
from fluss_lab.server.kv.row_chunks import Chunk, check_gathered, no_rows, take_columns

#: 16 kB: a bucket without rows should cost next to nothing.
BITS_MIN: Final = 10
#: Above 6 of 10 slots used, probes become long; a table is then moved into one that is at most half full.
FULL: Final = 0.6
HALF: Final = 0.5
#: Slots of deleted keys still cost probes: beyond one in five the table is moved.
LITTERED: Final = 0.2
#: Slots moved for each row of a change. A table of n slots is at least 0.1 n rows from the next move: 16 ends in time.
PACE: Final = 16
STEP_MIN: Final = 8192
#: From here on the next table is made ready: its memory is touched, some slots for each row, because the system gives
#: 512 MB slowly (0.1 s and more) and rows fall on all of it at once. Twice as many slots are needed within a twentieth of
#: the present ones: 64 for each row are in time.
READY: Final = 0.55
READY_PACE: Final = 64
#: 4 MB and less come quickly enough.
READY_SLOTS_MIN: Final = 1 << 18
_HASH, _ENTRY = 0, 1
#: Entries: 0 for a slot never used, -1 for one whose key was deleted, else the offset and one.
_EMPTY, _GONE = 0, -1
#: Added to a slot's number when it lies in the table that is being left.
_LEFT: Final = 1 << 62
#: Slots looked at together once the first one did not answer: two cache lines.
_WINDOW: Final = np.arange(1, 9)


@dataclass
class _Table:
    """Slots of (hash, entry) with linear probing; its size is a power of two."""

    bits: int
    #: Slots that are not empty.
    used: int = 0
    gone: int = 0

    def __post_init__(self) -> None:
        # Zeros come page by page when they are touched: no stall, however large the table.
        self.slots: npt.NDArray[np.int64] = np.zeros((1 << self.bits, 2), np.int64)
        # The same numbers in a row: taking single ones from it is several times faster.
        self._flat = self.slots.reshape(-1)
        self.mask = (1 << self.bits) - 1
        self._shift = np.uint64(64 - self.bits)

    @property
    def size(self) -> int:
        return self.mask + 1

    def homes(self, hashes: Hashes) -> Longs:
        return (hashes >> self._shift).view(np.int64)

    def entries(self, places: Longs) -> Longs:
        return self._flat.take(places * 2 + _ENTRY)

    def write(self, places: Longs, entries: Longs) -> None:
        self._flat[places * 2 + _ENTRY] = entries

    def search(self, hashes: Hashes, places: Longs) -> tuple[Longs, Longs]:
        """Return slot and entry of the first match at or after each place; the entry is 0 where there is none."""
        wanted = hashes.view(np.int64)
        places = places & self.mask
        found = self.slots.take(places, axis=0)
        entries = found[:, _ENTRY].copy()
        active = np.flatnonzero((entries != _EMPTY) & ((found[:, _HASH] != wanted) | (entries == _GONE)))
        while active.size:
            window = (places[active][:, None] + _WINDOW) & self.mask
            found = self.slots.take(window.ravel(), axis=0).reshape(*window.shape, 2)
            entry = found[:, :, _ENTRY]
            ends = (entry == _EMPTY) | ((found[:, :, _HASH] == wanted[active][:, None]) & (entry > 0))
            ended, first = _first(ends)
            places[active] = window.ravel().take(first)
            entries[active] = np.where(ended, entry.ravel().take(first), _EMPTY)
            active = active[~ended]
        return places, entries

    def first(self, hash: int) -> int:
        """Return the entry of the first match of one hash, as `search` does for many; 0 where there is none."""
        wanted = hash - (1 << 64) if hash >> 63 else hash
        slot, item = hash >> (64 - self.bits), self._flat.item
        while (entry := item(2 * slot + _ENTRY)) != _EMPTY:
            if entry != _GONE and item(2 * slot + _HASH) == wanted:
                return entry
            slot = (slot + 1) & self.mask
        return _EMPTY

    def insert(self, hashes: Hashes, entries: Longs) -> None:
        """Put entries, all different, into free slots; room was made before."""
        wanted = hashes.view(np.int64)
        places = self._free(self.homes(hashes))
        self.used += entries.size
        while True:
            # Several may want the same slot: the last one written has it, the others look on.
            self.write(places, entries)
            lost = np.flatnonzero(self.entries(places) != entries)
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
        taken = np.flatnonzero(self.entries(places) != _EMPTY)
        while taken.size:
            window = (places[taken][:, None] + _WINDOW) & self.mask
            ended, first = _first(self.entries(window) == _EMPTY)
            places[taken] = window.ravel().take(first)
            taken = taken[~ended]
        return places

    def remove(self, places: Longs) -> None:
        self.write(places, np.full(places.size, _GONE))
        self.gone += places.size


def _first(ends: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.bool_], Longs]:
    """Return for each row whether it has an end, and the flat index of its first one, or of its last element."""
    width = ends.shape[1]
    first = ends.argmax(axis=1)
    row = np.arange(first.size) * width
    ended = ends.ravel().take(row + first)
    return ended, row + np.where(ended, first, width - 1)


class HashIndex:
    """Log offsets by the hash of the key.

    Args:
        expected: Rows that will be put in at once; room is made for them.
    """

    def __init__(self, expected: int = 0) -> None:
        self._table = _Table(_bits_for(expected))
        self._left: _Table | None = None
        self._moved = 0
        self._next: _Table | None = None
        self._touched = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of the tables; of one that is made ready, of the part that was touched."""
        tables = (self._table, self._left)
        ready = 0 if self._next is None else min(self._touched, self._next.size) * self._next.slots.itemsize * 2
        return ready + sum(table.slots.nbytes for table in tables if table is not None)

    @property
    def is_moving(self) -> bool:
        """Return whether a table is being left."""
        return self._left is not None

    def find(self, hashes: Hashes) -> tuple[Longs, Longs]:
        """Return slot and offset of the first row with each hash; offset -1 where there is none.

        Slots are good until the next insert, and name the row in `replace`, `remove` and `find_next`.
        """
        slots, entries = self._table.search(hashes, self._table.homes(hashes))
        self._search_left(hashes, slots, entries)
        return slots, entries - 1

    def find_one(self, hash: int) -> int:
        """Return the offset of the first row with one hash, as `find` does for many; -1 where there is none."""
        entry = self._table.first(hash)
        if entry == _EMPTY and self._left is not None:
            entry = self._left.first(hash)
        return entry - 1

    def find_next(self, hashes: Hashes, slots: Longs) -> tuple[Longs, Longs]:
        """Return slot and offset of the next row with the same hash after each slot; offset -1 where there is none."""
        slots = slots.copy()
        entries = np.zeros(slots.size, np.int64)
        here = slots < _LEFT
        slots[here], entries[here] = self._table.search(hashes[here], slots[here] + 1)
        self._search_left(hashes, slots, entries, here)
        there = ~here
        if self._left is not None and there.any():
            places, entries[there] = self._left.search(hashes[there], slots[there] - _LEFT + 1)
            slots[there] = places + _LEFT
        return slots, entries - 1

    def _search_left(
        self, hashes: Hashes, slots: Longs, entries: Longs, among: npt.NDArray[np.bool_] | None = None
    ) -> None:
        """Search the table that is being left for what the other one does not have, in place."""
        if self._left is None:
            return
        missing = entries == _EMPTY
        rest = np.flatnonzero(missing if among is None else missing & among)
        if rest.size:
            places, entries[rest] = self._left.search(hashes[rest], self._left.homes(hashes[rest]))
            slots[rest] = places + _LEFT

    def relocate(self, slots: Longs, offsets: Longs) -> None:
        """Give the rows in these slots other offsets."""
        if self._left is not None:
            left = slots >= _LEFT
            self._left.write(slots[left] - _LEFT, offsets[left] + 1)
            slots, offsets = slots[~left], offsets[~left]
        self._table.write(slots, offsets + 1)

    def remove(self, slots: Longs) -> None:
        """Forget the rows in these slots."""
        self._count -= slots.size
        if self._left is not None:
            left = slots >= _LEFT
            self._left.remove(slots[left] - _LEFT)
            slots = slots[~left]
        self._table.remove(slots)

    def insert(self, hashes: Hashes, offsets: Longs) -> None:
        """Put in rows of keys that have none. Slots found before are void now.

        Cost: some 30 ns a row, and `PACE` slots moved for each when a table is being left.
        """
        self._make_room(offsets.size)
        self._count += offsets.size
        if offsets.size:
            self._table.insert(hashes, offsets + 1)

    def advance(self, rows: int) -> None:
        """Move some slots of a table that is being left, in proportion to the rows of a change. Voids slots."""
        if self._left is None and self._table.gone > LITTERED * self._table.size:
            self._begin(0)
        if self._left is not None:
            self._move(max(STEP_MIN, PACE * rows))
        elif self._table.size >= READY_SLOTS_MIN and self._table.used > READY * self._table.size:
            self._get_ready(READY_PACE * rows)

    def _get_ready(self, slots: int) -> None:
        """Touch some of the memory of the table that comes next."""
        bits = _bits_for(int(self._count * FULL / READY))
        if self._next is None or self._next.bits != bits:
            self._next, self._touched = _Table(bits), 0
        self._next.slots[self._touched : self._touched + slots] = _EMPTY
        self._touched += slots

    def _make_room(self, rows: int) -> None:
        if self._table.used + rows <= FULL * self._table.size:
            return
        if self._left is not None:
            self._move(self._left.size)
        # What was just moved may have been the whole trouble's cause or its cure: look again.
        if self._table.used + rows > FULL * self._table.size:
            self._begin(rows)

    def _begin(self, rows: int) -> None:
        """Leave the table for one of the right size; a small one at once."""
        self._left, self._moved = self._table, 0
        bits = _bits_for(self._count + rows)
        ready, self._next = self._next, None
        self._table = ready if ready is not None and ready.bits == bits else _Table(bits)
        if self._left.size <= STEP_MIN:
            self._move(STEP_MIN)

    def _move(self, slots: int) -> None:
        left = self._left
        assert left is not None
        part = left.slots[self._moved : self._moved + slots]
        chosen = part[part[:, _ENTRY] > 0]
        if len(chosen):
            self._table.insert(np.ascontiguousarray(chosen[:, _HASH]).view(np.uint64), chosen[:, _ENTRY].copy())
            # Not empty, so that searches go on past it; not found, because the other table has it now.
            part[part[:, _ENTRY] > 0, _ENTRY] = _GONE
        self._moved += slots
        if self._moved >= left.size:
            self._left = None


def _bits_for(rows: int) -> int:
    return max(BITS_MIN, int(rows / HALF).bit_length())


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The rows of a chunk sorted by the hash of some columns.

    Attributes:
        columns: Which.
        hashes: Ascending.
        rows: The rows, in that order.
    """

    columns: tuple[int, ...]
    hashes: Hashes
    rows: npt.NDArray[np.int32]

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of both arrays: 12 a row."""
        return self.hashes.nbytes + self.rows.nbytes


def sidecar(chunk: Chunk, columns: tuple[int, ...], hashing: KeyHash) -> Sidecar:
    """Return a chunk's sidecar, which is made when it has none.

    Cost: when it is made, some 100 ns a row.
    """
    held = chunk.sidecar
    if isinstance(held, Sidecar) and held.columns == columns:
        return held
    hashes = hashing.of([chunk.data.rows.column(index) for index in columns])
    order = np.argsort(hashes)
    made = Sidecar(columns, hashes[order], order.astype(np.int32))
    chunk.sidecar = made
    return made


def prefix_rows(
    parts: Sequence[tuple[Chunk, Mask]],
    prefixes: Sequence[pa.Array],
    columns: tuple[int, ...],
    hashing: KeyHash,
    wanted: Sequence[int],
    schema: pa.Schema,
) -> tuple[npt.NDArray[np.int32], pa.RecordBatch]:
    """Return how many live rows each prefix has, and the rows: prefix by prefix, those of one in order of their offset.

    Args:
        parts: Chunks in order of their offsets, and which of their rows are live.
        prefixes: Columns of the prefixes, without nulls.
        columns: Indexes of the prefix columns.
        hashing: The store's.
        wanted: Columns of the answer.
        schema: The current one.

    Raises:
        RecordTooLargeError: The rows are too many to be gathered at once.
    """
    hashes = hashing.of(prefixes)
    owners: list[Longs] = []
    gathered: list[list[pa.Array]] = []
    found: list[tuple[Chunk, Longs]] = []
    for chunk, live in parts:
        owner, rows = _matches(chunk, live, prefixes, columns, hashes, hashing)
        if owner.size:
            found.append((chunk, rows))
            check_gathered(found)
            owners.append(owner)
            gathered.append(take_columns(chunk, rows, wanted, schema))
    answer = pa.schema([schema.field(index) for index in wanted])
    counts = np.zeros(hashes.size, np.int32)
    if not owners:
        return counts, no_rows(answer)
    owner = np.concatenate(owners)
    np.add.at(counts, owner, 1)
    order = pa.array(np.argsort(owner, kind="stable"))
    arrays = [pa.concat_arrays(list(column)).take(order) for column in zip(*gathered, strict=True)]
    return counts, pa.RecordBatch.from_arrays(arrays, schema=answer)


def _matches(
    chunk: Chunk, live: Mask, prefixes: Sequence[pa.Array], columns: tuple[int, ...], hashes: Hashes, hashing: KeyHash
) -> tuple[Longs, Longs]:
    """Return the live rows of a chunk that have one of the prefixes, ascending, and which prefix each has."""
    sorted_rows = sidecar(chunk, columns, hashing)
    starts = np.searchsorted(sorted_rows.hashes, hashes, "left")
    counts = np.searchsorted(sorted_rows.hashes, hashes, "right") - starts
    owner = np.repeat(np.arange(hashes.size), counts)
    within = np.arange(owner.size) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = sorted_rows.rows[starts[owner] + within].astype(np.int64)
    alive = live[rows]
    owner, rows = owner[alive], rows[alive]
    if owner.size:
        real = [chunk.data.rows.column(index) for index in columns]
        same = equal_across(prefixes, owner, real, rows)
        owner, rows = owner[same], rows[same]
    order = np.argsort(rows, kind="stable")
    return owner[order], rows[order]
