"""A lake table pinned for tasks: where its metadata file lies, and what files are read with; no catalog is asked.

Tasks on other machines may not reach the catalog (a SQLite file is on one), need not know its secrets, and a hundred of them
would ask it a hundred times. A metadata file never changes: read again it is the table as it was when the read was planned.
What came after is the catalog's to say, which is asked only then.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import AuthenticationError, FlussError, InternalError, StorageError, UnavailableError
from fluss_lab.lake.format_interfaces import StorePlace
from fluss_lab.lake.iceberg.table.catalog_access import NAME_PROPERTY, CatalogAccess, identifier, sqlite_file
from fluss_lab.model import TablePath
from fluss_lab.model.config.lake_options import file_properties

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from fluss_lab.lake.format_interfaces import LakeStorage

#: Property of a pinned table: the location of its metadata file.
METADATA_LOCATION: Final = "fluss-lab.metadata-location"


def pinned_properties(lake: Table) -> dict[str, str] | None:
    """Return what a `PinnedAccess` of a table is made with: credentials of the file system, none of the catalog.

    None: the catalog does not say where the metadata file lies, as a REST catalog need not.
    """
    if not lake.metadata_location:
        return None
    return {NAME_PROPERTY: lake.catalog.name, **_files_of(lake), METADATA_LOCATION: lake.metadata_location}


def table_place(lake: Table) -> StorePlace | None:
    """Return where a table's files go, and with what tasks reach them; None: in a file system."""
    from fluss_lab.lake.iceberg.files.file_locations import local_path

    return None if local_path(lake.location()) is not None else StorePlace(lake.location(), _files_of(lake))


def _files_of(lake: Table) -> dict[str, str]:
    return file_properties({key: str(value) for key, value in lake.io.properties.items()})


class PinnedAccess(CatalogAccess):
    """Access to one table as it was pinned. Safe in any thread.

    Args:
        properties: From `pinned_properties`.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__({key: value for key, value in properties.items() if key != METADATA_LOCATION})
        self._location = properties[METADATA_LOCATION]
        self._newest: Callable[[], LakeStorage] | None = None
        self._pinned: Table | None = None
        self._refused: FlussError | None = None
        self._reading = threading.Lock()

    def renew_from(self, newest: Callable[[], LakeStorage]) -> None:
        """Take where later snapshots are had; see `SupportsPinnedReads.renew_from`."""
        self._newest = newest

    def catalog(self) -> Catalog:
        """Raise: there is none, and what would need one is none of a task's business."""
        raise InternalError(f"lake table of {self._location}: it is pinned for reading, its catalog is not known here")

    def pinned_table(self, path: TablePath) -> Table | None:
        """Return the table as it was pinned; None: it is had from the catalog.

        So where its metadata file is gone since, or the store refuses it: credentials that a catalog gave for a while
        have ended, and it gives others.

        Raises:
            CorruptDataError: The file is not what was written.
            UnavailableError: The store does not answer.
        """
        from pyiceberg.catalog.noop import NoopCatalog
        from pyiceberg.table import Table

        from fluss_lab.lake.iceberg.metadata.metadata_files import read_metadata

        with self._reading:
            if self._pinned is None:
                io = self.file_io(self._location)
                try:
                    metadata = read_metadata(io, self._location)
                except FileNotFoundError:
                    return None
                except (AuthenticationError, StorageError) as error:
                    self._refused = error
                    return None
                self._pinned = Table(identifier(path), metadata, self._location, io, NoopCatalog(self.name))
            return self._pinned

    def load_table(self, path: TablePath) -> Table:
        """Return the table as it is now, from the catalog that the cluster has.

        Raises:
            UnavailableError: The catalog is a file of another machine; or why the pinned table could not be read there.
            TableNotFoundError, CorruptDataError, StorageError: As `CatalogAccess.load_table`.
        """
        access = getattr(self._newest(), "access", None) if self._newest is not None else None
        if not isinstance(access, CatalogAccess):
            raise InternalError(f"lake table {path}: pinned at {self._location}, without a way to the newest")
        file = sqlite_file(access.properties.get("uri", ""))
        if file is not None and not file.exists():
            if self._refused is not None:
                raise self._refused
            raise UnavailableError(
                f"lake table {path}: it has changed since the read was planned, and what became of it is in its catalog's file "
                f"{file}, which {socket.gethostname()} does not have; run the query again, or give the lake a catalog that all "
                "of Spark's executors reach (REST, PostgreSQL)"
            )
        return access.load_table(path)
