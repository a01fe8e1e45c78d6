"""The commands of ``fluss-lab`` for tables: list, show, tier, repair."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from fluss_lab.cli.folder_argument import folder_option, folder_words, opened_lab
from fluss_lab.cli.job_commands import jobs, run, schedule
from fluss_lab.cli.output import examples, json_option, print_objects
from fluss_lab.cli.table_argument import table_argument, tables_argument
from fluss_lab.errors import InvalidError, InvalidRequestError, StorageError, UnsupportedError

if TYPE_CHECKING:
    from fluss_lab.lake.iceberg.maintenance.warehouse_relocation import Relocated
    from fluss_lab.model import TablePath
    from fluss_lab.tiering.service.tiering_service import RoundOutcome
    from fluss_lab.workbench import Lab

#: Tables tiered at the same time, by default.
TABLES_MAX: Final = 2
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@click.command(
    epilog=examples(
        "fluss-lab repair nyc.flights --adopt",
        "fluss-lab repair nyc.flights --skip-corrupt --yes",
        "fluss-lab repair my-lab --relocate",
    )
)
@click.argument("target")
@click.option("--adopt", is_flag=True, help="Accept the lake table as it is; TARGET is the table's path.")
@click.option(
    "--accept-gaps", is_flag=True, help="With --adopt: continue without offsets that are no longer available."
)
@click.option(
    "--skip-corrupt", is_flag=True, help="Give up the unreadable records of a table's logs; TARGET is its path."
)
@click.option(
    "--discard-before",
    is_flag=True,
    help="With --skip-corrupt: lose more than the damaged records, as shown in the plan.",
)
@click.option("--relocate", is_flag=True, help="Rewrite the paths of a lab that was moved; TARGET is its folder.")
@click.option("--yes", is_flag=True, help="Do it. Without it only the plan is shown (not needed with --relocate).")
@folder_option
def repair(
    target: str,
    *,
    adopt: bool,
    accept_gaps: bool,
    skip_corrupt: bool,
    discard_before: bool,
    relocate: bool,
    yes: bool,
    folder: Path,
) -> None:
    """Reconcile lake and cluster, or give up damaged records.

    TARGET is a table's path with --adopt, after another program changed its lake table, rolled it back or expired its
    snapshots, or after records left the cluster while the lake was disabled; with --skip-corrupt, while its server
    runs, when a log is damaged or gone and there is no copy of the file: exactly what cannot be read is given up, from the
    lake if it holds it. It is a lab's folder with --relocate.
    """
    if adopt + skip_corrupt + relocate != 1:
        raise InvalidRequestError("repair: expected one of TABLE --adopt, TABLE --skip-corrupt or FOLDER --relocate")
    if relocate and yes:
        raise InvalidRequestError("repair --relocate: --yes goes with --adopt and --skip-corrupt")
    if accept_gaps and not adopt:
        raise InvalidRequestError("repair: --accept-gaps goes with --adopt")
    if discard_before and not skip_corrupt:
        raise InvalidRequestError("repair: --discard-before goes with --skip-corrupt")
    if skip_corrupt:
        _skip_corrupt(target, folder, discard_before=discard_before, yes=yes)
    elif adopt:
        _adopt(target, folder, accept_gaps=accept_gaps, yes=yes)
    else:
        _relocate(Path(target).expanduser().absolute())


def _relocate(place: Path) -> None:
    done = relocate_lab(place)
    click.echo(
        f"{place}: rewrote {done.tables} table(s) in the catalog, {done.metadata} metadata file(s), {done.lists} list(s), "
        f"{done.manifests} manifest(s), {done.deletes} delete file(s)"
    )


def _skip_corrupt(name: str, folder: Path, *, discard_before: bool, yes: bool) -> None:
    from fluss_lab.model import TablePath
    from fluss_lab.tiering.repair.damage_repair import give_up_damage, plan_damage_repair
    from fluss_lab.tiering.repair.damage_repair_plan import DISCARD

    path = TablePath.parse(name)
    with opened_lab(folder) as lab:
        if yes:
            done = give_up_damage(
                lab.connection, path, lab.lake_storage, lambda storage: lab.compute.executor(storage, f"repair-{path}"),
                discard_before=discard_before,
            )  # fmt: skip
            click.echo(repr(done))
            return
        plan = plan_damage_repair(lab.connection, path)
    if plan.is_empty:
        raise InvalidRequestError(f"repair: {plan!r}")
    click.echo(repr(plan))
    if not plan.is_possible:
        click.echo("nothing was changed, and nothing is given up before what the plan calls not possible is restored")
        return
    discard = f" {DISCARD}" if plan.needs_word else ""
    click.echo(
        f"nothing was changed; `fluss-lab repair {path} --skip-corrupt{discard} --yes{folder_words(folder)}` does it"
    )


def _adopt(name: str, folder: Path, *, accept_gaps: bool, yes: bool) -> None:
    from fluss_lab.model import TablePath
    from fluss_lab.tiering.repair.lake_repair import adopt, plan_repair

    path = TablePath.parse(name)
    with opened_lab(folder) as lab:
        if yes:
            done = adopt(lab.connection, lab.lake_storage(), path, accept_gaps=accept_gaps)
            click.echo(repr(done))
            return
        plan = plan_repair(lab.connection, lab.lake_storage(), path)
        if plan.reason is None:
            _check_lake(lab, path)
    click.echo(repr(plan))
    if plan.reason is not None:
        gaps = " --accept-gaps" if plan.lost else ""
        click.echo(f"nothing was changed; `fluss-lab repair {path} --adopt{gaps} --yes{folder_words(folder)}` does it")


def _check_lake(lab: Lab, path: TablePath) -> None:
    """Raise what is damaged of a lake table that fits to the cluster: there is nothing to accept as long as it is not rolled back."""
    from fluss_lab.workbench.health.lake_findings import look_at_lake

    for _, error in look_at_lake(lab.connection, [lab.connection.table_info(path)]).troubles:
        raise type(error)(
            f"{error}; or roll the lake table back to a snapshot that is whole, and run this again"
        ) from error


#: Where a lab's own lake is, in its folder.
_CATALOG: Final = Path("lake") / "catalog.db"
_WAREHOUSE: Final = Path("lake") / "warehouse"


def relocate_lab(folder: Path) -> Relocated:
    """Rewrite the paths of a lab that was moved, or copied, so that it can be used where it is.

    Args:
        folder: The lab's, absolute. After an interruption the lab is still refused; run this again.

    Returns:
        The number of rewritten files.

    Raises:
        LabError: The folder is not a lab's.
        LabLockedError: A server runs on it.
        UnsupportedError: Its lake is configured to lie in the folder that was moved.
        CorruptDataError: A file of its lake is damaged.
        StorageError: The folder, or a file in it, cannot be read or written.
    """
    from fluss_lab.lake.iceberg.maintenance.warehouse_relocation import Places, Relocated, relocate_warehouse
    from fluss_lab.server.folder.metadata_checks import relocation
    from fluss_lab.server.folder.read_only_lab import is_read_only

    if is_read_only(folder):
        raise StorageError(
            f"{folder}: the lab's folder cannot be written, for instance because its file system is mounted read-only, and its paths "
            "cannot be rewritten in it: mount it for writing, or move it back; or copy it to where it can be written, and relocate "
            "the copy"
        )
    try:
        with relocation(folder) as places:
            if not places:
                return Relocated()
            _check_configured(folder, places)
            before = tuple(place / _WAREHOUSE for place in places)
            return relocate_warehouse(folder / _WAREHOUSE, folder / _CATALOG, Places(before, folder / _WAREHOUSE))
    except OSError as error:
        raise StorageError(
            f"{folder}: the relocation ended before it was done: {error}; mend that, and run it again"
        ) from error


def _check_configured(folder: Path, places: tuple[Path, ...]) -> None:
    """Refuse a lake whose configured path is in the lab's old folder: the configuration would still name it."""
    from fluss_lab.model.config.lake_options import LAKE_PREFIX
    from fluss_lab.model.config.option_secrets import mask_secret
    from fluss_lab.server.cluster import read_options
    from fluss_lab.server.server_options import resolve_server_options

    options = {**read_options(folder), **resolve_server_options({}, folder)}
    for key, value in options.items():
        if key.startswith(LAKE_PREFIX) and any(f"{place}/" in value for place in places):
            raise UnsupportedError(
                f"option {key!r} is {mask_secret(key, value)!r}: it names the lab's old folder; only a lab's own lake (its folder "
                "`lake`) is relocated: move the configured lake back, or outside of the lab's folder"
            )


