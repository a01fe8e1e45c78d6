"""One ProduceLog call: a payload for each of several buckets of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fluss_lab.errors import FlussError, InvalidRequestError, UnsupportedError, error_code
from fluss_lab.model.names import TableBucket
from fluss_lab.records.batch import Buffer
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.codec import Frame
from fluss_lab.rpc.serving import as_fluss_error
from fluss_lab.server.tablet.bucket import Bucket
from fluss_lab.server.tablet.checks import check_payload
from fluss_lab.server.tablet.entries import Appended
from fluss_lab.server.tablet.store import BucketStore

#: How long a batch waits for its predecessor: requests overtake each other by thread switches, so by milliseconds. A
#: predecessor that failed will not come before its sender has heard of it.
GAP_WAIT_MS: Final = 1_000


def produce(store: BucketStore, request: Frame[pb.ProduceLogRequest], size_max: int) -> pb.ProduceLogResponse:
    """Append payloads and return when they are as durable as promised.

    Each payload is checked as a whole before a byte of it is written. One bucket's failure is in its own answer.

    Args:
        store: The server's buckets.
        request: With a payload for each bucket.
        size_max: Bytes of a payload, at most.

    Raises:
        InvalidRequestError: There are not as many payloads as buckets.
    """
    message = request.message
    if len(request.payloads) != len(message.buckets_req):
        raise InvalidRequestError(f"expected {len(message.buckets_req)} payloads, found {len(request.payloads)}")
    response = pb.ProduceLogResponse()
    wait_ms = min(GAP_WAIT_MS, message.timeout_ms)
    written: list[tuple[pb.PbProduceLogRespForBucket, Bucket, Appended]] = []
    for each, payload in zip(message.buckets_req, request.payloads, strict=True):
        partition_id = each.partition_id if each.HasField("partition_id") else None
        answer = response.buckets_resp.add(bucket_id=each.bucket_id)
        if partition_id is not None:
            answer.partition_id = partition_id
        try:
            bucket = store.get(TableBucket(message.table_id, partition_id, each.bucket_id))
            written.append((answer, bucket, _append(bucket, payload, size_max, wait_ms)))
        except Exception as error:
            _put_error(answer, error)
    # Acknowledged after all are written: where that waits for the device, it waits once for what came together.
    for answer, bucket, appended in written:
        try:
            bucket.log.acknowledge(appended)
        except Exception as error:
            _put_error(answer, error)
            continue
        answer.base_offset, answer.end_offset = appended.base_offset, appended.end_offset
    return response


def _append(bucket: Bucket, payload: Sequence[Buffer], size_max: int, wait_ms: int) -> Appended:
    table = bucket.table
    if bucket.kv is not None:
        raise UnsupportedError(f"{table.path} has a primary key, so its rows are put, not appended")
    try:
        batches = check_payload(payload, table.schemas, current_schema_id=table.schema_id, size_max=size_max)
    except FlussError as error:
        raise type(error)(f"{table.path} bucket {bucket.id.bucket}: {error}; nothing was appended") from error
    return bucket.log.append(batches, wait_ms)


def _put_error(answer: pb.PbProduceLogRespForBucket, error: Exception) -> None:
    known = as_fluss_error(error, f"append to bucket {answer.bucket_id}")
    answer.error_code, answer.error_message = error_code(known), str(known)
