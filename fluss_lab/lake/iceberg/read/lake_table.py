"""A Fluss table's snapshots in the lake, as readers see them: loaded once for all of them, and again for one that is new."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache
from pyiceberg.table import TableProperties

from fluss_lab.errors import CorruptDataError, LakeSnapshotNotFoundError
from fluss_lab.lake.iceberg.files.lake_errors import REMEDY
from fluss_lab.lake.iceberg.metadata.replay_chain import ReplayChain
from fluss_lab.lake.iceberg.metadata.snapshot_files import (
    BucketFiles,
    EntryCache,
    LakeFile,
    live_files,
    live_state,
    no_snapshot,
    snapshot_of,
)
from fluss_lab.lake.iceberg.read.data_file_reader import DataFileReader
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from fluss_lab.lake.iceberg.table.layout import TABLE_ID_PROPERTY, LakeColumns
from fluss_lab.lake.iceberg.table.pinned_table import pinned_properties
from fluss_lab.lake.iceberg.table.type_mapping import inner_fields
from fluss_lab.lake.reader_interfaces import FileColumn
from fluss_lab.model import Schema, TableInfo, TablePath
from fluss_lab.model.names import BucketKey

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema as LakeSchema
    from pyiceberg.table import Table
    from pyiceberg.types import NestedField

#: Snapshots whose file lists are kept: a scanner follows one, a union read and a seek use another two.
SNAPSHOTS_KEPT: Final = 4
#: Tables that readers share: with 1,000 snapshots the metadata of one takes some 5 MB, of which the catalog has most anyway;
#: a list of files takes eight bytes a file.
TABLES_KEPT: Final = 24


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """The files of one snapshot.

    Attributes:
        snapshot_id: Its id.
        lake: The table that it was found in.
        columns: The table's columns.
        states: By partition name and bucket, what each bucket consists of; of a log table data files only.
    """

    snapshot_id: int
    lake: Table
    columns: LakeColumns
    states: dict[BucketKey, BucketFiles]

    def data(self, key: BucketKey) -> list[LakeFile]:
        """Return a bucket's data files, ascending by offset."""
        state = self.states.get(key)
        return [] if state is None else state.data


class LoadedTable:
    """A lake table as it was loaded, and the files of those of its snapshots that were asked for. Safe in any thread.

    Args:
        lake: The table; its metadata never changes.
        schema: The table's own, by which `columns` are called.
        columns: Its columns.
    """

    def __init__(self, lake: Table, schema: Schema, columns: LakeColumns) -> None:
        self.lake = lake
        self.schema = schema
        self.columns = columns
        self._files: LRUCache[int, SnapshotFiles] = LRUCache(SNAPSHOTS_KEPT)
        self._lock = threading.Lock()

    def has(self, snapshot_id: int) -> bool:
        """Return whether the table had a snapshot when it was loaded."""
        return self.lake.metadata.snapshot_by_id(snapshot_id) is not None

    def files(self, snapshot_id: int) -> SnapshotFiles | None:
        """Return the files of a snapshot, if they were kept."""
        with self._lock:
            return self._files.get(snapshot_id)

    def keep(self, files: SnapshotFiles) -> None:
        """Keep the files of a snapshot."""
        with self._lock:
            self._files[files.snapshot_id] = files


class LoadedTables:
    """What the readers of one storage made of tables, for those that find them unchanged. Safe in any thread."""

    def __init__(self) -> None:
        self._tables: LRUCache[tuple[TablePath, int, int], LoadedTable] = LRUCache(TABLES_KEPT)
        self._lock = threading.Lock()

    def get(self, info: TableInfo, lake: Table) -> LoadedTable | None:
        """Return what was made of a table as it is loaded now; None when that was another state of it, or with other columns."""
        with self._lock:
            found = self._tables.get((info.path, info.table_id, info.schema_id))
        if found is None or found.lake.metadata is not lake.metadata or found.schema != info.schema:
            return None
        return found

    def keep(self, info: TableInfo, loaded: LoadedTable) -> None:
        """Keep what was made of a table that was loaded."""
        with self._lock:
            self._tables[info.path, info.table_id, info.schema_id] = loaded


