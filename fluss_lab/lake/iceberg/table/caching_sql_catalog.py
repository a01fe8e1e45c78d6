"""pyiceberg's SQL catalog without its repeated work: a commit's cost then does not grow with the number of snapshots.

With a thousand snapshots a table's metadata is a megabyte of JSON, which pyiceberg parses three times a commit and copies
deeply once. A metadata file never changes, so what was parsed or written is kept by its location; and updates of metadata
make new objects of what they change, so the rest can be shared.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

from cachetools import LRUCache
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import load_file_io
from pyiceberg.serializers import Compressor
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.update import (
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)
from pyiceberg.typedef import EMPTY_DICT, Properties
from pyiceberg.utils.config import Config
from sqlalchemy import event

from fluss_lab.lake.iceberg.files.file_seals import seal_json
from fluss_lab.lake.iceberg.metadata.metadata_files import read_metadata
from fluss_lab.lake.iceberg.metadata.snapshot_history import change_ms

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.typedef import Identifier
    from sqlalchemy.engine import ExceptionContext

#: Metadata kept: the newest and the one before of a dozen tables; with 1,000 snapshots one takes some 5 MB.
KEPT: Final = 24


class CachingSqlCatalog(SqlCatalog):
    """A SQL catalog that keeps the metadata of tables by the location of its file. Safe in any thread."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        event.listen(self.engine, "handle_error", _close_after_failed_commit)
        # The pool's connections end with the catalog: Python 3.13 warns of those that the garbage collector closes.
        weakref.finalize(self, self.engine.dispose)
        self._kept: LRUCache[str, TableMetadata] = LRUCache(KEPT)
        self._file_access: LRUCache[frozenset[tuple[str, str]], FileIO] = LRUCache(KEPT)
        self._kept_lock = threading.Lock()

    def _convert_orm_to_iceberg(self, orm_table: Any) -> Table:
        location = orm_table.metadata_location
        if not (location and orm_table.table_namespace and orm_table.table_name):
            return super()._convert_orm_to_iceberg(orm_table)
        if (metadata := self._kept_metadata(location)) is None:
            metadata = read_metadata(load_file_io(self.properties, location), location)
            self._keep(location, metadata)
        return Table(
            identifier=(*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name),
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(metadata.properties, location),
            catalog=self,
        )

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        if current_table is None:
            return super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        for requirement in requirements:
            requirement.validate(current_table.metadata)
        metadata = _update_metadata(current_table, updates)
        version = self._parse_metadata_version(current_table.metadata_location) + 1
        location = load_location_provider(metadata.location, metadata.properties).new_table_metadata_file_location(
            version
        )
        io = self._load_file_io(metadata.properties, location)
        return StagedTable(table_identifier, metadata, location, io, self)

    def _write_metadata(self, metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:  # type: ignore[override]
        # As pyiceberg writes it: some readers in Java want the snapshot of a table without any as -1.
        written = metadata.model_dump_json(exclude_none=not Config().get_bool("legacy-current-snapshot-id"))
        text = seal_json(written.encode())
        # Its name has a UUID: a store is not asked whether it is there.
        with io.new_output(metadata_path).create(overwrite=True) as stream:
            stream.write(Compressor.get_compressor(metadata_path).bytes_compressor()(text))
        self._keep(metadata_path, metadata)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        # A table's stays while its properties do: each opens its file systems anew.
        key = frozenset(properties.items())
        with self._kept_lock:
            kept = self._file_access.get(key)
        if kept is None:
            kept = super()._load_file_io(properties, location)
            with self._kept_lock:
                self._file_access[key] = kept
        return kept

    def _kept_metadata(self, location: str) -> TableMetadata | None:
        with self._kept_lock:
            return self._kept.get(location)

    def _keep(self, location: str, metadata: TableMetadata) -> None:
        with self._kept_lock:
            self._kept[location] = metadata


def _close_after_failed_commit(context: ExceptionContext) -> None:
    """Have a connection whose COMMIT failed closed, which rolls back.

    A COMMIT that SQLite refuses because of a reader leaves the transaction open, and SQLAlchemy puts the connection back
    into its pool as it is: the next look whether the commit was made finds it there, and no other process ever does.
    """
    if context.statement is None:
        context.is_disconnect, context.invalidate_pool_on_disconnect = True, False


def _update_metadata(table: Table, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    """Return a table's metadata with updates applied, as pyiceberg does it, without the deep copy at the end.

    Unlike there, the time of the last change never goes back, though the clock was set back: see `change_ms`.
    """
    context = _TableMetadataUpdateContext()
    before = metadata = table.metadata
    for update in updates:
        metadata = _apply_table_update(update, metadata, context)
    if context.has_changes():
        metadata = _update_table_metadata_log(metadata, table.metadata_location, before.last_updated_ms)
        if before.last_updated_ms == metadata.last_updated_ms:
            metadata = metadata.model_copy(update={"last_updated_ms": change_ms(metadata)})
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return metadata
