"""A cluster whose clock the test moves, for modules that need no other."""

import pytest

from fluss_lab.testing import EmbeddedCluster, MockClock
from tests.unit.read.kit import OPTIONS


@pytest.fixture(scope="module")
def clock():
    return MockClock()


@pytest.fixture(scope="module")
def cluster(clock):
    with EmbeddedCluster(options=OPTIONS, clock=clock) as running:
        yield running
