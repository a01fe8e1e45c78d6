"""Notebooks and runs for tests of jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from fluss_lab.jobs.run_record import JobRecord, RunTask

#: In the place of a notebook's process: reads the task as it does, then runs the code of the parameter ``code``.
SCRIPT_PROCESS: Final = (
    sys.executable, "-S", "-c",
    "import json, os, sys, threading\n"
    "line = sys.stdin.buffer.readline()\n"
    "if not line.endswith(b'\\n'): sys.exit(1)\n"
    "task = json.loads(line)\n"
    "def watch():\n"
    "    while os.read(0, 4096): pass\n"
    "    os._exit(1)\n"
    "threading.Thread(target=watch, daemon=True).start()\n"
    "def report(**values): os.write(task['reports_fd'], json.dumps(values).encode() + b'\\n')\n"
    "exec(task['parameters']['code'], {'task': task, 'report': report})\n",
)  # fmt: skip


def write_notebook(path: Path, parameters: str | None = "", cells: Sequence[str] = (), **metadata: Any) -> Path:
    """Write a notebook with a cell of parameters (None: without) and code cells."""
    sources = [(parameters, ["parameters"])] if parameters is not None else []
    made: list[dict[str, Any]] = [
        {"cell_type": "code", "id": f"cell-{at}", "metadata": {"tags": tags}, "execution_count": None, "outputs": [], "source": source}
        for at, (source, tags) in enumerate([*sources, *((cell, []) for cell in cells)])
    ]  # fmt: skip
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}} | metadata
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
    return path


def make_job(**changes: Any) -> JobRecord:
    """Return a job of every minute, with some members changed."""
    notebook = changes.pop("notebook", "/nowhere/x.ipynb")
    parameters = changes.pop("parameters", {})
    task = RunTask(notebook=notebook, parameters=parameters, timeout_ms=60_000, memory_bytes=1 << 30)
    members: dict[str, Any] = {
        "id": 1, "name": "job", "task": task, "cron": "* * * * *", "zone": "UTC", "retries": 0, "overlap": "skip",
        "catch_up": "one", "keep": 50, "on_failure": (), "next_due_ms": 0,
    }  # fmt: skip
    return JobRecord(**members | changes)
