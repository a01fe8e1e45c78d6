"""Serving some columns only: batches are taken apart and put together again, with the same header but length and CRC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import pyarrow as pa

from fluss_lab.errors import CorruptDataError, InvalidRequestError
from fluss_lab.records.batch import CRC_START, HEADER_BYTES, BatchHeader, Buffer, checksum, encode, split_headers


def check_projection(fields: Sequence[int], schema: pa.Schema) -> tuple[int, ...]:
    """Return indexes of columns if they can be projected to.

    Raises:
        InvalidRequestError: They do not ascend, or are out of range.
    """
    indexes = tuple(fields)
    if any(later <= earlier for earlier, later in pairwise(indexes)):
        raise InvalidRequestError(f"projected fields: expected ascending indexes, found {list(indexes)}")
    if indexes and not 0 <= indexes[0] <= indexes[-1] < len(schema):
        raise InvalidRequestError(f"projected fields: expected indexes in [0, {len(schema)}), found {list(indexes)}")
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


def _project(
    header: BatchHeader, whole: memoryview, indexes: tuple[int, ...], schemas: Mapping[int, pa.Schema]
) -> list[Buffer]:
    if checksum(whole[CRC_START:]) != header.crc:
        raise CorruptDataError(f"log batch at offset {header.base_offset}: the CRC does not agree")
    schema = schemas.get(header.schema_id)
    if schema is None:
        raise CorruptDataError(f"log batch at offset {header.base_offset}: schema id {header.schema_id} is not known")
    # It was validated when it was appended, and the CRC says that it is the same.
    rows = pa.ipc.read_record_batch(pa.py_buffer(whole[HEADER_BYTES:]), schema)
    return encode(
        rows.select([index for index in indexes if index < len(schema)]),
        schema_id=header.schema_id,
        writer_id=header.writer_id,
        batch_sequence=header.batch_sequence,
        base_offset=header.base_offset,
        timestamp_ms=header.timestamp_ms,
    )
