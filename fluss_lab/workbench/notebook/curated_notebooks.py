"""The curated notebooks: where they are installed, and their copies that a person works in."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from fluss_lab.errors import InvalidRequestError, NotFoundError
from fluss_lab.jobs.notebook_library import shipped_places

#: The one that JupyterLab opens.
WELCOME: Final = "00_welcome.ipynb"


def notebooks_folder() -> Path:
    """Return the folder of the curated notebooks: the checkout's, else the one that was installed with the package.

    Raises:
        NotFoundError: There is neither.
    """
    for place in shipped_places():
        if (place / WELCOME).is_file():
            return place
    raise NotFoundError(
        f"the curated notebooks are not installed: no {WELCOME} came with the package; install it again"
    )


def copy_notebooks(folder: Path) -> list[Path]:
    """Copy the curated notebooks that a folder does not have; return the copies. What is there stays as it is.

    Args:
        folder: Where to; made when absent.

    Raises:
        InvalidRequestError: It is a file.
        NotFoundError: As `notebooks_folder`.
    """
    source = notebooks_folder()
    if folder.exists() and not folder.is_dir():
        raise InvalidRequestError(f"{folder}: expected a folder for notebooks, found a file")
    copies = []
    for path in sorted(source.rglob("*.ipynb")):
        target = folder / path.relative_to(source)
        if target.exists() or ".ipynb_checkpoints" in path.parts:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        copies.append(target)
    return copies
