"""Which shuffle a join gets, and why: each rule, and all combinations against a table."""

from itertools import product

import pyarrow as pa
import pytest

from fluss_lab.errors import InvalidError, InvalidRequestError
from fluss_lab.lookup import LookupTableSource, SupportsLookupCustomShuffle
from fluss_lab.lookup.key_cast import KeyCasts
from fluss_lab.lookup.shuffle_plan import CUSTOM, HASH, NONE, StreamTraits, plan_shuffle
from tests.unit.lookup.portables import Constant


class Spread(Constant):
    """Says that it is not deterministic."""

    def is_deterministic(self):
        return False


class Plain(LookupTableSource):
    """Has rows, and no partitioner."""

    name = "shop.plain"
    schema = None
    keys: tuple[str, ...] = ()

    def lookup_function(self, context):
        raise NotImplementedError

    def bucket_keys(self):
        return self.keys


class Sharded(Plain, SupportsLookupCustomShuffle):
    """Has the partitioner that a test wants; asked for it only where it may be."""

    name = "shop.sharded"

    def __init__(self, partitioner, keys=("a",)):
        self.partitioner, self.keys, self.asked = partitioner, keys, 0

    def get_partitioner(self):
        self.asked += 1
        if isinstance(self.partitioner, Exception):
            raise self.partitioner
        return self.partitioner


RIGHT = Sharded(Constant(0))
KEYS = pa.schema([("a", pa.int32()), ("b", pa.int32())])
EXACT = KeyCasts(KEYS)


def plan_of(source=RIGHT, *, tasks=4, keys=("a", "b"), casts=EXACT, **traits):
    return plan_shuffle(source, keys, casts, StreamTraits(**traits), tasks=tasks)


def planned(source=RIGHT, **changes):
    plan = plan_of(source, **changes)
    return plan.kind, plan.reason


# -- the rules ---------------------------------------------------------------------------------------------------------


def test_a_custom_shuffle_is_done_where_nothing_is_against_it():
    plan = plan_of()
    assert (plan.kind, plan.tasks, plan.partitioner) == ("custom", 4, RIGHT.partitioner)
    assert plan.text == "custom shuffle: Constant, 4 tasks"
    assert plan_of(tasks=1).text == "custom shuffle: Constant, 1 task"


def test_without_being_asked_for_there_is_none():
    plan = plan_of(tasks=None)
    assert (plan.kind, plan.tasks, plan.partitioner) == ("none", None, None)
    assert plan.text == "no shuffle: not asked for"


def test_a_source_without_the_ability_gets_its_input_by_join_keys():
    plan = plan_of(Plain())
    assert (plan.kind, plan.tasks, plan.partitioner) == ("hash", 4, None)
    assert plan.text == "hash shuffle: shop.plain has no partitioner of its own"


def test_join_keys_that_do_not_cover_the_bucket_keys():
    source = Sharded(Constant(0), ("c", "a"))
    assert planned(source) == ("hash", "the join keys (a, b) do not cover the bucket keys (c, a)")
    assert source.asked == 0
    assert planned(Sharded(Constant(0), ("b", "a")))[0] == "custom"
    assert planned(Sharded(Constant(0), ()))[0] == "custom"


def test_updates_that_are_to_be_resolved():
    why = ("hash", "updates may find other rows later, and are to be resolved (TRY_RESOLVE)")
    assert planned(is_updating=True, is_moving=True, updates_matter=True) == why
    for but in ("is_updating", "is_moving", "updates_matter"):
        flags = dict.fromkeys(("is_updating", "is_moving", "updates_matter"), True) | {but: False}
        assert planned(**flags)[0] == "custom"


def test_keys_that_the_source_s_type_has_not():
    casts = KeyCasts.of(pa.schema([("a", pa.int64()), ("b", pa.int32())]), KEYS)
    assert planned(casts=casts) == ("hash", "the type of a has not all values of the stream's")


def test_a_source_that_wants_its_input_as_it_is():
    assert planned(Sharded(None)) == ("none", "shop.sharded wants its input distributed as it is")


def test_a_partitioner_that_is_not_deterministic_is_for_input_without_updates():
    assert planned(Sharded(Spread(0)), is_updating=True) == (
        "hash",
        "Spread is not deterministic, and the input has updates",
    )
    plan = plan_of(Sharded(Spread(0)))
    assert (plan.kind, plan.is_deterministic, plan_of().is_deterministic) == ("custom", False, True)


# -- what is wrong -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [0, -1, True, 1.5])
def test_a_number_of_tasks_that_cannot_be(tasks):
    with pytest.raises(InvalidRequestError, match=r"join with shop\.sharded: tasks: expected at least 1, found"):
        planned(tasks=tasks)


def test_what_a_source_raises_names_it():
    with pytest.raises(InvalidError, match=r"test_shuffle_plan\.Sharded\.get_partitioner raised OSError: no disk"):
        planned(Sharded(OSError("no disk")))


# -- all together --------------------------------------------------------------------------------------------------------

#: Rules in their order: what must be so (True, False, or None: whatever), and the shuffle. The inputs: asked for, able, covered,
#: updating, the point moves, to be resolved, lossy, partitioner given, deterministic.
RULES = [
    ((False, None, None, None, None, None, None, None, None), "none"),
    ((True, False, None, None, None, None, None, None, None), "hash"),
    ((True, True, False, None, None, None, None, None, None), "hash"),
    ((True, True, True, True, True, True, None, None, None), "hash"),
    ((True, True, True, None, None, None, True, None, None), "hash"),
    ((True, True, True, None, None, None, False, False, None), "none"),
    ((True, True, True, True, None, None, False, True, False), "hash"),
    ((True, True, True, False, None, None, False, True, False), "custom"),
    ((True, True, True, None, None, None, False, True, True), "custom"),
]


def by_table(case):
    for pattern, kind in RULES:
        if all(wanted is None or wanted == found for wanted, found in zip(pattern, case, strict=True)):
            return kind
    raise AssertionError(case)


def test_every_combination_is_as_the_table_has_it():
    seen = set()
    for case in product([False, True], repeat=9):
        asked, able, covered, updating, moves, resolves, lossy, given, deterministic = case
        partitioner = (Constant(0) if deterministic else Spread(0)) if given else None
        source = Sharded(partitioner, ("a",) if covered else ("z",)) if able else Plain()
        plan = plan_of(
            source,
            tasks=7 if asked else None,
            keys=("a",),
            casts=KeyCasts(KEYS, ("a",) if lossy else ()),
            is_updating=updating,
            is_moving=moves,
            updates_matter=resolves,
        )
        assert plan.kind == by_table(case), case
        assert plan.kind in (NONE, HASH, CUSTOM)
        assert plan.tasks == (None if plan.kind == "none" else 7)
        assert plan.partitioner is (partitioner if plan.kind == "custom" else None)
        assert plan.reason
        assert not plan.reason.endswith(".")
        seen.add(plan.reason)
    # One for each rule; the last is of two partitioners.
    assert len(seen) == 9
