"""Programs: lists of steps that can be printed, run again, and made shorter while they still fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fluss_lab.testing.mock_clock import MockClock


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done to a table, or asked of it.

    All that is random in it follows from its seed, and where it cannot be done it does nothing: so a program stays one
    when steps are left out.

    Attributes:
        name: What is done.
        seed: Of its choices.
        size: Rows at most, where it writes some.
    """

    name: str
    seed: int
    size: int = 0

    def __str__(self) -> str:
        return f"{self.name}/{self.seed}" + (f"/{self.size}" if self.size else "")


Program = tuple[Step, ...]


def to_text(program: Sequence[Step]) -> str:
    """Return a program as text that `from_text` reads."""
    return " ".join(map(str, program))


def from_text(text: str) -> Program:
    """Read a program."""
    steps = []
    for word in text.split():
        name, *numbers = word.split("/")
        steps.append(Step(name, *map(int, numbers)))
    return tuple(steps)


def shrunk(
    program: Program, fails: Callable[[Program], bool], *, limit_s: float = 300.0, clock: MockClock | None = None
) -> Program:
    """Return a shorter program that still fails: no single step of it can be left out, if there was time to find out.

    Args:
        program: One that fails.
        fails: Whether a program fails in the same way.
        limit_s: After so long what was found so far is given.
        clock: By which that time is told; None: the machine's.
    """
    begin_ms = _now_ms(clock)

    def is_late() -> bool:
        return _now_ms(clock) - begin_ms > limit_s * 1000

    parts = 2
    while len(program) > 1 and not is_late():
        length = -(-len(program) // parts)
        for start in range(0, len(program), length):
            shorter = program[:start] + program[start + length :]
            if shorter and not is_late() and fails(shorter):
                program, parts = shorter, max(2, parts - 1)
                break
        else:
            if length == 1:
                break
            parts = min(len(program), parts * 2)
    return _with_fewer_rows(program, fails, is_late)


def _with_fewer_rows(program: Program, fails: Callable[[Program], bool], is_late: Callable[[], bool]) -> Program:
    for index in range(len(program)):
        size = program[index].size
        while size > 1 and not is_late():
            size //= 2
            smaller = (*program[:index], replace(program[index], size=size), *program[index + 1 :])
            if not fails(smaller):
                break
            program = smaller
    return program


def _now_ms(clock: MockClock | None) -> float:
    return time.monotonic() * 1000 if clock is None else clock.monotonic_ms()
