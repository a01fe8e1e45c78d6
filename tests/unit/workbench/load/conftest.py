"""A lab in this process."""

import pytest

from fluss_lab.testing import EmbeddedCluster
from fluss_lab.workbench import Lab


@pytest.fixture(scope="package")
def lab():
    with EmbeddedCluster() as cluster:
        yield Lab(cluster.connection, folder=None, attachment=None, place={})


@pytest.fixture
def path(request):
    return f"db.t{abs(hash(request.node.nodeid))}"
