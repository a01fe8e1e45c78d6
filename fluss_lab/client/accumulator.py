"""What a writer has not yet had acknowledged: rows waiting, batches on their way, in order per bucket.

Per bucket, rows wait in a queue. A sender *takes* what waits as one batch, with the next sequence number; up to five
batches of a bucket may be on their way. When one fails for a reason that may pass, the bucket goes over to *resending*:
nothing new is taken, and once all its batches have come back, the unacknowledged ones are sent again one by one, oldest
first, with the same sequences, so that the server recognises those that it has. No I/O happens here.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from fluss_lab.client.results import AppendResult, WriteResult
from fluss_lab.client.retry import PAUSE_FIRST_S, PAUSE_MAX_S
from fluss_lab.errors import FlussError
from fluss_lab.model import TableBucket
from fluss_lab.records.batch import Buffer

#: What the server remembers of a writer: a batch beyond could not be recognised when it comes again.
UNACKED_MAX: Final = 5
#: Waiting appends are joined into one batch up to this size: 16 appends of 1,000 rows of 65 bytes. Larger batches are
#: not faster, and a reader gets whole batches.
JOINED_BYTES: Final = 1 << 20
#: One request: messages of 1 to 16 MB travel equally fast, and one batch alone may have 8 MB.
REQUEST_BYTES: Final = 8 << 20


@dataclass(slots=True)
class Append:
    """One call of append, until all its rows are settled."""

    future: AppendResult
    rows: int
    started: float
    open_pieces: int
    offsets: dict[tuple[str | None, int], list[tuple[int, int]]] = field(default_factory=dict)
    error: FlussError | None = None

    def settle(self) -> None:
        """Give the future its result."""
        if self.error is not None:
            self.future.set_exception(self.error)
            return
        ranges = {key: tuple(_merged(found)) for key, found in self.offsets.items()}
        ordered = dict(sorted(ranges.items(), key=lambda item: (item[0][0] or "", item[0][1])))
        self.future.set_result(WriteResult(self.rows, ordered, time.monotonic() - self.started))


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that touch."""
    joined: list[tuple[int, int]] = []
    for base, end in sorted(ranges):
        if joined and joined[-1][1] == base:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((base, end))
    return joined


@dataclass(slots=True)
class Piece:
    """Rows of one append for one bucket, within the batch limit."""

    append: Append
    rows: pa.RecordBatch
    size_bytes: int


@dataclass(slots=True, eq=False)
class Batch:
    """What travels under one sequence number.

    Attributes:
        payload: Its encoded bytes, made when it is first sent.
        on_its_way: Whether an answer is awaited.
        alone: Whether it was last sent while nothing else of its bucket was on its way.
        doubtful: Whether an earlier attempt may have been appended without our knowing.
    """

    queue: BucketQueue
    sequence: int
    pieces: list[Piece]
    payload: list[Buffer] | None = None
    on_its_way: bool = True
    alone: bool = False
    doubtful: bool = False

    @property
    def rows(self) -> int:
        """Return how many rows it has."""
        return sum(piece.rows.num_rows for piece in self.pieces)

    @property
    def size_bytes(self) -> int:
        """Return about how many bytes it has."""
        return sum(piece.size_bytes for piece in self.pieces)


