"""Work on what is read from files, a few pieces at a time."""

import threading

import pytest

from fluss_lab.lake.iceberg.files.parquet_input import in_order


def test_work_in_order_gives_its_results_in_order_and_asks_only_a_few_ahead():
    asked, gates = [], [threading.Event() for _ in range(8)]

    def numbers():
        for number in range(8):
            asked.append(number)
            yield number

    def work(number):
        assert gates[number].wait(30)
        return number * 10

    results = in_order(work, numbers())
    for number in (0, 2, 3):  # out of turn
        gates[number].set()
    assert next(results) == 0
    assert asked == [0], "a reader of one asks for no more"
    gates[1].set()
    assert [next(results), next(results)] == [10, 20]
    assert len(asked) <= 6
    for gate in gates:
        gate.set()
    assert list(results) == [30, 40, 50, 60, 70]


def test_an_error_of_work_in_order_comes_in_its_turn():
    def work(number):
        if number == 3:
            raise ValueError("the fourth")
        return number

    results = in_order(work, range(9))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="the fourth"):
        next(results)
    assert list(in_order(work, [])) == []
