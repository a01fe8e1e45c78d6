"""A scanner's position in each bucket, and the records fetched ahead of its caller. No I/O happens here."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fluss_lab.client.cluster.leader_requests import PAUSE_FIRST_S, PAUSE_MAX_S
from fluss_lab.client.log.fetch_codec import FetchedBucket
from fluss_lab.client.log.remote_reader import GoneSegments
from fluss_lab.errors import FlussError, UnavailableError
from fluss_lab.interrupts import Monitor
from fluss_lab.model import TableBucket
from fluss_lab.records import LogRecords
from fluss_lab.rpc import fluss_api_pb2 as pb

#: One waits for records of known buckets while the other serves those just subscribed.
FETCHES_PER_SERVER: Final = 2
#: Answers held for the caller before the next is fetched: one being read, one ready.
_ANSWERS_AHEAD: Final = 2


@dataclass(slots=True, eq=False)
class ScannedBucket:
    """A subscribed bucket. Subscribing again makes another one: what was fetched for the old is dropped.

    Attributes:
        bucket: Which bucket.
        partition: Name of its partition.
        fetch_offset: Offset after what was fetched.
        offset: Offset after what the caller got.
        found: Whether it was subscribed with all partitions; it then ends without an error when its partition is dropped.
        leader: Server that was found to hold it; None: to be looked up.
        lake: Where in the lake the records from `fetch_offset` on are; None: ask the server.
        remote: Where in remote storage they are; None: ask the server.
        gone: Which remote segment was not there.
        lake_gone: Which lake snapshot was not there.
        busy: Whether a thread works on it.
        stopped: Whether an error ended it, until it is subscribed again.
        damage: That error, if it lies before what was fetched last; then nothing fetched behind it is returned.
    """

    bucket: TableBucket
    partition: str | None
    fetch_offset: int
    offset: int
    found: bool = False
    leader: int | None = None
    lake: pb.PbLakeLogFetchInfo | None = None
    remote: pb.PbRemoteLogFetchInfo | None = None
    gone: GoneSegments = field(default_factory=GoneSegments)
    lake_gone: int | None = None
    busy: bool = False
    stopped: bool = False
    damage: FlussError | None = None
    retry_at: float = 0.0
    pause_s: float = PAUSE_FIRST_S
    failing_since: float | None = None

    @property
    def is_away(self) -> bool:
        """Return whether the next records are not on a server's disk, but in remote storage or the lake."""
        return self.lake is not None or self.remote is not None

    def went_well(self) -> None:
        """Forget failures."""
        self.retry_at, self.pause_s, self.failing_since = 0.0, PAUSE_FIRST_S, None

    def put_off(self) -> float:
        """Put the next attempt off; return for how many seconds attempts have failed."""
        now = time.monotonic()
        if self.failing_since is None:
            self.failing_since = now
        self.retry_at = now + self.pause_s
        self.pause_s = min(2 * self.pause_s, PAUSE_MAX_S)
        return now - self.failing_since


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """What a fetch brought for the caller: encoded records, decoded records, or an error.

    Attributes:
        start: Offset from which records are wanted.
    """

    position: ScannedBucket
    start: int
    content: FetchedBucket | LogRecords | FlussError
    size_bytes: int


