"""The log of a table read back from the lake: by offset in order, and by time.

Source: FIP "fetch log from lake". Files of a bucket normally follow one another by offset; those that somebody compacted
may overlap, and are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import CorruptDataError, InvalidTimestampError
from fluss_lab.lake.iceberg.access import CatalogAccess
from fluss_lab.lake.iceberg.lake_table import LakeTable
from fluss_lab.lake.iceberg.manifests import EntryCache, LakeFile
from fluss_lab.lake.iceberg.pieces import Pieces, merged
from fluss_lab.lake.iceberg.reading import user_names
from fluss_lab.lake.interfaces import OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss_lab.lake.readers import FetchContext, FlussLogSource, LookupContext
from fluss_lab.model import TableInfo
from fluss_lab.model.times import format_moment
from fluss_lab.records import LogRecords


class IcebergFlussLogSource(FlussLogSource):
    """A log table's records as its Iceberg table holds them. Used by one thread."""

    def __init__(self, access: CatalogAccess, entries: EntryCache, table: TableInfo) -> None:
        self._table = LakeTable(access, entries, table)

    def lookup_log_offset_by_timestamp(self, context: LookupContext) -> tuple[int, int]:
        """Return the first offset whose timestamp is at or after a time, and that record's timestamp in milliseconds.

        Raises:
            InvalidTimestampError: The time is after every record of the bucket in the snapshot.
            LakeSnapshotNotFoundError: No such snapshot.
            UnsupportedError, CorruptDataError: The table was changed or damaged by somebody.

        Cost: one file, of it two columns of the row groups that can hold the answer; one more for each file that
        overlaps it.
        """
        wanted_us = context.timestamp_ms * 1000
        best: tuple[int, int] | None = None
        for file in self._files(context.partition, context.bucket, context.lake_snapshot_id):
            if best is not None and file.min_offset > best[0]:
                break
            if file.max_timestamp_us >= wanted_us:
                best = self._first_at(file, wanted_us, context.lake_snapshot_id, best)
        if best is None:
            raise InvalidTimestampError(
                f"table {self._table.info.path}, partition {context.partition}, bucket {context.bucket}: no record in lake "
                f"snapshot {context.lake_snapshot_id} is at or after {format_moment(context.timestamp_ms)}"
            )
        return best

    def _first_at(
        self, file: LakeFile, wanted_us: int, snapshot_id: int, best: tuple[int, int] | None
    ) -> tuple[int, int] | None:
        """Return the first record of a file at or after a time, or the best known if that comes before it."""
        with self._table.open(file.file.file_path, snapshot_id) as reader:
            groups = [group for group in reader.groups if group.max_timestamp_us >= wanted_us]
            for group in sorted(groups, key=lambda group: group.min_offset):
                if best is not None and group.min_offset > best[0]:
                    break
                rows = reader.read([group], [OFFSET_COLUMN, TIMESTAMP_COLUMN])
                micros = rows.column(TIMESTAMP_COLUMN).cast(pa.int64()).to_numpy()
                late = np.flatnonzero(micros >= wanted_us)
                if late.size:
                    offset = int(rows.column(OFFSET_COLUMN)[int(late[0])].as_py())
                    if best is None or offset < best[0]:
                        best = (offset, int(micros[late[0]]) // 1000)
        return best

    def fetch_log_records(self, context: FetchContext) -> Iterator[LogRecords]:
        """Yield the records of ``[fetch_start_offset, log_end_offset)`` in order, a row group or so at a time.

        Every offset comes exactly once; that is checked while they are yielded.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot.
            CorruptDataError: The lake's files lack an offset of the range, or hold one twice.
            UnsupportedError: Somebody changed the table's layout or deleted rows.

        Cost: row groups outside the range are not read; memory is bounded by a row group, and by what overlaps.
        """
        names = user_names(self._table.columns()) if context.projection is None else list(context.projection)
        expected = context.fetch_start_offset
        columns = list(dict.fromkeys([*names, OFFSET_COLUMN, TIMESTAMP_COLUMN]))
        for rows in self._merged(context, columns):
            self._check_contiguous(context, rows, expected)
            records = _records(rows, names)
            expected = records.next_offset
            yield records
        if expected < context.log_end_offset:
            raise self._gap(context, expected, context.log_end_offset)

    def earliest_offset(self, partition: str | None, bucket: int, lake_snapshot_id: int) -> int | None:
        """Return the first offset of the bucket that the lake holds; None when it holds no record of it.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot.
            UnsupportedError, CorruptDataError: The table was changed or damaged by somebody.
        """
        return min((file.min_offset for file in self._files(partition, bucket, lake_snapshot_id)), default=None)

    def _files(self, partition: str | None, bucket: int, snapshot_id: int) -> Sequence[LakeFile]:
        return self._table.at(snapshot_id).by_bucket.get((partition, bucket), [])

    def _merged(self, context: FetchContext, columns: list[str]) -> Iterator[pa.Table]:
        """Yield the rows of the range in ascending order of offset, from files that may overlap."""
        start, stop = context.fetch_start_offset, context.log_end_offset
        files = self._files(context.partition, context.bucket, context.lake_snapshot_id)
        span = (start, stop)
        with Pieces(
            lambda file: self._table.open(file.file.file_path, context.lake_snapshot_id), files, span
        ) as pieces:
            yield from merged(pieces, columns, span, lambda piece, names: piece.reader.read([piece.group], names))

    def _check_contiguous(self, context: FetchContext, rows: pa.Table, expected: int) -> None:
        offsets = rows.column(OFFSET_COLUMN).to_numpy()
        wanted = np.arange(expected, expected + len(offsets), dtype=np.int64)
        wrong = np.flatnonzero(offsets != wanted)
        if wrong.size:
            found, missing = int(offsets[wrong[0]]), int(wanted[wrong[0]])
            if found < missing:
                raise CorruptDataError(f"{self._what(context)}: offset {found} is there more than once")
            raise self._gap(context, missing, found)

    def _gap(self, context: FetchContext, start: int, stop: int) -> CorruptDataError:
        return CorruptDataError(
            f"{self._what(context)}: the offsets [{start}, {stop}) are missing; somebody deleted them, or the lake was not "
            "tiered from there"
        )

    def _what(self, context: FetchContext) -> str:
        return (
            f"table {self._table.info.path}, partition {context.partition}, bucket {context.bucket}, lake snapshot "
            f"{context.lake_snapshot_id}"
        )


def _records(rows: pa.Table, names: list[str]) -> LogRecords:
    rows = rows.combine_chunks()
    batches = rows.select(names).to_batches()
    batch = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    timestamps = pc.cast(rows.column(TIMESTAMP_COLUMN), pa.int64()).to_numpy() // 1000
    return LogRecords(batch, pa.array(rows.column(OFFSET_COLUMN).to_numpy()), pa.array(timestamps))
