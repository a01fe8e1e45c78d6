"""The partitioner by buckets: every number of buckets against every number of tasks, and every type of key."""

import json
import math
import os
import subprocess
import sys
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from fluss_lab.errors import UnsupportedError
from fluss_lab.lookup.bucket_partitioner import BucketPartitioner
from fluss_lab.lookup.contract_checks import partitions_of
from fluss_lab.lookup.portable import partitioner_of, portable_text
from fluss_lab.model import make_descriptor
from fluss_lab.model.bucketing import BUCKETS_MAX, bucket_ids
from tests.unit.model.bucketing_reference import CASES, LAKE_CASES, fluss_expected, iceberg_expected

NUMBERS = range(1, 18)
PAIRS = [*product(NUMBERS, NUMBERS)]
KEY_CASES = [case for case in CASES if not pa.types.is_floating(case.type)]
GOLDEN = 0x9E3779B97F4A7C15


def numbered(buckets, bucketing="iceberg", key=("id",)):
    return BucketPartitioner(key, buckets, bucketing)


def many(rng, count=16_000):
    """Return keys of two columns: few values of the one, so that only both together are spread."""
    draw = np.random.default_rng(rng.getrandbits(32))
    return pa.record_batch({"id": draw.integers(-(2**60), 2**60, count), "part": draw.integers(0, 50, count)})


def expected_task(bucket, choice, buckets, tasks):
    """Return the task of a row by the words of the specification; `choice` is a hash in ``[0, 1)`` of all its join keys."""
    if buckets % tasks == 0:
        return bucket % tasks
    if tasks % buckets == 0:
        own = tasks // buckets
        return bucket * own + int(choice * own)
    slots = math.lcm(buckets, tasks)
    per_bucket, per_task = slots // buckets, slots // tasks
    return (bucket * per_bucket + int(choice * per_bucket)) // per_task


def choice_of(hash_):
    """Return the number in ``[0, 1)`` that chooses among the tasks of a bucket, of Fluss's hash of all join keys."""
    return (hash_ * GOLDEN % 2**64 >> 32) / 2**32


