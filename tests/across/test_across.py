"""One random history, one model, every reader: whatever happens to a table, each of them reads what is true."""

import os
import random

import pytest

from tests.across.walk import Walker, random_program
from tests.across.world import SORTS
from tests.campaigns.across import USUAL
from tests.crash.kinds import KEYED, LOGS

STEPS = 24


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["log", "log_parts", "log_edges", "pk", "pk_parts", "pk_prefix", "pk_nested", "pk_edges"]
)
def test_all_readers_agree_with_the_model(seed, kind):
    Walker(kind).check(random_program(random.Random(seed), STEPS), shrink_s=120)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "sort"), [("log", "late"), ("pk", "late"), ("pk", "equality")])
def test_all_readers_agree_on_tables_of_other_sorts(seed, kind, sort):
    Walker(kind, sort).check(random_program(random.Random(seed), STEPS), shrink_s=120)


@pytest.mark.campaign
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("kind", [*LOGS, *KEYED])
def test_all_readers_agree_with_the_model_for_long(seed, kind, sort):
    rng = random.Random(seed)
    for _ in range(int(os.environ.get("FLUSS_LAB_WALKS") or (8 if kind in USUAL else 2))):
        Walker(kind, sort).check(random_program(rng, 100, looks=3))
