"""Small batches decoded together give what they give one by one: the same records, and the same error for the same batch."""

from __future__ import annotations

import random
import struct

import google_crc32c
import pyarrow as pa
import pytest

from fluss_lab.errors import FlussError
from fluss_lab.records import LogRecords, batch_runs, decode_all, decode_runs, encode, records_of
from fluss_lab.records.batch import CRC_START, HEADER_BYTES

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string()), ("tags", pa.list_(pa.int32()))])
OLDER = pa.schema([SCHEMA.field(0)])
SCHEMAS = {1: OLDER, 2: SCHEMA}


def rows(first: int, count: int, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    columns = {
        "id": range(first, first + count),
        "s": [None if i % 5 == 2 else f"wört {i}" for i in range(first, first + count)],
        "tags": [list(range(i % 3)) for i in range(first, first + count)],
    }
    return pa.record_batch({name: columns[name] for name in schema.names}, schema=schema)


def signed(data: bytes | bytearray) -> bytes:
    """Return a batch's bytes under a right length and CRC: what only who writes nonsense would send."""
    whole = bytearray(data)
    struct.pack_into("<i", whole, 8, len(whole) - 12)
    struct.pack_into("<I", whole, CRC_START - 4, google_crc32c.value(bytes(whole[CRC_START:])))
    return bytes(whole)


def batch(first: int, count: int, *, schema_id: int = 2, kinds: bytes | None = None, foreign=None) -> bytes:
    found = rows(first, count, SCHEMAS[schema_id]) if foreign is None else foreign
    parts = encode(found, schema_id=schema_id, base_offset=first, timestamp_ms=1_000 + first, change_types=kinds)
    return b"".join(bytes(part) for part in parts)


def one_by_one(data: bytes) -> list[LogRecords]:
    return [found for each in decode_all(data, SCHEMAS.__getitem__) if (found := records_of(each)) is not None]


def reported(data: bytes, *, together: bool) -> tuple[list[tuple[object, ...]], str | None]:
    """Return each record with its offset, time and kind, and the error that ended it."""
    found: list[tuple[object, ...]] = []
    error = None
    decode = decode_runs if together else decode_all
    try:
        for each in decode(data, SCHEMAS.__getitem__):
            records = each if isinstance(each, LogRecords) else records_of(each)
            if records is None:
                continue
            records.rows.validate(full=True)
            kinds = [None] * len(records) if records.change_types is None else records.change_types.to_pylist()
            times = records.timestamps_ms.to_pylist()
            found += zip(records.rows.to_pylist(), records.offsets.to_pylist(), times, kinds, strict=True)
    except (FlussError, KeyError) as failure:
        error = f"{type(failure).__name__}: {failure}"
    return found, error


def check_same(data: bytes) -> str | None:
    found, expected = reported(data, together=True), reported(data, together=False)
    assert found == expected
    return found[1]


def test_small_batches_are_joined_up_to_a_change_of_schema_or_kind(monkeypatch):
    monkeypatch.setattr(batch_runs, "_FIRST_BATCHES", 100)
    data = b"".join([
        *(batch(at, 1, schema_id=1) for at in range(10)),
        *(batch(at, 1) for at in range(10, 20)),
        *(batch(at, 2, kinds=bytes([1, 2])) for at in range(20, 40, 2)),
        batch(40, 4000),
        *(batch(at, 1) for at in range(4040, 4043)),
    ])  # fmt: skip
    assert check_same(data) is None
    runs = list(decode_runs(data, SCHEMAS.__getitem__))
    assert [len(each) for each in runs] == [10, 10, 20, 4000, 3]
    assert runs[1].rows.schema.equals(SCHEMA)
    assert runs[2].timestamps_ms.to_pylist()[:3] == [1020, 1020, 1022]
    assert runs[2].change_types.to_pylist()[:4] == [1, 2, 1, 2]


def test_more_batches_than_a_run_has(monkeypatch):
    monkeypatch.setattr(batch_runs, "_RUN_BATCHES", 7)
    data = b"".join(batch(at, 1) for at in range(30))
    assert check_same(data) is None
    assert [len(each) for each in decode_runs(data, SCHEMA)] == [7, 7, 7, 7, 2]


def test_who_wants_few_records_decodes_few_batches():
    data = b"".join(batch(at, 1) for at in range(200))
    assert [len(each) for each in decode_runs(data, SCHEMA)] == [16, 64, 120]


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_flipped_byte_is_noticed_and_what_came_before_it_is_right(number):
    parts = [bytearray(batch(at, 1)) for at in range(4)]
    parts[number][-1] ^= 1
    found, error = reported(b"".join(bytes(part) for part in parts), together=True)
    assert len(found) == number
    assert "CRC" in str(error)


def test_a_gap_between_batches_stays_one():
    data = batch(0, 2) + batch(2, 2) + batch(5, 2) + batch(7, 2)
    assert check_same(data) is None
    assert [(each.base_offset, each.next_offset) for each in decode_runs(data, SCHEMA)] == [(0, 4), (5, 9)]


def test_batches_that_do_not_have_their_own_rows_are_refused():
    """The sums agree: one has a record more than its header says, the next one less."""
    first, second = bytearray(batch(0, 3)), bytearray(batch(3, 1))
    for part, count, base in ((first, 1, 0), (second, 3, 1)):
        struct.pack_into("<q", part, 0, base)
        struct.pack_into("<i", part, 28, count - 1)
        struct.pack_into("<i", part, 44, count)
    assert "expected 1 records, found 3" in str(check_same(signed(first) + signed(second)))


def test_a_message_ends_with_its_batch():
    """What one batch has too much does not make what the next one has a message."""
    first, second = batch(0, 1), batch(1, 1)
    (size,) = struct.unpack_from("<i", second, HEADER_BYTES + 4)
    cut = HEADER_BYTES + 8 + size
    data = signed(first + second[HEADER_BYTES:cut]) + signed(second[:HEADER_BYTES] + second[cut:]) + batch(2, 1)
    assert "not Arrow" in str(check_same(data))
    assert len(reported(data, together=True)[0]) == 1


@pytest.mark.parametrize(
    "foreign",
    [
        pa.record_batch({"a": [1]}),
        pa.record_batch([pa.array([None], pa.int64()), *rows(1, 1).columns[1:]], names=SCHEMA.names),
        pa.record_batch(
            [
                pa.array([1]),
                pa.StringArray.from_buffers(1, pa.py_buffer(struct.pack("<ii", 0, 2)), pa.py_buffer(b"\xff\xfe")),
                rows(1, 1).column(2),
            ],
            names=SCHEMA.names,
        ),
    ],
    ids=["of another schema", "null where none may be", "no UTF-8"],
)
def test_what_a_crc_cannot_see_is_checked_of_each_batch(foreign):
    data = batch(0, 1) + batch(1, 1, foreign=foreign) + batch(2, 1)
    assert check_same(data) is not None
    assert len(reported(data, together=True)[0]) == 1


def _drawn(rng: random.Random) -> bytes:
    """Return batches of any kind, as a writer or a damaged disk may leave them."""
    parts: list[bytes] = []
    at = rng.randrange(3)
    for _ in range(rng.randrange(1, 40)):
        count = rng.choice([1, 1, 1, 2, 3, 0, rng.choice([1, 600])])
        kinds = bytes(rng.randrange(1, 5) for _ in range(count)) if rng.random() < 0.2 else None
        part = bytearray(batch(at, count, schema_id=rng.choice([2, 2, 2, 2, 1]), kinds=kinds))
        if rng.random() < 0.03:
            place = rng.randrange(len(part))
            part[place] ^= 1 << rng.randrange(8)
            if place >= CRC_START and rng.random() < 0.5:
                part = bytearray(signed(part))
        parts.append(bytes(part))
        at += count + (rng.random() < 0.05)
    data = b"".join(parts)
    return data[: rng.randrange(len(data))] if rng.random() < 0.1 else data


def test_whatever_lies_there_is_decoded_as_one_by_one(rng):
    failed = sum(check_same(_drawn(rng)) is not None for _ in range(150))
    assert 20 < failed < 130
