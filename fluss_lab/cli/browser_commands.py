"""The commands that open a browser: JupyterLab on the curated notebooks, and the table explorer without Jupyter."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import webbrowser
from contextlib import ExitStack
from html import escape
from pathlib import Path

import click

from fluss_lab.cli.folder_argument import FolderPath, folder_option, opened_lab
from fluss_lab.cli.output import examples
from fluss_lab.cli.table_argument import optional_table_argument


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


@click.command(
    epilog=examples(
        "fluss-lab explore", "fluss-lab explore nyc.flights --read-only --mask email --port 8899 --no-browser"
    )
)
@optional_table_argument
@click.option("--mask", multiple=True, metavar="COLUMN", help="A column that is hidden in every table. Repeatable.")
@click.option("--read-only", is_flag=True, help="Leave out whatever changes something.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Of 127.0.0.1. Default: any that is free.")
@click.option("--no-browser", is_flag=True, help="Print the link, and open no browser.")
@folder_option
def explore(
    folder: Path, path: str | None, mask: tuple[str, ...], *, read_only: bool, port: int, no_browser: bool
) -> None:
    """Show the table explorer in a browser, opened on TABLE, until Ctrl-C.

    It is `lab.explore()` without Jupyter, for whoever only wants to look. The link opens it once, in one browser of this
    machine: it listens on 127.0.0.1 only, and answers nobody else.
    """
    from fluss_lab.explorer.lab_explorer import unknown_mask
    from fluss_lab.explorer.loopback.loopback_host import LoopbackHost
    from fluss_lab.model import TablePath

    with opened_lab(folder) as lab, ExitStack() as stack:
        table = None if path is None else TablePath.parse(path)
        if table is not None:
            lab.connection.table_info(table)
        host = LoopbackHost(lab, folder.absolute().name, table=table, mask=mask, read_only=read_only, port=port)
        if (text := unknown_mask(lab.connection, mask)) is not None:
            click.echo(f"warning: {text}", err=True)

        def show(link: str) -> None:
            click.echo(f"the explorer of {folder}: {link}")
            click.echo("The link opens it once. Ctrl-C ends it.", err=True)
            sys.stdout.flush()
            if not no_browser and _has_screen():
                _open_browser(link, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fluss-explore-"))))

        host.run(show)
    click.echo("ended", err=True)


def _has_screen() -> bool:
    """Return whether a browser has a screen to open on: one of texts would take the terminal."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _open_browser(link: str, folder: Path) -> None:
    """Open a link by way of a file that nobody else can read: every user of the machine can see a program's arguments."""
    page = folder / "open.html"
    page.touch(mode=0o600)
    page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(link)}">', encoding="utf-8")
    # A browser in the terminal would keep the explorer from serving it.
    threading.Thread(target=webbrowser.open, args=(page.as_uri(),), name="fluss-explore-browser", daemon=True).start()
