"""The rows of a table's snapshots, and its log read back: by offset and by time. Files of a bucket never overlap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from fluss_lab.errors import CorruptDataError, InvalidTimestampError, OffsetOutOfRangeError
from fluss_lab.lake import FetchContext, FlussLogSource, LakeSource, LakeSplit, LogFiles, LookupContext
from fluss_lab.lake.system_columns import OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss_lab.model import ChangeType, TableInfo
from fluss_lab.model.names import BucketKey
from fluss_lab.records import LogRecords
from fluss_lab.testing.parquet_lake.parquet_writer import CHANGE_TYPE, PREVIOUS_OFFSET, file_schema
from fluss_lab.testing.parquet_lake.table_versions import LakeFile, LakeFolder

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyiceberg.expressions import BooleanExpression

#: Changes that begin a row.
_ADDS: Final = (ChangeType.INSERT, ChangeType.UPDATE_AFTER)


class ParquetLakeSource(LakeSource):
    """Reads a table's snapshots. Files of a primary-key table hold changes; each but ``+I`` names the row that it ends."""

    def __init__(self, folder: LakeFolder, table: TableInfo) -> None:
        self._folder = folder
        self._table = table
        self._schema = file_schema(table)
        self._known: tuple[LakeSplit, int | None, NDArray[np.int64]] | None = None

    def plan(
        self, snapshot_id: int, *, stops: Mapping[BucketKey, int] | None = None, where: BooleanExpression | None = None
    ) -> list[LakeSplit]:
        """Return the snapshot's files; the filter is left to `read`. Nothing is ever compacted, so any stop will do.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot.
            OffsetOutOfRangeError: A primary-key bucket's stop is below its replay start.
        """
        del where
        manifest = self._folder.snapshot(self._table.table_id, snapshot_id)
        for key, start in manifest.replay_starts.items():
            if stops is not None and 0 < stops.get(key, 0) < start:
                raise OffsetOutOfRangeError(
                    f"table {self._table.path}, bucket {key}: asked for the rows as they were at offset {stops[key]}, but the "
                    f"lake holds the bucket's changes from offset {start} on"
                )
        files = [file for file in manifest.files if stops is None or file.min_offset < stops.get(file.key, 0)]
        files.sort(key=lambda file: (file.partition or "", file.bucket, file.min_offset))
        changes: dict[BucketKey, tuple[str, ...]] = {}
        if not self._table.is_log_table:
            for file in files:
                changes[file.key] = (*changes.get(file.key, ()), file.name)
        return [
            LakeSplit(
                self._folder.data_file(file.name).as_uri(),
                *file.key,
                file.min_offset,
                file.max_offset,
                file.rows,
                file.size_bytes,
                changes.get(file.key, ()),
            )
            for file in files
        ]

    def read(
        self,
        splits: Sequence[LakeSplit],
        columns: Sequence[str],
        *,
        where: pc.Expression | None = None,
        stops: Mapping[BucketKey, int] | None = None,
        ended: Mapping[BucketKey, NDArray[np.int64]] | None = None,
    ) -> Iterator[tuple[LakeSplit, pa.RecordBatch]]:
        """Yield rows of files in order."""
        wanted = columns if self._table.is_log_table else list(dict.fromkeys([*columns, OFFSET_COLUMN]))
        for split in splits:
            key = (split.partition, split.bucket)
            terms = [] if where is None else [where]
            if stops is not None:
                terms.append(pc.field(OFFSET_COLUMN) < stops.get(key, 0))
            if not self._table.is_log_table:
                terms.append(pc.field(CHANGE_TYPE.name).isin(pa.array(_ADDS, CHANGE_TYPE.type)))
            gone = self._ended_offsets(split, None if stops is None else stops.get(key, 0))
            if ended is not None and key in ended:
                gone = np.union1d(gone, ended[key])
            path = Path(unquote(urlsplit(split.path).path))
            for batch in read_file(path, self._schema, wanted, _all_of(terms)):
                rows = batch
                if len(gone):
                    rows = batch.filter(pa.array(~np.isin(batch.column(OFFSET_COLUMN).to_numpy(), gone)))
                if rows.num_rows:
                    yield split, rows.select(list(columns))

    def _ended_offsets(self, split: LakeSplit, stop: int | None) -> NDArray[np.int64]:
        """Return the offsets of the rows that the changes of a split's bucket end, those below a stop."""
        known = self._known
        if known is not None and known[0].deletes == split.deletes and known[1] == stop:
            return known[2]
        below = None if stop is None else pc.field(OFFSET_COLUMN) < stop
        found = [
            batch.column(0).to_numpy()
            for name in split.deletes
            for batch in read_file(self._folder.data_file(name), self._schema, [PREVIOUS_OFFSET.name], below)
        ]
        ended = np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)
        self._known = (split, stop, ended)
        return ended


def _all_of(terms: Sequence[pc.Expression]) -> pc.Expression | None:
    where = None
    for term in terms:
        where = term if where is None else where & term
    return where


def read_file(
    path: Path, schema: pa.Schema, columns: Sequence[str], where: pc.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield rows of one file in order, a row group at a time; columns that it does not have are null.

    Raises:
        CorruptDataError: It is missing, or not the Parquet file that it should be.
    """
    wanted = pa.schema([schema.field(name) for name in columns])
    try:
        fragment = ds.ParquetFileFormat().make_fragment(str(path), LocalFileSystem())
        physical = fragment.physical_schema
        # Parquet has not all of Arrow's units: what it has is read, and cast.
        scanned = pa.schema(
            [
                physical.field(field.name) if field.name in physical.names else field.with_nullable(True)
                for field in schema
            ]
        )
        for group in fragment.split_by_row_group():
            for batch in group.to_batches(schema=scanned, columns=list(columns), filter=where):
                if batch.num_rows:
                    yield pa.RecordBatch.from_arrays(
                        [column.cast(field.type) for column, field in zip(batch.columns, wanted, strict=True)],
                        schema=wanted,
                    )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptDataError(f"lake file {path}: cannot be read as the table's columns: {error}") from error


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
