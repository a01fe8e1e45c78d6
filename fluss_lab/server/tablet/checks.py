"""What must be true of a payload before a byte of it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from fluss_lab.errors import CorruptDataError, InvalidRecordError, RecordTooLargeError
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
from fluss_lab.server.tablet.bodies import check_body

#: Records of one payload: their offsets must fit in a segment's relative ones.
_RECORDS_MAX: Final = 2**31 - 1


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
        schemas: Arrow schema of each schema id.
        current_schema_id: The one that batches must have.
        size_max: Bytes of the payload, at most.

    Raises:
        RecordTooLargeError: The payload is larger, or has more records than a segment can hold.
        CorruptDataError: It is damaged: lengths or CRCs do not agree.
        InvalidRecordError: It is whole, but not rows of this table.

    Cost: a pass for the CRC and one for the validation; no lock is needed.
    """
    size = sum(len(memoryview(part)) for part in payload)
    if size > size_max:
        raise RecordTooLargeError(f"expected a payload of at most {size_max} bytes, found {size}; send smaller batches")
    whole = payload[0] if len(payload) == 1 else b"".join(payload)
    batches = [
        _checked(header, data, schemas, current_schema_id)
        for header, data in split_headers(memoryview(whole).cast("B"))
    ]
    if not batches:
        raise InvalidRecordError("expected at least one batch, found an empty payload")
    if (records := sum(batch.header.record_count for batch in batches)) > _RECORDS_MAX:
        raise RecordTooLargeError(f"expected at most {_RECORDS_MAX} records in a payload, found {records}")
    return batches


def _checked(
    header: BatchHeader, data: memoryview, schemas: Mapping[int, pa.Schema], current_schema_id: int
) -> CheckedBatch:
    if (found := checksum(data[CRC_START:])) != header.crc:
        raise CorruptDataError(f"batch {header.batch_sequence}: expected CRC {header.crc:08x}, found {found:08x}")
    if header.schema_id != current_schema_id or header.schema_id not in schemas:
        raise InvalidRecordError(
            f"batch {header.batch_sequence}: expected schema id {current_schema_id}, found {header.schema_id}; "
            "read the table's schema again"
        )
    if not header.append_only or header.attributes != 1:
        raise InvalidRecordError(
            f"batch {header.batch_sequence}: expected append-only records (attributes 1) for a log table, found "
            f"attributes {header.attributes}"
        )
    if header.writer_id < NO_WRITER or (header.writer_id == NO_WRITER) != (header.batch_sequence == NO_SEQUENCE):
        raise InvalidRecordError(
            f"expected a writer id and a batch sequence from 0 up, or -1 for both, found {header.writer_id} and "
            f"{header.batch_sequence}"
        )
    if header.batch_sequence < NO_SEQUENCE:
        raise InvalidRecordError(f"expected a batch sequence of at least -1, found {header.batch_sequence}")
    check_body(data[HEADER_BYTES:])
    try:
        decode_checked(header, data, schemas[header.schema_id])
    except CorruptDataError as error:
        # The CRC is right, so this is what the sender meant to send.
        raise InvalidRecordError(str(error)) from error
    return CheckedBatch(header, data)
