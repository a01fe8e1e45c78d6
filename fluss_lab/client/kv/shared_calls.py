"""Calls that lookups of single keys share: what comes while calls are on their way goes out together with the next one.

Nothing waits for others to come: a lookup that finds fewer than `CALLS_AT_ONCE` calls under way is sent at once, by its own
thread. Others wait, and go out together when one of those calls ends, by a thread that sends for all. So who gives up
waiting (an interrupt) harms nobody else, and an answer is of a moment after its lookup began.
"""

from __future__ import annotations

import _thread
import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from fluss_lab.interrupts import Held

log = logging.getLogger(__name__)

#: To one server. While a call is answered the next one is made; more would each carry fewer lookups.
CALLS_AT_ONCE: Final = 2
#: Lookups of one call: beyond some hundreds a call's fixed cost is nothing beside them, and the last waits for the first.
SHARED_MAX: Final = 1024

Q = TypeVar("Q")
A = TypeVar("A")


class Asked(Generic[Q, A]):
    """A lookup under way.

    Attributes:
        what: What is looked up.
        answer: None until it is known; it stays so where the call failed: then it is looked up by itself.
    """

    __slots__ = ("_waiting", "answer", "what")

    def __init__(self, what: Q) -> None:
        self.what = what
        self.answer: A | None = None
        self._waiting = threading.Lock()
        self._waiting.acquire()

    def wait(self, held: Held) -> None:
        """Wait until its call has ended.

        Raises:
            KeyboardInterrupt: The main thread was interrupted; the call goes on.
        """
        held.until(self._waiting.acquire, self.end)
        held.deliver()

    def end(self) -> None:
        """Wake who waits; twice is fine (by a call's end and by an interrupt)."""
        try:
            self._waiting.release()
        except RuntimeError:
            return


class _Lane(Generic[Q, A]):
    """What is under way to one server."""

    __slots__ = ("calls", "waiting")

    def __init__(self) -> None:
        self.calls = 0
        self.waiting: list[Asked[Q, A]] = []


class SharedCalls(Generic[Q, A]):
    """Gathers lookups. Safe in any thread.

    Args:
        send: Makes one call for some lookups and sets their answers, where there are any. Returns how many lookups a call
            may have from now on; 0 when no server answered: those that wait then try by themselves, each for its own time.
    """

    def __init__(self, send: Callable[[Sequence[Asked[Q, A]]], int]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._lanes: dict[Hashable, _Lane[Q, A]] = {}
        self._shared_max = SHARED_MAX

    def answer(self, what: Q, server: Hashable) -> A | None:
        """Return the answer of a lookup; None where the call failed.

        Args:
            what: What is looked up.
            server: Whose answer it will be: a server that hangs delays only its own.

        Raises:
            KeyboardInterrupt: The main thread was interrupted.
        """
        asked: Asked[Q, A] = Asked(what)
        with Held() as held:
            with self._lock:
                if (lane := self._lanes.get(server)) is None:
                    lane = self._lanes[server] = _Lane()
                is_alone = lane.calls < CALLS_AT_ONCE
                if is_alone:
                    lane.calls += 1
                else:
                    lane.waiting.append(asked)
            if is_alone:
                try:
                    self._sent(lane, (asked,))
                finally:
                    self._go_on(lane)
            else:
                asked.wait(held)
        return asked.answer

    def _go_on(self, lane: _Lane[Q, A]) -> None:
        """After a call: have those sent that wait, by a thread that sends for all."""
        with self._lock:
            if not lane.waiting:
                lane.calls -= 1
                return
        try:
            _thread.start_new_thread(self._send_waiting, (lane,))
        except RuntimeError as error:
            log.info("lookups go on one by one: %s", error)
            self._let_go(lane, calls=1)

    def _send_waiting(self, lane: _Lane[Q, A]) -> None:
        while asked := self._next(lane):
            try:
                self._sent(lane, asked)
            except Exception:  # a defect must not leave callers waiting for ever; each then meets it by itself
                log.exception("a shared lookup failed")
            finally:
                for each in asked:
                    each.end()

    def _next(self, lane: _Lane[Q, A]) -> Sequence[Asked[Q, A]]:
        with self._lock:
            asked = lane.waiting[: self._shared_max]
            del lane.waiting[: self._shared_max]
            if not asked:
                lane.calls -= 1
            return asked

    def _sent(self, lane: _Lane[Q, A], asked: Sequence[Asked[Q, A]]) -> None:
        shared_max = self._send(asked)
        if not shared_max:
            self._let_go(lane, calls=0)
        elif shared_max < self._shared_max:
            self._shared_max = shared_max

    def _let_go(self, lane: _Lane[Q, A], *, calls: int) -> None:
        """Have those that wait try by themselves."""
        with self._lock:
            waiting, lane.waiting = lane.waiting, []
            lane.calls -= calls
        for each in waiting:
            each.end()
