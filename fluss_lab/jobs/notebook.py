"""Notebooks run as jobs, by papermill: the same notebooks that a person opens."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

from fluss_lab.display import html_table
from fluss_lab.errors import InvalidError, NotebookError, NotFoundError

#: The MIME type of a notebook's output for programs.
SUMMARY_MIME: Final = "application/vnd.fluss-lab.summary+json"
#: Longest start of a kernel: a cold disk and a busy machine.
KERNEL_START_TIMEOUT_S: Final = 120

#: The path of a Unix socket has at most 107 bytes on Linux and 103 on macOS; the kernel appends ``-1`` to ``-5``.
SOCKET_PREFIX_LENGTH_MAX: Final = 100


@dataclass(frozen=True)
class NotebookRun:
    """A successful run.

    Attributes:
        notebook: The notebook that was run.
        output: The executed notebook.
        parameters: Its parameters.
        seconds: From start to end, kernel included.
        summary: The notebook's outputs of type `SUMMARY_MIME`, merged; empty without any.
    """

    notebook: Path
    output: Path
    parameters: Mapping[str, Any]
    seconds: float
    summary: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<NotebookRun {self.notebook.name} -> {self.output}, {self.seconds:.1f} s>"

    def _repr_html_(self) -> str:
        rows = [("output", self.output), ("seconds", f"{self.seconds:.1f}"), *self.summary.items()]
        return html_table(f"run of {self.notebook.name}", ["what", "value"], rows)


def run_notebook(
    notebook: Path, output: Path, parameters: Mapping[str, Any] | None = None, *, folder: Path | None = None,
    progress: bool = False,
) -> NotebookRun:  # fmt: skip
    """Run a notebook from top to bottom in a kernel of its own, with this Python.

    Args:
        notebook: The notebook; it is not changed.
        output: Where the executed copy goes; written while it runs, so a failed run can be read too.
        parameters: Values for names that the notebook's cell tagged ``parameters`` assigns.
        folder: Working directory of the kernel; the output's folder by default.
        progress: Whether a progress bar is shown.

    Raises:
        NotFoundError: The notebook does not exist.
        InvalidError: A parameter that the notebook does not have.
        NotebookError: A cell failed; the message has its error, the output notebook the traceback.
    """
    import papermill
    from papermill.exceptions import PapermillExecutionError

    if not notebook.is_file():
        raise NotFoundError(f"notebook {notebook}: the file does not exist")
    given = dict(parameters or {})
    known = papermill.inspect_notebook(str(notebook))
    if unknown := sorted(set(given) - set(known)):
        raise InvalidError(f"notebook {notebook.name}: unknown parameter {unknown[0]!r}; it has {sorted(known)}")
    output.parent.mkdir(parents=True, exist_ok=True)
    started = monotonic()
    try:
        with _kernel_sockets() as config:
            executed = papermill.execute_notebook(
                str(notebook),
                str(output),
                parameters=given,
                kernel_name="python3",
                cwd=str(folder or output.parent),
                progress_bar=progress,
                start_timeout=KERNEL_START_TIMEOUT_S,
                request_save_on_cell_execute=True,
                config=config,
            )
    except PapermillExecutionError as error:
        raise NotebookError(
            f"notebook {notebook.name}: cell {error.exec_count} failed with {error.ename}: {error.evalue}; see {output}"
        ) from error
    return NotebookRun(notebook, output, given, monotonic() - started, _summary(executed))


@contextmanager
def _kernel_sockets() -> Iterator[Any]:
    """Yield the settings by which the kernel listens on sockets in a private folder, not on TCP ports."""
    from traitlets.config import Config

    with tempfile.TemporaryDirectory(prefix="fluss-lab-") as folder:
        prefix = f"{folder}/kernel"
        short = len(prefix) <= SOCKET_PREFIX_LENGTH_MAX
        yield Config({"KernelManager": {"transport": "ipc", "ip": prefix}} if short else {})


def _summary(executed: Any) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for cell in executed.cells:
        for item in cell.get("outputs", ()):
            merged |= item.get("data", {}).get(SUMMARY_MIME, {})
    return merged
