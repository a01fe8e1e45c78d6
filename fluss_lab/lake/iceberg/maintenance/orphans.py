"""Files in a lake table's folder that nothing refers to: of rounds and commits that ended half-way.

Looked for is what lies in folders that are the table's alone (see `table_folders`) and nowhere else. In use is whatever the table's metadata refers to: the
snapshots that it has, the metadata files that it remembers, statistics. The folder is listed first and the metadata read
then: a file that is committed in between is found in use.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow.fs as pafs
from pyiceberg.io.pyarrow import PyArrowFileIO

from fluss_lab.errors import UnsupportedError
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache, referenced_files

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

_LOG: Final = logging.getLogger(__name__)
#: Names that tiering gives to data and delete files; and pyiceberg's names of manifests, their lists, and metadata.
_OUR_NAMES: Final = re.compile(
    r"[A-Za-z0-9_-]+-b\d{5}-[a-z0-9]+-.*\.parquet"
    r"|[0-9a-f-]{36}-m\d+\.avro|snap-\d+-\d+-[0-9a-f-]{36}\.avro|\d{5}-[0-9a-f-]{36}(\.gz)?\.metadata\.json"
)
#: Written by catalogs that keep tables by folder.
_HINT: Final = "version-hint.text"


def is_ours_by_name(location: str) -> bool:
    """Return whether a file is named as tiering names files."""
    return _OUR_NAMES.fullmatch(location.rpartition("/")[2]) is not None


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as it was listed.

    Attributes:
        location: As the table's metadata would call it.
        modified_ms: When it was last written, epoch milliseconds.
    """

    location: str
    modified_ms: int


def list_files(lake: Table, folders: Sequence[str]) -> list[ListedFile]:
    """Return the files in folders of a table, referred to or not, sorted.

    Args:
        lake: The table.
        folders: Those that are the table's alone.

    Raises:
        UnsupportedError: The table's files are reached in a way that offers no listing.
        OSError: The folder cannot be listed.
    """
    found = [file for folder in folders for file in _listed(lake.io, folder)]
    return sorted(found, key=lambda file: file.location)


def _listed(io: FileIO, location: str) -> Iterator[ListedFile]:
    scheme, netloc, root = PyArrowFileIO.parse_location(location, io.properties)
    if isinstance(io, PyArrowFileIO):
        system = io.fs_by_scheme(scheme, netloc)
        selector = pafs.FileSelector(root, allow_not_found=True, recursive=True)
        for info in system.get_file_info(selector):
            if info.type == pafs.FileType.File:
                yield _file(location, root, info.path, info.mtime)
    elif (get_fs := getattr(io, "get_fs", None)) is not None:
        for path, details in get_fs(scheme).find(root, detail=True).items():
            yield _file(location, root, path, _modified(details))
    else:
        raise UnsupportedError(
            f"files under {location}: {type(io).__name__} offers no listing; use pyiceberg's Arrow or fsspec file access"
        )


def _file(location: str, root: str, path: str, modified: datetime | float | None) -> ListedFile:
    below = path.lstrip("/").removeprefix(root.strip("/")).lstrip("/")
    if modified is None:
        # Of unknown age: as if it had just been written, so that it stays.
        modified = datetime.now(UTC)
    seconds = modified.timestamp() if isinstance(modified, datetime) else modified
    return ListedFile(f"{location}/{below}", int(seconds * 1000))


def _modified(details: dict[str, Any]) -> datetime | float | None:
    return next((details[key] for key in ("mtime", "LastModified", "updated", "last_modified") if key in details), None)


def orphans(
    lake: Table, files: list[ListedFile], older_than_ms: int, cache: EntryCache, *, ours_only: bool
) -> list[str]:
    """Return which of a folder's files nothing refers to.

    Args:
        lake: The table, loaded after its folder was listed.
        files: Of `list_files`.
        older_than_ms: Only those last written before, epoch milliseconds.
        cache: Decoded manifests.
        ours_only: Only those that are named as tiering names files.

    Raises:
        FileNotFoundError: A manifest of the table is gone: what is in use is not known.

    Cost: all manifests of all snapshots, each once.
    """
    used = {_key(lake, location) for location in _references(lake, cache)}
    found = []
    for file in files:
        name = file.location.rpartition("/")[2]
        if file.modified_ms >= older_than_ms or name == _HINT or _key(lake, file.location) in used:
            continue
        if not ours_only or _OUR_NAMES.fullmatch(name):
            found.append(file.location)
    return found


def _references(lake: Table, cache: EntryCache) -> Iterator[str]:
    """Yield every location that a table's metadata refers to."""
    metadata = lake.metadata
    yield lake.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics))
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        yield from (manifest.manifest_path for manifest in cache.manifests(lake.io, snapshot))
    yield from referenced_files(lake, cache)


def _key(lake: Table, location: str) -> tuple[str, str]:
    """Return what identifies a file: engines write the same location as ``file:/x``, ``file:///x``, ``s3a://``."""
    _, netloc, path = PyArrowFileIO.parse_location(location, lake.io.properties)
    return netloc, path.rstrip("/")
