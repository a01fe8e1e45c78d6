"""JupyterLab as ``fluss-lab lab`` starts it, and a browser to look at it, for tests."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import nbformat

from fluss_lab.testing.mock_clock import wait_until

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENT: Final = ROOT / ".venv-browser"
#: The second brings axe-core, which looks at pages as those do who cannot see them.
REQUIREMENTS: Final = ("playwright>=1.60", "axe-playwright-python==0.1.8")
#: What a visit of a page may find wrong: none of it is right anywhere.
FLAWS: Final = ("broken", "failed", "elsewhere", "console", "frame", "axe")
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
START_TIMEOUT_S: Final = 120
PAGE_TIMEOUT_S: Final = 900
_URL: Final = re.compile(r"http://127\.0\.0\.1:\d+/lab\S*token=\w+")


class BrowserUnavailableError(Exception):
    """There is no browser here, or nothing to drive it with; the text says which. Tests skip."""


def browser() -> tuple[Path, str]:
    """Return a Python that has playwright, and the path of a Chromium.

    Raises:
        BrowserUnavailableError: There is none, and none can be fetched.
    """
    chromium = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if chromium is None:
        raise BrowserUnavailableError(f"no browser: expected one of {', '.join(BROWSERS)} on the path")
    python = ENVIRONMENT / "bin" / "python"
    ready, wanted = ENVIRONMENT / "ready", "\n".join(REQUIREMENTS)
    if not ready.exists() or ready.read_text() != wanted:
        try:
            subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True, capture_output=True)
            install: list[str] = [str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS]
            subprocess.run(install, check=True, capture_output=True, text=True, timeout=600)
        except subprocess.SubprocessError as error:
            raise BrowserUnavailableError(f"playwright cannot be installed: {error}") from error
        ready.write_text(wanted)
    return python, chromium


@contextmanager
def jupyterlab(folder: Path, home: Path) -> Iterator[str]:
    """Yield the address, with token, of a JupyterLab on a folder's notebooks, as ``fluss-lab lab`` starts it."""
    log = home / "jupyterlab.log"
    command = [
        sys.executable,
        "-m",
        "fluss_lab.cli",
        "lab",
        str(folder),
        "--no-browser",
        "--",
        "--expose-app-in-browser",
    ]
    with log.open("w") as out:
        server = subprocess.Popen(
            [*command, "--ServerApp.port=0", "--allow-root"], stdout=out, stderr=out, start_new_session=True,
            env={**os.environ, "HOME": str(home), "JUPYTER_CONFIG_DIR": str(home / "jupyter")},
        )  # fmt: skip
    try:
        wait_until(lambda: server.poll() is not None or _URL.search(log.read_text()) is not None, START_TIMEOUT_S)
        found = _URL.search(log.read_text())
        assert found, log.read_text()
        yield found[0]
    finally:
        server.terminate()
        server.wait(60)


def write_notebook(path: Path, cells: Iterable[str]) -> str:
    """Write a notebook of cells of Python; return its name."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.strip()) for cell in cells])
    made.metadata.kernelspec = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    nbformat.write(made, path)
    return path.name


def run_page(script: str, *arguments: object) -> dict[str, Any]:
    """Run one of this folder's scripts for a browser; return what it prints.

    Args:
        script: Its module's name: ``explorer_page``.
        arguments: What it takes behind the browser's path.
    """
    python, chromium = browser()
    command = [python, "-m", f"tests.notebooks.{script}", chromium, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PAGE_TIMEOUT_S, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))
