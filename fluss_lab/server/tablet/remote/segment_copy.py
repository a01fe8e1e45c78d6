"""The copy of one segment to remote storage: checked batch by batch, compressed, durable before it counts."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final

import google_crc32c
import pyarrow as pa

from fluss_lab.errors import CorruptDataError
from fluss_lab.failpoints import failpoint
from fluss_lab.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    PREFIX_BYTES,
    BatchHeader,
    Buffer,
    checksum,
    split_headers,
)
from fluss_lab.records.remote_segment import INDEX_SUFFIX, LOG_SUFFIX, PREVIOUS_SUFFIX, Block, BlockIndex, SegmentKey
from fluss_lab.server.tablet.log.segment import BatchPosition, Segment
from fluss_lab.server.tablet.remote.remote_manifest import RemoteSegment
from fluss_lab.storage.file_store import FileWriter, Place
from fluss_lab.storage.store_location import store_of

#: Bytes of a segment read at once; a batch that is larger is read by itself.
_CHUNK_BYTES: Final = 4 << 20
#: Batches go into a block until it has so many bytes: what a reader reads beyond what it needs, at most, and with 32
#: bytes of index each, 0.05 % of the copy.
BLOCK_BYTES: Final = 64 << 10
#: Level 1 packs flights-like records 2.8 times at 300 MB/s and more a core; level 3 is slower and gains nothing.
_LEVEL: Final = 1
#: Below this a body is not worth a try: Arrow's own metadata is most of it, and stays as it is.
_BODY_BYTES_MIN: Final = 1024
#: What ends a stream: a continuation marker and a size of zero.
_END_BYTES: Final = 8


@dataclass(slots=True)
class _Draft:
    """A copy under way."""

    packer: Packer
    log_file: FileWriter
    previous_file: FileWriter | None
    size: int = 0
    first_timestamp_ms: int = -1
    max_timestamp_ms: int = -1


def copy_segment(
    segment: Segment,
    folder: Place,
    schemas: Mapping[int, pa.Schema],
    *,
    created_ms: int,
    check: Callable[[], None] = lambda: None,
) -> RemoteSegment:
    """Copy a segment to a bucket's remote folder and return what the copy is; it counts once the manifest names it.

    Args:
        segment: Rolled, so it is on the device and does not change.
        folder: The bucket's remote folder; it exists.
        schemas: Arrow schema of each schema id.
        created_ms: Kept with the copy.
        check: Called between blocks; what it raises ends the copy.

    Returns:
        The copy; its files and their names are on the device.

    Raises:
        CorruptDataError: The segment is damaged.
        FileNotFoundError: It was deleted meanwhile.
        OSError: The file system refused. What was written of the copy is removed, as far as that goes.

    Cost: one pass of CRC and packing: some 300 MB a second; memory of a few chunks, to an object store of the whole copy.
    """
    segment_id = str(uuid.uuid4())
    place, store = folder / segment_id, store_of(folder)
    store.make_folder(place, is_new=True)
    try:
        failpoint("remote.copy.before_data")
        copied = _copy(segment, folder, segment_id, schemas, created_ms, check)
        store.settle(place)
        store.settle(folder)
        failpoint("remote.copy.after_data")
        return copied
    except BaseException:
        with suppress(OSError):
            store.remove_folder(place)
        raise


def _copy(
    segment: Segment,
    folder: Place,
    segment_id: str,
    schemas: Mapping[int, pa.Schema],
    created_ms: int,
    check: Callable[[], None],
) -> RemoteSegment:
    unsized = SegmentKey(segment_id, segment.base_offset, segment.end_offset, 0)
    store = store_of(folder)
    blocks: list[Block] = []
    with ExitStack() as stack:
        log_file = stack.enter_context(store.create(unsized.path(folder, LOG_SUFFIX), is_unique=True))
        previous_file = None
        if segment.previous is not None:
            previous_file = stack.enter_context(store.create(unsized.path(folder, PREVIOUS_SUFFIX), is_unique=True))
        draft = _Draft(Packer(schemas), log_file, previous_file)
        for batches in _blocks(segment, draft):
            check()
            blocks.append(_write_block(segment, draft, batches))
            failpoint("remote.copy.between_blocks")
    key = SegmentKey(segment_id, segment.base_offset, segment.end_offset, draft.size)
    index = BlockIndex.of(key, draft.max_timestamp_ms, previous_file is not None, blocks)
    with store.create(key.path(folder, INDEX_SUFFIX), is_unique=True) as file:
        file.write(index.to_bytes())
    return RemoteSegment(
        segment_id, key.base_offset, key.end_offset, key.size_bytes, draft.first_timestamp_ms, draft.max_timestamp_ms,
        created_ms,
    )  # fmt: skip


@dataclass(slots=True)
class _Packed:
    """Batches of one block."""

    base_offset: int
    end_offset: int
    timestamp_ms: int
    size: int
    buffers: list[Buffer]


def _blocks(segment: Segment, draft: _Draft) -> Iterator[_Packed]:
    """Yield a segment's batches, packed, in blocks."""
    block: _Packed | None = None
    for header, whole in _batches(segment):
        if header.record_count and draft.first_timestamp_ms < 0:
            draft.first_timestamp_ms = header.timestamp_ms
        draft.max_timestamp_ms = header.timestamp_ms
        buffers = draft.packer.pack(header, whole)
        if block is None:
            block = _Packed(header.base_offset, header.base_offset, header.timestamp_ms, 0, [])
        block.buffers += buffers
        block.size += sum(len(memoryview(each)) for each in buffers)
        block.end_offset = header.next_offset
        if block.size >= BLOCK_BYTES:
            yield block
            block = None
    if block is not None:
        yield block


