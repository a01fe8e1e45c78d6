"""``fluss-lab lab``: JupyterLab on the curated notebooks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from fluss_lab.cli.folder_argument import FolderPath


@click.command("lab", context_settings={"ignore_unknown_options": True})
@click.argument("folder", type=FolderPath(), default="notebooks")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@click.argument("jupyter_arguments", nargs=-1, type=click.UNPROCESSED)
def lab(folder: Path, no_browser: bool, jupyter_arguments: tuple[str, ...]) -> None:
    """Open JupyterLab on FOLDER (default: notebooks), with the curated notebooks in it.

    Those that FOLDER does not have are copied there; what it has stays. JupyterLab asks for no news and no updates, installs
    no extensions, and is light or dark as the system is. JUPYTER_ARGUMENTS, after `--`, go to it as they are.
    """
    from fluss_lab.workbench.notebook.curated_notebooks import WELCOME, copy_notebooks

    path = folder.absolute()
    for copy in copy_notebooks(path):
        click.echo(f"copied {copy.relative_to(path)}", err=True)
    settings = Path(__file__).parents[1] / "workbench" / "notebook" / "jupyterlab_settings"
    command = [
        sys.executable, "-m", "jupyterlab", str(path), f"--LabApp.app_settings_dir={settings}",
        "--LabApp.extension_manager=readonly", f"--LabApp.default_url=/lab/tree/{WELCOME}",
    ]  # fmt: skip
    sys.stdout.flush()
    os.execv(sys.executable, [*command, *(["--no-browser"] if no_browser else []), *jupyter_arguments])  # noqa: S606
