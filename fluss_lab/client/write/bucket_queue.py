"""The rows of a writer on their way: calls, pieces of them, batches, and the queue of each bucket. No I/O, no locks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from fluss_lab.client.cluster.leader_requests import PAUSE_FIRST_S
from fluss_lab.client.write.write_result import WriteFuture, WriteResult
from fluss_lab.errors import FlussError, PartitionNotFoundError
from fluss_lab.model import TableBucket
from fluss_lab.model.changes import ChangeType
from fluss_lab.model.names import BucketKey
from fluss_lab.records.batch import Buffer

#: What the server remembers of a writer: a batch beyond could not be recognised when it comes again.
UNACKED_MAX: Final = 5
#: So many calls' rows are worth a request, however small; counting the bytes of more would take as long.
_PIECES_ENOUGH: Final = 64
#: After the largest sequence comes 0 again.
SEQUENCES: Final = 2**31


@dataclass(slots=True)
class WriteCall:
    """One call of a writer, until all its rows are settled."""

    future: WriteFuture
    rows: int
    started: float
    open_pieces: int
    offsets: dict[BucketKey, list[tuple[int, int]]] = field(default_factory=dict)
    error: FlussError | None = None

    def settle(self) -> None:
        """Give the future its result."""
        if self.error is not None:
            self.future.set_exception(self.error)
            return
        ranges = {key: tuple(_merge_ranges(found)) for key, found in self.offsets.items()}
        ordered = dict(sorted(ranges.items(), key=lambda item: (item[0][0] or "", item[0][1])))
        self.future.set_result(WriteResult(self.rows, ordered, time.monotonic() - self.started))


def _merge_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that touch, or that are the same."""
    joined: list[tuple[int, int]] = []
    for base, end in sorted(ranges):
        if joined and base <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((base, end))
    return joined


@dataclass(slots=True)
class BucketRows:
    """Rows of one call for one bucket, within the batch limit.

    Attributes:
        change: What is done with each of the rows.
    """

    write: WriteCall
    rows: pa.RecordBatch
    size_bytes: int
    change: ChangeType = ChangeType.APPEND_ONLY

    def cut(self, rows: int) -> tuple[BucketRows, BucketRows]:
        """Return the first rows and the rest as two pieces, which replace this one."""
        self.write.open_pieces += 1
        first_bytes = self.size_bytes * rows // self.rows.num_rows
        first = BucketRows(self.write, self.rows.slice(0, rows), first_bytes, self.change)
        return first, BucketRows(self.write, self.rows.slice(rows), self.size_bytes - first_bytes, self.change)

    def fail(self, error: FlussError) -> bool:
        """Let the call fail. To delete from a partition that is not there is no failure: the rows are gone."""
        failed = not (self.change is ChangeType.DELETE and isinstance(error, PartitionNotFoundError))
        if failed:
            self.write.error = self.write.error or error
        return failed


