"""Lake tables made, altered and dropped as Fluss tables are."""

from __future__ import annotations

import dataclasses
import shutil
import uuid
from pathlib import Path
from typing import Any

from fluss_lab.errors import LakeTableExistsError, StorageError, TableNotFoundError, UnsupportedError
from fluss_lab.files import replace
from fluss_lab.lake import LakeCatalog
from fluss_lab.lake.snapshot_summary import COMMIT_ID_KEY, drop_properties
from fluss_lab.model import PartitionInfo, TableDescriptor, TableInfo, TablePath
from fluss_lab.testing.parquet_lake.table_versions import LakeFolder, Manifest


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
