"""The threads that send a writer's batches and hear the answers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fluss_lab.client.accumulator import Accumulator, Batch, BucketQueue
from fluss_lab.client.retry import Attempts
from fluss_lab.errors import (
    AuthenticationError,
    FlussError,
    InternalError,
    NotFoundError,
    NotLeaderError,
    OutOfOrderSequenceError,
    RequestTimeoutError,
    ServerUnavailableError,
    UnavailableError,
    error_from_code,
)
from fluss_lab.model import TableInfo
from fluss_lab.records import encode
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc.codec import Frame

if TYPE_CHECKING:
    from fluss_lab.client.connection import Connection

log = logging.getLogger(__name__)

#: One request is on its way while the next is encoded, or a second server is busy; more threads only contend.
SENDERS: Final = 2
#: Answer when the leader has the batch in its log (the cluster's own `log.durability` says what that means).
ACKS: Final = 1


class Sender:
    """Sends what an accumulator holds, until that is closed.

    Args:
        connection: To the cluster.
        info: The table.
        accumulator: What is to be sent.
        new_writer_id: Gets a fresh writer id from the coordinator.
    """

    def __init__(
        self, connection: Connection, info: TableInfo, accumulator: Accumulator, new_writer_id: Callable[[], int]
    ) -> None:
        self._connection = connection
        self._info = info
        self._accumulator = accumulator
        self._new_writer_id = new_writer_id
        name = f"append-{info.path}"
        self._threads = [threading.Thread(target=self._run, name=name, daemon=True) for _ in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until the threads have ended; the accumulator must be closed."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        while (batches := self._accumulator.take()) is not None:
            try:
                self._send(batches)
            except Exception as error:  # a defect must not leave futures open for ever
                log.exception("append to %s failed", self._info.path)
                known = error if isinstance(error, FlussError) else InternalError(f"{type(error).__name__}: {error}")
                for batch in batches:
                    if batch.on_its_way:
                        self._accumulator.came_back(batch, known, doubtful=True, lasting=True)

    def _send(self, batches: list[Batch]) -> None:
        batches = self._of_one_leader(batches)
        if not batches:
            return
        for batch in batches:
            if batch.payload is None:
                batch.payload = self._encoded(batch)
        left_ms = max(1, int(1000 * (min(batch.queue.deadline for batch in batches) - time.monotonic())))
        request = pb.ProduceLogRequest(acks=ACKS, table_id=self._info.table_id, timeout_ms=left_ms)
        for batch in batches:
            bucket = batch.queue.bucket
            entry = request.buckets_req.add(bucket_id=bucket.bucket, records=b"")
            if bucket.partition_id is not None:
                entry.partition_id = bucket.partition_id
        frame = Frame(request, [batch.payload or [] for batch in batches])
        leader = batches[0].queue.leader
        try:
            gateway = self._connection.gateway(leader if leader is not None else -1)
            self._accumulator.leaving(batches)
            response = gateway.produce_log(frame)
        except FlussError as error:
            for batch in batches:
                self._came_back(batch, error)
            return
        self._heard(batches, response)

    def _encoded(self, batch: Batch) -> list[bytes | bytearray | memoryview | pa.Buffer]:
        rows = [piece.rows for piece in batch.pieces]
        joined = rows[0] if len(rows) == 1 else pa.concat_batches(rows)
        writer_id = batch.queue.writer_id
        assert writer_id is not None
        return encode(joined, schema_id=self._info.schema_id, writer_id=writer_id, batch_sequence=batch.sequence)

    def _of_one_leader(self, batches: list[Batch]) -> list[Batch]:
        """Look up leaders that are not known; return the batches of one server, the others come back for later."""
        unknown = [batch.queue.bucket for batch in batches if batch.queue.leader is None]
        if unknown:
            try:
                leaders = self._connection.leaders(unknown, self._attempts([batch.queue.deadline for batch in batches]))
            except FlussError as error:
                self._connection.forget_partitions(self._info)
                lasting = self._connection.closed.is_set() or not isinstance(error, UnavailableError)
                for batch in batches:
                    self._accumulator.came_back(batch, self._described(batch, error), doubtful=False, lasting=lasting)
                return []
            for batch in batches:
                batch.queue.leader = leaders.get(batch.queue.bucket, batch.queue.leader)
        first = batches[0].queue.leader
        for batch in batches:
            if batch.queue.leader != first:
                elsewhere = NotLeaderError(f"bucket {batch.queue.bucket} is held by another server")
                self._accumulator.came_back(batch, elsewhere, doubtful=False, lasting=False, at_once=True)
        return [batch for batch in batches if batch.queue.leader == first]

    def _heard(self, batches: list[Batch], response: pb.ProduceLogResponse) -> None:
        answers = {
            (entry.partition_id if entry.HasField("partition_id") else None, entry.bucket_id): entry
            for entry in response.buckets_resp
        }
        for batch in batches:
            bucket = batch.queue.bucket
            entry = answers.get((bucket.partition_id, bucket.bucket))
            if entry is None:
                self._came_back(batch, InternalError(f"the server's answer leaves out bucket {bucket}"))
            elif entry.error_code:
                self._came_back(batch, error_from_code(entry.error_code, entry.error_message))
            elif entry.HasField("end_offset") and entry.end_offset - entry.base_offset != batch.rows:
                found = f"offsets [{entry.base_offset}, {entry.end_offset}) for {batch.rows} rows"
                self._came_back(batch, InternalError(f"bucket {bucket}: the server answered {found}"))
            else:
                self._accumulator.acknowledged(batch, entry.base_offset)

    def _came_back(self, batch: Batch, error: FlussError) -> None:
        queue = batch.queue
        lasting = self._connection.closed.is_set() or not isinstance(error, UnavailableError)
        doubtful = isinstance(error, ServerUnavailableError | RequestTimeoutError | InternalError)
        reason = error
        if isinstance(error, NotLeaderError | ServerUnavailableError | NotFoundError | AuthenticationError):
            self._connection.forget_leaders()
            queue.leader = None
        if isinstance(error, NotFoundError | AuthenticationError):
            # Believed when the coordinator agrees: a server that has just started may not have opened the bucket yet,
            # or it is another one, with another token, on the port of the last.
            confirmed = self._confirmed(queue)
            lasting, reason = confirmed is not None, confirmed or error
        if isinstance(error, OutOfOrderSequenceError) and batch.alone and not batch.doubtful:
            # All before it is acknowledged and it was never appended: the server does not know this writer any more.
            self._renumber(batch)
        described = self._described(batch, reason)
        self._accumulator.came_back(batch, described, doubtful=doubtful, lasting=lasting)

    def _confirmed(self, queue: BucketQueue) -> FlussError | None:
        """Return what the coordinator says against a bucket; None when it knows the bucket or does not answer."""
        try:
            self._connection.leaders([queue.bucket], self._attempts([queue.deadline]))
        except UnavailableError:
            return None
        except FlussError as confirmed:
            self._connection.forget_partitions(self._info)
            return confirmed
        return None

    def _attempts(self, deadlines: list[float]) -> Attempts:
        left_ms = max(1, int(1000 * (min(deadlines) - time.monotonic())))
        return Attempts(f"append to {self._info.path}", left_ms, self._connection.closed)

    def _renumber(self, batch: Batch) -> None:
        try:
            writer_id = self._new_writer_id()
        except FlussError as error:
            log.warning("append to %s: no new writer id: %s", self._info.path, error)
            return
        batch.on_its_way = False
        self._accumulator.renumber(batch.queue, writer_id)

    def _described(self, batch: Batch, error: FlussError) -> FlussError:
        """Return the error with what was appended to, and whether it is known what became of the rows."""
        queue = batch.queue
        partition = f" of partition {queue.partition!r}" if queue.partition is not None else ""
        unknown = isinstance(error, ServerUnavailableError | RequestTimeoutError) or batch.doubtful
        tried = ""
        if isinstance(error, UnavailableError) and time.monotonic() >= queue.deadline:
            tried = (
                f"nothing acknowledged for {self._connection.request_timeout_ms / 1000:g} s (client.request-timeout): "
            )
        fate = "; whether its rows were appended is not known" if unknown else ""
        return type(error)(
            f"append to {self._info.path}, bucket {queue.bucket.bucket}{partition}: {tried}{error}{fate}"
        )
