"""A cluster, and sinks into its tables."""

import pytest

from fluss_lab.testing import EmbeddedCluster, MockClock
from tests.unit.spark.sink.sink_kit import OPTIONS, Sink


@pytest.fixture(scope="module")
def clock():
    return MockClock()


@pytest.fixture(scope="module")
def cluster(clock):
    with EmbeddedCluster(options=OPTIONS, clock=clock, lake=False) as running:
        running.connection.admin().create_database("db")
        yield running


@pytest.fixture
def make(cluster, tmp_path):
    return lambda **options: Sink(cluster, tmp_path / "checkpoint", **options)
