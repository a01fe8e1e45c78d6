"""Indexes of rows by their keys, for many keys at a time: where each key is, and which rows have it.

A key is found by a mark of 64 bits in a table of twice as many slots as keys, by linear probing, in rounds over all keys
that are not found yet. Of a single column of numbers or times the mark is the value; of all other keys it is a hash, and the
keys themselves are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.model.bucketing import BUCKETS_MAX, fluss_bucket_ids
from fluss_lab.read.changelog.net_changes import row_codes

Longs: TypeAlias = npt.NDArray[np.int64]
Slots: TypeAlias = npt.NDArray[np.int32]

_SLOTS_MIN: Final = 16
#: The fraction of the golden ratio: its products differ most in their upper bits.
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, eq=False)
class KeyIndex:
    """Where each of some distinct keys is. Threads may share it.

    Attributes:
        keys: The keys, without nulls.
        marks: The mark of each.
        slots: In each slot the number of a key, or -1; a power of two of them, twice as many as keys at least.
    """

    keys: pa.RecordBatch
    marks: Longs
    slots: Slots

    @staticmethod
    def of(keys: pa.RecordBatch) -> KeyIndex:
        """Return the index of distinct keys without nulls. Cost: some 100 ns a key."""
        marks = _marks(keys)
        return KeyIndex(keys, marks, _fill_slots(marks))

    def __len__(self) -> int:
        return int(self.keys.num_rows)

    def extend(self, keys: pa.RecordBatch) -> KeyIndex:
        """Return the index with more keys behind its own, none of which it has. This one is not to be used any more."""
        marks = _marks(keys)
        both = pa.concat_batches([self.keys, keys])
        all_marks = np.concatenate([self.marks, marks])
        if 2 * len(all_marks) > len(self.slots):
            return KeyIndex(both, all_marks, _fill_slots(all_marks))
        _place(self.slots, marks, len(self.marks))
        return KeyIndex(both, all_marks, self.slots)

    def find(self, keys: pa.RecordBatch) -> Longs:
        """Return the number of each key; -1 for one that is not there.

        Args:
            keys: Of the same columns, without nulls.

        Cost: some 20 ns a key of numbers, 100 ns of others.
        """
        marks = _marks(keys)
        slots = _homes(marks, len(self.slots))
        found = np.full(len(marks), -1, dtype=np.int64)
        if not len(self.marks):
            return found
        asked = np.arange(len(marks))
        while len(asked):
            rows = self.slots.take(slots)
            same = self.marks.take(rows, mode="clip") == marks
            same &= rows >= 0
            if not _is_exact(self.keys.schema):
                at = np.flatnonzero(same)
                same[at] = self._equal(rows[at], keys, asked[at])
            found[asked[same]] = rows[same]
            left = np.flatnonzero(~same & (rows >= 0))
            asked, marks = asked[left], marks[left]
            slots = (slots[left] + 1) & (len(self.slots) - 1)
        return found

    def _equal(self, rows: Slots, keys: pa.RecordBatch, asked: Longs) -> npt.NDArray[np.bool_]:
        """Return whether keys of the index are the same as keys asked for."""
        equal = np.ones(len(rows), dtype=np.bool_)
        if not len(rows):
            return equal
        ours, theirs = pa.array(rows), pa.array(asked)
        for one, other in zip(self.keys.columns, keys.columns, strict=True):
            wanted = other if len(asked) == len(other) else other.take(theirs)
            equal &= pc.equal(one.take(ours), wanted).to_numpy(zero_copy_only=False)
        return equal


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Runs of rows: of each group where its rows begin in some order, and how many they are.

    Attributes:
        starts: The place of each group's first row.
        counts: The number of its rows.
        order: The rows in that order; None: as they are.
    """

    starts: Longs
    counts: Longs
    order: Longs | None = None

    @staticmethod
    def of_sorted(groups: Longs, count: int) -> Groups:
        """Return the runs of rows that lie group by group already; some of `count` groups may have none."""
        counts = np.bincount(groups, minlength=count)
        return Groups(np.cumsum(counts) - counts, counts)

    def expand(self, groups: Longs) -> tuple[Longs, Longs]:
        """Return the rows of groups.

        Args:
            groups: A group for each position; -1 for none.

        Returns:
            Positions, ascending, and the row of each; a position has as many as its group.
        """
        positions = np.flatnonzero(groups >= 0)
        chosen = groups[positions]
        counts = self.counts[chosen]
        ends = np.cumsum(counts)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
        rows = np.repeat(self.starts[chosen], counts) + within
        return np.repeat(positions, counts), rows if self.order is None else self.order[rows]


