"""Bucket functions against the specs' vectors, pyiceberg, and a plain reference of Fluss's arithmetic."""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg import types as iceberg
from pyiceberg.transforms import BucketTransform

from fluss_lab.errors import InvalidBucketsError, UnsupportedError
from fluss_lab.model import bucketing
from fluss_lab.model.bucketing import (
    BUCKETS_MAX,
    bucket_ids,
    bucket_part_ids,
    bucketing_kind,
    fluss_bucket_ids,
    iceberg_bucket_ids,
    is_iceberg_bucketable,
)
from fluss_lab.model.murmur3 import SHORT_BYTES_MAX, ByteRows, fluss_hashes
from tests.unit.model.bucketing_reference import (
    CASES,
    LAKE_CASES,
    MAX_INT,
    Case,
    fluss_expected,
    fluss_hash,
    iceberg_expected,
    iceberg_hash,
    varint,
    with_length,
)

pytestmark = pytest.mark.slow


def every(cases: Sequence[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[str(case.type) for case in cases])


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


# -- the function of a table, and parts of a bucket --------------------------------------------------------------------


def test_a_table_is_bucketed_by_its_own_function() -> None:
    keys = pa.array(range(1000))
    assert bucket_ids("iceberg", [keys], 7).equals(iceberg_bucket_ids(keys, 7))
    assert bucket_ids("fluss", [keys], 7).equals(fluss_bucket_ids([keys], 7))
    assert bucket_ids("fluss", [keys, keys], 7).equals(fluss_bucket_ids([keys, keys], 7))
    with pytest.raises(ValueError, match="too many values"):
        bucket_ids("iceberg", [keys, keys], 7)


@pytest.mark.parametrize("buckets", [1, 2, 4, 6, 64])
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 64])
def test_the_parts_of_each_bucket_are_even(buckets: int, parts: int) -> None:
    keys = [pa.array(range(buckets * parts * 400))]
    ids = fluss_bucket_ids(keys, buckets).to_numpy()
    counts = np.bincount(ids.astype(np.int64) * parts + bucket_part_ids(keys, parts), minlength=buckets * parts)
    assert len(counts) == buckets * parts
    # 400 expected of each; a standard deviation is 20.
    assert 280 <= counts.min() <= counts.max() <= 520
