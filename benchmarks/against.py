"""This checkout beside another one of the same project: ``python -m benchmarks against --base FOLDER [case ...]``.

Each checkout has a process of its own, with the same Python and packages, its own lab and servers. They take turns, A B B A,
case by case, so that both meet the same weather, and what is compared is CPU time: of the process, its servers, and
Spark, in user and system mode. So it can be run on a machine that does other work beside.

How a writer happened to cut its batches stays with a table, and moves the time to read it by some percent: so all is
done again in several labs, and the figures are over all their runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.against_cases import CASES
from benchmarks.report import Figures

HERE = Path(__file__).absolute().parents[1]
LABS = 3
RUNS = 5
GOAL = 1.05

#: Code of the other checkout, cases of this one: the package that is measured is loaded first.
_WORK = """
import sys
from pathlib import Path
import fluss_lab
root, here, folder = map(Path, sys.argv[1:4])
assert Path(fluss_lab.__file__) == root / "fluss_lab" / "__init__.py", fluss_lab.__file__
sys.path.insert(0, str(here))
from benchmarks.against_cases import work
work(folder)
"""


class _Side:
    """A checkout's process."""

    def __init__(self, root: Path, folder: Path) -> None:
        folder.mkdir()
        self.root = root
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORK, str(root), str(HERE), str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
            env=os.environ | {"PYTHONPATH": str(root)},
        )  # fmt: skip

    def cpu_s(self, case: str) -> float:
        """Run a case once, and return what it took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(case, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.root}: the process of {case!r} ended")
        return float(json.loads(line))

    def end(self) -> None:
        """Let it close its lab."""
        self._process.communicate()


def run(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser("python -m benchmarks against")
    parser.add_argument("--base", type=Path, required=True, help="the other checkout")
    parser.add_argument("--labs", type=int, default=LABS, help="new ones of each side, one after another")
    parser.add_argument("--runs", type=int, default=RUNS, help="of each case, on each side, in each lab")
    parser.add_argument("cases", nargs="*", help=f"of: {', '.join(CASES)}")
    options = parser.parse_args(arguments)
    chosen = options.cases or list(CASES)
    if unknown := [case for case in chosen if case not in CASES]:
        parser.error(f"unknown case {unknown[0]!r}")
    cpu_s: dict[str, tuple[list[float], list[float]]] = {case: ([], []) for case in chosen}
    for _ in range(options.labs):
        with tempfile.TemporaryDirectory() as folder:
            base, ours = (
                _Side(root, Path(folder, name)) for name, root in (("base", options.base.absolute()), ("ours", HERE))
            )
            for case in chosen:
                _measure(case, base, ours, options.runs, cpu_s[case])
            for side in (base, ours):
                side.end()
    figures = Figures(
        f"CPU seconds of client, servers and Spark beside {options.base}, best (median) of {options.runs} in each of "
        f"{options.labs} labs"
    )
    for case in chosen:
        _add(figures, case, *cpu_s[case])
    figures.print()


def _measure(case: str, base: _Side, ours: _Side, runs: int, cpu_s: tuple[list[float], list[float]]) -> None:
    sides = tuple(zip((base, ours), cpu_s, strict=True))
    for each, _ in sides:
        each.cpu_s(case)  # warm
    for turn in range(runs):
        for each, found in sides if turn % 2 else sides[::-1]:
            found.append(each.cpu_s(case))


def _add(figures: Figures, case: str, base: Sequence[float], ours: Sequence[float]) -> None:
    value, beside = (f"{min(found):.3f} ({statistics.median(found):.3f})" for found in (ours, base))
    best, middle = (kind(ours) / kind(base) for kind in (min, statistics.median))
    figures.add(f"{case}: {CASES[case].what}", value, beside, best, f"{GOAL} ({middle:.2f})")
    print(f"{case:<20} {value:<18} {beside:<18} {best:.3f} ({middle:.3f})", file=sys.stderr)
