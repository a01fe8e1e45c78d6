"""The explorer's live tail in a real JupyterLab in a headless browser: what a tab holds while many rows a second are written.

``python -m benchmarks.explorer_tail --minutes 10`` is the time that design names.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.report import Figures

#: Of design: rows that are written, and that are kept in view.
WRITTEN_PER_S: Final = 50_000
ROWS_GOAL: Final = 500


def run(minutes: float = 1) -> None:
    """Measure and print."""
    from tests.notebooks.jupyterlab_server import BrowserUnavailableError, browser, jupyterlab, run_page
    from tests.notebooks.test_explorer_changes import notebook

    figures = Figures(f"live tail of {WRITTEN_PER_S:,} rows a second written, for {minutes:g} minutes")
    try:
        browser()
    except BrowserUnavailableError as error:
        print(f"explorer_tail: left out: {error}")
        return
    with tempfile.TemporaryDirectory() as root:
        folder, home = Path(root) / "notebooks", Path(root) / "home"
        home.mkdir()
        with jupyterlab(folder, home) as url:
            name = notebook(folder, "endured", seconds=minutes * 60 + 120)
            seen = run_page("explorer_changes_page", url, name, "light", root, f"{minutes}")
    if seen.get("broken"):
        raise RuntimeError(seen["broken"])
    _print(figures, seen["endured"], seen["idle_ms"])


def _print(figures: Figures, seen: list[dict[str, Any]], idle_ms: float) -> None:
    half = len(seen) // 2
    figures.add(
        "rows a second that came", f"{sum(each['rate'] for each in seen) // len(seen):,}", goal=f"{WRITTEN_PER_S:,}"
    )
    figures.add("rows that came and were not shown", seen[-1]["skipped"])
    figures.add("rows in the page, at most", f"{max(each['rows'] for each in seen)}", goal=f"{ROWS_GOAL}")
    figures.add("elements in the page, at most", f"{max(each['nodes'] for each in seen):,}")
    first, last = (max(each["heap_mb"] for each in part) for part in (seen[:half], seen[half:]))
    figures.add("memory of the tab's script, MB: second half", f"{last:.1f}", f"{first:.1f} first half", last / first)
    work = sorted(each["work_ms"] for each in seen)[half]
    figures.add("work of the whole tab for each answer, ms, median", f"{work:.1f}", f"{idle_ms:.1f} without the tail")
    figures.print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    run(parser.parse_args().minutes)