class ScannedBuckets:
    """All subscribed buckets of one scanner and its queue; safe in any thread.

    Args:
        answer_bytes: Size of one answer; two are held at most, and what the lake's reader gives at once.
        timeout_s: Failures are raised once no answer came for so long.
    """

    def __init__(self, answer_bytes: int, timeout_s: float) -> None:
        self._answer_bytes = answer_bytes
        self._timeout_s = timeout_s
        self._changed = Monitor()
        self._positions: dict[TableBucket, ScannedBucket] = {}
        self._queue: deque[FetchedRecords] = deque()
        self._bytes = 0
        self._closed = False
        self._abandoned = False
        #: In a forked child: the threads that fetch are the parent's.
        self.is_left = False
        self._ended: FlussError | None = None
        #: The server that each fetcher's thread is busy with.
        self._fetching: dict[int, int] = {}

    @property
    def closed(self) -> bool:
        """Return whether `close` was called."""
        return self._closed

    @property
    def ended(self) -> FlussError | None:
        """Return why no bucket can have records any more; None while one may."""
        return self._ended

    @property
    def is_failing(self) -> bool:
        """Return whether a bucket could not be fetched when that was tried last; it is tried again."""
        with self._changed:
            return any(position.retry_at > 0 and not position.stopped for position in self._positions.values())

    def end(self, error: FlussError) -> None:
        """End all buckets: the table is gone. The caller still gets what was fetched before."""
        with self._changed:
            self._ended = error
            self._positions.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._positions.clear()
            self._changed.notify_all()

    def abandon(self) -> None:
        """Have the threads end when they look next. Takes no lock: it may be called wherever memory is freed."""
        self._abandoned = True

    def leave(self) -> None:
        """In a forked child: have nothing any more."""
        self.is_left = self._closed = True
        self._changed = Monitor()
        self._queue, self._positions = deque(), {}

    # -- the caller's side -------------------------------------------------------------------------------------------

    def put(self, positions: Iterable[ScannedBucket]) -> None:
        """Subscribe buckets, in place of earlier subscriptions of them.

        All at once: a thread that fetches one of them waits at the server, and others would wait for it.
        """
        with self._changed:
            self._positions |= {position.bucket: position for position in positions}
            self._changed.notify_all()

    def drop(self, bucket: TableBucket) -> None:
        """Unsubscribe a bucket."""
        with self._changed:
            self._positions.pop(bucket, None)
            self._changed.notify_all()

    def all(self) -> list[ScannedBucket]:
        """Return the subscribed buckets."""
        with self._changed:
            return list(self._positions.values())

    def is_current(self, position: ScannedBucket) -> bool:
        """Return whether a position is still the subscription of its bucket."""
        with self._changed:
            return self._positions.get(position.bucket) is position

    def take(self, timeout_s: float) -> list[FetchedRecords]:
        """Wait for and return about one answer's worth of what was fetched; an error comes alone and last.

        Returns:
            Nothing when the time is up.
        """
        taken: list[FetchedRecords] = []
        total = 0
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed or self._ended, timeout_s)
            while self._queue and total < self._answer_bytes:
                if isinstance(self._queue[0].content, FlussError) and taken:
                    break
                fetched = self._queue.popleft()
                self._bytes -= fetched.size_bytes
                if self._is_wanted(fetched):
                    taken.append(fetched)
                    total += fetched.size_bytes
                    if isinstance(fetched.content, FlussError):
                        break
            self._changed.notify_all()
        return taken

    def put_back(self, taken: Sequence[FetchedRecords], offsets: Mapping[ScannedBucket, int]) -> None:
        """Let the next `take` return again what the last one did.

        Args:
            taken: What it returned.
            offsets: Where the caller was in each bucket before.
        """
        with self._changed:
            self._queue.extendleft(reversed(taken))
            self._bytes += sum(fetched.size_bytes for fetched in taken)
            for position, offset in offsets.items():
                position.offset = offset

    def stop(self, position: ScannedBucket, error: FlussError) -> None:
        """Stop a bucket whose records turned out to be damaged; the error is what the caller gets next."""
        with self._changed:
            position.stopped, position.damage = True, error
            self._queue.appendleft(FetchedRecords(position, position.offset, error, 0))
            self._changed.notify_all()

    def _is_wanted(self, fetched: FetchedRecords) -> bool:
        """Return whether fetched records are still valid: their bucket neither subscribed anew nor stopped before them."""
        position = fetched.position
        if self._positions.get(position.bucket) is not position:
            return False
        return position.damage is None or fetched.content is position.damage

    # -- the fetchers' side ------------------------------------------------------------------------------------------

    def next_fetch(self) -> list[ScannedBucket] | None:
        """Wait for and return buckets to be fetched, all of one server; None after `close`.

        A thread that calls has finished its last fetch.
        """
        with self._changed:
            if self._fetching.pop(threading.get_ident(), None) is not None:
                self._changed.notify_all()
        return self._next(
            lambda position: not position.is_away and self._is_reachable(position.leader), self._of_one_leader
        )

    def _is_reachable(self, leader: int | None) -> bool:
        """Return whether a server has a free slot: one that hangs must not hold all threads."""
        return sum(each == leader for each in self._fetching.values()) < FETCHES_PER_SERVER

    def next_away(self) -> ScannedBucket | None:
        """Wait for and return a bucket to be read from remote storage or the lake; None after `close`."""
        found = self._next(lambda position: position.is_away, lambda ready: ready[:1])
        return None if found is None else found[0]

    def others_away(self, position: ScannedBucket) -> bool:
        """Return whether other buckets wait for the thread that reads from remote storage and the lake."""
        with self._changed:
            return any(each.is_away and not each.stopped for each in self._positions.values() if each is not position)

    def _of_one_leader(self, ready: list[ScannedBucket]) -> list[ScannedBucket]:
        if (leader := ready[0].leader) is not None:
            self._fetching[threading.get_ident()] = leader
        return [position for position in ready if position.leader == leader]

    def _next(
        self, wanted: Callable[[ScannedBucket], bool], choose: Callable[[list[ScannedBucket]], list[ScannedBucket]]
    ) -> list[ScannedBucket] | None:
        with self._changed:
            while not self._closed:
                if self._abandoned:
                    self._closed = True
                    self._changed.notify_all()
                    break
                now = time.monotonic()
                idle = [p for p in self._positions.values() if not (p.busy or p.stopped) and wanted(p)]
                room = self._bytes < _ANSWERS_AHEAD * self._answer_bytes
                ready = [position for position in idle if position.retry_at <= now]
                if room and ready:
                    chosen = choose(ready)
                    for position in chosen:
                        position.busy = True
                        # Those that wait longest come first, so that one just subscribed is not passed over.
                        self._positions[position.bucket] = self._positions.pop(position.bucket)
                    return chosen
                later = [position.retry_at - now for position in idle if position.retry_at > now]
                self._changed.wait(min(later) if room and later else None)
        return None

    def has_room(self) -> bool:
        """Wait until the queue has room; return False after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._bytes < _ANSWERS_AHEAD * self._answer_bytes)
            return not self._closed

    def accept(
        self, position: ScannedBucket, content: FetchedBucket | LogRecords, next_offset: int, size_bytes: int
    ) -> None:
        """Hold records for the caller, and go on behind them. The bucket has its turn after the others then."""
        with self._changed:
            if self._positions.get(position.bucket) is not position:
                return
            self._queue.append(FetchedRecords(position, position.fetch_offset, content, size_bytes))
            self._bytes += size_bytes
            position.fetch_offset = next_offset
            self._positions[position.bucket] = self._positions.pop(position.bucket)
            self._changed.notify_all()

    def release(self, positions: Iterable[ScannedBucket]) -> None:
        """Let buckets be fetched again."""
        with self._changed:
            for position in positions:
                position.busy = False
            self._changed.notify_all()

    def note_failure(self, position: ScannedBucket, error: FlussError) -> None:
        """Note a failed fetch: passing errors are retried, and raised once they last; other errors stop the bucket."""
        with self._changed:
            position.leader = None
            passing = isinstance(error, UnavailableError)
            failing_s = position.put_off()
            if passing and failing_s < self._timeout_s:
                return
            position.stopped = not passing
            position.failing_since = None
            if self._positions.get(position.bucket) is position:
                # One outage is raised once, however many buckets it concerns.
                if passing and any(isinstance(each.content, UnavailableError) for each in self._queue):
                    return
                self._queue.append(FetchedRecords(position, position.fetch_offset, error, 0))
                self._changed.notify_all()
