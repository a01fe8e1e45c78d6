"""The split reader: exactly the records of a split, in order, or an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from fluss_lab.client import Connection
from fluss_lab.client.log.range_reader import read_range
from fluss_lab.errors import CorruptDataError
from fluss_lab.model import TableInfo
from fluss_lab.records import LogRecords, joined
from fluss_lab.tiering.round.splits import TieringLogSplit, TieringSnapshotSplit, TieringSplit
from fluss_lab.tiering.task.pk_split_reader import KeyedChanges, event_count, snapshot_rows

#: Each run costs some 0.1 ms on its way into the lake, a thousand rows about the same.
SMALL_ROWS: Final = 1024
#: Wide rows: small runs are held back up to an answer of the server.
HELD_BYTES: Final = 4 << 20


class TieringSplitReader:
    """Reads one split from the cluster. Iterate it once.

    Every offset of a log split comes exactly once and in order; a record that is missing, or there twice, is an error,
    because nobody would notice it later. So is a change of a primary-key table that does not say which row it ends.
    Rows of all schemas come with the columns of the planned one.

    Memory: an answer of the server or two (``client.scanner.log.fetch.max-bytes``), however long the split is.

    Attributes:
        start: First offset of the split's own, known from the first records on: see `TieringLogSplit`.
        position: Offset after the last record given out; a snapshot's log offset after its last row.
        max_timestamp_ms: Timestamp of the last record; -1 before the first.
        rows: Records given out that are rows.
        events: Records given out that end rows: ``-U`` and ``-D``.
    """

    def __init__(self, connection: Connection, table: TableInfo, split: TieringSplit) -> None:
        self._connection = connection
        self._table = table
        self._split = split
        self.start = split.start
        self.position = split.start
        self.max_timestamp_ms = -1
        self.rows = 0
        self.events = 0

    def __iter__(self) -> Iterator[LogRecords]:
        """Yield the records.

        Raises:
            OffsetOutOfRangeError: The cluster does not hold them all (any more).
            KvSnapshotNotFoundError: The snapshot is not retained any more: plan again.
            CorruptDataError: What it holds has a gap or a duplicate, or fails its checks.
        """
        for records in self._records():
            self.position = records.next_offset
            self.max_timestamp_ms = int(records.timestamps_ms[-1].as_py())
            events = event_count(records)
            self.events += events
            self.rows += len(records) - events
            yield records
        self.position = max(self.position, self._split.end)

    def _records(self) -> Iterator[LogRecords]:
        split = self._split
        if isinstance(split, TieringSnapshotSplit):
            yield from snapshot_rows(self._connection, self._table, split)
        elif isinstance(split, TieringLogSplit):
            runs = whole(self._range(split, split.starting_offset, split.stopping_offset), split)
            if self._table.is_log_table:
                yield from runs
                return
            changes = KeyedChanges(split, lambda: self._range(split, split.stopping_offset, split.stopping_offset + 1))
            for records in changes.checked(runs):
                self.start = changes.start
                yield records
            self.start = changes.start

    def _range(self, split: TieringLogSplit, start: int, stop: int) -> Iterator[LogRecords]:
        # Never from the lake: what is there has been tiered.
        return coalesce_runs(
            read_range(
                self._connection, self._table, split.table_bucket, start, stop, lake=False, previous_offsets=True
            )
        )


def coalesce_runs(runs: Iterable[LogRecords]) -> Iterator[LogRecords]:
    """Yield the same records in runs that are not small, so that a log of tiny batches costs little more than another.

    Large runs pass as they are, small ones are copied together. Held back are `SMALL_ROWS` rows or `HELD_BYTES` at most.
    """
    held: list[LogRecords] = []
    rows = size_bytes = 0
    for records in runs:
        if len(records) >= SMALL_ROWS:
            if held:
                yield joined(held)
                held, rows, size_bytes = [], 0, 0
            yield records
            continue
        held.append(records)
        rows += len(records)
        size_bytes += records.rows.nbytes
        if rows >= SMALL_ROWS or size_bytes >= HELD_BYTES:
            yield joined(held)
            held, rows, size_bytes = [], 0, 0
    if held:
        yield joined(held)


def whole(runs: Iterable[LogRecords], split: TieringLogSplit) -> Iterator[LogRecords]:
    """Yield runs of records, seen to be all of a split's, each once and in order.

    Raises:
        CorruptDataError: They are not.
    """
    position = split.starting_offset
    for records in runs:
        expected = np.arange(position, position + len(records), dtype=np.int64)
        if not np.array_equal(records.offsets.to_numpy(), expected):
            raise CorruptDataError(
                f"{split}: expected offsets [{position}, {position + len(records)}), found {len(records)} between "
                f"{records.base_offset} and {records.next_offset}"
            )
        position = records.next_offset
        yield records
    if position != split.stopping_offset:
        raise CorruptDataError(
            f"{split}: expected records up to offset {split.stopping_offset}, found them up to {position}"
        )
