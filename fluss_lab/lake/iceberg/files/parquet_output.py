"""One Parquet file of the lake while it is written: durable when it is finished, gone when it is given up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from fluss_lab.errors import FlussError
from fluss_lab.lake.iceberg.files.durable_io import delete_quietly, local_path, native_stream, sync_data_folders
from fluss_lab.lake.iceberg.files.file_seals import PARQUET_KEY, open_seal, seal_parquet
from fluss_lab.lake.iceberg.files.store_errors import library_errors, write_error

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FinishedParquet:
    """A Parquet file that is complete and durable.

    Attributes:
        location: Where it is.
        size_bytes: Its length.
        metadata: Its footer, as pyarrow gives it.
    """

    location: str
    size_bytes: int
    metadata: Any


class ParquetOutput:
    """A Parquet file that is being written. Used by one thread; either `finish` or `abort` ends it.

    Args:
        io: Access to the lake's files.
        location: Where the file goes.
        schema: Its columns, field ids in their metadata.
        arguments: Further ones of `pyarrow.parquet.ParquetWriter`.

    Raises:
        StorageError: The file cannot be created.
    """

    def __init__(self, io: FileIO, location: str, schema: pa.Schema, arguments: Mapping[str, Any]) -> None:
        self.location = location
        self._name = location.rpartition("/")[2]
        self._io = io
        try:
            self._stream: Any = io.new_output(location).create()
        except library_errors(OSError) as error:
            raise write_error(f"lake file {location}", error) from error
        try:
            self._parquet = pq.ParquetWriter(native_stream(self._stream), schema, write_page_checksum=True, **arguments)
            self._parquet.add_key_value_metadata({PARQUET_KEY: open_seal(self._name)})
        except BaseException:
            _quietly(self._stream.close)
            delete_quietly(io, location)
            raise

    @property
    def size_bytes(self) -> int:
        """Return the bytes written so far."""
        return int(self._stream.tell())

    def write_group(self, rows: pa.Table) -> None:
        """Write rows as one row group.

        Raises:
            StorageError: They cannot be written.
        """
        try:
            self._parquet.write_table(rows, row_group_size=len(rows))
        except library_errors(OSError) as error:
            raise write_error(f"lake file {self.location}", error) from error

    def finish(self, table_location: str) -> FinishedParquet:
        """Complete the file and make it durable, with the folders by which it is found.

        Args:
            table_location: Where the table is that the file belongs to.

        Raises:
            StorageError: It cannot be written or made durable.
        """
        try:
            self._parquet.close()
            size_bytes = self.size_bytes
            if (path := local_path(self.location)) is not None:
                self._stream.flush()
                seal_parquet(path, self._name)
            self._stream.close()
            sync_data_folders(self.location, table_location)
        except library_errors(OSError) as error:
            raise write_error(f"lake file {self.location}", error) from error
        return FinishedParquet(self.location, size_bytes, self._parquet.writer.metadata)

    def abort(self) -> None:
        """Remove the file, as far as can be. Never raises."""
        for end in (self._parquet.close, self._stream.close):
            _quietly(end)
        delete_quietly(self._io, self.location)


def _quietly(action: Callable[[], object]) -> None:
    try:
        action()
    except library_errors(OSError, pa.ArrowException, ValueError, FlussError) as error:
        _LOG.debug("while giving up a file: %s", error)
