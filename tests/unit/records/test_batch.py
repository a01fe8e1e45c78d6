"""Log batches: bytes in Fluss's layout, and nothing damaged is ever decoded."""

import struct

import google_crc32c
import pyarrow as pa
import pytest

from fluss_lab.errors import CorruptDataError, UnsupportedError
from fluss_lab.records import LogRecords, decode, decode_all, encode, records_of
from fluss_lab.records.batch import HEADER_BYTES, end_offset, place, read_header, split_headers

SCHEMA = pa.schema([
    pa.field("id", pa.int64(), nullable=False),
    ("name", pa.string()),
    ("tags", pa.list_(pa.int32())),
    ("price", pa.decimal128(10, 2)),
])  # fmt: skip


def rows(count, start=0):
    return pa.record_batch(
        {
            "id": range(start, start + count),
            "name": [None if i % 7 == 3 else f"näme {i}" for i in range(count)],
            "tags": [list(range(i % 4)) for i in range(count)],
            "price": pa.array([i * 100 for i in range(count)], pa.int64())
            .cast(pa.decimal128(21, 2))
            .cast(pa.decimal128(10, 2)),
        },
        schema=SCHEMA,
    )


def wire(batch, **arguments):
    parts = encode(batch, schema_id=1, **arguments)
    place(parts[0], 40, 1_700_000_000_000)
    return b"".join(memoryview(part) for part in parts)


def test_the_header_is_that_of_the_format():
    data = wire(rows(3), writer_id=9, batch_sequence=4)
    assert struct.unpack_from("<qibq", data) == (40, len(data) - 12, 0, 1_700_000_000_000)
    crc, schema_id, attributes, delta, writer, sequence, count = struct.unpack_from("<IhBiqii", data, 21)
    assert (schema_id, attributes, delta, writer, sequence, count) == (1, 1, 2, 9, 4, 3)
    assert crc == google_crc32c.value(data[25:])
    assert pa.ipc.read_record_batch(pa.py_buffer(data[48:]), SCHEMA).equals(rows(3))


def test_batches_come_back_as_they_went():
    first, second = wire(rows(5)), wire(rows(2, 100), change_types=bytes([3, 4]))
    decoded = list(decode_all(first + second, SCHEMA))
    assert [batch.rows for batch in decoded] == [rows(5), rows(2, 100)]
    assert decoded[0].change_types is None
    assert bytes(decoded[1].change_types) == bytes([3, 4])
    assert [header.size for header, _ in split_headers(first + second)] == [len(first), len(second)]


def test_slices_are_cut_to_their_rows():
    assert decode(wire(rows(100).slice(40, 10)), SCHEMA).rows.equals(rows(100).slice(40, 10))
    assert len(wire(rows(100).slice(40, 10))) < len(wire(rows(100)))


def test_an_empty_batch_has_no_records():
    batch = decode(wire(rows(0)), SCHEMA)
    assert batch.base_offset == batch.next_offset == 40
    assert records_of(batch) is None


def test_every_flipped_byte_is_noticed():
    """Base offset and timestamp are not under the CRC by design: the server writes them; everything else is."""
    data = wire(rows(4))
    good = decode(data, SCHEMA)
    for at in [*range(8, 13), *range(21, len(data))]:
        damaged = bytearray(data)
        damaged[at] ^= 0x41
        with pytest.raises((CorruptDataError, UnsupportedError) if at == 12 else CorruptDataError):
            decode(bytes(damaged), SCHEMA)
    assert good.rows.equals(rows(4))


def test_every_truncation_is_noticed():
    data = wire(rows(4))
    for length in range(len(data)):
        with pytest.raises(CorruptDataError):
            decode(data[:length], SCHEMA)


def test_what_the_crc_cannot_see_is_still_checked():
    """A writer that signs nonsense: other schema, wrong count, null where none may be, invalid UTF-8."""
    for foreign in (
        pa.record_batch({"a": [1, 2]}),
        pa.record_batch([pa.array([1, None]), *rows(2).columns[1:]], names=SCHEMA.names),
    ):
        with pytest.raises(CorruptDataError):
            decode(wire(foreign), SCHEMA)
    bad = pa.StringArray.from_buffers(1, pa.py_buffer(struct.pack("<ii", 0, 2)), pa.py_buffer(b"\xff\xfe"))
    with pytest.raises(CorruptDataError, match="UTF"):
        decode(wire(pa.record_batch([bad], names=["s"])), pa.schema([("s", pa.string())]))
    data = bytearray(wire(rows(3)))
    struct.pack_into("<i", data, 28, 1)
    struct.pack_into("<i", data, 44, 2)
    struct.pack_into("<I", data, 21, google_crc32c.value(bytes(data[25:])))
    with pytest.raises(CorruptDataError, match="expected 2 records, found 3"):
        decode(bytes(data), SCHEMA)


def test_a_header_needs_all_its_bytes():
    with pytest.raises(CorruptDataError):
        read_header(b"\0" * (HEADER_BYTES - 1))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_the_end_of_batches_is_that_of_the_last_header(count):
    one = wire(rows(2))
    data = b"".join(struct.pack("<q", at) + one[8:] for at in range(0, 2 * count, 2))
    assert end_offset(data) == (2 * count or None)
    assert end_offset(data[:-1]) == (2 * count or None)
    if count:
        assert read_header(data).next_offset == 2


def test_records_are_clipped_by_offset():
    records = records_of(decode(wire(rows(10)), SCHEMA))
    assert isinstance(records, LogRecords)
    assert (records.base_offset, records.next_offset, len(records)) == (40, 50, 10)
    assert records.timestamps_ms.unique().to_pylist() == [1_700_000_000_000]
    middle = records.clip(43, 46)
    assert middle.rows.column("id").to_pylist() == [3, 4, 5]
    assert middle.offsets.to_pylist() == [43, 44, 45]
    assert records.clip(0, 100) is records
    assert records.clip(50, 60) is None
    assert records.clip(0, 40) is None


def test_columns_are_aligned_wherever_the_bytes_lie():
    """Arrow's kernels warn, and may misbehave, on buffers that lie askew inside a message."""
    data = wire(rows(50))
    for shift in range(1, 9):
        shifted = memoryview(bytes(shift) + data)[shift:]
        batch = decode(shifted, SCHEMA)
        assert batch.rows.equals(rows(50))
        assert all(buffer.address % 8 == 0 for column in batch.rows.columns for buffer in column.buffers() if buffer)
