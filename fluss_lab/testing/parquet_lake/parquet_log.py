"""The log of a table read back: by offset in order, and by time. Files of a bucket never overlap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import CorruptDataError, InvalidTimestampError, OffsetOutOfRangeError
from fluss_lab.lake import FetchContext, FlussLogSource, LogFiles, LookupContext
from fluss_lab.lake.format_interfaces import OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss_lab.model import TableInfo
from fluss_lab.records import LogRecords
from fluss_lab.testing.parquet_lake.parquet_source import read_file
from fluss_lab.testing.parquet_lake.parquet_writer import CHANGE_TYPE, PREVIOUS_OFFSET, file_schema
from fluss_lab.testing.parquet_lake.table_versions import LakeFile, LakeFolder


class ParquetFlussLogSource(FlussLogSource):
    """A table's records as its snapshots hold them; of a primary-key table, its changelog."""

    def __init__(self, folder: LakeFolder, table: TableInfo) -> None:
        self._folder = folder
        self._table = table
        self._schema = file_schema(table)

    def lookup_log_offset_by_timestamp(self, context: LookupContext) -> tuple[int, int]:
        """Return the first record at or after a time that the log has: of one file two columns are read."""
        start = self._replay_start(context.partition, context.bucket, context.lake_snapshot_id)
        late = pc.field(TIMESTAMP_COLUMN) >= pa.scalar(context.timestamp_ms * 1000, pa.timestamp("us", "UTC"))
        wanted = late & (pc.field(OFFSET_COLUMN) >= start)
        columns = [OFFSET_COLUMN, TIMESTAMP_COLUMN]
        for file in self._files(context.partition, context.bucket, context.lake_snapshot_id):
            if file.max_offset >= start and file.max_timestamp_ms >= context.timestamp_ms:
                for rows in read_file(self._folder.data_file(file.name), self._schema, columns, wanted):
                    return int(rows.column(0)[0].as_py()), int(rows.column(1).cast(pa.int64())[0].as_py()) // 1000
        raise InvalidTimestampError(
            f"table {self._table.path}, bucket {context.bucket}: no record is at or after {context.timestamp_ms}"
        )

    def fetch_log_records(self, context: FetchContext) -> Iterator[LogRecords]:
        """Yield the records of ``[fetch_start_offset, log_end_offset)``, each seen to follow the one before it."""
        names = list(self._table.schema.names if context.projection is None else context.projection)
        keyed = () if self._table.is_log_table else (CHANGE_TYPE.name, PREVIOUS_OFFSET.name)
        columns = list(dict.fromkeys([*names, OFFSET_COLUMN, TIMESTAMP_COLUMN, *keyed]))
        start, stop = context.fetch_start_offset, context.log_end_offset
        earliest = self._replay_start(context.partition, context.bucket, context.lake_snapshot_id)
        if start < min(earliest, stop):
            raise OffsetOutOfRangeError(
                f"table {self._table.path}, bucket {context.bucket}: offset {start} is before the earliest available, {earliest}"
            )
        inside = (pc.field(OFFSET_COLUMN) >= start) & (pc.field(OFFSET_COLUMN) < stop)
        expected = max(start, 0)
        for file in self._files(context.partition, context.bucket, context.lake_snapshot_id):
            if file.max_offset < start or file.min_offset >= stop:
                continue
            for rows in read_file(self._folder.data_file(file.name), self._schema, columns, inside):
                records = _records(rows, names)
                if not np.array_equal(records.offsets.to_numpy(), np.arange(expected, expected + len(records))):
                    raise self._gap(context, expected)
                expected = records.next_offset
                yield records
        if expected < stop:
            raise self._gap(context, expected)

    def earliest_offset(self, partition: str | None, bucket: int, lake_snapshot_id: int) -> int | None:
        """Return the first offset from which the bucket's log is whole."""
        files = self._files(partition, bucket, lake_snapshot_id)
        if not files:
            return None
        start = self._replay_start(partition, bucket, lake_snapshot_id)
        return max(files[0].min_offset, start) if self._table.is_log_table else start

    def log_files(self, context: FetchContext) -> LogFiles:
        """Return which files hold a range: events are rows of them."""
        files = [
            file
            for file in self._files(context.partition, context.bucket, context.lake_snapshot_id)
            if file.max_offset >= context.fetch_start_offset and file.min_offset < context.log_end_offset
        ]
        return LogFiles(len(files), 0, sum(file.rows for file in files), sum(file.size_bytes for file in files))

    def _replay_start(self, partition: str | None, bucket: int, snapshot_id: int) -> int:
        manifest = self._folder.snapshot(self._table.table_id, snapshot_id)
        return manifest.replay_starts.get((partition, bucket), 0)

    def _files(self, partition: str | None, bucket: int, snapshot_id: int) -> list[LakeFile]:
        """Return the files of a bucket, by offset."""
        files = self._folder.snapshot(self._table.table_id, snapshot_id).files
        return sorted((file for file in files if file.key == (partition, bucket)), key=lambda file: file.min_offset)

    def _gap(self, context: FetchContext, expected: int) -> CorruptDataError:
        return CorruptDataError(
            f"table {self._table.path}, partition {context.partition}, bucket {context.bucket}, lake snapshot "
            f"{context.lake_snapshot_id}: offset {expected} is missing, or there is another one in its place"
        )


def _records(rows: pa.RecordBatch, names: list[str]) -> LogRecords:
    times = rows.column(TIMESTAMP_COLUMN).cast(pa.int64()).to_numpy() // 1000
    keyed: tuple[Any, ...] = ()
    if CHANGE_TYPE.name in rows.schema.names:
        keyed = (rows.column(CHANGE_TYPE.name), rows.column(PREVIOUS_OFFSET.name))
    return LogRecords(rows.select(names), rows.column(OFFSET_COLUMN), pa.array(times), *keyed)
