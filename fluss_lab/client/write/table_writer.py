"""The writer of log tables, and what it shares with upserts: batched, pipelined, idempotent, back-pressured."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from fluss_lab.client.write.batch_sender import BatchSender
from fluss_lab.client.write.bucket_queue import BucketQueue, BucketRows, WriteCall
from fluss_lab.client.write.dynamic_partitions import DynamicPartitions
from fluss_lab.client.write.linger import RowGatherer
from fluss_lab.client.write.record_accumulator import RecordAccumulator
from fluss_lab.client.write.row_routing import Router, Run
from fluss_lab.client.write.unsettled_write import UnsettledWrite, WriteProgress
from fluss_lab.client.write.write_requests import Appends, WriteKind
from fluss_lab.client.write.write_result import AppendResult, WriteFuture, WriteResult
from fluss_lab.errors import (
    FlussError,
    InvalidRequestError,
    RecordTooLargeError,
    UnsupportedError,
    WriteInterruptedError,
    WriteStoppedError,
)
from fluss_lab.interrupts import Held
from fluss_lab.model import PartitionInfo, TableBucket, TableInfo
from fluss_lab.model.argument_checks import check_arguments
from fluss_lab.model.changes import ChangeType
from fluss_lab.model.config.options import (
    REQUEST_SIZE_MAX,
    WRITER_BATCH_SIZE,
    WRITER_BUFFER_SIZE,
    WRITER_STOP_TIMEOUT,
)
from fluss_lab.model.values.plain_rows import PlainRows
from fluss_lab.model.values.row_input import is_row, record_batches
from fluss_lab.records.row_sizes import RowLimit, around_bytes
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.message_codec import path_message

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient


F = TypeVar("F", bound=WriteFuture)


@check_arguments
class TableWriter:
    """Writes to one table. Threads may share it; each call is queued whole, in the order of the calls.

    Rows of one bucket keep their order. A server's restart goes unnoticed: batches that were not acknowledged are sent
    again, and the server recognises those that it has. Only when nothing is acknowledged for
    ``client.request-timeout`` does a call fail, and with it all that wait behind it for the same bucket. The next call raises
    that error and does nothing, unless the future was read; calls made after that begin afresh, and what failed is given up.

    An interrupt stops the writer where it is waited for at its end (`close`, or the end of its block): what is under way
    is awaited for ``client.writer.stop-timeout``, nothing more is sent, and `WriteStoppedError` says how far it came.

    Args:
        info: The table. Rows are written in its schema, also after columns were added to the table.
        kind: How its batches travel.
        form: The schema in which rows travel.
        columns: Which columns of the table the rows have, in its order; None: all.
    """

    def __init__(
        self,
        connection: ClusterClient,
        info: TableInfo,
        kind: WriteKind,
        form: pa.Schema,
        columns: tuple[str, ...] | None = None,
    ) -> None:
        self._connection = connection
        self._info = info
        self._kind = kind
        self._form, self._columns = form, columns
        self._what = f"{kind.verb} {info.path}"
        self._batch_bytes = WRITER_BATCH_SIZE.of(connection.options)
        self._row_limit = RowLimit(self._batch_bytes, not info.is_log_table)
        self._partitions = DynamicPartitions(connection, info, self._what)
        self._accumulator = self._new_accumulator()
        self._queueing = threading.Lock()
        self._writer_id: int | None = None
        self._router: Router | None = None
        self._sender: BatchSender | None = None
        self._closed = self._is_abandoned = self._is_left = False
        #: Of rows given one at a time; None before the first, or where they are calls like any others.
        self._single: RowGatherer[Any] | None = None
        connection.remember(info)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._info.path}{' (closed)' if self._closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        with Held() as held:
            if isinstance(error, KeyboardInterrupt):
                self._stop(error)
                return
            try:
                self._await_calls()
                self._end()
                held.deliver()
            except KeyboardInterrupt as stop:
                self._stop(stop)
                raise
            if isinstance(error, FlussError):
                self._tell_partial(error)

    def flush(self) -> None:
        """Wait until every call is settled. An interrupt ends the waiting only; the writing goes on.

        Raises:
            FlussError: What the first failed call failed with, unless its future was read already.
        """
        if (error := self._await_calls()) is not None:
            raise error

    def close(self) -> None:
        """Flush, and end the writer's threads. Twice is fine.

        Raises:
            WriteInterruptedError: A part of the rows was not acknowledged, and another was, or may be written.
            WriteStoppedError: An interrupt came before everything was acknowledged.
            FlussError: As `flush`. In each case the writer is closed.
        """
        with Held() as held:
            try:
                error = self._await_calls()
                self._end()
                held.deliver()
            except KeyboardInterrupt as stop:
                self._stop(stop)
                raise
            if error is not None:
                self._tell_partial(error)
                raise error

    # -- a write that was interrupted ----------------------------------------------------------------------------------

    def progress(self) -> WriteProgress:
        """Return what became of all rows that the writer was given."""
        progress, gathered = self._accumulator.progress(), self._gathered
        return replace(progress, rows=progress.rows + gathered, unsent=progress.unsent + gathered)

    def settle(self) -> WriteResult:
        """Finish what an interrupt stopped or a failure left, each row once; see `WriteInterruptedError.settle`."""
        started = time.monotonic()
        with Held():
            self._check_process()
            if self._is_abandoned:
                raise InvalidRequestError(f"{self._what}: what was not acknowledged is abandoned; write it anew")
            if self._closed and (self._accumulator.reopen() or self._gathered):
                self._connection.open_resources.add(self, self.close, self._leave)
                self._sender = self._new_sender()
            try:
                error = self._await_calls()
                if self._closed:
                    self._end()
            except KeyboardInterrupt as stop:
                self._stop(stop)
                raise
            if error is not None or self.progress().unsent:
                failure = error or InvalidRequestError(f"{self._what}: refused again")
                self._tell_partial(failure)
                raise failure
            progress = self.progress()
        offsets = {place: each.offsets for place, each in progress.acknowledged.items()}
        return WriteResult(progress.rows - progress.given_up, offsets, time.monotonic() - started)

    def abandon(self) -> None:
        """Give up what is not acknowledged; see `WriteInterruptedError.abandon`."""
        with Held():
            self._closed = self._is_abandoned = True
            self._accumulator.close()
            self._accumulator.abandon(WriteInterruptedError(f"{self._what}: abandoned"))
            if self._single is not None:
                with self._queueing:
                    self._single.fail(WriteInterruptedError(f"{self._what}: abandoned"))

    def _stop(self, stop: KeyboardInterrupt) -> None:
        """After an interrupt: send no more, and say what was written. A writer without rows just ends.

        Raises:
            WriteStoppedError: Rows were given.
        """
        self._closed = True
        self._accumulator.close()
        if self._sender is not None:
            with suppress(KeyboardInterrupt):  # a second one: it is enough waited
                self._sender.join(WRITER_STOP_TIMEOUT.of(self._connection.options) / 1000)
        if self._single is not None:
            with suppress(KeyboardInterrupt):
                self._single.end()
        self._connection.open_resources.remove(self)
        progress = self.progress()
        if progress.rows:
            raise WriteStoppedError(progress.text(self._what, "interrupted"), UnsettledWrite(self)) from stop

    def _tell_partial(self, error: FlussError) -> None:
        """Raise `WriteInterruptedError` from an error that left a part of the rows written, or in doubt."""
        progress = self.progress()
        if progress.is_partial and not isinstance(error, WriteInterruptedError):
            raise WriteInterruptedError(progress.text(self._what, "failed"), UnsettledWrite(self)) from error

    # -- for the kinds -----------------------------------------------------------------------------------------------

    def _write(self, future: F, batches: Sequence[pa.RecordBatch], change: ChangeType) -> F:
        """Queue checked rows; wait for room. See the writers' own methods for what is raised."""
        started = time.monotonic()
        with self._queueing, Held() as held:
            self._ready(raises_failure=True)
            if self._single is not None:
                self._single.drain()
            self._queue_rows(future, batches, change, started)
            try:
                held.deliver()
            except KeyboardInterrupt as stop:
                rows = sum(batch.num_rows for batch in batches)
                text = (
                    f"{self._what}: interrupted: the {rows:,} rows of this call are queued and are sent; do not give "
                )
                raise WriteStoppedError(text + "them again. settle() waits for them", UnsettledWrite(self)) from stop
        return future

    def _take(self, rows: object, new_future: Callable[[], F], change: ChangeType) -> F:
        """Check rows in any form, or one as a dict, and queue them; see the writers' own methods."""
        if type(rows) is dict and rows:
            single = self._single or self._new_gatherer(new_future, change)
            if single is not None and (added := single.add(rows)) is not None:
                future: F = added
                return future
            rows = [rows] if is_row(rows) else rows
        batches = record_batches(rows, self._info.schema, self._columns)
        formed = [pa.RecordBatch.from_arrays(batch.columns, schema=self._form) for batch in batches]
        return self._write(new_future(), formed, change)

    @cached_property
    def _plain(self) -> PlainRows | None:
        """What single rows are checked by; None in a table with partitions, which may lack the bucket of a row."""
        if self._info.descriptor.partitioned_by:
            return None
        return PlainRows.of(self._info.schema, self._columns)

    def _new_gatherer(self, new_future: Callable[[], F], change: ChangeType) -> RowGatherer[F] | None:
        """Begin to take rows one at a time, where that can be.

        Args:
            new_future: Makes the future of some of them.
            change: What is done with each.
        """
        if (plain := self._plain) is None:
            return None

        def queue(future: F, rows: pa.RecordBatch, started: float) -> None:
            formed = pa.RecordBatch.from_arrays(rows.columns, schema=self._form)
            self._queue_rows(future, [formed], change, started)

        with self._queueing:
            if self._single is None:
                self._single = RowGatherer(plain, new_future, self._ready, queue, self._queueing, str(self._info.path))
            return self._single

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _gathered(self) -> int:
        return 0 if self._single is None else self._single.rows

    def _await_calls(self) -> FlussError | None:
        """Wait until every call is settled; return the first error that no caller has read yet."""
        failed: FlussError | None = None
        if self._single is not None:
            try:
                with self._queueing, Held():
                    self._single.drain()
            except FlussError as error:
                failed = error
        return self._accumulator.wait_settled() or failed

    def _end(self) -> None:
        with self._queueing:
            self._closed = True
        if self._single is not None:
            self._single.end()
        self._accumulator.close()
        if self._sender is not None:
            self._sender.join(self._connection.request_timeout_ms / 1000)
        self._connection.open_resources.remove(self)

    def _ready(self, *, raises_failure: bool) -> None:
        """Check that the writer is open; get a writer id and start the senders, at the first call.

        Args:
            raises_failure: Whether what an earlier call failed with is raised, if no caller has read it yet.
        """
        self._check_process()
        if self._closed:
            self._connection.check_open(self._what)
            raise InvalidRequestError(f"{self._what}: the writer is closed; open a new one")
        if raises_failure and (error := self._accumulator.take_failure()) is not None:
            raise type(error)(f"{error}; that was an earlier call: of this one nothing was sent")
        self._prepare()

    def _leave(self) -> None:
        """In a forked child: the threads are the parent's, as is what is queued. From here on this one is closed, and has no rows."""
        self._closed = self._is_left = True
        self._accumulator, self._queueing = self._new_accumulator(), threading.Lock()
        self._sender = self._single = None

    def _check_process(self) -> None:
        if self._is_left:
            raise InvalidRequestError(
                f"{self._what}: the writer was opened before this process was forked off, and its threads are the other's, which "
                "goes on with it; open a new one here"
            )

    def _queue_rows(
        self, future: WriteFuture, batches: Sequence[pa.RecordBatch], change: ChangeType, started: float
    ) -> None:
        """Queue checked rows as one call; wait for room. The lock is held."""
        runs = self._prepare().route(batches)
        rows = sum(batch.num_rows for batch in batches)
        names = {run.partition for run in runs if run.partition is not None}
        partitions = self._partitions.resolve(names, create=change is not ChangeType.DELETE) if names else {}
        # Rows to delete in a partition that neither cluster nor lake has are not there.
        present = [run for run in runs if run.partition is None or run.partition in partitions]
        pieces = [(run, part, size_bytes) for run in present for part, size_bytes in self._cut(run.rows)]
        write = WriteCall(future, rows, started, len(pieces))
        if not pieces:
            write.settle()
            return
        queued = [
            (self._queue(run, partitions), BucketRows(write, part, size_bytes, change))
            for run, part, size_bytes in pieces
        ]
        while not self._accumulator.add(write, queued):
            self._renew({queue.bucket: queue for queue, _ in queued})

    def _prepare(self) -> Router:
        if self._router is None:
            self._writer_id = self._new_writer_id()
            self._connection.open_resources.add(self, self.close, self._leave)
            self._sender = self._new_sender()
            # Writer ids ascend by one, so that writers made one after another begin at one bucket after another.
            self._router = Router(self._info.descriptor, self._writer_id)
        return self._router

    def _new_accumulator(self) -> RecordAccumulator:
        buffer_bytes = WRITER_BUFFER_SIZE.of(self._connection.options)
        timeout_s = self._connection.request_timeout_ms / 1000
        return RecordAccumulator(buffer_bytes, self._batch_bytes, timeout_s, self._kind.batches_max)

    def _new_sender(self) -> BatchSender:
        return BatchSender(self._connection, self._info, self._accumulator, self._kind, self._new_writer_id)

    def _new_writer_id(self) -> int:
        path = path_message(self._info.path)
        answer = self._connection.coordinator().init_writer(pb.InitWriterRequest(table_path=[path]))
        request_bytes = answer.request_size_max or REQUEST_SIZE_MAX.default
        self._row_limit = RowLimit.of(request_bytes, keyed=not self._info.is_log_table)
        self._batch_bytes = min(self._batch_bytes, self._row_limit.bytes_max)
        self._accumulator.limit(request_bytes, self._batch_bytes)
        return int(answer.writer_id)

    def _renew(self, queues: dict[TableBucket, BucketQueue]) -> None:
        for queue in queues.values():
            if queue.writer_id is None:
                self._accumulator.renew(queue, self._new_writer_id())

    def _size_bytes(self, rows: pa.RecordBatch) -> int:
        return int(rows.nbytes) + around_bytes(rows.schema)

    def _cut(self, rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the rows in pieces of at most the batch size, or of one larger row, each with about its bytes."""
        size = self._size_bytes(rows)
        if size <= self._batch_bytes:
            yield rows, size
            return
        if rows.num_rows == 1:
            self._check_row(rows)
            yield rows, size
            return
        count = min(rows.num_rows, -(-size // self._batch_bytes))
        edges = [rows.num_rows * index // count for index in range(count + 1)]
        for start, stop in pairwise(edges):
            yield from self._cut(rows.slice(start, stop - start))

    def _check_row(self, row: pa.RecordBatch) -> None:
        try:
            self._row_limit.check(row)
        except RecordTooLargeError as error:
            raise RecordTooLargeError(f"{self._what}: {error}; nothing was sent") from error

    def _queue(self, run: Run, partitions: dict[str, PartitionInfo]) -> BucketQueue:
        partition_id = None if run.partition is None else partitions[run.partition].partition_id
        bucket = TableBucket(self._info.table_id, partition_id, run.bucket)
        assert self._writer_id is not None
        return self._accumulator.queue(bucket, run.partition, self._writer_id)


@check_arguments
class AppendWriter(TableWriter):
    """Appends rows to one log table. See `TableWriter` for threads, order, outages and back-pressure.

    Raises:
        UnsupportedError: It is a primary-key table.
    """

    def __init__(self, connection: ClusterClient, info: TableInfo) -> None:
        if not info.is_log_table:
            raise UnsupportedError(
                f"{info.path} has a primary key: rows are not appended to it but upserted; call upsert, or open an "
                "upsert_writer"
            )
        super().__init__(connection, info, Appends(info), info.schema.arrow_schema)

    def append(self, rows: object) -> AppendResult:
        """Queue rows; return a future of where they went.

        Everything is checked before anything is sent: when this raises, no row was queued. Waits while the writer
        holds ``client.writer.buffer-memory-size`` unacknowledged bytes.

        Args:
            rows: See `fluss_lab.model.values.row_input.record_batches`; or one row as a dict. Rows given so travel with
                those given just before and after, all of which have one future. They must not be changed before it is
                done.

        Raises:
            InvalidRecordError, InvalidPartitionError: The rows do not fit; the text names column, row and value.
            RecordTooLargeError: A row is larger than the cluster takes (``server.request-size-max``).
            PartitionNotFoundError: A row's partition does not exist, and creating it is switched off.
            ServerUnavailableError: A partition or writer id was needed, and no server answered.
            FlussError: An earlier call failed with it, and nobody has read its future; nothing of this one was queued.
        """
        single: RowGatherer[AppendResult] | None = self._single
        if single is not None and type(rows) is dict and rows and (future := single.add(rows)) is not None:
            return future  # as `_take` does, a third faster
        return self._take(rows, AppendResult, ChangeType.APPEND_ONLY)
