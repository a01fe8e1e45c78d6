"""The split reader: exactly the records of a split, in order, or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.client import Connection
from fluss_lab.client.kv.kv_scan import KvRecords
from fluss_lab.client.kv.kv_snapshot_reader import read_snapshot
from fluss_lab.client.log.range_reader import read_range
from fluss_lab.errors import CorruptDataError
from fluss_lab.model import PartitionInfo, TableInfo
from fluss_lab.model.changes import ChangeType
from fluss_lab.records import LogRecords, concat_records
from fluss_lab.tiering.round.split_generator import TieringLogSplit, TieringSnapshotSplit, TieringSplit

_INSERT: Final = int(ChangeType.INSERT)
_BEFORE: Final = int(ChangeType.UPDATE_BEFORE)
_AFTER: Final = int(ChangeType.UPDATE_AFTER)
_DELETE: Final = int(ChangeType.DELETE)
#: The previous offset of a record before which its key had no row.
NO_ROW: Final = -1
#: The first schema id that a table has.
_FIRST_SCHEMA_ID: Final = 1

Longs = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]

#: Each run costs some 0.1 ms on its way into the lake, a thousand rows about the same.
SMALL_ROWS: Final = 1024
#: Wide rows: small runs are held back up to an answer of the server.
HELD_BYTES: Final = 4 << 20


def event_count(records: LogRecords) -> int:
    """Return how many of some records end rows: ``-U`` and ``-D``."""
    if records.change_types is None:
        return 0
    kinds = records.change_types.to_numpy()
    return int(np.count_nonzero((kinds == _BEFORE) | (kinds == _DELETE)))


class KeyedChanges:
    """The changes of one log split, checked, and aligned to whole updates.

    Args:
        split: The split.
        after: Reads the one record at its stopping offset; called when it ends with a ``-U``.

    Attributes:
        start: First offset of the split's own: the one after its first when that is a ``+U`` of the split before.
    """

    def __init__(self, split: TieringLogSplit, after: Callable[[], Iterable[LogRecords]]) -> None:
        self._split = split
        self._after = after
        self.start = split.starting_offset
        #: Previous offset of a -U that was the last record given out.
        self._open: int | None = None
        self._begun = False

    def check(self, runs: Iterable[LogRecords]) -> Iterator[LogRecords]:
        """Yield the records of the split's own.

        Args:
            runs: All records of its range, in order.

        Raises:
            CorruptDataError: A change does not name the row that it ends, or an update lacks a half.
        """
        for records in runs:
            own = self._own(records)
            if own is not None:
                self._check(own)
                yield own
        if self._open is not None:
            for records in self._after():
                self._check(records)
                yield records
            if self._open is not None:
                raise CorruptDataError(f"{self._split}: a -U at its end has no +U after it")

    def _own(self, records: LogRecords) -> LogRecords | None:
        """Return what is this split's own of the records: all but a ``+U`` that the split before takes."""
        if self._begun or not self._split.follows:
            return records
        self._begun = True
        if records.change_types is None or records.change_types[0].as_py() != _AFTER:
            return records
        self.start += 1
        return records.clip(self.start, records.next_offset)

    def _check(self, records: LogRecords) -> None:
        if records.change_types is None or records.previous_offsets is None:
            raise CorruptDataError(f"{self._split}: expected changes with previous offsets, found none")
        kinds: Kinds = records.change_types.to_numpy()
        previous: Longs = records.previous_offsets.to_numpy()
        offsets: Longs = records.offsets.to_numpy()
        inserted = kinds == _INSERT
        if not (inserted | (kinds == _BEFORE) | (kinds == _AFTER) | (kinds == _DELETE)).all():
            self._fail("a change type that no primary-key table has", offsets, (kinds < _INSERT) | (kinds > _DELETE))
        wrong = np.where(inserted, previous != NO_ROW, (previous < 0) | (previous >= offsets))
        if wrong.any():
            self._fail("a previous offset that cannot be", offsets, wrong)
        self._check_pairs(kinds, previous, offsets)

    def _check_pairs(self, kinds: Kinds, previous: Longs, offsets: Longs) -> None:
        """See that each ``-U`` is followed by the ``+U`` that replaces the same row, also from one run to the next."""
        before, after = kinds == _BEFORE, kinds == _AFTER
        # A plan may begin with a +U whose -U is in the lake already; everything later has both halves.
        opened = self._open is not None or (bool(after[0]) and int(offsets[0]) == self._split.starting_offset)
        expected = np.concatenate(([opened], before[:-1]))
        if not np.array_equal(after, expected):
            self._fail("a -U that is not followed by its +U, or a +U without", offsets, after != expected)
        replaced = np.concatenate(([previous[0] if self._open is None else self._open], previous[:-1]))
        if (wrong := after & (previous != replaced)).any():
            self._fail("a +U that replaces another row than its -U ends", offsets, wrong)
        self._open = int(previous[-1]) if before[-1] else None

    def _fail(self, what: str, offsets: Longs, wrong: npt.NDArray[np.bool_]) -> None:
        at = int(offsets[int(np.argmax(wrong))])
        raise CorruptDataError(f"{self._split}: {what}, at offset {at}")


