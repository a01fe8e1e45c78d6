"""``python -m benchmarks against --base FOLDER [--runs N] [case ...]``: this checkout beside another one of the same project.

Each checkout has a process of its own, with the same Python and packages, its own lab and servers. They take turns, A B B A,
case by case, so that both meet the same weather, and what is compared is CPU time: of the process, its servers, and
Spark, in user and system mode. So it can be run on a machine that does other work beside.
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
RUNS = 9
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
    parser.add_argument("--runs", type=int, default=RUNS, help="of each case, on each side")
    parser.add_argument("cases", nargs="*", help=f"of: {', '.join(CASES)}")
    options = parser.parse_args(arguments)
    chosen = options.cases or list(CASES)
    if unknown := [case for case in chosen if case not in CASES]:
        parser.error(f"unknown case {unknown[0]!r}")
    figures = Figures(
        f"CPU seconds of client, servers and Spark beside {options.base}, best (median) of {options.runs}"
    )
    with tempfile.TemporaryDirectory() as folder:
        base, ours = (
            _Side(root, Path(folder, name)) for name, root in (("base", options.base.absolute()), ("ours", HERE))
        )
        for case in chosen:
            _compare(figures, case, base, ours, options.runs)
        for side in (base, ours):
            side.end()
    figures.print()


def _compare(figures: Figures, case: str, base: _Side, ours: _Side, runs: int) -> None:
    found: dict[_Side, list[float]] = {base: [], ours: []}
    for each in (base, ours):
        each.cpu_s(case)  # warm
    for turn in range(runs):
        for each in (base, ours) if turn % 2 else (ours, base):
            found[each].append(each.cpu_s(case))
    best, middle = ({side: kind(taken) for side, taken in found.items()} for kind in (min, statistics.median))
    value, beside = (f"{best[each]:.3f} ({middle[each]:.3f})" for each in (ours, base))
    ratio = best[ours] / best[base]
    figures.add(f"{case}: {CASES[case].what}", value, beside, ratio, f"{GOAL} ({middle[ours] / middle[base]:.2f})")
    print(f"{case:<20} {value:<18} {beside:<18} {ratio:.3f} ({middle[ours] / middle[base]:.3f})", file=sys.stderr)
