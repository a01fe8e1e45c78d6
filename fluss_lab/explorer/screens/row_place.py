"""The place of a row's record: the lake's file, the server's segment, or both; or why that is not known."""

from __future__ import annotations

from typing import Any

from fluss_lab.errors import FlussError
from fluss_lab.workbench.table import Table


def row_place(table: Table, partition: str | None, bucket: int, offset: int) -> dict[str, Any]:
    """Return where the record of a row lies, as `Table.locate` finds it now.

    Returns:
        Of the lake ``file``, ``content``, ``position`` and ``snapshot_id``; of the log ``server``, ``segment``, ``byte`` and
        ``local`` (whether it is on the server's disk). None where it is not held. ``unknown``: why nothing of it is known.

    Raises:
        FlussError: It may be known later: no server answers.
    """
    place: dict[str, Any] = dict.fromkeys(
        ("file", "content", "position", "snapshot_id", "server", "segment", "byte", "local", "unknown")
    )
    try:
        found = table.locate(partition, bucket, offset)
    except FlussError as error:
        if error.retriable:
            raise
        return place | {"unknown": f"{type(error).__name__}: {error}"}
    if (lake := found.lake) is not None:
        place |= {
            "file": lake.file,
            "content": lake.content,
            "position": str(lake.position),
            "snapshot_id": str(lake.snapshot_id),
        }
    if (log := found.log) is not None:
        place |= {
            "server": log.server,
            "segment": log.file,
            "byte": str(log.position),
            "local": not log.is_remote,
        }
    return place
