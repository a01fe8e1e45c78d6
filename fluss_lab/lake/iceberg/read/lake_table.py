"""A Fluss table's snapshots in the lake, as readers see them: loaded once, and again when one is asked for that is new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from fluss_lab.errors import CorruptDataError, LakeSnapshotNotFoundError
from fluss_lab.lake.iceberg.metadata.snapshot_chain import SnapshotChain
from fluss_lab.lake.iceberg.metadata.snapshot_files import (
    BucketFiles,
    EntryCache,
    LakeFile,
    live_files,
    live_state,
    snapshot_of,
)
from fluss_lab.lake.iceberg.read.data_file_reader import DataFileReader
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from fluss_lab.lake.iceberg.table.layout import TABLE_ID_PROPERTY, LakeColumns
from fluss_lab.lake.iceberg.table.pinned_table import pinned_properties
from fluss_lab.lake.reader_interfaces import FileColumn
from fluss_lab.model import TableInfo
from fluss_lab.model.names import BucketKey

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

#: Snapshots whose file lists are kept: a scanner follows one, a union read and a seek use another two.
SNAPSHOTS_KEPT: Final = 4


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


class LakeTable:
    """Where readers of one table get its snapshots and open its files. Used by one thread."""

    def __init__(self, access: CatalogAccess, entries: EntryCache, table: TableInfo) -> None:
        self.info = table
        self._access = access
        self._entries = entries
        self._loaded: Table | None = None
        self._columns: LakeColumns | None = None
        self._kept: LRUCache[int, SnapshotFiles] = LRUCache(SNAPSHOTS_KEPT)
        self._chain: SnapshotChain | None = None

    def at(self, snapshot_id: int) -> SnapshotFiles:
        """Return the files of a snapshot.

        Raises:
            LakeSnapshotNotFoundError: The table has no such snapshot.
            TableNotFoundError: The lake table is gone.
            UnsupportedError: Another engine changed the table so that it cannot be read.
            CorruptDataError: A manifest is missing.
        """
        if (kept := self._kept.get(snapshot_id)) is not None:
            return kept
        lake = self.lake_with(snapshot_id)
        try:
            found = self._listed(lake, snapshot_id)
        except FileNotFoundError as error:
            raise self.missing(snapshot_id, error) from error
        self._kept[snapshot_id] = found
        return found

    def lake_with(self, snapshot_id: int) -> Table:
        """Return the lake table, loaded again if it did not have a snapshot when it was loaded.

        Raises:
            LakeSnapshotNotFoundError: It has no such snapshot.
            TableNotFoundError, UnsupportedError: As `at`.
        """
        lake = self._loaded
        if lake is None or lake.metadata.snapshot_by_id(snapshot_id) is None:
            lake = self._load(snapshot_id)
            snapshot_of(lake, self.info.path, snapshot_id)
        return lake

    def chain(self, snapshot_id: int) -> SnapshotChain:
        """Return where the logs of a primary-key table's buckets lie, of a table loaded when it had the snapshot.

        Raises:
            As `at`.
        """
        lake = self.lake_with(snapshot_id)
        if self._chain is None or self._chain.lake is not lake:
            self._chain = SnapshotChain(lake, self.info, self._entries, self.missing)
        return self._chain

    def io(self) -> FileIO:
        """Return access to the table's files."""
        return (self._loaded or self._load()).io

    def columns(self) -> LakeColumns:
        """Return the table's columns."""
        if self._columns is None:
            self._load()
        assert self._columns is not None
        return self._columns

    def file_columns(self) -> dict[str, FileColumn]:
        """Return how each column is found in files: by field id; by name too if nothing ever called it otherwise.

        That is no schema of the table, and no mapping of names for files without ids. (Iceberg's libraries replace odd
        characters in the names that they write; names of Fluss columns have none.)
        """
        columns = self.columns()
        lake = self._loaded or self._load()
        known = {(field.field_id, field.name) for schema in lake.metadata.schemas for field in schema.fields}
        known |= {
            (each.field_id, name)
            for each in lake.name_mapping() or ()
            for name in each.names
            if each.field_id is not None
        }
        found = {}
        for field in columns.layout.schema.fields:
            others = {pair for pair in known if pair[0] == field.field_id or pair[1].lower() == field.name.lower()}
            found[field.name] = FileColumn(field.field_id, others <= {(field.field_id, field.name)})
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

    def _load(self, snapshot_id: int | None = None) -> Table:
        lake = self._access.pinned_table(self.info.path) if self._loaded is None else None
        if lake is None or (snapshot_id is not None and lake.metadata.snapshot_by_id(snapshot_id) is None):
            lake = self._access.load_table(self.info.path)
        if (found := lake.properties.get(TABLE_ID_PROPERTY)) != str(self.info.table_id):
            raise LakeSnapshotNotFoundError(
                f"lake table {self.info.path}: expected {TABLE_ID_PROPERTY}={self.info.table_id}, found {found}: the lake "
                "holds another table of that name"
            )
        self._columns = self._entries.columns(self.info, lake)
        self._loaded = lake
        return lake

    def _listed(self, lake: Table, snapshot_id: int) -> SnapshotFiles:
        columns = self.columns()
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
            snapshot_of(self._load(), self.info.path, snapshot_id)
        except LakeSnapshotNotFoundError as gone:
            return gone
        return CorruptDataError(
            f"lake table {self.info.path}, snapshot {snapshot_id}: a file is missing, another program removed it: {cause}"
        )
