"""The main job, as ``make demo`` runs it: the quickstart notebook on real data, by papermill, with a summary."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fluss_lab.errors import FlussError, NotFoundError
from fluss_lab.jobs.notebook import run_notebook

NOTEBOOK = Path("notebooks") / "01_quickstart.ipynb"
FOLDER = Path("demo")


def main() -> int:
    """Run the quickstart in ``demo/`` under the working directory; return the exit code."""
    folder = FOLDER.absolute()
    output = folder / NOTEBOOK.name
    try:
        if not NOTEBOOK.is_file():
            raise NotFoundError(f"{NOTEBOOK}: not found; run this from the root of a checkout of fluss_lab")
        print(f"running {NOTEBOOK} (about a minute; Spark starts on the way) ...", flush=True)
        run = run_notebook(NOTEBOOK, output, {"lab_folder": str(folder / "lab")}, progress=sys.stderr.isatty())
    except FlussError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    print(_text(run.summary))
    print(f"{'whole run':<28}{run.seconds:.1f} s")
    print(f"{'output notebook':<28}{output}")
    return 0


def _text(summary: Mapping[str, Any]) -> str:
    lines = []
    for name, value in summary.items():
        shown = f"{value:,}" if isinstance(value, int) and "snapshot" not in name else value
        if isinstance(value, dict):
            shown = ", ".join(f"{key} {number:.2f} s" for key, number in value.items())
        lines.append(f"{name.replace('_', ' '):<28}{shown}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
