"""The place of a row: which file of the lake, or which server's log, it was read from."""

from __future__ import annotations

from typing import Any

from fluss_lab.workbench.table import Table


def row_place(table: Table, partition: str | None, bucket: int, offset: int, source: str) -> dict[str, Any]:
    """Return where the record of a row lies.

    Returns:
        ``source``; of the lake ``file``, ``position`` and ``snapshot_id`` where one file can have it; of the log ``server``.
        What is not known is None.
    """
    place: dict[str, Any] = {
        "source": source,
        "file": None,
        "position": None,
        "snapshot_id": None,
        "server": None,
        "local": None,
    }
    if source == "lake":
        return place | _lake_place(table, partition, bucket, offset)
    for row in table.buckets(patient=False):
        if (row["partition"], row["bucket"]) == (partition, bucket):
            place["server"] = row["leader"]
    return place


def _lake_place(table: Table, partition: str | None, bucket: int, offset: int) -> dict[str, Any]:
    files = [
        row
        for row in table.files()
        if row["content"] == "data" and (row["partition"], row["bucket"]) == (partition, bucket)
        and row["first_offset"] <= offset <= row["last_offset"]
    ]  # fmt: skip
    if len(files) != 1:
        return {}
    (file,) = files
    is_whole = file["rows"] == file["last_offset"] - file["first_offset"] + 1
    position = f"{offset - file['first_offset']:,} of {file['rows']:,} in the file" if is_whole else None
    return {"file": file["path"], "position": position}
