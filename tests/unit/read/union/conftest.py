"""A cluster with primary-key tables."""

from collections.abc import Iterator

import pytest

from fluss_lab.testing import EmbeddedCluster, MockClock
from tests.unit.read.keyed_kit import OPTIONS, KeyedTable


@pytest.fixture(scope="module")
def keyed_clock() -> MockClock:
    return MockClock()


@pytest.fixture(scope="module")
def keyed_cluster(keyed_clock) -> Iterator[EmbeddedCluster]:
    client = {"client.scanner.log.fetch.max-bytes": "2kb"}
    with EmbeddedCluster(options=OPTIONS, clock=keyed_clock, client=client) as running:
        yield running


@pytest.fixture
def make_keyed(keyed_cluster, keyed_clock, numbers):
    def make(kind="pk", **properties) -> KeyedTable:
        return KeyedTable(keyed_cluster, keyed_clock, kind, f"k{next(numbers)}", **properties)

    return make
