"""The output of commands: rows as a table for people, or with ``--json`` one JSON object a line; until its reader has enough."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss_lab.cli.text_tables import DataTable

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """Add the option ``--json`` to a command."""
    return click.option("--json", "is_json", is_flag=True, help="Print JSON: one object a line.")(command)


def examples(*lines: str) -> str:
    """Return lines of a shell as a command's epilog."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def print_objects(objects: Iterable[Mapping[str, Any]]) -> None:
    """Print objects of JSON, each a line."""
    from fluss_lab.cli.json_rows import json_line

    ascii_only = not (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    lines = [json_line(each, ascii_only=ascii_only) for each in objects]
    if lines:
        click.echo("\n".join(lines))


class RowPrinter:
    """Prints rows of one schema as they are read.

    Args:
        names: The columns.
        is_json: Whether as JSON.
        rows_max: Rows after these are not printed; None: all are.
    """

    def __init__(self, names: Sequence[str], *, is_json: bool, rows_max: int | None = None) -> None:
        self._names = names
        self._is_json = is_json
        self._left = rows_max
        self._table: DataTable | None = None

    @property
    def is_full(self) -> bool:
        """Return whether the last of the rows wanted is printed."""
        return self._left == 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Print rows."""
        from fluss_lab.cli.json_rows import json_objects, json_values
        from fluss_lab.cli.text_tables import DataTable

        rows = batch if self._left is None or self._left >= batch.num_rows else batch.slice(0, self._left)
        if self._left is not None:
            self._left -= rows.num_rows
        if self._is_json:
            print_objects(json_objects(rows))
            return
        if self._table is None:
            self._table = DataTable(self._names)
        elif not rows.num_rows:
            return
        columns = [json_values(column, name) for name, column in zip(self._names, rows.columns, strict=True)]
        if lines := self._table.lines(columns):
            click.echo("\n".join(lines))

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Print rows until there are no more, or enough."""
        for batch in batches:
            self.write(batch)
            if self.is_full:
                return

    def finish(self, schema: pa.Schema) -> None:
        """Print the header of a table without rows."""
        if not self._is_json and self._table is None:
            self.write(_empty(schema))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def end_quietly() -> int:
    """Return the exit code of a command whose reader has enough (``| head``): 0, and what is still buffered is not written."""
    # It would fail once more at the end of the process.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
