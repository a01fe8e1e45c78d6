"""The derivation of a changelog from operations: a batch's changes to the rows of a store, before anything happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.errors import CorruptDataError
from fluss_lab.model.changes import ChangeType
from fluss_lab.server.kv.keys.key_hashes import Hashes, Longs
from fluss_lab.server.kv.keys.row_equality import Mask, equal_rows
from fluss_lab.server.kv.merge_engines import Operations
from fluss_lab.server.kv.row_chunks import no_rows

NONE: Final = -1
_INSERT, _BEFORE, _AFTER, _DELETE = (
    np.int8(kind) for kind in (ChangeType.INSERT, ChangeType.UPDATE_BEFORE, ChangeType.UPDATE_AFTER, ChangeType.DELETE)
)


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change does to the index and the chunks.

    Attributes:
        rows: The new live rows, in the current schema.
        offsets: Their log offsets, ascending.
        ended: Offsets of the rows that are live no more.
        moved: Index slots whose row has now another offset: the slots, and the offsets.
        removed: Index slots of keys that are deleted.
        added: Keys that had no row: hashes and offsets.
    """

    rows: pa.RecordBatch
    offsets: Longs
    ended: Longs
    moved: tuple[Longs, Longs]
    removed: Longs
    added: tuple[Hashes, Longs]


@dataclass(frozen=True, slots=True)
class KvChange:
    """A changelog that was worked out, and what it does. Nothing has happened yet: see `KvStore.commit`.

    Attributes:
        rows: The changelog, in the current schema.
        change_types: One byte a record: +I 1, -U 2, +U 3, -D 4.
        previous_offsets: int64: for -U, +U and -D the offset of the row ended or replaced; -1 for +I. Rows of the same
            batch count from `base_offset`.
        base_offset: Log offset that the first record must get.
        effect: For the store; None when nothing changes.
        state: Number of the store's state that it was worked out from.
    """

    rows: pa.RecordBatch
    change_types: bytes
    previous_offsets: Longs
    base_offset: int
    effect: Effect | None
    state: int

    @property
    def next_offset(self) -> int:
        """Return the log offset after the last record."""
        return self.base_offset + int(self.rows.num_rows)


@dataclass(frozen=True, slots=True)
class PresentRows:
    """What the index has for the keys of a batch. Arrays have an element for each key, by its number.

    Attributes:
        hashes: Hash of the key.
        slots: Slot of its row in the index; meaningless where there is none.
        offsets: Offset of its row; -1 where there is none.
        at: Index of its row among those gathered; -1 where there is none.
    """

    hashes: Hashes
    slots: Longs
    offsets: Longs
    at: Longs


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """Rows to choose from: first those of the batch, then the present rows of its keys.

    Attributes:
        columns: All columns of the schema.
        batch_rows: How many of the rows are of the batch.
        schema: The current one.
    """

    columns: list[pa.Array]
    batch_rows: int
    schema: pa.Schema

    @staticmethod
    def of(columns: list[pa.Array], old: Sequence[pa.Array], schema: pa.Schema) -> ChangeSource:
        """Return the columns of a batch with those of its keys' present rows behind them."""
        count = len(columns[0])
        if len(old[0]):
            columns = [pa.concat_arrays([column, more]) for column, more in zip(columns, old, strict=True)]
        return ChangeSource(columns, count, schema)

    def take(self, chosen: Longs) -> pa.RecordBatch:
        """Return some rows, in memory of their own."""
        return pa.RecordBatch.from_arrays(self.columns, schema=self.schema).take(pa.array(chosen))


def empty(base_offset: int, state: int, schema: pa.Schema) -> KvChange:
    """Return the change that changes nothing."""
    return KvChange(no_rows(schema), b"", np.zeros(0, np.int64), base_offset, None, state)


