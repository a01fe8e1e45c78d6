"""The files of a key-value snapshot: rows in chunks, and which of them are live.

A file of chunks is an Arrow IPC file: a record batch for each chunk, the table's columns followed by ``__offset`` and
``__timestamp`` (int64, epoch milliseconds) of each row. It is written once, made durable, and memory-mapped to be read.
All checks of bytes are by size and CRC-32C, which the manifest holds.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_lab.errors import CorruptDataError, InvalidSchemaError
from fluss_lab.records.kv_manifest import ChunkFile, ChunkMark, FileMark, SnapshotManifest
from fluss_lab.storage.file_store import FileWriter, ObjectPath, Place
from fluss_lab.storage.store_location import store_of

OFFSET_COLUMN: Final = "__offset"
TIMESTAMP_COLUMN: Final = "__timestamp"
#: Read and summed at once: fits the processor's cache.
_BLOCK_BYTES: Final = 1 << 20
_MISSING: Final = "the file of a snapshot is missing"
Int64s: TypeAlias = npt.NDArray[np.int64]
Booleans: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """The rows of a chunk, dead ones too, with the log offset and the timestamp of each one's record."""

    rows: pa.RecordBatch
    offsets: Int64s
    timestamps_ms: Int64s


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as a snapshot has it.

    Attributes:
        mark: Its entry in the manifest.
        content: Its rows, over the mapped file.
        live: For each row, whether it is the present row of its key.
    """

    mark: ChunkMark
    content: ChunkRows
    live: Booleans


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the Arrow schema of a file of chunks whose rows have a schema."""
    own = [pa.field(OFFSET_COLUMN, pa.int64(), nullable=False), pa.field(TIMESTAMP_COLUMN, pa.int64(), nullable=False)]
    return pa.schema([*schema, *own])


# -- writing -----------------------------------------------------------------------------------------------------------


