"""Batches sent under sequence numbers that the caller keeps, so that another process can send them again.

A writer of `fluss_lab.client.write.table_writer` numbers its batches itself, and the numbers go with it. Here the caller says which
batch has which number. A batch that is sent again under its number, after a crash, is recognised by the
server, which remembers the last `UNACKED_MAX` batches of a writer in each bucket, with their CRCs: so another batch under
a number that was used is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fluss_lab.client.cluster.leader_requests import PASSING_ERRORS, LeaderCall, call_leader, call_leaders
from fluss_lab.client.log.fetch_codec import FetchLimits, Projection, fetch_request, fetched_buckets
from fluss_lab.client.write.write_requests import WriteAnswer, WriteKind
from fluss_lab.errors import (
    DuplicateSequenceError,
    FlussError,
    NotFoundError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionNotFoundError,
    RecordTooLargeError,
)
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.model.config.options import FETCH_SIZE_MAX
from fluss_lab.records import encode
from fluss_lab.records.batch import split_headers
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import TabletServerGateway
from fluss_lab.rpc.message_codec import Frame

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient

#: After the largest sequence comes 0 again.
_SEQUENCES: Final = 2**31
#: What the caller decides on: it has written down which number is whose.
_REFUSALS: Final = (RecordTooLargeError, OutOfOrderSequenceError, DuplicateSequenceError)


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


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a batch came to: the end of the log behind it, or why it is refused and always will be."""

    answer: int | FlussError


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
        attempts = self._connection.attempts(self._what)

        def send(gateway: TabletServerGateway, part: Sequence[NumberedBatch]) -> list[_Outcome | FlussError]:
            found = self._sent(gateway, part)
            if any(isinstance(each, _Outcome) for each in found):
                attempts.restart()
            return found

        def gone(batch: NumberedBatch, error: NotFoundError) -> _Outcome:
            self._connection.forget_partitions(self._info)
            described = self._described(batch.bucket, error)
            if isinstance(error, PartitionNotFoundError):
                return _Outcome(described)
            raise described from error

        call: LeaderCall[NumberedBatch, _Outcome] = LeaderCall(send, on_gone=gone)
        return [each.answer for each in call_leaders(self._connection, batches, call, attempts)]

    def _sent(self, gateway: TabletServerGateway, batches: Sequence[NumberedBatch]) -> list[_Outcome | FlussError]:
        encoded = [
            (
                each.bucket,
                encode(
                    each.rows, schema_id=self._info.schema_id, writer_id=each.writer_id, batch_sequence=each.sequence,
                    change_types=each.change_types,
                ),
            )
            for each in batches
        ]  # fmt: skip
        found: list[_Outcome | FlussError] = []
        answers: Sequence[WriteAnswer | FlussError]
        try:
            answers = self._kind.send(gateway, encoded, self._connection.request_timeout_ms)
        except FlussError as error:
            answers = [error] * len(batches)
        for each, answer in zip(batches, answers, strict=True):
            if not isinstance(answer, FlussError):
                found.append(_Outcome(answer.end_offset))
            elif isinstance(answer, _REFUSALS):
                found.append(_Outcome(answer))
            else:
                found.append(answer if isinstance(answer, PASSING_ERRORS) else self._described(each.bucket, answer))
        return found

    def _described(self, bucket: TableBucket, error: FlussError) -> FlussError:
        return type(error)(f"{self._what}, bucket {bucket}: {error}")

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
            response = call_leader(self._connection, bucket, self._what, partial(_fetch, request))
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
