"""Records of one bucket: rows with their offsets and timestamps, and rows of one schema of a table as rows of another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fluss_lab.errors import InvalidRecordError
from fluss_lab.records.batch import LogBatch


class LogRecords:
    """A run of records of one bucket, in ascending order of offset. It does not change.

    Args:
        rows: The user's columns (or the projected ones, in the order wanted).
        offsets: int64, not null, strictly ascending; gaps are possible after a filter only. Or the first of as many as
            there are rows, without a gap: then the array is made when it is asked for.
        timestamps_ms: int64, not null, epoch milliseconds, never descending. Or that of all records.
        change_types: int8 `ChangeType` numbers, or None when all records are ``+A``.
        previous_offsets: int64, not null: per record the offset of the row that it ends or replaces, -1 where there was
            none; None unless they were requested, of a primary-key table.
    """

    __slots__ = ("_offsets", "_timestamps_ms", "change_types", "previous_offsets", "rows")

    def __init__(
        self,
        rows: pa.RecordBatch,
        offsets: pa.Int64Array | int,
        timestamps_ms: pa.Int64Array | int,
        change_types: pa.Int8Array | None = None,
        previous_offsets: pa.Int64Array | None = None,
    ) -> None:
        self.rows = rows
        self._offsets = offsets
        self._timestamps_ms = timestamps_ms
        self.change_types = change_types
        self.previous_offsets = previous_offsets

    def __repr__(self) -> str:
        return f"<LogRecords [{self.base_offset}, {self.next_offset}): {', '.join(self.rows.schema.names)}>"

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def offsets(self) -> pa.Int64Array:
        """Return the offset of each record."""
        if isinstance(first := self._offsets, int):
            self._offsets = pa.array(np.arange(first, first + len(self), dtype=np.int64))
        return self._offsets

    @property
    def timestamps_ms(self) -> pa.Int64Array:
        """Return the timestamp of each record."""
        if isinstance(every := self._timestamps_ms, int):
            self._timestamps_ms = pa.array(np.full(len(self), every, dtype=np.int64))
        return self._timestamps_ms

    @property
    def base_offset(self) -> int:
        """Return the first offset. There is always at least one record."""
        if isinstance(first := self._offsets, int):
            return first
        return int(self.offsets[0].as_py())

    @property
    def next_offset(self) -> int:
        """Return the offset after the last record."""
        if isinstance(first := self._offsets, int):
            return first + int(self.rows.num_rows)
        return int(self.offsets[-1].as_py()) + 1

    def clip(self, start: int, stop: int) -> LogRecords | None:
        """Return the records with offsets in ``[start, stop)``; None when there are none. No copy."""
        base, end = self.base_offset, self.next_offset
        if start <= base and end <= stop:
            return self
        if end - base == len(self):
            low, high = max(0, start - base), min(len(self), stop - base)
        else:
            low, high = (int(edge) for edge in np.searchsorted(self.offsets.to_numpy(), [start, stop]))
        if low >= high:
            return None
        count = high - low
        offsets, times, changes, previous = self._offsets, self._timestamps_ms, self.change_types, self.previous_offsets
        return LogRecords(
            self.rows.slice(low, count),
            offsets + low if isinstance(offsets, int) else offsets.slice(low, count),
            times if isinstance(times, int) else times.slice(low, count),
            None if changes is None else changes.slice(low, count),
            None if previous is None else previous.slice(low, count),
        )

    def replace(self, rows: pa.RecordBatch, previous_offsets: pa.Int64Array | None) -> LogRecords:
        """Return the records with other columns and previous offsets: as many."""
        if rows is self.rows and previous_offsets is self.previous_offsets:
            return self
        return LogRecords(rows, self._offsets, self._timestamps_ms, self.change_types, previous_offsets)


def concat_records(runs: Sequence[LogRecords]) -> LogRecords:
    """Return runs of records of one bucket and of the same columns, at least one, in order, as one; they are copied."""
    changes = [each.change_types for each in runs if each.change_types is not None]
    previous = [each.previous_offsets for each in runs if each.previous_offsets is not None]
    return LogRecords(
        pa.concat_batches([each.rows for each in runs]),
        pa.concat_arrays([each.offsets for each in runs]),
        pa.concat_arrays([each.timestamps_ms for each in runs]),
        pa.concat_arrays(changes) if changes else None,
        pa.concat_arrays(previous) if previous else None,
    )


def records_of(batch: LogBatch) -> LogRecords | None:
    """Return a decoded batch as records with offsets and timestamps; None for a batch without records."""
    if not batch.rows.num_rows:
        return None
    changes = None
    if batch.change_types is not None:
        changes = pa.array(np.frombuffer(batch.change_types, dtype=np.int8))
    return LogRecords(batch.rows, batch.base_offset, batch.header.timestamp_ms, changes)


def fit_to_schema(rows: pa.RecordBatch, schema: pa.Schema, *, cut: bool = False) -> pa.RecordBatch:
    """Return rows with exactly the columns of a schema, matched by name, in its order and with its nullability.

    Args:
        rows: Of an older (or, with `cut`, newer) schema of the same table, or of a part of its columns.
        schema: Of the rows wanted.
        cut: Whether columns that `schema` does not have are left out instead of refused.

    Returns:
        The rows themselves when nothing differs; else a batch over the same buffers. Nullable columns that are missing
        are null.

    Raises:
        InvalidRecordError: A NOT NULL column of `schema` is missing or holds a null, a column has another type, or
            there is a column too many.

    Cost: no values are copied; null columns are made, and nulls are counted where NOT NULL is declared.
    """
    if rows.schema.equals(schema):
        return rows
    if not cut and (unknown := [name for name in rows.schema.names if schema.get_field_index(name) < 0]):
        raise InvalidRecordError(f"column {unknown[0]!r} is unknown; expected {', '.join(schema.names)}")
    arrays = [_column(rows, field) for field in schema]
    if not arrays:
        return rows.select([])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = rows.schema.get_field_index(field.name)
    if index < 0:
        if not field.nullable:
            raise InvalidRecordError(f"column {field.name!r} is NOT NULL and missing")
        return pa.nulls(rows.num_rows, field.type)
    column = rows.column(index)
    if column.type != field.type:
        raise InvalidRecordError(f"column {field.name!r}: expected {field.type}, found {column.type}")
    if not field.nullable and column.null_count:
        raise InvalidRecordError(
            f"column {field.name!r} is NOT NULL: {column.null_count} of {len(column)} rows are null"
        )
    return column
