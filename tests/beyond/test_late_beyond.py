"""Commits that reach a catalog's server when their tierers are dead, and servers that answer with old copies of a table."""

import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.beyond.proxied import ProxiedLake
from tests.crash.hidden_history import NewestAudit
from tests.crash.scene import TAKEOVER, Scene
from tests.crash.test_rest_kill import answers_old, arrives_late

pytestmark = [pytest.mark.beyond, pytest.mark.slow]


@pytest.fixture(scope="module", params=["rest", "iceberg", "nessie"])
def lake(request, backends, tmp_path_factory):
    with ProxiedLake(backends, request.param, tmp_path_factory.mktemp("beyond")) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(lake, minio):
    straight = {"datalake.iceberg.s3.endpoint": minio.endpoint}
    with EmbeddedCluster(options={**TAKEOVER, **lake.options, **straight}) as embedded:
        yield embedded


def scene_of(cluster, kind, seed, name):
    scene = Scene(cluster, kind, seed, name, {"iceberg.commit.retry.min-wait-ms": "1"})
    scene.audit = NewestAudit(scene.history)
    return scene


@pytest.mark.parametrize("kind", ["log_parts", "pk"])
def test_a_commit_that_arrives_when_its_tierer_is_dead(cluster, lake, seed, kind):
    arrives_late(scene_of(cluster, kind, seed, f"{kind}_late"), lake.catalog)


def test_a_catalog_that_answers_with_old_copies(cluster, lake, seed):
    answers_old(scene_of(cluster, "pk", seed, "pk_old"), lake.catalog)
