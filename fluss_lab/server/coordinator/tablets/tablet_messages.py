"""The notifications to tablet servers, as messages that fit their requests."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from fluss_lab.errors import error_from_code
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.coordinator.metadata.table_catalog import NO_PARTITION, BucketGroup
from fluss_lab.server.coordinator.tiering.lake_snapshots import TieredOffset, TieredSnapshot

log = logging.getLogger(__name__)

#: Each request to a tablet server stays well below its limit for requests (32 MB by default, 64 kB at least).
REQUEST_BYTES_MAX: Final = 48 * 1024

M = TypeVar(
    "M", pb.PbNotifyLeaderAndIsrReqForBucket, pb.PbNotifyLakeTableOffsetReqForBucket, pb.PbStopReplicaReqForBucket
)


def bucket_message(group: BucketGroup, bucket: int) -> pb.PbTableBucket:
    """Return a bucket as a message."""
    found = pb.PbTableBucket(table_id=group.table_id, bucket_id=bucket)
    if group.partition_id != NO_PARTITION:
        found.partition_id = group.partition_id
    return found


def lake_offset_message(
    group: BucketGroup, bucket: int, snapshot: TieredSnapshot, offset: TieredOffset | None
) -> pb.PbNotifyLakeTableOffsetReqForBucket:
    """Return how far a bucket is tiered as a message; None: the lake holds nothing of it."""
    found = pb.PbNotifyLakeTableOffsetReqForBucket(
        table_id=group.table_id, bucket_id=bucket, snapshot_id=snapshot.snapshot_id, commit_sequence=snapshot.sequence
    )
    if group.partition_id != NO_PARTITION:
        found.partition_id = group.partition_id
    if offset is None:
        return found
    found.log_end_offset, found.log_max_timestamp = offset.end, offset.max_timestamp_ms
    if offset.start is not None:
        found.log_start_offset = offset.start
    return found


def chunks(parts: Sequence[M]) -> Iterator[list[M]]:
    """Yield the messages in lists that fit a request; one that is larger stands alone."""
    chunk: list[M] = []
    size = 0
    for message in parts:
        length = message.ByteSize()
        if chunk and size + length > REQUEST_BYTES_MAX:
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += length
    if chunk:
        yield chunk


def is_done(answer: pb.PbNotifyLeaderAndIsrRespForBucket | pb.PbStopReplicaRespForBucket) -> bool:
    """Tell whether a bucket need not be told again: it did as told, or its server goes on trying to open it by itself."""
    if not answer.HasField("error_code"):
        return True
    error = error_from_code(answer.error_code, answer.error_message)
    bucket = answer.table_bucket
    log.warning("event=bucket_refused table=%d bucket=%d error=%s", bucket.table_id, bucket.bucket_id, error)
    return isinstance(answer, pb.PbNotifyLeaderAndIsrRespForBucket)