# -- tasks against buckets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bucketing", ["iceberg", "fluss"])
def test_each_row_is_in_a_task_that_has_its_bucket(rng, bucketing):
    keys = many(rng)
    names = ["id"] if bucketing == "iceberg" else ["part", "id"]
    for buckets in NUMBERS:
        partitioner = numbered(buckets, bucketing, tuple(names))
        ids = bucket_ids(bucketing, [keys[name] for name in names], buckets).to_numpy()
        for tasks in NUMBERS:
            found = partitions_of(partitioner, keys, tasks)
            pairs = {(int(pair) // tasks, int(pair) % tasks) for pair in np.unique(ids * np.int64(tasks) + found)}
            # Also: each pair that may be does occur, so nobody holds a bucket for nothing.
            assert pairs == {(bucket, task) for task in range(tasks) for bucket in partitioner.buckets_of(task, tasks)}
            assert pairs == {
                (bucket, task) for bucket in range(buckets) for task in partitioner.tasks_of(bucket, tasks)
            }


@pytest.mark.parametrize(("bucketing", "names"), [("iceberg", ["id"]), ("fluss", ["part", "id"]), ("fluss", ["id"])])
def test_tasks_get_equal_shares(rng, bucketing, names):
    keys = many(rng)
    for buckets, tasks in PAIRS:
        found = partitions_of(numbered(buckets, bucketing, tuple(names)), keys, tasks)
        share = keys.num_rows / tasks
        # Six standard deviations of a fair choice.
        assert np.abs(np.bincount(found, minlength=tasks) - share).max() <= 6 * math.sqrt(share)


def test_buckets_and_tasks_are_as_few_for_each_other_as_can_be():
    for buckets, tasks in PAIRS:
        check_few(buckets, tasks)


def check_few(buckets, tasks):
    partitioner = numbered(buckets)
    of_task = [partitioner.buckets_of(task, tasks) for task in range(tasks)]
    of_bucket = [partitioner.tasks_of(bucket, tasks) for bucket in range(buckets)]
    assert {bucket for each in of_task for bucket in each} == set(range(buckets))
    assert {task for each in of_bucket for task in each} == set(range(tasks))
    if buckets % tasks == 0:
        assert all(len(each) == buckets // tasks for each in of_task)
        assert of_bucket == [(bucket % tasks,) for bucket in range(buckets)]
    elif tasks % buckets == 0:
        assert all(len(each) == 1 for each in of_task)
        assert all(len(each) == tasks // buckets for each in of_bucket)
    else:
        # A run of slots begins and ends within a neighbour's.
        assert all(len(each) <= math.ceil(buckets / tasks) + 1 for each in of_task)
        assert all(len(each) <= math.ceil(tasks / buckets) + 1 for each in of_bucket)
        assert sum(map(len, of_task)) == buckets + tasks - math.gcd(buckets, tasks)


def test_buckets_that_are_a_multiple_of_the_tasks_go_by_the_remainder():
    assert [numbered(8).buckets_of(task, 4) for task in range(4)] == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_buckets_have_tasks_of_their_own_where_these_are_a_multiple():
    assert [numbered(3).tasks_of(bucket, 6) for bucket in range(3)] == [(0, 1), (2, 3), (4, 5)]


def test_slots_of_numbers_without_a_common_part():
    # 12 slots: buckets own 4 each, tasks 3 each.
    assert [numbered(3).buckets_of(task, 4) for task in range(4)] == [(0,), (0, 1), (1, 2), (2,)]
    assert [numbered(3).tasks_of(bucket, 4) for bucket in range(3)] == [(0, 1), (1, 2), (2, 3)]


# -- rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", KEY_CASES, ids=[str(case.type) for case in KEY_CASES])
def test_every_type_of_key_goes_where_the_specification_says(rng, case):
    values = [case.draw(rng) for _ in range(200)]
    keys = pa.RecordBatch.from_arrays([case.column(values)], ["k"])
    whole = fluss_expected([(case, values)], BUCKETS_MAX)
    choices = [choice_of(each) for each in whole]
    for bucketing in ["fluss", *(["iceberg"] if case in LAKE_CASES else [])]:
        for _ in range(12):
            buckets, tasks = rng.choice(PAIRS)
            ids = (
                iceberg_expected(case, values, buckets)
                if bucketing == "iceberg"
                else [h % buckets for h in _hashes(case, values)]
            )
            expected = [expected_task(*pair, buckets, tasks) for pair in zip(ids, choices, strict=True)]
            assert partitions_of(numbered(buckets, bucketing, ("k",)), keys, tasks).tolist() == expected


def _hashes(case, values):
    return fluss_expected([(case, values)], 2**31)


def test_keys_of_several_columns_are_hashed_together(rng):
    chosen = rng.sample(KEY_CASES, 3)
    columns = [[case.draw(rng) for _ in range(300)] for case in chosen]
    batch = pa.RecordBatch.from_arrays(
        [case.column(values) for case, values in zip(chosen, columns, strict=True)], ["a", "b", "c"]
    )
    # The bucket key is the last two, in an order of its own; the choice is by all.
    by_bucket = [(chosen[2], columns[2]), (chosen[1], columns[1])]
    whole = fluss_expected(list(zip(chosen, columns, strict=True)), BUCKETS_MAX)
    choices = [choice_of(each) for each in whole]
    for buckets, tasks in rng.sample(PAIRS, 40):
        ids = fluss_expected(by_bucket, buckets)
        expected = [expected_task(*pair, buckets, tasks) for pair in zip(ids, choices, strict=True)]
        assert partitions_of(numbered(buckets, "fluss", ("c", "b")), batch, tasks).tolist() == expected


def test_a_hot_value_of_the_bucket_key_is_spread_by_the_other_join_keys(rng):
    keys = many(rng, 4_000)
    keys = keys.set_column(1, "part", pa.array(np.full(4_000, 7)))
    counts = np.bincount(partitions_of(numbered(2, "iceberg", ("part",)), keys, 8), minlength=8)
    assert sorted(np.flatnonzero(counts)) in ([0, 1, 2, 3], [4, 5, 6, 7])
    assert counts[counts > 0].min() > 800


def test_equal_keys_are_of_one_task_however_they_are_batched(rng):
    keys = many(rng, 2_000)
    twice = pa.concat_batches([keys, keys.take(pa.array(rng.sample(range(2_000), 2_000)))])
    for buckets, tasks in rng.sample(PAIRS, 40):
        partitioner = numbered(buckets, "fluss", ("part",))
        found = partitions_of(partitioner, twice, tasks).tolist()
        task_of = dict(zip(zip(*(c.to_pylist() for c in keys.columns), strict=True), found, strict=False))
        again = zip(*(c.to_pylist() for c in twice.slice(2_000).columns), strict=True)
        assert [task_of[key] for key in again] == found[2_000:]
        cut = rng.randrange(1, 3_999)
        parts = [partitions_of(partitioner, part, tasks) for part in (twice.slice(0, cut), twice.slice(cut))]
        assert np.concatenate(parts).tolist() == found


def test_another_process_gives_the_same(rng, tmp_path):
    chosen = [rng.choice(CASES) for _ in range(3)]
    columns = [case.column([case.draw(rng) for _ in range(100)]) for case in chosen]
    batch = pa.RecordBatch.from_arrays(columns, ["a", "b", "c"])
    with pa.ipc.new_file(tmp_path / "keys", batch.schema) as file:
        file.write(batch)
    asked = [(portable_text(numbered(buckets, "fluss", ("b", "a"))), tasks) for buckets, tasks in rng.sample(PAIRS, 30)]
    script = """
import json, sys
import pyarrow as pa
from fluss_lab.lookup.portable import partitioner_of
keys = pa.ipc.open_file(sys.argv[1]).get_batch(0)
asked = json.load(sys.stdin)
print(json.dumps([partitioner_of(text).partition(keys, tasks).to_pylist() for text, tasks in asked]))
"""
    call = [sys.executable, "-c", script, str(tmp_path / "keys")]
    environment = {**os.environ, "PYTHONHASHSEED": str(rng.randrange(1, 2**32))}
    said = subprocess.run(call, input=json.dumps(asked), capture_output=True, text=True, check=True, env=environment)
    assert json.loads(said.stdout) == [
        partitions_of(partitioner_of(text), batch, tasks).tolist() for text, tasks in asked
    ]


# -- of tables ---------------------------------------------------------------------------------------------------------


def test_a_table_says_how_its_rows_are_bucketed():
    columns = {"month": "string", "id": "bigint", "name": "string"}
    partitioned = make_descriptor(columns, primary_key=["id", "month"], partitioned_by=["month"], buckets=4)
    assert BucketPartitioner.of(partitioned) == BucketPartitioner(("id",), 4, "iceberg")
    two = make_descriptor(columns, primary_key=["id", "name"], buckets=3)
    assert BucketPartitioner.of(two) == BucketPartitioner(("id", "name"), 3, "fluss")
    assert BucketPartitioner.of(two).is_deterministic()
    with pytest.raises(UnsupportedError, match="without a bucket key has its rows in any bucket"):
        BucketPartitioner.of(make_descriptor(columns, buckets=3))


def test_it_travels():
    partitioner = numbered(5, "fluss", ("a", "b"))
    assert partitioner_of(portable_text(partitioner)) == partitioner
