"""Random walks of one table: steps that change it, looks that compare, and what is printed when they differ."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from tests.across.log_looks import LogLooks
from tests.across.looks import UnionLooks
from tests.across.program import Program, Step, shrunk, to_text
from tests.across.row_looks import RowLooks
from tests.across.world import World

#: What changes a table, and how often.
CHANGES: Final[Mapping[str, int]] = {
    "write": 16,
    "wait": 10,
    "tier": 7,
    "tier_cut": 3,
    "retain": 4,
    "remote": 3,
    "keep": 5,
    "hold": 2,
    "poll": 4,
    "compact": 3,
    "expire": 2,
    "expire_tags": 1,
    "orphans": 1,
    "foreign": 1,
    "snapshot": 1,
    "restart": 1,
    "kill": 1,
    "add_column": 1,
    "drop_partition": 2,
    "lake_switch": 1,
    "audit": 1,
}
UNION: Final = ("union", "moving", "peers", "spark")
ROWS: Final = ("lookup", "prefix", "history", "pages", "first")
LOG: Final = ("replay", "net", "diff", "seek", "scanner", "too_early", "spark_log")
#: What compares, and how often.
LOOKS: Final[Mapping[str, int]] = {
    "union": 8,
    "moving": 2,
    "peers": 2,
    "replay": 4,
    "net": 2,
    "diff": 2,
    "seek": 2,
    "scanner": 2,
    "too_early": 1,
    "lookup": 2,
    "prefix": 1,
    "history": 2,
    "pages": 2,
    "first": 1,
}
#: Those that need a Spark session.
SPARK_LOOKS: Final[Mapping[str, int]] = {"spark": 2, "spark_log": 2}
ROWS_MAX: Final = 30


def random_program(
    rng: random.Random,
    steps: int,
    *,
    looks: int = 2,
    without: Collection[str] = (),
    more: Mapping[str, int] | None = None,
) -> Program:
    """Return a program of so many changes, each with looks after it."""
    changes = {name: weight for name, weight in CHANGES.items() if name not in without}
    chosen = {name: weight for name, weight in {**LOOKS, **(more or {})}.items() if name not in without}
    found = []
    for _ in range(steps):
        (name,) = rng.choices(list(changes), list(changes.values()))
        found.append(_step(rng, name))
        found += [_step(rng, each) for each in rng.choices(list(chosen), list(chosen.values()), k=looks)]
    return tuple(found)


def _step(rng: random.Random, name: str) -> Step:
    return Step(name, rng.randrange(1 << 30), rng.randrange(1, ROWS_MAX) if name == "write" else 0)


class Walker:
    """Runs programs on worlds of one sort.

    Args:
        kind: Of `tests.crash.kinds.KINDS`.
        sort: As of `World`.
        spark: As of `World`.
        lake: As of `World`.
        looks: Further looks by name.
    """

    def __init__(
        self,
        kind: str,
        sort: str = "usual",
        *,
        spark: Callable[[Any], Any] | None = None,
        lake: Callable[[Path], Mapping[str, str]] | None = None,
        looks: Mapping[str, Callable[[World, random.Random], None]] | None = None,
    ) -> None:
        self._kind = kind
        self._sort = sort
        self._spark = spark
        self._lake = lake
        self._more = dict(looks or {})
        self.taken: Counter[str] = Counter()

    def run(self, program: Program) -> None:
        """Run a program in a world of its own.

        Raises:
            ProgramError: A step failed.
        """
        world = World(self._kind, self._sort, spark=self._spark, lake=self._lake)
        union, log, rows = UnionLooks(world), LogLooks(world), RowLooks(world)
        try:
            for number, step in enumerate(program):
                try:
                    if step.name in self._more:
                        self._more[step.name](world, random.Random(step.seed))
                    elif step.name in UNION:
                        getattr(union, step.name)(random.Random(step.seed))
                    elif step.name in ROWS:
                        getattr(rows, step.name)(random.Random(step.seed))
                    elif step.name in LOG:
                        getattr(log, step.name)(random.Random(step.seed))
                    else:
                        world.take(step)
                except Exception as error:
                    raise ProgramError(program[: number + 1], error, _described(world)) from error
                self.taken[step.name] += 1
        finally:
            world.close()

    def check(self, program: Program, *, shrink_s: float = 240.0) -> None:
        """Run a program; when it fails, find a short one that fails in the same way and print it.

        Raises:
            AssertionError: It fails; the text tells the short program and how to run it.
        """
        try:
            self.run(program)
        except ProgramError as failure:
            found = self.shortest(failure, shrink_s)
            raise AssertionError(
                f"{found}\n\nsteps, of {len(program)}: {len(found.program)}\nrun again: python -m tests.campaigns.across "
                f"--kind {self._kind} --sort {self._sort} --program '{to_text(found.program)}'"
            ) from found.error

    def shortest(self, failure: ProgramError, limit_s: float) -> ProgramError:
        """Return the failure of a short program."""
        best = failure

        def fails(program: Program) -> bool:
            nonlocal best
            try:
                self.run(program)
            except ProgramError as error:
                if error.sort == failure.sort:
                    best = error
                    return True
            return False

        shrunk(failure.program, fails, limit_s=limit_s)
        return best


class ProgramError(Exception):
    """A program's last step failed.

    Args:
        program: The program up to and with that step.
        error: Why.
        state: How the table stood.
    """

    def __init__(self, program: Program, error: Exception, state: str) -> None:
        self.program = program
        self.error = error
        trace = "".join(traceback.format_exception(error)[-12:])
        super().__init__(f"step {program[-1]} failed: {type(error).__name__}: {error}\n{trace}\n{state}")

    @property
    def sort(self) -> tuple[str, str]:
        """Return what a shorter program's failure must have in common with this one."""
        return (self.program[-1].name, type(self.error).__name__)


def _described(world: World) -> str:
    try:
        return world.describe()
    except Exception as error:
        return f"(how it stands cannot be told: {error!r})"
