"""The Python lines for what is shown: what a person would type to get the same."""

from __future__ import annotations

import json
import keyword
from collections.abc import Sequence
from typing import Final

from fluss_lab.display import visible
from fluss_lab.model import TablePath

#: Names that a line must not take for a table.
_TAKEN: Final = frozenset({"lab", "fl", "pa", "pd", "pc"})


def quoted(text: str) -> str:
    """Return a text as a Python literal: one line, whatever it holds, with nothing invisible in it."""
    return visible(json.dumps(text, ensure_ascii=False))


def variable(path: TablePath) -> str:
    """Return the name that lines give a table: its own, unless Python or the lines need that."""
    name = path.table
    return f"{name}_table" if keyword.iskeyword(name) or name in _TAKEN else name


def table_line(path: TablePath) -> str:
    """Return the line that binds the table."""
    return f"{variable(path)} = lab.table({quoted(str(path))})"


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
        arguments.append(f"columns=[{', '.join(map(quoted, columns))}]")
    if where:
        arguments.append(f"where={quoted(where)}")
    if as_of is not None:
        arguments.append(f"as_of={as_of if isinstance(as_of, int) else quoted(as_of)}")
    arguments.append("with_source=True")
    return [table_line(path), f"{variable(path)}.scan({', '.join(arguments)}).to_pandas()"]


def row_code(
    path: TablePath, partition: str | None, bucket: int, offset: int, columns: Sequence[str] | None, *, is_held: bool
) -> list[str]:
    """Return the lines for the place of the record that wrote a row, and the record; of one that is not held, for the row."""
    name, key = variable(path), _key(partition, bucket)
    if not is_held:
        parts = "" if partition is None else f", partitions=[{quoted(partition)}]"
        chosen = "" if columns is None else f"{_chosen(columns)[2:]}, "
        row = f'{chosen}where="__offset = {offset}"{parts}, buckets=[{bucket}], with_source=True'
        return [table_line(path), f"{name}.scan({row}).to_arrow()"]
    place = f"place = {name}.locate({'None' if partition is None else quoted(partition)}, {bucket}, {offset})"
    span = f"start={{{key}: {offset}}}, end={{{key}: {offset + 1}}}"
    return [table_line(path), place, f"{name}.changelog({span}, buckets=[{key}]{_chosen(columns)}).to_arrow()"]


def fresh_code(
    path: TablePath, partition: str | None, bucket: int, start: int, columns: Sequence[str] | None
) -> list[str]:
    """Return the lines for the records of a bucket from an offset on."""
    key = _key(partition, bucket)
    call = f"changelog(start={{{key}: {start}}}, buckets=[{key}]{_chosen(columns)})"
    return [table_line(path), f"{variable(path)}.{call}.to_pandas()"]


def changes_code(path: TablePath, start: str, columns: Sequence[str] | None, *, net: bool) -> list[str]:
    """Return the lines for the changelog from a start, which is Python already."""
    call = f"changelog(start={start}{_chosen(columns)}{', net=True' if net else ''})"
    return [table_line(path), f"{variable(path)}.{call}.to_pandas()"]


def newest_code(path: TablePath, size: int, columns: Sequence[str] | None) -> list[str]:
    """Return the lines for the newest records of every bucket, so many of each."""
    name = variable(path)
    key = '(row["partition"], row["bucket"])'
    starts = f'starts = {{{key}: max(row["start"], row["end"] - {size}) for row in {name}.buckets()}}'
    return [table_line(path), starts, f"{name}.changelog(start=starts{_chosen(columns)}).to_pandas()"]


def tail_code(path: TablePath, columns: Sequence[str] | None) -> list[str]:
    """Return the lines that follow a table."""
    return [
        table_line(path),
        f'with {variable(path)}.subscribe(start="latest"{_chosen(columns)}) as scanner:',
        "    batches = scanner.poll(1.0)",
    ]


def _key(partition: str | None, bucket: int) -> str:
    return str(bucket) if partition is None else f"({quoted(partition)}, {bucket})"


def _chosen(columns: Sequence[str] | None) -> str:
    return "" if columns is None else f", columns=[{', '.join(map(quoted, columns))}]"


def empty_lab_code() -> list[str]:
    """Return the lines that make a first table."""
    return [
        'lab.create_database("nyc", if_not_exists=True)',
        'lab.create_table("nyc.flights", schema={"id": "bigint", "dest": "string", "delay": "int"}, buckets=4)',
    ]
