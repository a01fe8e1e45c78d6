"""Partitions dropped from the lake and made again under the same name, between compactions and expiries."""

import random

import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.crash.scene import DAYS_AHEAD_MS, HOURS_AHEAD_MS, TAKEOVER, Scene
from tests.readers import foreign
from tests.readers.lake_files import tiered_ends


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(options=TAKEOVER) as embedded:
        yield embedded


def test_another_partition_of_the_name_does_not_get_the_replay_start_of_the_first(cluster, seed):
    scene = Scene(cluster, "pk_parts", seed, "pk_made_again")
    for _ in range(3):
        scene.write(2)
        scene.tier()
    scene.maintain("compact")
    for _ in range(3):
        scene.history.drop_partition(lake=True)
    for _ in range(2):
        scene.write(1)
        scene.tier()
    scene.check(complete=True)
    scene.maintain("expire", ahead_ms=DAYS_AHEAD_MS)
    scene.check(complete=True)
    for _ in range(2):
        scene.write(2)
        scene.tier()
        scene.maintain("expire", ahead_ms=HOURS_AHEAD_MS)
    scene.check(complete=True)


def test_expiry_leaves_a_snapshot_that_tells_how_far_each_bucket_is_tiered(cluster, seed):
    """The one of a dropped partition does not, nor do those of others."""
    scene = Scene(cluster, "pk_parts", seed, "pk_reported")
    for _ in range(2):
        scene.write(3)
        scene.tier()
        foreign.compact(scene.audit.table(), random.Random(seed))
    # What foreign compactions retire is kept by tags; this round is kept by nothing else.
    scene.write(3)
    scene.tier()
    scene.history.drop_partition(lake=True)
    before = tiered_ends(scene.audit.table())
    scene.maintain("expire", ahead_ms=HOURS_AHEAD_MS)
    assert tiered_ends(scene.audit.table()) == before
    scene.check()
    scene.write(2)
    scene.finish()
