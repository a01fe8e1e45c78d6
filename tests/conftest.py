"""What all tests share."""

import os
import random
from collections.abc import Iterator

import pytest

from fluss_lab import failpoints
from fluss_lab.spark.session import spark_session
from fluss_lab.testing.cluster import RESERVE

# Of the servers that tests start as processes too: folders of tests stay for a while, and there are thousands.
for _key, _value in RESERVE.items():
    os.environ.setdefault("FLUSS_LAB_" + _key.upper().replace(".", "_").replace("-", "_"), _value)


@pytest.fixture(autouse=True)
def _no_failpoints_left() -> Iterator[None]:
    """Disarm what a test armed, whatever became of it."""
    yield
    failpoints.disarm()


@pytest.fixture
def seed(request) -> int:
    """A seed of this test's randomness: printed, and taken from FLUSS_LAB_SEED when that is set."""
    chosen = int(os.environ.get("FLUSS_LAB_SEED") or random.SystemRandom().randrange(2**32))
    print(f"\n{request.node.nodeid}: FLUSS_LAB_SEED={chosen}")
    return chosen


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Iterator:
    """The one SparkSession of the run: a process has one, and starting a JVM is what takes the time."""
    session = spark_session(master="local[2,3]", folder=tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
