"""The common part of ProduceLog and PutKv: a payload for each of several buckets, each with an answer of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar

from fluss_lab.errors import InvalidRequestError
from fluss_lab.records.batch import Buffer
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import Frame, bucket_of
from fluss_lab.rpc.serving.grpc_server import put_error
from fluss_lab.server.tablet.buckets.bucket import Bucket
from fluss_lab.server.tablet.buckets.bucket_store import BucketStore
from fluss_lab.server.tablet.log.append_types import Appended

#: How long a batch waits for its predecessor: requests overtake each other by thread switches, so by milliseconds. A
#: predecessor that failed will not come before its sender has heard of it.
GAP_WAIT_MS: Final = 1_000

Request = TypeVar("Request", pb.ProduceLogRequest, pb.PutKvRequest)
Answer = TypeVar("Answer", pb.PbProduceLogRespForBucket, pb.PbPutKvRespForBucket)
#: Writes one payload to a bucket, waiting so many milliseconds for a predecessor.
Write: TypeAlias = Callable[[Bucket, Sequence[Buffer], int], Appended]


def write_payloads(
    store: BucketStore, request: Frame[Request], answers: Sequence[Answer], write: Write, what: str
) -> list[tuple[Answer, Bucket]]:
    """Write payloads; return when they are as durable as promised. One bucket's failure is in its own answer.

    Args:
        store: The server's buckets.
        request: With a payload for each bucket.
        answers: One for each bucket of the request, in order; filled here.
        write: Checks and writes one payload, all of it or nothing.
        what: For messages.

    Returns:
        The answers without an error, with their buckets.
    """
    message = request.message
    wait_ms = min(GAP_WAIT_MS, message.timeout_ms)
    written: list[tuple[Answer, Bucket, Appended]] = []
    for each, answer, payload in zip(message.buckets_req, answers, request.payloads, strict=True):
        place = bucket_of(each, message.table_id)
        answer.bucket_id = place.bucket
        if place.partition_id is not None:
            answer.partition_id = place.partition_id
        try:
            bucket = store.get(place)
            written.append((answer, bucket, write(bucket, payload, wait_ms)))
        except Exception as error:
            put_error(answer, error, f"{what} bucket {answer.bucket_id}")
    done: list[tuple[Answer, Bucket]] = []
    # Acknowledged after all are written: where that waits for the device, it waits once for what came together.
    for answer, bucket, appended in written:
        try:
            bucket.log.acknowledge(appended)
        except Exception as error:
            put_error(answer, error, f"{what} bucket {answer.bucket_id}")
            continue
        answer.base_offset, answer.end_offset = appended.base_offset, appended.end_offset
        done.append((answer, bucket))
    return done


def check_payloads(request: Frame[Request]) -> None:
    """Raise `InvalidRequestError` unless there is a payload for each bucket."""
    if len(request.payloads) != len(request.message.buckets_req):
        raise InvalidRequestError(
            f"expected {len(request.message.buckets_req)} payloads, found {len(request.payloads)}"
        )
