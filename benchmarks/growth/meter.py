"""What is measured, at sizes that a budget of time allows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from benchmarks.processes import Usage, cpu_of_all
from fluss_lab.testing import ServerProcess

T = TypeVar("T")

#: What may be repeated is repeated until it took so long, or so often: a tick of CPU time is a hundredth of a second.
REPEATED_S: Final = 0.5
RUNS_MAX: Final = 20


@dataclass
class Axis:
    """One thing that grows.

    Attributes:
        name: What grows, in the plural.
        sizes: Those that are measured, from the smallest; the budget may end them earlier.
        about: What is held the same.
        headlines: The measures of which a short table tells.
        opened: Makes what all sizes share, and gives the call that measures one size.
    """

    name: str
    sizes: tuple[int, ...]
    about: str
    headlines: tuple[str, ...]
    opened: Callable[[], AbstractContextManager[Callable[[Meter, int], None]]]


@dataclass
class Measured:
    """Values of one measure by size.

    Attributes:
        unit: ``s``, ``bytes``, ``%``.
        cpu: CPU seconds, of a time; else the value itself.
        wall: Seconds by the clock, of a time; else empty.
    """

    unit: str
    cpu: dict[int, float] = field(default_factory=dict)
    wall: dict[int, float] = field(default_factory=dict)


class Meter:
    """Takes the values of one axis.

    Attributes:
        found: The values by what they are of.
        server: Whose CPU counts, beside that of this process and what it started.
        size: That is measured now.
    """

    def __init__(self) -> None:
        self.found: dict[str, Measured] = {}
        self.server: ServerProcess | None = None
        self.size = 0

    def timed(self, what: str, work: Callable[[], T], times: int = 1) -> T:
        """Measure what can be done once; or what does a thing several times: then one of them is told, their mean."""
        servers, started = self._servers(), time.perf_counter()
        before = Usage.now(servers)
        found = work()
        wall_s = time.perf_counter() - started
        self._add(what, "s", before.until(Usage.now(servers)) / times, wall_s / times)
        return found

    def repeated(self, what: str, work: Callable[[], object]) -> None:
        """Measure what can be done again: the best by the clock, the mean of CPU, without the first time."""
        work()
        servers = self._servers()
        walls: list[float] = []
        before = Usage.now(servers)
        while not walls or (sum(walls) < REPEATED_S and len(walls) < RUNS_MAX):
            started = time.perf_counter()
            work()
            walls.append(time.perf_counter() - started)
        self._add(what, "s", before.until(Usage.now(servers)) / len(walls), min(walls))

    def restarted(self, what: str) -> None:
        """Measure the start of the server, after a graceful stop."""
        assert self.server is not None
        self.server.stop()
        started = time.perf_counter()
        self.server.start()
        wall_s = time.perf_counter() - started
        self._add(what, "s", cpu_of_all([self.server.pid]), wall_s)

    def value(self, what: str, value: float, unit: str) -> None:
        """Take a value that is no time."""
        self._add(what, unit, value, None)

    def _servers(self) -> Iterable[int]:
        return () if self.server is None else (self.server.pid,)

    def _add(self, what: str, unit: str, value: float, wall_s: float | None) -> None:
        measured = self.found.setdefault(what, Measured(unit))
        # What is kept is what is fitted: a report that is read back gives the same tables.
        measured.cpu[self.size] = float(f"{value:.4g}")
        if wall_s is not None:
            measured.wall[self.size] = float(f"{wall_s:.4g}")
        shown = f"{value:.4g} {unit}" + ("" if wall_s is None else f" CPU, {wall_s:.4g} s")
        print(f"  {self.size:,} {what}: {shown}", file=sys.stderr, flush=True)


def measured(axis: Axis, budget_s: float | None) -> dict[str, Measured]:
    """Measure an axis from its smallest size, until the next one would not fit into the budget; two are always measured."""
    meter = Meter()
    took: list[float] = []
    with axis.opened() as measure:
        began = time.monotonic()
        for number, size in enumerate(axis.sizes):
            if budget_s is not None and len(took) > 1:
                following_s = _following_s(took, size / axis.sizes[number - 1])
                if time.monotonic() - began + following_s > budget_s:
                    break
            started = time.monotonic()
            meter.size = size
            measure(meter, size)
            took.append(time.monotonic() - started)
    return meter.found


def _following_s(took: list[float], step: float) -> float:
    """Return what the next size will take: as much longer as the last did, or a half longer; at most as it is larger."""
    return took[-1] * min(step, max(1.5, took[-1] / took[-2]))
