"""The sending of a journaled batch under its journaled numbers, and sending it again after a failure.

One log batch of each bucket is on its way at a time. How far it got is noted after at most `_ROUNDS_UNNOTED` batches of a
bucket, so a later process sends no more than these again; the server remembers the last `UNACKED_MAX` numbers of a writer
in each bucket, and answers instead of appending.

A bucket's first number is spent on a batch without rows, and that is noted before rows follow: so a server that has
forgotten the writer (it was idle for days) refuses rows that are sent again, and never takes them for new. Then the log
itself shows which numbers arrived.

A sink whose folder is older than what the table holds (a checkpoint restored from a backup) has numbers that were used
for other rows. That shows in answers that lie before what is new, or in a refusal, and ends the batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from fluss_lab.client import Connection
from fluss_lab.client.cluster.leader_requests import PASSING_ERRORS, LeaderCall, call_leader, call_leaders
from fluss_lab.client.log.fetch_codec import FetchLimits, Projection, fetch_request, fetched_buckets
from fluss_lab.client.write.bucket_queue import SEQUENCES, UNACKED_MAX, following
from fluss_lab.client.write.write_requests import Refusal, WriteAnswer, WriteKind
from fluss_lab.errors import (
    CommitOutcomeUnknownError,
    CorruptDataError,
    DuplicateSequenceError,
    FlussError,
    NotFoundError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionNotFoundError,
    RecordTooLargeError,
)
from fluss_lab.failpoints import failpoint
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.records import encode
from fluss_lab.records.batch import split_headers
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.gateway import TabletServerGateway
from fluss_lab.rpc.message_codec import Frame, path_message
from fluss_lab.spark.sink.sink_journal import Intent, IntentBucket, SendPosition, SinkFolder
from fluss_lab.spark.sink.sink_rows import write_kind
from fluss_lab.spark.sink.sink_staging import StagedRows

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient


#: What the caller decides on: it has written down which number is whose.
_REFUSALS: Final = (RecordTooLargeError, OutOfOrderSequenceError, DuplicateSequenceError)


@dataclass(frozen=True, slots=True)
class _NextBatch:
    """Rows that go to one bucket next, under their number; none: its first number is spent.

    Attributes:
        index: Of the bucket, among the intent's.
        bucket: Where they go.
        writer_id: Under whose numbers.
        sequence: Their number: of a writer's batches in one bucket, each has the one after the batch before.
        rows: The rows, in the schema that the table's kind sends.
        change_types: What is done with each; None for rows that are appended.
        run_rows: Rows of the run that they are of.
    """

    index: int
    bucket: TableBucket
    writer_id: int
    sequence: int
    rows: pa.RecordBatch
    change_types: bytes | None
    run_rows: int


def distance(sequence: int, later: int) -> int:
    """Return how many numbers one lies after another; a huge number when it lies before."""
    return (later - sequence) % SEQUENCES


class _Place(NamedTuple):
    """The offsets ``[base, end)`` of the records that a batch made; equal where it changed nothing."""

    base: int
    end: int


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a batch came to: where it lies in the log, or why it is refused and always will be."""

    answer: _Place | FlussError


class _NumberedSender:
    """Sends numbered batches of one table, and finds out which are in the log. Used by one thread.

    Args:
        info: The table, with the schema that the rows have.
        kind: How its batches travel.
    """

    def __init__(self, connection: ClusterClient, info: TableInfo, kind: WriteKind) -> None:
        self._connection = connection
        self._info = info
        self._kind = kind
        self._what = f"{kind.verb} {info.path}"
        connection.remember(info)

    def send(self, batches: Sequence[_NextBatch]) -> list[_Place | FlussError]:
        """Send one batch each of several buckets, again until all are acknowledged or refused.

        Returns:
            For each where it lies in the bucket's log (where it lies already, when it was sent before), or why it was
            refused and will be: `RecordTooLargeError`; `OutOfOrderSequenceError` when the server does not expect the
            number; `DuplicateSequenceError` when it is another batch's, or of one too old to be remembered;
            `PartitionNotFoundError` when its partition was dropped.

        Raises:
            TableNotFoundError: The table was dropped.
            ServerUnavailableError: No server answered in time; whether rows were written is not known.
            FlussError: A server refused the rows.
        """
        attempts = self._connection.attempts(self._what)

        def send(gateway: TabletServerGateway, part: Sequence[_NextBatch]) -> list[_Outcome | FlussError]:
            found = self._send_once(gateway, part)
            if any(isinstance(each, _Outcome) for each in found):
                attempts.restart()
            return found

        def note_gone(batch: _NextBatch, error: NotFoundError) -> _Outcome:
            self._connection.forget_partitions(self._info)
            described = self._describe_error(batch.bucket, error)
            if isinstance(error, PartitionNotFoundError):
                return _Outcome(described)
            raise described from error

        call: LeaderCall[_NextBatch, _Outcome] = LeaderCall(send, on_gone=note_gone)
        return [each.answer for each in call_leaders(self._connection, batches, call, attempts)]

    def _send_once(self, gateway: TabletServerGateway, batches: Sequence[_NextBatch]) -> list[_Outcome | FlussError]:
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
            sent = self._kind.send(gateway, encoded, self._connection.request_timeout_ms)
            answers = [each.error if isinstance(each, Refusal) else each for each in sent]
        except FlussError as error:
            answers = [error] * len(batches)
        for each, answer in zip(batches, answers, strict=True):
            if not isinstance(answer, FlussError):
                found.append(_Outcome(_Place(answer.base_offset, answer.end_offset)))
            elif isinstance(answer, _REFUSALS):
                found.append(_Outcome(answer))
            else:
                found.append(
                    answer if isinstance(answer, PASSING_ERRORS) else self._describe_error(each.bucket, answer)
                )
        return found

    def _describe_error(self, bucket: TableBucket, error: FlussError) -> FlussError:
        return type(error)(f"{self._what}, bucket {bucket}: {error}")

    def written_batches(self, bucket: TableBucket, start: int, writer_id: int) -> Iterator[tuple[int, int]]:
        """Yield number and end offset of each batch of a writer that the cluster's log holds from an offset on.

        Batches that changed nothing leave no record, and may be left out.

        Raises:
            OffsetOutOfRangeError: The cluster's servers do not hold the log from there on any more.
            PartitionNotFoundError, ServerUnavailableError: As for any read.
        """
        columns = Projection(self._info, self._info.schema.names[:1])
        limits = FetchLimits(self._connection.fetch_bytes_max, 0, enable_lake=False)
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


