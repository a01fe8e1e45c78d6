"""The main job, as ``make demo`` runs it: the quickstart notebook on real data, by papermill, with a summary."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fluss_lab.errors import FlussError, NotFoundError
from fluss_lab.jobs import Jobs

NOTEBOOK = Path("notebooks") / "01_quickstart.ipynb"
FOLDER = Path("demo")


def main() -> int:
    """Run the quickstart in ``demo/`` under the working directory; return the exit code."""
    lab = FOLDER.absolute() / "lab"
    try:
        if not NOTEBOOK.is_file():
            raise NotFoundError(f"{NOTEBOOK}: not found; run this from the root of a checkout of fluss_lab")
        print(f"running {NOTEBOOK} (about a minute; Spark starts on the way) ...", flush=True)
        run = Jobs(lab).run(NOTEBOOK, on_line=_progress if sys.stderr.isatty() else None)
    except FlussError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    print(summary_text(run.summary))
    print(f"{'whole run':<28}{run.seconds or 0:.1f} s")
    print(f"{'output notebook':<28}{run.output}")
    return 0


def _progress(line: str) -> None:
    if line.startswith("--- cell"):
        print(f"\r{line.strip('- ')} ", end="", file=sys.stderr, flush=True)


def summary_text(summary: Mapping[str, Any]) -> str:
    """Return a run's summary as lines."""
    lines = []
    for name, value in summary.items():
        shown = f"{value:,}" if isinstance(value, int) and "snapshot" not in name else value
        if isinstance(value, dict):
            shown = ", ".join(f"{key} {number:.2f} s" for key, number in value.items())
        lines.append(f"{name.replace('_', ' '):<28}{shown}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
