"""The cache of remote lookups against a model: bounded, exact, the last used kept."""

import random

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.lookup.rows.lookup_cache import LookupCache

KEYS = pa.schema([("k", pa.int64())])
ROWS = pa.schema([("v", pa.string())])


def keys_of(values):
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=KEYS)


def add(cache, rows, now_ms=0):
    """Add keys with the texts of their rows."""
    positions = np.repeat(np.arange(len(rows)), [len(texts) for texts in rows.values()])
    texts = pa.array([text for each in rows.values() for text in each], pa.string())
    cache.add(keys_of(list(rows)), positions, pa.RecordBatch.from_arrays([texts], schema=ROWS), now_ms)


def get(cache, values, now_ms=0):
    """Return the texts of keys; None for one that is not cached."""
    entries = cache.find(keys_of(values), now_ms)
    positions, ids = cache.expand(entries)
    texts = cache.rows.column(0).to_pylist()
    found = [None if entry < 0 else [] for entry in entries.tolist()]
    for at, row in zip(positions.tolist(), ids.tolist(), strict=True):
        found[at].append(texts[row])
    return found


@pytest.mark.parametrize("rows_max", [0, 1, 7, 100, 10_000])
def test_a_cache_is_bounded_and_never_wrong(rows_max, seed):
    rng = random.Random(seed)
    cache, truth = LookupCache(KEYS, ROWS, rows_max), {}
    for _ in range(60):
        asked = rng.sample(range(200), rng.randint(1, 40))
        found = get(cache, asked)
        assert all(texts is None or texts == truth[key] for key, texts in zip(asked, found, strict=True))
        missing = [key for key, texts in zip(asked, found, strict=True) if texts is None]
        for key in missing:
            truth.setdefault(key, [f"{key}.{n}" for n in range(rng.choice([0, 1, 1, 3]))])
        add(cache, {key: truth[key] for key in missing})
        assert len(cache) <= rows_max
        if rng.random() < 0.2:
            gone = rng.sample(range(200), 10)
            cache.drop(keys_of(gone))
            assert get(cache, gone) == [None] * 10
        if rng.random() < 0.1:
            other = LookupCache(KEYS, ROWS, rows_max)
            other.restore(*cache.parts())
            cache = other
    assert rows_max < 10_000 or get(cache, sorted(truth)).count(None) < 150


def test_what_was_used_last_stays():
    cache = LookupCache(KEYS, ROWS, 8)
    for key in range(8):
        add(cache, {key: [str(key)]})
        get(cache, [key])
    get(cache, [0, 1, 2])
    add(cache, {8: ["8"]})
    assert get(cache, [0, 1, 2, 7, 8]) == [["0"], ["1"], ["2"], ["7"], ["8"]]
    assert get(cache, [3]) == [None]


def test_of_more_than_there_is_room_for_some_are_kept():
    cache = LookupCache(KEYS, ROWS, 5)
    add(cache, {-1: ["old"]})
    add(cache, {key: [str(key), "again"] for key in range(10)})
    assert len(cache) == 5
    assert get(cache, [-1, 7, 8, 9]) == [["old"], None, ["8", "again"], ["9", "again"]]


def test_keys_without_a_row_are_cached_and_count():
    cache = LookupCache(KEYS, ROWS, 3)
    add(cache, {1: [], 2: [], 3: ["c"]})
    assert get(cache, [1, 2, 3, 4]) == [[], [], ["c"], None]
    assert len(cache) == 3


def test_entries_expire_by_the_clock():
    cache = LookupCache(KEYS, ROWS, 100, expiry_ms=1000)
    add(cache, {1: ["a"], 2: []}, now_ms=500)
    add(cache, {3: ["c"]}, now_ms=1000)
    assert get(cache, [1, 2, 3], 1499) == [["a"], [], ["c"]]
    assert get(cache, [1, 2, 3], 1500) == [None, None, ["c"]]
    add(cache, {1: ["new"], 2: ["now"]}, now_ms=1500)
    assert get(cache, [1, 2, 3], 1999) == [["new"], ["now"], ["c"]]
    assert get(cache, [1, 2, 3], 2000) == [["new"], ["now"], None]
    assert len(cache) == 3
