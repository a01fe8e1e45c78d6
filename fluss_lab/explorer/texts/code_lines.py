"""The Python lines for what is shown: what a person would type to get the same."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fluss_lab.explorer.texts.python_literals import IMPORTS, is_exact, python_literal, value_literal
from fluss_lab.model import TablePath
from fluss_lab.model.types import DataType
from fluss_lab.read.changelog.change_pages import Offsets

#: Names that a line must not take for a table: those that lines bind or use, and those that people's notebooks have.
_TAKEN: Final = frozenset({
    "lab", "fl", "pd", "pc", "pa", "dt", "Decimal", "float", "start", "end", "scanner", "batches", "place", "lag", "lake", "job",
    "run", "findings",
})  # fmt: skip
#: Offsets of more buckets have lines of their own.
_SPANS_INLINE_MAX: Final = 3


def variable(path: TablePath) -> str:
    """Return the name that lines give a table: its own, unless Python or the lines need that."""
    name = path.table
    return f"{name}_table" if keyword.iskeyword(name) or name in _TAKEN else name


def table_line(path: TablePath) -> str:
    """Return the line that binds the table."""
    return f"{variable(path)} = lab.table({python_literal(str(path))})"


def buckets_code(path: TablePath) -> list[str]:
    """Return the lines for the bands and the buckets."""
    return [table_line(path), f"{variable(path)}.buckets().to_pandas()"]


def rows_code(path: TablePath, columns: Sequence[str] | None, where: str, as_of: str | int | None) -> list[str]:
    """Return the lines for a grid of rows.

    Args:
        path: The table.
        columns: Those shown; None: all.
        where: The condition; empty: none.
        as_of: A time as it was typed, or a snapshot's id; None: now.
    """
    arguments = []
    if columns is not None:
        arguments.append(f"columns=[{', '.join(map(python_literal, columns))}]")
    if where:
        arguments.append(f"where={python_literal(where)}")
    if as_of is not None:
        arguments.append(f"as_of={as_of if isinstance(as_of, int) else python_literal(as_of)}")
    arguments.append("with_source=True")
    return [table_line(path), f"{variable(path)}.scan({', '.join(arguments)}).to_pandas()"]


def row_code(
    path: TablePath, partition: str | None, bucket: int, offset: int, columns: Sequence[str] | None, *, is_held: bool
) -> list[str]:
    """Return the lines for the place of the record that wrote a row, and the record; of one that is not held, for the row."""
    name, key = variable(path), _key(partition, bucket)
    if not is_held:
        parts = "" if partition is None else f", partitions=[{python_literal(partition)}]"
        chosen = "" if columns is None else f"{_columns_argument(columns)[2:]}, "
        row = f'{chosen}where="__offset = {offset}"{parts}, buckets=[{bucket}], with_source=True'
        return [table_line(path), f"{name}.scan({row}).to_arrow()"]
    place = f"place = {name}.locate({'None' if partition is None else python_literal(partition)}, {bucket}, {offset})"
    span = f"start={{{key}: {offset}}}, end={{{key}: {offset + 1}}}"
    return [
        table_line(path),
        place,
        f"{name}.changelog({span}, buckets=[{key}]{_columns_argument(columns)}).to_arrow()",
    ]


def fresh_code(
    path: TablePath, partition: str | None, bucket: int, start: int, columns: Sequence[str] | None
) -> list[str]:
    """Return the lines for the records of a bucket from an offset on."""
    key = _key(partition, bucket)
    call = f"changelog(start={{{key}: {start}}}, buckets=[{key}]{_columns_argument(columns)})"
    return [table_line(path), f"{variable(path)}.{call}.to_pandas()"]


def changes_code(
    path: TablePath, spans: Offsets, columns: Sequence[str] | None, *, net: bool = False, first: int | None = None
) -> list[str]:
    """Return the lines for records of a changelog, or for what they have changed in effect.

    Args:
        path: The table.
        spans: By bucket, the offsets ``[start, stop)``; none: no record.
        columns: Those shown; None: all.
        net: Whether only what has changed in effect is wanted.
        first: So many rows of it; None: all.
    """
    name, more = variable(path), f"{_columns_argument(columns)}{', net=True' if net else ''}"
    if not spans:
        return [table_line(path), f'{name}.changelog(start="latest"{more}).to_pandas()']
    start, end = (f"{{{', '.join(f'{_key(*key)}: {span[edge]}' for key, span in spans.items())}}}" for edge in (0, 1))
    lines = [table_line(path)]
    if len(spans) > _SPANS_INLINE_MAX:
        lines += [f"start = {start}", f"end = {end}"]
        start, end = "start", "end"
    # The changelog's own order is by partition, bucket and offset.
    order = '.sort_values("_commit_timestamp", kind="stable")' if len(spans) > 1 and not net else ""
    head = "" if first is None else f".head({first})"
    return [*lines, f"{name}.changelog(start={start}, end={end}{more}).to_pandas(){order}{head}"]


def record_code(
    path: TablePath, call: str, row: Mapping[str, tuple[Any, DataType]], columns: list[str] | None = None
) -> list[str]:
    """Return the lines that write one row, or delete one by its key.

    Args:
        path: The table.
        call: ``append``, ``upsert`` or ``delete``.
        row: Plain value and type by column.
        columns: Of a partial update: which; None: all.
    """
    name = variable(path)
    if all(is_exact(value, target) for value, target in row.values()):
        cells = ", ".join(
            f"{python_literal(each)}: {value_literal(value, target)}" for each, (value, target) in row.items()
        )
        given = f"[{{{cells}}}]"
    else:  # Python has no times so exact: Arrow has, as whole numbers
        arrays = [
            f"{python_literal(each)}: pa.array([{value_literal(value, target, is_arrow=True)}], {name}.schema.field({python_literal(each)}).type)"
            for each, (value, target) in row.items()
        ]
        given = f"pa.table({{{', '.join(arrays)}}})"
    chosen = "" if columns is None else f", columns=[{', '.join(map(python_literal, columns))}]"
    imports = [line for begin, line in IMPORTS.items() if begin in given]
    return [*imports, table_line(path), f"{name}.{call}({given}{chosen})"]


def tail_code(path: TablePath, columns: Sequence[str] | None) -> list[str]:
    """Return the lines that follow a table."""
    return [
        table_line(path),
        f'with {variable(path)}.subscribe(start="latest"{_columns_argument(columns)}) as scanner:',
        "    batches = scanner.poll(1.0)",
    ]


def rounds_code(path: TablePath) -> list[str]:
    """Return the lines for how far the lake lagged, and for the rounds."""
    name = variable(path)
    return [table_line(path), f"lag = {name}.lag_history().to_pandas()", f"{name}.rounds().to_pandas()"]


def tier_code(path: TablePath) -> list[str]:
    """Return the lines that run a round."""
    return [table_line(path), f"{variable(path)}.tier()"]


def compact_code(path: TablePath) -> list[str]:
    """Return the lines that compact what the lake holds."""
    return [table_line(path), f"{variable(path)}.compact()"]


def lake_code(path: TablePath) -> list[str]:
    """Return the lines that bring a table into the lake."""
    return [table_line(path), f'{variable(path)}.alter(set={{"table.datalake.enabled": True}})']


def schema_code(path: TablePath) -> list[str]:
    """Return the lines for the columns."""
    return [table_line(path), f"{variable(path)}.schema"]


def _key(partition: str | None, bucket: int) -> str:
    return str(bucket) if partition is None else f"({python_literal(partition)}, {bucket})"


def _columns_argument(columns: Sequence[str] | None) -> str:
    return "" if columns is None else f", columns=[{', '.join(map(python_literal, columns))}]"


def empty_lab_code() -> list[str]:
    """Return the lines that make a first table."""
    return [
        'lab.create_database("nyc", if_not_exists=True)',
        'lab.create_table("nyc.flights", schema={"id": "bigint", "dest": "string", "delay": "int"}, buckets=4)',
    ]


def jobs_code(job: str | None, limit: int) -> list[str]:
    """Return the lines for the runs of a job, or of all."""
    if job is None:
        return [f"lab.jobs.history(limit={limit})"]
    return [f"job = lab.jobs.job({python_literal(job)})", f"lab.jobs.history(job.name, limit={limit})"]


def first_job_code() -> list[str]:
    """Return the line that enters a first job."""
    return [
        'lab.jobs.schedule("refresh", "jobs/tier_and_maintain", cron="*/5 * * * *", parameters={"table": "nyc.flights"})'
    ]


def run_code(run_id: str) -> list[str]:
    """Return the lines for the log of a run."""
    return [f"run = lab.jobs.find_run({python_literal(run_id)})", "run.log"]


def job_action_code(action: str, name: str) -> list[str]:
    """Return the line that does something about a job, or a run."""
    if action == "start":
        return [f"run = lab.jobs.start({python_literal(name)})"]
    if action == "rerun":
        return [f"run = lab.jobs.find_run({python_literal(name)}).rerun(wait=False)"]
    return [f"lab.jobs.{action}({python_literal(name)})"]


def health_code() -> list[str]:
    """Return the lines for servers, room and findings."""
    return ["findings = lab.doctor()", "lab.status()"]