@dataclass(slots=True, eq=False)
class BucketQueue:
    """One bucket's rows, from the call to the acknowledgement.

    Attributes:
        writer_id: Under which its batches are numbered; None after a batch was given up: sequences must start afresh.
        leader: Server that was found to hold it; None: to be looked up.
        encoding: Whether a taken batch is not yet handed to the network: the next one must not overtake it.
        deadline: When the bucket is given up, if nothing is acknowledged until then.
    """

    bucket: TableBucket
    partition: str | None
    writer_id: int | None
    next_sequence: int = 0
    waiting: deque[Piece] = field(default_factory=deque)
    unacked: deque[Batch] = field(default_factory=deque)
    leader: int | None = None
    encoding: bool = False
    resending: bool = False
    retry_at: float = 0.0
    pause_s: float = PAUSE_FIRST_S
    deadline: float = 0.0
    given_up: FlussError | None = None

    @property
    def on_its_way(self) -> int:
        """Return how many batches await an answer."""
        return sum(batch.on_its_way for batch in self.unacked)

    def ready_at(self) -> float | None:
        """Return from when a batch may be taken; None when there is none to take."""
        if self.encoding or self.given_up is not None:
            return None
        if self.resending:
            return None if self.on_its_way else self.retry_at
        return 0.0 if self.waiting and len(self.unacked) < UNACKED_MAX else None

    def next_bytes(self, joined_bytes: int) -> int:
        """Return at most how many bytes the next batch has."""
        return self.unacked[0].size_bytes if self.resending else max(self.waiting[0].size_bytes, joined_bytes)

    def take(self, joined_bytes: int, timeout_s: float) -> Batch:
        """Return the next batch to send: the oldest to be sent again, or a new one of what waits."""
        if self.resending:
            batch = self.unacked[0]
            batch.on_its_way = batch.alone = True
            return batch
        pieces = [self.waiting.popleft()]
        total = pieces[0].size_bytes
        while self.waiting and total + self.waiting[0].size_bytes <= joined_bytes:
            total += self.waiting[0].size_bytes
            pieces.append(self.waiting.popleft())
        if not self.unacked:
            self.deadline = time.monotonic() + timeout_s
        batch = Batch(self, self.next_sequence, pieces)
        self.next_sequence = _following(self.next_sequence)
        self.unacked.append(batch)
        return batch

    def renumber(self, writer_id: int) -> None:
        """Number all unacknowledged batches afresh under another writer id."""
        self.writer_id, self.next_sequence = writer_id, 0
        for batch in self.unacked:
            batch.sequence, batch.payload = self.next_sequence, None
            self.next_sequence = _following(self.next_sequence)


def _following(sequence: int) -> int:
    return (sequence + 1) % 2**31