class _Checked:
    """A file being written, as Arrow sees it: counts and sums what passes."""

    closed = False

    def __init__(self, file: FileWriter) -> None:
        self._file = file
        self.size_bytes = 0
        self.crc = 0

    def write(self, data: bytes | pa.Buffer) -> int:
        """Write all of the data."""
        self.crc = google_crc32c.extend(self.crc, data)
        self._file.write(data)
        size = len(memoryview(data))
        self.size_bytes += size
        return size

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """The file is the caller's."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def write_chunks(path: Place, chunks: Sequence[ChunkRows]) -> FileMark:
    """Write a new file of chunks, all of one schema, and make its content durable; its name is not yet.

    Args:
        path: A file that does not exist, in a folder that does; to an object store it goes whole, and is in memory until then.
        chunks: At least one.

    Raises:
        FileExistsError: There is such a file.
        OSError: The store refused.
    """
    schema = stored_schema(chunks[0].rows.schema)
    with store_of(path).create(path) as file:
        sink = _Checked(file)
        with pa.ipc.new_file(pa.PythonFile(sink, mode="w"), schema) as writer:
            for chunk in chunks:
                columns = [*chunk.rows.columns, pa.array(chunk.offsets), pa.array(chunk.timestamps_ms)]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return FileMark(path.name, sink.size_bytes, sink.crc)


def write_live(path: Place, live: Sequence[Booleans]) -> FileMark:
    """Write a new file of live bits, and make its content durable; its name is not yet.

    Raises:
        FileExistsError: There is such a file.
        OSError: The store refused.
    """
    data = b"".join(np.packbits(each, bitorder="little").tobytes() for each in live)
    with store_of(path).create(path) as file:
        sink = _Checked(file)
        sink.write(data)
    return FileMark(path.name, sink.size_bytes, sink.crc)


# -- reading -----------------------------------------------------------------------------------------------------------


def read_chunks(
    folder: Place, manifest: SnapshotManifest, schemas: Mapping[int, pa.Schema], *, validate: bool = False
) -> Iterator[StoredChunk]:
    """Yield the chunks of a snapshot, in order. Each file is checked before anything of it is yielded.

    Args:
        folder: Where its files are.
        schemas: Arrow schema of each schema id of the table.
        validate: Whether Arrow's own full validation follows the CRC: for files from elsewhere.

    Raises:
        CorruptDataError: A file is missing, cut, changed, or not what the manifest says; the text names it.
        InvalidSchemaError: A schema of the snapshot is not among `schemas`. The files may be right.
        OSError: The file system refused to read.

    Cost: the CRC of each file, at the speed of memory or disk; rows are mapped, not copied. Of an object store a request and
        the memory for each file, as long as rows of it are used.
    """
    if unknown := sorted(set(manifest.schema_ids) - set(schemas)):
        raise InvalidSchemaError(
            f"{folder / manifest.name}: the snapshot has rows of schema {unknown[0]}; known are {sorted(schemas)}"
        )
    live = _read_mapped(folder, manifest.live)
    held = {mark.chunk_id: (file, at) for file in manifest.files for at, mark in enumerate(file.chunks)}
    opened: dict[str, list[ChunkRows]] = {}
    position = rows_live = 0
    for chunk_id in manifest.chunk_ids:
        file, at = held[chunk_id]
        mark, name = file.chunks[at], file.file.name
        if name not in opened:
            opened[name] = open_chunks(folder, file, schemas, validate=validate)
        size = (mark.row_count + 7) // 8
        bits = np.frombuffer(live, dtype=np.uint8)[position : position + size]
        position += size
        alive = np.unpackbits(bits, count=mark.row_count, bitorder="little").view(np.bool_)
        if len(bits) != size or mark.last_offset >= manifest.log_offset:
            raise CorruptDataError(f"{folder / manifest.name}: chunk {chunk_id} does not agree with the snapshot")
        rows_live += int(np.count_nonzero(alive))
        yield StoredChunk(mark, opened[name][at], alive)
    if position != manifest.live.size_bytes or rows_live != manifest.row_count:
        raise CorruptDataError(
            f"{folder / manifest.live.name}: expected {manifest.row_count} live rows in {position} bytes, found "
            f"{rows_live} in {manifest.live.size_bytes}"
        )


def check_files(folder: Place, manifest: SnapshotManifest) -> None:
    """Raise unless every file that a snapshot needs has the right size and CRC.

    Raises:
        CorruptDataError: One is missing, cut, changed or unreadable; the text names it.
        OSError: The file system refused to read.

    Cost: reads them all.
    """
    for mark in (manifest.live, *(each.file for each in manifest.files)):
        path = folder / mark.name
        if isinstance(path, Path):
            check_file(path, mark)
        else:
            _fetch(path, mark)


def check_file(path: Path, mark: FileMark) -> None:
    """Raise unless a local file has the size and CRC of a mark.

    Raises:
        CorruptDataError: It is missing, cut, changed or unreadable; the text names it.
        OSError: The file system refused to read.
    """
    try:
        size, crc = _sum_of(path, mark.size_bytes)
    except FileNotFoundError as error:
        raise CorruptDataError(f"{path}: {_MISSING}") from error
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise CorruptDataError(f"{path}: the device cannot read the file of a snapshot ({error})") from error
    _check_sum(path, mark, size, crc)


def _fetch(path: ObjectPath, mark: FileMark) -> bytes:
    """Return the bytes of an object, when they are what the mark says."""
    try:
        data = path.store.read(path)
    except FileNotFoundError as error:
        raise CorruptDataError(f"{path}: {_MISSING}") from error
    _check_sum(path, mark, len(data), google_crc32c.value(data))
    return data


def _check_sum(path: Place, mark: FileMark, size: int, crc: int) -> None:
    if size != mark.size_bytes:
        raise CorruptDataError(f"{path}: expected {mark.size_bytes} bytes, found {size}")
    if crc != mark.crc:
        raise CorruptDataError(f"{path}: CRC-32C: expected {mark.crc:08x}, found {crc:08x}")


def _read_mapped(folder: Place, mark: FileMark) -> pa.Buffer:
    """Return the bytes of a file, mapped where it is local, when they are what the mark says."""
    path = folder / mark.name
    if not isinstance(path, Path):
        return pa.py_buffer(_fetch(path, mark))
    check_file(path, mark)
    if not mark.size_bytes:
        return pa.py_buffer(b"")  # an empty file cannot be mapped
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()


def _sum_of(path: Path, expected_bytes: int) -> tuple[int, int]:
    """Return the size of a file, and its CRC if it has as many bytes as expected.

    It is read, not mapped: what a device cannot read is an error of a read, but the end of a process that has it mapped.
    """
    block = bytearray(min(_BLOCK_BYTES, expected_bytes + 1))
    view = memoryview(block)
    crc = 0
    with open(path, "rb", buffering=0) as file:
        if (size := os.fstat(file.fileno()).st_size) != expected_bytes:
            return size, 0
        while count := file.readinto(block):
            crc = google_crc32c.extend(crc, pa.py_buffer(view[:count]))
    return size, crc


def open_chunks(
    folder: Place, file: ChunkFile, schemas: Mapping[int, pa.Schema], *, validate: bool = False
) -> list[ChunkRows]:
    """Return the chunks of one file: see `read_chunks`, which does so for all of a snapshot."""
    path = folder / file.file.name
    data = _read_mapped(folder, file.file)
    expected = stored_schema(schemas[file.chunks[0].schema_id])
    try:
        reader = pa.ipc.open_file(pa.BufferReader(data))
        if not reader.schema.equals(expected) or reader.num_record_batches != len(file.chunks):
            raise CorruptDataError(
                f"{path}: expected {len(file.chunks)} chunks of {expected}, found {reader.num_record_batches} of "
                f"{reader.schema}"
            )
        found = []
        for at, mark in enumerate(file.chunks):
            batch = reader.get_batch(at)
            batch.validate(full=validate)
            found.append(_chunk_of(batch, mark, path))
    except pa.ArrowException as error:
        raise CorruptDataError(f"{path}: no Arrow file of chunks ({error})") from error
    return found


def _chunk_of(batch: pa.RecordBatch, mark: ChunkMark, path: Place) -> ChunkRows:
    columns = batch.num_columns
    if any(batch.column(at).null_count for at, field in enumerate(batch.schema) if not field.nullable):
        raise CorruptDataError(f"{path}: chunk {mark.chunk_id} has a null in a column that is NOT NULL")
    offsets, timestamps_ms = _int64s(batch.column(columns - 2)), _int64s(batch.column(columns - 1))
    ends = (int(offsets[0]), int(offsets[-1])) if len(offsets) else None
    if len(offsets) != mark.row_count or ends != (mark.first_offset, mark.last_offset):
        raise CorruptDataError(
            f"{path}: chunk {mark.chunk_id}: expected {mark.row_count} rows with offsets from {mark.first_offset} to "
            f"{mark.last_offset}, found {len(offsets)} with {ends}"
        )
    return ChunkRows(batch.select(range(columns - 2)), offsets, timestamps_ms)


def _int64s(column: pa.Array) -> Any:
    return column.to_numpy(zero_copy_only=True)
