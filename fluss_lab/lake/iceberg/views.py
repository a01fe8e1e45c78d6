"""What people see of a lake table: its snapshots, files and schemas, as rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFileContent
from pyiceberg.types import PrimitiveType

from fluss_lab.lake.iceberg.storage import IcebergLakeStorage
from fluss_lab.lake.interfaces import BUCKET_OFFSET_KEY, COMMIT_USER, COMMIT_USER_KEY, OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss_lab.model import TableInfo
from fluss_lab.model.times import format_moment

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table


def snapshot_rows(storage: IcebergLakeStorage, info: TableInfo) -> list[dict[str, Any]]:
    """Return the snapshots on the table's main line, oldest first.

    Returns:
        Per snapshot: ``snapshot_id``, ``time`` (ISO, UTC), ``operation``, ``ours`` (committed by tiering), ``rows`` and
        ``files`` added, ``total_rows``, ``total_files``, and ``offsets``: what the snapshot itself says of each bucket,
        as dicts with ``partition_name``, ``bucket``, ``offset``, ``max_timestamp``.

    Cost: the table's metadata file; no manifest is read.
    """
    table = storage.access.load_table(info.path)
    rows = []
    snapshot = table.current_snapshot()
    while snapshot is not None:
        summary = dict(snapshot.summary.additional_properties) if snapshot.summary is not None else {}
        rows.append(
            {
                "snapshot_id": snapshot.snapshot_id,
                "time": format_moment(snapshot.timestamp_ms),
                "operation": snapshot.summary.operation.value if snapshot.summary is not None else None,
                "ours": summary.get(COMMIT_USER_KEY) == COMMIT_USER,
                "rows": int(summary.get("added-records", 0)),
                "files": int(summary.get("added-data-files", 0)),
                "total_rows": int(summary.get("total-records", 0)),
                "total_files": int(summary.get("total-data-files", 0)),
                "offsets": json.loads(summary.get(BUCKET_OFFSET_KEY, "[]")),
            }
        )
        parent = snapshot.parent_snapshot_id
        snapshot = table.metadata.snapshot_by_id(parent) if parent is not None else None
    return rows[::-1]


def file_rows(storage: IcebergLakeStorage, info: TableInfo) -> list[dict[str, Any]]:
    """Return the data files of the newest snapshot, by partition, bucket and offset.

    Returns:
        Per file: ``partition`` (None without partitions), ``bucket``, ``first_offset`` and ``last_offset`` (inclusive),
        ``first_time`` and ``last_time`` (ISO, UTC), ``rows``, ``bytes``, ``path``.

    Cost: every manifest of the snapshot.
    """
    table = storage.access.load_table(info.path)
    snapshot = table.current_snapshot()
    rows = [
        _file_row(table.schema(), info, entry.data_file)
        for manifest in (snapshot.manifests(table.io) if snapshot is not None else [])
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if entry.data_file.content == DataFileContent.DATA
    ]
    return sorted(rows, key=lambda row: (row["partition"] or "", row["bucket"], row["first_offset"]))


def _file_row(schema: Schema, info: TableInfo, file: DataFile) -> dict[str, Any]:
    values = [file.partition[index] for index in range(len(info.descriptor.partitioned_by) + 1)]
    first_us, last_us = _bounds(schema, file, TIMESTAMP_COLUMN)
    first_offset, last_offset = _bounds(schema, file, OFFSET_COLUMN)
    return {
        "partition": "$".join(values[:-1]) if len(values) > 1 else None,
        "bucket": values[-1],
        "first_offset": first_offset,
        "last_offset": last_offset,
        "first_time": format_moment(first_us // 1000),
        "last_time": format_moment(last_us // 1000),
        "rows": file.record_count,
        "bytes": file.file_size_in_bytes,
        "path": file.file_path,
    }


def _bounds(schema: Schema, file: DataFile, name: str) -> tuple[int, int]:
    """Return the smallest and largest value of a system column in a file; our writer always records both."""
    field = schema.find_field(name)
    assert isinstance(field.field_type, PrimitiveType)
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    return (
        int(from_bytes(field.field_type, lower[field.field_id])),
        int(from_bytes(field.field_type, upper[field.field_id])),
    )


def schema_rows(storage: IcebergLakeStorage, info: TableInfo) -> list[dict[str, Any]]:
    """Return the schemas that the lake table has had: ``schema_id``, ``current``, ``columns`` (name to type)."""
    table: Table = storage.access.load_table(info.path)
    return [
        {
            "schema_id": schema_id,
            "current": schema_id == table.metadata.current_schema_id,
            "columns": {field.name: str(field.field_type) for field in schema.fields},
        }
        for schema_id, schema in sorted(table.schemas().items())
    ]
