"""The meaning of an error of one of the lake's files: its store's endpoint, its bucket, and whether the file is there at all.

Arrow names neither the endpoint nor, amid a file, the file; and of a bucket that is gone it says that each file is.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow.fs import FileType

from fluss_lab.errors import FlussError, StorageError
from fluss_lab.lake.iceberg.files.file_locations import arrow_place, endpoint_of, local_path
from fluss_lab.lake.iceberg.files.lake_errors import is_missing, library_errors, read_error, safe_text, write_error

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


def file_title(io: FileIO | None, location: str) -> str:
    """Return a file as messages have it: its location, and where its store is reached.

    Args:
        io: Access to the file; None: it lies on this machine's file systems.
        location: Where it is.
    """
    endpoint = None if io is None else endpoint_of(io.properties, location)
    return f"lake file {location}" if endpoint is None else f"lake file {location} at {safe_text(ValueError(endpoint))}"


def reading_fault(
    io: FileIO | None, location: str, expected: str, error: BaseException, *, what: str | None = None
) -> FlussError | FileNotFoundError:
    """Return what an error of reading a file means.

    Args:
        io: As `file_title`.
        location: Where the file is, or one of several.
        expected: What it should be, for messages.
        error: Of Arrow, fsspec, a library below it, or the operating system.
        what: The file, for the message; None: its title.

    Returns:
        A `FileNotFoundError` for one that is gone, in a bucket that is there: what it means knows who wanted it.

    Cost: nothing, but of a file that is gone one request to its store.
    """
    if not is_missing(error):
        title = file_title(io, location)
        return read_error(title if what is None else f"{what}, at {title}", expected, error)
    if io is not None and (absent := absent_bucket(io, location)) is not None:
        return absent
    return error if isinstance(error, FileNotFoundError) else FileNotFoundError(errno.ENOENT, str(error), location)


def writing_fault(io: FileIO, location: str, error: Exception) -> FlussError:
    """Return what an error of writing a file means; nothing refers to it yet. See `write_error`."""
    return write_error(file_title(io, location), error)


def absent_bucket(io: FileIO, location: str) -> StorageError | None:
    """Return the error for a file whose bucket is not there; None where it is, or where that is not known."""
    if local_path(location) is not None or (place := arrow_place(io, location)) is None:
        return None
    system, path = place
    bucket = path.partition("/")[0]
    try:
        if system.get_file_info(bucket).type != FileType.NotFound:
            return None
    except library_errors(OSError, pa.ArrowException):
        return None
    return StorageError(
        f"{file_title(io, location)}: the store has no such bucket: {bucket!r}; make it and restore what was in it, or correct "
        "the warehouse or endpoint (datalake.iceberg.warehouse, datalake.iceberg.s3.endpoint)"
    )
