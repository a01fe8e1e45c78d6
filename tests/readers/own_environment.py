"""Virtual environments beside the checkout's, for programs that cannot share its packages. Made on first use, and kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from fluss_lab.files import replace

#: Half a gigabyte is fetched the first time.
INSTALL_TIMEOUT_S: Final = 1800


class EnvironmentUnavailableError(Exception):
    """The environment cannot be made here; the text says why. Tests skip."""


def make_environment(folder: Path, mark_name: str, requirements: tuple[str, ...]) -> Path:
    """Return the Python of an environment with some packages; it is made where it is not there yet, or has others.

    Args:
        folder: Of the environment.
        mark_name: Of the file in it that says what it has.
        requirements: As pip takes them.

    Raises:
        EnvironmentUnavailableError: It cannot be made.
    """
    python, mark = folder / "bin" / "python", folder / mark_name
    wanted = json.dumps({"requirements": requirements, "python": sys.version_info[:2]})
    if mark.exists() and mark.read_text() == wanted:
        return python
    try:
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(python), "-m", "pip", "install", "--quiet", *requirements],
        ):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", "") or ""
        raise EnvironmentUnavailableError(f"{folder} cannot be made: {error}: {said[-1000:]}") from error
    fresh = mark.with_suffix(".new")
    fresh.write_text(wanted)
    replace(fresh, mark)
    return python
