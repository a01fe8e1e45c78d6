"""The row that a listing shows of a bucket."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from fluss_lab.client import BucketStatus, UnknownBucket

#: What is shown of a bucket.
BUCKET_COLUMNS: Final = {
    "partition": pa.string(),
    "bucket": pa.int32(),
    "start": pa.int64(),
    "end": pa.int64(),
    "high_watermark": pa.int64(),
    "lake_end": pa.int64(),
    "lag": pa.int64(),
    "bytes": pa.int64(),
    "leader": pa.int32(),
    "error": pa.string(),
    "warning": pa.string(),
    "given_up": pa.string(),
}


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
        "end": status.end_offset,
        "high_watermark": status.high_watermark,
        "lake_end": status.lake_end_offset,
        "lag": status.end_offset - tiered_to if in_lake and tiered_to is not None else None,
        "bytes": status.size_bytes + status.remote_size_bytes,
        "warning": status.warning,
        "given_up": ", ".join(map(str, status.given_up)) or None,
    }
