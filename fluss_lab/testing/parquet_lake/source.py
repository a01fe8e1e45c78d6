"""The rows of a log table's snapshots, and of single files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from fluss_lab.errors import CorruptDataError, UnsupportedError
from fluss_lab.lake import LakeSource, LakeSplit
from fluss_lab.lake.interfaces import OFFSET_COLUMN
from fluss_lab.model import TableInfo
from fluss_lab.testing.parquet_lake.manifest import BucketKey, LakeFolder
from fluss_lab.testing.parquet_lake.writer import file_schema

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression


class ParquetLakeSource(LakeSource):
    """Reads a log table's snapshots."""

    def __init__(self, folder: LakeFolder, table: TableInfo) -> None:
        if not table.is_log_table:
            raise UnsupportedError(
                f"table {table.path}: it has a primary key; its files hold changes, see `read_state`"
            )
        self._folder = folder
        self._table = table

    def plan(
        self,
        snapshot_id: int,
        *,
        stops: Mapping[BucketKey, int] | None = None,
        where: BooleanExpression | None = None,
    ) -> list[LakeSplit]:
        """Return the snapshot's files; the filter is left to `read`."""
        del where
        files = [
            file
            for file in self._folder.snapshot(self._table.table_id, snapshot_id).files
            if stops is None or file.min_offset < stops.get(file.key, 0)
        ]
        files.sort(key=lambda file: (file.partition or "", file.bucket, file.min_offset))
        return [
            LakeSplit(
                self._folder.data_file(file.name).as_uri(),
                *file.key,
                file.min_offset,
                file.max_offset,
                file.rows,
                file.size_bytes,
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
    ) -> Iterator[tuple[LakeSplit, pa.RecordBatch]]:
        """Yield rows of files in order."""
        for split in splits:
            wanted = where
            if stops is not None:
                below = pc.field(OFFSET_COLUMN) < stops.get((split.partition, split.bucket), 0)
                wanted = below if where is None else where & below
            path = Path(unquote(urlsplit(split.path).path))
            for batch in read_file(path, file_schema(self._table), columns, wanted):
                yield split, batch


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
