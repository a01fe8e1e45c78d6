"""Lookups in both modes, at points of tables that were written since, equal the model there."""

import random

import pyarrow as pa
import pytest

from tests.crash.kinds import KEYED
from tests.unit.lookup.lookup_kit import MODES, check, found, opened, planned, random_keys, source_of, wanted

pytestmark = pytest.mark.slow

#: Beside the primary key, by what rows of a kind are looked up.
OTHER_KEYS = {
    "pk": [("id", "name")],
    "pk_parts": [("id",), ("p", "id")],
    "pk_prefix": [("g",), ("word", "g"), ("g", "name")],
    "pk_moments": [("d",), ("d", "n")],
}


def joins(kind_name, kind):
    return [kind.primary_key, *OTHER_KEYS.get(kind_name, [])]


@pytest.mark.parametrize("kind", KEYED)
def test_lookups_at_a_point_that_lies_back_equal_the_model_there(kind, make_keyed, seed, tmp_path):
    rng = random.Random(seed)
    table = make_keyed(kind, seed)
    table.write(rng.randint(1, 3))
    if rng.random() < 0.7:
        table.tier()
        table.write(rng.randint(0, 2))
    if rng.random() < 0.3:
        table.retain()
    moment = table.keep()
    functions = [
        planned(table, mode, names, rng.sample(table.history.columns, rng.randint(1, len(table.history.columns))))
        for names in joins(kind, table.kind)
        for mode in MODES
    ]
    table.write(rng.randint(0, 2))
    for function in functions:
        with opened(function, moment):
            check(table, function, moment, rng)
            table.write(rng.randint(0, 1))
            if rng.random() < 0.2:
                table.tier()
            check(table, function, moment, rng)


@pytest.mark.parametrize("kind", ["pk", "pk_parts", "pk_prefix", "pk_types"])
def test_functions_follow_the_points_of_micro_batches(kind, make_keyed, seed, tmp_path):
    rng = random.Random(seed)
    table = make_keyed(kind, seed)
    table.write(2)
    functions = [planned(table, mode, names) for names in joins(kind, table.kind) for mode in MODES]
    moments = []
    for _batch in range(5):
        table.write(rng.randint(0, 2))
        if rng.random() < 0.4:
            table.tier()
        # Now and then a micro-batch is tried again.
        moments.append(rng.choice(moments) if moments and rng.random() < 0.2 else table.keep())
        table.write(rng.randint(0, 1))
        for number, function in enumerate(functions):
            with opened(function, moments[-1], tmp_path / str(number)):
                check(table, function, moments[-1], rng)
                check(table, function, moments[-1], rng)
    assert all(len(list((tmp_path / str(number)).glob("*.arrow"))) <= 9 for number in range(len(functions)))


@pytest.mark.parametrize("kind", ["pk_by_int", "pk_by_string", "pk_parts", "pk_prefix"])
@pytest.mark.parametrize("mode", MODES)
def test_each_task_of_a_custom_shuffle_finds_the_rows_of_its_keys(kind, mode, make_keyed, seed):
    rng = random.Random(seed)
    table = make_keyed(kind, seed)
    table.write(3)
    table.tier()
    table.write()
    moment = table.keep()
    names = table.kind.primary_key
    tasks = rng.choice([1, 2, 3, 4, 6, 7])
    table.write()

    keys = random_keys(table, names, rng, 80)
    partitioner = source_of(table, mode).get_partitioner()
    whose = partitioner.partition(keys, tasks).to_numpy()
    rows = 0
    for task in range(tasks):
        own = keys.filter(pa.array(whose == task))
        function = planned(table, mode, names, tasks=tasks)
        with opened(function, moment, task=task, tasks=tasks):
            assert found(function, own) == wanted(table, moment, own, function.plan.columns)
            if mode == "full":
                buckets = partitioner.buckets_of(task, tasks)
                held = [row for row in table.expected(moment.stops) if row["__bucket"] in buckets]
                assert function.counters()["rows_cached"] == len(held)
                rows += len(held)
    assert mode == "remote" or rows >= len(table.expected(moment.stops))
