"""How long ``import fluss_lab`` takes, in a fresh interpreter each time."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.report import Figures

RUNS = 7


def run() -> None:
    """Measure and print."""
    figures = Figures("import, in a fresh interpreter")
    for name, goal in (("fluss_lab", "0.3 s"), ("fluss_lab.workbench", ""), ("pyarrow", "")):
        figures.add(f"import {name}", f"{_seconds(name):.3f} s", goal=goal)
    figures.print()


def _seconds(name: str) -> float:
    code = f"import time; started = time.perf_counter(); import {name}; print(time.perf_counter() - started)"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(RUNS)
    ]
    return min(float(run.stdout) for run in runs)
