"""The description of a bucket: its state, or the error for which that is not known."""

from __future__ import annotations

from fluss_lab.errors import FlussError, StorageError, error_code
from fluss_lab.model.names import TableBucket
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.serving.grpc_server import as_fluss_error
from fluss_lab.server.tablet.buckets.bucket import Bucket
from fluss_lab.server.tablet.buckets.kv_bucket import KvBucket
from fluss_lab.server.tablet.damage.bucket_damage import BucketDamage, lake_end
from fluss_lab.server.tablet.damage.log_cut import GivenUpRange
from fluss_lab.server.tablet.remote.remote_log import RemoteLog


def describe_bucket(bucket: Bucket) -> pb.PbBucketDescription:
    """Return how an open bucket is; of one whose log was found damaged, or agrees no more with its rows, the error."""
    stopped = bucket.log.stopped
    # A disk that refuses ends writing; what is readable stays readable, and its offsets true.
    if stopped is not None and not isinstance(stopped, StorageError):
        return unknown(bucket.id, stopped)
    try:
        known = _known_message(bucket)
    except Exception as error:
        return unknown(bucket.id, as_fluss_error(error, f"describe bucket {bucket.id}"))
    return pb.PbBucketDescription(table_bucket=_pb_bucket(bucket.id), known=known)


def unknown(bucket: TableBucket, error: FlussError) -> pb.PbBucketDescription:
    """Return the description of a bucket whose state is not known, for an error."""
    return pb.PbBucketDescription(table_bucket=_pb_bucket(bucket), error=_pb_error(error))


def _known_message(bucket: Bucket) -> pb.PbKnownBucket:
    held = bucket.log
    known = pb.PbKnownBucket(
        log_start_offset=held.start,
        log_end_offset=held.end,
        high_watermark=held.high_watermark,
        durable_offset=held.durable_offset,
        size_in_bytes=held.segments.size_bytes,
        segments=len(held.segments),
        max_timestamp=held.max_timestamp_ms,
        given_up=[_given_up_message(each) for each in bucket.given_up],
    )
    _put_start(bucket, known)
    if (lake := bucket.lake) is not None:
        known.lake_snapshot_id = lake.snapshot_id
        known.lake_log_start_offset, known.lake_log_end_offset = lake.start, lake.end
    if bucket.remote is not None:
        _put_remote(bucket.remote, known)
    if bucket.kv is not None:
        _put_kv(bucket.kv, known)
    if held.stopped is not None:
        known.warning = f"cannot be written: {held.stopped}"
    return known


def damage_response(bucket: Bucket, found: BucketDamage) -> pb.DescribeDamageResponse:
    """Return what cannot be read of a bucket's log."""
    response = pb.DescribeDamageResponse(
        start_offset=found.start,
        log_start_offset=bucket.log.start,
        log_end_offset=found.end,
        size_in_bytes=bucket.log.segments.size_bytes,
        remote_log_end_offset=found.remote_end,
        rows_offset=found.rows_offset,
        is_gone=found.is_gone,
        given_up=[_given_up_message(each) for each in bucket.given_up],
    )
    if found.lake_rows_offset is not None:
        response.lake_rows_offset = found.lake_rows_offset
    if found.lake is not None:
        response.lake_log_end_offset = lake_end(found)
    for each in found.ranges:
        file = str(found.snapshots or each.path)
        entry = response.ranges.add(file=file, start_offset=each.start, stop_offset=each.stop)
        if each.before_ms >= 0:
            entry.time_before = each.before_ms
        if each.after_ms >= 0:
            entry.time_after = each.after_ms
    return response


def _given_up_message(each: GivenUpRange) -> pb.PbGivenUpRange:
    return pb.PbGivenUpRange(
        start_offset=each.start, stop_offset=each.stop, lost_start_offset=each.lost_start, time=each.time_ms
    )


def _put_start(bucket: Bucket, known: pb.PbKnownBucket) -> None:
    """Put where the bucket begins, or why that is not known: remote storage that cannot be read may hold what is before."""
    try:
        known.start_offset = bucket.start
    except FlussError as error:
        known.start_error.CopyFrom(_pb_error(error))


def _put_kv(kv: KvBucket, known: pb.PbKnownBucket) -> None:
    kv.check_readable()
    known.row_count, known.memory_in_bytes = kv.store.row_count, kv.store.memory_bytes
    if (latest := kv.snapshots.latest) is not None:
        known.kv_snapshot_id, known.kv_snapshot_log_offset = latest.snapshot_id, latest.log_offset
    if kv.memory_problem:
        known.warning = kv.memory_problem


def _put_remote(remote: RemoteLog, known: pb.PbKnownBucket) -> None:
    if (held := remote.known) is not None and held.segments:
        known.remote_log_start_offset, known.remote_log_end_offset = held.start, held.end
        known.remote_size_in_bytes = held.size_bytes
    if (problem := remote.problem or remote.copy_problem) is not None:
        known.warning = str(problem)


def _pb_error(error: FlussError) -> pb.PbBucketError:
    return pb.PbBucketError(error_code=error_code(error), error_message=str(error))


def _pb_bucket(bucket: TableBucket) -> pb.PbTableBucket:
    return pb.PbTableBucket(table_id=bucket.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket)
