"""What all tests share."""

import gc
import importlib
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from fluss_lab import failpoints
from fluss_lab.spark.session.spark_session import spark_session
from fluss_lab.testing.clusters import RESERVE
from fluss_lab.testing.seeds import seed_of

# Of the servers that tests start as processes too: folders of tests stay for a while, and there are thousands.
for _key, _value in RESERVE.items():
    os.environ.setdefault("FLUSS_LAB_" + _key.upper().replace(".", "_").replace("-", "_"), _value)

# Of every JVM that Spark starts here: none lives long enough for code that the second compiler makes to pay for it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m -XX:+UseSerialGC")

# Of what notebooks are read with: optional, and grammars are compiled as it is imported, for more than a second of every process.
sys.modules.setdefault("rfc3987_syntax", None)

# The suite of lake formats asserts like a test; said here, before any test imports it.
pytest.register_assert_rewrite("fluss_lab.testing.conformance")

#: A file system in memory, and the room that tests may need there at once.
_MEMORY, _MEMORY_BYTES = Path("/dev/shm"), 2 << 30


def _has_room_in_memory() -> bool:
    if not os.access(_MEMORY, os.W_OK) or os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES


#: What is quick whatever comes: files of these folders fill the end of a run.
_QUICK = ("model", "records", "rpc")


#: Objects, and passes of the younger generation, until a search for garbage in each of the three: a tenth of a run went there.
_GARBAGE = (20_000, 20, 50)


#: What starts processes, as a module of tests imports it: seconds each.
_PROCESSES = frozenset({"ServerProcess", "TiererProcess", "multiprocessing", "subprocess"})


def pytest_configure(config: pytest.Config) -> None:
    """Have temporary folders in memory where there is room, unless a campaign fills them for hours.

    On a disk a third of a run would be waits for it, since each write of metadata syncs. What is synced, and when, tests see by
    watching the calls; and a killed process loses nothing that it has written.
    """
    if "TMPDIR" not in os.environ and "not campaign" in config.option.markexpr and _has_room_in_memory():
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help="only unit tests that need no Spark, start no process, and are not slow"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what is imported and collected out of the search for garbage, which is seldom: it is there until the end."""
    gc.disable()
    gc.set_threshold(*_GARBAGE)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _is_fast(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    unit = item.path.relative_to(Path(__file__).parent).parts[0] == "unit"
    waits = item.get_closest_marker("slow") or item.get_closest_marker("spark") or "spark" in item.fixturenames
    return unit and not waits and _PROCESSES.isdisjoint(vars(item.module))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not fast, if only that is asked for; order the rest."""
    if config.getoption("fast"):
        left_out = [item for item in items if not _is_fast(item)]
        items[:] = [item for item in items if _is_fast(item)]
        config.hook.pytest_deselected(items=left_out)
    _order(items)


def _order(items: list[pytest.Item]) -> None:
    """Order files so that processes that take them in turn end together: long ones first, quick ones last.

    The first file starts Spark, and so has an archive of Spark's classes made, which takes minutes beside the tests of whole labs
    that come next. Each Spark that starts after it takes half the time; then come the units. Files of a folder stay together,
    for they share clusters.
    """
    spark = list(dict.fromkeys(item.path for item in items if item.get_closest_marker("spark")))
    folder = Path(__file__).parent

    def turn(item: pytest.Item) -> int:
        if item.path in spark:
            return 0 if item.path == spark[0] else 2
        parts = item.path.relative_to(folder).parts
        return 1 if parts[0] != "unit" else 4 if parts[1] in _QUICK else 3

    items.sort(key=turn)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have hypothesis draw from the same seed as other tests do."""
    test = getattr(item, "obj", None)
    if getattr(test, "is_hypothesis_test", False):
        importlib.import_module("hypothesis").seed(seed_of(item))(test)


@pytest.fixture(autouse=True)
def _no_failpoints_left() -> Iterator[None]:
    """Disarm what a test armed, whatever became of it."""
    yield
    failpoints.disarm()


@pytest.fixture
def seed(request) -> int:
    """A seed of what this test draws: see `seed_of`."""
    return seed_of(request.node)


@pytest.fixture
def rng(seed) -> random.Random:
    """Random numbers of that seed."""
    return random.Random(seed)


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Iterator:
    """The one SparkSession of the run: a process has one, and starting a JVM is what takes the time."""
    session = spark_session(master="local[2,3]", folder=tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