def resolve(
    operations: Operations,
    present: PresentRows,
    source: ChangeSource,
    compared: list[int],
    base_offset: int,
    state: int,
) -> KvChange:
    """Work out a changelog: every operation meets the row that the ones before it left.

    Args:
        operations: Of full rows, as the merge engine let them through.
        present: What the index has for each key.
        source: The rows.
        compared: Columns by which an upsert changes anything: all but the key's.
        base_offset: Offset of the first record.
        state: Of the store.
    """
    unique = present.offsets.size >= operations.groups.size and _is_unique(operations.groups)
    met = _meet(operations, present, source, unique)
    works = _works(operations, met, source, compared)
    if not works.any():
        return empty(base_offset, state, source.schema)
    if not works.all():
        operations = operations.select(works)
        # The rows met are the same as before, but an earlier operation may have put them there.
        met = _meet(operations, present, source, unique)
    return _Changelog(operations, present, source, met, unique).change(base_offset, state)


def _is_unique(groups: Longs) -> bool:
    counts = np.zeros(int(groups.max(initial=-1)) + 1, np.int64)
    counts[groups] = np.arange(groups.size)
    return bool((counts[groups] == np.arange(groups.size)).all())


@dataclass(frozen=True, slots=True)
class _Met:
    """What each operation meets.

    Attributes:
        rows: Index in the source of the row that its key has then; -1 for none.
        previous: The operation before it of the same key; -1 for none.
    """

    rows: Longs
    previous: Longs


def _meet(operations: Operations, present: PresentRows, source: ChangeSource, unique: bool) -> _Met:
    at = present.at[operations.groups]
    rows = np.where(at >= 0, at + source.batch_rows, NONE)
    if unique:
        return _Met(rows, np.full(rows.size, NONE, np.int64))
    previous = operations.previous()
    again = previous >= 0
    before = previous[again]
    rows[again] = np.where(operations.upserts[before], operations.rows[before], NONE)
    return _Met(rows, previous)


def _works(operations: Operations, met: _Met, source: ChangeSource, compared: list[int]) -> Mask:
    """Return which operations change anything: not deletes of nothing, nor upserts of what is there already."""
    works = operations.upserts | (met.rows >= 0)
    candidates = np.flatnonzero(operations.upserts & (met.rows >= 0))
    if candidates.size:
        columns = [source.columns[index] for index in compared]
        works[candidates] = ~equal_rows(columns, operations.rows[candidates], met.rows[candidates])
    return works


class _Changelog:
    """The records of operations all of which change something."""

    def __init__(
        self, operations: Operations, present: PresentRows, source: ChangeSource, met: _Met, unique: bool
    ) -> None:
        self._operations = operations
        self._present = present
        self._source = source
        self._met = met
        self._unique = unique
        self._replaces = met.rows >= 0
        #: Record of each operation's last effect: +I, +U or -D.
        self._record = np.cumsum(1 + (self._replaces & operations.upserts)) - 1

    def change(self, base_offset: int, state: int) -> KvChange:
        offsets = base_offset + self._record
        previous = self._previous_offsets(offsets)
        count = int(self._record[-1]) + 1
        chosen, kinds, ended = self._records(count, previous)
        before = None if self._unique else self._met.previous
        result = effect(self._operations, before, self._present, self._source, offsets)
        if count == self._source.batch_rows == len(self._source.columns[0]) and (kinds == _INSERT).all():
            # All rows of the batch are new, and in order.
            rows = pa.RecordBatch.from_arrays(self._source.columns, schema=self._source.schema)
        else:
            rows = self._source.take(chosen)
        return KvChange(rows, kinds.tobytes(), ended, base_offset, result, state)

    def _previous_offsets(self, offsets: Longs) -> Longs:
        """Return for each operation the offset of the row that it ends; -1 for none."""
        found = self._present.offsets[self._operations.groups]
        if self._unique:
            return found
        again = self._met.previous >= 0
        before = self._met.previous[again]
        found[again] = np.where(self._operations.upserts[before], offsets[before], NONE)
        return found

    def _records(self, count: int, previous: Longs) -> tuple[Longs, npt.NDArray[np.int8], Longs]:
        """Return row, change type and previous offset of each record."""
        operations, record = self._operations, self._record
        chosen = np.empty(count, np.int64)
        kinds = np.empty(count, np.int8)
        ended = np.empty(count, np.int64)
        chosen[record] = np.where(operations.upserts, operations.rows, self._met.rows)
        kinds[record] = np.where(operations.upserts, np.where(self._replaces, _AFTER, _INSERT), _DELETE)
        ended[record] = previous
        both = self._replaces & operations.upserts
        before = record[both] - 1
        chosen[before] = self._met.rows[both]
        kinds[before] = _BEFORE
        ended[before] = previous[both]
        return chosen, kinds, ended


