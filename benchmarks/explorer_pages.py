"""The explorer's rows in a headless Chromium: first paint, tab change, pages of 200 rows, and frames while scrolling.

The table is `benchmarks.paging`'s: a log table, nine tenths in the lake. The view is served without a notebook, so the
figures are the view's, the model's and the browser's. ``python -m benchmarks.explorer_pages --rows 400000`` tries it small.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import fluss_lab as fl
from benchmarks import paging
from benchmarks.report import Figures
from fluss_lab.explorer.explorer_model import ExplorerModel

#: Of the explorer's design, in milliseconds; frames a second.
GOALS_MS: Final = {
    "first paint after the head's arrival": 100,
    "change to Buckets": 100,
    "change back to Data": 100,
    "first page": 300,
    "next page, median": 100,
    "next page, slowest": 300,
    "page anywhere, median": 300,
    "first page of one row in 100": 300,
    "next page of one row in 100, median": 100,
    "first rows of one row in 50,000": 1_000,
    "row detail, first": 300,
    "row detail, median": 100,
}
FRAMES_GOAL: Final = 60


def run(count: int = 10_000_000) -> None:
    """Measure and print; where there is no browser, say so."""
    from tests.notebooks.explorer_loopback import loopback
    from tests.notebooks.jupyterlab_server import BrowserUnavailableError, browser

    figures = Figures(f"the explorer's rows in a browser: a log table of {count:,} rows, nine tenths in the lake")
    try:
        python, chromium = browser()
    except BrowserUnavailableError as error:
        print(f"explorer_pages: {error}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder, fl.Lab.open(Path(folder) / "lab") as lab:
        paging.fill(lab.connection, count)
        script = Path(__file__).with_name("explorer_pages_browser.py")
        with loopback(lambda: ExplorerModel(lab, "bench")) as url:
            command = [str(python), str(script), chromium, f"{url}?table={paging.PATH}"]
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    for what, goal in GOALS_MS.items():
        figures.add(what, f"{found[what]:.0f} ms", f"{goal} ms", found[what] / goal, "1.0")
    for what, (frames, shown) in found["frames"].items():
        figures.add(what, f"{frames:.1f} frames/s", f"{FRAMES_GOAL} frames/s", FRAMES_GOAL / frames, "1.0")
        figures.add(f"{what}: frames with all rows", f"{shown:.0%}")
    figures.print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    run(parser.parse_args().rows)
