"""One ProduceLog call: a payload for each of several buckets of a table."""

from __future__ import annotations

from collections.abc import Sequence

from fluss_lab.errors import FlussError, UnsupportedError
from fluss_lab.records.batch import Buffer
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame
from fluss_lab.server.tablet.append.payload_validation import check_payload
from fluss_lab.server.tablet.buckets.bucket import Bucket
from fluss_lab.server.tablet.buckets.bucket_store import BucketStore
from fluss_lab.server.tablet.log.append_types import Appended
from fluss_lab.server.tablet.requests.write_payloads import check_payloads, write_payloads


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
    check_payloads(request)
    response = pb.ProduceLogResponse()
    answers = [response.buckets_resp.add() for _ in request.payloads]

    def write(bucket: Bucket, payload: Sequence[Buffer], wait_ms: int) -> Appended:
        return _append(bucket, payload, size_max, wait_ms)

    write_payloads(store, request, answers, write, "append to")
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
