"""The commands of ``fluss-lab`` for servers, their state, and configuration.

Heavy modules are imported by the command that needs them, so that ``fluss-lab --help`` is quick.
"""

from __future__ import annotations

import gc
import itertools
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from fluss_lab.cli.browser_commands import explore, lab
from fluss_lab.cli.exit_codes import EXIT_CODES, FAILED, NO_SERVER, run_command
from fluss_lab.cli.file_commands import FILE_COMMANDS
from fluss_lab.cli.folder_argument import FolderPath, folder_argument
from fluss_lab.cli.output import examples, json_option, print_objects
from fluss_lab.cli.read_commands import READ_COMMANDS
from fluss_lab.cli.table_argument import completion
from fluss_lab.cli.table_commands import TABLE_COMMANDS
from fluss_lab.errors import InvalidPropertyError


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES)
@click.version_option(package_name="fluss-lab")
def commands() -> None:
    """A workbench for the streaming lakehouse: streaming tables, tiered by Spark into Iceberg, read as one."""


@contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """Import what a server is made of: it is there until the end, so no search for garbage needs to pass through it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _parse_options(pairs: Sequence[str]) -> dict[str, str]:
    from fluss_lab.model.config.config_chain import FILE_NAME, environment_name
    from fluss_lab.model.config.option_secrets import mask_secret
    from fluss_lab.model.config.options import CLIENT_OPTIONS

    values: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise InvalidPropertyError(f"--option {pair!r}: expected KEY=VALUE")
        if key.strip() in CLIENT_OPTIONS:
            raise InvalidPropertyError(
                f"--option {key.strip()}: expected a cluster option, found one of clients, which no server has; set it where the lab is "
                f"opened: in the environment as {environment_name(key.strip())}, in {FILE_NAME} of the working directory, or as `config` of Lab.open"
            )
        if mask_secret(key.strip(), value) != value:
            raise InvalidPropertyError(
                f"--option {key.strip()}: a secret on a command line can be read by every user of the machine; expected it in "
                f"{FILE_NAME} (readable by you only) or in the environment as {environment_name(key.strip())}"
            )
        values[key.strip()] = value.strip()
    return values


_options_option = click.option(
    "--option", "pairs", multiple=True, metavar="K=V", help="A cluster option; see `fluss-lab config`. Repeatable."
)


_tablet_servers_option = click.option(
    "--tablet-servers", type=click.IntRange(min=1), default=None, metavar="N",
    help="Tablet servers; with more than one, each is a process of its own. Default: as many as there were, or one.",
)  # fmt: skip


def _tablet_server_option(tablet_servers: int | None) -> dict[str, str]:
    from fluss_lab.model.config.options import TABLET_SERVERS

    return {} if tablet_servers is None else {TABLET_SERVERS.key: str(tablet_servers)}


@commands.command()
@click.option("--folder", type=FolderPath(), required=True, help="The lab's folder.")
@click.option("--ephemeral", is_flag=True, help="End with the last attached process.")
@click.option("--ready-fd", type=int, default=None, hidden=True)
@click.option("--options-fd", type=int, default=None, hidden=True)
@_tablet_servers_option
@_options_option
def server(
    folder: Path,
    ephemeral: bool,
    ready_fd: int | None,
    options_fd: int | None,
    tablet_servers: int | None,
    pairs: tuple[str, ...],
) -> None:
    """Run a server on a folder, in the foreground."""
    from fluss_lab.rpc.malloc_settings import keep_arrow_memory

    keep_arrow_memory()  # before gRPC is imported
    with _garbage_collection_off():
        from fluss_lab.lake.format_plugin import check_format, load_lake
        from fluss_lab.server.process.node_host import run_server
        from fluss_lab.server.process.server_process import receive_options, tablet_command

    given = {} if options_fd is None else receive_options(options_fd)
    given |= _parse_options(pairs) | _tablet_server_option(tablet_servers)
    sys.exit(
        run_server(folder, given, load_lake, tablet_command(), check_format, ephemeral=ephemeral, ready_fd=ready_fd)
    )


@commands.command("tablet-server", hidden=True)
@click.option("--folder", type=FolderPath(), required=True, help="The lab's folder.")
@click.option("--server-id", type=int, required=True, help="Which one.")
@click.option("--ready-fd", type=int, default=None)
def tablet_server(folder: Path, server_id: int, ready_fd: int | None) -> None:
    """Run a tablet server of a coordinator, which sends its task on standard input; folder and id are for `ps`."""
    from fluss_lab.rpc.malloc_settings import keep_arrow_memory

    keep_arrow_memory()  # before gRPC is imported
    with _garbage_collection_off():
        from fluss_lab.server.process.tablet_host import run_tablet_server

    sys.exit(run_tablet_server(ready_fd))


@commands.command(
    epilog=examples("fluss-lab up", "fluss-lab up my-lab --tablet-servers 3 --option log.durability=fsync")
)
@folder_argument
@_tablet_servers_option
@_options_option
@click.option("--jobs", "with_jobs", is_flag=True, help="Run the lab's jobs too, until `fluss-lab down`.")
def up(folder: Path, tablet_servers: int | None, pairs: tuple[str, ...], with_jobs: bool) -> None:
    """Start a server on FOLDER (default: lab) that stays until `fluss-lab down`.

    Where one runs already it goes on; options that it does not have are refused then.
    """
    from fluss_lab.cli.job_commands import start_detached
    from fluss_lab.server import cluster
    from fluss_lab.server.process.server_process import server_command
    from fluss_lab.server.server_options import split_options

    path = folder.absolute()
    was_running = cluster.running_server(path) is not None
    given = options = {**_parse_options(pairs), **_tablet_server_option(tablet_servers)}
    split_options(given)  # before a folder is made
    if cluster.read_discovery(path) is not None:
        # A killed server is restarted with its options, except for those given now.
        options = {**cluster.read_options(path), **options}
    found = cluster.start_server(path, server_command(), options, ephemeral=False)
    _check_options_in_force(path, given)
    one = found.servers[0]
    verb = "already runs" if was_running else "runs"
    click.echo(f"{path}: {verb} at {one.host}:{one.port} (process {one.pid}); token file {one.token_file}")
    if found.ephemeral:
        click.echo(
            "it was started by a lab, and ends with the last process attached; `fluss-lab down`, then `up`, makes it stay"
        )
    if with_jobs:
        click.echo(f"{path}: jobs are scheduled by process {start_detached(path)}")


def _check_options_in_force(folder: Path, given: dict[str, str]) -> None:
    """Check that the server that runs on a folder has the options that were given: one that ran before keeps its own.

    Raises:
        InvalidPropertyError: One is unknown, or has another value; the text has both.
    """
    from fluss_lab.server import cluster
    from fluss_lab.server.server_options import other_options, split_options

    asked = {key: given[key] for key in split_options(given).server}
    if asked and (different := other_options(asked, cluster.read_options(folder), folder)):
        raise InvalidPropertyError(
            f"{folder}: a server runs already and keeps its options, which are others: {', '.join(different)}; "
            f"`fluss-lab down {shlex.quote(str(folder))}` first, then `up` with these"
        )


@commands.command(epilog=examples("fluss-lab down", "fluss-lab down my-lab"))
@folder_argument
def down(folder: Path) -> None:
    """Stop the server on FOLDER (default: lab) gracefully, and wait until it is gone."""
    from fluss_lab.cli.job_commands import stop_detached
    from fluss_lab.server import cluster

    path = folder.absolute()
    # First: its notebooks would start a server again.
    stop_detached(path)
    click.echo(f"{path}: stopped" if cluster.stop_server(path) else f"{path}: no server runs")


@commands.command(epilog=examples("fluss-lab status", "fluss-lab status my-lab --json"))
@folder_argument
@json_option
def status(folder: Path, *, is_json: bool) -> None:
    """Show servers, tables, lag and tiering states of FOLDER (default: lab). Exit code 3: no server runs."""
    from fluss_lab.server import cluster

    path = folder.absolute()
    found = cluster.running_server(path)
    if found is None:
        if is_json:
            print_objects([{"folder": str(path), "running": False}])
        else:
            click.echo(f"{path}: no server runs; `fluss-lab up {shlex.quote(str(folder))}` starts one")
        sys.exit(NO_SERVER)
    from fluss_lab.cli.status_text import status_object, status_text

    if is_json:
        print_objects([status_object(path, found)])
    else:
        click.echo(status_text(path, found))


@commands.command(epilog=examples("fluss-lab config", "fluss-lab config my-lab --all --json"))
@folder_argument
@click.option("--all", "is_whole", is_flag=True, help="Every option of the lake's catalogs and file systems too.")
@json_option
def config(folder: Path, *, is_whole: bool, is_json: bool) -> None:
    """Show each option's value and its source: environment, file, or default. Secrets are hidden.

    Unset options of the lake (datalake.*) have the values of a lab in FOLDER.
    """
    from fluss_lab.cli.text_tables import text_table
    from fluss_lab.model.config.config_chain import Setting, resolve, unknown_variables, working_folders
    from fluss_lab.model.config.lake_options import ICEBERG_OPTIONS, LAKE_PREFIX
    from fluss_lab.server.server_options import with_lake

    found = resolve({}, os.environ, [*working_folders(), folder])
    lake = {key: each.value for key, each in found.items() if key.startswith(LAKE_PREFIX)}
    for key, value in with_lake(lake, folder).items():
        found.setdefault(key, Setting(key, value, "default"))
    for key in ICEBERG_OPTIONS if is_whole else ():
        found.setdefault(key, Setting(key, "", "default"))
    settings = [found[key] for key in sorted(found)]
    if is_json:
        print_objects({"option": each.key, "value": each.shown, "from": each.source} for each in settings)
    else:
        click.echo(text_table(("option", "value", "from"), [(each.key, each.shown, each.source) for each in settings]))
    for name in unknown_variables(os.environ):
        click.echo(f"warning: {name} is set, but there is no such option", err=True)


@commands.command(epilog=examples("fluss-lab doctor", "fluss-lab doctor my-lab --deep --json"))
@folder_argument
@click.option(
    "--deep",
    is_flag=True,
    help="Read every file but the lake's, and check every checksum; no server may run. Nothing is changed.",
)
@json_option
def doctor(folder: Path, *, deep: bool, is_json: bool) -> None:
    """Check what this machine and FOLDER (default: lab) need. Exit code 1: a check failed."""
    from fluss_lab.workbench.health.deep_findings import FOUND, READ, deep_checks
    from fluss_lab.workbench.health.doctor import checks

    failed = False
    place = folder.absolute()
    for check in itertools.chain(checks(place), deep_checks(place) if deep and folder.exists() else ()):
        failed |= not check.is_ok
        if is_json:
            print_objects([check.row()])
            continue
        todo = "" if check.command is None else f"; {check.command}"
        if check.name in {READ, FOUND}:
            click.echo(f"{'read' if check.name == READ else 'note' if check.is_ok else 'BAD '} {check.found}{todo}")
        else:
            click.echo(f"{'ok  ' if check.is_ok else 'BAD '} {check.name}: {check.found}{todo}")
    sys.exit(FAILED if failed else 0)


for _command in (lab, explore, *TABLE_COMMANDS):
    commands.add_command(_command)
for _reader in (*READ_COMMANDS, *FILE_COMMANDS, completion):
    commands.add_command(_reader)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process; an error is one line on standard error.

    Raises:
        SystemExit: Always, with one of the exit codes.
        Exception: What failed, when the variable for debugging is set.
    """
    sys.exit(run_command(commands, None if arguments is None else list(arguments)))
