"""The commands of ``fluss-lab`` that read tables: sql, head, tail, seek, changelog, diff."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from fluss_lab.cli.folder_argument import folder_option, opened_lab
from fluss_lab.cli.output import RowPrinter, examples, json_option
from fluss_lab.cli.table_argument import table_argument
from fluss_lab.errors import InvalidRequestError, InvalidTimestampError

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss_lab.workbench import Table

Command = TypeVar("Command", bound=Callable[..., Any])

#: How long one look for new records waits; Ctrl-C is answered within it.
POLL_TIMEOUT_S: Final = 0.5
ROWS_DEFAULT: Final = 10
#: Rows of a result that are printed as a table; with ``--json`` all are.
SQL_ROWS_MAX: Final = 1000
LATEST: Final = "latest"
#: Spark counts the rows of a limit in 32 bits.
_SPARK_LIMIT_MAX: Final = 2**31 - 1
_MOMENT_HELP: Final = "an ISO time, `yesterday`, `10 minutes ago`, or a lake snapshot's id"

columns_option = click.option("--columns", metavar="A,B", default=None, help="Only these columns, in this order.")
where_option = click.option("--where", metavar="CONDITION", default=None, help='A SQL condition: "delay > 60".')
as_of_option = click.option(
    "--as-of", metavar="MOMENT", default=None, help=f"The table as it was: {_MOMENT_HELP}."
)  # fmt: skip


def moment(text: str | None) -> str | int | None:
    """Return a moment of the command line: digits are a number, everything else stays text.

    Raises:
        InvalidTimestampError: Digits that no number of 64 bits has.
    """
    if text is None or not text.strip().isdecimal():
        return text
    number = int(text) if len(text.strip()) < 20 else 2**63
    if number >= 2**63:
        raise InvalidTimestampError(f"moment {text[:40]!r}: expected epoch milliseconds, or a lake snapshot's id")
    return number


def names(text: str | None) -> list[str] | None:
    """Return names that are separated by commas; None: all."""
    return None if text is None else [each.strip() for each in text.split(",")]


@click.command(
    epilog=examples(
        'fluss-lab sql "SELECT carrier, count(*) AS flights FROM nyc.flights GROUP BY carrier"',
        'fluss-lab sql "SELECT * FROM nyc.planes" --as-of "10 minutes ago" --json',
    )
)
@click.argument("statement")
@as_of_option
@click.option(
    "--rows", type=click.IntRange(min=1), default=None,
    help=f"At most so many rows. Default: {SQL_ROWS_MAX} as a table, all as JSON.",
)  # fmt: skip
@click.option("--master", default=None, help="Spark's master; default: all cores of this machine.")
@json_option
@folder_option
def sql(
    folder: Path, statement: str, as_of: str | None, rows: int | None, master: str | None, *, is_json: bool
) -> None:
    """Run one statement of Spark SQL, in which every table is known by its path.

    Starts Spark, which takes some ten seconds. The result is held in memory.
    """
    from fluss_lab.model.times import parse_moment
    from fluss_lab.spark.session.spark_errors import spark_loss

    wanted = rows if rows is not None or is_json else SQL_ROWS_MAX
    with opened_lab(folder) as lab:
        if isinstance(moment(as_of), str):
            parse_moment(as_of, lab.connection.time_zone)  # before Spark starts, and also where no table is named
        if master is not None:
            lab.start_spark(master)
        frame = lab.sql(statement, as_of=moment(as_of))
        with spark_loss(frame.sparkSession, "sql"):
            if twice := [name for name in frame.columns if frame.columns.count(name) > 1]:
                raise InvalidRequestError(f"sql: two columns are called {twice[0]!r}; name each by AS")
            # One more row shows that there are more.
            found = (frame if wanted is None or wanted >= _SPARK_LIMIT_MAX else frame.limit(wanted + 1)).toArrow()
    printer = RowPrinter(found.schema.names, is_json=is_json, rows_max=wanted)
    printer.write_all(found.to_batches())
    printer.finish(found.schema)
    if wanted is not None and found.num_rows > wanted and rows is None:
        click.echo(f"there are more than {wanted:,} rows; --rows shows more, --json all", err=True)


@click.command(
    epilog=examples(
        "fluss-lab head nyc.flights",
        'fluss-lab head nyc.flights --rows 3 --columns carrier,dep_delay --where "dep_delay > 60" --json',
    )
)
@table_argument
@click.option("--rows", "-n", type=click.IntRange(min=0), default=ROWS_DEFAULT, show_default=True, help="How many.")
@columns_option
@where_option
@as_of_option
@json_option
@folder_option
def head(
    folder: Path, path: str, rows: int, columns: str | None, where: str | None, as_of: str | None, *, is_json: bool
) -> None:
    """Print the first rows of TABLE, across lake and log, by partition, bucket and offset."""
    with opened_lab(folder) as lab:
        scan = lab.table(path).scan(names(columns), where, limit=rows, as_of=moment(as_of))
        printer = RowPrinter(scan.schema.names, is_json=is_json)
        printer.write_all(scan.to_batches())
        printer.finish(scan.schema)


@click.command(
    epilog=examples(
        "fluss-lab tail nyc.flights",
        "fluss-lab tail nyc.flights --follow",
        "fluss-lab tail nyc.planes --from earliest --rows 3 --json",
    )
)
@table_argument
@click.option("--follow", is_flag=True, help="Go on with new records, until Ctrl-C.")
@click.option(
    "--from", "start", metavar="MOMENT", default=None,
    help=f"From there on: earliest, latest, {_MOMENT_HELP}. Default: the last --rows records.",
)  # fmt: skip
@click.option(
    "--rows", "-n", type=click.IntRange(min=1), default=None,
    help=f"The last so many records ({ROWS_DEFAULT}); with --from the first so many, after which it ends.",
)  # fmt: skip
@columns_option
@json_option
@folder_option
def tail(
    folder: Path, path: str, start: str | None, rows: int | None, columns: str | None, *, follow: bool, is_json: bool
) -> None:
    """Print the last records of TABLE's log, and with --follow those that come after.

    Before the columns stand _change_type (+A, or +I -U +U -D), _partition (of partitioned tables), _bucket, _log_offset
    and _commit_timestamp. Ctrl-C ends it with exit code 0.
    """
    with opened_lab(folder) as lab:
        try:
            _tail(lab.table(path), moment(start), rows, names(columns), follow=follow, is_json=is_json)
        except KeyboardInterrupt:
            if not follow:
                raise


def _tail(
    table: Table, start: str | int | None, rows: int | None, columns: list[str] | None, *, follow: bool, is_json: bool
) -> None:
    schema = table.changelog(LATEST, columns=columns).schema
    printer = RowPrinter(schema.names, is_json=is_json, rows_max=None if start is None else rows)
    end = LATEST if start == LATEST else table.read_point()
    if start is None:
        for batch in _last_records(table, end, rows or ROWS_DEFAULT, columns).to_batches():
            printer.write(batch)
    elif start != LATEST:
        printer.write_all(table.changelog(start, end, columns=columns).to_batches())
    if not follow or printer.is_full:
        printer.finish(schema)
        return
    from fluss_lab.read.changelog.changelog import ChangelogRange, changelog_batch

    with table.subscribe(end, columns=columns) as scanner:
        while not printer.is_full:
            for batch in scanner.poll(POLL_TIMEOUT_S):
                place = ChangelogRange(batch.bucket, batch.partition, 0, 0, 0, None)
                printer.write(changelog_batch(batch.records, place, schema))


def _last_records(table: Table, end: Any, count: int, columns: list[str] | None) -> pa.Table:
    """Return the last records of all buckets, by their time: so many of each bucket are read."""
    ranges = table.changelog("earliest", end).offset_ranges
    starts = {each.key: max(each.start, each.stop - count) for each in ranges}
    stops = {each.key: each.stop for each in ranges}
    found = table.changelog(_offsets_by_bucket(starts), _offsets_by_bucket(stops), columns=columns).to_arrow()
    order = [
        name for name in ("_commit_timestamp", "_partition", "_bucket", "_log_offset") if name in found.column_names
    ]
    ordered = found.sort_by([(name, "ascending") for name in order])
    return ordered.slice(max(0, ordered.num_rows - count))


def _offsets_by_bucket(offsets: dict[tuple[str | None, int], int]) -> dict[Any, int]:
    return {bucket if partition is None else (partition, bucket): at for (partition, bucket), at in offsets.items()}


@click.command(
    epilog=examples("fluss-lab seek nyc.flights 2013-01-01T12:00:00Z", 'fluss-lab seek nyc.flights "10 minutes ago"')
)
@table_argument
@click.argument("time", metavar="MOMENT")
@json_option
@folder_option
def seek(folder: Path, path: str, time: str, *, is_json: bool) -> None:
    """Print, per bucket of TABLE, the first offset at or after MOMENT, its time, and where it lives.

    MOMENT is an ISO time, `yesterday`, `10 minutes ago` or epoch milliseconds; without a zone it is in that of
    client.time-zone. `lives` is local, remote, lake, or end where no record is that late (yet): then the offset is the
    bucket's end.
    """
    wanted = moment(time)
    assert wanted is not None
    with opened_lab(folder) as lab:
        found = lab.table(path).seek(wanted).to_arrow()
    _print_table(found, is_json=is_json)


@click.command(
    epilog=examples(
        "fluss-lab changelog nyc.planes --from yesterday",
        "fluss-lab changelog nyc.planes --from 2013-01-01 --to 2013-02-01 --net --json",
    )
)
@table_argument
@click.option(
    "--from", "start", metavar="MOMENT", default="earliest", show_default=True,
    help=f"earliest, latest, {_MOMENT_HELP}.",
)  # fmt: skip
@click.option("--to", "end", metavar="MOMENT", default=None, help="The same, exclusive. Default: now.")
@click.option("--net", is_flag=True, help="Of a primary-key table: only what changed in effect, by key.")
@click.option("--rows", "-n", type=click.IntRange(min=1), default=None, help="At most so many, the first ones.")
@columns_option
@json_option
@folder_option
def changelog(
    folder: Path,
    path: str,
    start: str,
    end: str | None,
    rows: int | None,
    columns: str | None,
    *,
    net: bool,
    is_json: bool,
) -> None:
    """Print the records of TABLE's log, from lake and cluster together, by partition, bucket and offset."""
    with opened_lab(folder) as lab:
        found = lab.table(path).changelog(moment(start), moment(end), columns=names(columns), net=net)
        printer = RowPrinter(found.schema.names, is_json=is_json, rows_max=rows)
        printer.write_all(found.to_batches())
        printer.finish(found.schema)


@click.command(
    epilog=examples(
        "fluss-lab diff nyc.planes yesterday", 'fluss-lab diff nyc.planes 2013-01-01 "10 minutes ago" --json'
    )
)
@table_argument
@click.argument("before")
@click.argument("after", required=False)
@json_option
@folder_option
def diff(folder: Path, path: str, before: str, after: str | None, *, is_json: bool) -> None:
    """Print which rows of TABLE were added, removed and changed from BEFORE to AFTER (default: now).

    Both are moments, AFTER may be the earlier one. _change_type is INSERT, DELETE, or UPDATE_BEFORE and UPDATE_AFTER of one
    key. What changed is held in memory.
    """
    first = moment(before)
    assert first is not None
    with opened_lab(folder) as lab:
        found = lab.table(path).diff(first, moment(after))
    if not is_json:
        click.echo(repr(found).strip("<>"), err=True)
    _print_table(found.to_arrow(), is_json=is_json)


def _print_table(found: pa.Table, *, is_json: bool) -> None:
    printer = RowPrinter(found.schema.names, is_json=is_json)
    printer.write_all(found.combine_chunks().to_batches())
    printer.finish(found.schema)


READ_COMMANDS: Final = (sql, head, tail, seek, changelog, diff)
