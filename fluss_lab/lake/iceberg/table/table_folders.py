"""The folders of a lake table, which of them are its alone, and the removal of its files.

Files that nothing refers to are removed only in folders that are the table's alone. A location that was chosen here ends in
the table's id. One that a catalog chose is that of the name, and a name may come to mean another table: one that was dropped
and kept has its files there too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.fs as pafs
from pyiceberg.io.pyarrow import PyArrowFileIO

from fluss_lab.errors import FlussError
from fluss_lab.failpoints import failpoint
from fluss_lab.lake.iceberg.files.durable_io import delete_quietly, local_path
from fluss_lab.lake.iceberg.files.store_errors import library_errors
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache
from fluss_lab.lake.iceberg.table.catalog_access import CatalogAccess
from fluss_lab.lake.iceberg.table.table_properties import PLACES, folders_elsewhere
from fluss_lab.model import TablePath

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table


def location_prefix(access: CatalogAccess, path: TablePath) -> str | None:
    """Return where a table is put, but for its id at the end; None when the catalog decides."""
    return None if access.warehouse is None else f"{access.warehouse.rstrip('/')}/{path.database}/{path.table}-"


def is_own(access: CatalogAccess, path: TablePath, location: str) -> bool:
    """Return whether a location is one that was chosen here, so that nothing but the table is in it."""
    prefix = location_prefix(access, path)
    return prefix is not None and location.startswith(prefix) and location.removeprefix(prefix).isdecimal()


def table_folders(lake: Table) -> list[str]:
    """Return the folders where a table's files are put, its alone or not."""
    places = (lake.properties.get(name) for name in PLACES)
    return [lake.location(), *(place for place in places if place)]


def is_within(lake: Table, location: str, folders: Sequence[str]) -> bool:
    """Return whether a file lies below one of some folders, however the engine that wrote it spells its location."""
    path = _path(lake, location)
    return ".." not in path.split("/") and any(path.startswith(f"{_path(lake, each)}/") for each in folders)


def _path(lake: Table, location: str) -> str:
    _, netloc, path = PyArrowFileIO.parse_location(location, lake.io.properties)
    return f"{netloc}/{path.strip('/')}"


def own_folders(access: CatalogAccess, path: TablePath, lake: Table) -> list[str]:
    """Return the folders in which nothing but a table is: its location, if it was chosen here, and those of properties."""
    location = lake.location().rstrip("/")
    return ([location] if is_own(access, path, location) else []) + folders_elsewhere(lake)


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
    if not isinstance(io, PyArrowFileIO):
        _LOG.warning("%s: folder %s stays: %s removes no folders", what, folder, type(io).__name__)
        return
    scheme, netloc, path = io.parse_location(folder, io.properties)
    system = io.fs_by_scheme(scheme, netloc)
    if local_path(folder) is None:
        # File by file and side by side: some stores remove a folder one file at a time.
        found = system.get_file_info(pafs.FileSelector(path, allow_not_found=True, recursive=True))
        names = [each.path for each in found if each.type == pafs.FileType.File]
        remove_all(io, [f"{folder}/{name.removeprefix(path).lstrip('/')}" for name in names], what)
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
