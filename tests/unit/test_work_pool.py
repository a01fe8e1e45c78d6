"""Work of a pool: its results and errors, and no lock that an interrupt could leave acquired."""

import threading

import pytest

from fluss_lab.lake.iceberg.files.parquet_input import in_order, side_by_side
from fluss_lab.testing import wait_until
from fluss_lab.work_pool import WorkPool
from tests.unit.open_steps import watched_steps

WAIT_S = 30.0


def threads(name):
    return [each for each in threading.enumerate() if each.name.startswith(name)]


def test_no_lock_of_a_pool_is_taken_where_an_interrupt_could_break_it():
    with watched_steps() as steps:
        pool = WorkPool(2, "some-work")
        works = [pool.submit(lambda: 1), pool.submit(lambda: 2)]
        assert [each.result() for each in works] == [1, 2]
        pool.close()
        assert list(in_order(lambda number: -number, range(9))) == [-number for number in range(9)]
        assert side_by_side(lambda _: "s3://bucket/file", lambda number: -number, range(9)) == [-n for n in range(9)]
    assert steps.seen > 100
    assert steps.open == []
    wait_until(lambda: not threads("some-work") and not threads("lake-"))


def test_an_error_is_the_result():
    pool = WorkPool(1, "some-work")
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result()
    pool.close()


def test_a_pool_that_is_closed_ends_what_runs_and_drops_the_rest():
    pool, begun, gate, ran = WorkPool(1, "some-work"), threading.Event(), threading.Event(), []

    def work():
        begun.set()
        assert gate.wait(WAIT_S)
        ran.append("first")

    first = pool.submit(work)
    pool.submit(lambda: ran.append("second"))
    assert begun.wait(WAIT_S)
    pool.close()
    gate.set()
    first.result()
    wait_until(lambda: not threads("some-work"))
    assert ran == ["first"]
