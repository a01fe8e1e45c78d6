"""Tierers killed between any two steps, again and again during recovery, with a reader beside them (P2, P3, P6).

Each failpoint that stands in the source is passed: one that no setup reaches fails its test.
"""

import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.crash.scene import HOURS_AHEAD_MS, TAKEOVER, Scene, Watcher, points_of, reaches
from tests.readers.walk import strays

#: So many kills in a row, each during the recovery from the one before.
IN_A_ROW = 6


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(options=TAKEOVER) as embedded:
        yield embedded


def killed_everywhere(scene, times, points=None, *, orphans=True):
    """Kill at every point, so many times, in random order; a few in a row, then all is made good, and `orphans` removed."""
    chosen = (points or points_of(scene.history.kind)) * times
    scene.rng.shuffle(chosen)
    scene.write(3)
    scene.tier()
    while chosen:
        row, chosen = chosen[:IN_A_ROW], chosen[IN_A_ROW:]
        for point in row:
            try:
                reach(scene, point)
                scene.check()
            except BaseException as error:
                error.add_note(f"killed at {point} of {row}")
                raise
        scene.write()
        with Watcher(scene):
            scene.tier()
        scene.check(complete=True)
    scene.write()
    scene.finish()
    if not orphans:
        return
    scene.maintain("orphans", ahead_ms=HOURS_AHEAD_MS)
    assert strays(scene.check(complete=True)) == (set(), set())


def reach(scene, point):
    """Kill a tierer at a point, in whichever kind of round passes it."""
    for setup in reaches(point):
        if setup.kill(scene, point):
            return
    raise AssertionError(f"no setup passes failpoint {point}: add one to `reaches`")


@pytest.mark.slow
def test_killed_anywhere_is_made_good(cluster, seed):
    killed_everywhere(Scene(cluster, "pk", seed, "pk_killed"), 1)


@pytest.mark.campaign
@pytest.mark.parametrize("turn", range(5))
@pytest.mark.parametrize("kind", ["log_parts", "log_types", "pk_parts", "pk_moments", "pk_types", "pk_versioned"])
def test_killed_anywhere_is_made_good_for_long(cluster, seed, kind, turn):
    killed_everywhere(Scene(cluster, kind, seed + turn, f"{kind}_killed_{turn}"), 2)
