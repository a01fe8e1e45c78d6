"""Tierers killed at every failpoint over other people's catalogs and an object store: nothing is lost, nothing twice."""

import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.beyond.backends import HISTORIES
from tests.crash.scene import TAKEOVER, Scene, points_of
from tests.crash.test_lake_kill import killed_everywhere

pytestmark = [pytest.mark.beyond, pytest.mark.slow]

#: Points that only writes to this machine's file systems pass.
LOCAL_ONLY = {"lake.commit.after_metadata"}


#: Where the catalog chooses a table's location, no files are looked for that nothing refers to.
NO_ORPHANS = {"rest"}


@pytest.fixture(scope="module", params=HISTORIES)
def backend(request):
    return request.param


@pytest.fixture(scope="module")
def cluster(backend, backends, tmp_path_factory):
    options = backends.cluster(backend, tmp_path_factory.mktemp("beyond"))
    with EmbeddedCluster(options={**TAKEOVER, **options}) as embedded:
        yield embedded


@pytest.mark.parametrize("kind", ["log_parts", "pk"])
def test_killed_anywhere_is_made_good(cluster, backend, seed, kind):
    scene = Scene(cluster, kind, seed, f"{kind}_killed")
    orphans = backend not in NO_ORPHANS
    points = [point for point in points_of(scene.history.kind) if point not in LOCAL_ONLY]
    points = [point for point in points if orphans or not point.startswith("maintenance.orphans")]
    killed_everywhere(scene, 1, points, orphans=orphans)
