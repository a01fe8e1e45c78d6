"""Tierers killed at every failpoint over other people's catalogs and an object store: nothing is lost, nothing twice."""

import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.beyond.backends import KINDS
from tests.crash.hidden_history import NewestAudit
from tests.crash.scene import TAKEOVER, Scene, points_of
from tests.crash.test_lake_kill import killed_everywhere

pytestmark = [pytest.mark.beyond, pytest.mark.slow]

#: Points that only writes to this machine's file systems pass.
LOCAL_ONLY = ("lake.commit.after_metadata",)
#: Beginnings of the names of points that nobody passes, by catalog. Where the catalog chooses a table's location, or says that nobody
#: but it removes files, none are looked for that nothing refers to; where it shows the newest snapshot only, none expires.
NEVER = {
    "rest": ("maintenance.orphans",),
    "nessie": (
        "maintenance.orphans",
        "maintenance.expire.before",
        "maintenance.expire.after_commit",
        "maintenance.expire.after_file",
    ),
}


@pytest.fixture(scope="module", params=KINDS)
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
    if backend == "nessie":
        scene.audit = NewestAudit(scene.history)
    never = (*LOCAL_ONLY, *NEVER.get(backend, ()))
    points = [point for point in points_of(scene.history.kind) if not point.startswith(never)]
    killed_everywhere(scene, 1, points, orphans="maintenance.orphans" not in never)