@dataclass(frozen=True, slots=True, eq=False)
class KeyedRows:
    """Rows by the values of some of their columns. Threads may share it.

    Attributes:
        rows: The rows.
        index: Of the distinct values of these columns.
        groups: The rows of each; None: one each, in their order.
    """

    rows: pa.RecordBatch
    index: KeyIndex
    groups: Groups | None

    @staticmethod
    def of(rows: pa.RecordBatch, names: Sequence[str], *, is_unique: bool) -> KeyedRows:
        """Return rows by columns; a row with a null in one of them has no key.

        Args:
            is_unique: Whether no two rows are the same in these columns, and none has a null there.
        """
        keys = rows.select(list(names))
        if is_unique:
            return KeyedRows(rows, KeyIndex.of(keys), None)
        whole = np.ones(rows.num_rows, dtype=np.bool_)
        for column in keys.columns:
            if column.null_count:
                whole &= column.is_valid().to_numpy(zero_copy_only=False)
        at = np.flatnonzero(whole)
        keys = keys if len(at) == len(whole) else keys.take(pa.array(at))
        codes, count = row_codes(keys.columns)
        counts, order = np.bincount(codes, minlength=count), np.argsort(codes, kind="stable")
        starts = np.cumsum(counts) - counts
        firsts = keys.take(pa.array(order[starts]))
        return KeyedRows(rows, KeyIndex.of(firsts), Groups(starts, counts, at[order]))

    def match(self, keys: pa.RecordBatch) -> tuple[Longs, Longs]:
        """Return the rows of keys: positions, ascending, and the row of each."""
        found = self.index.find(keys)
        if self.groups is None:
            positions = np.flatnonzero(found >= 0)
            return positions, found[positions]
        return self.groups.expand(found)


def distinct(keys: pa.RecordBatch) -> tuple[pa.RecordBatch, Longs]:
    """Return the distinct ones of keys without nulls, in the order of their first, and for each key which it is."""
    codes, count = row_codes(keys.columns)
    if count == keys.num_rows:
        return keys, np.arange(count)
    firsts = np.empty(count, dtype=np.int64)
    firsts[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return keys.take(pa.array(firsts)), codes


def merge_found(*found: tuple[Longs, pa.RecordBatch]) -> tuple[Longs, pa.RecordBatch]:
    """Return the rows of several findings as one, by the positions that they are for."""
    several = [each for each in found if len(each[0])] or found[:1]
    positions, rows = several[0]
    if len(several) > 1:
        positions, rows = (
            np.concatenate([each[0] for each in several]),
            pa.concat_batches([each[1] for each in several]),
        )
    if len(positions) < 2 or (np.diff(positions) >= 0).all():
        return positions, rows
    order = np.argsort(positions, kind="stable")
    return positions[order], rows.take(pa.array(order))


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return no rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _is_exact(schema: pa.Schema) -> bool:
    """Return whether a key's mark is its value."""
    if len(schema) != 1:
        return False
    kind = schema.field(0).type
    return any(is_a(kind) for is_a in (pa.types.is_integer, pa.types.is_temporal, pa.types.is_boolean))


def _marks(keys: pa.RecordBatch) -> Longs:
    if not _is_exact(keys.schema):
        hashes: Longs = fluss_bucket_ids(keys.columns, BUCKETS_MAX).to_numpy().astype(np.int64)
        return hashes
    column = keys.column(0)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    values: Longs = column.view(f"int{column.type.bit_width}").to_numpy().astype(np.int64)
    return values


def _homes(marks: Longs, slots: int) -> Longs:
    """Return the slot where each mark is looked for first."""
    homes: Longs = ((marks.view(np.uint64) * _SPREAD) >> np.uint64(65 - slots.bit_length())).view(np.int64)
    return homes


def _fill_slots(marks: Longs) -> Slots:
    slots = np.full(max(_SLOTS_MIN, 1 << (2 * len(marks) - 1).bit_length()) if len(marks) else _SLOTS_MIN, -1, np.int32)
    _place(slots, marks, 0)
    return slots


def _place(slots: Slots, marks: Longs, first: int) -> None:
    """Put keys into slots, numbered from `first` on."""
    rows = np.arange(first, first + len(marks), dtype=np.int32)
    at = _homes(marks, len(slots))
    while len(rows):
        free = slots[at] < 0
        # Of several that want one slot the last gets it; the others go on.
        slots[at[free]] = rows[free]
        left = slots[at] != rows
        rows, at = rows[left], (at[left] + 1) & (len(slots) - 1)
