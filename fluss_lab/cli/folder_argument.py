"""The lab's folder as an argument of commands: ``~`` is expanded, and only an existing lab is opened."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from fluss_lab.workbench import Lab

Command = TypeVar("Command", bound=Callable[..., Any])
_DEFAULT: Final = Path("lab")


class FolderPath(click.Path):
    """A folder, which may be missing; ``~`` is the user's home also where no shell expands it."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the argument as a path."""
        from fluss_lab.model.named_paths import name_fault

        if fault := name_fault(str(value)):
            self.fail(f"{str(value)!r}: {fault}", param, ctx)
        try:
            folder = Path(value).expanduser()
            folder.absolute()
        except RuntimeError:
            self.fail(f"{str(value)!r}: there is no such user", param, ctx)
        except FileNotFoundError:
            self.fail(
                f"{str(value)!r}: the working directory was removed; change to another one, or give an absolute path",
                param,
                ctx,
            )
        # `isfile` has no error for what cannot be looked at.
        if file := next((place for place in folder.absolute().parents if os.path.isfile(place)), None):
            self.fail(f"{str(value)!r}: expected a folder, found the file {file}", param, ctx)
        return super().convert(folder, param, ctx)


def folder_argument(command: Command) -> Command:
    """Add the argument FOLDER to a command."""
    return click.argument("folder", type=FolderPath(), default=_DEFAULT)(command)


def folder_option(command: Command) -> Command:
    """Add the option ``--folder`` to a command."""
    return click.option("--folder", "-f", type=FolderPath(), default=_DEFAULT, help="The lab's folder (default: lab).")(
        command
    )


def folder_words(folder: Path) -> str:
    """Return what names the folder in a command that a text proposes: nothing where it is the default."""
    return "" if folder == _DEFAULT else f" --folder {shlex.quote(str(folder))}"


@contextmanager
def opened_lab(folder: Path) -> Iterator[Lab]:
    """Open the lab of a folder for the block.

    Raises:
        LabError: It is not a lab's folder. Only ``fluss-lab up`` and `Lab.open` create one: a wrong path is noticed.
    """
    from fluss_lab.server.folder.lab_folder import check_lab_exists
    from fluss_lab.workbench import Lab

    check_lab_exists(folder.absolute())
    with Lab.open(folder) as lab:
        yield lab
