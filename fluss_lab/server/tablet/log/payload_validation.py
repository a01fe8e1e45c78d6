"""The validation of a payload before a byte of it is written."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import pyarrow as pa

from fluss_lab.errors import CorruptDataError, InvalidRecordError, NotLeaderError, RecordTooLargeError
from fluss_lab.records.batch import (
    CRC_START,
    HEADER_BYTES,
    NO_SEQUENCE,
    NO_WRITER,
    BatchHeader,
    Buffer,
    checksum,
    decode_checked,
    split_headers,
)
from fluss_lab.records.row_sizes import RowLimit

#: Records of one payload: their offsets must fit in a segment's relative ones.
_RECORDS_MAX: Final = 2**31 - 1
#: What the rows of a put may be: +U and -D.
_PUT_TYPES: Final = frozenset({3, 4})
#: Of Arrow's IPC messages.
_CONTINUATION: Final = 0xFFFFFFFF
_RECORD_BATCH: Final = 3
# Places of the fields in the tables' definitions.
_MESSAGE_HEADER_TYPE: Final = 1
_MESSAGE_HEADER: Final = 2
_BATCH_COMPRESSION: Final = 3


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """A batch that may be appended: its header, as its sender made it, and its bytes."""

    header: BatchHeader
    data: memoryview


def check_payload(
    payload: Sequence[Buffer], schemas: Mapping[int, pa.Schema], *, current_schema_id: int, size_max: int
) -> list[CheckedBatch]:
    """Return the batches of a payload for a log table.

    Args:
        payload: Buffers whose concatenation is whole batches; kept, not copied, when it is only one.
        schemas: Arrow schema of each schema id; batches may have any of them.
        current_schema_id: The newest of them.
        size_max: Bytes of the payload, at most.

    Raises:
        RecordTooLargeError: It is larger, or a row of it is, or it has more records than a segment can hold.
        CorruptDataError: It is damaged: lengths or CRCs do not agree.
        InvalidRecordError: It is whole, but not rows of this table.
        NotLeaderError: It has a schema that this server does not know yet; the server is notified when the sender refreshes
            its metadata.

    Cost: a pass for the CRC and one for the validation; no lock is needed.
    """
    limit = RowLimit.of(size_max, keyed=False)
    batches = [
        _check_batch(header, data, schemas, current_schema_id, limit)
        for header, data in split_headers(_gather(payload, size_max))
    ]
    if not batches:
        raise InvalidRecordError("expected at least one batch, found an empty payload")
    if (records := sum(batch.header.record_count for batch in batches)) > _RECORDS_MAX:
        raise RecordTooLargeError(f"expected at most {_RECORDS_MAX} records in a payload, found {records}")
    return batches


@dataclass(frozen=True, slots=True)
class CheckedPut:
    """Changes that may be made to the rows of a primary-key table.

    Attributes:
        batch: As it came.
        rows: The columns sent, in the schema of the batch's schema id; only key columns are NOT NULL.
        change_types: A byte a row: 3 to upsert, 4 to delete.
    """

    batch: CheckedBatch
    rows: pa.RecordBatch
    change_types: bytes


def check_put(
    payload: Sequence[Buffer],
    columns: Sequence[int],
    primary_key: Collection[str],
    schemas: Mapping[int, pa.Schema],
    *,
    current_schema_id: int,
    size_max: int,
) -> CheckedPut:
    """Return the changes of a payload for a primary-key table: exactly one batch.

    Args:
        payload: As `check_payload`.
        columns: Indexes of the columns that the rows have, ascending, the key's among them; empty for all.
        primary_key: Names of the key columns.
        schemas: As `check_payload`.
        current_schema_id: As `check_payload`.
        size_max: As `check_payload`.

    Raises:
        As `check_payload`.
    """
    batches = list(split_headers(_gather(payload, size_max)))
    if len(batches) != 1:
        raise InvalidRecordError(f"expected exactly one batch, found {len(batches)}")
    header, data = batches[0]
    _check_origin(header, data, schemas, current_schema_id)
    if header.attributes != 0:
        raise InvalidRecordError(
            f"expected records with change types (attributes 0) for a primary-key table, found attributes "
            f"{header.attributes}"
        )
    schema = _put_schema(schemas[header.schema_id], columns, primary_key)
    changes = bytes(data[HEADER_BYTES : HEADER_BYTES + header.record_count])
    if wrong := set(changes) - _PUT_TYPES:
        raise InvalidRecordError(f"expected change types 3 (+U) to upsert and 4 (-D) to delete, found {min(wrong)}")
    check_body(data[HEADER_BYTES + header.record_count :])
    try:
        rows = decode_checked(header, data, schema).rows
    except CorruptDataError as error:
        raise InvalidRecordError(str(error)) from error
    return CheckedPut(CheckedBatch(header, data), rows, changes)


def _put_schema(schema: pa.Schema, columns: Sequence[int], primary_key: Collection[str]) -> pa.Schema:
    """Return the schema of the rows of a put: rows that delete may have nulls in all columns but the key's."""
    indexes = tuple(columns) or range(len(schema))
    if any(later <= earlier for earlier, later in pairwise(indexes)) or not 0 <= indexes[0] <= indexes[-1] < len(
        schema
    ):
        raise InvalidRecordError(
            f"target columns: expected ascending indexes in [0, {len(schema)}), found {list(indexes)}"
        )
    fields = [schema.field(index) for index in indexes]
    if missing := sorted(set(primary_key) - {field.name for field in fields}):
        raise InvalidRecordError(f"target columns: expected all of the primary key's, {missing[0]!r} is missing")
    return pa.schema([field.with_nullable(field.name not in primary_key) for field in fields])


