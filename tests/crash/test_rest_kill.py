"""Tierers killed around their commits to a catalog that is a server: one that hides history, and one that the commit reaches late."""

import pytest

from fluss_lab.errors import CommitConflictError, CommitOutcomeUnknownError, LakeSnapshotNotFoundError
from fluss_lab.testing import EmbeddedCluster, wait_until
from fluss_lab.tiering.repair.lake_repair import adopt
from tests.crash.hidden_history import NewestAudit
from tests.crash.scene import PATIENCE_S, TAKEOVER, Scene
from tests.readers import foreign
from tests.unit.lake.nessie_like_server import NessieLikeServer
from tools.beyond.fault_proxy import FaultProxy
from tools.beyond.faults import Hold, Repeat

#: From the plan on; what is dead at the first three has committed nothing.
AROUND = (
    "tiering.plan.after",
    "tiering.write.after",
    "lake.send.before",
    "lake.send.after",
    "tiering.lake_commit.after",
    "tiering.fluss_commit.after",
)
#: While a predecessor is made good.
AGAIN = ("tiering.register.after", "tiering.fence.after")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with NessieLikeServer(tmp_path_factory.mktemp("rest"), hides_history=True) as found:
        yield found


@pytest.fixture(scope="module")
def proxy(server):
    with FaultProxy(server.port) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(server, proxy):
    lake = {f"datalake.iceberg.{key}": value for key, value in server.lake_options(proxy.endpoint).items()}
    with EmbeddedCluster(options={**TAKEOVER, **lake}) as embedded:
        yield embedded


def scene_of(cluster, seed, name):
    scene = Scene(cluster, "log_parts", seed, name)
    scene.audit = NewestAudit(scene.history)
    return scene


@pytest.mark.slow
def test_a_tierer_killed_anywhere_around_its_commit_over_a_catalog_that_hides_history(cluster, seed):
    """From the first round on, each is made good by the next one, though that may be killed too."""
    scene = scene_of(cluster, seed, "hidden")
    for point in AROUND:
        scene.write()
        assert scene.kill_at(point), point
        scene.check()
    scene.tier()
    scene.check(complete=True)
    for point in AGAIN:
        scene.write()
        assert scene.kill_at("tiering.lake_commit.after")
        assert scene.kill_at(point), point
    scene.finish()


def test_a_compaction_by_others_that_hides_how_far_the_table_is_tiered_is_adopted(cluster, seed):
    scene = scene_of(cluster, seed, "adopted")
    scene.write()
    scene.tier()
    foreign.compact(scene.audit.table(), scene.rng)
    scene.write()
    with pytest.raises(LakeSnapshotNotFoundError, match=r"repair db\.adopted --adopt"):
        scene.tier()
    adopt(cluster.connection, scene.storage, scene.history.path)
    scene.finish()


def arrives_late(scene, proxy):
    """Have commits arrive when their tierers are dead, after the next round and before it: the records are there once either way."""
    path = f"/tables/{scene.history.path.table}$"
    scene.write()
    scene.tier()
    for next_round_first in (True, False):
        scene.write()
        held = proxy.arm(Hold(), method="POST", path=path)
        process = scene.tierer()
        try:
            assert held.held.wait(PATIENCE_S)
        finally:
            process.kill()
        late = next(each for each in reversed(proxy.requests) if each.path.endswith(path[:-1]) and not each.status)
        if next_round_first:
            scene.tier()
            scene.check(complete=True)
        proxy.disarm()
        wait_until(lambda late=late: late.status, PATIENCE_S)
        assert late.status == (409 if next_round_first else 200)
        scene.write()
        scene.finish()


def answers_old(scene, proxy):
    """Have the catalog answer with an old copy of the table, of before a commit and of before one that is registered."""
    path = f"/tables/{scene.history.path.table}$"
    scene.write()
    scene.tier()
    old = proxy.arm(Repeat(), method="GET", path=path, times=None)
    for error in (CommitOutcomeUnknownError, CommitConflictError):
        scene.write()
        with pytest.raises(error):
            scene.tier()
    proxy.disarm()
    scene.check()
    scene.write()
    scene.finish()
    proxy.arm(Repeat(), method="GET", path=path, times=None).answers.update(old.answers)
    scene.write()
    with pytest.raises(LakeSnapshotNotFoundError, match="an old copy"):
        scene.tier()
    with pytest.raises((CommitConflictError, LakeSnapshotNotFoundError)):
        adopt(scene.cluster.connection, scene.storage, scene.history.path)
    proxy.disarm()
    scene.finish()


def test_a_commit_that_arrives_when_its_tierer_is_dead(cluster, proxy, seed):
    arrives_late(scene_of(cluster, seed, "late"), proxy)


def test_a_catalog_that_answers_with_old_copies(cluster, proxy, seed):
    answers_old(scene_of(cluster, seed, "old"), proxy)
