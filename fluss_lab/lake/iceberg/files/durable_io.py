"""File access for the lake: what it writes on this machine's file systems is durable before anything refers to it.

pyiceberg writes a table's metadata and moves the catalog's pointer in one call, and never calls fsync: after a power
loss the pointer could name an empty file. Here the files are made durable as they are closed, so that the order holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, cast

import pyarrow as pa
from pyarrow.fs import FileSystem, S3FileSystem
from pyiceberg.io import S3_RETRY_STRATEGY_IMPL, FileIO, OutputStream
from pyiceberg.io.pyarrow import BUFFER_SIZE, ONE_MEGABYTE, PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import Properties

from fluss_lab.errors import FlussError, ServerUnavailableError, StorageError
from fluss_lab.failpoints import failpoint
from fluss_lab.files import fsync_folder, fsync_path
from fluss_lab.lake.iceberg.files.file_faults import writing_fault
from fluss_lab.lake.iceberg.files.file_locations import arrow_place, local_path
from fluss_lab.lake.iceberg.files.lake_errors import UnwrittenError, library_errors

_TABLE_METADATA: Final = ".metadata.json"
#: A table's first metadata file comes with new folders: its own, the table's, the database's, in the warehouse's.
_NEW_TABLE_FOLDERS: Final = 4
#: Folders above a data file that lies outside its table's location (``write.data.path``): partitions and hashes.
_FOREIGN_FOLDERS_MAX: Final = 8


class DurableFileIO(PyArrowFileIO):
    """pyiceberg's file access through Arrow, with local files made durable when they are closed.

    Into S3 a file below the size of a part (10 MB) is written by one request, as it is closed: so closing is where a
    store refuses it. One that is never closed is not there.
    """

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to be written; see `DurableStream` and `StoreStream`."""
        path = local_path(location)
        place = arrow_place(self, location)
        assert place is not None, "this is Arrow's own access"
        return _StoreFile(self, location, place) if path is None else _DurableFile(location, path, place[0])

    def _initialize_fs(self, *place: Any, **named: Any) -> FileSystem:
        return _open_at_close(super()._initialize_fs(*place, **named), self.properties)


class LakeStream(ABC):
    """A stream into a new file of the lake.

    Its errors are the house's, not `OSError`: pyiceberg's callers must not take them for a connection that broke, after
    which a commit may have happened. Whatever refers to the file comes after it.
    """

    def __init__(self, native: pa.NativeFile) -> None:
        self.native = native

    def write(self, data: bytes) -> int:
        """Write all bytes."""
        try:
            return int(self.native.write(data))
        except library_errors(OSError) as error:
            raise self._failure(error) from error

    @property
    def closed(self) -> bool:
        """Return whether the stream is closed."""
        return bool(self.native.closed)

    def writable(self) -> bool:
        """Return True; Arrow asks."""
        return True

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        self.native.flush()

    def tell(self) -> int:
        """Return the bytes written so far."""
        return int(self.native.tell())

    def close(self) -> None:
        """Make the file durable.

        Raises:
            StorageError, AuthenticationError, ResourceExhaustedError, UnwrittenError: It is not; nothing may refer to it.
        """
        if self.native.closed:
            return
        try:
            self.native.close()
            self._settle()
        except library_errors(OSError) as error:
            raise self._failure(error) from error

    def __enter__(self) -> LakeStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _settle(self) -> None:
        """Make what was closed durable: nothing, where an answer says that it is."""
        return

    @abstractmethod
    def _failure(self, error: Exception) -> FlussError:
        """Return what an error means."""


class DurableStream(LakeStream):
    """A stream into a local file. Its `close` returns when the content is on the device.

    With the closing of a table's metadata file the entries of its folder are too, and so all that it refers to.
    """

    def __init__(self, native: pa.NativeFile, path: Path) -> None:
        super().__init__(native)
        self.path = path

    def _settle(self) -> None:
        fsync_path(self.path)
        if self.path.name.endswith(_TABLE_METADATA):
            first = self.path.name.startswith("00000-")
            for folder in list(self.path.parents)[: _NEW_TABLE_FOLDERS if first else 1]:
                fsync_folder(folder)
            failpoint("lake.commit.after_metadata")

    def _failure(self, error: Exception) -> FlussError:
        return storage_error(f"file {self.path}", error)


class StoreStream(LakeStream):
    """A stream into an object, which is there when `close` has returned."""

    def __init__(self, native: pa.NativeFile, io: FileIO, location: str) -> None:
        super().__init__(native)
        self._io = io
        self._location = location

    def _failure(self, error: Exception) -> FlussError:
        found = writing_fault(self._io, self._location, error)
        return UnwrittenError(str(found)) if isinstance(found, ServerUnavailableError) else found


class _DurableFile(PyArrowFile):
    """A local file that is written through a `DurableStream`."""

    def __init__(self, location: str, path: Path, system: FileSystem) -> None:
        super().__init__(location, str(path), system)
        self._local = path

    def create(self, overwrite: bool = False) -> OutputStream:
        try:
            native = cast(pa.NativeFile, super().create(overwrite))
        except OSError as error:
            raise storage_error(f"file {self._local}", error) from error
        return cast(OutputStream, DurableStream(native, self._local))


class _StoreFile(PyArrowFile):
    """An object that is written through a `StoreStream`."""

    def __init__(self, io: FileIO, location: str, place: tuple[FileSystem, str]) -> None:
        system, path = place
        super().__init__(location, path, system, int(io.properties.get(BUFFER_SIZE, ONE_MEGABYTE)))
        self._io = io

    def create(self, overwrite: bool = False) -> OutputStream:
        try:
            native = cast(pa.NativeFile, super().create(overwrite))
        except FileExistsError:
            raise
        except library_errors(OSError) as error:
            raise writing_fault(self._io, self.location, error) from error
        return cast(OutputStream, StoreStream(native, self._io, self.location))


def _open_at_close(system: FileSystem, properties: Properties) -> FileSystem:
    """Return a file system as it is, of S3 such that a small file is one request, not the three of an upload in parts."""
    # A strategy of retries is not among the arguments that Arrow gives back.
    if not isinstance(system, S3FileSystem) or S3_RETRY_STRATEGY_IMPL in properties:
        return system
    rebuilt, (arguments,) = cast("tuple[Callable[..., FileSystem], tuple[dict[str, object]]]", system.__reduce__())
    return rebuilt({**arguments, "allow_delayed_open": True})


def native_stream(stream: OutputStream | LakeStream) -> pa.NativeFile | OutputStream:
    """Return what Arrow's Parquet writer writes into fastest: the C++ stream below, if there is one."""
    return stream.native if isinstance(stream, LakeStream) else stream


def sync_data_folders(location: str, table_location: str) -> None:
    """Make the folder entries durable by which a local data file is found. Nothing is done for an object store."""
    path, top = local_path(location), local_path(table_location)
    if path is None:
        return
    below = top in path.parents if top is not None else False
    for folder in list(path.parents)[: None if below else _FOREIGN_FOLDERS_MAX]:
        fsync_folder(folder)
        if below and folder == top:
            return


def delete_quietly(io: FileIO, location: str) -> bool:
    """Remove a file; return whether it is gone. Absent counts as gone."""
    try:
        io.delete(location)
    except FileNotFoundError:
        return True
    except library_errors(OSError, pa.ArrowException):
        return False
    return True


def storage_error(what: str, error: Exception) -> StorageError:
    """Return the error for a file that could not be written."""
    return StorageError(f"{what}: {error}; free space or mend the storage, nothing of it was committed")
