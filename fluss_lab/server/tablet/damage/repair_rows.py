"""The rows of a primary-key bucket that a repair uploads, because its log can no longer give them: checked, and kept for a while.

The rows of one bucket are kept at a time: a repair sends them, and has them used by its next call.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from fluss_lab.clock import Clock
from fluss_lab.errors import ConflictError, CorruptDataError, InvalidRecordError, InvalidRequestError
from fluss_lab.model.names import TableBucket
from fluss_lab.records.batch import (
    CRC_START,
    HEADER_BYTES,
    BatchHeader,
    align_buffer,
    checksum,
    decode_checked,
    split_headers,
)
from fluss_lab.records.kv_files import OFFSET_COLUMN, TIMESTAMP_COLUMN, stored_schema
from fluss_lab.records.log_records import fit_to_schema
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame, bucket_of
from fluss_lab.server.kv.kv_store import KvStore
from fluss_lab.server.kv.row_chunks import KvChunk
from fluss_lab.server.kv.store_view import KvImage
from fluss_lab.server.tablet.append.payload_validation import check_body
from fluss_lab.server.tablet.buckets.table_registry import RegisteredTable
from fluss_lab.server.tablet.damage.damaged_ranges import SoundTail


@dataclass(slots=True)
class _Upload:
    """What was sent of one bucket."""

    bucket: TableBucket
    log_offset: int
    used_ms: float
    parts: int = 0
    row_count: int = 0
    chunks: list[KvChunk] = field(default_factory=list)


class UploadedRows:
    """The rows that were uploaded last. Safe for threads.

    Args:
        clock: Measures how long they are unused.
        ttl_ms: For how long they are kept then.
        size_max: Bytes of one part, at most.
    """

    def __init__(self, clock: Clock, *, ttl_ms: int, size_max: int) -> None:
        self._clock, self._ttl_ms, self._size_max = clock, ttl_ms, size_max
        self._lock = threading.Lock()
        self._sent: _Upload | None = None

    def take(self, request: Frame[pb.SendRowsRequest], schemas: Mapping[int, pa.Schema]) -> int:
        """Keep one part; return how many rows there are now.

        Args:
            request: The part: the first one replaces whatever was there.
            schemas: Arrow schema of each schema id of the table.

        Raises:
            ConflictError: Another part is the next: start again with the first.
            InvalidRequestError, InvalidRecordError, CorruptDataError: They are no rows of the table, in order of their
                offsets.
        """
        message = request.message
        with self._lock:
            if message.part == 0:
                self._sent = _Upload(bucket_of(message), message.log_offset, self._clock.monotonic_ms())
            sent = self._found(bucket_of(message), message.log_offset)
            if sent.parts != message.part:
                raise ConflictError(
                    f"rows of {sent.bucket}: expected part {sent.parts}, found {message.part}; send all again"
                )
            if request.payloads:
                after = int(sent.chunks[-1].offsets[-1]) if sent.chunks else -1
                data = memoryview(b"".join(request.payloads[0]))
                chunk = self._chunk(data, schemas, len(sent.chunks), range(after + 1, sent.log_offset))
                sent.chunks.append(chunk)
                sent.row_count += chunk.rows.num_rows
            sent.parts += 1
            sent.used_ms = self._clock.monotonic_ms()
            return sent.row_count

    def give(self, bucket: TableBucket, log_offset: int, row_count: int) -> KvImage:
        """Return the rows of a bucket as they were at an offset, and keep them no more.

        Raises:
            ConflictError: They were not sent, or not so many: send them again.
        """
        with self._lock:
            sent = self._found(bucket, log_offset)
            if sent.row_count != row_count:
                raise ConflictError(f"rows of {bucket}: expected {row_count}, found {sent.row_count}; send them again")
            self._sent = None
        live = tuple(np.ones(chunk.rows.num_rows, np.bool_) for chunk in sent.chunks)
        return KvImage(log_offset, tuple(sent.chunks), live, len(sent.chunks))

    def expire(self) -> None:
        """Drop rows that were unused for too long."""
        with self._lock:
            if self._sent is not None and self._sent.used_ms < self._clock.monotonic_ms() - self._ttl_ms:
                self._sent = None

    def _found(self, bucket: TableBucket, log_offset: int) -> _Upload:
        sent = self._sent
        if sent is None or (sent.bucket, sent.log_offset) != (bucket, log_offset):
            raise ConflictError(f"rows of {bucket} at offset {log_offset}: they were not sent, or are no longer kept")
        return sent

    def _chunk(self, data: memoryview, schemas: Mapping[int, pa.Schema], chunk_id: int, within: range) -> KvChunk:
        if len(data) > self._size_max:
            raise InvalidRequestError(f"rows: expected at most {self._size_max} bytes in a part, found {len(data)}")
        batches = list(split_headers(data))
        if len(batches) != 1 or not batches[0][0].record_count:
            raise InvalidRecordError(f"rows: expected one batch with rows, found {len(batches)} batches")
        header, whole = batches[0]
        if (found := checksum(whole[CRC_START:])) != header.crc:
            raise CorruptDataError(f"rows: expected CRC {header.crc:08x}, found {found:08x}")
        if (schema := schemas.get(header.schema_id)) is None or not header.append_only:
            raise InvalidRecordError(f"rows: expected a schema id in {sorted(schemas)}, found {header.schema_id}")
        check_body(whole[HEADER_BYTES:])
        rows = decode_checked(header, whole, stored_schema(schema)).rows
        offsets, times = (rows.column(name).to_numpy() for name in (OFFSET_COLUMN, TIMESTAMP_COLUMN))
        if int(offsets[0]) < within.start or int(offsets[-1]) >= within.stop or bool((np.diff(offsets) <= 0).any()):
            raise InvalidRecordError(
                f"rows: expected offsets that ascend in [{within.start}, {within.stop}), found {len(offsets)} from "
                f"{offsets[0]} to {offsets[-1]}"
            )
        content = pa.RecordBatch.from_arrays(rows.columns[: len(schema)], schema=schema)
        return KvChunk(chunk_id, header.schema_id, content, offsets, times)


def check_rows(table: RegisteredTable, image: KvImage, tail: SoundTail) -> None:
    """Check that rows are those that a bucket had at an offset, as far as can be checked: the log's tail follows on them.

    Args:
        table: The bucket's.
        image: The rows.
        tail: Of its log; all of its batches from the image's offset on are done.

    Raises:
        CorruptDataError: A key has two rows, or a change does not fit.
        OSError: A file cannot be read.

    Cost: what opening the bucket costs, in time and memory.
    """
    _check_unique(image, table.descriptor.schema.primary_key)
    schema = table.schemas[table.schema_id]
    store = KvStore.restore(table.descriptor, table.schema_id, table.schemas, image)
    for header, whole in tail.batches():
        if header.base_offset < image.log_offset or not header.record_count:
            continue
        body = HEADER_BYTES + header.record_count
        rows = fit_to_schema(_rows(header, whole[body:], table.schemas), schema)
        times = np.full(rows.num_rows, header.timestamp_ms, np.int64)
        store.replay(rows, bytes(whole[HEADER_BYTES:body]), header.base_offset, times)


def _rows(header: BatchHeader, body: memoryview, schemas: Mapping[int, pa.Schema]) -> pa.RecordBatch:
    if (schema := schemas.get(header.schema_id)) is None:
        raise CorruptDataError(f"batch at offset {header.base_offset}: schema id {header.schema_id} is not known")
    return pa.ipc.read_record_batch(align_buffer(body), schema)


def _check_unique(image: KvImage, key: Sequence[str]) -> None:
    parts = [chunk.rows.select(key) for chunk in image.chunks]
    if not parts:
        return
    keys = pa.Table.from_batches(parts)
    if (found := keys.group_by(list(key)).aggregate([]).num_rows) != keys.num_rows:
        raise CorruptDataError(f"rows at offset {image.log_offset}: expected {keys.num_rows} keys, found {found}")
