"""A cluster with a lake for each test of tiering, and no failpoint left armed."""

from collections.abc import Iterator

import pytest

from fluss_lab.testing import EmbeddedCluster
from tests.unit.tiering.kit import TAKEOVER, Tables


@pytest.fixture
def tables() -> Iterator[Tables]:
    with EmbeddedCluster(options=TAKEOVER) as cluster:
        yield Tables(cluster)