def tier_on(lab: Lab, max_tables: int, seconds: float | None, *, is_json: bool = False) -> None:
    """Tier by freshness until a signal arrives, or for so many seconds; then print the status of every table.

    The first signal lets running rounds end (half a minute at most), the second cancels them.
    """
    ended, signalled = threading.Event(), threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if signalled.is_set():
            raise KeyboardInterrupt
        signalled.set()
        ended.set()

    service = lab.tiering_service(max_tables=max_tables, on_round=_say_json if is_json else _say)
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


def _say_json(outcome: RoundOutcome) -> None:
    from fluss_lab.clock import SystemClock
    from fluss_lab.model.times import format_moment

    time, report = format_moment(SystemClock().now_ms()), outcome.report
    error = None if report is not None else str(outcome).removeprefix(f"{outcome.table}: ")
    print_objects([{"time": time, "table": str(outcome.table), "report": report and report.to_dict(), "error": error}])


@contextmanager
def _on_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before: dict[signal.Signals, Any] = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@click.command(epilog=examples("fluss-lab tables", "fluss-lab tables nyc --json"))
@click.argument("database", required=False)
@json_option
@folder_option
def tables(folder: Path, database: str | None, *, is_json: bool) -> None:
    """List tables: all, or those of DATABASE."""
    with opened_lab(folder) as lab:
        paths = lab.tables() if database is None else [f"{database}.{name}" for name in lab.tables(database)]
    if is_json:
        parts = ((path, *path.split(".")) for path in paths)
        print_objects({"path": path, "database": name, "table": table} for path, name, table in parts)
        return
    for path in paths:
        click.echo(path)


