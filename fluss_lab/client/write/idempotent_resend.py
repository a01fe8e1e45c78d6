"""Batches sent under numbers that somebody else keeps, so that another process can send them again.

A writer of `fluss_lab.client.write.table_writer` numbers its batches itself, and the numbers go with it. Here the caller says which
batch has which number. Whoever sends the same batch under the same number again, after a crash, has it recognised by the
server, which remembers the last `UNACKED_MAX` batches of a writer in each bucket, with their CRCs: so another batch under
a number that was used is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fluss_lab.client.cluster.retry_policy import Attempts
from fluss_lab.client.log.fetch_codec import FetchLimits, Projection, fetch_request, fetched_buckets
from fluss_lab.client.write.bucket_queue import Batch, BucketQueue
from fluss_lab.client.write.write_requests import WriteKind
from fluss_lab.errors import (
    AuthenticationError,
    DuplicateSequenceError,
    FlussError,
    InternalError,
    NotFoundError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionNotFoundError,
    RecordTooLargeError,
    UnavailableError,
    error_from_code,
)
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.model.config.options import FETCH_SIZE_MAX
from fluss_lab.records import encode
from fluss_lab.records.batch import split_headers
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.bucket_fields import partition_id_of
from fluss_lab.rpc.gateway import TabletServerGateway
from fluss_lab.rpc.message_codec import Frame

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient

#: After the largest sequence comes 0 again.
_SEQUENCES: Final = 2**31


@dataclass(frozen=True, slots=True)
class NumberedBatch:
    """Rows of one bucket under a number.

    Attributes:
        bucket: Where they go.
        writer_id: Whose they are.
        sequence: Their number: of a writer's batches in one bucket, each has the one after the batch before.
        rows: The rows, in the schema that the table's kind sends.
        change_types: What is done with each; None for rows that are appended.
    """

    bucket: TableBucket
    writer_id: int
    sequence: int
    rows: pa.RecordBatch
    change_types: bytes | None


def following(sequence: int) -> int:
    """Return the number after another."""
    return (sequence + 1) % _SEQUENCES


def distance(sequence: int, later: int) -> int:
    """Return how many numbers one lies after another; a huge number when it lies before."""
    return (later - sequence) % _SEQUENCES


class NumberedSender:
    """Sends numbered batches of one table, and finds out which are in the log. Used by one thread.

    Args:
        connection: To the cluster.
        info: The table, with the schema that the rows have.
        kind: How its batches travel.
    """

    def __init__(self, connection: ClusterClient, info: TableInfo, kind: WriteKind) -> None:
        self._connection = connection
        self._info = info
        self._kind = kind
        self._what = f"{kind.verb} {info.path}"
        connection.remember(info)

    def send(self, batches: Sequence[NumberedBatch]) -> list[int | FlussError]:
        """Send one batch each of several buckets, again until all are acknowledged or refused.

        Returns:
            For each the end of the bucket's log behind it (where it lies already, when it was sent before), or why it was
            refused and will be: `RecordTooLargeError`; `OutOfOrderSequenceError` when the server does not expect the
            number; `DuplicateSequenceError` when it is another batch's, or of one too old to be remembered;
            `PartitionNotFoundError` when its partition was dropped.

        Raises:
            TableNotFoundError: The table was dropped.
            ServerUnavailableError: No server answered in time; whether rows were written is not known.
            FlussError: A server refused the rows.
        """
        answers: dict[int, int | FlussError] = {}
        attempts = self._connection.attempts(self._what)
        while waiting := [index for index in range(len(batches)) if index not in answers]:
            failed = self._round(batches, waiting, answers, attempts)
            if len(failed) < len(waiting):
                attempts.progressed()
            if failed:
                bucket, error = next(iter(failed.items()))
                attempts.failed(error, f"the server of bucket {bucket}")
        return [answers[index] for index in range(len(batches))]

    def _round(
        self,
        batches: Sequence[NumberedBatch],
        waiting: Sequence[int],
        answers: dict[int, int | FlussError],
        attempts: Attempts,
    ) -> dict[TableBucket, FlussError]:
        """Send what waits once; return what failed for a reason that may pass."""
        by_server: dict[int, list[int]] = {}
        failed: dict[TableBucket, FlussError] = {}
        for index in waiting:
            leader = self._leader(batches[index].bucket, attempts)
            if isinstance(leader, int):
                by_server.setdefault(leader, []).append(index)
            elif isinstance(leader, UnavailableError):
                failed[batches[index].bucket] = leader
            else:
                answers[index] = leader
        for server, indexes in by_server.items():
            for index, answer in zip(indexes, self._ask(server, [batches[i] for i in indexes]), strict=True):
                bucket = batches[index].bucket
                if isinstance(answer, int | RecordTooLargeError | OutOfOrderSequenceError | DuplicateSequenceError):
                    answers[index] = answer
                elif isinstance(answer, UnavailableError | NotFoundError | AuthenticationError):
                    # That a bucket is gone is believed when the coordinator says so.
                    self._connection.forget_leaders_of([bucket])
                    failed[bucket] = answer
                else:
                    raise self._described(bucket, answer)
        return failed

    def _leader(self, bucket: TableBucket, attempts: Attempts) -> int | FlussError:
        """Return the server of a bucket, or why there is none now, or none any more."""
        try:
            return self._connection.leaders([bucket], attempts)[bucket]
        except UnavailableError as error:
            return error
        except NotFoundError as error:
            self._connection.forget_partitions(self._info)
            described = self._described(bucket, error)
            if isinstance(error, PartitionNotFoundError):
                return described
            raise described from error

    def _described(self, bucket: TableBucket, error: FlussError) -> FlussError:
        return type(error)(f"{self._what}, bucket {bucket}: {error}")

    def _ask(self, server: int, batches: Sequence[NumberedBatch]) -> list[int | FlussError]:
        request = self._kind.request(self._connection.request_timeout_ms)
        sent = []
        for each in batches:
            bucket = each.bucket
            request.buckets_req.add(partition_id=bucket.partition_id, bucket_id=bucket.bucket, records=b"")
            payload = encode(
                each.rows, schema_id=self._info.schema_id, writer_id=each.writer_id, batch_sequence=each.sequence,
                change_types=each.change_types,
            )  # fmt: skip
            sent.append(Batch(BucketQueue(bucket, None, each.writer_id), each.sequence, [], payload))
        try:
            found = self._kind.send(self._connection.gateway(server), request, sent)
        except FlussError as error:
            return [error for _ in batches]
        by_bucket = {(partition_id_of(entry), entry.bucket_id): entry for entry in found}
        return [_answer(each.bucket, by_bucket.get((each.bucket.partition_id, each.bucket.bucket))) for each in batches]

    def written(self, bucket: TableBucket, start: int, writer_id: int) -> Iterator[tuple[int, int]]:
        """Yield number and end offset of each batch of a writer that the cluster's log holds from an offset on.

        Batches that changed nothing leave no record, and may be left out.

        Raises:
            OffsetOutOfRangeError: The cluster's servers do not hold the log from there on any more.
            PartitionNotFoundError, ServerUnavailableError: As for any read.
        """
        columns = Projection(self._info, self._info.schema.names[:1])
        limits = FetchLimits(FETCH_SIZE_MAX.of(self._connection.options), 0, enable_lake=False)
        offset = start
        while True:
            request = fetch_request(self._info.table_id, [(bucket, offset)], columns, limits)
            response = self._connection.ask_leader(bucket, self._what, partial(_fetch, request))
            fetched = next(fetched_buckets(response), None)
            if fetched is None or fetched.error is not None or fetched.remote is not None:
                reason = "it is in remote storage" if fetched is None or fetched.error is None else str(fetched.error)
                raise OffsetOutOfRangeError(f"{self._what}, bucket {bucket}: no log from offset {offset} on: {reason}")
            begin = offset
            for header, _ in split_headers(fetched.data):
                if header.writer_id == writer_id and header.next_offset > start:
                    yield header.batch_sequence, header.next_offset
                offset = max(offset, header.next_offset)
            if offset == begin:
                return


def _fetch(request: pb.FetchLogRequest, gateway: TabletServerGateway) -> Frame[pb.FetchLogResponse]:
    return gateway.fetch_log(request)


def _answer(
    bucket: TableBucket, entry: pb.PbProduceLogRespForBucket | pb.PbPutKvRespForBucket | None
) -> int | FlussError:
    if entry is None:
        return InternalError(f"the server's answer leaves out bucket {bucket}")
    if entry.error_code:
        return error_from_code(entry.error_code, entry.error_message)
    return int(entry.end_offset)
