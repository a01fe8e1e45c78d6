"""The rows of a table's lake snapshots: which files can hold those asked for, and reading them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, expression_evaluator, inclusive_projection
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from fluss_lab.errors import InvalidFilterError
from fluss_lab.lake.iceberg.access import CatalogAccess
from fluss_lab.lake.iceberg.lake_table import LakeTable, SnapshotFiles
from fluss_lab.lake.iceberg.manifests import BucketKey, EntryCache, LakeFile
from fluss_lab.lake.iceberg.reading import LakeFileReader, clipped
from fluss_lab.lake.interfaces import OFFSET_COLUMN
from fluss_lab.lake.readers import FileColumn, LakeSource, LakeSplit
from fluss_lab.model import TableInfo


class IcebergLakeSource(LakeSource):
    """Reads a log table's Iceberg snapshots. Used by one thread."""

    def __init__(self, access: CatalogAccess, entries: EntryCache, table: TableInfo) -> None:
        self._table = LakeTable(access, entries, table)

    def plan(
        self, snapshot_id: int, *, stops: Mapping[BucketKey, int] | None = None, where: Any = None
    ) -> list[LakeSplit]:
        """Return the files of a snapshot that can hold rows asked for, by partition, bucket and offset.

        Args:
            snapshot_id: Which snapshot.
            stops: By (partition, bucket): only rows with smaller offsets are asked for; a bucket without an entry is
                left out. None: all.
            where: A pyiceberg expression over the table's columns, for pruning by partition and by metrics; None: none.

        Raises:
            LakeSnapshotNotFoundError: No such snapshot.
            InvalidFilterError: The expression names no column of the table, or compares it with what it is not.
            UnsupportedError: Somebody deleted rows by delete files, or changed the table's layout.
            CorruptDataError: A manifest is missing.

        Cost: each manifest is read and decoded once; then some 10 microseconds a file.
        """
        files = self._table.at(snapshot_id)
        might_match = _pruning(files, where)
        buckets = sorted(files.by_bucket, key=lambda key: (key[0] or "", key[1]))
        splits: list[LakeSplit] = []
        for key in buckets:
            if stops is not None and key not in stops:
                continue
            stop = None if stops is None else stops[key]
            splits += [
                _split(file)
                for file in files.by_bucket[key]
                if (stop is None or file.min_offset < stop) and might_match(file.file)
            ]
        return splits

    def file_columns(self) -> Mapping[str, FileColumn]:
        """Return how each column is found in the table's files."""
        return self._table.file_columns()

    def read(
        self,
        splits: Sequence[LakeSplit],
        columns: Sequence[str],
        *,
        where: pc.Expression | None = None,
        stops: Mapping[BucketKey, int] | None = None,
    ) -> Iterator[tuple[LakeSplit, pa.RecordBatch]]:
        """Yield rows of files in order; see `LakeSource.read`.

        Raises:
            CorruptDataError: A file is missing, or is not what the lake's metadata says.
        """
        for split in splits:
            stop = None if stops is None else stops.get((split.partition, split.bucket), 0)
            if stop is not None and stop <= split.min_offset:
                continue
            with self._table.open(split.path) as reader:
                for rows in _rows(reader, columns, where, stop):
                    yield from ((split, batch) for batch in rows.combine_chunks().to_batches())


def _rows(
    reader: LakeFileReader, columns: Sequence[str], where: pc.Expression | None, stop: int | None
) -> Iterator[pa.Table]:
    groups = [group for group in reader.groups if stop is None or group.min_offset < stop]
    for run in reader.runs(groups):
        if stop is None or max(group.max_offset for group in run) < stop:
            rows = reader.read(run, columns, where)
        else:
            with_offsets = reader.read(run, list(dict.fromkeys([*columns, OFFSET_COLUMN])), where)
            rows = clipped(with_offsets, with_offsets.column(OFFSET_COLUMN), None, stop).select(list(columns))
        if len(rows):
            yield rows


def _split(file: LakeFile) -> LakeSplit:
    return LakeSplit(
        file.file.file_path,
        file.partition,
        file.bucket,
        file.min_offset,
        file.max_offset,
        file.file.record_count,
        file.file.file_size_in_bytes,
    )


class _Pruning:
    """Tells from partition values and metrics whether a file can hold rows for which an expression is true."""

    def __init__(self, files: SnapshotFiles, where: BooleanExpression) -> None:
        schema = _filter_schema(files)
        self._metrics = _InclusiveMetricsEvaluator(schema, where).eval
        spec = files.columns.layout.spec
        projected = inclusive_projection(schema, spec)(where)
        partition_schema = Schema(*spec.partition_type(schema).fields)
        self._partition = expression_evaluator(partition_schema, projected, case_sensitive=True)

    def __call__(self, file: DataFile) -> bool:
        return self._partition(file.partition) and self._metrics(file)


def _pruning(files: SnapshotFiles, where: Any) -> Any:
    if where is None or isinstance(where, AlwaysTrue):
        return lambda _: True
    if not isinstance(where, BooleanExpression):
        raise InvalidFilterError(f"filter for the lake: expected a pyiceberg expression, found {type(where).__name__}")
    try:
        return _Pruning(files, where)
    except (ValueError, TypeError) as error:
        raise InvalidFilterError(f"filter {where}: {error}") from error


def _filter_schema(files: SnapshotFiles) -> Schema:
    """Return the columns under their Fluss names, with the types that they have in the lake now, for bounds of either."""
    current = files.lake.schema()
    fields = []
    for field in files.columns.layout.schema.fields:
        try:
            found = current.find_field(field.field_id)
        except ValueError:
            found = field
        fields.append(NestedField(field.field_id, field.name, found.field_type, required=found.required))
    return Schema(*fields)
