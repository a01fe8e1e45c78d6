"""Random histories of lake tables: after every commit other people's engines read them as the model says (P2, P3, P4)."""

import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.crash.kinds import KEYED, LOGS
from tests.crash.scene import CUT, DAYS_AHEAD_MS, HOURS_AHEAD_MS, TAKEOVER, Scene
from tests.readers.engines import ENGINES
from tests.readers.walk import Walk

EQUALITY = {"table.datalake.delete-mode": "equality"}


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(options=TAKEOVER) as embedded:
        yield embedded


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["log_parts", "pk_parts", "pk_moments"])
def test_a_short_history(cluster, seed, kind):
    Walk(Scene(cluster, kind, seed, f"{kind}_short")).run(18)


@pytest.mark.slow
def test_every_kind_of_commit_once_and_every_engine(cluster, seed):
    scene = Scene(cluster, "pk_types", seed, "pk_types_engines")
    walk = Walk(scene, ENGINES)
    for options in ({}, CUT, {}):
        scene.write()
        scene.tier(**options)
    scene.maintain("compact")
    walk.check()
    scene.write()
    scene.history.add_column()
    scene.write()
    scene.tier()
    scene.maintain("expire", ahead_ms=HOURS_AHEAD_MS)
    walk.check()
    scene.maintain("expire", ahead_ms=DAYS_AHEAD_MS)
    walk.check()


@pytest.mark.slow
def test_the_events_of_equality_mode(cluster, seed):
    """Its state is read by stock Spark only, where that can be had."""
    Walk(Scene(cluster, "pk_parts", seed, "pk_equality", EQUALITY), without=["foreign compaction"]).run(18)


@pytest.mark.campaign
# DataFusion reads no bytes within a ROW.
@pytest.mark.parametrize("kind", [kind for kind in LOGS + KEYED if not kind.endswith("_nested")])
def test_a_long_history(cluster, seed, kind):
    Walk(Scene(cluster, kind, seed, f"{kind}_long"), ENGINES).run(150)
