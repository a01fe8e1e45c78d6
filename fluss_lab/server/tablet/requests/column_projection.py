"""The projection of columns in fetched batches: rebuilt with the same header but length and CRC."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import pyarrow as pa

from fluss_lab.errors import CorruptDataError, InvalidRequestError, NotLeaderError
from fluss_lab.records.batch import (
    CRC_START,
    HEADER_BYTES,
    PREFIX_BYTES,
    BatchHeader,
    Buffer,
    align_buffer,
    checksum,
    encode,
    read_header,
    split_headers,
)
from fluss_lab.server.tablet.log.log_reader import FetchedBatches

#: A batch of so many bytes is mostly header and Arrow's description of it: to take columns out costs more than to send them.
SMALL_BYTES: Final = 2048
#: Small batches at the begin of an answer that are worth an answer of their own, where larger ones follow.
_SMALL_BATCHES: Final = 64
#: Of a batch's header.
_LENGTH: Final = struct.Struct("<i")
_LENGTH_AT: Final = 8


def check_projection(fields: Sequence[int], schema: pa.Schema) -> tuple[int, ...]:
    """Return indexes of columns if they can be projected to.

    Raises:
        InvalidRequestError: They do not ascend, or are negative.
        NotLeaderError: There are columns that this server does not know yet; it is notified when the sender refreshes its
            metadata.
    """
    indexes = tuple(fields)
    if any(later <= earlier for earlier, later in pairwise(indexes)) or min(indexes, default=0) < 0:
        raise InvalidRequestError(f"projected fields: expected ascending indexes from 0 up, found {list(indexes)}")
    if indexes and indexes[-1] >= len(schema):
        raise NotLeaderError(
            f"projected fields: this server knows {len(schema)} columns of the table, found indexes {list(indexes)[-3:]}; "
            "refresh the metadata and retry"
        )
    return indexes


def project(
    data: memoryview, indexes: tuple[int, ...], schemas: Mapping[int, pa.Schema]
) -> Iterator[tuple[int, list[Buffer]]]:
    """Yield of each batch its size and its bytes with some columns only, in the table's order.

    Args:
        data: Whole batches.
        indexes: Of the columns, ascending. A batch of an older schema has those that it has.
        schemas: By schema id.

    Raises:
        CorruptDataError: A batch is damaged. Its CRC is checked here, because the answer gets another.

    Cost: the CRC of the whole, and a copy of what is kept.
    """
    for header, whole in split_headers(data):
        yield header.size, _project(header, whole, indexes, schemas)


def small_batches(found: FetchedBatches) -> FetchedBatches | None:
    """Return the small batches that some begin with, to be sent with all columns; None where the others are projected.

    Cost: 0.3 us a batch.
    """
    count = total = 0
    buffers: list[memoryview] = []
    next_offset = found.next_offset
    for data in found.buffers:
        at, last = 0, -1
        while at < len(data) and (size := _LENGTH.unpack_from(data, at + _LENGTH_AT)[0] + PREFIX_BYTES) <= SMALL_BYTES:
            at, last, count = at + size, at, count + 1
        if last >= 0:
            buffers.append(data[:at])
            total, next_offset = total + at, read_header(data, last).next_offset
        if at < len(data):
            break
    if not count or (total < found.size and count < _SMALL_BATCHES):
        return None
    return FetchedBatches(buffers, total, next_offset)


def whole_batches(data: memoryview) -> Iterator[tuple[int, list[Buffer]]]:
    """Yield of each batch its size and its bytes as they are, like `project`."""
    for header, whole in split_headers(data):
        yield header.size, [whole]


def _project(
    header: BatchHeader, whole: memoryview, indexes: tuple[int, ...], schemas: Mapping[int, pa.Schema]
) -> list[Buffer]:
    if checksum(whole[CRC_START:]) != header.crc:
        raise CorruptDataError(f"log batch at offset {header.base_offset}: the CRC does not agree")
    schema = schemas.get(header.schema_id)
    if schema is None:
        raise CorruptDataError(f"log batch at offset {header.base_offset}: schema id {header.schema_id} is not known")
    body = HEADER_BYTES if header.append_only else HEADER_BYTES + header.record_count
    # It was validated when it was appended, and the CRC says that it is the same.
    rows = pa.ipc.read_record_batch(align_buffer(whole[body:]), schema)
    return encode(
        rows.select([index for index in indexes if index < len(schema)]),
        schema_id=header.schema_id,
        writer_id=header.writer_id,
        batch_sequence=header.batch_sequence,
        change_types=None if header.append_only else bytes(whole[HEADER_BYTES:body]),
        base_offset=header.base_offset,
        timestamp_ms=header.timestamp_ms,
    )