class Accumulator:
    """The queues of one writer; safe in any thread.

    Args:
        buffer_bytes: Unacknowledged bytes beyond which `add` waits.
        batch_bytes: Largest batch.
        timeout_s: How long a bucket may go without acknowledgement before its rows are given up.
    """

    def __init__(self, buffer_bytes: int, batch_bytes: int, timeout_s: float) -> None:
        self._buffer_bytes = buffer_bytes
        self._joined_bytes = min(JOINED_BYTES, batch_bytes)
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._queues: dict[TableBucket, BucketQueue] = {}
        #: Those that hold rows, in the order of their turns.
        self._active: dict[TableBucket, BucketQueue] = {}
        self._bytes = 0
        self._open = 0
        self._closed = False
        self._failed: list[AppendResult] = []

    # -- the writer's side -------------------------------------------------------------------------------------------

    def queue(self, bucket: TableBucket, partition: str | None, writer_id: int) -> BucketQueue:
        """Return the queue of a bucket, made at first with a writer id."""
        with self._changed:
            if (queue := self._queues.get(bucket)) is None:
                queue = self._queues[bucket] = BucketQueue(bucket, partition, writer_id)
            return queue

    def add(self, append: Append, pieces: list[tuple[BucketQueue, Piece]]) -> bool:
        """Queue the rows of one append, once there is room; an append over all room waits until nothing else is there.

        Returns:
            False, and nothing is queued, when a bucket needs a new writer id first.
        """
        size = sum(piece.size_bytes for _, piece in pieces)
        with self._changed:
            self._changed.wait_for(lambda: not self._bytes or self._bytes + size <= self._buffer_bytes)
            if any(queue.writer_id is None for queue, _ in pieces):
                return False
            self._bytes += size
            self._open += 1
            for queue, piece in pieces:
                queue.waiting.append(piece)
                self._active.setdefault(queue.bucket, queue)
            self._changed.notify_all()
            return True

    def renew(self, queue: BucketQueue, writer_id: int) -> None:
        """Give a bucket whose rows were given up a new writer id."""
        with self._changed:
            if queue.writer_id is None and not queue.unacked:
                queue.renumber(writer_id)

    def wait_settled(self) -> FlussError | None:
        """Wait until every append is settled; return the first error that nobody has looked at yet."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open)
            failed, self._failed = self._failed, []
        for future in failed:
            if not future.looked_at:
                return future.error
        return None

    def close(self) -> None:
        """Let the senders end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # -- the senders' side -------------------------------------------------------------------------------------------

    def take(self) -> list[Batch] | None:
        """Wait for and return batches to send, at most one a bucket, all for one server; None after `close`."""
        with self._changed:
            while True:
                if self._closed:
                    return None
                now = time.monotonic()
                due = [(at, queue) for queue in self._active.values() if (at := queue.ready_at()) is not None]
                if ready := [queue for at, queue in due if at <= now]:
                    return self._taken(ready)
                self._changed.wait(min(at for at, _ in due) - now if due else None)

    def _taken(self, ready: list[BucketQueue]) -> list[Batch]:
        taken: list[Batch] = []
        total = 0
        for queue in ready:
            too_much = taken and total + queue.next_bytes(self._joined_bytes) > REQUEST_BYTES
            if queue.leader != ready[0].leader or too_much:
                continue
            batch = queue.take(self._joined_bytes, self._timeout_s)
            queue.encoding = True
            taken.append(batch)
            # Whoever was served goes to the end, so that every bucket has its turn.
            self._active[queue.bucket] = self._active.pop(queue.bucket)
            total += batch.size_bytes
        return taken

    def leaving(self, batches: Iterable[Batch]) -> None:
        """Say that batches are handed to the network now."""
        with self._changed:
            for batch in batches:
                batch.queue.encoding = False
            self._changed.notify_all()

    def acknowledged(self, batch: Batch, base_offset: int) -> None:
        """Settle a batch: its rows have the offsets from a base on."""
        queue = batch.queue
        with self._changed:
            queue.unacked.remove(batch)
            queue.deadline = time.monotonic() + self._timeout_s
            queue.pause_s = PAUSE_FIRST_S
            queue.retry_at = 0.0
            if not queue.unacked:
                queue.resending = False
            at = base_offset
            for piece in batch.pieces:
                end = at + piece.rows.num_rows
                piece.append.offsets.setdefault((queue.partition, queue.bucket.bucket), []).append((at, end))
                at = end
            settled = self._release(batch.pieces)
            self._end_if_given_up(queue, settled)
            if not queue.unacked and not queue.waiting:
                self._active.pop(queue.bucket, None)
            self._changed.notify_all()
        self._settle(settled)

    def came_back(
        self, batch: Batch, error: FlussError, *, doubtful: bool, lasting: bool, at_once: bool = False
    ) -> None:
        """Take a batch back that was not acknowledged.

        Args:
            batch: The batch.
            error: Why.
            doubtful: Whether it may have been appended all the same.
            lasting: Whether sending again is pointless.
            at_once: Whether it may be sent again without a pause (it never was: the leader had to be looked up).
        """
        queue = batch.queue
        settled: list[Append] = []
        with self._changed:
            batch.on_its_way = False
            batch.doubtful = batch.doubtful or doubtful
            queue.encoding = False
            queue.resending = True
            now = time.monotonic()
            if not at_once:
                queue.retry_at = now + queue.pause_s
                queue.pause_s = min(2 * queue.pause_s, PAUSE_MAX_S)
            if lasting or now >= queue.deadline:
                queue.given_up = queue.given_up or error
            self._end_if_given_up(queue, settled)
            self._changed.notify_all()
        self._settle(settled)

    def renumber(self, queue: BucketQueue, writer_id: int) -> None:
        """Send all of a bucket's unacknowledged batches under another writer id."""
        with self._changed:
            if not queue.on_its_way and queue.unacked:
                queue.renumber(writer_id)

    # -- inside, with the lock held ----------------------------------------------------------------------------------

    def _end_if_given_up(self, queue: BucketQueue, settled: list[Append]) -> None:
        """Once nothing of a given-up bucket is on its way, fail its batches and all that waits behind them."""
        if queue.given_up is None or queue.on_its_way:
            return
        pieces = [piece for batch in queue.unacked for piece in batch.pieces]
        pieces += queue.waiting
        for piece in pieces:
            piece.append.error = piece.append.error or queue.given_up
        queue.unacked.clear()
        queue.waiting.clear()
        queue.writer_id = queue.given_up = queue.leader = None
        queue.resending = False
        queue.retry_at, queue.pause_s = 0.0, PAUSE_FIRST_S
        self._active.pop(queue.bucket, None)
        settled += self._release(pieces)

    def _release(self, pieces: list[Piece]) -> list[Append]:
        """Give back the room of pieces; return the appends that are settled by that."""
        settled = []
        for piece in pieces:
            self._bytes -= piece.size_bytes
            piece.append.open_pieces -= 1
            if not piece.append.open_pieces:
                settled.append(piece.append)
                if piece.append.error is not None:
                    self._failed.append(piece.append.future)
        return settled

    def _settle(self, settled: list[Append]) -> None:
        """Give futures their results, without the lock: callbacks of the user's run here."""
        for append in settled:
            append.settle()
        if settled:
            with self._changed:
                self._open -= len(settled)
                self._changed.notify_all()
