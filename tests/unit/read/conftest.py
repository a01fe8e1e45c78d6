"""One cluster with a lake and a clock of its own for all tests of reading; every test has tables of its own."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fluss_lab.testing import EmbeddedCluster, MockClock
from tests.unit.read.keyed_changes import KeyedTable
from tests.unit.read.kit import OPTIONS, ModelTable
from tests.unit.read.subjects import Keyed, Plain

MakeTable = Callable[..., ModelTable]


@pytest.fixture(scope="package")
def clock() -> MockClock:
    return MockClock()


@pytest.fixture(scope="package")
def cluster(clock: MockClock) -> Iterator[EmbeddedCluster]:
    # Answers of few records: what a read has not fetched yet may move.
    client = {"client.scanner.log.fetch.max-bytes": "2kb"}
    with EmbeddedCluster(options=OPTIONS, clock=clock, client=client) as running:
        yield running


@pytest.fixture(scope="package")
def numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def make_table(cluster: EmbeddedCluster, clock: MockClock, numbers: Iterator[int]) -> MakeTable:
    def make(*, partitioned: bool = True) -> ModelTable:
        return ModelTable(cluster, clock, f"t{next(numbers)}", partitioned=partitioned)

    return make


@pytest.fixture
def make_keyed(cluster: EmbeddedCluster, clock: MockClock, numbers: Iterator[int]) -> Callable[..., KeyedTable]:
    def make(**definition: Any) -> KeyedTable:
        return KeyedTable(cluster, clock, f"k{next(numbers)}", **definition)

    return make


@pytest.fixture(params=["keyed", "plain"])
def subject(request: pytest.FixtureRequest, make_keyed: Any, make_table: Any, seed: int) -> Keyed | Plain:
    """A table of either kind that a test may write and move."""
    rng = random.Random(seed)
    return Keyed(make_keyed, rng) if request.param == "keyed" else Plain(make_table, rng)
