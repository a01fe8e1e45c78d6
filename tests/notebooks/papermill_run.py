"""A notebook run by papermill itself, as cron and Airflow run it, and what its cells show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import nbformat
import papermill

from fluss_lab.jobs.notebook_process import kernel_sockets

SUMMARY: Final = "application/vnd.fluss-lab.summary+json"


def run_notebook(notebook: Path, output: Path, **parameters: str) -> Any:
    """Run a notebook from top to bottom; return the executed one.

    Raises:
        Exception: A cell failed, or the kernel died.
    """
    with kernel_sockets() as config:  # a free port may be taken by the time that a kernel binds it
        papermill.execute_notebook(
            str(notebook), str(output), parameters=parameters, kernel_name="python3", cwd=str(output.parent),
            progress_bar=False, start_timeout=120, config=config,
        )  # fmt: skip
    return nbformat.read(output, as_version=4)


def outputs_of(executed: Any) -> Iterator[Any]:
    """Yield the outputs of all cells."""
    for cell in executed.cells:
        yield from cell.get("outputs", ())


def text_of(output: Any) -> str:
    """Return what an output shows as text."""
    return str(output.get("text") or output.get("data", {}).get("text/plain", ""))


def text_shown(executed: Any) -> str:
    """Return everything that a notebook shows as text: a line of a stream whole, which may come in several messages."""
    return "".join(
        text_of(each) if each["output_type"] == "stream" else f"\n{text_of(each)}\n" for each in outputs_of(executed)
    )


def summary_of(executed: Any) -> dict[str, Any]:
    """Return what a notebook reports for programs."""
    found: dict[str, Any] = {}
    for output in outputs_of(executed):
        found |= output.get("data", {}).get(SUMMARY, {})
    return found
