"""Bucketing, written down once more as the specifications say it, value by value."""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, cast

import pyarrow as pa
from pyiceberg import types as iceberg
from pyiceberg.transforms import BucketTransform

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


def iceberg_expected(case: Case, values: Sequence[Any], buckets: int) -> list[int]:
    assert case.lake
    lake_type, of_value = case.lake
    bucket = BucketTransform(buckets).transform(lake_type)
    return [cast("int", bucket(of_value(value))) for value in values]


def fluss_expected(columns: Sequence[tuple[Case, Sequence[Any]]], buckets: int) -> list[int]:
    encoded = [[case.fluss(value) for value in values] for case, values in columns]
    return [fluss_hash(b"".join(parts)) % buckets for parts in zip(*encoded, strict=True)]
