"""What Spark reads of random histories is what the model says: rows at any point, the log, its net changes."""

import random

import pytest

from tests.across.program import Step
from tests.across.walk import SPARK_LOOKS, Walker, random_program
from tests.campaigns.across import in_spark

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def with_spark(rng, changes, every):
    """Return a random program with Spark's looks after every so many changes, and none by others."""
    found = []
    for number, step in enumerate(random_program(rng, changes, looks=0), start=1):
        found.append(step)
        if number % every == 0:
            found += [Step(name, rng.randrange(1 << 30)) for name in SPARK_LOOKS]
    return tuple(found)


@pytest.mark.parametrize(("kind", "sort"), [("log_parts", "usual"), ("log_parts", "small"), ("pk_parts", "usual")])
def test_spark_agrees_with_the_model(spark, seed, kind, sort):
    Walker(kind, sort, spark=in_spark(spark)).check(with_spark(random.Random(seed), 20, every=7), shrink_s=120)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["log", "log_parts", "pk", "pk_parts", "pk_prefix", "pk_types"])
@pytest.mark.parametrize("sort", ["usual", "late", "equality", "small"])
def test_spark_agrees_with_the_model_for_long(spark, seed, kind, sort):
    rng = random.Random(seed)
    for _ in range(3):
        Walker(kind, sort, spark=in_spark(spark)).check(with_spark(rng, 60, every=4))