def effect(
    operations: Operations, previous: Longs | None, present: PresentRows, source: ChangeSource, offsets: Longs
) -> Effect:
    """Return what operations all of which change something come to.

    Args:
        operations: In order.
        previous: For each the one before it of the same key, -1 for none; None when all keys differ.
        present: What the index has for each key.
        source: The rows.
        offsets: For each operation the log offset of its +I, +U or -D.
    """
    last: Longs | slice = slice(None) if previous is None else _last(previous)
    groups, upserts = operations.groups[last], operations.upserts[last]
    offsets, rows = offsets[last], operations.rows[last]
    slots, old = present.slots[groups], present.offsets[groups]
    had = old >= 0
    moved, added = had & upserts, ~had & upserts
    return Effect(
        _live_rows(source, rows[upserts]),
        offsets[upserts],
        old[had],
        (slots[moved], offsets[moved]),
        slots[had & ~upserts],
        (present.hashes[groups[added]], offsets[added]),
    )


def _live_rows(source: ChangeSource, rows: Longs) -> pa.RecordBatch:
    """Return rows of the batch in memory of their own: what the batch was cut from (a request) can go."""
    if rows.size == source.batch_rows:
        batch = [column.slice(0, source.batch_rows) for column in source.columns]
        return pa.concat_batches([pa.RecordBatch.from_arrays(batch, schema=source.schema)])
    return source.take(rows)


def _last(previous: Longs) -> Longs:
    """Return the last operation of each key, in order."""
    is_last = np.ones(previous.size, np.bool_)
    is_last[previous[previous >= 0]] = False
    return np.flatnonzero(is_last)


def kinds_of(change_types: bytes, count: int, base_offset: int) -> npt.NDArray[np.int8]:
    """Return the change types of a changelog batch as numbers.

    Raises:
        CorruptDataError: Not one a row, one that no changelog has, or a -U without its +U.
    """
    kinds = np.frombuffer(change_types, np.int8)
    if kinds.size != count:
        raise CorruptDataError(f"changelog at offset {base_offset}: {count} rows with {kinds.size} change types")
    if count and not ((kinds >= ChangeType.INSERT) & (kinds <= ChangeType.DELETE)).all():
        raise CorruptDataError(f"changelog at offset {base_offset}: expected change types 1 to 4, found others")
    before = kinds == ChangeType.UPDATE_BEFORE
    after = kinds == ChangeType.UPDATE_AFTER
    if count and (before[-1] or after[0] or (before[:-1] != after[1:]).any()):
        raise CorruptDataError(f"changelog at offset {base_offset}: expected each -U just before its +U")
    return kinds


def previous_offsets(
    kinds: npt.NDArray[np.int8], operations: Operations, before: Longs, present: PresentRows, base_offset: int
) -> Longs:
    """Return for each record the offset of the row that it ends or replaces; -1 for +I.

    Args:
        kinds: Of all records.
        operations: All records but the -U.
        before: For each operation the one before it of the same key; -1 for none.
        present: What the index has for each key.
        base_offset: Of the batch.

    Raises:
        CorruptDataError: A +I of a key that has a row, or a -U, +U or -D of one that has none.
    """
    ended = present.offsets[operations.groups]
    again = before >= 0
    earlier = before[again]
    ended[again] = np.where(operations.upserts[earlier], base_offset + operations.rows[earlier], -1)
    expected = kinds[operations.rows] != ChangeType.INSERT
    if (wrong := expected != (ended >= 0)).any():
        first = int(np.argmax(wrong))
        there = "none" if ended[first] < 0 else f"one of offset {ended[first]}"
        kind = ChangeType(int(kinds[operations.rows[first]])).symbol
        raise CorruptDataError(
            f"changelog at offset {base_offset + int(operations.rows[first])}: {kind} does not fit the rows there are: "
            f"its key has {there}. The log and the snapshot it is replayed on do not belong together"
        )
    result = np.empty(kinds.size, np.int64)
    result[operations.rows] = ended
    olds = np.flatnonzero(kinds == ChangeType.UPDATE_BEFORE)
    result[olds] = result[olds + 1]
    return result
