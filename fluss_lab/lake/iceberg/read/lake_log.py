"""The log of a table read back from the lake: by offset in order, and by time.

Source: FIP "fetch log from lake". Of a log table it is the rows of the snapshot asked for. Of a primary-key table it is
rows and events of that snapshot and of those that are kept for replay (see `replay_chain`). Files of a bucket normally
follow one another by offset; those that another engine compacted may overlap, and are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import CorruptDataError, InvalidTimestampError, OffsetOutOfRangeError
from fluss_lab.lake.iceberg.metadata.file_pruning import pruning
from fluss_lab.lake.iceberg.metadata.replay_chain import ChainLink
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache, LakeDelete, LakeFile
from fluss_lab.lake.iceberg.read.data_file_reader import DataFileReader
from fluss_lab.lake.iceberg.read.delete_event_reader import EventFile
from fluss_lab.lake.iceberg.read.key_log import records_by_key
from fluss_lab.lake.iceberg.read.lake_table import LakeTable, LoadedTables
from fluss_lab.lake.iceberg.read.merge_reader import ALL, RowGroupQueue, merge_row_groups
from fluss_lab.lake.iceberg.read.pk_log import FileOpeners, LinkReplay, gap
from fluss_lab.lake.iceberg.read.record_search import locate
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from fluss_lab.lake.iceberg.table.layout import user_names
from fluss_lab.lake.iceberg.write.delete_schema import EventRange
from fluss_lab.lake.reader_interfaces import FetchContext, FlussLogSource, LakeRecordPlace, LogFiles, LookupContext
from fluss_lab.lake.system_columns import OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss_lab.model import TableInfo
from fluss_lab.model.times import format_moment
from fluss_lab.records import LogRecords

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression


class IcebergFlussLogSource(FlussLogSource):
    """A table's records as its Iceberg table holds them. Used by one thread."""

    def __init__(
        self, access: CatalogAccess, entries: EntryCache, table: TableInfo, shared: LoadedTables | None = None
    ) -> None:
        self._table = LakeTable(access, entries, table, shared)

    def lookup_log_offset_by_timestamp(self, context: LookupContext) -> tuple[int, int]:
        """Return the first offset whose timestamp is at or after a time, and that record's timestamp in milliseconds.

        Raises:
            InvalidTimestampError: The time is after every record of the bucket in the snapshot.
            LakeSnapshotNotFoundError: No such snapshot; or one that was kept for replay was expired meanwhile: ask again.
            UnsupportedError, CorruptDataError: The table was changed or damaged from outside.

        Cost: one data file, of it two columns of the row groups that can hold the answer; of a primary-key table also one
        delete file; one more for each file that overlaps it.
        """
        key = (context.partition, context.bucket)
        if self._table.info.is_log_table:
            files = self._table.snapshot_files(context.lake_snapshot_id).data(key)
            best = self._first_in(files, (), context.timestamp_ms, context.lake_snapshot_id, ALL)
        else:
            best = self._first_in_chain(context)
        if best is None:
            raise InvalidTimestampError(
                f"table {self._table.info.path}, partition {context.partition}, bucket {context.bucket}: no record in lake "
                f"snapshot {context.lake_snapshot_id} is at or after {format_moment(context.timestamp_ms)}"
            )
        return best

    def _first_in_chain(self, context: LookupContext) -> FirstRecord | None:
        """Return the first record at or after a time of those that can be replayed."""
        chain, key = self._table.chain(context.lake_snapshot_id), (context.partition, context.bucket)
        start = chain.replay_start(context.lake_snapshot_id, key)
        for link in chain.links(context.lake_snapshot_id, key):
            span = (max(link.start, start), link.stop)
            if span[0] >= span[1]:
                continue
            found = self._first_in(link.state.data, link.events, context.timestamp_ms, link.snapshot_id, span)
            if found is not None:
                return found
        return None

    def _first_in(
        self,
        data: Sequence[LakeFile],
        deletes: Sequence[tuple[EventRange, LakeDelete]],
        timestamp_ms: int,
        snapshot_id: int,
        span: tuple[int, int],
    ) -> FirstRecord | None:
        """Return the first record of a range at or after a time; files that begin behind the best known are not opened."""
        late_us = timestamp_ms * 1000
        rows = [
            (file.min_offset, file) for file in data if file.max_timestamp_us >= late_us and file.max_offset >= span[0]
        ]
        events: list[tuple[int, LakeFile | LakeDelete]] = [
            (found.min_offset, delete)
            for found, delete in deletes
            if found.max_timestamp_ms >= timestamp_ms and found.max_offset >= span[0]
        ]
        best: FirstRecord | None = None
        for min_offset, file in sorted([*rows, *events], key=lambda pair: pair[0]):
            if min_offset >= (span[1] if best is None else best[0]):
                break
            if isinstance(file, LakeFile):
                with self._table.open(file.file.file_path, snapshot_id) as reader:
                    best = first_row_at(reader, timestamp_ms, span, best)
            else:
                with self._open_events(file, snapshot_id) as opened:
                    best = first_event_at(opened, timestamp_ms, span, best)
        return best

    def fetch_log_records(self, context: FetchContext) -> Iterator[LogRecords]:
        """Yield the records of ``[fetch_start_offset, log_end_offset)`` in order, a row group or so at a time.

        Every offset comes exactly once; that is checked while they are yielded. Of a primary-key table with change types
        and previous offsets; -1 for a ``+I``.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot; or one that was kept for replay was expired meanwhile: go on from
                the next offset with the snapshot that is known then.
            OffsetOutOfRangeError: Of a primary-key table: the range begins before the bucket's replay start.
            CorruptDataError: The lake's files lack an offset of the range, or hold one twice.
            UnsupportedError: Another engine changed the table's layout, or deleted rows of a log table.

        Cost: row groups outside the range are not read; memory is bounded by a row group, by what overlaps, and by the
        largest delete file that reaches over it.
        """
        if not self._table.info.is_log_table:
            yield from self._changes(context)
            return
        names = user_names(self._table.columns()) if context.projection is None else list(context.projection)
        expected = context.fetch_start_offset
        columns = list(dict.fromkeys([*names, OFFSET_COLUMN, TIMESTAMP_COLUMN]))
        for rows in self._merge(context, columns):
            self._check_contiguous(context, rows, expected)
            for records in _records(rows, names):
                expected = records.next_offset
                yield records
        if expected < context.log_end_offset:
            raise gap(self._what(context), expected, context.log_end_offset)

    def fetch_records_by_key(
        self, context: FetchContext, prune: BooleanExpression, where: pc.Expression
    ) -> Iterator[LogRecords]:
        """Yield the records of a range that fulfil a condition; see `FlussLogSource.fetch_records_by_key`.

        Cost: of each file whose metrics admit such records, the row groups that do; memory is what was found of one
        snapshot, and a row group or a delete file.
        """
        names = user_names(self._table.columns()) if context.projection is None else list(context.projection)
        for link, span in self._links(context):
            lake = self._table.lake_with(link.snapshot_id)
            might_match = pruning(lake, self._table.columns(), prune)
            try:
                found = records_by_key(self._files(link), link, span, names, where, might_match)
            except FileNotFoundError as error:
                raise self._table.missing(link.snapshot_id, error) from error
            if found is not None:
                yield found

    def earliest_offset(self, partition: str | None, bucket: int, lake_snapshot_id: int) -> int | None:
        """Return the first offset from which on the lake holds the bucket's log; None when it holds no record of it.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot.
            UnsupportedError, CorruptDataError: The table was changed or damaged from outside.
        """
        if self._table.info.is_log_table:
            files = self._table.snapshot_files(lake_snapshot_id).data((partition, bucket))
            # What others gave an offset below all is no record of the log.
            return max(min(file.min_offset for file in files), 0) if files else None
        chain = self._table.chain(lake_snapshot_id)
        links = chain.links(lake_snapshot_id, (partition, bucket))
        return chain.replay_start(lake_snapshot_id, (partition, bucket)) if links[-1].stop else None

    def locate_record(
        self, partition: str | None, bucket: int, offset: int, snapshot_id: int
    ) -> LakeRecordPlace | None:
        """Return where the lake holds a record; None when it does not: see `FlussLogSource.locate_record`.

        Cost: two columns of a row group of one file, or of those that overlap.
        """
        return locate(self._table, (partition, bucket), offset, snapshot_id)

    def log_files(self, context: FetchContext) -> LogFiles:
        """Return which files `fetch_log_records` would open.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot; or one that was kept for replay was expired meanwhile: ask again.
        """
        start, stop = context.fetch_start_offset, context.log_end_offset
        snapshot_id, key = context.lake_snapshot_id, (context.partition, context.bucket)
        data: list[LakeFile] = []
        deletes: list[LakeDelete] = []
        if self._table.info.is_log_table:
            data += [each for each in self._table.snapshot_files(snapshot_id).data(key) if _overlaps(each, start, stop)]
        else:
            chain = self._table.chain(snapshot_id)
            for link in chain.links(snapshot_id, key):
                span = (max(start, link.start), min(stop, link.stop))
                if span[0] < span[1]:
                    data += [each for each in link.state.data if _overlaps(each, *span)]
                    deletes += [delete for found, delete in link.events if _overlaps(found, *span)]
        files = [each.file for each in data] + [each.file for each in deletes]
        return LogFiles(
            len(data),
            len(deletes),
            sum(file.record_count for file in files),
            sum(file.file_size_in_bytes for file in files),
        )

    # -- primary-key tables --------------------------------------------------------------------------------------------

    def _changes(self, context: FetchContext) -> Iterator[LogRecords]:
        """Yield the records of a primary-key table's bucket."""
        names = user_names(self._table.columns()) if context.projection is None else list(context.projection)
        for link, span in self._links(context):
            try:
                yield from LinkReplay(self._files(link), link, span, names, self._what(context))
            except FileNotFoundError as error:
                raise self._table.missing(link.snapshot_id, error) from error

    def _links(self, context: FetchContext) -> Iterator[tuple[ChainLink, tuple[int, int]]]:
        """Yield the chain links that hold a range of a primary-key table's bucket, each with its part of the range.

        Raises:
            OffsetOutOfRangeError: The range begins before the bucket's replay start.
            CorruptDataError: The links end before the range does.
        """
        what, start, stop = self._what(context), context.fetch_start_offset, context.log_end_offset
        asked, key = context.lake_snapshot_id, (context.partition, context.bucket)
        chain = self._table.chain(asked)
        links, replay_start = chain.links(asked, key), chain.replay_start(asked, key)
        if start >= stop:
            return
        if start < replay_start:
            raise OffsetOutOfRangeError(
                f"{what}: offset {start} cannot be replayed any more; the earliest available is {replay_start}"
            )
        for link in links:
            span = (max(start, link.start), min(stop, link.stop))
            if span[0] < span[1]:
                yield link, span
        if stop > links[-1].stop:
            raise gap(what, max(start, links[-1].stop), stop)

    def _files(self, link: ChainLink) -> FileOpeners:
        return FileOpeners(
            lambda file: self._table.open(file.file.file_path, link.snapshot_id),
            lambda delete: self._open_events(delete, link.snapshot_id),
        )

    def _open_events(self, delete: LakeDelete, snapshot_id: int) -> EventFile:
        try:
            return EventFile(self._table.io(), delete.file.file_path, self._table.columns())
        except FileNotFoundError as error:
            raise self._table.missing(snapshot_id, error) from error

    # -- log tables ----------------------------------------------------------------------------------------------------

    def _merge(self, context: FetchContext, columns: list[str]) -> Iterator[pa.Table]:
        """Yield the rows of the range in ascending order of offset, from files that may overlap."""
        span = (context.fetch_start_offset, context.log_end_offset)
        snapshot_id = context.lake_snapshot_id
        files = self._table.snapshot_files(snapshot_id).data((context.partition, context.bucket))
        with RowGroupQueue(lambda file: self._table.open(file.file.file_path, snapshot_id), files, span) as queue:
            yield from merge_row_groups(
                queue, columns, span, lambda opened, names: opened.reader.read([opened.group], names)
            )

    def _check_contiguous(self, context: FetchContext, rows: pa.Table, expected: int) -> None:
        offsets = rows.column(OFFSET_COLUMN).to_numpy()
        wanted = np.arange(expected, expected + len(offsets), dtype=np.int64)
        wrong = np.flatnonzero(offsets != wanted)
        if wrong.size:
            found, missing = int(offsets[wrong[0]]), int(wanted[wrong[0]])
            if found < missing:
                raise CorruptDataError(f"{self._what(context)}: offset {found} is there more than once")
            raise gap(self._what(context), missing, found)

    def _what(self, context: FetchContext) -> str:
        return (
            f"table {self._table.info.path}, partition {context.partition}, bucket {context.bucket}, lake snapshot "
            f"{context.lake_snapshot_id}"
        )


