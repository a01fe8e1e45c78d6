"""The index of keys: every key is found where it is, and no other."""

import random

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.lookup.rows.keyed_rows import Groups, KeyedRows, KeyIndex, distinct, merge_found
from fluss_lab.model.bucketing import BUCKETS_MAX, fluss_bucket_ids
from fluss_lab.model.types import DataType
from tests.crash.kinds import KEY_TYPES, VALUES


def column(name, values):
    return pa.array(values, DataType.parse(name).arrow())


def batch(types, rows):
    return pa.RecordBatch.from_arrays(
        [column(kind, [row[at] for row in rows]) for at, kind in enumerate(types)],
        [f"k{at}" for at in range(len(types))],
    )


@pytest.mark.parametrize("types", [*((each,) for each in KEY_TYPES), ("int", "string"), ("bigint", "date"), KEY_TYPES])
def test_keys_of_every_type_are_found_where_they_are(types, seed):
    rng = random.Random(seed)
    values = list({tuple(VALUES[each](rng) for each in types) for _ in range(30)})
    held, others = values[: len(values) // 2], values[len(values) // 2 :]
    asked = [rng.choice(values) for _ in range(100)]
    index = KeyIndex.of(batch(types, held))
    assert len(index) == len(held)
    assert index.find(batch(types, asked)).tolist() == [held.index(key) if key in held else -1 for key in asked]
    # One by one: a slot that is taken is passed over, and more slots are made.
    for key in others:
        index = index.extend(batch(types, [key]))
    assert index.find(batch(types, asked)).tolist() == [(held + others).index(key) for key in asked]


def test_an_index_without_keys_has_none():
    index = KeyIndex.of(batch(("string",), []))
    assert index.find(batch(("string",), [("a",), ("b",)])).tolist() == [-1, -1]
    assert index.find(batch(("string",), [])).tolist() == []


def test_keys_with_the_same_hash_are_distinguished():
    texts = np.array([f"key {number}" for number in range(300_000)])
    hashes = fluss_bucket_ids([pa.array(texts)], BUCKETS_MAX).to_numpy()
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(np.diff(hashes[order]) == 0)
    assert len(same), "no two texts have one hash: nothing is shown"
    one, other = texts[order[same]], texts[order[same + 1]]
    index = KeyIndex.of(pa.record_batch({"k": one}))
    assert (index.find(pa.record_batch({"k": other})) == -1).all()
    both = index.extend(pa.record_batch({"k": other}))
    assert both.find(pa.record_batch({"k": one})).tolist() == list(range(len(same)))
    assert both.find(pa.record_batch({"k": other})).tolist() == list(range(len(same), 2 * len(same)))


def test_many_keys(seed):
    rng = np.random.default_rng(seed)
    values = rng.permutation(200_000) * int(rng.integers(1, 1 << 40))
    index = KeyIndex.of(pa.record_batch({"k": values[:100_000]}))
    found = index.find(pa.record_batch({"k": values}))
    assert (found[:100_000] == np.arange(100_000)).all()
    assert (found[100_000:] == -1).all()


@pytest.mark.parametrize("is_unique", [True, False])
def test_rows_are_matched_by_columns(is_unique, seed):
    rng = random.Random(seed)
    rows = [{"a": None if rng.random() < 0.1 else rng.randrange(20), "b": rng.choice("xyz"), "v": n} for n in range(60)]
    if is_unique:
        rows = list({(row["a"], row["b"]): row for row in rows if row["a"] is not None}.values())
    held = pa.RecordBatch.from_pylist(rows, pa.schema([("a", pa.int32()), ("b", pa.string()), ("v", pa.int64())]))
    keyed = KeyedRows.of(held, ["b", "a"], is_unique=is_unique)
    asked = [{"b": rng.choice("xyzw"), "a": rng.randrange(22)} for _ in range(50)]
    positions, ids = keyed.match(pa.RecordBatch.from_pylist(asked, pa.schema([("b", pa.string()), ("a", pa.int32())])))
    found = [(at, held.to_pylist()[row]["v"]) for at, row in zip(positions.tolist(), ids.tolist(), strict=True)]
    assert found == [
        (at, row["v"]) for at, key in enumerate(asked) for row in rows if (row["a"], row["b"]) == (key["a"], key["b"])
    ]


def test_runs_expand_to_their_rows():
    runs = Groups.of_sorted(np.array([0, 0, 2, 2, 2]), 4)
    positions, rows = runs.expand(np.array([2, -1, 1, 0, 2]))
    assert positions.tolist() == [0, 0, 0, 3, 3, 4, 4, 4]
    assert rows.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert [each.tolist() for each in runs.expand(np.array([], dtype=np.int64))] == [[], []]


def test_distinct_keys_come_in_the_order_of_their_first():
    keys, codes = distinct(pa.record_batch({"a": [3, 1, 3, 1], "b": ["x", "y", "x", "z"]}))
    assert keys.to_pylist() == [{"a": 3, "b": "x"}, {"a": 1, "b": "y"}, {"a": 1, "b": "z"}]
    assert codes.tolist() == [0, 1, 0, 2]


def test_findings_are_merged_by_position():
    rows = pa.record_batch({"v": [0, 1, 2]})
    positions, found = merge_found((np.array([1, 4, 4]), rows), (np.array([0, 4, 9]), rows))
    assert positions.tolist() == [0, 1, 4, 4, 4, 9]
    assert found.column(0).to_pylist() == [0, 0, 1, 2, 1, 2]
