"""Hashes and equality of columns: by the bytes of the values, wherever they lie in memory."""

from __future__ import annotations

import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.model.types import DataType
from fluss_lab.server.kv.keys import key_hashes
from fluss_lab.server.kv.keys.key_hashes import KeyHash, fixed_values
from fluss_lab.server.kv.keys.row_equality import equal_across, equal_rows, equal_values
from tests.unit.server.kv.kv_kit import NAN, OTHER_NAN, identity, maybe_null, some_value

KEY_TYPES = [
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(9, 2)", "decimal(30, 4)", "char(9)",
    "string", "bytes", "binary(3)", "binary(21)", "date", "time(0)", "time(9)", "timestamp(0)", "timestamp(9)",
    "timestamp_ltz(3)",
]  # fmt: skip
OTHERS = ["array<double>", "array<array<string>>", "map<int, double>", "row<x float, y array<row<z string>>>"]


def column(type: DataType, values: list) -> pa.Array:
    return pa.array(values, type.arrow())


@pytest.mark.parametrize("name", KEY_TYPES)
def test_equal_keys_have_equal_hashes_and_others_do_not(name, seed):
    rng, dtype = random.Random(seed), DataType.parse(name)
    values = [some_value(rng, dtype, 40) for _ in range(200)]
    hashes = KeyHash(seed).of([column(dtype, values)])
    by_value: dict = {}
    for value, hashed in zip(values, hashes.tolist(), strict=True):
        assert by_value.setdefault(identity(value), hashed) == hashed
    assert len(set(by_value.values())) == len(by_value)


@pytest.mark.parametrize("name", [name for name in KEY_TYPES if KeyHash().is_exact([DataType.parse(name).arrow()])])
def test_the_hash_of_one_key_is_that_of_many(name, seed):
    rng, dtype = random.Random(seed), DataType.parse(name)
    keys, hashing = column(dtype, [some_value(rng, dtype, 40) for _ in range(50)]), KeyHash(seed)
    hashes = hashing.of([keys])
    assert [hashing.of_bits(int(bits)) for bits in fixed_values(keys)] == hashes.tolist()


@pytest.mark.parametrize("name", KEY_TYPES)
def test_hashes_do_not_depend_on_where_values_lie(name, seed):
    rng, dtype = random.Random(seed), DataType.parse(name)
    whole = column(dtype, [some_value(rng, dtype, 40) for _ in range(50)])
    expected = KeyHash(seed).of([whole])
    for start, stop in ((1, 50), (7, 9), (49, 50), (20, 20)):
        part = whole.slice(start, stop - start)
        assert KeyHash(seed).of([part]).tolist() == expected[start:stop].tolist()
        # A buffer that ends with the last value, as in a request.
        copy = pa.concat_arrays([part.take(pa.array(np.arange(len(part))))])
        assert KeyHash(seed).of([copy]).tolist() == expected[start:stop].tolist()


def test_long_keys_are_hashed_to_their_last_byte(monkeypatch, seed):
    monkeypatch.setattr(key_hashes, "WORDS_PER_BLOCK", 16)
    rng = random.Random(seed)
    texts = [rng.randbytes(rng.choice([0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 5000])) for _ in range(60)]
    texts += [text[:-1] + bytes([text[-1] ^ 1]) for text in texts if text]
    texts += [text + b"\0" for text in texts]
    hashes = KeyHash(seed).of([pa.array(texts, pa.binary())])
    assert len(set(hashes.tolist())) == len(set(texts))


def test_words_change_places_and_the_hash_changes():
    texts = [b"12345678abcdefgh", b"abcdefgh12345678", b"abcdefghabcdefgh", b"1234567812345678"]
    assert len(set(KeyHash(1).of([pa.array(texts, pa.binary())]).tolist())) == 4


def test_composite_keys_count_their_columns_in_order():
    hashing = KeyHash(5)
    one, two = pa.array([1, 2, 1, 2]), pa.array([2, 1, 1, 2])
    assert len(set(hashing.of([one, two]).tolist())) == 4
    texts = hashing.of([pa.array(["ab", "a"]), pa.array(["c", "bc"])])
    assert texts[0] != texts[1]


def test_functions_of_different_seeds_differ():
    keys = [pa.array(np.arange(100))]
    assert (KeyHash(1).of(keys) != KeyHash(2).of(keys)).all()
    assert (KeyHash().of(keys) != KeyHash().of(keys)).all()


def test_the_hash_of_one_number_is_a_permutation_and_says_so():
    assert KeyHash().is_exact([pa.int64()])
    assert KeyHash().is_exact([pa.bool_()])
    assert not KeyHash().is_exact([pa.string()])
    assert not KeyHash().is_exact([pa.decimal128(5, 2)])
    assert not KeyHash().is_exact([pa.int8(), pa.int8()])
    assert not KeyHash(mask=1).is_exact([pa.int64()])


def test_floats_are_keys_by_their_bits():
    values = pa.array([0.0, -0.0, NAN, NAN, OTHER_NAN])
    hashes = KeyHash(9).of([values]).tolist()
    assert hashes[2] == hashes[3]
    assert len(set(hashes)) == 4
    left, right = np.array([0, 2, 2]), np.array([1, 3, 4])
    assert equal_rows([values], left, right).tolist() == [False, True, False]


@pytest.mark.parametrize("name", [*KEY_TYPES, *OTHERS])
def test_equality_is_that_of_the_values(name, seed):
    rng, dtype = random.Random(seed), DataType.parse(name)
    left = [maybe_null(rng, dtype) for _ in range(300)]
    right = [maybe_null(rng, dtype) for _ in range(300)]
    ours, theirs = column(dtype, left), column(dtype, right)
    expected = [identity(a) == identity(b) for a, b in zip(left, right, strict=True)]
    assert any(expected)
    assert not all(expected)
    assert equal_values(ours, theirs).tolist() == expected
    # The same within larger columns, and pair by pair.
    assert equal_values(ours.slice(100, 150), theirs.slice(100, 150)).tolist() == expected[100:250]
    pairs = np.array([rng.randrange(300) for _ in range(100)]), np.array([rng.randrange(300) for _ in range(100)])
    found = equal_across([ours, ours], pairs[0], [theirs, theirs], pairs[1])
    assert found.tolist() == [identity(left[a]) == identity(right[b]) for a, b in zip(*pairs, strict=True)]


def test_every_column_counts():
    columns = [pa.array([1, 1]), pa.array(["a", "a"]), pa.array([Decimal("1.0"), Decimal("2.0")], pa.decimal128(20, 1))]
    assert equal_rows(columns, np.array([0]), np.array([1])).tolist() == [False]
    assert equal_rows(columns[:2], np.array([0]), np.array([1])).tolist() == [True]
    assert equal_rows([], np.array([0]), np.array([1])).tolist() == [True]
