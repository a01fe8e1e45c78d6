"""Programs read back as they were written, and a failing one becomes as short as can be."""

import random

import pytest

from fluss_lab.client import read_range
from fluss_lab.read.union import read_plan
from fluss_lab.testing import MockClock
from tests.across.program import Step, from_text, shrunk, to_text
from tests.across.walk import ProgramError, Walker, random_program


def test_a_program_reads_back(seed):
    program = random_program(random.Random(seed), 20)
    assert from_text(to_text(program)) == program


@pytest.mark.parametrize("needed", [{3}, {0, 19}, {4, 5, 11}, set(range(0, 20, 3))])
def test_only_what_is_needed_stays(needed):
    program = tuple(Step("write", number, 16) for number in range(20))
    runs = []

    def fails(tried):
        runs.append(tried)
        return needed <= {step.seed for step in tried} and all(step.size >= 3 for step in tried)

    found = shrunk(program, fails)
    assert {step.seed for step in found} == needed
    assert {step.size for step in found} == {4}
    assert len(runs) < 300


def test_when_the_time_is_up_what_was_found_is_given():
    program, clock = tuple(Step("write", number) for number in range(64)), MockClock()

    def fails(tried):
        clock.advance(1000)
        return program[-1] in tried

    found = shrunk(program, fails, limit_s=3, clock=clock)
    assert 1 < len(found) < len(program)
    assert fails(found)


@pytest.mark.slow
def test_a_planted_defect_is_reported_by_a_short_program(monkeypatch):
    """The first record behind the lake's end is left out: a few steps show it, however many were taken."""

    def one_short(connection, info, bucket, start, stop, **more):
        yield from read_range(connection, info, bucket, start + 1 if start else 0, stop, **more)

    monkeypatch.setattr(read_plan, "read_range", one_short)
    program = random_program(
        random.Random(5), 12, without=["moving", "scanner", "replay", "seek", "too_early", "foreign"]
    )
    program = (*from_text("write/1/20 wait/2 tier/3 wait/4 write/5/20"), *program, *from_text("keep/6 union/7 union/8"))
    walker = Walker("log")
    with pytest.raises(ProgramError) as first:
        walker.run(program)
    found = walker.shortest(first.value, limit_s=60)
    assert len(found.program) <= 5, to_text(found.program)
    assert found.program[-1].name == first.value.program[-1].name
    with pytest.raises(
        AssertionError, match=r"python -m tests\.campaigns\.across --kind log --sort usual --program 'write"
    ):
        walker.check(found.program, shrink_s=0)
