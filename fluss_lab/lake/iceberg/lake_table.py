"""A Fluss table's snapshots in the lake, as readers see them: loaded once, and again when one is asked for that is new."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import CorruptDataError, LakeSnapshotNotFoundError, UnsupportedError
from fluss_lab.lake.iceberg.access import CatalogAccess
from fluss_lab.lake.iceberg.layout import TABLE_ID_PROPERTY, known_layout
from fluss_lab.lake.iceberg.manifests import BucketKey, EntryCache, LakeFile, live_files, snapshot_of
from fluss_lab.lake.iceberg.reading import LakeColumns, LakeFileReader
from fluss_lab.lake.readers import FileColumn
from fluss_lab.model import TableInfo

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

#: Snapshots whose file lists are kept: a scanner follows one, a union read and a seek use another two.
SNAPSHOTS_KEPT: Final = 4


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """The data files of one snapshot.

    Attributes:
        snapshot_id: Its id.
        lake: The table that it was found in.
        columns: The table's columns.
        by_bucket: By partition name and bucket, each bucket's files ascending by offset.
    """

    snapshot_id: int
    lake: Table
    columns: LakeColumns
    by_bucket: dict[BucketKey, list[LakeFile]]


class LakeTable:
    """Where readers of one table get its snapshots and open its files. Used by one thread."""

    def __init__(self, access: CatalogAccess, entries: EntryCache, table: TableInfo) -> None:
        if not table.is_log_table:
            raise UnsupportedError(f"table {table.path}: tables with a primary key are not in the lake in this version")
        self.info = table
        self._access = access
        self._entries = entries
        self._loaded: Table | None = None
        self._columns: LakeColumns | None = None
        self._kept: OrderedDict[int, SnapshotFiles] = OrderedDict()

    def at(self, snapshot_id: int) -> SnapshotFiles:
        """Return the files of a snapshot.

        Raises:
            LakeSnapshotNotFoundError: The table has no such snapshot.
            TableNotFoundError: The lake table is gone.
            UnsupportedError: Somebody changed the table so that it cannot be read as a log.
            CorruptDataError: A manifest is missing.
        """
        if (kept := self._kept.get(snapshot_id)) is not None:
            self._kept.move_to_end(snapshot_id)
            return kept
        lake = self._loaded
        if lake is None or lake.metadata.snapshot_by_id(snapshot_id) is None:
            lake = self._load()
        try:
            found = self._listed(lake, snapshot_id)
        except FileNotFoundError as error:
            raise self._missing(snapshot_id, error) from error
        self._kept[snapshot_id] = found
        if len(self._kept) > SNAPSHOTS_KEPT:
            self._kept.popitem(last=False)
        return found

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
        """Return how each column is found in files: by field id; by name too if no schema ever called it otherwise."""
        columns = self.columns()
        schemas = (self._loaded or self._load()).metadata.schemas
        known = {(field.field_id, field.name) for schema in schemas for field in schema.fields}
        found = {}
        for field in columns.layout.schema.fields:
            others = {pair for pair in known if pair[0] == field.field_id or pair[1].lower() == field.name.lower()}
            found[field.name] = FileColumn(field.field_id, others <= {(field.field_id, field.name)})
        return found

    def open(self, location: str, snapshot_id: int | None = None) -> LakeFileReader:
        """Open a data file.

        Args:
            location: Its path.
            snapshot_id: The snapshot that it was found in, when known.

        Raises:
            LakeSnapshotNotFoundError: The file is gone, and with it that snapshot.
            CorruptDataError: The file is gone though it should not, or is no file of the table.
        """
        try:
            return LakeFileReader(self.io(), location, self.columns())
        except FileNotFoundError as error:
            if snapshot_id is None:
                raise CorruptDataError(
                    f"lake table {self.info.path}: file {location} is missing: its snapshot was expired, plan the read again; "
                    "or somebody removed it"
                ) from error
            raise self._missing(snapshot_id, error) from error

    def _load(self) -> Table:
        lake = self._access.load_table(self.info.path)
        if (found := lake.properties.get(TABLE_ID_PROPERTY)) != str(self.info.table_id):
            raise LakeSnapshotNotFoundError(
                f"lake table {self.info.path}: expected {TABLE_ID_PROPERTY}={self.info.table_id}, found {found}: the lake "
                "holds another table of that name"
            )
        self._columns = LakeColumns.of(self.info, known_layout(self.info, lake), lake.name_mapping())
        self._loaded = lake
        return lake

    def _listed(self, lake: Table, snapshot_id: int) -> SnapshotFiles:
        columns = self.columns()
        snapshot = snapshot_of(lake, self.info.path, snapshot_id)
        return SnapshotFiles(
            snapshot_id, lake, columns, live_files(lake, self.info.path, columns.layout, snapshot, self._entries)
        )

    def _missing(self, snapshot_id: int, cause: FileNotFoundError) -> LakeSnapshotNotFoundError | CorruptDataError:
        """Return what a missing file means: an expired snapshot, or a damaged one."""
        self._kept.pop(snapshot_id, None)
        try:
            snapshot_of(self._load(), self.info.path, snapshot_id)
        except LakeSnapshotNotFoundError as gone:
            return gone
        return CorruptDataError(
            f"lake table {self.info.path}, snapshot {snapshot_id}: {cause}; somebody removed the file"
        )