def _batches(segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a segment, each seen to be whole and to continue the one before.

    Raises:
        CorruptDataError: The segment is damaged.
    """
    place = BatchPosition(0, segment.base_offset, -1)
    while place.position < segment.size:
        data = segment.read(place.position, min(place.position + _CHUNK_BYTES, segment.size))
        end, problem = segment.take_whole(data, place)
        if end.position == place.position and problem is None:
            data = segment.read(place.position, place.position + segment.header(place, segment.size).size)
            end, problem = segment.take_whole(data, place)
        for header, whole in split_headers(memoryview(data)[: end.position - place.position]):
            if (found := checksum(whole[CRC_START:])) != header.crc:
                raise CorruptDataError(
                    f"{segment.path}: batch at offset {header.base_offset}: expected CRC {header.crc:08x}, found {found:08x}"
                )
            yield header, whole
        if problem is not None:
            raise problem
        place = end
    if place.base_offset != segment.end_offset:
        raise CorruptDataError(
            f"{segment.path}: expected records up to {segment.end_offset}, found {place.base_offset}"
        )


def _write_block(segment: Segment, draft: _Draft, block: _Packed) -> Block:
    data = b"".join(memoryview(each) for each in block.buffers)
    draft.log_file.write(data)
    previous_crc = 0
    if draft.previous_file is not None and segment.previous is not None:
        base = segment.base_offset
        values = segment.previous.read(block.base_offset - base, block.end_offset - base)
        previous_crc = google_crc32c.value(values)
        draft.previous_file.write(values)
    position, draft.size = draft.size, draft.size + len(data)
    return Block(position, block.base_offset, block.timestamp_ms, google_crc32c.value(data), previous_crc)


class Packer:
    """Packs the bodies of batches. For one thread.

    Args:
        schemas: Arrow schema of each schema id.
    """

    def __init__(self, schemas: Mapping[int, pa.Schema]) -> None:
        self._schemas = schemas
        self._options = pa.ipc.IpcWriteOptions(
            compression=pa.Codec("zstd", compression_level=_LEVEL), use_threads=False
        )
        self._prefixes: dict[int, int] = {}

    def pack(self, header: BatchHeader, whole: memoryview) -> list[Buffer]:
        """Return the buffers of a batch with its body packed; the batch itself where that would not make it smaller.

        Args:
            whole: All its bytes, CRC checked.

        Raises:
            CorruptDataError: It is no Arrow of its schema.
        """
        start = HEADER_BYTES if header.append_only else HEADER_BYTES + header.record_count
        body = whole[start:]
        if len(body) < _BODY_BYTES_MIN:
            return [whole]
        packed = self._pack(header, body)
        if packed.size >= len(body):
            return [whole]
        changes = whole[HEADER_BYTES:start]
        return [_header(header, changes, packed), changes, packed]

    def _pack(self, header: BatchHeader, body: memoryview) -> pa.Buffer:
        schema = self._schemas.get(header.schema_id)
        if schema is None:
            raise CorruptDataError(
                f"log batch at offset {header.base_offset}: schema id {header.schema_id} is not known"
            )
        try:
            rows = pa.ipc.read_record_batch(pa.py_buffer(body), schema)
        except (pa.ArrowException, OSError) as error:
            raise CorruptDataError(
                f"log batch at offset {header.base_offset}: not Arrow of its schema: {error}"
            ) from error
        sink = pa.BufferOutputStream()
        # The stream begins with the schema, which the log leaves out; it is not ended, because it goes on elsewhere.
        with pa.ipc.new_stream(sink, schema, options=self._options) as stream:
            stream.write_batch(rows)
        return sink.getvalue().slice(self._prefix(header.schema_id, schema))[:-_END_BYTES]

    def _prefix(self, schema_id: int, schema: pa.Schema) -> int:
        """Return the bytes of a schema's message."""
        found = self._prefixes.get(schema_id)
        if found is None:
            found = self._prefixes[schema_id] = schema.serialize().size
        return found


def _header(header: BatchHeader, changes: memoryview, body: pa.Buffer) -> bytearray:
    made = bytearray(
        HEADER.pack(
            header.base_offset,
            HEADER_BYTES - PREFIX_BYTES + len(changes) + body.size,
            header.magic,
            header.timestamp_ms,
            0,
            header.schema_id,
            header.attributes,
            header.last_offset_delta,
            header.writer_id,
            header.batch_sequence,
            header.record_count,
        )
    )
    crc = google_crc32c.value(bytes(made[CRC_START:]))
    crc = google_crc32c.extend(google_crc32c.extend(crc, bytes(changes)), body)
    made[CRC_START - 4 : CRC_START] = crc.to_bytes(4, "little")
    return made