def _records(rows: pa.Table, names: list[str]) -> Iterator[LogRecords]:
    """Yield the rows as records, in one piece; in several where a column has more than the 2 GB that one array takes."""
    rows = rows.combine_chunks()
    offsets = rows.column(OFFSET_COLUMN).to_numpy()
    timestamps_ms = pc.cast(rows.column(TIMESTAMP_COLUMN), pa.int64()).to_numpy() // 1000
    at = 0
    for batch in rows.select(names).to_batches():
        stop = at + batch.num_rows
        yield LogRecords(batch, pa.array(offsets[at:stop]), pa.array(timestamps_ms[at:stop]))
        at = stop


def _overlaps(each: LakeFile | EventRange, start: int, stop: int) -> bool:
    return each.max_offset >= start and each.min_offset < stop


#: Offset, and timestamp in epoch milliseconds.
FirstRecord: TypeAlias = tuple[int, int]


def first_row_at(
    reader: DataFileReader, timestamp_ms: int, span: tuple[int, int], best: FirstRecord | None
) -> FirstRecord | None:
    """Return the first row of a data file at or after a time, or the best known if that comes before it.

    Args:
        reader: The file.
        timestamp_ms: The time.
        span: Offsets ``[start, stop)``: others do not count.
        best: What other files had.

    Raises:
        CorruptDataError: The file cannot be decoded.
    """
    wanted_us = timestamp_ms * 1000
    groups = [group for group in reader.groups if group.max_timestamp_us >= wanted_us and group.max_offset >= span[0]]
    for group in sorted(groups, key=lambda group: group.min_offset):
        if group.min_offset >= (span[1] if best is None else best[0]):
            break
        rows = reader.read([group], [OFFSET_COLUMN, TIMESTAMP_COLUMN])
        offsets = rows.column(OFFSET_COLUMN).to_numpy()
        micros = rows.column(TIMESTAMP_COLUMN).cast(pa.int64()).to_numpy()
        low, high = np.searchsorted(offsets, span)
        late = np.flatnonzero(micros[low:high] >= wanted_us)
        if late.size:
            at = int(low) + int(late[0])
            found = (int(offsets[at]), int(micros[at]) // 1000)
            best = found if best is None else min(best, found)
    return best


def first_event_at(
    events: EventFile, timestamp_ms: int, span: tuple[int, int], best: FirstRecord | None
) -> FirstRecord | None:
    """Return the first event of a delete file at or after a time, or the best known if that comes before it.

    Args:
        events: The file.
        timestamp_ms: The time.
        span: Offsets ``[start, stop)``: others do not count.
        best: What other files had.

    Raises:
        CorruptDataError: The file is not what tiering writes.
    """
    offsets, times = events.times(span)
    late = np.flatnonzero(times >= timestamp_ms)
    if not late.size:
        return best
    found = (int(offsets[late[0]]), int(times[late[0]]))
    return found if best is None else min(best, found)
