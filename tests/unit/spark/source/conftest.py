"""A cluster, tables in it, and streaming queries of them."""

import pytest

from fluss_lab.testing import EmbeddedCluster, MockClock
from tests.unit.read.kit import OPTIONS, ModelTable
from tests.unit.spark.streams import Query


@pytest.fixture(scope="module")
def clock():
    return MockClock()


@pytest.fixture(scope="module")
def cluster(clock):
    with EmbeddedCluster(options=OPTIONS, clock=clock) as running:
        yield running


@pytest.fixture
def make(cluster, clock, request):
    def make_table(**options):
        return ModelTable(cluster, clock, f"t{abs(hash(request.node.name))}", **options)

    return make_table


@pytest.fixture
def query(cluster):
    running = []

    def start(table, **options):
        running.append(Query(cluster, str(table.path), **options))
        return running[-1]

    yield start
    for each in running:
        each.close()
