"""Random histories over other people's catalogs and an object store: every reader reads what is true."""

import random

import pytest

from tests.across.walk import Walker, random_program
from tests.beyond.backends import HISTORIES

pytestmark = [pytest.mark.beyond, pytest.mark.slow]

STEPS = 16


@pytest.mark.parametrize("kind", ["log", "log_parts", "pk", "pk_parts"])
@pytest.mark.parametrize("backend", HISTORIES)
def test_all_readers_agree_with_the_model(seed, backends, backend, kind):
    walker = Walker(kind, lake=lambda folder: backends.cluster(backend, folder))
    walker.check(random_program(random.Random(seed), STEPS), shrink_s=60)


@pytest.mark.campaign
@pytest.mark.parametrize("sort", ["late", "equality", "small"])
@pytest.mark.parametrize("kind", ["log_parts", "pk", "pk_parts", "pk_prefix"])
@pytest.mark.parametrize("backend", HISTORIES)
def test_all_readers_agree_with_the_model_for_long(seed, backends, backend, kind, sort):
    walker = Walker(kind, sort, lake=lambda folder: backends.cluster(backend, folder))
    walker.check(random_program(random.Random(seed), 60), shrink_s=240)
