"""The rows of a writer that are not acknowledged yet: rows waiting, batches in flight, in order per bucket.

Per bucket, rows wait in a queue. A sender *takes* what waits as one batch, with the next sequence number; up to five
batches of a bucket may be on their way. When one fails for a reason that may pass, the bucket goes over to *resending*:
nothing new is taken, and once all its batches have come back, the unacknowledged ones are sent again one by one, oldest
first, with the same sequences, so that the server recognises those that it has. No I/O happens here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from typing import Final

from fluss_lab.client.cluster.leader_requests import PAUSE_FIRST_S, PAUSE_MAX_S
from fluss_lab.client.write.bucket_queue import BucketQueue, BucketRows, WriteBatch, WriteCall
from fluss_lab.client.write.unsettled_write import AcknowledgedTally, WriteProgress
from fluss_lab.errors import FlussError, InvalidRequestError, WriteInterruptedError
from fluss_lab.interrupts import Monitor
from fluss_lab.model import TableBucket
from fluss_lab.model.names import BucketKey

#: Waiting appends are joined into one batch up to this size: 16 appends of 1,000 rows of 65 bytes. Larger batches are
#: not faster, and a reader gets whole batches.
JOINED_BYTES: Final = 1 << 20
#: One request: messages of 1 to 16 MB travel equally fast, and one batch alone may have 8 MB.
REQUEST_BYTES: Final = 8 << 20
#: Batches of one bucket travel together up to this size: a call costs both sides what half a megabyte costs them.
GROUPED_BYTES: Final = 2 << 20
#: One request is on its way while the next is encoded; a server that hangs holds no more threads than these.
REQUESTS_PER_SERVER: Final = 2
#: While a request is on its way, less than this waits for the next one: a request costs both sides what half a megabyte costs
#: them, and rows that come in small calls would go out by two requests at once, each of a few.
PIPELINED_BYTES: Final = JOINED_BYTES


class RecordAccumulator:
    """The queues of one writer; safe in any thread.

    Args:
        buffer_bytes: Unacknowledged bytes beyond which `add` waits.
        batch_bytes: Largest batch.
        timeout_s: How long a bucket may go without acknowledgement before its rows are given up.
        batches_max: Batches of a bucket in one request, at most.
    """

    def __init__(self, buffer_bytes: int, batch_bytes: int, timeout_s: float, batches_max: int = 1) -> None:
        self._buffer_bytes = buffer_bytes
        self._joined_bytes = min(JOINED_BYTES, batch_bytes)
        self._request_bytes = REQUEST_BYTES
        self._timeout_s = timeout_s
        self._batches_max = batches_max
        self._changed = Monitor()
        self._queues: dict[TableBucket, BucketQueue] = {}
        #: Those that hold rows, in the order of their turns.
        self._active: dict[TableBucket, BucketQueue] = {}
        self._bytes = 0
        self._open = 0
        self._closed = False
        self._given = 0
        #: Rows that were given up, and can no longer be sent again.
        self._given_up = 0
        self._tallies: dict[BucketKey, AcknowledgedTally] = {}
        #: What was given up since the last call: it can be sent again.
        self._parked: list[BucketQueue] = []
        #: Calls that failed, until the error was raised or read.
        self._failed: list[WriteCall] = []
        #: The server that each sender's thread is busy with; None: one that is still to be looked up.
        self._sending: dict[int, int | None] = {}

    def limit(self, request_bytes: int, batch_bytes: int) -> None:
        """Take over what the cluster says: the largest request, and with it the largest batch."""
        with self._changed:
            self._joined_bytes = min(JOINED_BYTES, batch_bytes)
            # With room for what is around the batches; one that is larger travels alone.
            self._request_bytes = min(REQUEST_BYTES, request_bytes // 2)

    def halve_requests(self) -> None:
        """Join batches of several buckets up to half as many bytes: a server refused a request, its limit is another one now."""
        with self._changed:
            self._request_bytes //= 2

    # -- the writer's side -------------------------------------------------------------------------------------------

    def queue(self, bucket: TableBucket, partition: str | None, writer_id: int) -> BucketQueue:
        """Return the queue of a bucket, made at first with a writer id."""
        with self._changed:
            if (queue := self._queues.get(bucket)) is None:
                queue = self._queues[bucket] = BucketQueue(bucket, partition, writer_id)
            return queue

    def add(self, write: WriteCall, pieces: list[tuple[BucketQueue, BucketRows]]) -> bool:
        """Queue the rows of one call, once there is room; one over all room waits until nothing else is there.

        Returns:
            False, and nothing is queued, when a bucket needs a new writer id first.

        Raises:
            InvalidRequestError: The queues were closed meanwhile; nothing is queued.
            FlussError: An earlier call failed, and no caller has read its error yet; nothing is queued. Rows that go on behind lost
                ones could not be sent in their order again.
        """
        size = sum(piece.size_bytes for _, piece in pieces)
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._bytes or self._bytes + size <= self._buffer_bytes)
            if self._closed:
                raise InvalidRequestError("the writer was closed while rows waited for room; none of them was queued")
            if (error := self._unread_failure()) is not None:
                raise error
            if any(queue.writer_id is None for queue, _ in pieces):
                return False
            self._failed.clear()
            self._given_up += sum(piece.rows.num_rows for queue in self._parked for piece in queue.pieces())
            self._parked.clear()
            self._given += sum(piece.rows.num_rows for _, piece in pieces)
            self._bytes += size
            self._open += 1
            for queue, piece in pieces:
                queue.waiting.append(piece)
                self._active.setdefault(queue.bucket, queue)
            now = time.monotonic()
            leaders = {queue.leader for queue, _ in pieces}
            if any(self._takes_one_more(leader, self._due(now)) for leader in leaders):
                self._changed.notify_all()  # else a thread would wake, see that, and wait again
            return True

    def renew(self, queue: BucketQueue, writer_id: int) -> None:
        """Give a bucket whose rows were given up a new writer id."""
        with self._changed:
            if queue.writer_id is None and not queue.unacked:
                queue.renumber(writer_id)

    def wait_settled(self) -> FlussError | None:
        """Wait until every call is settled, or `close`; return the first error that no caller has read yet."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._open)
            return self._take_failure()

    def take_failure(self) -> FlussError | None:
        """Return the error of the first call that failed and whose future nobody has read, and count all that failed as read."""
        if not self._failed:  # as at nearly every call
            return None
        with self._changed:
            return self._take_failure()

    def _take_failure(self) -> FlussError | None:
        error = self._unread_failure()
        self._failed.clear()
        return error

    def _unread_failure(self) -> FlussError | None:
        return next((write.error for write in self._failed if not write.future.looked_at), None)

    def close(self) -> None:
        """Let the senders end. What is not acknowledged stays, for `reopen` or `abandon`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def reopen(self) -> bool:
        """After `close`: let new senders go on, also with what was given up. False: there is nothing to go on with."""
        with self._changed:
            for queue in self._parked:
                self._queues[queue.bucket] = self._active[queue.bucket] = queue
                self._open += queue.reopen()
                self._bytes += sum(piece.size_bytes for piece in queue.pieces())
            self._parked.clear()
            now = time.monotonic()
            for queue in self._active.values():
                queue.deadline, queue.retry_at, queue.pause_s = now + self._timeout_s, 0.0, PAUSE_FIRST_S
            self._closed = False
            self._changed.notify_all()
            return bool(self._active)

    def abandon(self, error: WriteInterruptedError) -> None:
        """After `close`: drop what is not acknowledged; calls that wait for it fail."""
        settled: list[WriteCall] = []
        with self._changed:
            for queue in self._active.values():
                pieces = queue.pieces()
                for piece in pieces:
                    piece.write.error = piece.write.error or error
                settled += self._release(pieces)
                queue.unacked.clear()
                queue.waiting.clear()
            self._active.clear()
            self._queues.clear()
            self._parked.clear()
            self._changed.notify_all()
        self._settle_futures(settled)

    def progress(self) -> WriteProgress:
        """Return what became of all rows so far."""
        with self._changed:
            queues = [*self._active.values(), *self._parked]
            refusals = tuple(str(queue.given_up) for queue in self._parked)
            return WriteProgress.of(self._given, self._tallies, queues, refusals, self._given_up)

    # -- the senders' side -------------------------------------------------------------------------------------------

    def take(self) -> list[WriteBatch] | None:
        """Wait for and return batches to send, those of a bucket one after another, all for one server; None after `close`.

        A thread that calls has finished its last request.
        """
        me = threading.get_ident()
        with self._changed:
            if me in self._sending:
                del self._sending[me]
                self._changed.notify_all()
            while True:
                if self._closed:
                    return None
                now = time.monotonic()
                if ready := self._sendable(now):
                    self._sending[me] = ready[0].leader
                    return self._drain(ready)
                due = [at for queue in self._active.values() if (at := queue.ready_at()) is not None]
                later = [at - now for at in due if at > now]
                self._changed.wait(min(later) if later else None)

    def set_server(self, leader: int | None) -> None:
        """Say which server this thread's batches turned out to be for."""
        with self._changed:
            self._sending[threading.get_ident()] = leader
            self._changed.notify_all()

    def _sendable(self, now: float) -> list[BucketQueue]:
        """Return the queues that have a batch to send to a server which takes one more request at present."""
        due = list(self._due(now))
        leaders = {queue.leader for queue in due}
        taking = {leader for leader in leaders if self._takes_one_more(leader, due)}
        return [queue for queue in due if queue.leader in taking]

    def _due(self, now: float) -> Iterator[BucketQueue]:
        """Yield the queues that have a batch to send by now."""
        return (queue for queue in self._active.values() if (at := queue.ready_at()) is not None and at <= now)

    def _takes_one_more(self, leader: int | None, due: Iterable[BucketQueue]) -> bool:
        """Return whether a server takes a request more; queues are gone through only where that depends on what they have."""
        on_the_way = sum(each == leader for each in self._sending.values())
        if not on_the_way or on_the_way >= REQUESTS_PER_SERVER:
            return not on_the_way
        wanting = PIPELINED_BYTES
        for queue in due:
            if queue.leader == leader:
                wanting -= queue.sendable_bytes(wanting)
                if wanting <= 0:
                    return True
        return False

    def _drain(self, ready: list[BucketQueue]) -> list[WriteBatch]:
        drained: list[WriteBatch] = []
        total = 0
        for queue in ready:
            too_much = drained and total + queue.next_bytes(self._joined_bytes) > self._request_bytes
            if queue.leader != ready[0].leader or too_much:
                continue
            taken = [queue.take(self._joined_bytes, self._timeout_s)]
            size = taken[0].size_bytes
            room = min(GROUPED_BYTES, self._request_bytes - total)
            while len(taken) < self._batches_max and queue.follows(self._joined_bytes, room - size):
                taken.append(queue.take(self._joined_bytes, self._timeout_s))
                size += taken[-1].size_bytes
            queue.encoding = True
            drained += taken
            # A bucket that was served goes to the end, so that every bucket has its turn.
            self._active[queue.bucket] = self._active.pop(queue.bucket)
            total += size
        return drained

    def mark_sent(self, batches: Iterable[WriteBatch]) -> None:
        """Say that batches are handed to the network now."""
        with self._changed:
            for batch in batches:
                batch.queue.encoding = False
            self._changed.notify_all()

    def acknowledge(self, batch: WriteBatch, ranges: Iterable[tuple[int, int]]) -> None:
        """Settle a batch, with the offset range ``[base, end)`` of each of its pieces."""
        queue = batch.queue
        with self._changed:
            if batch not in queue.unacked:  # abandoned
                return
            queue.unacked.remove(batch)
            queue.grow_rows_max(batch)
            ranges = list(ranges)
            tally = self._tallies.setdefault(queue.key, AcknowledgedTally())
            tally.add(batch.rows, ranges[0][0], ranges[-1][1])
            queue.deadline = time.monotonic() + self._timeout_s
            queue.pause_s = PAUSE_FIRST_S
            queue.retry_at = 0.0
            if not queue.unacked:
                queue.resending = False
            for piece, offsets in zip(batch.pieces, ranges, strict=True):
                piece.write.offsets.setdefault((queue.partition, queue.bucket.bucket), []).append(offsets)
            settled = self._release(batch.pieces)
            self._end_if_given_up(queue, settled)
            if not queue.unacked and not queue.waiting:
                self._active.pop(queue.bucket, None)
            self._changed.notify_all()
        self._settle_futures(settled)

    def reenqueue(
        self,
        batch: WriteBatch,
        error: FlussError,
        *,
        doubtful: bool,
        lasting: bool,
        at_once: bool = False,
        too_large: bool = False,
    ) -> None:
        """Take a batch back that was not acknowledged.

        Args:
            error: Why.
            doubtful: Whether it may have been written all the same.
            lasting: Whether sending again is pointless.
            at_once: Whether it may be sent again without a pause (it never was: the leader had to be looked up).
            too_large: Whether it is to be sent again in smaller batches.
        """
        queue = batch.queue
        settled: list[WriteCall] = []
        with self._changed:
            if batch not in queue.unacked:  # abandoned
                return
            batch.in_flight = False
            batch.doubtful = batch.doubtful or doubtful
            if too_large:
                queue.halve_rows_max(batch)
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
        self._settle_futures(settled)

    def renumber(self, queue: BucketQueue, writer_id: int) -> None:
        """Send all of a bucket's unacknowledged batches under another writer id."""
        with self._changed:
            if not queue.in_flight and queue.unacked:
                queue.renumber(writer_id)

    # -- inside, with the lock held ----------------------------------------------------------------------------------

    def _end_if_given_up(self, queue: BucketQueue, settled: list[WriteCall]) -> None:
        """Once nothing of a given-up bucket is on its way, fail its batches and all that waits behind them."""
        if queue.given_up is None or queue.in_flight:
            return
        pieces = queue.pieces()
        if [piece for piece in pieces if piece.fail(queue.given_up)]:
            self._parked.append(queue.park())
        else:  # the rows to delete went with their partition
            tally = self._tallies.setdefault(queue.key, AcknowledgedTally())
            tally.rows += sum(piece.rows.num_rows for piece in pieces)
        queue.unacked.clear()
        queue.waiting.clear()
        queue.writer_id = queue.given_up = queue.leader = None
        queue.resending, queue.rows_max = False, None
        queue.retry_at, queue.pause_s = 0.0, PAUSE_FIRST_S
        self._active.pop(queue.bucket, None)
        settled += self._release(pieces)

    def _release(self, pieces: list[BucketRows]) -> list[WriteCall]:
        """Give back the room of pieces; return the calls that are settled by that."""
        settled = []
        for piece in pieces:
            self._bytes -= piece.size_bytes
            piece.write.open_pieces -= 1
            if not piece.write.open_pieces:
                settled.append(piece.write)
                if piece.write.error is not None:
                    self._failed.append(piece.write)
        return settled

    def _settle_futures(self, settled: list[WriteCall]) -> None:
        """Give futures their results, without the lock: callbacks of the user's run here."""
        for write in settled:
            write.settle()
        if settled:
            with self._changed:
                self._open -= len(settled)
                self._changed.notify_all()
