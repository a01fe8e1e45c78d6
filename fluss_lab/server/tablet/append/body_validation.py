"""The validation of a batch's body before Arrow reads it: compressed bodies are refused unread.

A few kilobytes that unpack to gigabytes would take the server down; and what is served by columns must not be packed
and unpacked at each fetch. (Arrow's IPC format: a continuation marker, the size of the metadata, and a flatbuffer
``Message`` whose header is a ``RecordBatch`` with the fields length, nodes, buffers, compression.)
"""

from __future__ import annotations

import struct
from typing import Final

from fluss_lab.errors import InvalidRecordError

_CONTINUATION: Final = 0xFFFFFFFF
_RECORD_BATCH: Final = 3
# Places of the fields in the tables' definitions.
_MESSAGE_HEADER_TYPE: Final = 1
_MESSAGE_HEADER: Final = 2
_BATCH_COMPRESSION: Final = 3


def check_body(body: memoryview) -> None:
    """Check that a body says of itself that it is an uncompressed record batch.

    Raises:
        InvalidRecordError: It says something else, or cannot be read.
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
