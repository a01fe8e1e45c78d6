"""One PutKv call: a batch of changes for each of several buckets of a primary-key table."""

from __future__ import annotations

from collections.abc import Sequence

from fluss_lab.errors import FlussError, InvalidRequestError, UnsupportedError, error_code
from fluss_lab.model.names import TableBucket
from fluss_lab.records.batch import Buffer
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.codec import Frame
from fluss_lab.rpc.serving import as_fluss_error
from fluss_lab.server.tablet.bucket import Bucket
from fluss_lab.server.tablet.entries import Appended
from fluss_lab.server.tablet.produce import GAP_WAIT_MS
from fluss_lab.server.tablet.store import BucketStore


def put(store: BucketStore, request: Frame[pb.PutKvRequest]) -> pb.PutKvResponse:
    """Make changes and return when they are as durable as promised.

    A bucket's changes are all made and logged, or none. One bucket's failure is in its own answer.

    Args:
        store: The server's buckets.
        request: With a payload for each bucket.

    Raises:
        InvalidRequestError: There are not as many payloads as buckets.
    """
    message = request.message
    if len(request.payloads) != len(message.buckets_req):
        raise InvalidRequestError(f"expected {len(message.buckets_req)} payloads, found {len(request.payloads)}")
    response = pb.PutKvResponse()
    wait_ms = min(GAP_WAIT_MS, message.timeout_ms)
    columns = tuple(message.target_columns)
    written: list[tuple[pb.PbPutKvRespForBucket, Bucket, Appended]] = []
    for each, payload in zip(message.buckets_req, request.payloads, strict=True):
        partition_id = each.partition_id if each.HasField("partition_id") else None
        answer = response.buckets_resp.add(bucket_id=each.bucket_id)
        if partition_id is not None:
            answer.partition_id = partition_id
        try:
            bucket = store.get(TableBucket(message.table_id, partition_id, each.bucket_id))
            written.append((answer, bucket, _put(bucket, payload, columns, wait_ms)))
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
        answer.log_end_offset = bucket.log.end
    return response


def _put(bucket: Bucket, payload: Sequence[Buffer], columns: Sequence[int], wait_ms: int) -> Appended:
    name = f"{bucket.table.path} bucket {bucket.id.bucket}"
    if bucket.kv is None:
        raise UnsupportedError(f"{name}: the table has no primary key, so its rows are appended, not put")
    try:
        return bucket.kv.put(payload, columns, wait_ms)
    except FlussError as error:
        if error.retriable:
            raise
        raise type(error)(f"{name}: {error}; nothing was changed") from error


def _put_error(answer: pb.PbPutKvRespForBucket, error: Exception) -> None:
    known = as_fluss_error(error, f"put to bucket {answer.bucket_id}")
    answer.error_code, answer.error_message = error_code(known), str(known)
