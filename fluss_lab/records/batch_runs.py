"""Small batches of the log that follow one another, decoded together: each by itself costs what ten thousand rows cost.

The checks are those of `fluss_lab.records.batch`: every batch's header and CRC, one Arrow message of its own length and
record count, full validation, nulls. A run of which anything is not as expected is decoded batch by batch instead, so that
what comes before a damaged batch is given out, and the error is that of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import google_crc32c
import numpy as np
import pyarrow as pa

from fluss_lab.errors import CorruptDataError
from fluss_lab.records.batch import (
    ALIGNMENT_BYTES,
    APPEND_ONLY,
    CRC_START,
    HEADER_BYTES,
    LENGTH,
    LENGTH_AT,
    MAGIC,
    PREFIX_BYTES,
    Buffer,
    Schemas,
    decode,
    not_null,
)
from fluss_lab.records.log_records import LogRecords, records_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Larger batches are decoded one by one: their rows are not copied then, and are worth the work.
_SMALL_BYTES: Final = 16 * 1024
#: So many bytes, or so many batches, are decoded together at most; at first few, for who wants no more,
_RUN_BYTES: Final = 1024 * 1024
_RUN_BATCHES: Final = 4096
_FIRST_BATCHES: Final = 16
#: and then so many times the last.
_GROWTH: Final = 4
#: The header of `fluss_lab.records.batch` as columns.
_HEADER: Final = np.dtype([
    ("base_offset", "<i8"), ("length", "<i4"), ("magic", "i1"), ("timestamp_ms", "<i8"), ("crc", "<u4"),
    ("schema_id", "<i2"), ("attributes", "u1"), ("last_offset_delta", "<i4"), ("writer_id", "<i8"),
    ("batch_sequence", "<i4"), ("record_count", "<i4"),
])  # fmt: skip
#: An Arrow message begins with this and the length of its metadata, a flatbuffer: a table that names its fields by their
#: places in another one, in which the fourth is the length of the body.
_CONTINUATION: Final = 0xFFFFFFFF
_MESSAGE_BYTES: Final = 8
_BODY_LENGTH_AT: Final = 10


def decode_runs(data: Buffer, schemas: Schemas) -> Iterator[LogRecords]:
    """Yield the records of batches that lie one after another, to the end of the bytes; small ones joined.

    Args:
        data: Bytes of whole batches; they are not copied, but for small ones, so they must stay.
        schemas: The Arrow schema of all batches, or a function that gives that of a schema id.

    Raises:
        CorruptDataError: As `batch.decode`, for the first batch that is damaged; what was yielded before is right.

    Cost: of small batches some microseconds each.
    """
    view = memoryview(data)
    at, number = 0, min(_FIRST_BATCHES, _RUN_BATCHES)
    while at < len(view):
        edges = _small_batches(view, at, number)
        number = min(number * _GROWTH, _RUN_BATCHES)
        for first, last in _joinable(view, edges) if len(edges) > 2 else [(0, 1)]:
            run = None if last - first == 1 else _Run(view, edges[first : last + 1])
            if run is not None and (joined := run.decode(schemas)) is not None:
                at = run.end
                yield joined
                continue
            for _ in range(first, last):
                batch = decode(view, schemas, at)
                at += batch.header.size
                if (records := records_of(batch)) is not None:
                    yield records


def _small_batches(view: memoryview, at: int, number: int) -> list[int]:
    """Return where up to so many small batches begin, from one on, and where the last of them ends; nothing is checked but their lengths."""
    edges = [at]
    unpack = LENGTH.unpack_from
    last = len(view) - HEADER_BYTES
    end = min(at + _RUN_BYTES, len(view))
    while at <= last and len(edges) <= number:
        size = unpack(view, at + LENGTH_AT)[0] + PREFIX_BYTES
        if not HEADER_BYTES < size <= _SMALL_BYTES or at + size > end:
            break
        at += size
        edges.append(at)
    return edges


def _headers(view: memoryview, places: Sequence[int]) -> NDArray[Any]:
    """Return the headers of batches as columns."""
    found: NDArray[Any] = np.frombuffer(view, np.uint8)[np.array(places)[:, None] + np.arange(HEADER_BYTES)]
    return found.view(_HEADER)[:, 0]


def _joinable(view: memoryview, edges: Sequence[int]) -> list[tuple[int, int]]:
    """Return which batches, from one to before another, are of one schema and kind, have no gap between them, and right headers."""
    headers = _headers(view, edges[:-1])
    base, count, schema = headers["base_offset"], headers["record_count"].astype(np.int64), headers["schema_id"]
    kind = headers["attributes"] & APPEND_ONLY
    right = (headers["magic"] == MAGIC) & (base >= 0) & (count > 0) & (headers["last_offset_delta"] == count - 1)
    follows = right[1:] & right[:-1] & (base[1:] == base[:-1] + count[:-1])
    follows &= (schema[1:] == schema[:-1]) & (kind[1:] == kind[:-1])
    return list(pairwise([0, *(np.flatnonzero(~follows) + 1).tolist(), len(headers)]))


class _Run:
    """Batches that can be decoded together.

    Args:
        view: The bytes.
        edges: Where the batches begin, and where the last ends.
    """

    def __init__(self, view: memoryview, edges: Sequence[int]) -> None:
        self._view = view
        self._edges = edges
        self._headers = _headers(view, edges[:-1])
        self._counts: NDArray[np.int64] = self._headers["record_count"].astype(np.int64)
        self._append_only = bool(self._headers["attributes"][0] & APPEND_ONLY)

    @property
    def end(self) -> int:
        """Return where the last batch ends."""
        return self._edges[-1]

    def decode(self, schemas: Schemas) -> LogRecords | None:
        """Return the records; None when something is wrong."""
        if not self._crcs_agree():
            return None
        schema = schemas if isinstance(schemas, pa.Schema) else schemas(int(self._headers["schema_id"][0]))
        begins = np.array(self._edges[:-1]) + HEADER_BYTES
        changes: pa.Int8Array | None = None
        if not self._append_only:
            kinds = [
                bytes(self._view[begin : begin + count])
                for begin, count in zip(begins.tolist(), self._counts.tolist(), strict=True)
            ]
            changes = pa.array(np.frombuffer(b"".join(kinds), dtype=np.int8))
            begins = begins + self._counts
        rows = self._rows(begins, schema)
        if rows is None or rows.num_rows != int(self._counts.sum()):
            return None
        first = int(self._headers["base_offset"][0])
        return LogRecords(
            rows,
            pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64)),
            pa.array(np.repeat(self._headers["timestamp_ms"], self._counts)),
            changes,
        )

    def _crcs_agree(self) -> bool:
        value, view = google_crc32c.value, self._view
        found = [value(bytes(view[begin + CRC_START : end])) for begin, end in pairwise(self._edges)]
        return bool(np.array_equal(np.array(found, dtype=np.uint32), self._headers["crc"]))

    def _rows(self, begins: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch | None:
        """Return the rows of the batches' Arrow messages as one batch; None when one is not what it must be."""
        ends = np.array(self._edges[1:])
        if not self._are_messages(begins, ends):
            return None
        bodies = [self._view[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        stream = b"".join((memoryview(schema.serialize()), *bodies))
        try:
            with pa.ipc.open_stream(stream, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
                table = reader.read_all()
            table.validate(full=True)
        except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, MemoryError, ValueError):
            return None
        for index in not_null(schema):
            if table.column(index).null_count:
                return None
        found = table.to_batches()
        if [each.num_rows for each in found] != self._counts.tolist():
            return None
        return pa.concat_batches(found)

    def _are_messages(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> bool:
        """Return whether each batch has one Arrow message, as long as its bytes: a stream's reader goes by its own lengths."""
        if ((ends - begins) % ALIGNMENT_BYTES).any():
            return False
        places = _Places(self._view, ends)
        try:
            prefix, size = places.read(begins, "<u4"), places.read(begins + 4, "<i4")
            metadata = begins + _MESSAGE_BYTES
            table = metadata + places.read(metadata, "<u4")
            names = table - places.read(table, "<i4")
            if (places.read(names, "<u2") < _BODY_LENGTH_AT + 2).any():
                return False
            at = places.read(names + _BODY_LENGTH_AT, "<u2")
            body = places.read(table + at, "<i8")
        except CorruptDataError:
            return False
        return bool(((prefix == _CONTINUATION) & (at > 0) & (metadata + size + body == ends)).all())


class _Places:
    """Numbers read at many places of some bytes at once.

    Args:
        view: The bytes.
        ends: Where each place's own bytes end.
    """

    def __init__(self, view: memoryview, ends: NDArray[np.int64]) -> None:
        self._data = np.frombuffer(view, np.uint8)
        self._ends = ends

    def read(self, places: NDArray[np.int64], kind: str) -> NDArray[np.int64]:
        """Return the little-endian numbers at places.

        Raises:
            CorruptDataError: One lies outside.
        """
        dtype = np.dtype(kind)
        if (places < 0).any() or (places + dtype.itemsize > self._ends).any():
            raise CorruptDataError("a place outside of its batch")
        found: NDArray[np.int64] = (
            self._data[places[:, None] + np.arange(dtype.itemsize)].view(dtype)[:, 0].astype(np.int64)
        )
        return found
