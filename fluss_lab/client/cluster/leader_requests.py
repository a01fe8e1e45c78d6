"""Requests to many buckets at once: one to each leader, repeated for buckets that moved or whose leader was away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

from fluss_lab.client.cluster.retry_policy import Attempts
from fluss_lab.errors import FlussError, NotFoundError, UnavailableError
from fluss_lab.model import TableBucket
from fluss_lab.rpc.gateway import TabletServerGateway

if TYPE_CHECKING:
    from fluss_lab.client.cluster.cluster_client import ClusterClient


class HasBucket(Protocol):
    """A question about one bucket."""

    @property
    def bucket(self) -> TableBucket:
        """Return the bucket."""
        ...


Q = TypeVar("Q", bound=HasBucket)
A = TypeVar("A")

#: Runs calls, one after another or at the same time, and returns what they return, in their order.
Run: TypeAlias = Callable[[Sequence[Callable[[], None]]], object]


@dataclass(frozen=True, slots=True)
class Ask(Generic[Q, A]):
    """How questions are asked.

    Attributes:
        send: Asks one server some questions; returns an answer or an error for each, in their order. It may be called
            twice for the same.
        cut: Cuts the questions for one server into those of one call.
        run: Runs the calls of a round.
    """

    send: Callable[[TabletServerGateway, Sequence[Q]], Sequence[A | FlussError]]
    cut: Callable[[Sequence[Q]], Iterable[Sequence[Q]]] = lambda questions: [questions]
    run: Run = lambda calls: [call() for call in calls]


def ask_leaders(connection: ClusterClient, questions: Sequence[Q], ask: Ask[Q, A], attempts: Attempts) -> list[A]:
    """Return an answer for each question, in their order; what could not be answered is asked again until time is up.

    A server that says it does not hold a bucket is believed when the coordinator agrees.

    Raises:
        TableNotFoundError, PartitionNotFoundError, BucketNotFoundError: A bucket is gone.
        ServerUnavailableError: No server answered in time.
        FlussError: A server refused a question.
    """
    asking = _Asking(connection, questions, ask)
    while len(asking.answers) < len(questions):
        try:
            calls = asking.calls(attempts)
        except UnavailableError as error:
            connection.forget_leaders()
            attempts.failed(error, "the coordinator")
            continue
        ask.run(calls)
        failed, asking.failed = asking.failed, []
        if lasting := [error for _, error in failed if not isinstance(error, UnavailableError | NotFoundError)]:
            raise lasting[0]
        if failed:
            bucket, reason = failed[0]
            connection.judge(bucket, reason, attempts)
            attempts.failed(reason, f"the server of bucket {bucket}")
    return [asking.answers[index] for index in range(len(questions))]


class _Asking(Generic[Q, A]):
    """The state of one asking: what was answered, by the questions' positions, and what failed in this round."""

    def __init__(self, connection: ClusterClient, questions: Sequence[Q], ask: Ask[Q, A]) -> None:
        self.answers: dict[int, A] = {}
        self.failed: list[tuple[TableBucket, FlussError]] = []
        self._connection = connection
        self._questions = questions
        self._ask = ask

    def calls(self, attempts: Attempts) -> list[Callable[[], None]]:
        """Return the calls that ask what has no answer yet."""
        wanted = [index for index in range(len(self._questions)) if index not in self.answers]
        leaders = self._connection.leaders({self._questions[index].bucket for index in wanted}, attempts)
        by_server: dict[int, list[int]] = {}
        for index in wanted:
            by_server.setdefault(leaders[self._questions[index].bucket], []).append(index)
        return [call for server, indexes in by_server.items() for call in self._calls_of(server, indexes)]

    def _calls_of(self, server: int, indexes: Sequence[int]) -> Iterator[Callable[[], None]]:
        rest = iter(indexes)
        for part in self._ask.cut([self._questions[index] for index in indexes]):
            yield partial(self._call, server, [next(rest) for _ in part], part)

    def _call(self, server: int, indexes: Sequence[int], part: Sequence[Q]) -> None:
        try:
            given = self._ask.send(self._connection.gateway(server), part)
        except FlussError as error:
            self.failed.append((part[0].bucket, error))
            return
        for index, question, answer in zip(indexes, part, given, strict=True):
            if isinstance(answer, FlussError):
                self.failed.append((question.bucket, answer))
            else:
                self.answers[index] = answer
