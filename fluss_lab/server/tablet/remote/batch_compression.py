"""The compression of batches for remote storage: the same header but length and CRC, and a zstd body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import google_crc32c
import pyarrow as pa

from fluss_lab.errors import CorruptDataError
from fluss_lab.records.batch import CRC_START, HEADER, HEADER_BYTES, PREFIX_BYTES, BatchHeader, Buffer

#: Level 1 packs flights-like records 2.8 times at 300 MB/s and more a core; level 3 is slower and gains nothing.
_LEVEL: Final = 1
#: Below this a body is not worth a try: Arrow's own metadata is most of it, and stays as it is.
_BODY_BYTES_MIN: Final = 1024
#: What ends a stream: a continuation marker and a size of zero.
_END_BYTES: Final = 8


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

    def packed(self, header: BatchHeader, whole: memoryview) -> list[Buffer]:
        """Return the buffers of a batch with its body packed; the batch itself where that would not make it smaller.

        Args:
            header: Its header.
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
