"""The Python lines for what a table's lake holds, and for the difference of two moments."""

from __future__ import annotations

from collections.abc import Sequence

from fluss_lab.explorer.texts.code_lines import table_line, variable
from fluss_lab.explorer.texts.python_literals import python_literal
from fluss_lab.model import TablePath


def enable_code(path: TablePath) -> list[str]:
    """Return the line that puts a table into the lake."""
    return [f'lab.table({python_literal(str(path))}).alter(set={{"table.datalake.enabled": True}})']


def snapshots_code(path: TablePath) -> list[str]:
    """Return the lines for the snapshots."""
    return [table_line(path), f"{variable(path)}.snapshots().to_pandas()"]


def files_code(path: TablePath, snapshot_id: int) -> list[str]:
    """Return the lines for the files of a snapshot."""
    return [table_line(path), f"{variable(path)}.files({snapshot_id}).to_pandas()"]


def manifests_code(path: TablePath, snapshot_id: int, *, is_newest: bool) -> list[str]:
    """Return the lines for the manifests of a snapshot: of the newest as a frame, as Iceberg has it for no other."""
    lake = f"lab.iceberg({python_literal(str(path))})"
    if is_newest:
        return [f"{lake}.inspect.manifests().to_pandas()"]
    return [f"lake = {lake}", f"lake.snapshot_by_id({snapshot_id}).manifests(lake.io)"]


def partitions_code(path: TablePath, snapshot_id: int) -> list[str]:
    """Return the line for the partitions of a snapshot as Iceberg counts them: one a bucket."""
    lake = f"lab.iceberg({python_literal(str(path))})"  # ids of snapshots that are gone are null: the others stay exact
    return [f"{lake}.inspect.partitions(snapshot_id={snapshot_id}).to_pandas(integer_object_nulls=True)"]


def schemas_code(path: TablePath) -> list[str]:
    """Return the lines for the schemas that the lake table has had."""
    return [table_line(path), f"{variable(path)}.lake_schemas()"]


def refs_code(path: TablePath) -> list[str]:
    """Return the line for the branches and tags."""
    return [f"lab.iceberg({python_literal(str(path))}).inspect.refs().to_pandas()"]


def diff_code(
    path: TablePath, before: str | int, after: str | int | None, kind: str, columns: Sequence[str] | None
) -> list[str]:
    """Return the lines for what is added, removed or changed between two moments.

    Args:
        path: The table.
        before: A time as it was typed, or a snapshot's id.
        after: The same; None: now.
        kind: ``added``, ``removed`` or ``changed``.
        columns: Those of the result that are shown; None: all.
    """
    moments = [f"{name}={_moment(each)}" for name, each in (("before", before), ("after", after)) if each is not None]
    shown = "" if columns is None else f".select([{', '.join(map(python_literal, columns))}])"
    return [table_line(path), f"{variable(path)}.diff({', '.join(moments)}).{kind}{shown}.to_pandas()"]


def _moment(given: str | int) -> str:
    return str(given) if isinstance(given, int) else python_literal(given)