@dataclass(slots=True, eq=False)
class WriteBatch:
    """What travels under one sequence number.

    Attributes:
        payload: Its encoded bytes, made when it is first sent.
        on_its_way: Whether an answer is awaited.
        alone: Whether it was last sent while nothing else of its bucket was on its way.
        doubtful: Whether an earlier attempt may have been written without our knowing.
    """

    queue: BucketQueue
    sequence: int
    pieces: list[BucketRows]
    payload: list[Buffer] | None = None
    in_flight: bool = True
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
        rows_max: Rows of a batch at most: halved when the server finds a batch too large, for what a changelog comes to
            depends on the rows that are there; grown again by batches that it takes. None: as many as the bytes allow.
    """

    bucket: TableBucket
    partition: str | None
    writer_id: int | None
    next_sequence: int = 0
    waiting: deque[BucketRows] = field(default_factory=deque)
    unacked: deque[WriteBatch] = field(default_factory=deque)
    leader: int | None = None
    encoding: bool = False
    resending: bool = False
    retry_at: float = 0.0
    pause_s: float = PAUSE_FIRST_S
    deadline: float = 0.0
    given_up: FlussError | None = None
    rows_max: int | None = None

    @property
    def in_flight(self) -> int:
        """Return how many batches await an answer."""
        return sum(batch.in_flight for batch in self.unacked)

    @property
    def key(self) -> BucketKey:
        """Return the partition's name and the bucket."""
        return self.partition, self.bucket.bucket

    @property
    def rows_in_doubt(self) -> int:
        """Return the rows that may be written without our knowing."""
        return sum(batch.rows for batch in self.unacked if batch.in_flight or batch.doubtful)

    def pieces(self) -> list[BucketRows]:
        """Return all that is not acknowledged, in order."""
        return [piece for batch in self.unacked for piece in batch.pieces] + list(self.waiting)

    def park(self) -> BucketQueue:
        """Return a new queue with the rows that this one gives up, under their sequence numbers."""
        parked = BucketQueue(
            self.bucket, self.partition, self.writer_id, self.next_sequence, deque(self.waiting), deque(self.unacked),
            resending=bool(self.unacked), given_up=self.given_up, rows_max=self.rows_max,
        )  # fmt: skip
        for batch in parked.unacked:
            batch.queue = parked
        return parked

    def reopen(self) -> int:
        """Reopen a parked queue as one call, whose future nobody waits for. Return the number of calls."""
        self.given_up = None
        pieces = self.pieces()
        write = WriteCall(WriteFuture(), sum(piece.rows.num_rows for piece in pieces), time.monotonic(), len(pieces))
        for piece in pieces:
            piece.write = write
        return 1

    def ready_at(self) -> float | None:
        """Return from when a batch may be taken; None when there is none to take."""
        if self.encoding or self.given_up is not None:
            return None
        if self.resending:
            return None if self.in_flight else self.retry_at
        return 0.0 if self.waiting and len(self.unacked) < UNACKED_MAX else None

    def sendable_bytes(self, enough: int) -> int:
        """Return how many bytes there are to send; `enough` where there are at least as many, or a batch is sent again."""
        if self.resending or len(self.waiting) >= _PIECES_ENOUGH:
            return enough
        total = sum(piece.size_bytes for piece in self.waiting)
        return min(total, enough)

    def next_bytes(self, joined_bytes: int) -> int:
        """Return at most how many bytes the next batch has."""
        return self.unacked[0].size_bytes if self.resending else max(self.waiting[0].size_bytes, joined_bytes)

    def follows(self, joined_bytes: int, room_bytes: int) -> bool:
        """Return whether another batch may travel with the one taken last. One that is sent again travels alone."""
        if self.resending or self.rows_max is not None or not self.waiting or len(self.unacked) >= UNACKED_MAX:
            return False
        return self.next_bytes(joined_bytes) <= room_bytes

    def take(self, joined_bytes: int, timeout_s: float) -> WriteBatch:
        """Return the next batch to send: the oldest to be sent again, or a new one of what waits."""
        if self.resending:
            self._cut_first()
            batch = self.unacked[0]
            batch.in_flight = batch.alone = True
            return batch
        pieces = [self._next_piece(self.rows_max)]
        total, rows = pieces[0].size_bytes, pieces[0].rows.num_rows
        while self.waiting and total + self.waiting[0].size_bytes <= joined_bytes and rows != self.rows_max:
            pieces.append(self._next_piece(None if self.rows_max is None else self.rows_max - rows))
            total += pieces[-1].size_bytes
            rows += pieces[-1].rows.num_rows
        if not self.unacked:
            self.deadline = time.monotonic() + timeout_s
        batch = WriteBatch(self, self.next_sequence, pieces)
        self.next_sequence = following(self.next_sequence)
        self.unacked.append(batch)
        return batch

    def _next_piece(self, rows_max: int | None) -> BucketRows:
        piece = self.waiting.popleft()
        if rows_max is None or piece.rows.num_rows <= rows_max:
            return piece
        first, rest = piece.cut(rows_max)
        self.waiting.appendleft(rest)
        return first

    def halve_rows_max(self, batch: WriteBatch) -> None:
        """Make batches of half as many rows, from the oldest one on. The server has read the batch, or it is not doubtful."""
        self.rows_max = batch.rows // 2
        # A server that reads a batch says that it is too large only if it does not have it already.
        batch.doubtful = False

    def _cut_first(self) -> None:
        """Cut the oldest batch if it has too many rows. It and those behind it are known not to be in the log."""
        batch, rows_max = self.unacked[0], self.rows_max
        if rows_max is None or batch.rows <= rows_max or batch.doubtful:
            return
        first: list[BucketRows] = []
        rest = deque(batch.pieces)
        while rows_max:
            piece = rest.popleft()
            if piece.rows.num_rows > rows_max:
                piece, behind = piece.cut(rows_max)
                rest.appendleft(behind)
            first.append(piece)
            rows_max -= piece.rows.num_rows
        self.unacked.popleft()
        self.unacked.appendleft(WriteBatch(self, 0, list(rest), in_flight=False))
        self.unacked.appendleft(WriteBatch(self, 0, first, in_flight=False))
        self._number(batch.sequence)

    def grow_rows_max(self, batch: WriteBatch) -> None:
        """Note that the server took a batch."""
        if self.rows_max is not None and batch.rows >= self.rows_max:
            self.rows_max += self.rows_max // 4 + 1

    def renumber(self, writer_id: int) -> None:
        """Number all unacknowledged batches afresh under another writer id."""
        self.writer_id = writer_id
        self._number(0)

    def _number(self, sequence: int) -> None:
        self.next_sequence = sequence
        for batch in self.unacked:
            batch.sequence, batch.payload = self.next_sequence, None
            self.next_sequence = following(self.next_sequence)


def following(sequence: int) -> int:
    """Return the sequence after another; after the largest comes 0 again."""
    return (sequence + 1) % SEQUENCES
