"""Bucket functions against the specs' vectors, pyiceberg, and a plain reference of Fluss's arithmetic."""

from __future__ import annotations

import os
import random
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg import types as iceberg
from pyiceberg.transforms import BucketTransform

from fluss_lab.errors import InvalidBucketsError, UnsupportedError
from fluss_lab.model import bucketing
from fluss_lab.model.bucketing import (
    BUCKETS_MAX,
    bucketing_kind,
    fluss_bucket_ids,
    iceberg_bucket_ids,
    is_iceberg_bucketable,
)
from fluss_lab.model.murmur3 import SHORT_BYTES_MAX, ByteRows, fluss_hashes

MAX_INT: Final = 2**31 - 1
DAY_MILLIS: Final = 86_400_000


# ── the reference: one value at a time, plain integers ──────────────────────────────────────────────────────────────


def rotate(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & 0xFFFFFFFF


def mix_key(word: int) -> int:
    return rotate(word * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF


def mix(state: int, word: int) -> int:
    return (rotate(state ^ mix_key(word), 13) * 5 + 0xE6546B64) & 0xFFFFFFFF


def finish(state: int) -> int:
    state = (state ^ state >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    state = (state ^ state >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return state ^ state >> 16


def whole_words(data: bytes, seed: int) -> tuple[int, bytes]:
    """Mix all whole words; return the state and the bytes that are left."""
    aligned = len(data) // 4 * 4
    state = seed
    for (word,) in struct.iter_unpack("<I", data[:aligned]):
        state = mix(state, word)
    return state, data[aligned:]


def iceberg_hash(data: bytes) -> int:
    """murmur3_x86_32 with seed 0, as a signed int."""
    state, tail = whole_words(data, 0)
    state ^= mix_key(int.from_bytes(tail, "little"))
    code = finish(state ^ len(data))
    return code - (1 << 32) if code >> 31 else code


def fluss_hash(data: bytes) -> int:
    """Fluss's hash of a key, made positive: everything but the remainder."""
    state, tail = whole_words(data, 42)
    for byte in tail:
        state = mix(state, (byte - 256 if byte > 127 else byte) & 0xFFFFFFFF)
    code = finish(mix(0, finish(state ^ len(data))) ^ 4)
    signed = code - (1 << 32) if code >> 31 else code
    return 0 if signed == -(1 << 31) else abs(signed)


def varint(value: int, bits: int) -> bytes:
    value &= (1 << bits) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def with_length(value: bytes) -> bytes:
    return varint(len(value), 32) + value


def big_endian(unscaled: int) -> bytes:
    """Java's ``BigInteger.toByteArray``."""
    bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


def millis_and_nanos(nanos: int) -> bytes:
    return varint(nanos // 1_000_000, 64) + varint(nanos % 1_000_000, 32)


# ── columns of every type, with what each function makes of a value ─────────────────────────────────────────────────


@dataclass(frozen=True)
class Case:
    """A type, a way to draw a value as an int or bytes, and both encodings of such a value."""

    type: pa.DataType
    draw: Callable[[random.Random], Any]
    fluss: Callable[[Any], bytes]
    #: The Iceberg type and the value that pyiceberg hashes; None where Iceberg has no bucket transform.
    lake: tuple[iceberg.IcebergType, Callable[[Any], Any]] | None
    #: Makes Arrow's own value of the drawn one.
    arrow: Callable[[Any], Any] = lambda value: value

    def column(self, values: Sequence[Any]) -> pa.Array:
        raw = [self.arrow(value) for value in values]
        if pa.types.is_temporal(self.type):
            return pa.array(raw, f"int{self.type.bit_width}").view(self.type)
        return pa.array(raw, self.type)


def whole(bits: int) -> Callable[[random.Random], int]:
    """Draw signed integers of all magnitudes, among them the ends of the range and where a varint grows."""
    edges = [0, 1, -1, 127, 128, -128, -129, 16383, 16384, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
    edges = [edge for edge in edges if -(1 << (bits - 1)) <= edge < 1 << (bits - 1)]

    def draw(rng: random.Random) -> int:
        if rng.random() < 0.2:
            return rng.choice(edges)
        value = rng.getrandbits(rng.randint(1, bits - 1))
        return rng.choice([value, ~value])

    return draw


def within(low: int, high: int) -> Callable[[random.Random], int]:
    near = min(-low, high, 10**6)

    def draw(rng: random.Random) -> int:
        return rng.choice([low, high, rng.randint(low, high), rng.randint(low, high), rng.randint(-near, near)])

    return draw


def octets(size_max: int) -> Callable[[random.Random], bytes]:
    return lambda rng: rng.randbytes(rng.randint(0, size_max))


def text(rng: random.Random) -> str:
    return "".join(rng.choice("aZ0-é漢🚀") for _ in range(rng.randint(0, 40)))


def number(type_: pa.DataType, bits: int) -> Case:
    lake = iceberg.LongType() if bits == 64 else iceberg.IntegerType()
    form = {8: "<b", 16: "<h"}.get(bits)
    encode = (lambda v: struct.pack(form, v)) if form else (lambda v: varint(v, bits))
    return Case(type_, whole(bits), encode, (lake, int))


def decimal(precision: int, scale: int) -> Case:
    lake = iceberg.DecimalType(precision, scale)
    top = 10**precision - 1
    steps = [sign << (8 * size - 1) for size in range(1, 16) for sign in (1, -1)]
    edges = [near for step in steps for near in (step - 1, step, step + 1) if -top <= near <= top] + [0, top, -top]
    small = min(top, 1000)

    def draw(rng: random.Random) -> int:
        return int(rng.choice([rng.choice(edges), rng.randint(-top, top), rng.randint(-small, small)]))

    def exact(unscaled: int) -> Decimal:
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))

    encode = (lambda v: varint(v, 64)) if precision <= 18 else (lambda v: with_length(big_endian(v)))
    return Case(pa.decimal128(precision, scale), draw, encode, (lake, exact), exact)


def timestamp(unit: str, zone: str | None) -> Case:
    nanos = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    encode = {
        "s": lambda v: varint(v * 1000, 64),
        "ms": lambda v: varint(v, 64),
        "us": lambda v: millis_and_nanos(v * 1000),
        "ns": millis_and_nanos,
    }[unit]
    lake = iceberg.TimestamptzType() if zone else iceberg.TimestampType()
    # The years 1 to 9999, and those that int64 nanoseconds reach.
    low, high = (
        (-(2**63), 2**63 - 1) if unit == "ns" else (-62135596800 * 10**9 // nanos, 253402300799 * 10**9 // nanos)
    )
    return Case(pa.timestamp(unit, zone), within(low, high), encode, (lake, lambda v: v * nanos // 1000))


def time_case(type_: pa.DataType, per_second: int) -> Case:
    return Case(
        type_,
        within(0, 86400 * per_second - 1),
        lambda v: varint(v * 1000 // per_second, 32),
        (iceberg.TimeType(), lambda v: v * 1_000_000 // per_second),
    )


def text_case(type_: pa.DataType) -> Case:
    return Case(type_, text, lambda v: with_length(v.encode()), (iceberg.StringType(), str))


def bytes_case(type_: pa.DataType, draw: Callable[[random.Random], bytes]) -> Case:
    return Case(type_, draw, with_length, (iceberg.BinaryType(), bytes))


CASES: Final = [
    number(pa.int8(), 8),
    number(pa.int16(), 16),
    number(pa.int32(), 32),
    number(pa.int64(), 64),
    Case(pa.date32(), whole(32), lambda v: varint(v, 32), (iceberg.DateType(), int)),
    time_case(pa.time32("s"), 1),
    time_case(pa.time32("ms"), 10**3),
    time_case(pa.time64("us"), 10**6),
    time_case(pa.time64("ns"), 10**9),
    *(timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Europe/Berlin")),
    *(decimal(*shape) for shape in ((1, 0), (4, 2), (9, 3), (18, 0), (18, 18), (19, 0), (20, 5), (38, 0), (38, 10))),
    text_case(pa.string()),
    text_case(pa.large_string()),
    text_case(pa.string_view()),
    bytes_case(pa.binary(), octets(40)),
    bytes_case(pa.large_binary(), octets(40)),
    bytes_case(pa.binary_view(), octets(40)),
    bytes_case(pa.binary(1), lambda rng: rng.randbytes(1)),
    bytes_case(pa.binary(13), lambda rng: rng.randbytes(13)),
    Case(pa.uuid(), lambda rng: rng.randbytes(16), with_length, (iceberg.UUIDType(), lambda v: uuid.UUID(bytes=v))),
    Case(pa.bool_(), lambda rng: rng.random() < 0.5, lambda v: bytes([v]), None),
    Case(pa.float32(), lambda rng: struct.unpack("<f", rng.randbytes(4))[0], lambda v: struct.pack("<f", v), None),
    Case(pa.float64(), lambda rng: rng.choice([0.0, -0.0, rng.gauss()]), lambda v: struct.pack("<d", v), None),
]
LAKE_CASES: Final = [case for case in CASES if case.lake]


def every(cases: Sequence[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[str(case.type) for case in cases])


@pytest.fixture
def rng() -> random.Random:
    """Random values; pytest shows the seed of a test that fails."""
    seed = int(os.environ.get("FLUSS_LAB_SEED") or random.SystemRandom().getrandbits(32))
    print(f"FLUSS_LAB_SEED={seed}")
    return random.Random(seed)


def iceberg_expected(case: Case, values: Sequence[Any], buckets: int) -> list[int]:
    assert case.lake
    lake_type, of_value = case.lake
    bucket = BucketTransform(buckets).transform(lake_type)
    return [cast("int", bucket(of_value(value))) for value in values]


def fluss_expected(columns: Sequence[tuple[Case, Sequence[Any]]], buckets: int) -> list[int]:
    encoded = [[case.fluss(value) for value in values] for case, values in columns]
    return [fluss_hash(b"".join(parts)) % buckets for parts in zip(*encoded, strict=True)]


def rows_of(*values: bytes) -> ByteRows:
    lengths = np.array([len(value) for value in values], np.int64)
    return ByteRows(np.frombuffer(b"".join(values), np.uint8), np.cumsum(lengths) - lengths, lengths)


# ── vectors of the specs ────────────────────────────────────────────────────────────────────────────────────────────

UTC_MOMENT: Final = datetime(2017, 11, 16, 22, 31, 8)
ICEBERG_VECTORS: Final = [
    (pa.array([34], pa.int8()), 2017239379),
    (pa.array([34], pa.int16()), 2017239379),
    (pa.array([34], pa.int32()), 2017239379),
    (pa.array([34], pa.int64()), 2017239379),
    (pa.array([Decimal("14.20")]), -500754589),
    (pa.array([date(2017, 11, 16)]), -653330422),
    (pa.array([time_of_day(22, 31, 8)]), -662762989),
    (pa.array([time_of_day(22, 31, 8)], pa.time32("s")), -662762989),
    (pa.array([time_of_day(22, 31, 8)], pa.time32("ms")), -662762989),
    (pa.array([UTC_MOMENT], pa.timestamp("s")), -2047944441),
    (pa.array([UTC_MOMENT], pa.timestamp("ms")), -2047944441),
    (pa.array([UTC_MOMENT], pa.timestamp("us")), -2047944441),
    (pa.array([UTC_MOMENT], pa.timestamp("ns")), -2047944441),
    (pa.array([UTC_MOMENT.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")), -2047944441),
    (pa.array([UTC_MOMENT.replace(tzinfo=UTC)], pa.timestamp("us", "America/Los_Angeles")), -2047944441),
    (pa.array(["iceberg"]), 1210000089),
    (pa.array([b"\x00\x01\x02\x03"]), -188683207),
    (pa.array([b"\x00\x01\x02\x03"], pa.binary(4)), -188683207),
    (pa.array([uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes], pa.uuid()), 1488055340),
]


@pytest.mark.parametrize(("keys", "spec_hash"), ICEBERG_VECTORS, ids=lambda value: str(getattr(value, "type", value)))
def test_iceberg_spec_appendix_b(keys: pa.Array, spec_hash: int) -> None:
    # A prime as large as can be leaves the whole hash to be seen.
    for buckets in (BUCKETS_MAX, 16, 3):
        assert iceberg_bucket_ids(keys, buckets).to_pylist() == [(spec_hash & MAX_INT) % buckets]


FLUSS_TEST_KEYS: Final = [
    bytes([0, 10]),
    bytes([0, 10, 10, 10]),
    b"2bb87d68-baf9-4e64-90f9-f80910419fa6",
    b"The quick brown fox jumps over the lazy dog",
]


@pytest.mark.parametrize(
    ("key", "buckets", "fluss_bucket", "iceberg_bucket"),
    list(zip(FLUSS_TEST_KEYS, [7, 12, 16, 8], [1, 0, 6, 6], [3, 4, 12, 3], strict=True)),
)
def test_vectors_of_fluss_bucketing_function_test(
    key: bytes, buckets: int, fluss_bucket: int, iceberg_bucket: int
) -> None:
    assert int(fluss_hashes(rows_of(key))[0]) % buckets == fluss_bucket
    assert iceberg_bucket_ids(pa.array([key]), buckets).to_pylist() == [iceberg_bucket]


#: Each column with its bytes in Apache Fluss's ``encoding/encoded_key.hex``, without the nested ones.
ENCODED_KEY: Final = [
    (pa.array([True]), "01"),
    (pa.array([2], pa.int8()), "02"),
    (pa.array([10], pa.int16()), "0A00"),
    (pa.array([100], pa.int32()), "64"),
    (pa.array([-6101065172474983726]), "D295FCD8CEB1AAAAAB01"),
    (pa.array([13.2], pa.float32()), "33335341"),
    (pa.array([15.21]), "EC51B81E856B2E40"),
    (pa.array([19655], pa.int32()).view(pa.date32()), "C79901"),
    (pa.array([34_200_000], pa.int32()).view(pa.time32("ms")), "C0B3A710"),
    (pa.array([b"1234567890"], pa.binary(10)), "0A31323334353637383930"),
    (pa.array([b"20"]), "023230"),
    (pa.array(["1"]), "0131"),
    (pa.array(["hello"]), "0568656C6C6F"),
    (pa.array([Decimal("0.09")], pa.decimal128(5, 2)), "09"),
    (pa.array([Decimal(10)], pa.decimal128(20, 0)), "010A"),
    (pa.array([1698235273182]).view(pa.timestamp("ms")), "DE9FD7B5B631"),
    (pa.array([1698235273182000]).view(pa.timestamp("us")), "DE9FD7B5B63100"),
    (pa.array([1698235273182]).view(pa.timestamp("ms", "UTC")), "DE9FD7B5B631"),
    (pa.array([1698235273182000]).view(pa.timestamp("us", "UTC")), "DE9FD7B5B63100"),
]


@pytest.mark.parametrize(("column", "encoded"), ENCODED_KEY, ids=lambda value: str(getattr(value, "type", value)))
def test_encoded_key_of_each_type(column: pa.Array, encoded: str) -> None:
    assert fluss_bucket_ids([column], BUCKETS_MAX).to_pylist() == [fluss_hash(bytes.fromhex(encoded)) % BUCKETS_MAX]


def test_encoded_key_of_all_types_at_once() -> None:
    key = bytes.fromhex("".join(encoded for _, encoded in ENCODED_KEY))
    columns = [column for column, _ in ENCODED_KEY]
    assert fluss_bucket_ids(columns, BUCKETS_MAX).to_pylist() == [fluss_hash(key) % BUCKETS_MAX]


def test_compacted_key_encoder_test() -> None:
    columns = [pa.array([1, 2], pa.int32()), pa.array([3, 5]), pa.array([2, 6], pa.int32())]
    expected = [fluss_hash(bytes(key)) % 1000 for key in ([1, 3, 2], [2, 5, 6])]
    assert fluss_bucket_ids(columns, 1000).to_pylist() == expected
    with_text = [pa.array([1], pa.int32()), pa.array(["a2"])]
    assert fluss_bucket_ids(with_text, 1000).to_pylist() == [fluss_hash(bytes([1, 2, 97, 50])) % 1000]


@pytest.mark.parametrize(
    ("keys", "lake_type", "value"),
    [
        (pa.array([42], pa.int32()), iceberg.IntegerType(), 42),
        (pa.array([1234567890123456789]), iceberg.LongType(), 1234567890123456789),
        (pa.array(["Hello Iceberg, Fluss this side!"]), iceberg.StringType(), "Hello Iceberg, Fluss this side!"),
        (pa.array([Decimal("123.45")], pa.decimal128(10, 2)), iceberg.DecimalType(10, 2), Decimal("123.45")),
        (pa.array([1698235273182123]).view(pa.timestamp("us")), iceberg.TimestampType(), 1698235273182123),
        (pa.array([19655], pa.int32()).view(pa.date32()), iceberg.DateType(), 19655),
        (pa.array([34200000], pa.int32()).view(pa.time32("ms")), iceberg.TimeType(), 34_200_000_000),
        (
            pa.array([b"Hello i only understand binary data"]),
            iceberg.BinaryType(),
            b"Hello i only understand binary data",
        ),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_values_of_iceberg_bucketing_function_test(keys: pa.Array, lake_type: iceberg.IcebergType, value: Any) -> None:
    for buckets in (10, BUCKETS_MAX):
        assert iceberg_bucket_ids(keys, buckets).to_pylist() == [BucketTransform(buckets).transform(lake_type)(value)]


# ── random values ───────────────────────────────────────────────────────────────────────────────────────────────────


@every(LAKE_CASES)
def test_iceberg_equals_pyiceberg(case: Case, rng: random.Random) -> None:
    values = [case.draw(rng) for _ in range(400)]
    for buckets in (1, 7, 16, BUCKETS_MAX):
        ids = iceberg_bucket_ids(case.column(values), buckets)
        assert ids.type == pa.int32()
        assert ids.to_pylist() == iceberg_expected(case, values, buckets)


@every(CASES)
def test_fluss_equals_the_reference(case: Case, rng: random.Random) -> None:
    values = [case.draw(rng) for _ in range(400)]
    for buckets in (1, 7, 16, BUCKETS_MAX):
        ids = fluss_bucket_ids([case.column(values)], buckets)
        assert ids.type == pa.int32()
        assert ids.to_pylist() == fluss_expected([(case, values)], buckets)


def test_fluss_equals_the_reference_for_several_keys(rng: random.Random) -> None:
    for _ in range(30):
        chosen = [(case, [case.draw(rng) for _ in range(60)]) for case in rng.sample(CASES, rng.randint(2, 5))]
        ids = fluss_bucket_ids([case.column(values) for case, values in chosen], BUCKETS_MAX)
        assert ids.to_pylist() == fluss_expected(chosen, BUCKETS_MAX), [str(case.type) for case, _ in chosen]


def test_order_of_keys_matters() -> None:
    one, two = pa.array(["a"] * 8), pa.array(list("bcdefghi"))
    assert fluss_bucket_ids([one, two], BUCKETS_MAX) != fluss_bucket_ids([two, one], BUCKETS_MAX)


def test_keys_of_all_lengths(rng: random.Random) -> None:
    """Around the length from which rows are hashed one by one, and a whole megabyte among short ones."""
    lengths = [*range(20), *range(SHORT_BYTES_MAX - 8, SHORT_BYTES_MAX + 8), *range(2000, 2004), 1 << 20]
    rng.shuffle(lengths)
    values = [rng.randbytes(length) for length in lengths]
    fluss_ids = fluss_bucket_ids([pa.array(values)], BUCKETS_MAX).to_pylist()
    assert fluss_ids == [fluss_hash(with_length(value)) % BUCKETS_MAX for value in values]
    iceberg_ids = iceberg_bucket_ids(pa.array(values), BUCKETS_MAX).to_pylist()
    assert iceberg_ids == [(iceberg_hash(value) & MAX_INT) % BUCKETS_MAX for value in values]


@pytest.mark.parametrize(
    "type_", [pa.string(), pa.large_string(), pa.binary(), pa.binary_view(), pa.binary(0)], ids=str
)
def test_a_column_of_nothing_but_empty_strings(type_: pa.DataType) -> None:
    keys = pa.array([b"", b""]).cast(type_)
    assert iceberg_bucket_ids(keys, 16).to_pylist() == [0, 0]
    assert fluss_bucket_ids([keys], 16).to_pylist() == [fluss_hash(b"\0") % 16] * 2


def test_raw_rows_may_overlap_and_leave_gaps(rng: random.Random) -> None:
    data = rng.randbytes(97)
    spans = [(rng.randint(0, 60), rng.randint(0, 37)) for _ in range(200)]
    starts, lengths = np.array(spans, np.int64).T.copy()
    hashes = fluss_hashes(ByteRows(np.frombuffer(data, np.uint8), starts, lengths))
    assert hashes.tolist() == [fluss_hash(data[start : start + length]) for start, length in spans]


# ── forms of the input ──────────────────────────────────────────────────────────────────────────────────────────────


@every(CASES)
def test_slices_and_chunks(case: Case, rng: random.Random) -> None:
    values = [case.draw(rng) for _ in range(50)]
    column = case.column(values)
    chunked = pa.chunked_array([column[3:3], column[3:20], column[20:21], column[21:47]], case.type)
    for keys in (column[3:47], chunked, chunked.slice(0)):
        assert fluss_bucket_ids([keys], 1000).to_pylist() == fluss_expected([(case, values[3:47])], 1000)
        if case.lake:
            assert iceberg_bucket_ids(keys, 1000).to_pylist() == iceberg_expected(case, values[3:47], 1000)


@every(CASES)
def test_no_keys(case: Case) -> None:
    empties = [case.column([]), pa.chunked_array([], case.type), pa.chunked_array([case.column([])] * 2)]
    for keys in empties:
        assert fluss_bucket_ids([keys, keys], 4).equals(pa.array([], pa.int32()))
        if case.lake:
            assert iceberg_bucket_ids(keys, 4).equals(pa.array([], pa.int32()))


@every(CASES)
def test_blocks_do_not_show(case: Case, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [case.draw(rng) for _ in range(40)]
    monkeypatch.setattr(bucketing, "ROWS_PER_BLOCK", 7)
    # The two columns are cut in different places.
    two = [pa.chunked_array([case.column(values[:9]), case.column(values[9:])]), case.column(values)]
    assert fluss_bucket_ids(two, 1000).to_pylist() == fluss_expected([(case, values)] * 2, 1000)
    if case.lake:
        assert iceberg_bucket_ids(two[0], 1000).to_pylist() == iceberg_expected(case, values, 1000)


def test_more_rows_than_a_block() -> None:
    rows = bucketing.ROWS_PER_BLOCK + 3
    numbers, names = pa.array(range(rows)), pa.array([f"n{row}" for row in range(rows)])
    fluss_ids = fluss_bucket_ids([numbers, names], BUCKETS_MAX).to_pylist()
    iceberg_ids = iceberg_bucket_ids(numbers, BUCKETS_MAX).to_pylist()
    assert len(fluss_ids) == len(iceberg_ids) == rows
    for row in (0, 1, rows - 4, rows - 3, rows - 1):
        assert fluss_ids[row] == fluss_hash(varint(row, 64) + with_length(f"n{row}".encode())) % BUCKETS_MAX
        assert iceberg_ids[row] == (iceberg_hash(struct.pack("<q", row)) & MAX_INT) % BUCKETS_MAX


def test_a_million_short_strings_starve_no_bucket() -> None:
    keys = pa.array([f"user-{row}" for row in range(1_000_000)])
    calls: list[Callable[[], pa.Array]] = [lambda: fluss_bucket_ids([keys], 16), lambda: iceberg_bucket_ids(keys, 16)]
    for call in calls:
        ids = call()
        counts = np.bincount(ids.to_numpy(), minlength=16)
        assert counts.size == 16
        assert counts.min() > 60_000  # of 62,500: no bucket is starved


# ── refusals ────────────────────────────────────────────────────────────────────────────────────────────────────────


@every(CASES)
def test_null_keys_are_refused_by_row(case: Case, rng: random.Random) -> None:
    values = case.column([case.draw(rng) for _ in range(5)])
    gap = pa.nulls(1, case.type)
    keys = pa.chunked_array([values, values[:2], gap, values, gap])
    with pytest.raises(ValueError, match=r"bucket key 1 is null in row 7$"):
        fluss_bucket_ids([pa.array(range(14)), keys], 4)
    with pytest.raises(ValueError, match=r"null in row 1$"):
        fluss_bucket_ids([keys.combine_chunks().slice(6)], 4)
    if case.lake:
        with pytest.raises(ValueError, match=r"the bucket key is null in row 7$"):
            iceberg_bucket_ids(keys, 4)


@pytest.mark.parametrize("buckets", [0, -1, BUCKETS_MAX + 1])
def test_bucket_counts_that_cannot_be(buckets: int) -> None:
    with pytest.raises(InvalidBucketsError, match=str(buckets)):
        iceberg_bucket_ids(pa.array([1]), buckets)
    with pytest.raises(InvalidBucketsError, match=str(buckets)):
        fluss_bucket_ids([pa.array([1])], buckets)


NOT_KEYS: Final = [
    pa.list_(pa.int32()),
    pa.map_(pa.string(), pa.int32()),
    pa.struct([("a", pa.int32())]),
    pa.uint32(),
    pa.date64(),
    pa.decimal256(40, 0),
    pa.float16(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.null(),
]


@pytest.mark.parametrize("type_", NOT_KEYS, ids=str)
def test_types_that_cannot_be_keys(type_: pa.DataType) -> None:
    keys = pa.array([], type_)
    with pytest.raises(UnsupportedError):
        iceberg_bucket_ids(keys, 4)
    with pytest.raises(UnsupportedError):
        fluss_bucket_ids([keys], 4)
    assert not is_iceberg_bucketable(type_)


@pytest.mark.parametrize("type_", [pa.bool_(), pa.float32(), pa.float64()], ids=str)
def test_types_that_only_fluss_buckets(type_: pa.DataType) -> None:
    with pytest.raises(UnsupportedError, match=str(type_)):
        iceberg_bucket_ids(pa.array([1, 0]).cast(type_), 4)


@pytest.mark.parametrize("columns", [[], [pa.array([1]), pa.array([1, 2])]], ids=["none", "uneven"])
def test_columns_of_one_length_are_needed(columns: list[pa.Array]) -> None:
    with pytest.raises(ValueError, match="one length"):
        fluss_bucket_ids(columns, 4)


# ── which function a table uses ─────────────────────────────────────────────────────────────────────────────────────


@every(CASES)
def test_kind_of_one_key(case: Case) -> None:
    assert is_iceberg_bucketable(case.type) is (case.lake is not None)
    assert bucketing_kind([case.type]) == ("iceberg" if case.lake else "fluss")


@pytest.mark.parametrize("key_types", [[], [pa.int64(), pa.int64()], [pa.string(), pa.bool_()], [pa.list_(pa.int8())]])
def test_kind_of_other_keys(key_types: list[pa.DataType]) -> None:
    assert bucketing_kind(key_types) == "fluss"
