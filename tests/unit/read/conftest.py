"""One cluster with a lake and a clock of its own for all tests of reading; every test has tables of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from fluss_lab.testing import EmbeddedCluster, MockClock
from tests.unit.read.kit import OPTIONS, ModelTable

MakeTable = Callable[..., ModelTable]


@pytest.fixture(scope="package")
def clock() -> MockClock:
    return MockClock()


@pytest.fixture(scope="package")
def cluster(clock: MockClock) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(options=OPTIONS, clock=clock) as running:
        yield running


@pytest.fixture(scope="package")
def numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def make_table(cluster: EmbeddedCluster, clock: MockClock, numbers: Iterator[int]) -> MakeTable:
    def make(*, partitioned: bool = True) -> ModelTable:
        return ModelTable(cluster, clock, f"t{next(numbers)}", partitioned=partitioned)

    return make
