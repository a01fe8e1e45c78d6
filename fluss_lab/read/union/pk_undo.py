"""The rows of a primary-key bucket at a stop offset, from the cluster's live rows: what came after is taken back.

The live rows are those of some later moment. Of them, those that a record below the stop wrote were live at the stop too.
The others that were live there have been ended since, and the record that ended each says what it was.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.client.kv.kv_scan import KvScan
from fluss_lab.client.log.range_reader import read_range
from fluss_lab.errors import CorruptDataError, FlussError, OffsetOutOfRangeError
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.change_masks import end_mask, ended_offsets, membership_mask
from fluss_lab.read.union.read_columns import (
    BATCH_ROWS,
    OFFSET,
    TIMESTAMP,
    coalesce,
    moments,
    of_records,
    stored_columns,
)
from fluss_lab.read.union.read_parts import BucketPart, TimesGoneError
from fluss_lab.records import LogRecords
from fluss_lab.records.row_removal import boolean_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fluss_lab.read.union.read_parts import Request

#: Rows taken back are kept up to this many bytes; of more, the log is read once for each so many.
KEPT_BYTES: Final = 64 * 1024 * 1024
#: The times of rows that lie no further apart than this in the log are read together: so many records are one answer.
TIMES_GAP: Final = 4_096


class LiveRowsError(FlussError):
    """The live rows are not available at once, or cost more than the log, which has the rows too."""


def live_rows(
    source: TableSource, part: BucketPart, request: Request, back_max: int | None = None
) -> Generator[tuple[pa.RecordBatch, int], None, None]:
    """Yield the part's rows from where its log begins on, and the offset up to which the bucket is read with them.

    Args:
        source: The table.
        part: Which rows: offsets ``[log_start, stop)``, below `row_stop`.
        request: Which columns.
        back_max: How many records after the stop are taken back at most, by a reader that has another way: it does not wait
            for the server either. None: as many as there are.

    Raises:
        LiveRowsError: There are more; or the server does not give the rows at once.
        OffsetOutOfRangeError: The log does not reach back to the stop any more.
        UnavailableError: The server lost the scan of its live rows; begin again.
        TimesGoneError: ``__timestamp`` is asked of rows that are not live any more, and whose records have gone.

    Cost: one scan of the bucket's live rows, and one of the log from the stop on; memory is bounded.
    """
    rows = _LiveRows(source, part, request)
    names = request.columns.inner(part.filter, in_lake=False)
    columns = stored_columns(source.info, names)
    begin_ms = None if back_max is None else 0
    with source.connection.scan_kv(source.info, part.bucket, columns, part.log_start, begin_ms) as scan:
        # What is known to have come after is read before the scan begins: the server keeps a scan that waits for a time.
        known = source.known_state(part.bucket)
        stop = part.stop if known is None else max(part.stop, known.end)
        yield from request.pauses(rows.take_back(stop), part.log_start)
        moment = scan.log_offset if back_max is None else _begin_at_once(scan)
        if moment < part.stop:
            raise CorruptDataError(
                f"table {source.info.path}, bucket {part.bucket}: expected live rows at offset {part.stop} or later, found "
                f"them at {moment}"
            )
        if back_max is not None and moment - part.stop > back_max:
            raise LiveRowsError(f"{moment - part.stop} records lie behind the stop, expected at most {back_max}")
        yield from request.pauses(rows.take_back(moment), part.log_start)
        for batch in merge_batches(rows.live(scan), rows.taken_back()):
            wanted = batch if part.filter is None else part.filter.apply(batch)
            if wanted.num_rows or request.step_rows is not None:
                yield wanted, int(batch.column(OFFSET)[-1].as_py()) + 1


def _begin_at_once(scan: KvScan) -> int:
    """Return the moment of a scan.

    Raises:
        LiveRowsError: It could not begin: there are too many, or the server does not have the rows at present.
    """
    try:
        return scan.log_offset
    except FlussError as error:
        raise LiveRowsError(f"the scan did not begin: {error}") from error


class _LiveRows:
    def __init__(self, source: TableSource, part: BucketPart, request: Request) -> None:
        self._source = source
        self._part = part
        self._schema = request.columns.fields(request.columns.inner(part.filter, in_lake=False))
        self._row_stop = part.stop if part.row_stop is None else min(part.stop, part.row_stop)
        #: How far the log was read, the offsets of the rows that it ended, and these rows if they are few.
        self._position = part.stop
        self._found: list[NDArray[np.int64]] = []
        self._kept: list[pa.RecordBatch] | None = []
        self._rows = self._bytes = 0

    def live(self, scan: KvScan) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a scan that were live at the stop already.

        Raises:
            CorruptDataError: The scan's rows do not ascend by offset.
        """
        position = -1
        for run in scan:
            offsets = run.offsets.to_numpy()
            if int(offsets[0]) <= position or bool((np.diff(offsets) <= 0).any()):
                raise CorruptDataError(
                    f"live rows of table {self._source.info.path}, bucket {self._part.bucket}: expected offsets that ascend "
                    f"from {position + 1}, found {len(offsets)} between {int(offsets.min())} and {int(offsets.max())}"
                )
            position = int(offsets[-1])
            low, high = (int(edge) for edge in np.searchsorted(offsets, [self._part.log_start, self._row_stop]))
            if low < high:
                records = LogRecords(run.rows, run.offsets, run.timestamps_ms)
                yield self._batch(records).slice(low, high - low)
            if high < len(offsets):
                return

    def take_back(self, stop: int) -> Iterator[None]:
        """Read the log on to an offset, for the rows that it ended. Yields between its answers."""
        for records, previous in self._ended_records(self._position, stop):
            yield None
            self._position = records.next_offset
            wanted = self._wanted_mask(previous)
            self._found.append(previous[wanted])
            if self._kept is None:
                continue
            batch = self._previous_rows(records, previous, wanted)
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
            self._kept.append(batch)
            if self._bytes > KEPT_BYTES:
                self._kept = None

    def taken_back(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that were live at the stop and are not any more, ascending by offset."""
        ended = np.sort(np.concatenate(self._found)) if self._found else np.empty(0, dtype=np.int64)
        if self._kept is not None:
            yield from self._order(self._kept)
            return
        count = max(1, self._rows * KEPT_BYTES // self._bytes)
        for first in range(0, len(ended), count):
            window = ended[first : first + count]
            found = [
                self._previous_rows(records, previous, membership_mask(previous, window))
                for records, previous in self._ended_records(self._part.stop, self._position)
            ]
            yield from self._order(found)

    def _order(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches, self._schema)
        table = table.take(pc.sort_indices(table.column(OFFSET))).combine_chunks()
        if TIMESTAMP in self._schema.names and len(table):
            times = moments(self._times(table.column(OFFSET).to_numpy()))
            table = table.set_column(table.column_names.index(TIMESTAMP), self._schema.field(TIMESTAMP), times)
        yield from (batch for batch in table.to_batches(max_chunksize=BATCH_ROWS) if batch.num_rows)

    def _ended_records(self, start: int, stop: int) -> Iterator[tuple[LogRecords, NDArray[np.int64]]]:
        """Yield records of the log, and of those that end a row the offset of that."""
        found = read_range(
            self._source.connection, self._source.info, self._part.bucket, start, stop, partition=self._part.partition,
            projection=stored_columns(self._source.info, self._schema.names), lake=False, previous_offsets=True,
        )  # fmt: skip
        for records in coalesce(found):
            yield records, ended_offsets(records)

    def _wanted_mask(self, previous: NDArray[np.int64]) -> NDArray[np.bool_]:
        wanted: NDArray[np.bool_] = (previous >= self._part.log_start) & (previous < self._row_stop)
        return wanted

    def _previous_rows(
        self, records: LogRecords, previous: NDArray[np.int64], wanted: NDArray[np.bool_]
    ) -> pa.RecordBatch:
        """Return the wanted of the rows that records ended, each at its own offset; their times are the records'."""
        batch = self._batch(records).filter(boolean_array(end_mask(records))).filter(boolean_array(wanted))
        place = batch.schema.get_field_index(OFFSET)
        return batch.set_column(place, self._schema.field(OFFSET), pa.array(previous[wanted]))

    def _batch(self, records: LogRecords) -> pa.RecordBatch:
        return of_records(records, self._part.bucket.bucket, self._schema)

    def _times(self, offsets: NDArray[np.int64]) -> pa.Int64Array:
        """Return the timestamps, epoch milliseconds, of the records at some ascending offsets."""
        times = np.empty(len(offsets), dtype=np.int64)
        edges = np.flatnonzero(np.diff(offsets) > TIMES_GAP) + 1
        for places in np.split(np.arange(len(offsets)), edges):
            low, high = int(offsets[places[0]]), int(offsets[places[-1]]) + 1
            try:
                found = read_range(
                    self._source.connection, self._source.info, self._part.bucket, low, high,
                    partition=self._part.partition, projection=stored_columns(self._source.info, []), lake=False,
                )  # fmt: skip
                for records in found:
                    first, last = np.searchsorted(offsets, [records.base_offset, records.next_offset])
                    within = offsets[first:last] - records.base_offset
                    times[first:last] = records.timestamps_ms.to_numpy()[within]
            except OffsetOutOfRangeError as error:
                raise TimesGoneError(
                    f"table {self._source.info.path}, bucket {self._part.bucket}: {TIMESTAMP} is asked of rows that have "
                    f"changed since the read point, and their records from offset {low} on have left the cluster: leave "
                    f"{TIMESTAMP} out, or take a newer read point"
                ) from error
        return pa.array(times)


def merge_batches(one: Iterator[pa.RecordBatch], other: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of two iterators of batches, each ascending by offset, as one."""
    first, second = next(one, None), next(other, None)
    while first is not None and second is not None:
        bound = min(_last(first), _last(second))
        head, first = _cut(first, bound)
        tail, second = _cut(second, bound)
        if head.num_rows and tail.num_rows:
            both = pa.concat_batches([head, tail])
            yield both.take(pc.sort_indices(both.column(OFFSET)))
        else:
            yield head if head.num_rows else tail
        first = first if first.num_rows else next(one, None)
        second = second if second.num_rows else next(other, None)
    if first is not None:
        yield first
        yield from one
    if second is not None:
        yield second
        yield from other


def _last(batch: pa.RecordBatch) -> int:
    return int(batch.column(OFFSET)[-1].as_py())


def _cut(batch: pa.RecordBatch, bound: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the rows with offsets up to a bound, and the others."""
    place = int(np.searchsorted(batch.column(OFFSET).to_numpy(), bound, side="right"))
    return batch.slice(0, place), batch.slice(place)
