"""The indexes of live rows by key and by the first columns of a key.

The first is an open-addressing table from hashes to log offsets, probed for whole batches at once.

Different keys may have the same hash, so the caller compares keys: `HashIndex.find` gives a first candidate,
`HashIndex.find_next` the one after it. Not safe in several threads; the store has a lock for that.

A table that is full or littered is moved into another of the right size step by step, a few slots with every change, so
that no single call pays for it. It is moved in the order of hashes, so each key is in one table only, and what was moved needs
no more memory there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.server.kv.keys.key_hashes import Hashes, KeyHash, Longs
from fluss_lab.server.kv.keys.row_equality import Mask, equal_across
from fluss_lab.server.kv.keys.slot_table import SlotTable
from fluss_lab.server.kv.row_chunks import Chunk, check_gathered, no_rows, take_columns

#: 16 kB: a bucket without rows should cost next to nothing.
SIZE_MIN: Final = 1 << 10
#: Above so many of the slots used, probes become long; a table is then moved into one of which so many are used: 24 to 35 bytes
#: a key.
FULL: Final = 0.68
ROOMY: Final = 0.46
#: A table that is being left still takes rows, up to here.
CROWDED: Final = 0.85
#: Slots of deleted keys still cost probes: beyond one in five the table is moved.
LITTERED: Final = 0.2
#: Slots moved for each row of a change: a table of n slots is left within n / 16 rows.
PACE: Final = 16
STEP_MIN: Final = 8192
#: Added to a slot's number when it lies in the table that is being left.
_LEFT: Final = 1 << 62


@dataclass(slots=True)
class _Leaving:
    """A table that is being left, home by home.

    Attributes:
        table: The table.
        start: The empty slot with which it began.
        moved: Slots from there on, around the end, that were moved: keys with a home among them are in the other table.
    """

    table: SlotTable
    start: int
    moved: int = 0

    def have_moved(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        homes = self.table.homes(hashes) - self.start
        homes[homes < 0] += self.table.size
        return homes < self.moved

    def has_moved(self, hash: int) -> bool:
        return (self.table.home(hash) - self.start) % self.table.size < self.moved


class HashIndex:
    """Log offsets by the hash of the key.

    Args:
        expected: Rows that will be put in at once; room is made for them.
    """

    def __init__(self, expected: int = 0) -> None:
        self._table = SlotTable(_size_for(expected))
        self._leaving: _Leaving | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of the table; while one is left for another, of the parts in use."""
        if (leaving := self._leaving) is None:
            return self._table.memory_bytes
        moved = min(1.0, leaving.moved / leaving.table.size)
        return int(self._table.memory_bytes * moved + leaving.table.memory_bytes * (1 - moved))

    @property
    def is_moving(self) -> bool:
        """Return whether a table is being left."""
        return self._leaving is not None

    def find(self, hashes: Hashes) -> tuple[Longs, Longs]:
        """Return slot and offset of the first row with each hash; offset -1 where there is none.

        Slots are good until the next insert, and name the row in `relocate`, `remove` and `find_next`.
        """
        leaving = self._leaving
        if leaving is None:
            slots, entries = self._table.search(hashes, self._table.homes(hashes))
            return slots, entries - 1
        moved = leaving.have_moved(hashes)
        return self._in_both(~moved, lambda table, chosen: table.search(hashes[chosen], table.homes(hashes[chosen])))

    def _in_both(
        self, in_left: npt.NDArray[np.bool_], search: Callable[[SlotTable, npt.NDArray[np.bool_]], tuple[Longs, Longs]]
    ) -> tuple[Longs, Longs]:
        """Return slots and offsets of what is searched, some of it in the table that is being left."""
        slots, entries = np.empty(in_left.size, np.int64), np.empty(in_left.size, np.int64)
        here = ~in_left
        slots[here], entries[here] = search(self._table, here)
        if self._leaving is not None and in_left.any():
            places, entries[in_left] = search(self._leaving.table, in_left)
            slots[in_left] = places + _LEFT
        return slots, entries - 1

    def find_one(self, hash: int) -> int:
        """Return the offset of the first row with one hash, as `find` does for many; -1 where there is none."""
        leaving = self._leaving
        table = self._table if leaving is None or leaving.has_moved(hash) else leaving.table
        return table.first(hash) - 1

    def find_few(self, hashes: Sequence[int]) -> Longs:
        """Return the offsets of the first rows with some hashes, as `find` does for many; -1 where there is none."""
        return np.array([self.find_one(each) for each in hashes], np.int64)

    def find_next(self, hashes: Hashes, slots: Longs) -> tuple[Longs, Longs]:
        """Return slot and offset of the next row with the same hash after each slot; offset -1 where there is none."""
        return self._in_both(
            slots >= _LEFT, lambda table, chosen: table.search(hashes[chosen], (slots[chosen] & (_LEFT - 1)) + 1)
        )

    def relocate(self, slots: Longs, offsets: Longs) -> None:
        """Give the rows in these slots other offsets."""
        if self._leaving is not None:
            left = slots >= _LEFT
            self._leaving.table.write(slots[left] - _LEFT, offsets[left] + 1)
            slots, offsets = slots[~left], offsets[~left]
        self._table.write(slots, offsets + 1)

    def remove(self, slots: Longs) -> None:
        """Forget the rows in these slots."""
        self._count -= slots.size
        if self._leaving is not None:
            left = slots >= _LEFT
            self._leaving.table.remove(slots[left] - _LEFT)
            slots = slots[~left]
        self._table.remove(slots)

    def insert(self, hashes: Hashes, offsets: Longs) -> None:
        """Put in rows of keys that have none. Slots found before are void now.

        Cost: some 30 ns a row, and `PACE` slots moved for each when a table is being left.
        """
        self._make_room(offsets.size)
        self._count += offsets.size
        if not offsets.size:
            return
        leaving = self._leaving
        if leaving is None:
            self._table.insert(hashes, offsets + 1)
            return
        moved = leaving.have_moved(hashes)
        self._table.insert(hashes[moved], offsets[moved] + 1)
        leaving.table.insert(hashes[~moved], offsets[~moved] + 1)

    def advance(self, rows: int) -> None:
        """Move some slots of a table that is being left, in proportion to the rows of a change. Voids slots."""
        if self._leaving is None and self._table.gone > LITTERED * self._table.size:
            self._begin(0)
        if self._leaving is not None:
            self._move(max(STEP_MIN, PACE * rows))

    def _make_room(self, rows: int) -> None:
        leaving = self._leaving
        if leaving is not None:
            is_crowded = leaving.table.used + rows > CROWDED * leaving.table.size
            if is_crowded or self._table.used + rows > FULL * self._table.size:
                self._finish()
        # What was just moved may have been the whole trouble's cause or its cure: look again.
        if self._leaving is None and self._table.used + rows > FULL * self._table.size:
            self._begin(rows)

    def _begin(self, rows: int) -> None:
        """Leave the table for one of the right size; at once, if it is small or the rows too many for it."""
        left = self._table
        self._leaving = _Leaving(left, left.run(0))
        self._table = SlotTable(_size_for(self._count + rows))
        if left.size <= STEP_MIN or left.used + rows > CROWDED * left.size:
            self._finish()

    def _finish(self) -> None:
        while self._leaving is not None:
            self._move(self._leaving.table.size)

    def _move(self, slots: int) -> None:
        leaving = self._leaving
        assert leaving is not None
        table = leaving.table
        first = (leaving.start + leaving.moved) % table.size
        count = min(slots, table.size - leaving.moved)
        # Up to an empty slot: what is pushed behind its home is moved with it.
        count += table.run((first + count) % table.size)
        hashes, entries = table.cut(first, count)
        leaving.moved += count
        due = leaving.have_moved(hashes)
        if not due.all():
            # Of keys whose homes are at the far end of a full table: they lie behind it, at its beginning.
            table.insert(hashes[~due], entries[~due])
        self._table.insert(hashes[due], entries[due])
        if leaving.moved >= table.size:
            self._leaving = None


def _size_for(rows: int) -> int:
    return max(SIZE_MIN, int(rows / ROOMY))


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
