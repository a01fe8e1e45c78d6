"""The merge of a batch of upserts and deletes: Apache Fluss's merge engines, partial updates and delete behaviors.

Source: Fluss ``RowMerger`` (``DefaultRowMerger``, ``FirstRowRowMerger``, ``VersionedRowMerger``), ``PartialUpdater``,
``DeleteBehavior``, ``KvTablet.processKvRecords``. Beyond Fluss: an upsert of a row just as it is changes nothing, and a
partial update is refused only where it would leave a NOT NULL column without a value, not for the whole table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import InvalidRecordError
from fluss_lab.model.config import options
from fluss_lab.model.descriptor import TableDescriptor
from fluss_lab.records.row_sizes import check_rows
from fluss_lab.server.kv.keys.key_hashes import Longs
from fluss_lab.server.kv.keys.row_equality import Mask
from fluss_lab.server.kv.row_checks import RowChecks

#: A null version is older than all others, as in Fluss.
VERSION_MIN: Final = int(np.iinfo(np.int64).min)


@dataclass(frozen=True, slots=True)
class MergeRules:
    """How rows of one key are merged.

    Attributes:
        engine: ``default``, ``first_row`` or ``versioned``.
        deletes: ``allow``, ``ignore`` or ``disable``.
        version_column: Index of the version column; -1 unless the engine is ``versioned``.
    """

    engine: str
    deletes: str
    version_column: int = -1

    @staticmethod
    def of(descriptor: TableDescriptor) -> MergeRules:
        """Return the rules of a primary-key table whose definition was checked (`make_descriptor`)."""
        engine = options.MERGE_ENGINE.of(descriptor.properties)
        deletes = options.DELETE_BEHAVIOR.of(descriptor.properties)
        if deletes == "default":
            deletes = "allow" if engine == "default" else "ignore"
        if engine != "versioned":
            return MergeRules(engine, deletes)
        name = options.VERSION_COLUMN.of(descriptor.properties)
        return MergeRules(engine, deletes, descriptor.schema.names.index(name))


@dataclass(frozen=True, slots=True)
class Operations:
    """What is to be done, in order. Arrays have an element for each operation.

    Attributes:
        rows: Which row of the batch it is about.
        upserts: Whether it upserts; else it deletes.
        groups: Number of its key; keys are numbered from 0.
    """

    rows: Longs
    upserts: Mask
    groups: Longs

    def select(self, chosen: Mask | Longs) -> Operations:
        """Return some of the operations, given by a mask or by their indexes."""
        return Operations(self.rows[chosen], self.upserts[chosen], self.groups[chosen])

    def order(self) -> Longs:
        """Return the operations sorted by key, those of one key in their order."""
        count = self.groups.size
        # Distinct numbers need no stable sort, which is several times slower.
        return np.argsort(self.groups * max(count, 1) + np.arange(count))

    def previous(self) -> Longs:
        """Return for each operation the one before it of the same key; -1 for the first."""
        before = np.full(self.groups.size, -1, np.int64)
        # Most keys come once: only the others are sorted.
        repeated = np.flatnonzero(np.bincount(self.groups).take(self.groups) > 1)
        if repeated.size:
            order = repeated[self.select(repeated).order()]
            again = self.groups[order[1:]] == self.groups[order[:-1]]
            before[order[1:][again]] = order[:-1][again]
        return before


def merge(
    rules: MergeRules,
    checks: RowChecks,
    operations: Operations,
    given: list[pa.Array | None],
    old: list[pa.Array],
    old_at: Longs,
    exists: Mask,
    bytes_max: int,
) -> tuple[Operations, list[pa.Array]]:
    """Return the operations that the merge engine lets through, and whole rows for them.

    Args:
        rules: Of the table.
        checks: Of its schema.
        operations: Of the batch.
        given: The batch's columns; None for those that a partial update leaves out.
        old: Columns of the rows that the keys have.
        old_at: For each key, where its row is in `old`; -1 for none.
        exists: For each key, whether it has a row.
        bytes_max: Of the whole rows that a partial update makes, at most.

    Raises:
        InvalidRecordError: A partial update of a table with a merge engine, or one that leaves NOT NULL columns null.
        RecordTooLargeError: More than `bytes_max`.
    """
    complete = [column for column in given if column is not None]
    if len(complete) < len(given):
        checks.partial_allowed(rules.engine)
        partial = Partial(np.array([column is not None for column in given]), checks.is_key)
        met_at = old_at[operations.groups]
        check_rows(partial.others(old), met_at[met_at >= 0], bytes_max)
        return partial.complete(operations, given, old, met_at, checks.schema)
    if rules.engine == "first_row":
        return first_only(operations, exists), complete
    if rules.engine == "versioned":
        met = np.concatenate([version_numbers(old[rules.version_column]), [VERSION_MIN]])
        return newest_only(operations, version_numbers(complete[rules.version_column]), met[old_at]), complete
    return operations, complete


def first_only(operations: Operations, exists: Mask) -> Operations:
    """Return what `first_row` lets through: the first upsert of each key that has no row.

    Args:
        operations: Upserts only.
        exists: For each key, whether it has a row.
    """
    fresh = operations.select(~exists[operations.groups])
    return fresh.select(fresh.previous() < 0)


def newest_only(operations: Operations, versions: Longs, present: Longs) -> Operations:
    """Return what `versioned` lets through: upserts whose version is at least that of the row they meet.

    Args:
        operations: Upserts only.
        versions: Of each row of the batch.
        present: For each key, the version of its row; the least number where there is none.

    Cost: as many passes as the largest number of operations of one key has binary digits.
    """
    order = operations.order()
    groups = operations.groups[order]
    mine = versions[operations.rows[order]]
    # What each meets: the largest of its key's row and of all upserts before it.
    met = present[groups]
    again = groups[1:] == groups[:-1]
    met[1:][again] = np.maximum(met[1:][again], mine[:-1][again])
    reach = 1
    while True:
        same = groups[reach:] == groups[:-reach]
        if not same.any():
            break
        before = met[:-reach][same]
        later = met[reach:]
        later[same] = np.maximum(later[same], before)
        reach *= 2
    passed = np.zeros(order.size, np.bool_)
    passed[order] = mine >= met
    return operations.select(passed)


def version_numbers(column: pa.Array) -> Longs:
    """Return versions as numbers that compare as they do; null is the least."""
    numbers = column.cast(pa.int64()) if column.type.bit_width == 32 else column.view(pa.int64())
    return np.asarray(pc.fill_null(numbers, VERSION_MIN).to_numpy(), np.int64)


def check_deletes_allowed(rules: MergeRules, upserts: Mask) -> None:
    """Refuse a batch that deletes from a table that forbids it.

    Raises:
        InvalidRecordError: The batch deletes and the behavior is ``disable``; the text names the first such row.
    """
    if rules.deletes == "disable" and not upserts.all():
        raise InvalidRecordError(
            f"row {int(np.argmin(upserts))} deletes, but the table has {options.DELETE_BEHAVIOR.key}=disable; leave "
            "deletes out"
        )


@dataclass(frozen=True, slots=True)
class Partial:
    """The columns of a partial update.

    Attributes:
        given: For each column of the schema, whether the batch has it.
        keys: For each column, whether it is of the primary key.
    """

    given: Mask
    keys: Mask

    def others(self, columns: list[pa.Array]) -> list[pa.Array]:
        """Return, of all columns of some rows, those that the batch does not have."""
        return [column for column, given in zip(columns, self.given.tolist(), strict=True) if not given]

    def complete(
        self,
        operations: Operations,
        columns: list[pa.Array | None],
        old: list[pa.Array],
        old_at: Longs,
        schema: pa.Schema,
    ) -> tuple[Operations, list[pa.Array]]:
        """Return full-row operations with the same effect, and the batch's rows with all columns.

        A partial upsert keeps the other columns of the row that its key has, or makes them null. A partial delete makes
        the given columns null, or deletes the row when its other columns are null anyway. What a key's other columns
        hold does not change within the batch, so one look at its present row is enough.

        Args:
            operations: Of one batch, on `columns`; a row of the batch has one at most.
            columns: The batch's; None for those not given.
            old: All columns of the present rows of the keys.
            old_at: For each operation, which of `old` its key has; -1 for none.
            schema: Of the table.

        Raises:
            InvalidRecordError: A NOT NULL column would be left without a value; the text names column and row.
        """
        holds = np.zeros(len(old[0]) + 1, np.bool_)  # the last one, for -1, stays False
        for index in np.flatnonzero(~self.given).tolist():
            holds[:-1] |= old[index].is_valid().to_numpy(zero_copy_only=False)
        clearing = ~operations.upserts & holds[old_at]
        self._check(operations, clearing, old_at, schema)
        made = replace(operations, upserts=operations.upserts | clearing)
        count = next(len(column) for column in columns if column is not None)
        kept = _index(count, operations.rows, old_at)
        cleared = np.zeros(count, np.bool_)
        cleared[operations.rows] = clearing
        own = pa.array(np.arange(count), mask=cleared)
        complete: list[pa.Array] = []
        for index, column in enumerate(columns):
            if column is None:
                complete.append(old[index].take(kept))
            else:
                complete.append(column if self.keys[index] or not cleared.any() else column.take(own))
        return made, complete

    def _check(self, operations: Operations, clearing: Mask, old_at: Longs, schema: pa.Schema) -> None:
        starting = operations.upserts & (old_at < 0)
        for index, field in enumerate(schema):
            if field.nullable or self.keys[index]:
                continue
            wrong = clearing if self.given[index] else starting
            if wrong.any():
                row = int(operations.rows[np.argmax(wrong)])
                why = (
                    "a partial delete would make it null" if self.given[index] else "the key has no row to take it from"
                )
                raise InvalidRecordError(
                    f"column {field.name!r} is NOT NULL: row {row} leaves it without a value; {why}"
                )


def unknown_kept(
    known: int, operations: Operations, columns: list[pa.Array], old: list[pa.Array], old_at: Longs, bytes_max: int
) -> list[pa.Array]:
    """Return a batch's columns, those that its writer did not know of as the present rows of the keys have them.

    After a delete of its key in the same batch an upsert has nothing to keep.

    Args:
        known: How many columns the writer knew of: the first ones.
        operations: Of one batch.
        columns: The batch's, all of them.
        old: All columns of the present rows of the keys.
        old_at: For each operation, which of `old` its key has; -1 for none.
        bytes_max: Of what is kept, at most.

    Raises:
        RecordTooLargeError: More than `bytes_max`: send smaller batches.
    """
    order = operations.order()
    groups, deletes = operations.groups[order], ~operations.upserts[order]
    before: Longs = np.cumsum(deletes, dtype=np.int64) - deletes.astype(np.int64)
    firsts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    before -= np.repeat(before[firsts], np.diff(np.append(firsts, groups.size)))
    held = old_at.copy()
    held[order[before > 0]] = -1
    check_rows(old[known:], held[held >= 0], bytes_max)
    kept = _index(len(columns[0]), operations.rows, held)
    return [*columns[:known], *(column.take(kept) for column in old[known:])]


def _index(count: int, rows: Longs, chosen: Longs) -> pa.Array:
    """Return for each of `count` rows what to take; null for those left out and for -1."""
    at = np.full(count, -1, np.int64)
    at[rows] = chosen
    return pa.array(np.maximum(at, 0), mask=at < 0)
