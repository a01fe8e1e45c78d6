"""How each bucket of a table is, asked of the servers that hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fluss_lab.errors import FlussError, NotFoundError, NotLeaderError, UnavailableError
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.places import bucket_of

if TYPE_CHECKING:
    from fluss_lab.client.connection import Connection

#: The leader of a bucket whose server is away.
NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class BucketStatus:
    """How one bucket is.

    Attributes:
        bucket: Its identity.
        partition: Name of its partition; None without partitions.
        start_offset: First offset that the cluster holds, on a server's disk or in remote storage.
        end_offset: Offset that the next record gets.
        high_watermark: Offsets below are readable.
        durable_offset: Offsets below are on the device.
        size_bytes: Of its log on the server's disk.
        segments: Files of its log there.
        max_timestamp_ms: Of its last record; None before the first.
        lake_end_offset: Offsets below are in the lake; None when it was never tiered.
        lake_snapshot_id: The lake snapshot that says so.
        error: Why the bucket stopped; None when it is well.
        leader: Id of the server that holds it; -1 when that is away, and then nothing else is known.
        local_start_offset: First offset on the server's disk.
        remote_start_offset: First offset in remote storage; None when nothing is there.
        remote_end_offset: Offset after the last one there.
        remote_size_bytes: Of what is there.
    """

    bucket: TableBucket
    partition: str | None
    start_offset: int
    end_offset: int
    high_watermark: int
    durable_offset: int
    size_bytes: int
    segments: int
    max_timestamp_ms: int | None
    lake_end_offset: int | None
    lake_snapshot_id: int | None
    error: str | None
    leader: int
    local_start_offset: int = 0
    remote_start_offset: int | None = None
    remote_end_offset: int | None = None
    remote_size_bytes: int = 0


def bucket_statuses(connection: Connection, info: TableInfo, *, patient: bool) -> list[BucketStatus]:
    """Return how each bucket of a table is. See `Admin.buckets`."""
    names: dict[int | None, str | None] = {None: None}
    if info.descriptor.partitioned_by:
        names = {each.partition_id: each.name for each in connection.partitions(info).values()}
    wanted = [
        TableBucket(info.table_id, partition_id, bucket)
        for partition_id in names
        for bucket in range(info.descriptor.buckets)
    ]
    connection.remember(info)
    if not patient:
        connection.forget_leaders_of(wanted)  # who is away at this moment is what is asked
    attempts = connection.attempts("describe_buckets")
    found: dict[TableBucket, BucketStatus] = {}
    while missing := [bucket for bucket in wanted if bucket not in found]:
        leaders = connection.present_leaders(missing, attempts)
        failures: dict[TableBucket, FlussError] = {}
        for server in sorted(set(leaders.values())):
            theirs = [bucket for bucket in missing if leaders.get(bucket) == server]
            try:
                response = connection.gateway(server).describe_buckets(
                    pb.DescribeBucketsRequest(table_id=info.table_id)
                )
            except (UnavailableError, NotFoundError) as error:
                failures |= dict.fromkeys(theirs, error)
                continue
            for entry in response.buckets:
                if (bucket := bucket_of(entry.table_bucket)) in theirs:
                    found[bucket] = _status(entry, names, server)
        left = {
            bucket: failures.get(bucket) or NotLeaderError(f"bucket {bucket}: its server is away")
            for bucket in missing
            if bucket not in found
        }
        if left and not patient:
            found |= {bucket: _away(bucket, names, error) for bucket, error in left.items()}
        elif left:
            connection.forget_leaders_of(left)
            bucket, reason = next(iter(left.items()))
            attempts.failed(reason, f"the server of bucket {bucket}")
    return sorted(found.values(), key=lambda status: (status.partition or "", status.bucket.bucket))


def _away(bucket: TableBucket, names: Mapping[int | None, str | None], error: FlussError) -> BucketStatus:
    return BucketStatus(
        bucket=bucket, partition=names.get(bucket.partition_id), start_offset=0, end_offset=0, high_watermark=0,
        durable_offset=0, size_bytes=0, segments=0, max_timestamp_ms=None, lake_end_offset=None, lake_snapshot_id=None,
        error=str(error), leader=NO_LEADER,
    )  # fmt: skip


def _status(entry: pb.PbBucketDescription, names: Mapping[int | None, str | None], leader: int) -> BucketStatus:
    bucket = bucket_of(entry.table_bucket)
    local_start = entry.log_start_offset
    has_remote = entry.HasField("remote_log_start_offset")
    # What does not reach up to the log leaves a hole: it is no beginning of it.
    is_before = has_remote and entry.remote_log_start_offset < local_start <= entry.remote_log_end_offset
    return BucketStatus(
        bucket=bucket,
        partition=names.get(bucket.partition_id),
        start_offset=entry.remote_log_start_offset if is_before else local_start,
        end_offset=entry.log_end_offset,
        high_watermark=entry.high_watermark,
        durable_offset=entry.durable_offset,
        size_bytes=entry.size_in_bytes,
        segments=entry.segments,
        max_timestamp_ms=entry.max_timestamp if entry.max_timestamp >= 0 else None,
        lake_end_offset=entry.lake_log_end_offset if entry.HasField("lake_log_end_offset") else None,
        lake_snapshot_id=entry.lake_snapshot_id if entry.HasField("lake_snapshot_id") else None,
        error=entry.error_message if entry.HasField("error_message") else None,
        leader=leader,
        local_start_offset=local_start,
        remote_start_offset=entry.remote_log_start_offset if has_remote else None,
        remote_end_offset=entry.remote_log_end_offset if has_remote else None,
        remote_size_bytes=entry.remote_size_in_bytes,
    )
