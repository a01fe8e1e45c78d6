"""The argument TABLE of commands, and what a shell completes: tables of a lab whose server runs, never started for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem, get_completion_class

from fluss_lab.cli.output import examples

Command = TypeVar("Command", bound=Callable[..., Any])
_PROGRAM: Final = "fluss-lab"
_VARIABLE: Final = "_FLUSS_LAB_COMPLETE"


def table_paths(folder: Path) -> list[str]:
    """Return the tables of a lab whose server answers at once; else none. Starts, makes and waits for nothing."""
    try:
        from fluss_lab.server import cluster
        from fluss_lab.workbench.lab_place import running_connection
        from fluss_lab.workbench.lab_tables import LabTables

        path = folder.expanduser().absolute()
        if cluster.running_server(path) is None:
            return []
        with running_connection(path) as connection:
            return LabTables(connection).completions()
    except Exception:  # a shell that completes shows no errors
        return []


def _complete_table(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    folder = context.params.get("folder") or Path("lab")
    return [CompletionItem(path) for path in table_paths(folder) if path.startswith(incomplete)]


def table_argument(command: Command) -> Command:
    """Add the argument TABLE to a command, as ``path``."""
    return click.argument("path", metavar="TABLE", shell_complete=_complete_table)(command)


def optional_table_argument(command: Command) -> Command:
    """Add the argument [TABLE] to a command, as ``path``, None without it."""
    return click.argument("path", metavar="[TABLE]", required=False, shell_complete=_complete_table)(command)


def tables_argument(command: Command) -> Command:
    """Add the argument [TABLES]... to a command, as ``paths``."""
    return click.argument("paths", metavar="[TABLES]...", nargs=-1, shell_complete=_complete_table)(command)


@click.command(
    epilog=examples(
        'eval "$(fluss-lab completion bash)"  # in ~/.bashrc',
        'eval "$(fluss-lab completion zsh)"  # in ~/.zshrc',
        "fluss-lab completion fish > ~/.config/fish/completions/fluss-lab.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script by which a shell completes commands, options, and the tables of a lab whose server runs."""
    found = get_completion_class(shell)
    assert found is not None
    made = found(context.find_root().command, {}, _PROGRAM, _VARIABLE)
    # Not `source`: that runs bash to look at its version.
    click.echo(made.source_template % made.source_vars())
