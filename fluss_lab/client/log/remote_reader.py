"""The reader of the remote log: segments that left the servers' disks, straight from remote storage. No threads.

Every block is read whole, held against its CRC, and its batches against their own; offsets must follow each other and
times not go back. So what is given out is what was appended, or the reading ends with an error that names the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from fluss_lab.client.cluster.remote_files import RemoteFiles
from fluss_lab.client.log.fetch_codec import Projection
from fluss_lab.errors import CorruptDataError, FlussError, StorageError
from fluss_lab.model.config.options import REMOTE_DATA_DIR
from fluss_lab.records import LogRecords, records_of
from fluss_lab.records.batch import (
    CRC_START,
    HEADER_BYTES,
    BatchHeader,
    LogBatch,
    checksum,
    decode_checked,
)
from fluss_lab.records.remote_segment import SegmentFile, SegmentKey
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.storage.file_store import Place
from fluss_lab.storage.store_errors import store_failure
from fluss_lab.storage.store_location import local_place, location_of

_SEGMENT_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class SegmentGoneError(Exception):
    """A file of a segment is not there: it expired since the server named it, or it is lost. Ask the server again."""

    def __init__(self, place: pb.PbRemoteLogFetchInfo, segment_id: str, path: str) -> None:
        super().__init__(path)
        self.location = place.remote_log_tablet_dir
        self.segment_id = segment_id
        self.path = path


class GoneSegments:
    """The missing segments of one bucket: one that expired, or one that is lost."""

    def __init__(self) -> None:
        self._segment_id: str | None = None

    def note(self, gone: SegmentGoneError, what: str) -> None:
        """Note a segment that is missing; return when the fetch is to be repeated.

        Raises:
            StorageError: Remote storage as a whole cannot be seen from here.
            CorruptDataError: The server named the segment a second time: its file is lost.
        """
        if gone.segment_id != self._segment_id:
            self._segment_id = gone.segment_id
            return
        folder = location_of(gone.location, REMOTE_DATA_DIR.key)
        if isinstance(folder, Path) and not folder.is_dir():
            raise StorageError(
                f"{what}: the folder {folder} cannot be seen from this process: the remote log is read from the file "
                "system, so remote.data.dir must be one that servers and readers share, under the same path"
            )
        raise CorruptDataError(
            f"{what}: the file {gone.path} of the remote log is missing: restore it from a copy, or read from an offset "
            "behind it"
        )


def remote_records(
    place: pb.PbRemoteLogFetchInfo,
    what: str,
    start: int,
    stop: int | None,
    projection: Projection,
    *,
    previous_offsets: bool = False,
    files: RemoteFiles | None = None,
) -> Iterator[LogRecords]:
    """Yield the records from an offset on to the end of the segments that a server named, in order and without a gap.

    Args:
        place: The server's answer.
        what: Who reads, for messages.
        start: First offset wanted, in one of the segments.
        stop: Offset after the last wanted; None: the end of the segments.
        projection: Which columns; the others are not unpacked.
        previous_offsets: Whether records have their previous offsets.
        files: How remote storage is reached, where it is an object store.

    Raises:
        SegmentGoneError: A segment is not there; what was yielded before is right.
        CorruptDataError: A file is damaged. The text names it.
        StorageError: A file cannot be read.
        AuthenticationError, UnavailableError: Of an object store: it refuses, also with new credentials, or does not answer.

    Cost: memory of one block, packed and unpacked: 64 kB and up, as large as the largest batch; no call to a server. Of an
        object store, up to 8 MB are fetched at once, and a segment of 100 MB takes some 15 requests.
    """
    offset, is_renewed = start, False
    for key in _keys(place, what):
        if stop is not None and offset >= stop:
            return
        if key.end_offset <= start:
            continue
        if not key.base_offset <= offset < key.end_offset:
            raise CorruptDataError(
                f"{what}: expected a remote segment that holds offset {offset}, found [{key.base_offset}, {key.end_offset})"
            )
        while offset < key.end_offset and (stop is None or offset < stop):
            folder: Place | None = None
            try:
                location = place.remote_log_tablet_dir
                folder = local_place(location) if files is None else files.place(location)
                for records in _segment_records(folder, key, (offset, stop), projection, previous_offsets):
                    clipped = records.clip(offset, records.next_offset if stop is None else stop)
                    if clipped is not None:
                        offset = clipped.next_offset
                        yield clipped
                break
            except FileNotFoundError as error:
                raise SegmentGoneError(place, key.segment_id, str(error.filename)) from error
            except OSError as error:
                if isinstance(error, PermissionError) and files is not None and folder is not None and not is_renewed:
                    is_renewed = files.renew(folder)
                    if is_renewed:
                        continue
                raise store_failure(f"{what}: the remote log cannot be read", error) from error
            except FlussError as error:
                raise type(error)(f"{what}: {error}") from error


def _keys(place: pb.PbRemoteLogFetchInfo, what: str) -> Iterator[SegmentKey]:
    for each in place.remote_log_segments:
        # It becomes a part of a path.
        if not _SEGMENT_ID.fullmatch(each.remote_log_segment_id):
            raise CorruptDataError(f"{what}: expected the id of a remote segment, found {each.remote_log_segment_id!r}")
        yield SegmentKey(
            each.remote_log_segment_id,
            each.remote_log_start_offset,
            each.remote_log_end_offset,
            each.segment_size_in_bytes,
        )


def _segment_records(
    folder: Place, key: SegmentKey, offsets: tuple[int, int | None], projection: Projection, previous_offsets: bool
) -> Iterator[LogRecords]:
    """Yield a segment's records, from the block on that holds an offset to the one before another; None: to the end."""
    floor_ms = -1
    offset, stop_at = offsets
    with SegmentFile(folder, key) as file:
        file.read_ahead(stop_at)
        for at in range(file.index.at_offset(offset), len(file.index)):
            if stop_at is not None and file.index.offsets(at)[0] >= stop_at:
                return
            previous: pa.Int64Array | None = None
            if previous_offsets:
                data = file.previous(at)
                previous = pa.Array.from_buffers(pa.int64(), len(data) // 8, [None, pa.py_buffer(data)])
            base, end = expected, stop = file.index.offsets(at)
            for header, whole in file.batches(at):
                if header.base_offset != expected or header.next_offset > stop or header.timestamp_ms < floor_ms:
                    raise CorruptDataError(
                        f"{file.path}: expected a batch at offset {expected} with a time from {floor_ms} on, found offset "
                        f"{header.base_offset} and time {header.timestamp_ms}"
                    )
                expected, floor_ms = header.next_offset, header.timestamp_ms
                if header.next_offset <= offset or not header.record_count:
                    continue
                records = records_of(_decode_batch(header, whole, projection, file.path))
                if records is not None:
                    before = None if previous is None else previous.slice(header.base_offset - base, len(records))
                    yield records.replace(projection.rows(records.rows), before)
            if expected != end:
                raise CorruptDataError(f"{file.path}: expected records up to offset {end}, found them up to {expected}")


def _decode_batch(header: BatchHeader, whole: memoryview, projection: Projection, path: Place) -> LogBatch:
    """Return a batch with the columns that are needed, checked."""
    if (found := checksum(whole[CRC_START:])) != header.crc:
        raise CorruptDataError(
            f"{path}: batch at offset {header.base_offset}: expected CRC {header.crc:08x}, found {found:08x}"
        )
    schema = projection.full_schema(header.schema_id)
    indices = [index for index in projection.indices or () if index < len(schema)]
    try:
        if not indices or len(indices) == len(schema):
            return decode_checked(header, whole, schema)
        return _decoded_columns(header, whole, schema, indices)
    except CorruptDataError as error:
        raise CorruptDataError(f"{path}: {error}") from error


def _decoded_columns(header: BatchHeader, whole: memoryview, schema: pa.Schema, indices: list[int]) -> LogBatch:
    """Return a batch with some columns; Arrow leaves the others packed."""
    start = HEADER_BYTES if header.append_only else HEADER_BYTES + header.record_count
    changes = None if header.append_only else whole[HEADER_BYTES:start]
    # Only a stream's reader can leave columns out, and a stream begins with the schema.
    stream = b"".join((memoryview(schema.serialize()), whole[start:]))
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=indices)
    try:
        with pa.ipc.open_stream(stream, options=options) as reader:
            rows = reader.read_next_batch()
        rows.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, StopIteration, UnicodeDecodeError, MemoryError, ValueError) as error:
        raise CorruptDataError(f"log batch at offset {header.base_offset}: not Arrow of its schema: {error}") from error
    if rows.num_rows != header.record_count:
        raise CorruptDataError(
            f"log batch at offset {header.base_offset}: expected {header.record_count} records, found {rows.num_rows}"
        )
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not field.nullable and column.null_count:
            raise CorruptDataError(f"log batch at offset {header.base_offset}: null in column {field.name!r}")
    return LogBatch(header, rows, changes)
