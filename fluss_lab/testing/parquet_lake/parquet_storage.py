"""The storage of the parquet format: its tables made, altered and dropped, and the rows of a snapshot."""

from __future__ import annotations

import dataclasses
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from fluss_lab.errors import (
    InvalidPropertyError,
    LakeTableExistsError,
    StorageError,
    TableNotFoundError,
    UnsupportedError,
)
from fluss_lab.files import replace
from fluss_lab.lake import (
    SYSTEM_FIELDS,
    CommitterInitContext,
    FlussLogSource,
    LakeCatalog,
    LakeCommitter,
    LakeSource,
    LakeStorage,
    LakeTieringFactory,
    LakeWriter,
    SimpleVersionedSerializer,
    SupportsCreateFlussLogSource,
    SupportsEmptyBuckets,
    WriterInitContext,
)
from fluss_lab.lake.snapshot_summary import COMMIT_ID_KEY, drop_properties
from fluss_lab.lake.system_columns import BUCKET_COLUMN, OFFSET_COLUMN
from fluss_lab.model import ChangeType, PartitionInfo, TableDescriptor, TableInfo, TablePath
from fluss_lab.model.names import BucketKey
from fluss_lab.testing.parquet_lake.parquet_source import ParquetFlussLogSource, ParquetLakeSource, read_file
from fluss_lab.testing.parquet_lake.parquet_writer import (
    CHANGE_TYPE,
    PREVIOUS_OFFSET,
    CommittableSerializer,
    ParquetCommittable,
    ParquetLakeCommitter,
    ParquetLakeWriter,
    ParquetWriteResult,
    WriteResultSerializer,
    file_schema,
)
from fluss_lab.testing.parquet_lake.table_versions import LakeFile, LakeFolder, Manifest

#: The name under which the format is installed.
FORMAT: str = "parquet"


class ParquetLakeCatalog(LakeCatalog):
    """Tables are folders of the warehouse. Safe in any thread and process: each change is one new version, or a rename."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse

    def create_table(self, table: TableInfo) -> None:
        """Create the lake table, or take over what an earlier creation left."""
        folder = LakeFolder(self._warehouse, table.path)
        folder.make()
        while True:
            found = folder.newest()
            if found is None:
                following = Manifest(1, table.table_id, table.descriptor)
            elif found.table_id == table.table_id:
                return
            elif found.snapshot_id is None and _layout(found.descriptor) == _layout(table.descriptor):
                following = found.next_altered(table)
            else:
                raise LakeTableExistsError(
                    f"lake table {table.path}: there is another one of that name, of table id {found.table_id}: drop it, or "
                    "use another name"
                )
            try:
                folder.publish(following)
            except FileExistsError:
                continue
            return

    def alter_table(self, table: TableInfo) -> None:
        """Publish the table's new definition."""
        folder = LakeFolder(self._warehouse, table.path)
        while (found := folder.newest_of(table.table_id)).descriptor != table.descriptor:
            _check_alterable(table, found.descriptor)
            try:
                folder.publish(found.next_altered(table))
            except FileExistsError:
                continue

    def drop_table(self, path: TablePath, table_id: int, keep: bool = False) -> None:
        """Drop the folder, or rename it; either way the name is free at once."""
        folder = LakeFolder(self._warehouse, path)
        try:
            folder.newest_of(table_id)
        except TableNotFoundError:
            return
        try:
            if keep:
                kept = LakeFolder(self._warehouse, TablePath(path.database, f"{path.table}__{table_id}"))
                if kept.newest() is not None:
                    raise LakeTableExistsError(
                        f"lake table {path}: it cannot be kept as {kept.table_path}, which exists"
                    )
                replace(folder.path, kept.path)
                return
            # First out of sight: half a table would be neither there nor gone.
            gone = folder.path.with_name(f".{path.table}-{uuid.uuid4().hex}")
            replace(folder.path, gone)
            shutil.rmtree(gone, ignore_errors=True)
        except OSError as error:
            raise StorageError(f"lake table {path}: folder {folder.path}: {error}") from error

    def drop_partition(self, table: TableInfo, partition: PartitionInfo) -> None:
        """Commit a snapshot without the partition's files."""
        folder = LakeFolder(self._warehouse, table.path)
        properties = drop_properties(table.table_id, partition)
        while True:
            try:
                newest = folder.newest_of(table.table_id)
            except TableNotFoundError:
                return
            if any(each.properties.get(COMMIT_ID_KEY) == properties[COMMIT_ID_KEY] for each in folder.history(newest)):
                return
            kept = tuple(file for file in newest.files if file.partition != partition.name)
            starts = {key: start for key, start in newest.replay_starts.items() if key[0] != partition.name}
            try:
                folder.publish(dataclasses.replace(newest, replay_starts=starts).next_committed(kept, properties, {}))
            except FileExistsError:
                continue
            return


def _layout(descriptor: TableDescriptor) -> dict[str, Any]:
    """Return what two tables must have in common for one to be taken for the other."""
    value = descriptor.to_json()
    return {name: value[name] for name in sorted(value) if not name.endswith("properties") and name != "comment"}


def _check_alterable(table: TableInfo, found: TableDescriptor) -> None:
    types = {column.name: column.type for column in found.schema.columns}
    for column in table.schema.columns:
        if types.get(column.name, column.type) != column.type:
            raise UnsupportedError(
                f"lake table {table.path}: column {column.name!r} is {types[column.name]} and cannot become {column.type}"
            )


