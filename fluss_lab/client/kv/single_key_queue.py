"""The queue of lookups of single keys: what comes while calls are on their way goes out together, in the next call.

A lookup that finds few calls and lookups under way waits for nothing: it is sent at once, by its own thread. Others wait,
and go out together when one of those calls ends, by a thread that sends for all: after a call of several it first lets those
come back that it woke, as long as they come. So who gives up waiting (an interrupt) harms nobody else, and an answer is of a
moment after its lookup began.
"""

from __future__ import annotations

import _thread
import logging
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from fluss_lab.interrupts import Held

log = logging.getLogger(__name__)

#: To one server. While a call is answered the next one is made; more would each carry fewer lookups.
CALLS_AT_ONCE: Final = 2
#: A call with more lookups is alone: a second one would take the few that came meanwhile, where one can carry them all, and
#: a call costs ten times as much as a lookup in it.
_CROWD: Final = 1
#: After a call of several, who sends looks so often whether more have come back, and goes on when none has: a call of all of them
#: costs hardly more than one of half, and while it is made they do not compete with it for the interpreter. On two busy cores
#: fifty threads need a millisecond and more for that.
_LOOK_S: Final = 0.0001
_LOOKS_MAX: Final = 20
#: Lookups of one call: beyond some hundreds a call's fixed cost is nothing beside them, and the last waits for the first.
LOOKUPS_MAX: Final = 1024

Q = TypeVar("Q")
A = TypeVar("A")


class PendingLookup(Generic[Q, A]):
    """A lookup under way.

    Attributes:
        what: What is looked up.
        answer: None until it is known; it stays so where the call failed: then it is looked up by itself.
        following: Who is woken by this one; see `end_all`.
        is_interruptible: Whether it may stop waiting before its call has ended.
    """

    __slots__ = ("_waiting", "answer", "following", "is_interruptible", "what")

    def __init__(self, what: Q, *, is_interruptible: bool = False) -> None:
        self.what = what
        self.is_interruptible = is_interruptible
        self.answer: A | None = None
        self.following: PendingLookup[Q, A] | None = None
        self._waiting = threading.Lock()
        self._waiting.acquire()

    def wait(self, held: Held) -> None:
        """Wait until its call has ended.

        Raises:
            KeyboardInterrupt: The main thread was interrupted; the call goes on.
        """
        try:
            if self.is_interruptible:
                held.until_released(self._waiting, self.end)
            else:
                self._waiting.acquire()
        finally:
            if self.following is not None:
                self.following.end()
        held.deliver()

    def end(self) -> None:
        """Wake who waits; twice is fine (by a call's end and by an interrupt)."""
        try:
            self._waiting.release()
        except RuntimeError:
            return


def end_all(pending: Sequence[PendingLookup[Q, A]]) -> None:
    """Wake those that wait, each by the one before it.

    Woken at the same moment, all but one of them would find the interpreter's lock taken and wait once more, which costs each
    a fifth of its lookup. Who may leave before it is woken wakes nobody.
    """
    waking: PendingLookup[Q, A] | None = None
    for each in reversed(pending):
        if each.is_interruptible:
            each.end()
        else:
            each.following, waking = waking, each
    if waking is not None:
        waking.end()


class _Lane(Generic[Q, A]):
    """What is under way to one server."""

    __slots__ = ("calls", "under_way", "waiting")

    def __init__(self) -> None:
        self.calls = 0
        #: Lookups that those calls carry.
        self.under_way = 0
        self.waiting: list[PendingLookup[Q, A]] = []

    @property
    def has_room(self) -> bool:
        """Return whether one more call may begin."""
        return not self.calls or (self.calls < CALLS_AT_ONCE and self.under_way <= _CROWD)


def _let_come(lane: _Lane[Q, A], woken: int) -> None:
    """Wait while those that were woken come back, each look finding more of them."""
    seen = len(lane.waiting)
    expected = seen + woken
    for _ in range(_LOOKS_MAX):
        time.sleep(_LOOK_S)
        found = len(lane.waiting)
        if found == seen or found >= expected:
            return
        seen = found


class LookupQueue(Generic[Q, A]):
    """Gathers lookups. Safe in any thread.

    Args:
        send: Makes one call for some lookups and sets their answers, where there are any. Returns how many lookups a call
            may have from now on; 0 when no server answered: those that wait then try by themselves, each for its own time.
    """

    def __init__(self, send: Callable[[Sequence[PendingLookup[Q, A]]], int]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._lanes: dict[Hashable, _Lane[Q, A]] = {}
        self._lookups_max = LOOKUPS_MAX

    def answer(self, what: Q, server: Hashable) -> A | None:
        """Return the answer of a lookup; None where the call failed.

        Args:
            what: What is looked up.
            server: Whose answer it will be: a server that hangs delays only its own.

        Raises:
            KeyboardInterrupt: The main thread was interrupted.
        """
        with Held() as held:
            pending: PendingLookup[Q, A] = PendingLookup(what, is_interruptible=held.is_interruptible)
            with self._lock:
                if (lane := self._lanes.get(server)) is None:
                    lane = self._lanes[server] = _Lane()
                is_alone = lane.has_room
                if is_alone:
                    lane.calls += 1
                    lane.under_way += 1
                else:
                    lane.waiting.append(pending)
            if is_alone:
                try:
                    self._send_call(lane, (pending,))
                finally:
                    self._go_on(lane)
            else:
                pending.wait(held)
        return pending.answer

    def _go_on(self, lane: _Lane[Q, A]) -> None:
        """After a call of one lookup: have those sent that wait, by a thread that sends for all."""
        with self._lock:
            lane.under_way -= 1
            if not lane.waiting:
                lane.calls -= 1
                return
        try:
            _thread.start_new_thread(self._send_waiting, (lane,))
        except RuntimeError as error:
            log.info("lookups go on one by one: %s", error)
            self._let_go(lane, calls=1)

    def _send_waiting(self, lane: _Lane[Q, A]) -> None:
        ended = 0
        while pending := self._next(lane, ended):
            ended = len(pending)
            try:
                self._send_call(lane, pending)
            except Exception:  # a defect must not leave callers waiting for ever; each then meets it by itself
                log.exception("a call of lookups failed")
            finally:
                end_all(pending)
            if ended > _CROWD:
                _let_come(lane, ended)

    def _next(self, lane: _Lane[Q, A], ended: int) -> Sequence[PendingLookup[Q, A]]:
        """Return whom to send for after a call of so many lookups; nobody where another call will."""
        with self._lock:
            lane.under_way -= ended
            lane.calls -= 1
            if not lane.waiting or not lane.has_room:
                return ()
            pending = lane.waiting[: self._lookups_max]
            del lane.waiting[: self._lookups_max]
            lane.calls += 1
            lane.under_way += len(pending)
            return pending

    def _send_call(self, lane: _Lane[Q, A], pending: Sequence[PendingLookup[Q, A]]) -> None:
        lookups_max = self._send(pending)
        if not lookups_max:
            self._let_go(lane, calls=0)
        elif lookups_max < self._lookups_max:
            self._lookups_max = lookups_max

    def _let_go(self, lane: _Lane[Q, A], *, calls: int) -> None:
        """Have those that wait try by themselves."""
        with self._lock:
            waiting, lane.waiting = lane.waiting, []
            lane.calls -= calls
        for each in waiting:
            each.end()
