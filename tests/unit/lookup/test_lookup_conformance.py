"""The conformance suite of lookup sources: run by the one for tests, and shown sources that break it."""

import random

import pyarrow as pa
import pytest

from fluss_lab.errors import FlussError
from fluss_lab.testing.conformance.lookups import LookupConformance, LookupKit
from fluss_lab.testing.sharded_rows import ShardedRows
from tests.unit.lookup import lawbreakers
from tests.unit.lookup.lawbreakers import Lawbreaker

pytestmark = pytest.mark.slow

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("shop", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("tags", pa.list_(pa.string())),
    ]
)


def rows_of(numbers, shops=7, cents=0):
    return pa.Table.from_pylist(
        [
            {
                "id": number,
                "shop": None if number % 11 == 0 else f"s{number % shops}",
                "price": None if number % 5 == 0 else f"{number}.{cents:02}",
                "tags": ["a"] * (number % 3),
            }
            for number in numbers
        ],
        schema=SCHEMA.set(2, pa.field("price", pa.string())),
    ).cast(SCHEMA)


def kit_of(folder, kind=ShardedRows, unique=("id",), rows=None):
    made = rows_of(range(60)) if rows is None else rows
    ShardedRows.create(folder, made, shard_by=["id"], shards=4, unique=unique)
    absent = rows_of(range(100, 120)).set_column(1, SCHEMA.field("shop"), pa.array(["nobody's"] * 20))
    return LookupKit(kind(folder), made, absent)


def changed(kit):
    rows = rows_of(range(20, 80), cents=50)
    kit.source.put(rows)
    return rows


class TestShardedRows(LookupConformance):
    """Rows with a unique key, by which they are sharded, and another column."""

    join_keys = (["id"], ["shop"], ["id", "shop"])

    def make_kit(self, folder):
        return kit_of(folder)

    def change(self, kit):
        return changed(kit)


class TestShardedRowsWithoutUniqueKeys(LookupConformance):
    """Rows of which several have a key."""

    join_keys = (["id"], ["shop"])

    def make_kit(self, folder):
        return kit_of(folder, unique=(), rows=rows_of([*range(40), *range(20), 3, 3]))


class TestOneShard(LookupConformance):
    """A source that wants its input as it is."""

    join_keys = (["shop", "price"],)

    def make_kit(self, folder):
        rows = rows_of(range(30))
        ShardedRows.create(folder, rows, shard_by=["shop"], shards=1)
        return LookupKit(ShardedRows(folder), rows, rows_of(range(100, 120)))


class Law(LookupConformance):
    """The suite as it is asked about a lawbreaker."""

    join_keys = (["id"], ["shop"])

    def make_kit(self, folder):
        raise NotImplementedError

    def change(self, kit):
        return changed(kit)


#: What a broken promise raises: of the suite, of the checks that it uses, or of the source itself.
BROKEN = (AssertionError, FlussError, OSError, RuntimeError)
LAWS = sorted(name for name in vars(LookupConformance) if name.startswith("test_"))


def check(folder, kind, law):
    """Ask one test of the suite about a source."""
    test = getattr(Law(), law)
    given = {"kit": kit_of(folder / "source", kind), "rng": random.Random(1), "tmp_path": folder}
    test(**{name: given[name] for name in test.__code__.co_varnames[1 : test.__code__.co_argcount]})


def source_with(**attributes):
    return type("Broken", (Lawbreaker,), attributes)


EACH = "test_each_key_finds_its_rows"
COLUMNS = "test_columns_come_as_they_are_wanted"
BATCHES = "test_batches_of_any_size_find_the_same"
NOTHING = "test_only_keys_without_rows"
CLOSED = "test_a_function_is_closed_at_any_time"
ELSEWHERE = "test_it_works_in_another_process"
RANGE = "test_partitions_are_in_range_and_of_the_keys_alone"
TASKS = "test_tasks_of_a_custom_shuffle_find_what_one_task_finds"
ANY = "test_without_a_custom_shuffle_any_task_finds_any_row"
POINT = "test_a_point_stays_what_it_was"
KEPT = "test_what_is_kept_for_the_next_micro_batch_is_never_wrong"
SAYS = "test_it_describes_itself"


@pytest.mark.parametrize("law", LAWS)
def test_a_source_that_breaks_nothing_passes(tmp_path, law):
    check(tmp_path, Lawbreaker, law)


@pytest.mark.parametrize(
    ("attributes", "law"),
    [
        ({"function": lawbreakers.Backwards}, EACH),
        ({"function": lawbreakers.Misaligned}, EACH),
        ({"function": lawbreakers.OnceEach}, EACH),
        ({"function": lawbreakers.FirstRow}, EACH),
        ({"function": lawbreakers.NullRows}, NOTHING),
        ({"function": lawbreakers.NoEmptyBatch}, BATCHES),
        ({"function": lawbreakers.NoRowNoColumns}, NOTHING),
        ({"function": lawbreakers.SortedColumns}, COLUMNS),
        ({"function": lawbreakers.Forgetful}, BATCHES),
        ({"function": lawbreakers.ClosesOnce}, CLOSED),
        ({"function": lawbreakers.CountsInHalves}, CLOSED),
        ({"function": lawbreakers.LeavesOut}, COLUMNS),
        ({"function": lawbreakers.ShowsSecret}, ELSEWHERE),
        ({"function": lawbreakers.NeedsThisProcess}, ELSEWHERE),
        ({"function": lawbreakers.NextShards}, TASKS),
        ({"function": lawbreakers.AlwaysOwnOnly}, ANY),
        ({"function": lawbreakers.NewestOnly}, POINT),
        ({"function": lawbreakers.NumberedPoint}, POINT),
        ({"function": lawbreakers.KeepsForever}, KEPT),
        ({"function": lawbreakers.NeedsTheFolder}, KEPT),
        ({"function": lawbreakers.OtherEachTime}, SAYS),
        ({"partitioner": lawbreakers.OutOfRange}, RANGE),
        ({"partitioner": lawbreakers.ByChance}, RANGE),
        ({"partitioner": lawbreakers.ByPosition}, RANGE),
        ({"partitioner": lawbreakers.ByPythonsHash}, ELSEWHERE),
        ({"partitioner": lawbreakers.LongNumbers}, RANGE),
        ({"says": {"is_unique": True}}, "test_unique_is_what_is_unique"),
        ({"says": {"name": ""}}, SAYS),
        ({"says": {"describe": ""}}, SAYS),
        ({"says": {"bucket_keys": ("nr",)}}, SAYS),
    ],
    ids=lambda value: (
        next((getattr(each, "__name__", str(each)) for each in value.values()), "") if isinstance(value, dict) else ""
    ),
)
def test_a_source_that_breaks_a_promise_is_noticed(tmp_path, attributes, law):
    with pytest.raises(BROKEN):
        check(tmp_path, source_with(**attributes), law)
