"""Files in a lake table's folder that nothing refers to: of rounds and commits that ended half-way.

Looked for is what lies in folders that are the table's alone (see `table_folders`) and nowhere else. In use is whatever the table's metadata refers to: the
snapshots that it has, the metadata files that it remembers, statistics. The folder is listed first and the metadata read
then: a file that is committed in between is found in use.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from fluss_lab.lake.iceberg.files.file_locations import OUR_DATA_NAME, ListedFile, file_key, files_below
from fluss_lab.lake.iceberg.metadata.snapshot_files import EntryCache, referenced_files

if TYPE_CHECKING:
    from pyiceberg.table import Table

_LOG: Final = logging.getLogger(__name__)
#: Names that tiering gives to data and delete files; and pyiceberg's names of manifests, their lists, and metadata.
_OUR_NAMES: Final = re.compile(
    OUR_DATA_NAME.pattern
    + r"|[0-9a-f-]{36}-m\d+\.avro|snap-\d+-\d+-[0-9a-f-]{36}\.avro|\d{5}-[0-9a-f-]{36}(\.gz)?\.metadata\.json"
)
#: Written by catalogs that keep tables by folder.
_HINT: Final = "version-hint.text"


def is_ours_by_name(location: str) -> bool:
    """Return whether a file is named as tiering names files."""
    return _OUR_NAMES.fullmatch(location.rpartition("/")[2]) is not None


def list_files(lake: Table, folders: Sequence[str]) -> list[ListedFile]:
    """Return the files in folders of a table, referred to or not, sorted.

    Args:
        lake: The table.
        folders: Those that are the table's alone.

    Raises:
        UnsupportedError: The table's files are reached in a way that offers no listing.
        OSError: The folder cannot be listed.
    """
    found = [file for folder in folders for file in files_below(lake.io, folder)]
    return sorted(found, key=lambda file: file.location)


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
    properties = lake.io.properties
    used = {file_key(location, properties) for location in _references(lake, cache)}
    found = []
    for file in files:
        name = file.location.rpartition("/")[2]
        if file.modified_ms >= older_than_ms or name == _HINT or file_key(file.location, properties) in used:
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
