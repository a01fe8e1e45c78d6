"""The rows of a table's snapshots, and of single files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from fluss_lab.errors import CorruptDataError, OffsetOutOfRangeError
from fluss_lab.lake import LakeSource, LakeSplit
from fluss_lab.lake.format_interfaces import OFFSET_COLUMN
from fluss_lab.model import ChangeType, TableInfo
from fluss_lab.model.names import BucketKey
from fluss_lab.testing.parquet_lake.parquet_writer import CHANGE_TYPE, PREVIOUS_OFFSET, file_schema
from fluss_lab.testing.parquet_lake.table_versions import LakeFolder

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
        self,
        snapshot_id: int,
        *,
        stops: Mapping[BucketKey, int] | None = None,
        where: BooleanExpression | None = None,
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
            gone = self._ended(split, None if stops is None else stops.get(key, 0))
            if ended is not None and key in ended:
                gone = np.union1d(gone, ended[key])
            path = Path(unquote(urlsplit(split.path).path))
            for batch in read_file(path, self._schema, wanted, _all_of(terms)):
                rows = batch
                if len(gone):
                    rows = batch.filter(pa.array(~np.isin(batch.column(OFFSET_COLUMN).to_numpy(), gone)))
                if rows.num_rows:
                    yield split, rows.select(list(columns))

    def _ended(self, split: LakeSplit, stop: int | None) -> NDArray[np.int64]:
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
