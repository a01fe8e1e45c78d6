"""Who is attached, and when an ephemeral server has been alone for long enough."""

import threading

import pytest

from fluss_lab.errors import ResourceExhaustedError, ServerUnavailableError
from fluss_lab.server.coordinator.client_sessions import FIRST_WAIT_MS, ClientSessions
from fluss_lab.testing import MockClock, wait_until

GRACE_MS = 10_000


class Bench:
    def __init__(self) -> None:
        self.clock = MockClock()
        self.ended: list[int] = []
        self.alone = threading.Event()
        self.sessions = ClientSessions(self.clock, most=3, first_id=1, coordinator_epoch=1, on_end=self.ended.append)

    def attach(self) -> threading.Event:
        closed = threading.Event()
        stream = self.sessions.attach("test", closed)
        assert next(stream).coordinator_epoch == 1
        threading.Thread(target=lambda: list(stream), daemon=True).start()
        return closed

    def advance(self, delta_ms: int) -> None:
        """Move the clock, and have the watcher look at it."""
        self.clock.advance(delta_ms)
        with self.sessions._changed:
            self.sessions._changed.notify_all()

    def is_still_watching(self) -> bool:
        return not self.alone.wait(0.05)


@pytest.fixture
def bench():
    made = Bench()
    made.sessions.watch(GRACE_MS, made.alone.set)
    yield made
    made.sessions.close()


def test_an_opener_has_thirty_seconds_to_come(bench):
    bench.advance(FIRST_WAIT_MS - 1)
    assert bench.is_still_watching()
    bench.advance(1)
    assert bench.alone.wait(60)


def test_the_grace_begins_when_the_last_one_has_gone(bench):
    first, second = bench.attach(), bench.attach()
    bench.advance(10 * FIRST_WAIT_MS)
    first.set()
    wait_until(lambda: bench.ended == [1])
    bench.advance(10 * FIRST_WAIT_MS)
    assert bench.is_still_watching()
    second.set()
    wait_until(lambda: bench.ended == [1, 2])
    bench.advance(GRACE_MS - 1)
    assert bench.is_still_watching()
    bench.advance(1)
    assert bench.alone.wait(60)


def test_whoever_comes_within_the_grace_keeps_the_server(bench):
    bench.attach().set()
    wait_until(lambda: bench.ended == [1])
    bench.advance(GRACE_MS - 1)
    closed = bench.attach()
    bench.advance(10 * GRACE_MS)
    assert bench.is_still_watching()
    closed.set()
    wait_until(lambda: bench.ended == [1, 2])
    bench.advance(GRACE_MS)
    assert bench.alone.wait(60)


def test_one_who_came_and_went_unseen_has_been_there():
    """The watcher thread may sleep through a short visit: the grace counts from its end all the same."""
    bench = Bench()
    with bench.sessions._changed:  # the watcher cannot look while this is held
        bench.sessions.watch(GRACE_MS, bench.alone.set)
        stream = bench.sessions.attach("test", threading.Event())
        next(stream)
        stream.close()
    bench.advance(GRACE_MS)
    assert bench.alone.wait(60)


def test_whoever_is_the_last_ends_the_server_and_whoever_comes_later_learns_it(bench):
    first, second = bench.attach(), bench.attach()
    assert not bench.sessions.end_if_only([1])
    assert not bench.sessions.end_if_only([])
    first.set()
    wait_until(lambda: bench.ended == [1])
    bench.attach().set()
    wait_until(lambda: bench.ended == [1, 3])
    assert bench.sessions.end_if_only([2, 3])
    with pytest.raises(ServerUnavailableError, match="stopping"):
        bench.attach()
    second.set()
    assert not bench.alone.is_set()


def test_the_end_of_the_server_ends_every_session(bench):
    bench.attach()
    bench.attach()
    bench.sessions.close()
    wait_until(lambda: sorted(bench.ended) == [1, 2])
    assert len(bench.sessions) == 0
    with pytest.raises(ServerUnavailableError, match="stopping"):
        bench.attach()
    assert not bench.alone.is_set()


def test_one_too_many_is_reported_at_once(bench):
    first, *_ = (bench.attach() for _ in range(3))
    with pytest.raises(ResourceExhaustedError, match="3 processes are attached"):
        bench.attach()
    first.set()
    wait_until(lambda: len(bench.sessions) == 2)
    bench.attach()
