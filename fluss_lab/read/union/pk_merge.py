"""The rows of a primary-key bucket at a stop offset: those that records below it wrote and none below it ended.

Every record that ends a row names it by its offset, so nothing is compared by key: the lake's rows at `lake_stop`, less
those that the log ended since, and then the log's own rows that it did not end itself. Of a long log these are fetched as
the live rows that they are, and of what it ended the offsets only: neither the old rows of its updates travel, nor rows
that were replaced again.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fluss_lab.client.log.previous_offset_reader import fetch_ended_offsets
from fluss_lab.client.log.range_reader import read_range
from fluss_lab.errors import CorruptDataError, FlussError, InternalError, ServerUnavailableError
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.union.change_masks import ended_offsets, write_mask
from fluss_lab.read.union.lake_rows import lake_rows
from fluss_lab.read.union.pk_undo import live_rows
from fluss_lab.read.union.read_columns import OFFSET, TIMESTAMP, coalesce, of_records, stored_columns
from fluss_lab.read.union.read_parts import BucketPart
from fluss_lab.records import LogRecords
from fluss_lab.records.row_removal import boolean_array, member_places, slice_ascending, without_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fluss_lab.read.union.read_parts import Request

#: Rows of the log's end are kept up to this many bytes while it is read for what it ends; of a longer one only the
#: offsets ended are (eight bytes each), and it is read again for its rows.
TAIL_BYTES: Final = 64 * 1024 * 1024
#: A shorter end of the log is read as it is: it is one or two answers.
LIVE_MIN: Final = 100_000

log = logging.getLogger(__name__)
#: Errors that normal operation never meets: a read that goes on without the live rows logs them as warnings.
_FAULTS: Final = (CorruptDataError, InternalError)

Rows = Iterator[tuple[pa.RecordBatch, int]]


def keyed_rows(source: TableSource, part: BucketPart, request: Request, tail: Tail | LiveTail | None = None) -> Rows:
    """Yield the part's rows, and the offset up to which the bucket is read with them.

    Args:
        source: The table.
        part: Which rows.
        request: Which columns.
        tail: The part's, if it was looked at before.

    Raises:
        OffsetOutOfRangeError, LakeSnapshotNotFoundError, ...: Records have moved since planning; see `read_parts.MOVED`.
        UnavailableError: Of live rows: the server lost the scan.

    Cost: the log from `lake_stop` on is read once, or twice when it is long, or of a long one the rows that are live; `TAIL_BYTES`
        and eight bytes for each row that it ends are kept.
    """
    if part.live:
        yield from live_rows(source, part, request)
        return
    if tail is None:
        tail = choose_tail(source, part, request)
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
    tail = choose_tail(source, part, request)
    for _ in tail.look():
        pass
    total: int = sum(batch.num_rows for batch, _ in tail.rows())
    if part.start < part.lake_stop:
        ended = {part.key: tail.ended_offsets(part.lake_stop)}
        return total + source.lake_source.count(part.splits, stops={part.key: part.lake_stop}, ended=ended)
    return total


def choose_tail(
    source: TableSource, part: BucketPart, request: Request, bytes_max: int | None = None
) -> Tail | LiveTail:
    """Return the reader of the log's end of a part.

    Args:
        source: The table.
        part: Whose end, below its stop.
        request: Which columns the rows have.
        bytes_max: How many bytes of rows are kept at most; 0: none are. None: `TAIL_BYTES`.
    """
    bytes_max = TAIL_BYTES if bytes_max is None else bytes_max
    # For steps the log is read answer by answer; and the times of rows that changed after the stop may have left the log.
    if not is_long(part) or request.step_rows is not None:
        return Tail(source, part, request, bytes_max)
    if TIMESTAMP in request.columns.inner(part.filter, in_lake=False):
        return Tail(source, part, request, bytes_max)
    known = source.known_state(part.bucket)
    if known is not None and not (known.is_known and not known.is_dropped and known.end - part.stop <= _length(part)):
        return Tail(source, part, request, bytes_max)
    return LiveTail(source, part, request, bytes_max)


def is_long(part: BucketPart) -> bool:
    """Return whether a part's log is long enough that its live rows are read rather than it."""
    return _length(part) >= LIVE_MIN


def _length(part: BucketPart) -> int:
    return part.stop - part.log_start


