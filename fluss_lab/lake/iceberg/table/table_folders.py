"""The folders of a lake table, which of them are its alone, and the removal of its files.

Files that nothing refers to are removed only in folders that are the table's alone. A location that was chosen here ends in
the table's id. A REST catalog is asked for such a location, and has the last word: it is the table's alone if the catalog
took what it was asked for, which a property of the table says. One that a catalog chose is that of the name, and a name may
come to mean another table: one that was dropped and kept has its files there too.

And nothing is removed where the table says ``gc.enabled=false``: its files are in use by what its metadata does not show, as
the branches and tags of a Nessie server.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fluss_lab.errors import FlussError
from fluss_lab.failpoints import failpoint
from fluss_lab.lake.iceberg.files.durable_io import delete_quietly
from fluss_lab.lake.iceberg.files.file_locations import arrow_place, file_key, files_below, local_path
from fluss_lab.lake.iceberg.files.lake_errors import library_errors
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from fluss_lab.lake.iceberg.table.table_properties import LOCATION_PROPERTY, PLACES, folders_elsewhere
from fluss_lab.model import TableInfo, TablePath

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table


#: Iceberg's property of a table whose files nobody removes but who knows all that uses them.
GC_PROPERTY: Final = "gc.enabled"


def _prefix(access: CatalogAccess, path: TablePath) -> str | None:
    """Return where a table is put, but for its id at the end; None when the catalog decides."""
    return None if access.warehouse is None else f"{access.warehouse.rstrip('/')}/{path.database}/{path.table}-"


def chosen_location(access: CatalogAccess, table: TableInfo) -> str | None:
    """Return where a new table is to be put, a folder that no other table has or had; None when the catalog decides.

    In a REST catalog that is below the namespace's location, if it says one. Clusters may share it, and their tables' ids
    be the same: a random part follows.

    Raises:
        UnavailableError: The catalog does not answer.
    """
    if not access.is_rest:
        prefix = _prefix(access, table.path)
        return None if prefix is None else f"{prefix}{table.table_id}"
    what = f"location of namespace {table.path.database}"
    found = access.call(what, lambda catalog: catalog.load_namespace_properties(table.path.database))
    root = found.get("location", "").rstrip("/")
    return f"{root}/{table.path.table}-{table.table_id}-{secrets.token_hex(4)}" if root else None


def is_own(access: CatalogAccess, path: TablePath, lake: Table) -> bool:
    """Return whether a table's location is one that was chosen here, so that nothing but the table is in it."""
    location = lake.location().rstrip("/")
    if access.is_rest:
        return lake.properties.get(LOCATION_PROPERTY) == location
    prefix = _prefix(access, path)
    return prefix is not None and location.startswith(prefix) and location.removeprefix(prefix).isdecimal()


def may_remove_files(lake: Table) -> bool:
    """Return whether files that the table's metadata no longer refers to may be removed: not with ``gc.enabled=false``."""
    return lake.properties.get(GC_PROPERTY, "true").lower() != "false"


def table_folders(lake: Table) -> list[str]:
    """Return the folders where a table's files are put, its alone or not."""
    places = (lake.properties.get(name) for name in PLACES)
    return [lake.location(), *(place for place in places if place)]


def is_within(lake: Table, location: str, folders: Sequence[str]) -> bool:
    """Return whether a file lies below one of some folders, however the engine that wrote it spells its location."""
    path = _path(lake, location)
    return ".." not in path.split("/") and any(path.startswith(f"{_path(lake, each)}/") for each in folders)


def _path(lake: Table, location: str) -> str:
    netloc, path = file_key(location, lake.io.properties)
    return f"{netloc}/{path.strip('/')}"


def own_folders(access: CatalogAccess, path: TablePath, lake: Table) -> list[str]:
    """Return the folders in which nothing but a table is: its location, if it was chosen here, and those of properties."""
    location = lake.location().rstrip("/")
    return ([location] if is_own(access, path, lake) else []) + folders_elsewhere(lake)


_LOG: Final = logging.getLogger(__name__)
#: Object stores answer a removal in tens of milliseconds; one at a time a thousand files would take half a minute.
REMOVALS_AT_ONCE: Final = 8


def remove_all(io: FileIO, paths: Iterable[str], what: str, *, passed: str | None = None) -> list[str]:
    """Remove files, several at a time; return those that are gone. The others stay, with a warning in the log.

    Args:
        io: Access to the files.
        paths: Where they are.
        what: Whose they are, for the log.
        passed: Failpoint that is passed after each.
    """

    def remove(path: str) -> str | None:
        if delete_quietly(io, path):
            if passed is not None:
                failpoint(passed)
            return path
        _LOG.warning("%s: file %s could not be removed", what, path)
        return None

    with ThreadPoolExecutor(REMOVALS_AT_ONCE, thread_name_prefix="fluss-removal") as pool:
        return [path for path in pool.map(remove, paths) if path is not None]


def remove_files(lake: Table, entries: EntryCache, folders: Sequence[str]) -> None:
    """Remove a dropped table's files; what cannot be removed stays, with a warning in the log. Never raises.

    Args:
        lake: The table as it was.
        entries: Decoded manifests.
        folders: Folders in which nothing but the table is: removed whole. Elsewhere under the table's location, what its
            metadata knows of; nothing outside of these.
    """
    what = f"dropped lake table {'.'.join(lake.name())}"
    if not may_remove_files(lake):
        _LOG.warning("%s: its files stay, as its property %s says", what, GC_PROPERTY)
        return
    location = lake.location().rstrip("/")
    if location not in folders:
        # First, as long as the metadata that lists them is there.
        try:
            known = listed_files(lake, entries)
        except library_errors(FlussError, OSError) as error:
            _LOG.warning("%s: files at %s stay, as its metadata cannot be read: %s", what, location, error)
        else:
            remove_all(lake.io, sorted(path for path in known if path.startswith(f"{location}/")), what)
    for folder in folders:
        try:
            _remove_folder(lake.io, folder, what)
        except FileNotFoundError:
            continue
        except library_errors(OSError, pa.ArrowException) as error:
            _LOG.warning("%s: files at %s could not be removed: %s", what, folder, error)


def _remove_folder(io: FileIO, folder: str, what: str) -> None:
    if (place := arrow_place(io, folder)) is None:
        _LOG.warning("%s: folder %s stays: %s removes no folders", what, folder, type(io).__name__)
        return
    if local_path(folder) is None:
        # File by file and side by side: some stores remove a folder one file at a time.
        remove_all(io, [each.location for each in files_below(io, folder)], what)
    system, path = place
    system.delete_dir(path)


def listed_files(lake: Table, entries: EntryCache) -> set[str]:
    """Return every file that a table's metadata refers to: data, manifests, their lists, and metadata itself.

    Raises:
        FileNotFoundError, CorruptDataError: A manifest is gone, or is not what was written.
    """
    files = {lake.metadata_location, *(entry.metadata_file for entry in lake.metadata.metadata_log)}
    for snapshot in lake.metadata.snapshots:
        files.add(snapshot.manifest_list)
        for manifest in entries.manifests(lake.io, snapshot):
            if manifest.manifest_path not in files:
                files.add(manifest.manifest_path)
                files.update(entry.data_file.file_path for entry in entries.entries(lake.io, manifest))
    return files
