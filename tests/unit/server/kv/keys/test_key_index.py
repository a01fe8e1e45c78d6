"""The index alone: every row is found by its hash, whatever was put in, taken out and moved meanwhile."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from fluss_lab.server.kv.keys.key_index import PACE, HashIndex

pytestmark = pytest.mark.slow


def everything(index: HashIndex, hashes: np.ndarray) -> dict[int, set[int]]:
    """Return all offsets that the index has for some different hashes."""
    found: dict[int, list[int]] = defaultdict(list)
    slots, offsets = index.find(hashes)
    assert index.find_few(hashes[:500].tolist()).tolist() == offsets[:500].tolist()
    rest = np.flatnonzero(offsets >= 0)
    while rest.size:
        for place in rest.tolist():
            found[int(hashes[place])].append(int(offsets[place]))
        slots[rest], offsets[rest] = index.find_next(hashes[rest], slots[rest])
        rest = rest[offsets[rest] >= 0]
    assert all(len(each) == len(set(each)) for each in found.values()), "a row was found twice"
    return {each: set(offsets) for each, offsets in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("mask", [2**64 - 1, 0xFFFF000000000000, 0xFF, 0xF000000000000000], ids=hex)
def test_rows_are_found_while_the_table_grows_and_rows_come_and_go(mask, seed):
    random = np.random.default_rng(seed)
    index, model, where = HashIndex(), defaultdict(set), {}
    distinct = 30 if mask in {0xFF, 0xF000000000000000} else 10_000
    pool = random.integers(0, 2**64, distinct, dtype=np.uint64) & np.uint64(mask)
    offset = 0
    moved = False
    for _ in range(40):
        count = int(random.integers(1, 60 if distinct == 30 else 2000))
        hashes = random.choice(pool, count)
        offsets = np.arange(offset, offset + count)
        offset += count
        index.insert(hashes, offsets)
        for each, place in zip(hashes.tolist(), offsets.tolist(), strict=True):
            model[each].add(place)
            where[place] = each
        index.advance(int(random.integers(0, 200)))
        moved |= index.is_moving
        # Some go, some move; each is found by its hash and its offset.
        chosen = random.choice(list(where), min(len(where), int(random.integers(0, count))), replace=False)
        for place in chosen.tolist()[: 40 if distinct > 30 else 10]:
            hashed = np.array([where[place]], np.uint64)
            slots, offsets = index.find(hashed)
            while offsets[0] != place:
                assert offsets[0] >= 0, "a row is gone"
                slots, offsets = index.find_next(hashed, slots)
            model[where[place]].discard(place)
            if place % 2:
                index.remove(slots)
                del where[place]
            else:
                index.relocate(slots, np.array([offset]))
                model[where[place]].add(offset)
                where[offset] = where.pop(place)
                offset += 1
    assert len(index) == len(where)
    unique = np.unique(pool)
    assert everything(index, unique) == {int(each): model[int(each)] for each in unique if model[int(each)]}
    assert moved or distinct == 30, "the table never moved: the test tests little"


def test_a_key_that_is_not_there_is_not_found_while_a_table_is_left(seed):
    random = np.random.default_rng(seed)
    index = HashIndex()
    hashes = random.integers(0, 2**64, 50_000, dtype=np.uint64)
    index.insert(hashes[:30_000], np.arange(30_000))
    index.insert(hashes[30_000:40_000], np.arange(30_000, 40_000))
    while not index.is_moving:
        extra = random.integers(0, 2**64, 1000, dtype=np.uint64)
        index.insert(extra, np.arange(1_000_000, 1_001_000))
    index.advance(1)
    _, offsets = index.find(hashes)
    assert (offsets[:40_000] == np.arange(40_000)).all()
    assert (offsets[40_000:] == -1).all()
    assert [index.find_one(each) for each in hashes.tolist()] == offsets.tolist()


def test_rows_that_do_not_fit_at_the_end_of_a_table_that_is_left_are_found_at_its_beginning(seed):
    # They lie among slots that were moved, and behind them among those that are moved next.
    random = np.random.default_rng(seed)
    index = HashIndex(9000)
    hashes = random.integers(0, 2**64, 9000, dtype=np.uint64)
    index.insert(hashes, np.arange(9000))
    index._begin(0)
    index._move(64)
    last = np.uint64(2**64 - 2**54) + random.integers(0, 2**54, 400, dtype=np.uint64)
    index.insert(last, np.arange(9000, 9400))
    every = np.concatenate([hashes, last])
    while index.is_moving:
        index._move(64)
        _, offsets = index.find(every)
        assert offsets.tolist() == list(range(9400))
    index.remove(index.find(last)[0])
    assert index.find(every)[1].tolist() == [*range(9000), *[-1] * 400]


def test_deleted_keys_cost_nothing_for_ever(seed):
    # A queue: as many go as come, for long. Table and probes stay as they are.
    random = np.random.default_rng(seed)
    index = HashIndex()
    waiting: list[np.ndarray] = []
    for step in range(400):
        hashes = random.integers(0, 2**64, 500, dtype=np.uint64)
        index.insert(hashes, np.arange(step * 500, step * 500 + 500))
        waiting.append(hashes)
        if len(waiting) > 4:
            slots, offsets = index.find(waiting.pop(0))
            assert (offsets >= 0).all()
            index.remove(slots)
        index.advance(500)
    assert len(index) == 2000
    assert index.memory_bytes <= 16 * 8192 * 2
    for hashes in waiting:
        index.remove(index.find(hashes)[0])
        index.advance(500)
    assert len(index) == 0


def test_growth_is_spread_over_the_inserts():
    # 16 slots are moved for each row: a call of 100 rows never moves a large table at once.
    index = HashIndex()
    random = np.random.default_rng(3)
    longest = 0
    moving_since = None
    for step in range(4000):
        index.insert(random.integers(0, 2**64, 100, dtype=np.uint64), np.arange(step * 100, step * 100 + 100))
        index.advance(100)
        if index.is_moving:
            moving_since = step if moving_since is None else moving_since
            longest = max(longest, step - moving_since)
        else:
            moving_since = None
    assert longest > 10, "a table was left in few calls"
    assert len(index) == 400_000
    assert PACE * 100 < 400_000


def test_room_is_made_for_what_is_expected():
    index = HashIndex(100_000)
    before = index.memory_bytes
    index.insert(np.random.default_rng(1).integers(0, 2**64, 100_000, dtype=np.uint64), np.arange(100_000))
    assert (index.memory_bytes, index.is_moving) == (before, False)