def snapshot_rows(connection: Connection, table: TableInfo, split: TieringSnapshotSplit) -> Iterator[LogRecords]:
    """Yield the rows of a key-value snapshot as ``+I``, each with its own offset and timestamp, ascending by offset.

    The chunks of a snapshot follow one another by offset, so that nothing need be sorted; whether they do is checked.

    Raises:
        KvSnapshotNotFoundError: It is not retained any more.
        CorruptDataError: It is damaged, or not the one planned.
        StorageError: Its files cannot be read from here.

    Cost: memory of a batch of rows; the files are mapped.
    """
    bucket = split.table_bucket
    partition = None
    if bucket.partition_id is not None:
        partition = PartitionInfo(bucket.partition_id, split.partition_name or "")
    metadata = connection.admin().kv_snapshot_metadata(table, bucket.bucket, split.snapshot_id, partition)
    if metadata.log_offset != split.log_offset:
        raise CorruptDataError(f"{split}: the snapshot is at log offset {metadata.log_offset} now")
    schemas = {
        each: connection.schema(table, each).arrow_schema for each in range(_FIRST_SCHEMA_ID, table.schema_id + 1)
    }
    for run in in_order(read_snapshot(metadata, schemas, schema_id=table.schema_id), split):
        count = len(run)
        yield LogRecords(
            run.rows,
            run.offsets,
            run.timestamps_ms,
            pa.array(np.full(count, _INSERT, dtype=np.int8)),
            pa.array(np.full(count, NO_ROW, dtype=np.int64)),
        )


def in_order(runs: Iterable[KvRecords], split: TieringSnapshotSplit) -> Iterator[KvRecords]:
    """Yield runs of rows, seen to ascend by offset from one to the next, below the snapshot's log offset.

    Raises:
        CorruptDataError: They do not.
    """
    position = 0
    for run in runs:
        offsets: Longs = run.offsets.to_numpy()
        if offsets[0] < position or offsets[-1] >= split.log_offset or (np.diff(offsets) <= 0).any():
            raise CorruptDataError(
                f"{split}: expected rows whose offsets ascend from {position} on below {split.log_offset}, found "
                f"{len(offsets)} from {offsets[0]} to {offsets[-1]}"
            )
        position = int(offsets[-1]) + 1
        yield run


class TieringSplitReader:
    """Reads one split from the cluster. Iterate it once.

    Every offset of a log split comes exactly once and in order; a record that is missing, or there twice, is an error,
    because it would go unnoticed later. So is a change of a primary-key table that does not say which row it ends.
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
            runs = complete_runs(self._range(split, split.starting_offset, split.stopping_offset), split)
            if self._table.is_log_table:
                yield from runs
                return
            changes = KeyedChanges(split, lambda: self._range(split, split.stopping_offset, split.stopping_offset + 1))
            for records in changes.check(runs):
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
                yield concat_records(held)
                held, rows, size_bytes = [], 0, 0
            yield records
            continue
        held.append(records)
        rows += len(records)
        size_bytes += records.rows.nbytes
        if rows >= SMALL_ROWS or size_bytes >= HELD_BYTES:
            yield concat_records(held)
            held, rows, size_bytes = [], 0, 0
    if held:
        yield concat_records(held)


def complete_runs(runs: Iterable[LogRecords], split: TieringLogSplit) -> Iterator[LogRecords]:
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