class LakeTable:
    """Where readers of one table get its snapshots and open its files. Used by one thread.

    Args:
        access: The catalog.
        entries: What manifests say, decoded.
        table: The table.
        shared: Where others find what this one makes of the table; None: of a store.
    """

    def __init__(
        self, access: CatalogAccess, entries: EntryCache, table: TableInfo, shared: LoadedTables | None = None
    ) -> None:
        self.info = table
        self._access = access
        self._entries = entries
        self._shared = shared
        self._loaded: LoadedTable | None = None
        self._kept: LRUCache[int, SnapshotFiles] = LRUCache(SNAPSHOTS_KEPT)
        self._chain: ReplayChain | None = None

    def snapshot_files(self, snapshot_id: int) -> SnapshotFiles:
        """Return the files of a snapshot.

        Raises:
            LakeSnapshotNotFoundError: The table has no such snapshot.
            TableNotFoundError: The lake table is gone.
            UnsupportedError: Another engine changed the table so that it cannot be read.
            CorruptDataError: A manifest is missing.
        """
        if (kept := self._kept.get(snapshot_id)) is not None:
            return kept
        loaded = self._load_with(snapshot_id)
        if (found := loaded.files(snapshot_id)) is None:
            try:
                found = self._list_files(loaded, snapshot_id)
            except FileNotFoundError as error:
                raise self.missing(snapshot_id, error) from error
            loaded.keep(found)
        self._kept[snapshot_id] = found
        return found

    def lake_with(self, snapshot_id: int) -> Table:
        """Return the lake table, loaded again if it did not have a snapshot when it was loaded.

        Raises:
            LakeSnapshotNotFoundError: It has no such snapshot.
            TableNotFoundError, UnsupportedError: As `at`.
        """
        return self._load_with(snapshot_id).lake

    def _load_with(self, snapshot_id: int) -> LoadedTable:
        if (loaded := self._loaded) is not None and loaded.has(snapshot_id):
            return loaded
        loaded = self._load(snapshot_id)
        if not loaded.has(snapshot_id):
            raise no_snapshot(loaded.lake, self.info.path, snapshot_id)
        return loaded

    def chain(self, snapshot_id: int) -> ReplayChain:
        """Return where the logs of a primary-key table's buckets lie, of a table loaded when it had the snapshot.

        Raises:
            As `at`.
        """
        lake = self.lake_with(snapshot_id)
        if self._chain is None or self._chain.lake is not lake:
            self._chain = ReplayChain(lake, self.info, self._entries, self.missing)
        return self._chain

    @property
    def is_near(self) -> bool:
        """Return whether its files lie on this machine as far as the storage knows: to open one is no round trip."""
        return (
            self._shared is not None
            and TableProperties.WRITE_DATA_PATH not in (self._loaded or self._load()).lake.properties
        )

    def io(self) -> FileIO:
        """Return access to the table's files."""
        return (self._loaded or self._load()).lake.io

    def columns(self) -> LakeColumns:
        """Return the table's columns."""
        return (self._loaded or self._load()).columns

    def file_columns(self) -> dict[str, FileColumn]:
        """Return how each column is found in files: by field id; by name too if nothing ever called it otherwise.

        That is no schema of the table, and no mapping of names for files without ids. (Iceberg's libraries replace odd
        characters in the names that they write; names of Fluss columns have none.)
        """
        loaded = self._loaded or self._load()
        lake, columns = loaded.lake, loaded.columns
        known = {(field.field_id, field.name) for schema in lake.metadata.schemas for field in schema.fields}
        known |= {
            (each.field_id, name)
            for each in lake.name_mapping() or ()
            for name in each.names
            if each.field_id is not None
        }
        by_id, by_name = defaultdict(set), defaultdict(set)
        for pair in known:
            by_id[pair[0]].add(pair)
            by_name[pair[1].lower()].add(pair)
        found = {}
        for field in columns.layout.schema.fields:
            others = by_id[field.field_id] | by_name[field.name.lower()]
            is_named = others <= {(field.field_id, field.name)}
            schemas = lake.metadata.schemas
            found[field.name] = FileColumn(
                field.field_id, is_named, _is_inner_named(field, schemas), _is_own_typed(field, schemas)
            )
        return found

    def pinned_properties(self, snapshot_id: int) -> dict[str, str] | None:
        """Return what `fluss_lab.lake.iceberg.table.pinned_table` makes this table of, as it was when it had a snapshot.

        Raises:
            As `lake_with`.
        """
        return pinned_properties(self.lake_with(snapshot_id))

    def open(self, location: str, snapshot_id: int | None = None) -> DataFileReader:
        """Open a data file.

        Args:
            location: Its path.
            snapshot_id: The snapshot that it was found in, when known.

        Raises:
            LakeSnapshotNotFoundError: The file is gone, and with it that snapshot.
            CorruptDataError: The file is gone though it should not, or is no file of the table.
        """
        try:
            return DataFileReader(self.io(), location, self.columns())
        except FileNotFoundError as error:
            raise self.missing(snapshot_id, error) from error

    def _load(self, snapshot_id: int | None = None) -> LoadedTable:
        lake = self._access.pinned_table(self.info.path) if self._loaded is None else None
        if lake is None or (snapshot_id is not None and lake.metadata.snapshot_by_id(snapshot_id) is None):
            lake = self._access.load_table(self.info.path)
        if (found := lake.properties.get(TABLE_ID_PROPERTY)) != str(self.info.table_id):
            raise LakeSnapshotNotFoundError(
                f"lake table {self.info.path}: expected {TABLE_ID_PROPERTY}={self.info.table_id}, found {found}: the lake "
                "holds another table of that name"
            )
        loaded = None if self._shared is None else self._shared.get(self.info, lake)
        if loaded is None:
            loaded = LoadedTable(lake, self.info.schema, self._entries.columns(self.info, lake))
            if self._shared is not None:
                self._shared.keep(self.info, loaded)
        self._loaded = loaded
        return loaded

    def _list_files(self, loaded: LoadedTable, snapshot_id: int) -> SnapshotFiles:
        lake, columns = loaded.lake, loaded.columns
        snapshot = snapshot_of(lake, self.info.path, snapshot_id)
        where = (lake, self.info.path, columns.layout, snapshot, self._entries)
        if self.info.is_log_table:
            states = {key: BucketFiles(files) for key, files in live_files(*where).items()}
        else:
            states = live_state(*where)
        return SnapshotFiles(snapshot_id, lake, columns, states)

    def missing(self, snapshot_id: int | None, cause: OSError) -> LakeSnapshotNotFoundError | CorruptDataError:
        """Return what a missing file means: an expired snapshot, or a damaged one; None: of a snapshot that is not known."""
        if snapshot_id is None:
            return CorruptDataError(
                f"lake table {self.info.path}: {cause}: the file's snapshot was expired, plan the read again; or another "
                "program removed it"
            )
        self._kept.pop(snapshot_id, None)
        self._chain = None
        try:
            snapshot_of(self._load().lake, self.info.path, snapshot_id)
        except LakeSnapshotNotFoundError as gone:
            return gone
        return CorruptDataError(
            f"lake table {self.info.path}, snapshot {snapshot_id}: a file is missing, another program removed it: {cause}; {REMEDY}"
        )


def _is_inner_named(field: NestedField, schemas: Sequence[LakeSchema]) -> bool:
    """Return whether no schema of a table calls a field within a column otherwise, or another one by its name."""
    inner = inner_fields(field.field_type)
    ours = {(each.field_id, each.name) for each in inner}
    ids, names = {each.field_id for each in inner}, {each.name.lower() for each in inner}
    for schema in schemas if inner else ():
        try:
            theirs = inner_fields(schema.find_field(field.field_id).field_type)
        except ValueError:
            continue  # of before the column was added
        if any(
            (each.field_id in ids or each.name.lower() in names) and (each.field_id, each.name) not in ours
            for each in theirs
        ):
            return False
    return all(_is_inner_named(each, schemas) for each in inner)


def _is_own_typed(field: NestedField, schemas: Sequence[LakeSchema]) -> bool:
    """Return whether no schema of a table has a column, or a field within it, in another type."""
    inner = inner_fields(field.field_type)
    if inner:
        return all(_is_own_typed(each, schemas) for each in inner)
    for schema in schemas:
        try:
            theirs = schema.find_field(field.field_id).field_type
        except ValueError:
            continue  # of before it was added
        if theirs != field.field_type:
            return False
    return True
