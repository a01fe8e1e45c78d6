"""One PutKv call: a batch of changes for each of several buckets of a primary-key table."""

from __future__ import annotations

from collections.abc import Sequence

from fluss_lab.errors import FlussError, UnsupportedError
from fluss_lab.records.batch import Buffer
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame
from fluss_lab.server.tablet.buckets.bucket import Bucket
from fluss_lab.server.tablet.buckets.bucket_store import BucketStore
from fluss_lab.server.tablet.log.append_types import Appended
from fluss_lab.server.tablet.requests.write_payloads import check_payloads, write_payloads


def put(store: BucketStore, request: Frame[pb.PutKvRequest]) -> pb.PutKvResponse:
    """Make changes and return when they are as durable as promised.

    A bucket's changes are all made and logged, or none. One bucket's failure is in its own answer.

    Args:
        store: The server's buckets.
        request: With a payload for each bucket.

    Raises:
        InvalidRequestError: There are not as many payloads as buckets.
    """
    check_payloads(request)
    response = pb.PutKvResponse()
    answers = [response.buckets_resp.add() for _ in request.payloads]
    columns = tuple(request.message.target_columns)

    def write(bucket: Bucket, payload: Sequence[Buffer], wait_ms: int) -> Appended:
        return _put(bucket, payload, columns, wait_ms)

    for answer, bucket in write_payloads(store, request, answers, write, "put to"):
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
