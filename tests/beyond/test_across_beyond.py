"""Random histories over other people's catalogs and an object store: every reader reads what is true."""

import random

import pytest

from tests.across.walk import Walker, random_program
from tests.beyond.backends import HISTORIES, KINDS

pytestmark = [pytest.mark.beyond, pytest.mark.slow]

STEPS = 16
#: Nessie shows the newest snapshot only, keeps no tags, and says of all tables that nobody but it removes files: nothing expires there, no
#: files are orphans, what another engine compacted asks for a repair, and readers of older snapshots are not served while it does.
NOT_OVER_NESSIE = ("expire", "expire_tags", "orphans", "foreign", "moving")


@pytest.mark.parametrize("kind", ["log", "log_parts", "pk", "pk_parts"])
@pytest.mark.parametrize("backend", KINDS)
def test_all_readers_agree_with_the_model(seed, backends, backend, kind):
    walker = Walker(kind, lake=lambda folder: backends.cluster(backend, folder))
    without = NOT_OVER_NESSIE if backend == "nessie" else ()
    walker.check(random_program(random.Random(seed), STEPS, without=without), shrink_s=60)


@pytest.mark.campaign
@pytest.mark.parametrize("sort", ["late", "equality", "small"])
@pytest.mark.parametrize("kind", ["log_parts", "pk", "pk_parts", "pk_prefix"])
@pytest.mark.parametrize("backend", HISTORIES)
def test_all_readers_agree_with_the_model_for_long(seed, backends, backend, kind, sort):
    walker = Walker(kind, sort, lake=lambda folder: backends.cluster(backend, folder))
    walker.check(random_program(random.Random(seed), 60), shrink_s=240)
