"""One ProduceLog or PutKv call: a payload for each of several buckets of a table, each with an answer of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar

from fluss_lab.errors import CorruptDataError, FlussError, InvalidRequestError, RecordTooLargeError, UnsupportedError
from fluss_lab.records.batch import Buffer, split_headers
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame, bucket_of
from fluss_lab.rpc.serving.grpc_server import put_error
from fluss_lab.server.tablet.buckets.bucket import Bucket
from fluss_lab.server.tablet.buckets.bucket_store import BucketStore
from fluss_lab.server.tablet.log.log_segments import LogAppendInfo
from fluss_lab.server.tablet.log.payload_validation import check_payload

#: How long a batch waits for its predecessor: requests overtake each other by thread switches, so by milliseconds. A
#: predecessor that failed will not come before its sender has heard of it.
GAP_WAIT_MS: Final = 1_000

Request = TypeVar("Request", pb.ProduceLogRequest, pb.PutKvRequest)
Answer = TypeVar("Answer", pb.PbProduceLogRespForBucket, pb.PbPutKvRespForBucket)
#: Writes one payload to a bucket, waiting so many milliseconds for a predecessor.
Write: TypeAlias = Callable[[Bucket, Sequence[Buffer], int], LogAppendInfo]


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
    response = pb.ProduceLogResponse()

    def write(bucket: Bucket, payload: Sequence[Buffer], wait_ms: int) -> LogAppendInfo:
        return _append(bucket, payload, size_max, wait_ms)

    _write(store, request, response.buckets_resp.add, write, "append to")
    return response


def _append(bucket: Bucket, payload: Sequence[Buffer], size_max: int, wait_ms: int) -> LogAppendInfo:
    table = bucket.table
    if bucket.kv is not None:
        raise UnsupportedError(f"{table.path} has a primary key, so its rows are put, not appended")
    try:
        batches = check_payload(payload, table.schemas, current_schema_id=table.schema_id, size_max=size_max)
    except FlussError as error:
        if (appended := _find_appended(bucket, payload, error)) is not None:
            return appended
        raise type(error)(f"{table.path} bucket {bucket.id.bucket}: {error}; nothing was appended") from error
    return bucket.log.append(batches, wait_ms)


def put(store: BucketStore, request: Frame[pb.PutKvRequest]) -> pb.PutKvResponse:
    """Make changes and return when they are as durable as promised.

    A bucket's changes are all made and logged, or none. One bucket's failure is in its own answer.

    Args:
        store: The server's buckets.
        request: With a payload for each bucket.

    Raises:
        InvalidRequestError: There are not as many payloads as buckets.
    """
    response = pb.PutKvResponse()
    columns = tuple(request.message.target_columns)

    def write(bucket: Bucket, payload: Sequence[Buffer], wait_ms: int) -> LogAppendInfo:
        return _put(bucket, payload, columns, wait_ms)

    for answer, bucket in _write(store, request, response.buckets_resp.add, write, "put to"):
        answer.log_end_offset = bucket.log.end
    return response


def _put(bucket: Bucket, payload: Sequence[Buffer], columns: Sequence[int], wait_ms: int) -> LogAppendInfo:
    name = f"{bucket.table.path} bucket {bucket.id.bucket}"
    if bucket.kv is None:
        raise UnsupportedError(f"{name}: the table has no primary key, so its rows are appended, not put")
    try:
        return bucket.kv.put(payload, columns, wait_ms)
    except FlussError as error:
        if error.retriable:
            raise
        if (appended := _find_appended(bucket, payload, error)) is not None:
            return appended
        raise type(error)(f"{name}: {error}; nothing was changed") from error


def _find_appended(bucket: Bucket, payload: Sequence[Buffer], error: FlussError) -> LogAppendInfo | None:
    """Return where a payload is that is too large, if it is in the log already: the limit was another one then.

    Its writer, which may not know that it is there, would cut it and write a part of it again.
    """
    if not isinstance(error, RecordTooLargeError):
        return None
    whole = memoryview(payload[0] if len(payload) == 1 else b"".join(payload)).cast("B")
    try:
        return bucket.log.find([header for header, _ in split_headers(whole)])
    except CorruptDataError:
        return None


def _write(
    store: BucketStore, request: Frame[Request], add: Callable[..., Answer], write: Write, what: str
) -> list[tuple[Answer, Bucket]]:
    """Write payloads, fill the answers, and return those without an error, with their buckets.

    Args:
        store: The server's buckets.
        request: With a payload for each bucket.
        add: Adds an answer to the response.
        write: Checks and writes one payload, all of it or nothing.
        what: For messages.

    Raises:
        InvalidRequestError: There are not as many payloads as buckets.
    """
    message = request.message
    if len(request.payloads) != len(message.buckets_req):
        raise InvalidRequestError(f"expected {len(message.buckets_req)} payloads, found {len(request.payloads)}")
    wait_ms = min(GAP_WAIT_MS, message.timeout_ms)
    written: list[tuple[Answer, Bucket, LogAppendInfo]] = []
    for each, payload in zip(message.buckets_req, request.payloads, strict=True):
        key = bucket_of(each, message.table_id)
        answer = add(bucket_id=key.bucket, partition_id=key.partition_id)
        try:
            bucket = store.get(key)
            written.append((answer, bucket, write(bucket, payload, wait_ms)))
        except Exception as error:
            put_error(answer, error, f"{what} bucket {answer.bucket_id}")
    done: list[tuple[Answer, Bucket]] = []
    # Acknowledged after all are written: where that waits for the device, it waits once for what came together.
    for answer, bucket, appended in written:
        try:
            bucket.log.acknowledge(appended)
            done.append((answer, bucket))
        except Exception as error:
            put_error(answer, error, f"{what} bucket {answer.bucket_id}")
        # Beside an error they say that the rows are in the log all the same, though perhaps not on the device.
        answer.base_offset, answer.end_offset = appended.base_offset, appended.end_offset
    return done
