"""The projection of columns in fetched batches: rebuilt with the same header but length and CRC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import pyarrow as pa

from fluss_lab.errors import CorruptDataError, InvalidRequestError, NotLeaderError
from fluss_lab.records.batch import (
    CRC_START,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    align_buffer,
    checksum,
    encode,
    split_headers,
)


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
