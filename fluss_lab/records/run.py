"""Records in the hand: rows of one bucket, each with its offset and timestamp, wherever they came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fluss_lab.records.batch import LogBatch


@dataclass(frozen=True, slots=True)
class LogRecords:
    """A run of records of one bucket, in ascending order of offset.

    Attributes:
        rows: The user's columns (or the projected ones, in the order asked).
        offsets: int64, not null, strictly ascending; gaps are possible after a filter only.
        timestamps_ms: int64, not null, epoch milliseconds, never descending.
        change_types: int8 `ChangeType` numbers, or None when all records are ``+A``.
        previous_offsets: int64, not null: per record the offset of the row that it ends or replaces, -1 where there was
            none; None unless they were asked for, of a primary-key table.
    """

    rows: pa.RecordBatch
    offsets: pa.Int64Array
    timestamps_ms: pa.Int64Array
    change_types: pa.Int8Array | None = None
    previous_offsets: pa.Int64Array | None = None

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def base_offset(self) -> int:
        """Return the first offset. There is always at least one record."""
        return int(self.offsets[0].as_py())

    @property
    def next_offset(self) -> int:
        """Return the offset after the last record."""
        return int(self.offsets[-1].as_py()) + 1

    def clip(self, start: int, stop: int) -> LogRecords | None:
        """Return the records with offsets in ``[start, stop)``; None when there are none. No copy."""
        values = self.offsets.to_numpy()
        low, high = (int(edge) for edge in np.searchsorted(values, [start, stop]))
        if low >= high:
            return None
        if low == 0 and high == len(self):
            return self
        changes = None if self.change_types is None else self.change_types.slice(low, high - low)
        previous = None if self.previous_offsets is None else self.previous_offsets.slice(low, high - low)
        return LogRecords(
            self.rows.slice(low, high - low),
            self.offsets.slice(low, high - low),
            self.timestamps_ms.slice(low, high - low),
            changes,
            previous,
        )


def joined(runs: Sequence[LogRecords]) -> LogRecords:
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
    count = batch.rows.num_rows
    if not count:
        return None
    offsets = pa.array(np.arange(batch.base_offset, batch.next_offset, dtype=np.int64))
    timestamps = pa.array(np.full(count, batch.header.timestamp_ms, dtype=np.int64))
    changes = None
    if batch.change_types is not None:
        changes = pa.array(np.frombuffer(batch.change_types, dtype=np.int8))
    return LogRecords(batch.rows, offsets, timestamps, changes)