@click.command(epilog=examples("fluss-lab show nyc.flights", "fluss-lab show nyc.flights --json"))
@table_argument
@json_option
@folder_option
def show(folder: Path, path: str, *, is_json: bool) -> None:
    """Show TABLE: columns, properties, buckets, lake snapshots."""
    from fluss_lab.cli.text_tables import DataTable
    from fluss_lab.display.shown_text import visible

    with opened_lab(folder) as lab:
        table = lab.table(path)
        title, descriptor = repr(table).strip("<>"), table.descriptor
        buckets = [dict(row) for row in table.buckets()]
        snapshots = [dict(row) for row in table.snapshots()] if descriptor.lake_enabled else None
    columns = [
        {"column": each.name, "type": str(each.type), "comment": each.comment} for each in descriptor.schema.columns
    ]
    properties = dict(sorted(descriptor.properties.items()))
    if is_json:
        key = list(descriptor.schema.primary_key)
        definition = {
            "path": path, "kind": "primary-key table" if key else "log table", "primary_key": key,
            "partitioned_by": list(descriptor.partitioned_by), "bucket_key": list(descriptor.bucket_key),
            "lake": descriptor.lake_enabled, "comment": descriptor.comment, "columns": columns, "properties": properties,
        }  # fmt: skip
        print_objects([{**definition, "buckets": buckets, "snapshots": snapshots}])
        return
    listed = [("columns", _without_unset(columns)), ("properties", [{"property": k, "value": v} for k, v in properties.items()]),
              ("buckets", _without_unset(buckets)), ("snapshots", snapshots)]  # fmt: skip
    click.echo(visible(title))
    for name, rows in listed:
        if rows is not None:
            columns_shown = list(zip(*(row.values() for row in rows), strict=True))
            lines = DataTable(list(rows[0])).lines(columns_shown) if rows else ["none"]
            click.echo("\n".join(["", f"{name} of {path}", *lines]))


def _without_unset(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without the columns that are None in each."""
    kept = [name for name in (rows[0] if rows else ()) if any(row[name] is not None for row in rows)]
    return [{name: row[name] for name in kept} for row in rows]


@click.command(
    epilog=examples("fluss-lab tier nyc.flights", "fluss-lab tier --json", "fluss-lab tier --continuous --for 10min")
)
@tables_argument
@click.option("--continuous", is_flag=True, help="Keep tiering by each table's freshness, until Ctrl-C or SIGTERM.")
@click.option("--for", "duration", metavar="DURATION", help="With --continuous: end after, for instance, 10min.")
@click.option("--max-tables", type=click.IntRange(min=1), default=None, help="With --continuous: tables at a time (2).")
@click.option("--master", default=None, help="Spark's master; default: all cores of this machine.")
@click.option("--spark", "settings", multiple=True, metavar="K=V", help="A Spark setting. Repeatable.")
@json_option
@folder_option
def tier(
    folder: Path,
    paths: tuple[str, ...],
    continuous: bool,
    duration: str | None,
    max_tables: int | None,
    master: str | None,
    settings: tuple[str, ...],
    is_json: bool,
) -> None:
    """Tier tables into the lake: one round of each of TABLES, or of all.

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
            tier_on(lab, max_tables or TABLES_MAX, seconds, is_json=is_json)
            return
        for report in [table.tier() for table in named] if named else lab.tier():
            if is_json:
                print_objects([report.to_dict()])
            else:
                click.echo(repr(report))


def _has_lake_tables(lab: Lab) -> bool:
    from fluss_lab.client.table_listing import lake_tables

    return next(lake_tables(lab.connection.admin()), None) is not None


def _settings(pairs: tuple[str, ...]) -> dict[str, str]:
    split = [pair.partition("=") for pair in pairs]
    if bad := [key for key, separator, _ in split if not separator]:
        raise InvalidError(f"--spark {bad[0]!r}: expected KEY=VALUE")
    return {key.strip(): value.strip() for key, _, value in split}


TABLE_COMMANDS: Final = (tables, show, tier, run, schedule, jobs, repair)