def _gather(payload: Sequence[Buffer], size_max: int) -> memoryview:
    size = sum(len(memoryview(part)) for part in payload)
    if size > size_max:
        raise RecordTooLargeError(f"expected a payload of at most {size_max} bytes, found {size}; send smaller batches")
    whole = payload[0] if len(payload) == 1 else b"".join(payload)
    return memoryview(whole).cast("B")


def _check_batch(
    header: BatchHeader, data: memoryview, schemas: Mapping[int, pa.Schema], current_schema_id: int, limit: RowLimit
) -> CheckedBatch:
    _check_origin(header, data, schemas, current_schema_id)
    if not header.append_only or header.attributes != 1:
        raise InvalidRecordError(
            f"batch {header.batch_sequence}: expected append-only records (attributes 1) for a log table, found "
            f"attributes {header.attributes}"
        )
    check_body(data[HEADER_BYTES:])
    try:
        rows = decode_checked(header, data, schemas[header.schema_id]).rows
    except CorruptDataError as error:
        # The CRC is right, so this is what the sender meant to send.
        raise InvalidRecordError(str(error)) from error
    limit.check(rows)
    return CheckedBatch(header, data)


def _check_origin(
    header: BatchHeader, data: memoryview, schemas: Mapping[int, pa.Schema], current_schema_id: int
) -> None:
    """Check the CRC, the schema id and the writer."""
    if (found := checksum(data[CRC_START:])) != header.crc:
        raise CorruptDataError(f"batch {header.batch_sequence}: expected CRC {header.crc:08x}, found {found:08x}")
    if header.schema_id > current_schema_id:
        raise NotLeaderError(
            f"batch {header.batch_sequence}: expected a schema id up to {current_schema_id}, found {header.schema_id}, which "
            "this server does not know yet; refresh the metadata and retry"
        )
    if header.schema_id not in schemas:
        raise InvalidRecordError(
            f"batch {header.batch_sequence}: expected a schema id in {sorted(schemas)}, found {header.schema_id}; read the "
            "table's schema again"
        )
    if header.writer_id < NO_WRITER or (header.writer_id == NO_WRITER) != (header.batch_sequence == NO_SEQUENCE):
        raise InvalidRecordError(
            f"expected a writer id and a batch sequence from 0 up, or -1 for both, found {header.writer_id} and "
            f"{header.batch_sequence}"
        )
    if header.batch_sequence < NO_SEQUENCE:
        raise InvalidRecordError(f"expected a batch sequence of at least -1, found {header.batch_sequence}")


def check_body(body: memoryview) -> None:
    """Check, before Arrow reads it, that a body is declared to be an uncompressed record batch.

    A few kilobytes that unpack to gigabytes would take the server down; and what is served by columns must not be packed
    and unpacked at each fetch. (Arrow's IPC format: a continuation marker, the size of the metadata, and a flatbuffer
    ``Message`` whose header is a ``RecordBatch`` with the fields length, nodes, buffers, compression.)

    Raises:
        InvalidRecordError: It is something else, or cannot be read.
    """
    try:
        marker, size = struct.unpack_from("<Ii", body)
        if marker != _CONTINUATION or not 0 < size <= len(body) - 8:
            raise InvalidRecordError("not Arrow of its schema: expected the marker of an Arrow IPC message")
        metadata = body[8 : 8 + size]
        message = _table(metadata, 0)
        kind = _field(metadata, message, _MESSAGE_HEADER_TYPE)
        header = _field(metadata, message, _MESSAGE_HEADER)
        if not kind or not header or metadata[kind] != _RECORD_BATCH:
            raise InvalidRecordError("not Arrow of its schema: expected a record batch, found another message")
        if _field(metadata, _table(metadata, header), _BATCH_COMPRESSION):
            raise InvalidRecordError(
                "expected an uncompressed Arrow body, found a compressed one; send it uncompressed"
            )
    except (struct.error, IndexError) as error:
        raise InvalidRecordError(f"not Arrow of its schema: {error}") from error


def _table(data: memoryview, at: int) -> int:
    """Return where the table begins that a place points to."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: memoryview, table: int, index: int) -> int:
    """Return where a table's field lies; 0 when the table does not have it."""
    layout = table - int(struct.unpack_from("<i", data, table)[0])
    if layout < 0:
        raise IndexError("a table's layout lies before the message")
    entry = 4 + 2 * index
    if entry + 2 > struct.unpack_from("<H", data, layout)[0]:
        return 0
    offset = int(struct.unpack_from("<H", data, layout + entry)[0])
    return table + offset if offset else 0
