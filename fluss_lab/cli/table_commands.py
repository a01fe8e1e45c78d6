"""The commands of ``fluss-lab`` for tables and notebooks: show, tier, follow, run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from fluss_lab.cli.folder_argument import FolderPath, folder_option, opened_lab
from fluss_lab.cli.repair_commands import repair
from fluss_lab.errors import InvalidError

if TYPE_CHECKING:
    from fluss_lab.client import ScanBatch
    from fluss_lab.tiering.service.tiering_service import RoundOutcome
    from fluss_lab.workbench import Lab

#: How long one look for new records waits; Ctrl-C is answered within it.
POLL_TIMEOUT_S: Final = 0.5
#: Tables tiered at the same time, by default.
TABLES_MAX: Final = 2
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def tier_on(lab: Lab, max_tables: int, seconds: float | None) -> None:
    """Tier by freshness until a signal arrives, or for so many seconds; then print the status of every table.

    The first signal lets running rounds end (half a minute at most), the second cancels them.
    """
    ended, signalled = threading.Event(), threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if signalled.is_set():
            raise KeyboardInterrupt
        signalled.set()
        ended.set()

    service = lab.tiering_service(max_tables=max_tables, on_round=_say)
    # After Spark was started: it takes SIGINT for itself.
    with _on_signals(on_signal):
        service.start()
        click.echo("tiering by freshness; Ctrl-C stops it after the running rounds, a second one at once", err=True)
        try:
            ended.wait(seconds)
            click.echo("stopping", err=True)
            status = service.status()
            service.stop()
        except KeyboardInterrupt:
            click.echo("cancelling", err=True)
            service.stop(0.0)
            status = service.status()
    click.echo(repr(replace(status, running=False)), err=True)


def _say(outcome: RoundOutcome) -> None:
    from fluss_lab.clock import SystemClock
    from fluss_lab.model.times import format_moment

    click.echo(f"{format_moment(SystemClock().now_ms())} {outcome}")


@contextmanager
def _on_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before: dict[signal.Signals, Any] = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@click.command()
@click.argument("database", required=False)
@folder_option
def tables(folder: Path, database: str | None) -> None:
    """List tables: all, or those of DATABASE."""
    with opened_lab(folder) as lab:
        for name in [database] if database is not None else lab.databases():
            for table in lab.tables(name):
                click.echo(f"{name}.{table}")


@click.command()
@click.argument("path")
@folder_option
def show(folder: Path, path: str) -> None:
    """Show the table PATH: columns, properties, buckets, lake snapshots."""
    from fluss_lab.workbench.table_display import Listing

    with opened_lab(folder) as lab:
        table = lab.table(path)
        descriptor = table.descriptor
        click.echo(repr(table))
        columns = [{"column": column.name, "type": str(column.type)} for column in descriptor.schema.columns]
        click.echo(repr(Listing("columns", columns)))
        properties = [{"property": key, "value": value} for key, value in sorted(descriptor.properties.items())]
        click.echo(repr(Listing("properties", properties, ("property", "value"))))
        click.echo(repr(table.buckets()))
        if descriptor.lake_enabled:
            click.echo(repr(table.snapshots()))


@click.command()
@click.argument("paths", nargs=-1)
@click.option("--continuous", is_flag=True, help="Keep tiering by each table's freshness, until Ctrl-C or SIGTERM.")
@click.option("--for", "duration", metavar="DURATION", help="With --continuous: end after, for instance, 10min.")
@click.option("--max-tables", type=click.IntRange(min=1), default=None, help="With --continuous: tables at a time (2).")
@click.option("--master", default=None, help="Spark's master; default: all cores of this machine.")
@click.option("--spark", "settings", multiple=True, metavar="K=V", help="A Spark setting. Repeatable.")
@folder_option
def tier(
    folder: Path,
    paths: tuple[str, ...],
    continuous: bool,
    duration: str | None,
    max_tables: int | None,
    master: str | None,
    settings: tuple[str, ...],
) -> None:
    """Tier tables into the lake: one round of each of PATHS, or of all.

    With --continuous every lake-enabled table is tiered by its freshness, with a line for each round. The first Ctrl-C or
    SIGTERM lets running rounds end, the second cancels them.
    """
    if continuous and paths:
        raise InvalidError("tier --continuous tiers every lake-enabled table; leave the paths out")
    if not continuous and (duration is not None or max_tables is not None):
        raise InvalidError("--for and --max-tables belong to tier --continuous")
    from fluss_lab.model.times import parse_duration

    seconds = None if duration is None else parse_duration(duration) / 1000
    with opened_lab(folder) as lab:
        given = _settings(settings)
        named = [lab.table(path) for path in paths]
        if not named and not continuous and not _has_lake_tables(lab):
            click.echo("nothing to tier: no table has table.datalake.enabled=true", err=True)
            return
        lab.start_spark(master, given)
        if continuous:
            tier_on(lab, max_tables or TABLES_MAX, seconds)
            return
        for report in [table.tier() for table in named] if named else lab.tier():
            click.echo(repr(report))


def _has_lake_tables(lab: Lab) -> bool:
    from fluss_lab.model.names import TablePath

    paths = (TablePath(database, name) for database in lab.databases() for name in lab.tables(database))
    return any(lab.table(path).descriptor.lake_enabled for path in paths)


def _settings(pairs: tuple[str, ...]) -> dict[str, str]:
    split = [pair.partition("=") for pair in pairs]
    if bad := [key for key, separator, _ in split if not separator]:
        raise InvalidError(f"--spark {bad[0]!r}: expected KEY=VALUE")
    return {key.strip(): value.strip() for key, _, value in split}


@click.command()
@click.argument("path")
@click.option("--from", "start", default="latest", show_default=True, help="earliest, latest, or an ISO time.")
@click.option("--rows", type=click.IntRange(min=1), default=None, help="End after so many rows.")
@folder_option
def tail(folder: Path, path: str, start: str, rows: int | None) -> None:
    """Follow the table PATH: one JSON object a record, until Ctrl-C.

    Before the columns: _change_type (+A, or +I -U +U -D), _partition (of partitioned tables), _bucket, _log_offset and
    _commit_timestamp.
    """
    left = rows
    with opened_lab(folder) as lab, lab.table(path).subscribe(start=start) as scanner:
        while left is None or left > 0:
            try:
                batches = list(scanner.poll(POLL_TIMEOUT_S))
            except KeyboardInterrupt:
                return
            for batch in batches:
                count = len(batch.records) if left is None else min(left, len(batch.records))
                for row in islice(_records(batch), count):
                    click.echo(json.dumps(row, default=str, ensure_ascii=False))
                left = None if left is None else left - count


def _records(batch: ScanBatch) -> Iterator[dict[str, Any]]:
    from fluss_lab.model.changes import CHANGE_SYMBOLS
    from fluss_lab.model.times import format_moment

    records = batch.records
    partition = {} if batch.partition is None else {"_partition": batch.partition}
    changes = records.change_types or repeat(None, len(records))
    for row, change, offset, moment in zip(
        records.rows.to_pylist(), changes, records.offsets, records.timestamps_ms, strict=True
    ):
        yield {
            "_change_type": CHANGE_SYMBOLS[0 if change is None else change.as_py()],
            **partition,
            "_bucket": batch.bucket.bucket,
            "_log_offset": offset.as_py(),
            "_commit_timestamp": format_moment(moment.as_py()),
            **row,
        }


@click.command()
@click.argument("notebook", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--parameter", "-p", "pairs", nargs=2, multiple=True, metavar="NAME VALUE", help="Repeatable.")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), default=None, help="The executed copy."
)
def run(notebook: Path, pairs: tuple[tuple[str, str], ...], output: Path | None) -> None:
    """Run NOTEBOOK by papermill, in a kernel of its own. Values are JSON where they can be, else text."""
    from fluss_lab.jobs import run_notebook

    target = output or notebook.with_name(f"{notebook.stem}-output.ipynb")
    done = run_notebook(notebook, target, {name: _value(text) for name, text in pairs}, progress=sys.stderr.isatty())
    click.echo(repr(done))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@click.command()
@click.argument("folder", type=FolderPath(), default=Path("notebooks"))
def lab(folder: Path) -> None:
    """Open JupyterLab on FOLDER (default: notebooks)."""
    sys.exit(subprocess.run([sys.executable, "-m", "jupyterlab", str(folder)], check=False).returncode)


TABLE_COMMANDS: Final = (tables, show, tier, tail, run, lab, repair)
