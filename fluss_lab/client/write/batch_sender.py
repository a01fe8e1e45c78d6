"""The threads that send a writer's batches and handle the answers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fluss_lab.client.cluster.leader_requests import Attempts
from fluss_lab.client.write.bucket_queue import WriteBatch
from fluss_lab.client.write.delete_check import check_absence
from fluss_lab.client.write.record_accumulator import REQUESTS_PER_SERVER, RecordAccumulator
from fluss_lab.client.write.write_requests import Refusal, WriteAnswer, WriteKind, shares_of
from fluss_lab.errors import (
    AuthenticationError,
    ConflictError,
    ConnectionClosedError,
    FlussError,
    InternalError,
    NotFoundError,
    NotLeaderError,
    OutOfOrderSequenceError,
    PartitionNotFoundError,
    RecordTooLargeError,
    RequestTimeoutError,
    ServerUnavailableError,
    UnavailableError,
)
from fluss_lab.interrupts import Held, join_threads
from fluss_lab.model import TableBucket, TableInfo
from fluss_lab.model.changes import ChangeType
from fluss_lab.records import encode

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient

log = logging.getLogger(__name__)

#: Where there are several servers: threads that find servers again while those of all others are busy.
_FINDERS: Final = 2


class BatchSender:
    """Sends what an accumulator holds, until that is closed.

    Args:
        accumulator: What is to be sent.
        kind: How it travels.
        new_writer_id: Gets a fresh writer id from the coordinator.
    """

    def __init__(
        self,
        connection: ClusterClient,
        info: TableInfo,
        accumulator: RecordAccumulator,
        kind: WriteKind,
        new_writer_id: Callable[[], int],
    ) -> None:
        self._connection = connection
        self._info = info
        self._accumulator = accumulator
        self._kind = kind
        self._what = f"{kind.verb} {info.path}"
        self._new_writer_id = new_writer_id
        self._servers: set[int] = set()
        self._starting = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._start_threads(REQUESTS_PER_SERVER)

    def _start_threads(self, count: int) -> None:
        """Start threads up to a number; more than the accumulator lets send would only contend."""
        with Held(), self._starting:
            while len(self._threads) < count:
                thread = threading.Thread(target=self._run, name=f"write-{self._info.path}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait until the threads have ended, at most so long; the accumulator must be closed."""
        with self._starting:
            threads = list(self._threads)
        join_threads(threads, timeout_s)

    def _run(self) -> None:
        while (batches := self._accumulator.take()) is not None:
            try:
                self._send(batches)
            except Exception as error:  # a defect must not leave futures open for ever
                log.exception("%s failed", self._what)
                known = error if isinstance(error, FlussError) else InternalError(f"{type(error).__name__}: {error}")
                for batch in batches:
                    if batch.in_flight:
                        self._accumulator.reenqueue(batch, known, doubtful=True, lasting=True)

    def _send(self, batches: list[WriteBatch]) -> None:
        batches = self._resolve_leaders(batches)
        if not batches:
            return
        for batch in batches:
            if batch.payload is None:
                batch.payload = self._encode(batch)
        left_ms = _left_ms(batches)
        groups = [list(each) for _, each in groupby(batches, key=lambda batch: batch.queue.bucket)]
        encoded = [
            (group[0].queue.bucket, [part for batch in group for part in batch.payload or []]) for group in groups
        ]
        leader = batches[0].queue.leader
        try:
            gateway = self._connection.gateway(leader if leader is not None else -1)
            self._accumulator.mark_sent(batches)
            answers = self._kind.send(gateway, encoded, left_ms)
        except FlussError as error:
            is_unread = isinstance(error, RecordTooLargeError)
            if is_unread and len(groups) > 1:  # each bucket's part may be small enough
                self._accumulator.halve_requests()
            for batch in batches:
                self._handle_failure(batch, error, is_unread=is_unread, is_shared=len(groups) > 1)
            return
        self._handle_answers(groups, answers)

    def _encode(self, batch: WriteBatch) -> list[bytes | bytearray | memoryview | pa.Buffer]:
        rows = [piece.rows for piece in batch.pieces]
        joined = rows[0] if len(rows) == 1 else pa.concat_batches(rows)
        writer_id = batch.queue.writer_id
        assert writer_id is not None
        return encode(
            joined,
            schema_id=self._info.schema_id,
            writer_id=writer_id,
            batch_sequence=batch.sequence,
            change_types=self._kind.change_types(batch),
        )

    def _resolve_leaders(self, batches: list[WriteBatch]) -> list[WriteBatch]:
        """Look up leaders that are not known; return the batches of one server, the others come back for later."""
        unknown = list(dict.fromkeys(batch.queue.bucket for batch in batches if batch.queue.leader is None))
        if unknown:
            attempts = self._attempts(batches)
            try:
                leaders = self._connection.present_leaders(unknown, attempts)
            except NotFoundError as error:
                if len(unknown) > 1:  # the others may be there: each is looked up by itself
                    return self._keep_one_leader(self._resolve_apart(batches, unknown, attempts))
                return self._hold_back(batches, error)
            except FlussError as error:
                return self._hold_back(batches, error)
            for batch in batches:
                batch.queue.leader = leaders.get(batch.queue.bucket, batch.queue.leader)
            self._add_servers(leaders.values())
        return self._keep_one_leader(batches)

    def _resolve_apart(
        self, batches: list[WriteBatch], unknown: Sequence[TableBucket], attempts: Attempts
    ) -> list[WriteBatch]:
        """Look up buckets of which one was dropped; return the batches of the others."""
        for bucket in unknown:
            own = [batch for batch in batches if batch.queue.bucket == bucket]
            try:
                leaders = self._connection.present_leaders([bucket], attempts)
            except FlussError as error:
                self._hold_back(own, error)
                batches = [batch for batch in batches if batch.queue.bucket != bucket]
                continue
            for batch in own:
                batch.queue.leader = leaders.get(bucket)
            self._add_servers(leaders.values())
        return batches

    def _hold_back(self, batches: Sequence[WriteBatch], error: FlussError) -> list[WriteBatch]:
        """Keep batches whose leaders were not found for later, or give their buckets up; return none."""
        self._connection.forget_partitions(self._info)
        for batch in batches:
            found = self._missing_bucket_error(batch, error)
            lasting = self._connection.closed.is_set() or not isinstance(found, UnavailableError)
            self._accumulator.reenqueue(batch, self._with_context(batch, found), doubtful=False, lasting=lasting)
        return []

    def _missing_bucket_error(self, batch: WriteBatch, error: FlussError) -> FlussError:
        """Return why a batch's bucket is not there: the partition of its name may be another one now.

        Rows to delete are gone with their partition, but those of the new one are not.
        """
        name = batch.queue.partition
        if name is None or not isinstance(error, PartitionNotFoundError):
            return error
        try:
            again = self._connection.partitions(self._info).get(name)
        except FlussError as failed:
            return failed
        if again is None or again.partition_id == batch.queue.bucket.partition_id:
            return self._kept_error(batch, name) or error
        return ConflictError(
            f"{error}; it was dropped and made again meanwhile, and nothing was done in the new one: do it again"
        )

    def _kept_error(self, batch: WriteBatch, name: str) -> FlussError | None:
        """Return why rows are not deleted whose partition is gone from the cluster; None when nothing is left of them."""
        if all(piece.change is not ChangeType.DELETE for piece in batch.pieces):
            return None
        try:
            check_absence(self._connection, self._info, {name}, "its rows stay")
        except FlussError as kept:
            return kept
        return None

    def _add_servers(self, servers: Iterable[int]) -> None:
        """Start threads for every server that holds a bucket, so that none waits for another."""
        self._servers.update(servers)
        if len(self._servers) > 1:
            self._start_threads(REQUESTS_PER_SERVER * len(self._servers) + _FINDERS)

    def _keep_one_leader(self, batches: list[WriteBatch]) -> list[WriteBatch]:
        first = next((leader for batch in batches if (leader := batch.queue.leader) is not None), None)
        self._accumulator.set_server(first)
        for batch in batches:
            bucket, leader = batch.queue.bucket, batch.queue.leader
            if leader is None:
                away = self._with_context(batch, NotLeaderError(f"bucket {bucket}: its server is away"))
                self._accumulator.reenqueue(batch, away, doubtful=False, lasting=False)
            elif leader != first:
                elsewhere = NotLeaderError(f"bucket {bucket} is held by another server")
                self._accumulator.reenqueue(batch, elsewhere, doubtful=False, lasting=False, at_once=True)
        return [] if first is None else [batch for batch in batches if batch.queue.leader == first]

    def _handle_answers(self, groups: list[list[WriteBatch]], answers: Sequence[WriteAnswer | Refusal]) -> None:
        for group, answer in zip(groups, answers, strict=True):
            if isinstance(answer, Refusal):
                for batch in group:
                    self._handle_failure(batch, answer.error, is_in_log=answer.is_in_log)
                continue
            shares = shares_of(self._kind, group, answer.base_offset, answer.end_offset)
            if shares is None:
                rows = sum(batch.rows for batch in group)
                found = f"offsets [{answer.base_offset}, {answer.end_offset}) for {rows} rows"
                for batch in group:
                    wrong = InternalError(f"bucket {batch.queue.bucket}: the server answered {found}")
                    self._handle_failure(batch, wrong)
                continue
            for batch, ranges in zip(group, shares, strict=True):
                self._accumulator.acknowledge(batch, ranges)

    def _handle_failure(
        self,
        batch: WriteBatch,
        error: FlussError,
        *,
        is_in_log: bool = False,
        is_unread: bool = False,
        is_shared: bool = False,
    ) -> None:
        """Have a batch sent again, or give its bucket up.

        Args:
            batch: It was not acknowledged.
            error: Why.
            is_in_log: Whether it is in the log all the same.
            is_unread: Whether the request was too large to be read: what may be in the log already must not be cut.
            is_shared: Whether the request had batches of other buckets too.
        """
        queue = batch.queue
        apart = is_unread and is_shared
        too_large = isinstance(error, RecordTooLargeError) and batch.rows > 1 and not apart
        too_large = too_large and not (is_unread and batch.doubtful)
        again = isinstance(error, UnavailableError) or too_large or apart
        lasting = self._connection.closed.is_set() or not again
        # What is in the log without being durable may stay there, and is not to be written again either.
        doubtful = is_in_log or isinstance(error, ServerUnavailableError | RequestTimeoutError | InternalError)
        reason = error
        if isinstance(error, NotLeaderError | ServerUnavailableError | NotFoundError | AuthenticationError):
            self._connection.forget_leaders_of([queue.bucket])
            queue.leader = None
        if isinstance(error, NotFoundError | AuthenticationError):
            # Believed when the coordinator agrees: a server that has just started may not have opened the bucket yet,
            # or it is another one, with another token, on the port of the last.
            confirmed = self._gone_error(batch)
            lasting, reason = confirmed is not None, confirmed or error
        if isinstance(error, OutOfOrderSequenceError) and batch.alone and not batch.doubtful:
            # All before it is acknowledged and it was never written: the server does not know this writer any more.
            self._renumber(batch)
        described = self._with_context(batch, reason, is_in_log=is_in_log)
        self._accumulator.reenqueue(
            batch, described, doubtful=doubtful, lasting=lasting, at_once=too_large or apart, too_large=too_large
        )

    def _gone_error(self, batch: WriteBatch) -> FlussError | None:
        """Return what the coordinator says against a bucket; None when it knows the bucket or does not answer."""
        try:
            self._connection.leaders([batch.queue.bucket], self._attempts([batch]))
        except (UnavailableError, ConnectionClosedError):
            return None
        except FlussError as confirmed:
            self._connection.forget_partitions(self._info)
            found = self._missing_bucket_error(batch, confirmed)
            return None if isinstance(found, UnavailableError | ConnectionClosedError) else found
        return None

    def _attempts(self, batches: Iterable[WriteBatch]) -> Attempts:
        return Attempts(self._what, _left_ms(batches), self._connection.closed)

    def _renumber(self, batch: WriteBatch) -> None:
        try:
            writer_id = self._new_writer_id()
        except FlussError as error:
            log.warning("%s: no new writer id: %s", self._what, error)
            return
        batch.in_flight = False
        self._accumulator.renumber(batch.queue, writer_id)

    def _with_context(self, batch: WriteBatch, error: FlussError, *, is_in_log: bool = False) -> FlussError:
        """Return the error with what was written to, and whether it is known what became of the rows."""
        queue = batch.queue
        partition = f" of partition {queue.partition!r}" if queue.partition is not None else ""
        unknown = isinstance(error, ServerUnavailableError | RequestTimeoutError) or batch.doubtful
        fate = "; whether its rows were written is not known" if unknown else ""
        if is_in_log:
            fate = (
                "; its rows are in the log, though perhaps not on the device: to write them again may have them twice"
            )
        tried = ""
        if isinstance(error, UnavailableError) and time.monotonic() >= queue.deadline:
            tried = (
                f"nothing acknowledged for {self._connection.request_timeout_ms / 1000:g} s (client.request-timeout): "
            )
        is_closed = isinstance(error, UnavailableError) and self._connection.closed.is_set()
        kind = ConnectionClosedError if is_closed else type(error)
        closed = "the lab, or its connection, was closed: " if is_closed else ""
        return kind(f"{self._what}, bucket {queue.bucket.bucket}{partition}: {closed}{tried}{error}{fate}")


def _left_ms(batches: Iterable[WriteBatch]) -> int:
    """Return the milliseconds until the first of some batches is given up."""
    return max(1, int(1000 * (min(batch.queue.deadline for batch in batches) - time.monotonic())))