log = logging.getLogger(__name__)

#: Batches of a bucket that may be in the log without a note of them: one less than servers remember.
_ROUNDS_UNNOTED: Final = UNACKED_MAX - 1
#: Rows that are sent together, over all buckets.
_SENT_BYTES: Final = 16 << 20


class SinkResend:
    """Sends one batch of a sink, from where it is known to be. Used once, under the folder's lock.

    Args:
        connection: To the cluster.
        info: The table as it is now.
        intent: The batch.
    """

    def __init__(self, connection: Connection, info: TableInfo, folder: SinkFolder, intent: Intent) -> None:
        self._connection = connection
        self._info = info = _as_staged(connection, info, intent.schema_id)
        self._folder = folder
        self._intent = intent
        self._positions = folder.positions(intent)
        self._rows = StagedRows(folder.staged, list(intent.files), keyed=not info.is_log_table)
        self._sender = _NumberedSender(connection, info, write_kind(info, intent.targets))
        #: Buckets that got a new writer id: once is enough.
        self._renewed: set[TableBucket] = set()

    def run(self) -> list[SendPosition]:
        """Send what is left, and return the position of each bucket then.

        Raises:
            TableNotFoundError: The table was dropped.
            ServerUnavailableError: No server answered in time; go on later.
            CommitOutcomeUnknownError: A server has forgotten the sink, and the log that shows what arrived has left it.
            CorruptDataError: The folder's numbers were used for other rows before.
            FlussError: Rows were refused.
        """
        rounds = 0
        while left := [i for i, each in enumerate(self._intent.buckets) if self._positions[i].run < len(each.runs)]:
            for group in self._batch_groups(left):
                answers = self._sender.send(group)
                failpoint("sink.send.after")
                stops = [self._handle_answer(batch, answer) for batch, answer in zip(group, answers, strict=True)]
                if any(stops):
                    self._write_positions()
            rounds += 1
            if rounds % _ROUNDS_UNNOTED == 0:
                self._write_positions()
        return self._positions

    def _write_positions(self) -> None:
        failpoint("sink.note.before")
        self._folder.write_positions(self._intent, self._positions)
        failpoint("sink.note.after")

    def _batch_groups(self, left: Sequence[int]) -> Iterator[list[_NextBatch]]:
        """Yield the next rows of buckets, some buckets at a time."""
        group: list[_NextBatch] = []
        size = 0
        for index in left:
            batch = self._next_batch(index)
            if group and size + batch.rows.nbytes > _SENT_BYTES:
                yield group
                group, size = [], 0
            group.append(batch)
            size += batch.rows.nbytes
        if group:
            yield group

    def _next_batch(self, index: int) -> _NextBatch:
        each, position = self._intent.buckets[index], self._positions[index]
        file, place, run_rows = each.runs[position.run]
        count = _rows_next(position, _rows_of(each)) if position.sequence else 0
        rows, changes = self._rows.rows(file, place, position.row, position.row + count)
        return _NextBatch(index, each.bucket, position.writer_id, position.sequence, rows, changes, run_rows)

    def _handle_answer(self, batch: _NextBatch, answer: _Place | FlussError) -> bool:
        """Move a bucket's position on; return whether that must be noted before anything else is sent."""
        position, each = self._positions[batch.index], self._intent.buckets[batch.index]
        if isinstance(answer, _Place):
            # By the end alone a batch that changed nothing looks like the last of the log, when that was another one.
            if answer.base < position.log_end:
                text = f"log offset {position.log_end} or a later one, found {answer.base}"
                raise self._reused_number(each, position, text)
            number = following(position.sequence)
            self._positions[batch.index] = position.advance(batch.rows.num_rows, batch.run_rows, number, answer.end)
            # Rows are sent only when it is noted that the first number is spent.
            return not position.sequence
        if isinstance(answer, RecordTooLargeError) and batch.rows.num_rows > 1:
            # How rows are cut must be the same when they are sent again.
            moved = replace(position, rows_max=batch.rows.num_rows // 2)
        elif isinstance(answer, DuplicateSequenceError):
            moved = self._skip_written(each, position)
            if moved == position:
                raise self._reused_number(each, position, f"a number that is free, found: {answer}") from answer
        elif isinstance(answer, OutOfOrderSequenceError) and each.bucket not in self._renewed:
            moved = self._recover(each, position)
        elif isinstance(answer, PartitionNotFoundError) and self._is_table_there():
            # As if the rows had come just before.
            log.warning("%s; rows of the batch for partition %r went with it", answer, each.partition)
            moved = replace(position, run=len(each.runs), row=0)
        else:
            raise answer
        self._positions[batch.index] = moved
        return True

    def _is_table_there(self) -> bool:
        return self._connection.table_info(self._info.path).table_id == self._info.table_id

    def _recover(self, each: IntentBucket, position: SendPosition) -> SendPosition:
        """Return the position behind what is in the log, when the server does not know its number any more."""
        moved = self._skip_written(each, position)
        if moved != position:
            return moved
        # Nothing of what is left was written, so it may get other numbers.
        self._renewed.add(each.bucket)
        return replace(position, writer_id=new_writer_id(self._connection, self._info), sequence=0)

    def _reused_number(self, each: IntentBucket, position: SendPosition, found: str) -> CorruptDataError:
        return CorruptDataError(
            f"write to {self._info.path}, bucket {each.bucket}, batch {self._intent.batch_id} of the sink in "
            f"{self._folder.path}: its rows have number {position.sequence} of writer {position.writer_id}, which other rows "
            f"had before (expected {found}): the sink's folder is older than what the table holds, such as a checkpoint "
            "that was restored from a backup. These rows were not written (rows for other buckets may have been). Start a "
            "new query, with a new checkpoint, behind the rows that the table has"
        )

    def _skip_written(self, each: IntentBucket, position: SendPosition) -> SendPosition:
        """Return the position behind those of its next batches that are in the log.

        Raises:
            CorruptDataError: Numbers of later batches of the sink are there too.
        """
        ahead = self._find_written(each.bucket, position) if position.sequence else {}
        runs, first = _rows_of(each), position
        for step in range(max(ahead, default=-1) + 1):
            if position.run == len(runs):
                raise self._reused_number(each, first, "no later batch's number in the log, found some")
            end = ahead.get(step, position.log_end)
            rows = _rows_next(position, runs)
            position = position.advance(rows, runs[position.run], following(position.sequence), end)
        return position

    def _find_written(self, bucket: TableBucket, position: SendPosition) -> dict[int, int]:
        """Return which of the next batches are in the log: how many lie before each, and its end offset."""
        try:
            written = list(self._sender.written_batches(bucket, position.log_end, position.writer_id))
        except OffsetOutOfRangeError as error:
            raise CommitOutcomeUnknownError(
                f"write to {self._info.path}, bucket {bucket}: the server has forgotten writer {position.writer_id} of this "
                f"sink, and the log from offset {position.log_end} on, which shows what of the batch was written, has left "
                f"the server ({error}). Look whether the rows are there; then start a new query behind them"
            ) from error
        steps = ((distance(position.sequence, number), end) for number, end in written)
        return {step: end for step, end in steps if step < _ROUNDS_UNNOTED}


def new_writer_id(connection: Connection, info: TableInfo) -> int:
    """Return a new writer id."""
    path = path_message(info.path)
    return int(connection.coordinator().init_writer(pb.InitWriterRequest(table_path=[path])).writer_id)


def _as_staged(connection: Connection, info: TableInfo, schema_id: int) -> TableInfo:
    """Return the table with the columns that staged rows have."""
    if schema_id == info.schema_id:
        return info
    return info.with_schema(schema_id, connection.schema(info, schema_id))


def _rows_of(each: IntentBucket) -> list[int]:
    """Return the rows of each run of a bucket."""
    return [rows for _, _, rows in each.runs]


def _rows_next(position: SendPosition, run_rows: Sequence[int]) -> int:
    """Return how many rows the next batch has."""
    left = run_rows[position.run] - position.row
    return min(left, position.rows_max or left)
