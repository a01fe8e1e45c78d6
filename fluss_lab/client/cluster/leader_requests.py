"""Requests to the leaders of buckets, retried: one call to each server, again for buckets that moved or whose leader was away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from fluss_lab.errors import (
    AuthenticationError,
    ConnectionClosedError,
    FlussError,
    NotFoundError,
    NotLeaderError,
    RequestTimeoutError,
    ServerUnavailableError,
    UnavailableError,
)
from fluss_lab.model import TableBucket
from fluss_lab.model.config.options import CLIENT_REQUEST_TIMEOUT
from fluss_lab.rpc.gateway import TabletServerGateway

#: Pauses between attempts: 50 ms, doubled up to one second. A server restarts in about half a second; a connection
#: that is refused costs the server nothing.
PAUSE_FIRST_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0


def closed_error(what: object) -> ConnectionClosedError:
    """Return the error of a call over a connection that was closed."""
    return ConnectionClosedError(
        f"{what}: the lab, or its connection, is closed; open it again (Lab.open, Lab.connect)"
    )


class Attempts:
    """The attempts of one call: counts failures, waits between them, and ends them when the time is up.

    Args:
        what: The call, for messages: a text, or what becomes one when a message needs it.
        timeout_ms: From now to the last attempt; 0 for a single one.
        closed: Set when the connection is closed; ends every wait.
    """

    def __init__(self, what: object, timeout_ms: int, closed: threading.Event) -> None:
        self.what = what
        self.failures = 0
        self._closed = closed
        self._timeout_ms = timeout_ms
        self._started = time.monotonic()
        self._pause_s = PAUSE_FIRST_S

    @property
    def left_s(self) -> float:
        """Return the seconds until the time is up; negative after."""
        return self._started + self._timeout_ms / 1000 - time.monotonic()

    def restart(self) -> None:
        """Start the time anew: a part of the work was done."""
        self._started = time.monotonic()
        self._pause_s = PAUSE_FIRST_S

    def wait_after(self, error: FlussError, address: str) -> None:
        """Count a failure and wait until the next attempt is due.

        Raises:
            ServerUnavailableError: The time is up and no server answered.
            ConnectionClosedError: The connection was closed.
            FlussError: The time is up and a server went on answering `error`.
        """
        self.failures += 1
        left_s = self.left_s
        if left_s <= 0:
            raise self._give_up_error(error, address) from error
        if self._closed.wait(min(self._pause_s, left_s)):
            raise closed_error(self.what) from error
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    def _give_up_error(self, error: FlussError, address: str) -> FlussError:
        if not isinstance(error, ServerUnavailableError | RequestTimeoutError) or not self._timeout_ms:
            return error
        tried_s = time.monotonic() - self._started
        return ServerUnavailableError(
            f"{self.what}: not done in {tried_s:.1f} s of attempts at {address} ({CLIENT_REQUEST_TIMEOUT.key}). The last "
            f"answer: {error}. If no server runs there, start it again (open the lab, or `fluss-lab up`); then repeat the call"
        )


class LeaderConnection(Protocol):
    """A connection as requests to leaders need it; `ClusterClient` is one."""

    def attempts(self, what: object) -> Attempts:
        """Return fresh attempts of a call."""
        ...

    def present_leaders(self, buckets: Iterable[TableBucket], attempts: Attempts) -> dict[TableBucket, int]:
        """Return the server of each bucket that has one at present."""
        ...

    def gateway(self, server_id: int) -> TabletServerGateway:
        """Return a tablet server."""
        ...

    def refresh_leader(self, bucket: TableBucket, error: FlussError, attempts: Attempts) -> None:
        """Have the leader of a bucket looked up again after a failure; raise when the bucket was dropped."""
        ...

    def forget_leaders(self) -> None:
        """Drop what is known of leaders."""
        ...


class HasBucket(Protocol):
    """A request about one bucket."""

    @property
    def bucket(self) -> TableBucket:
        """Return the bucket."""
        ...


@dataclass(slots=True)
class BucketRequest:
    """A request that says nothing but its bucket."""

    bucket: TableBucket


Q = TypeVar("Q", bound=HasBucket)
A = TypeVar("A")

#: Runs calls, one after another or at the same time, and returns what they return, in their order.
Run: TypeAlias = Callable[[Sequence[Callable[[], None]]], object]

#: Errors of a server that may pass. That a bucket was dropped counts when the coordinator agrees: a server that has just
#: started may not have opened it yet, or it is another cluster's, with another token, on the port of the last.
PASSING_ERRORS: Final = (UnavailableError, NotFoundError, AuthenticationError)


@dataclass(slots=True)
class LeaderCall(Generic[Q, A]):
    """How requests travel.

    Attributes:
        send: Sends requests to one server; returns an answer or an error for each, in their order. It may be called
            twice for the same request.
        cut: Cuts the requests to one server into those of one call.
        run: Runs the calls of one round.
        on_gone: Returns the answer of a request whose bucket the coordinator does not know any more; None: the
            coordinator's error is raised.
    """

    send: Callable[[TabletServerGateway, Sequence[Q]], Sequence[A | FlussError]]
    cut: Callable[[Sequence[Q]], Iterable[Sequence[Q]]] = lambda requests: [requests]
    run: Run = lambda calls: [call() for call in calls]
    on_gone: Callable[[Q, NotFoundError], A] | None = None


def call_leader(
    connection: LeaderConnection,
    bucket: TableBucket,
    what: object,
    call: Callable[[TabletServerGateway], A],
    attempts: Attempts | None = None,
) -> A:
    """Call the leader of one bucket until it answers or the time is up; see `call_leaders` for errors.

    Args:
        connection: To the cluster.
        bucket: The bucket.
        what: The call, for messages.
        call: One attempt; it may act twice.
        attempts: Shared time limit; None: ``client.request-timeout`` from now.
    """
    once: LeaderCall[BucketRequest, A] = LeaderCall(lambda gateway, _requests: [call(gateway)])
    return call_leaders(connection, [BucketRequest(bucket)], once, attempts or connection.attempts(what))[0]


def call_leaders(
    connection: LeaderConnection, requests: Sequence[Q], call: LeaderCall[Q, A], attempts: Attempts
) -> list[A]:
    """Return an answer for each request, in their order; failed requests are repeated until time is up.

    Raises:
        TableNotFoundError, PartitionNotFoundError, BucketNotFoundError: A bucket was dropped.
        ServerUnavailableError: No server answered in time.
        FlussError: A server refused a request.
    """
    answers: dict[int, A] = {}
    while waiting := [index for index in range(len(requests)) if index not in answers]:
        failed: dict[int, FlussError] = {}
        found = call_leaders_once(connection, [requests[index] for index in waiting], call, attempts)
        for index, answer in zip(waiting, found, strict=True):
            if not isinstance(answer, FlussError):
                answers[index] = answer
            elif isinstance(answer, PASSING_ERRORS):
                failed[index] = answer
            else:
                raise answer
        if failed:
            index, error = next(iter(failed.items()))
            try:
                connection.refresh_leader(requests[index].bucket, error, attempts)
            except NotFoundError as gone:
                if call.on_gone is None:
                    raise
                answers[index] = call.on_gone(requests[index], gone)
                continue
            attempts.wait_after(error, f"the server of bucket {requests[index].bucket}")
    return [answers[index] for index in range(len(requests))]


def call_leaders_once(
    connection: LeaderConnection, requests: Sequence[Q], call: LeaderCall[Q, A], attempts: Attempts
) -> list[A | FlussError]:
    """Return the answer of each request's leader, or the error, in their order; nothing is repeated.

    Args:
        connection: To the cluster.
        requests: What to send.
        call: How.
        attempts: Time limit for finding the leaders.

    Raises:
        TableNotFoundError, PartitionNotFoundError, BucketNotFoundError: A bucket was dropped, and the call has no `on_gone`.
    """
    answers: dict[int, A | FlussError] = {}
    by_server: dict[int, list[int]] = {}
    buckets = list(dict.fromkeys(request.bucket for request in requests))
    leaders = _leaders(connection, buckets, attempts, apart=call.on_gone is not None)
    for index, request in enumerate(requests):
        leader = leaders[request.bucket]
        if isinstance(leader, FlussError):
            answers[index] = leader
        else:
            by_server.setdefault(leader, []).append(index)

    def send(server: int, indexes: Sequence[int], part: Sequence[Q]) -> None:
        try:
            given = call.send(connection.gateway(server), part)
        except FlussError as error:
            given = [error] * len(part)
        answers.update(zip(indexes, given, strict=True))

    calls: list[Callable[[], None]] = []
    for server, indexes in by_server.items():
        rest = iter(indexes)
        parts = call.cut([requests[index] for index in indexes])
        calls += [partial(send, server, [next(rest) for _ in part], part) for part in parts]
    call.run(calls)
    return [answers[index] for index in range(len(requests))]


def _leaders(
    connection: LeaderConnection, buckets: Sequence[TableBucket], attempts: Attempts, *, apart: bool
) -> dict[TableBucket, int | FlussError]:
    """Return the server of each bucket, or why there is none.

    Raises:
        NotFoundError: A bucket was dropped; with `apart` the error is that bucket's entry.
    """
    try:
        found = connection.present_leaders(buckets, attempts)
    except UnavailableError as error:
        connection.forget_leaders()
        return dict.fromkeys(buckets, error)
    except NotFoundError as error:
        if not apart:
            raise
        if len(buckets) == 1:
            return {buckets[0]: error}
        return {bucket: _leaders(connection, [bucket], attempts, apart=True)[bucket] for bucket in buckets}
    leaders: dict[TableBucket, int | FlussError] = {**found}
    if len(found) < len(buckets):
        for bucket in buckets:
            if bucket not in found:
                leaders[bucket] = NotLeaderError(f"bucket {bucket}: its server is away; ask again after a while")
    return leaders
