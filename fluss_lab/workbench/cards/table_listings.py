"""Listings of a table: its buckets, rounds, lag, snapshots and files, with the types of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from fluss_lab.client import BucketStatus, Connection, TieringRoundRecord, UnknownBucket
from fluss_lab.lake import LakeFileInfo, LakeSnapshotInfo
from fluss_lab.model import TableInfo, TablePath
from fluss_lab.model.times import format_moment
from fluss_lab.tiering.round.table_lag import LagSample
from fluss_lab.workbench.cards.listing import Listing

_INT, _LONG, _TEXT = pa.int32(), pa.int64(), pa.string()
SNAPSHOT_COLUMNS: Final = {
    "snapshot_id": _LONG, "time": _TEXT, "operation": _TEXT, "ours": pa.bool_(), "rows": _LONG, "files": _LONG,
    "total_rows": _LONG, "total_files": _LONG, "deletes": _LONG, "tags": pa.list_(_TEXT),
    "offsets": pa.list_(
        pa.struct({"partition_name": _TEXT, "bucket": _INT, "offset": _LONG, "max_timestamp": _LONG})
    ),
}  # fmt: skip
FILE_COLUMNS: Final = {
    "content": _TEXT, "partition": _TEXT, "bucket": _INT, "first_offset": _LONG, "last_offset": _LONG,
    "first_time": _TEXT, "last_time": _TEXT, "rows": _LONG, "bytes": _LONG, "path": _TEXT,
}  # fmt: skip
SCHEMA_COLUMNS: Final = {"schema_id": _INT, "current": pa.bool_(), "columns": None}
ROUND_COLUMNS: Final = {
    "round": _LONG, "start": _TEXT, "end": _TEXT, "state": _TEXT, "rows": _LONG, "events": _LONG, "files": _LONG,
    "bytes": _LONG, "seconds": pa.float64(), "plan_s": pa.float64(), "write_s": pa.float64(), "commit_s": pa.float64(),
    "maintain_s": pa.float64(), "lag_records": _LONG, "lag_ms": _LONG, "snapshot_id": _LONG, "idle_before": _LONG,
    "error_class": _TEXT, "error": _TEXT,
}  # fmt: skip
LAG_COLUMNS: Final = {"time": _TEXT, "records": _LONG, "lag_ms": _LONG, "round": _LONG}
#: What is shown of a bucket.
BUCKET_COLUMNS: Final = {
    "partition": _TEXT,
    "bucket": _INT,
    "start": _LONG,
    "local_start": _LONG,
    "remote_start": _LONG,
    "end": _LONG,
    "high_watermark": _LONG,
    "lake_start": _LONG,
    "lake_end": _LONG,
    "lag": _LONG,
    "bytes": _LONG,
    "leader": _INT,
    "error": _TEXT,
    "warning": _TEXT,
    "given_up": _TEXT,
}


def bucket_listing(connection: Connection, info: TableInfo, *, patient: bool) -> Listing:
    """Return what is shown of a table's buckets; without waiting: those of servers that are away are not known."""
    in_lake = info.descriptor.lake_enabled
    rows = [bucket_row(status, in_lake) for status in connection.admin().buckets(info, patient=patient)]
    rows.sort(key=lambda row: (str(row["partition"] or ""), row["bucket"]))
    return Listing(f"buckets of {info.path}", rows, BUCKET_COLUMNS)


def bucket_row(status: BucketStatus, in_lake: bool) -> dict[str, Any]:
    """Return what is shown of a bucket: None for whatever is not known, and why."""
    row: dict[str, Any] = dict.fromkeys(BUCKET_COLUMNS)
    row |= {"partition": status.partition, "bucket": status.bucket.bucket, "leader": status.leader}
    row["error"] = None if status.error is None else str(status.error)
    if isinstance(status, UnknownBucket):
        return row
    start = None if status.error is not None else status.start_offset
    tiered_to = start if status.lake_end_offset is None else status.lake_end_offset
    return row | {
        "start": start,
        "local_start": status.local_start_offset,
        "remote_start": status.remote_start_offset,
        "end": status.end_offset,
        "high_watermark": status.high_watermark,
        "lake_start": status.lake_start_offset,
        "lake_end": status.lake_end_offset,
        "lag": status.end_offset - tiered_to if in_lake and tiered_to is not None else None,
        "bytes": status.size_bytes + status.remote_size_bytes,
        "warning": status.warning,
        "given_up": ", ".join(map(str, status.given_up)) or None,
    }


def round_listing(connection: Connection, path: TablePath) -> Listing:
    """Return what is shown of a table's last tiering rounds, oldest first."""
    rows = [round_row(each) for each in connection.admin().tiering_rounds(path)]
    return Listing(f"rounds of {path}", rows, ROUND_COLUMNS)


def round_row(record: TieringRoundRecord) -> dict[str, Any]:
    """Return what is shown of a round. One whose tierer reported no time took as long as the coordinator waited for it."""
    total = record.seconds.get("total")
    if total is None and record.end_ms is not None:
        total = (record.end_ms - record.start_ms) / 1000
    stages = [record.seconds.get(stage) for stage in ("plan", "write", "commit", "maintain")]
    lag = (None, None) if record.after is None else (record.after.records, record.after.ms)
    values = (
        record.epoch, format_moment(record.start_ms), None if record.end_ms is None else format_moment(record.end_ms),
        record.state, record.rows, record.events, record.files, record.size_bytes, total, *stages, *lag,
        record.snapshot_id, record.idle_before, record.error_class, record.error,
    )  # fmt: skip
    return dict(zip(ROUND_COLUMNS, values, strict=True))


def lag_listing(path: TablePath, samples: Sequence[LagSample]) -> Listing:
    """Return what is shown of how far the lake lagged behind a table over time."""
    rows = [
        {"time": format_moment(each.time_ms), "records": each.records, "lag_ms": each.ms, "round": each.round}
        for each in samples
    ]
    return Listing(f"lag of {path}", rows, LAG_COLUMNS)


def snapshot_row(snapshot: LakeSnapshotInfo) -> dict[str, Any]:
    """Return what is shown of a lake snapshot."""
    offsets = [
        {"partition_name": partition, "bucket": bucket, "offset": offset.end, "max_timestamp": offset.max_timestamp_ms}
        for (partition, bucket), offset in snapshot.offsets.items()
    ]
    values = (
        snapshot.snapshot_id, format_moment(snapshot.time_ms), snapshot.operation, snapshot.ours, snapshot.added_rows,
        snapshot.added_files, snapshot.rows, snapshot.files, snapshot.deletes, list(snapshot.tags), offsets,
    )  # fmt: skip
    return dict(zip(SNAPSHOT_COLUMNS, values, strict=True))


def file_row(file: LakeFileInfo) -> dict[str, Any]:
    """Return what is shown of a file of the lake."""
    times = [None if each is None else format_moment(each) for each in (file.min_timestamp_ms, file.max_timestamp_ms)]
    values = (
        file.content, file.partition, file.bucket, file.min_offset, file.max_offset, *times, file.rows,
        file.size_bytes, file.path,
    )  # fmt: skip
    return dict(zip(FILE_COLUMNS, values, strict=True))
