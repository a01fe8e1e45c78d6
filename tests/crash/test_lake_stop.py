"""Two tierers with one table: one is stopped anywhere, the other takes over, the first wakes up and commits nothing (P5)."""

import pytest

from fluss_lab.errors import ConflictError
from fluss_lab.testing import EmbeddedCluster
from tests.crash.scene import CUT, TAKEOVER, Scene, points_of, reaches
from tests.crash.stale import Stale
from tests.readers import foreign
from tests.readers.engines import QUICK

#: Stopped there, a tierer goes on to expire what nothing referred to when it held the table.
TIDYING = ("maintenance.expire",)

#: Between the plan of a round and its commit, as the lake is told of it.
BEFORE_COMMIT = (
    "tiering.plan.after",
    "tiering.write.after",
    "tiering.lake_commit.before",
    "lake.commit.before",
    "lake.manifest_list.after",
    "lake.send.before",
)


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(options=TAKEOVER) as embedded:
        yield embedded


def stopped(scene, point):
    """Return a tierer that is stopped at a point, in whichever kind of round passes it."""
    for setup in reaches(point):
        if (process := setup.stop(scene, point)) is not None:
            return process
    raise AssertionError(f"no setup passes failpoint {point}: add one to `reaches`")


def taken_over(scene, point):
    """One tierer stops, another takes over, the first goes on: nothing of the lake table changes any more."""
    stale = stopped(scene, point)
    try:
        scene.write()
        scene.tier()
        scene.check(complete=True)
        before = scene.audit.table()
        stale.resume()
        stale.wait()
        check_untouched(before, scene.audit.table(), tidies=point.startswith(TIDYING))
    finally:
        stale.kill()
    scene.check(complete=True, engines={})


def check_untouched(before, after, *, tidies):
    """Nothing was committed; what only tidies up may still take away what nobody needs."""
    assert after.metadata.current_snapshot_id == before.metadata.current_snapshot_id
    ids = [{each.snapshot_id for each in table.metadata.snapshots} for table in (before, after)]
    assert ids[1] <= ids[0]
    assert tidies or after.metadata_location == before.metadata_location


def stopped_everywhere(scene, without=()):
    scene.write(3)
    scene.tier()
    points = [point for point in points_of(scene.history.kind) if point not in without]
    scene.rng.shuffle(points)
    for point in points:
        try:
            taken_over(scene, point)
        except BaseException as error:
            error.add_note(f"stopped at {point}")
            raise
    scene.write()
    scene.finish()


@pytest.mark.slow
def test_a_tierer_that_wakes_up_late_commits_nothing(cluster, seed):
    """All points but one that takes twenty rounds to reach, a step from another."""
    stopped_everywhere(Scene(cluster, "pk", seed, "pk_stopped"), {"maintenance.compact.after_deletes"})


def test_a_late_commit_is_refused_by_its_planned_snapshot_and_by_nothing_else(cluster, seed):
    """The negative control: were the commit not conditional on the planned snapshot, records would be there twice."""
    scene = Scene(cluster, "pk", seed, "pk_stale")
    scene.write(3)
    stale = Stale(cluster.connection, scene.history.info)
    scene.tier()
    with pytest.raises(ConflictError):
        stale.commit(stale.planned_id)
    scene.check(complete=True)
    scene.write(3)
    stale = Stale(cluster.connection, scene.history.info)
    scene.tier()
    scene.check(complete=True)
    stale.commit(stale.lake.current_snapshot_id())
    with pytest.raises(AssertionError, match=r"twice|more than once|two records"):
        scene.check()


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, CUT], ids=["whole", "cut"])
def test_somebody_compacts_while_a_round_is_under_way(cluster, seed, options):
    """The round places its deletes in the new files, or is planned again; either way each is where its row is."""
    scene = Scene(cluster, "pk", seed, f"pk_compacted_{len(options)}")
    scene.write(3)
    scene.tier()
    for point in BEFORE_COMMIT:
        scene.write(2)
        process = scene.stopped_at(point, **options)
        assert process is not None, point
        try:
            foreign.compact(scene.audit.table(), scene.rng)
            process.resume()
            assert process.wait() == 0, (point, process.report())
        finally:
            process.kill()
        scene.check(complete=True, engines=QUICK)
    scene.write()
    scene.finish()


@pytest.mark.campaign
@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize("kind", ["log_parts", "log_types", "pk_parts", "pk_moments", "pk_versioned"])
def test_a_tierer_that_wakes_up_late_commits_nothing_for_long(cluster, seed, kind, turn):
    stopped_everywhere(Scene(cluster, kind, seed + turn, f"{kind}_stopped_{turn}"))
