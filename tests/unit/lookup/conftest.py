"""A cluster with a lake for tests of lookups; every test has tables of its own."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fluss_lab.testing import EmbeddedCluster, MockClock
from tests.unit.read.keyed_kit import OPTIONS, KeyedTable


@pytest.fixture(scope="module")
def lookup_clock() -> MockClock:
    return MockClock()


@pytest.fixture(scope="module")
def lookup_cluster(lookup_clock: MockClock) -> Iterator[EmbeddedCluster]:
    # Answers are small, so that several lead to a result.
    client = {"client.scanner.log.fetch.max-bytes": "2kb"}
    with EmbeddedCluster(options=OPTIONS, clock=lookup_clock, client=client) as running:
        yield running


@pytest.fixture(scope="module")
def table_numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def make_keyed(
    lookup_cluster: EmbeddedCluster, lookup_clock: MockClock, table_numbers: Iterator[int]
) -> Callable[..., KeyedTable]:
    def make(kind: str = "pk", seed: int = 0, **properties: Any) -> KeyedTable:
        return KeyedTable(lookup_cluster, lookup_clock, kind, f"k{next(table_numbers)}", seed, **properties)

    return make
