"""The commands of ``fluss-lab`` between files and tables: load, export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from fluss_lab.cli.folder_argument import folder_option, opened_lab
from fluss_lab.cli.output import examples, json_option, print_objects
from fluss_lab.cli.read_commands import as_of_option, columns_option, moment, names, where_option
from fluss_lab.cli.table_argument import table_argument
from fluss_lab.errors import InvalidRequestError, TableExistsError

_FORMATS: Final = ("parquet", "csv", "json")
#: Options of `load` that are given as NAME=VALUE, by the argument that they become.
_PAIRS: Final = {"properties": "--property", "rename": "--rename", "types": "--type"}


@click.command(
    epilog=examples(
        "fluss-lab load orders.csv shop.orders",
        "fluss-lab load orders.csv shop.orders --primary-key id --type price='decimal(10, 2)'",
        "fluss-lab load more.jsonl shop.orders --append --json",
    )
)
@click.argument("file", type=click.Path())
@table_argument
@click.option("--primary-key", metavar="A,B", default=None, help="Key columns; without, it is a log table.")
@click.option("--partitioned-by", metavar="A,B", default=None, help="Columns that cut the table into partitions.")
@click.option("--buckets", type=click.IntRange(min=1), default=None, help="Buckets of the table, or of each partition.")
@click.option("--property", "properties", multiple=True, metavar="K=V", help="A table option. Repeatable.")
@click.option("--append", is_flag=True, help="Into a table that is there; one with a primary key is upserted.")
@columns_option
@click.option("--rename", multiple=True, metavar="OLD=NEW", help="A column's name in the table. Repeatable.")
@click.option("--type", "types", multiple=True, metavar="COLUMN=TYPE", help="A column's Fluss type. Repeatable.")
@click.option("--format", "name", type=click.Choice(_FORMATS), default=None, help="Default: as the name says.")
@click.option("--delimiter", default=None, help="Of a CSV file, \\t for a tab; default: guessed from its header.")
@click.option("--encoding", default=None, help="Of a CSV file; default: utf-8.")
@click.option("--null-value", "null_values", multiple=True, metavar="TEXT", help="Text that is null. Repeatable.")
@click.option("--start-row", type=click.IntRange(min=0), default=0, help="Go on with a load that ended on its way.")
@json_option
@folder_option
def load(folder: Path, file: str, path: str, *, append: bool, is_json: bool, **given: Any) -> None:
    """Make TABLE of FILE and fill it: CSV, Parquet or JSON, also compressed, or a folder of such files.

    All of the file is examined before the table is made; the report shows the types found. The table's database is made
    where it is missing.
    """
    delimiter = "\t" if given["delimiter"] == r"\t" else given["delimiter"]
    read = {
        "format": given["name"], "delimiter": delimiter, "encoding": given["encoding"],
        "null_values": list(given["null_values"]) or None, "start_row": given["start_row"],
    }  # fmt: skip
    arguments: dict[str, Any] = {key: value for key, value in read.items() if value is not None}
    arguments |= {key: names(given[key]) for key in ("primary_key", "partitioned_by", "columns")}
    arguments |= {key: _pairs(option, given[key]) for key, option in _PAIRS.items()}
    if_exists = "append" if append else "fail"
    source = _home_expanded(file)
    with opened_lab(folder) as lab:
        try:
            report = lab.load(source, path, buckets=given["buckets"], if_exists=if_exists, **arguments)
        except TableExistsError:
            raise TableExistsError(
                f"load: table {path} exists; --append adds the rows to it (into a table with a primary key they are upserted)"
            ) from None
    if not is_json:
        from fluss_lab.cli.text_tables import text_table
        from fluss_lab.display.shown_text import visible

        click.echo(visible(report.title))
        click.echo(text_table(("column", "type", "in the source"), [(b, str(c), a) for a, b, c in report.columns]))
        return
    loaded = [{"column": b, "type": str(c), "source_column": a} for a, b, c in report.columns]
    print_objects(
        [{
            "table": str(report.path), "source": report.source, "rows": report.rows, "created": report.created,
            "columns": loaded, "seconds": report.seconds,
        }]
    )  # fmt: skip


def _home_expanded(file: str) -> str:
    try:
        return str(Path(file).expanduser()) if file.startswith("~") else file
    except RuntimeError:
        raise InvalidRequestError(f"load: {file[:200]!r}: there is no such user") from None


def _pairs(option: str, pairs: Sequence[str]) -> Mapping[str, str] | None:
    """Return what KEY=VALUE options give; None: none was given."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise InvalidRequestError(f"{option} {pair!r}: expected NAME=VALUE")
        found[key.strip()] = value.strip()
    return found or None


@click.command(
    epilog=examples(
        "fluss-lab export nyc.flights flights.parquet",
        'fluss-lab export nyc.flights late.csv --columns carrier,dep_delay --where "dep_delay > 60"',
        "fluss-lab export nyc.planes planes.jsonl --as-of yesterday --overwrite",
    )
)
@table_argument
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "name", type=click.Choice(_FORMATS), default=None, help="Default: as the name says.")
@columns_option
@where_option
@as_of_option
@click.option("--limit", type=click.IntRange(min=0), default=None, help="At most so many rows, the first ones.")
@click.option("--overwrite", is_flag=True, help="Replace FILE where it is there, at the end.")
@json_option
@folder_option
def export(
    folder: Path,
    path: str,
    file: Path,
    name: str | None,
    columns: str | None,
    where: str | None,
    as_of: str | None,
    limit: int | None,
    *,
    overwrite: bool,
    is_json: bool,
) -> None:
    """Write TABLE's rows at one moment as FILE: Parquet, CSV, or JSON lines, as its name or --format says.

    FILE is there whole at the end, or not at all. JSON lines are those of --json. CSV has a header and plain numbers (also nan, inf
    and -inf), other values as JSON has them; a null is nothing, an empty text "".
    """
    from fluss_lab.cli.file_export import check_target, export_format, export_rows

    target = check_target(file, overwrite=overwrite)
    format_name = export_format(file, name)
    with opened_lab(folder) as lab:
        scan = lab.table(path).scan(names(columns), where, limit=limit, as_of=moment(as_of))
        count = export_rows(scan, target, format_name)
    size = target.stat().st_size
    if is_json:
        print_objects([{"table": path, "file": str(target), "format": format_name, "rows": count, "bytes": size}])
    else:
        click.echo(f"{count:,} rows of {path} in {target}, {size / 1e6:,.1f} MB")


FILE_COMMANDS: Final = (load, export)
