"""Figures and how they are printed."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Figures:
    """Lines of one benchmark: what, how much, beside what, the ratio, and the goal."""

    title: str
    lines: list[tuple[str, str, str, str, str]] = field(default_factory=list)

    def add(self, what: str, value: str, beside: str = "", ratio: float | None = None, goal: str = "") -> None:
        """Add a line and print the table's new line at once."""
        self.lines.append((what, value, beside, "" if ratio is None else f"{ratio:.2f}", goal))

    def print(self) -> None:
        """Print the table."""
        heads = ("what", "measured", "beside it", "ratio", "goal")
        widths = [max(len(row[i]) for row in [heads, *self.lines]) for i in range(5)]
        print(f"\n== {self.title}")
        for row in [heads, *self.lines]:
            print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip(), flush=True)


def best_of(runs: int, work: Callable[[], float]) -> float:
    """Return the largest of several measurements (a rate: the machine's noise only lowers it)."""
    return max(work() for _ in range(runs))


def millions(rate: float) -> str:
    """Return rows a second as people read them."""
    return f"{rate / 1e6:.2f} M rows/s"


@dataclass
class Timing:
    """Wall and CPU seconds of a piece of work in this process and its ended children."""

    wall_s: float
    cpu_s: float


def timed(work: Callable[[], object]) -> Timing:
    """Run and time a piece of work."""
    before, started = _cpu_s(), time.perf_counter()
    work()
    return Timing(time.perf_counter() - started, _cpu_s() - before)


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of another process so far, as Linux tells them."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