class LiveTail:
    """A long end of the log of a part: its live rows, and the offsets of the rows of the lake that it ends.

    It has the rows of `Tail`. Where the server does not have what it takes, or loses it, the log is read.

    Args:
        source: The table.
        part: Whose end, below its stop.
        request: Which columns the rows have.
        bytes_max: How many bytes of rows are kept at most.
    """

    def __init__(self, source: TableSource, part: BucketPart, request: Request, bytes_max: int) -> None:
        self.part = part
        self._source = source
        self._request = request
        self._bytes_max = bytes_max
        self._ended = np.empty(0, dtype=np.int64)
        self._kept: list[tuple[pa.RecordBatch, int]] = []
        #: What reads what is not kept; None: all is.
        self._rest: BucketPart | None = part
        self._log: Tail | None = None

    @property
    def kept_bytes(self) -> int | None:
        """Return how large the rows are that are kept; None: not all are."""
        if self._log is not None:
            return self._log.kept_bytes
        return None if self._rest is not None else sum(batch.nbytes for batch, _ in self._kept)

    @property
    def expected_bytes(self) -> int:
        """Return about how large the rows of `rows` are, by those that are kept; 0: none are."""
        if self._log is not None:
            return self._log.expected_bytes
        rows = sum(batch.num_rows for batch, _ in self._kept)
        size: int = sum(batch.nbytes for batch, _ in self._kept)
        if self._rest is None:
            return size
        if self.part.filter is not None:  # how many live rows it saw for those is not known
            return size * _length(self.part) // max(1, self._rest.log_start - self.part.log_start)
        # A record writes a row, or ends one; an update's two do one each.
        written = _length(self.part) - self._ended.size
        live: int = written - (self._ended.size - slice_ascending(self._ended, 0, self.part.log_start).size)
        expected: int = size * max(live, rows) // max(1, rows)
        return expected

    def ended_offsets(self, stop: int) -> NDArray[np.int64]:
        """Return the offsets below `stop` of rows that the log's end ends, ascending."""
        if self._log is not None:
            return self._log.ended_offsets(stop)
        return slice_ascending(self._ended, 0, stop)

    def look(self) -> Iterator[None]:
        """Fetch what the log's end ends, and rows while there is room. To be done before all else; yields between answers."""
        try:
            yield from self._look()
        except ServerUnavailableError:
            raise
        except FlussError as error:
            self._log, self._kept = self._log_tail(self.part, error), []
        if self._log is not None:
            yield from self._log.look()

    def rows(self) -> Rows:
        """Yield the live rows, and the offset up to which the bucket is read with them."""
        if self._log is not None:
            yield from self._log.rows()
            return
        yield from self._kept
        if self._rest is None:
            return
        try:
            for batch, position in self._live(self._rest):
                self._rest = _rest_of(self._rest, position)
                yield batch, position
        except ServerUnavailableError:
            raise
        except FlussError as error:
            tail = self._log_tail(self._rest, error)
            for _ in tail.look():
                pass
            yield from tail.rows()

    def _look(self) -> Iterator[None]:
        part = self.part
        ended = fetch_ended_offsets(self._source.connection, self._source.info, part.bucket, part.log_start, part.stop)
        yield None
        if ended is None:
            self._log = self._log_tail(part, None)
            return
        self._ended = ended
        if self._bytes_max and self._request.limit is None:  # of a limited read the lake's rows may be enough
            yield from self._keep()

    def _keep(self) -> Iterator[None]:
        """Fetch rows as long as there is room for them."""
        room, part = self._bytes_max, self.part
        with closing(self._live(part)) as found:
            for batch, position in found:
                self._kept.append((batch, position))
                self._rest = _rest_of(part, position)
                yield None
                if (room := room - batch.nbytes) <= 0:
                    return
        self._rest = None

    def _log_tail(self, part: BucketPart, error: FlussError | None) -> Tail:
        """Return the reader of the log of a part whose live rows are not available."""
        if error is not None:
            is_fault = isinstance(error, _FAULTS) or isinstance(error.__cause__, _FAULTS)
            level = logging.WARNING if is_fault else logging.DEBUG
            log.log(
                level, "live rows of %s, bucket %s: their log is read: %s", self._source.info.path, part.bucket, error
            )
        return Tail(self._source, part, self._request, self._bytes_max)

    def _live(self, part: BucketPart) -> Generator[tuple[pa.RecordBatch, int], None, None]:
        # What came after the stop is read of the log: no more of it than the end itself has.
        return live_rows(self._source, part, self._request, back_max=_length(self.part))


def _rest_of(part: BucketPart, position: int) -> BucketPart:
    """Return what is left of a part behind rows of its log."""
    return replace(part, start=position, lake_stop=position, splits=())


class Tail:
    """The log's end of a part: which rows of the lake it ends, and its own rows.

    It is read by `look`; where that found too much to keep, again for its rows.

    Args:
        source: The table.
        part: Whose end, below its stop.
        request: Which columns the rows have.
        bytes_max: How many bytes of rows are kept at most; 0: none are, and the first pass reads no more than it takes to
            know what is ended.
    """

    def __init__(self, source: TableSource, part: BucketPart, request: Request, bytes_max: int) -> None:
        self.part = part
        self._source = source
        self._request = request
        self._bytes_max = bytes_max
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
        return slice_ascending(self._ended, 0, stop)

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
