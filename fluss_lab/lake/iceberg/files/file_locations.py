"""The locations of the lake's files: on this machine's file systems or in a store, and what is done differently there.

The one place that looks at a location's scheme. Everything else asks what it wants to know: the path here, the same file
however it is spelled, what lies in a folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.fs as pafs
from pyiceberg.io.pyarrow import PyArrowFileIO

from fluss_lab.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyarrow.fs import FileSystem
    from pyiceberg.io import FileIO

#: Names that tiering gives to data and delete files, and no other engine.
OUR_DATA_NAME: Final = re.compile(r"[A-Za-z0-9_-]+-b\d{5}-[a-z0-9]+-.*\.parquet")
#: Properties of pyiceberg for where stores are reached that are not their makers' own, by the beginnings of schemes.
_ENDPOINTS: Final = {"s3": "s3.endpoint", "gs": "gcs.service.host"}


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as it was listed.

    Attributes:
        location: As the table's metadata would call it.
        modified_ms: When it was last written, epoch milliseconds.
    """

    location: str
    modified_ms: int


def local_path(location: str) -> Path | None:
    """Return the path of a location on this machine's file systems; None for an object store."""
    scheme, _, path = PyArrowFileIO.parse_location(location)
    return Path(path) if scheme == "file" else None


def file_key(location: str, properties: Mapping[str, str]) -> tuple[str, str]:
    """Return what identifies a file: engines write the same location as ``file:/x``, ``file:///x``, ``s3a://``.

    Args:
        location: Of the file.
        properties: By which files are reached.
    """
    _, netloc, path = PyArrowFileIO.parse_location(location, dict(properties))
    return netloc, path.rstrip("/")


def endpoint_of(properties: Mapping[str, str], location: str) -> str | None:
    """Return the URL where the store of a location is reached; None for its maker's own, and for a file system."""
    scheme = PyArrowFileIO.parse_location(location, dict(properties))[0]
    return next((properties.get(key) for start, key in _ENDPOINTS.items() if scheme.startswith(start)), None)


def arrow_place(io: FileIO, location: str) -> tuple[FileSystem, str] | None:
    """Return where Arrow itself opens a file: its file system and the path there; None for other access than Arrow's."""
    if not isinstance(io, PyArrowFileIO):
        return None
    scheme, netloc, path = io.parse_location(location, io.properties)
    return io.fs_by_scheme(scheme, netloc), path


def files_below(io: FileIO, folder: str) -> Iterator[ListedFile]:
    """Yield the files in a folder and below it; none of an absent one.

    Raises:
        UnsupportedError: Files are reached in a way that offers no listing.
        OSError: The folder cannot be listed; or what else the library below raises.
    """
    if (place := arrow_place(io, folder)) is not None:
        system, root = place
        for info in system.get_file_info(pafs.FileSelector(root, allow_not_found=True, recursive=True)):
            if info.type == pafs.FileType.File:
                yield _listed_file(folder, root, info.path, info.mtime)
    elif (get_fs := getattr(io, "get_fs", None)) is not None:
        scheme, _, root = PyArrowFileIO.parse_location(folder, io.properties)
        for path, details in get_fs(scheme).find(root, detail=True).items():
            yield _listed_file(folder, root, path, _modified_time(details))
    else:
        raise UnsupportedError(
            f"files under {folder}: {type(io).__name__} offers no listing; use pyiceberg's Arrow or fsspec file access"
        )


def _listed_file(folder: str, root: str, path: str, modified: datetime | float | None) -> ListedFile:
    below = path.lstrip("/").removeprefix(root.strip("/")).lstrip("/")
    if modified is None:
        # Of unknown age: as if it had just been written, so that it stays.
        modified = datetime.now(UTC)
    seconds = modified.timestamp() if isinstance(modified, datetime) else modified
    return ListedFile(f"{folder}/{below}", int(seconds * 1000))


def _modified_time(details: dict[str, Any]) -> datetime | float | None:
    return next((details[key] for key in ("mtime", "LastModified", "updated", "last_modified") if key in details), None)
