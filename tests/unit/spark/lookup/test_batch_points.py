"""Points of micro-batches: kept before they are used, the same however often asked, and never another table's."""

import itertools
import stat
import threading

import pytest

from fluss_lab.errors import CorruptDataError, InvalidError, InvalidRequestError, TableNotFoundError, UnsupportedError
from fluss_lab.lookup import FunctionContext, LookupFunction
from fluss_lab.spark.lookup.batch_points import (
    BATCH,
    CHECKPOINT,
    KEPT_BATCHES,
    POINTS,
    RUN,
    MicroBatch,
    kept_point,
    micro_batch,
)

#: No two are the same.
MOMENTS = itertools.count()


class Moving(LookupFunction):
    """Has another point each time."""

    def __init__(self, identity="1", points=True):
        self._identity, self._points = identity, points

    def to_json(self):
        return "{}"

    @classmethod
    def from_json(cls, text):
        return cls()

    def open(self, context: FunctionContext):
        raise AssertionError

    def lookup(self, keys):
        raise AssertionError

    def close(self):
        pass

    def identity(self):
        return self._identity

    def present_point(self):
        return f"moment {next(MOMENTS)}" if self._points else None


@pytest.fixture
def checkpoint(tmp_path):
    return tmp_path


def batch(checkpoint, number):
    return MicroBatch(number, "run", checkpoint)


class Still(Moving):
    """Is not asked for its point."""

    def present_point(self):
        raise AssertionError


def test_a_batch_keeps_its_point(checkpoint):
    first = kept_point(batch(checkpoint, 0), "nyc.planes", Moving())
    assert kept_point(batch(checkpoint, 0), "nyc.planes", Still()) == first
    assert kept_point(batch(checkpoint, 1), "nyc.planes", Moving()) != first
    assert kept_point(batch(checkpoint, 0), "nyc.airports", Moving()) != first
    path = checkpoint / POINTS / "nyc.planes" / "0"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_tasks_that_come_at_once_have_one_point(checkpoint):
    found, barrier = [], threading.Barrier(8)

    def ask():
        barrier.wait()
        found.append(kept_point(batch(checkpoint, 3), "t", Moving()))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_source_without_points_has_none(checkpoint):
    assert kept_point(batch(checkpoint, 0), "t", Moving(points=False)) is None
    assert not (checkpoint / POINTS).exists()


@pytest.mark.parametrize("number", [0, 1])
def test_another_table_of_the_name_is_refused(checkpoint, number):
    """For a batch that is run again, and for the next one."""
    kept_point(batch(checkpoint, 0), "t", Moving("1"))
    other = Moving("2")
    with pytest.raises(TableNotFoundError, match="began with, 1, found 2: it was dropped and made again"):
        kept_point(batch(checkpoint, number), "t", other)
    assert not (checkpoint / POINTS / "t" / "1").exists()


def test_a_table_of_a_lab_that_was_made_anew_is_refused(checkpoint):
    """It has the same id; points of a release that did not keep when a table was made are gone on with."""
    first = kept_point(batch(checkpoint, 0), "t", Moving("1"))
    assert kept_point(batch(checkpoint, 0), "t", Moving("1 made at 5")) == first
    second = kept_point(batch(checkpoint, 1), "t", Moving("1 made at 5"))
    for number in (1, 2):
        with pytest.raises(TableNotFoundError, match="1 made at 5, found 1 made at 6"):
            kept_point(batch(checkpoint, number), "t", Moving("1 made at 6"))
    with pytest.raises(TableNotFoundError):
        kept_point(batch(checkpoint, 0), "t", Moving("12 made at 5"))
    assert kept_point(batch(checkpoint, 1), "t", Moving("1 made at 5")) == second


def test_old_points_go(checkpoint):
    for number in range(KEPT_BATCHES + 3):
        kept_point(batch(checkpoint, number), "t", Moving())
    left = sorted(int(path.name) for path in (checkpoint / POINTS / "t").iterdir())
    assert left == list(range(3, KEPT_BATCHES + 3))


def test_a_damaged_point_is_refused(checkpoint):
    kept_point(batch(checkpoint, 0), "t", Moving())
    path = checkpoint / POINTS / "t" / "0"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptDataError, match="lookup_points/t/0"):
        kept_point(batch(checkpoint, 0), "t", Moving())
    path.write_bytes(whole.replace(b'"version":1', b'"version":2'))
    with pytest.raises(UnsupportedError, match="lookup_points/t/0"):
        kept_point(batch(checkpoint, 0), "t", Moving())


@pytest.mark.parametrize("name", ["..", "a/b", "é" * 300, "."])
def test_names_of_sources_are_names_of_files(checkpoint, name):
    assert kept_point(batch(checkpoint, 0), name, Moving()) == kept_point(batch(checkpoint, 0), name, Moving())
    assert [path.name for path in checkpoint.iterdir()] == [POINTS]


def test_what_raises_is_named(checkpoint):
    class Raising(Moving):
        def present_point(self):
            raise ValueError("no")

    with pytest.raises(InvalidError, match=r"Raising\.present_point raised ValueError: no"):
        kept_point(batch(checkpoint, 0), "t", Raising())


def test_a_task_knows_its_batch(tmp_path):
    folder = tmp_path / "check point"
    folder.mkdir()
    properties = {CHECKPOINT: folder.as_uri(), RUN: "r", BATCH: "7"}
    assert micro_batch(properties, "t") == MicroBatch(7, "r", folder)
    assert micro_batch(properties | {CHECKPOINT: str(folder)}, "t").checkpoint == folder
    for missing in properties:
        with pytest.raises(InvalidRequestError, match="expected a micro-batch of a streaming query"):
            micro_batch(properties | {missing: None}, "t")
    with pytest.raises(UnsupportedError, match=r"found one under s3a:.*checkpointLocation"):
        micro_batch(properties | {CHECKPOINT: "s3a://bucket/x"}, "t")
    with pytest.raises(UnsupportedError, match=r"gone, which is no folder here"):
        micro_batch(properties | {CHECKPOINT: (tmp_path / "gone").as_uri()}, "t")
