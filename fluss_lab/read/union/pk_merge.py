"""The rows of a primary-key bucket at a stop offset: those that records below it wrote and none below it ended.

Every record that ends a row names it by its offset, so nothing is compared by key: the lake's rows at `lake_stop`, less
those that the log ended since, and then the log's own rows that it did not end itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fluss_lab.client.log.range_reader import read_range
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.change_masks import ended_offsets, write_mask
from fluss_lab.read.union.lake_rows import lake_rows
from fluss_lab.read.union.pk_undo import live_rows
from fluss_lab.read.union.read_columns import OFFSET, coalesce, of_records, stored_columns
from fluss_lab.read.union.read_parts import BucketPart
from fluss_lab.records import LogRecords
from fluss_lab.records.row_removal import boolean_array, member_places, without_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fluss_lab.read.union.read_parts import Request

#: Rows of the log's end are kept up to this many bytes while it is read for what it ends; of a longer one only the
#: offsets ended are (eight bytes each), and it is read again for its rows.
TAIL_BYTES: Final = 64 * 1024 * 1024

Rows = Iterator[tuple[pa.RecordBatch, int]]


def keyed_rows(source: TableSource, part: BucketPart, request: Request, tail: Tail | None = None) -> Rows:
    """Yield the part's rows, and the offset up to which the bucket is read with them.

    Args:
        source: The table.
        part: Which rows.
        request: Which columns.
        tail: The part's, if it was looked at before.

    Raises:
        OffsetOutOfRangeError, LakeSnapshotNotFoundError, ...: Records have moved since planning; see `read_parts.MOVED`.
        UnavailableError: Of live rows: the server lost the scan.

    Cost: the log from `lake_stop` on is read once, or twice when it is long; `TAIL_BYTES` and eight bytes for each row
        that it ends are kept.
    """
    if part.live:
        yield from live_rows(source, part, request)
        return
    if tail is None:
        tail = Tail(source, part, request)
        yield from request.pauses(tail.look(), part.start)
    yield from lake_rows(source, part, request, tail.ended_offsets(part.lake_stop))
    yield from tail.rows()


def keyed_count(source: TableSource, part: BucketPart, request: Request) -> int:
    """Return how many rows a part without a filter has, by what is known of files where that is exact.

    Args:
        source: The table.
        part: A part that takes whole files: from their beginning on, of all rows below its stop.
        request: The cheapest columns.

    Raises:
        OffsetOutOfRangeError, LakeSnapshotNotFoundError, ...: Records have moved since planning; see `read_parts.MOVED`.
    """
    tail = Tail(source, part, request)
    for _ in tail.look():
        pass
    total: int = sum(batch.num_rows for batch, _ in tail.rows())
    if part.start < part.lake_stop:
        ended = {part.key: tail.ended_offsets(part.lake_stop)}
        return total + source.lake_source.count(part.splits, stops={part.key: part.lake_stop}, ended=ended)
    return total


class Tail:
    """The log's end of a part: which rows of the lake it ends, and its own rows.

    It is read by `look`; where that found too much to keep, again for its rows.

    Args:
        source: The table.
        part: Whose end, below its stop.
        request: Which columns the rows have.
        bytes_max: How many bytes of rows are kept at most; 0: none are, and the first pass reads no more than it takes to
            tell what is ended. None: `TAIL_BYTES`.
    """

    def __init__(self, source: TableSource, part: BucketPart, request: Request, bytes_max: int | None = None) -> None:
        self.part = part
        self._source = source
        self._request = request
        self._bytes_max = TAIL_BYTES if bytes_max is None else bytes_max
        self._names = request.columns.inner(part.filter, in_lake=False)
        self._row_stop = part.stop if part.row_stop is None else min(part.stop, part.row_stop)
        #: The rows wanted, still with those that later records end; None: there are too many to keep.
        self._kept: list[pa.RecordBatch] | None = [] if self._bytes_max else None
        #: Of the records from which rows were kept as long as they were: rows written, and bytes of those wanted.
        self._sampled_rows = self._sampled_bytes = 0
        #: Rows that the whole tail writes.
        self._written = 0
        # A row is ended by a later record: what is before the first row wanted ends none.
        self._start = part.log_start
        self._ended = np.empty(0, dtype=np.int64)

    @property
    def kept_bytes(self) -> int | None:
        """Return how large the rows are that are kept; None: they are not."""
        return None if self._kept is None else sum(batch.nbytes for batch in self._kept)

    @property
    def expected_bytes(self) -> int:
        """Return about how large the rows of `rows` are, by those that were kept as long as they were; 0: none were."""
        ended = self._ended.size - int(np.searchsorted(self._ended, self._start))
        return self._sampled_bytes * max(0, self._written - ended) // max(1, self._sampled_rows)

    def ended_offsets(self, stop: int) -> NDArray[np.int64]:
        """Return the offsets below `stop` of rows that the tail ends, ascending."""
        return self._ended[: int(np.searchsorted(self._ended, stop))]

    def rows(self) -> Rows:
        """Yield the tail's own live rows, and the offset up to which the bucket is read with them."""
        kept = self._kept if self._kept is not None else self._again()
        position = self._start
        for batch in kept:
            live = without_rows(batch, member_places(batch.column(OFFSET).to_numpy(), self._ended))
            if live.num_rows:
                position = int(live.column(OFFSET)[-1].as_py()) + 1
            if live.num_rows or self._request.step_rows is not None:
                yield live, position

    def look(self) -> Iterator[None]:
        """Read the whole tail, for what it ends. To be done before all else; yields between the log's answers."""
        found: list[NDArray[np.int64]] = []
        position = self._start
        wanted = self._kept is not None and self._start < self._row_stop
        while position < self.part.stop:
            for records in self._records(position, self.part.stop, self._names if wanted else [], previous=True):
                found.append(ended_offsets(records))
                written = self._write_mask(records)
                self._written += int(np.count_nonzero(written))
                position = records.next_offset
                yield None
                if wanted and not self._keep(self._own(records, written)):
                    wanted = False
                    break
        ended = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
        ended.sort()
        self._ended = ended

    def _keep(self, rows: pa.RecordBatch) -> bool:
        """Keep rows of the records just read; return whether there was room for them."""
        assert self._kept is not None
        self._sampled_rows, self._sampled_bytes = self._written, self._sampled_bytes + rows.nbytes
        if rows.num_rows:
            self._kept.append(rows)
        if self._sampled_bytes > self._bytes_max:
            self._kept = None
        return self._kept is not None

    def _again(self) -> Iterator[pa.RecordBatch]:
        for records in self._records(self._start, self._row_stop, self._names, previous=False):
            yield self._own(records, self._write_mask(records))

    def _records(self, start: int, stop: int, names: list[str], *, previous: bool) -> Iterator[LogRecords]:
        source, part = self._source, self.part
        found = read_range(
            source.connection, source.info, part.bucket, start, stop, partition=part.partition,
            projection=stored_columns(source.info, names), lake=False, previous_offsets=previous,
            first=part.first_answer() if previous and names == self._names else None,
        )  # fmt: skip
        return coalesce(found)

    def _write_mask(self, records: LogRecords) -> NDArray[np.bool_]:
        """Return of each record whether it writes a row below the stop of rows."""
        written = write_mask(records)
        if records.next_offset > self._row_stop:
            written &= records.offsets.to_numpy() < self._row_stop
        return written

    def _own(self, records: LogRecords, written: NDArray[np.bool_]) -> pa.RecordBatch:
        """Return the rows wanted among those that the records write."""
        batch = of_records(records, self.part.bucket.bucket, self._request.columns.fields(self._names))
        batch = batch.filter(boolean_array(written))
        return batch if self.part.filter is None else self.part.filter.apply(batch)
