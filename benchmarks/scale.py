"""What 10,000 buckets, 1,000 tables and 100 executors cost, and how each cost grows.

``python -m benchmarks.scale`` measures at 1/100, 1/10 and the whole, and prints a table in Markdown with the exponent of each
cost between the two largest sizes: 1 is linear, 2 is a loop in a loop. ``--up-to 10`` stops at a tenth (a minute) and
extrapolates the whole by the exponent.

Seconds are of CPU, so that a busy machine changes little; what waits for disks is not in them. Tables, partitions, servers, plans, tasks, results, commits and metadata are real. Simulated is what tasks write: an executor
answers with files that only metadata knows, so that a round's driver and the lake's metadata are measured without
10,000 Parquet files.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from benchmarks.report import cpu_of

#: Of the whole: 1,000 tables of 10 buckets; a table of 1,000 partitions of 10 buckets; 100 executors of 4 workers.
TABLES: Final = 1_000
PARTITIONS: Final = 1_000
BUCKETS: Final = 10
WORKERS: Final = 400
PARTS: Final = (100, 10, 1)
#: Below it a time is noise, and its exponent none.
_NOISE_S: Final = 0.002


@dataclass
class Costs:
    """Costs by what they are of, at each size."""

    found: dict[str, dict[int, float]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, part: int, value: float, unit: str) -> None:
        """Add a cost: seconds (``s``), ``bytes``, or a count of something."""
        self.found.setdefault(what, {})[part] = value
        self.units[what] = unit
        print(f"  1/{part} {what}: {shown(value, unit)}", file=sys.stderr, flush=True)

    @contextmanager
    def timed(self, what: str, part: int, server: int | None = None) -> Iterator[None]:
        """Add the CPU seconds that the block takes: here, and in a server's process. Other programs do not count.

        Args:
            what: The block.
            part: The size.
            server: The process id of a server; None: there is none but in this process.
        """
        before = self._spent_s(server)
        yield
        self.add(what, part, self._spent_s(server) - before, "s")

    @staticmethod
    def _spent_s(server: int | None) -> float:
        return time.process_time() + (0.0 if server is None else cpu_of(server))

    def print(self) -> None:
        """Print the table."""
        heads = [f"1/{part}" if part > 1 else "whole" for part in PARTS]
        print(f"\n| what | {' | '.join(heads)} | exponent |\n|---|{'---:|' * (len(heads) + 1)}")
        for what, values in self.found.items():
            cells = [shown(values[part], self.units[what]) if part in values else "" for part in PARTS]
            exponent = self._exponent(what)
            if PARTS[-1] not in values and exponent is not None:
                guess = values[PARTS[-2]] * (PARTS[-2] / PARTS[-1]) ** max(exponent, 0)
                cells[-1] = f"({shown(guess, self.units[what])})"
            print(f"| {what} | {' | '.join(cells)} | {'' if exponent is None else f'{exponent:.2f}'} |")
        sys.stdout.flush()

    def _exponent(self, what: str) -> float | None:
        """Return the exponent between the two largest sizes."""
        values = self.found[what]
        large, *rest = sorted(values)
        least = _NOISE_S if self.units[what] == "s" else 1
        if not rest or values[large] < least or values[rest[0]] < least:
            return None
        return math.log(values[large] / values[rest[0]]) / math.log(rest[0] / large)


def shown(value: float, unit: str) -> str:
    """Return a cost as people read it."""
    if unit == "s":
        return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.3g} ms"
    if unit == "bytes":
        for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
            if value >= size:
                return f"{value / size:.3g} {name}"
        return f"{value:.0f} B"
    return f"{value:,.0f}{unit and ' '}{unit}"


def run(up_to: int = 1) -> None:
    """Measure and print.

    Args:
        up_to: The largest size, as a part of the whole: 100, 10 or 1.
    """
    from benchmarks import scale_cluster, scale_lake, scale_table

    costs = Costs()
    cases: tuple[Callable[[Costs, int], None], ...] = (
        scale_cluster.measure,
        scale_table.measure,
        scale_lake.measure,
    )
    for case in cases:
        for part in PARTS:
            if part >= up_to:
                case(costs, part)
    costs.print()


def main() -> None:
    """Run with sizes from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--up-to", type=int, choices=PARTS, default=1, help="the largest size: a part of the whole")
    run(parser.parse_args().up_to)


if __name__ == "__main__":
    main()