class ParquetLakeStorage(LakeStorage, SupportsCreateFlussLogSource, SupportsEmptyBuckets):
    """A folder of tables.

    Args:
        properties: ``warehouse``: the folder, an absolute path or ``file://`` URI; it is made when it is needed.

    Raises:
        InvalidPropertyError: The warehouse is missing, or no such place.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = dict(properties)
        self.warehouse = _folder(properties.get("warehouse", ""))

    @property
    def format_name(self) -> str:
        """Return ``parquet``."""
        return FORMAT

    @property
    def properties(self) -> Mapping[str, str]:
        """Return the configuration."""
        return self._properties

    @property
    def local_folder(self) -> Path | None:
        """Return the warehouse."""
        return self.warehouse

    def create_lake_tiering_factory(self) -> LakeTieringFactory[Any, Any]:
        """Return the factory of writers and committers."""
        return ParquetLakeTieringFactory(self.warehouse)

    def create_lake_catalog(self) -> LakeCatalog:
        """Return the catalog of lake tables."""
        return ParquetLakeCatalog(self.warehouse)

    def create_lake_source(self, table: TableInfo) -> LakeSource:
        """Return a reader of a log table's rows."""
        return ParquetLakeSource(LakeFolder(self.warehouse, table.path), table)

    def create_fluss_log_source(self, table: TableInfo) -> FlussLogSource:
        """Return the log of a table."""
        return ParquetFlussLogSource(LakeFolder(self.warehouse, table.path), table)

    def empty_buckets(
        self,
        table: TableInfo,
        buckets: Sequence[BucketKey],
        planned_snapshot_id: int | None,
        properties: Mapping[str, str],
    ) -> int:
        """Commit a snapshot without the files of some buckets."""
        context = CommitterInitContext(table, properties.get(COMMIT_ID_KEY, ""))
        with ParquetLakeCommitter(LakeFolder(self.warehouse, table.path), context) as committer:
            return committer.commit_on(planned_snapshot_id, properties, frozenset(buckets))


class ParquetLakeTieringFactory(LakeTieringFactory[ParquetWriteResult, ParquetCommittable]):
    """Makes writers and committers, and what serializes between them."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse

    def describe_table(self, table: TableInfo) -> dict[str, Any]:
        """Return where the files go; that the lake table fits is checked here, once a round."""
        folder = self._folder(table.path)
        found = folder.newest_of(table.table_id).descriptor.schema
        if missing := [column for column in table.schema.columns if column not in found.columns]:
            raise UnsupportedError(f"lake table {table.path}: column {missing[0].name!r} is missing, or another one")
        return {"table": str(table.path)}

    def create_lake_writer(self, context: WriterInitContext) -> LakeWriter[ParquetWriteResult]:
        """Return a writer for one split."""
        return ParquetLakeWriter(self._folder(TablePath.parse(context.lake_table["table"])), context)

    def write_result_serializer(self) -> SimpleVersionedSerializer[ParquetWriteResult]:
        """Return the serializer of write results."""
        return WriteResultSerializer()

    def create_lake_committer(
        self, context: CommitterInitContext
    ) -> LakeCommitter[ParquetWriteResult, ParquetCommittable]:
        """Return a committer for one round."""
        return ParquetLakeCommitter(self._folder(context.table.path), context)

    def committable_serializer(self) -> SimpleVersionedSerializer[ParquetCommittable]:
        """Return the serializer of committables."""
        return CommittableSerializer()

    def _folder(self, path: TablePath) -> LakeFolder:
        return LakeFolder(self._warehouse, path)


def _folder(place: str) -> Path:
    """Return the folder that a path or ``file://`` URI means."""
    parts = urlsplit(place)
    if place.startswith("/"):
        return Path(place)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"} and parts.path.startswith("/"):
        return Path(unquote(parts.path))
    raise InvalidPropertyError(f"property 'warehouse': expected an absolute path or file:///path, found {place!r}")


def read_state(storage: ParquetLakeStorage, table: TableInfo) -> pa.Table:
    """Return the rows of the newest snapshot, user's and system columns, by partition, bucket and offset; none without any.

    Cost: the whole table in memory.
    """
    folder = LakeFolder(storage.warehouse, table.path)
    wanted = folder.newest_of(table.table_id).snapshot_id
    files = () if wanted is None else folder.snapshot(table.table_id, wanted).files
    buckets: dict[tuple[str, int], list[LakeFile]] = {}
    for file in files:
        buckets.setdefault((file.partition or "", file.bucket), []).append(file)
    schema = pa.schema([*table.schema.arrow_schema, *SYSTEM_FIELDS])
    parts = [_live(folder, table, buckets[key]).select(schema.names) for key in sorted(buckets)]
    return pa.concat_tables([schema.empty_table(), *parts])


def _live(folder: LakeFolder, table: TableInfo, files: list[LakeFile]) -> pa.Table:
    schema = file_schema(table)
    batches = [batch for file in files for batch in read_file(folder.data_file(file.name), schema, schema.names)]
    rows = pa.Table.from_batches(batches, schema).sort_by(OFFSET_COLUMN)
    assert pc.count_distinct(rows[BUCKET_COLUMN]).as_py() <= 1
    if table.is_log_table:
        return rows
    # Every change but +I names the row that it ends, by the offset that the row has kept.
    ended = rows[PREVIOUS_OFFSET.name]
    adds = pc.is_in(rows[CHANGE_TYPE.name], pa.array([ChangeType.INSERT, ChangeType.UPDATE_AFTER], pa.int8()))
    return rows.filter(pc.and_(adds, pc.invert(pc.is_in(rows[OFFSET_COLUMN], ended.combine_chunks()))))
