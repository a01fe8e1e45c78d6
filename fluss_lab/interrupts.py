"""Interrupts of the main thread (Ctrl-C, a notebook's stop button), deferred where they would break shared state.

Python raises `KeyboardInterrupt` between any two steps of the main thread: also after the step that acquires a lock and
before the one that releases it, in the standard library (`threading.Condition`) as in gRPC. The lock then stays acquired,
and the next call waits for ever. Within a `Held` block an interrupt is only recorded, and ends the block's present wait; it
is delivered where the block calls `deliver`, at the latest at its end. Other threads are never interrupted: for them the
block does nothing.

The handler that is set for the signal when a block begins (a notebook's, Spark's, the user's own) is called in the end, as
if the signal had arrived a little later.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import copy_context
from importlib import import_module
from signal import SIGINT
from threading import get_ident, main_thread
from types import FrameType, TracebackType
from typing import Any, Final, Self, TypeVar

_JOIN_INTERVAL_S: Final = 0.05

_Handler = Callable[[int, FrameType | None], object]

T = TypeVar("T")
#: A signal that comes after Python has looked for one and before the wait for a lock begins does not end that wait, and neither does one
#: that another thread gets. So the main thread waits for so long at most, and looks, and waits on.
_WAIT_MAX_S: Final = 0.1
#: How often an event that cancels is looked at: a person does not see the delay.
_LOOK_INTERVAL_S: Final = 0.1
#: Between two calls of `cancel`: work that was just about to begin did not hear the first.
_CANCEL_INTERVAL_S: Final = 0.5
#: Work that does not end, because lake or server do not answer, is left behind; it cannot commit.
_CANCEL_TIMEOUT_S: Final = 60.0


class _Recorder:
    """The signal's handler within a block."""

    __slots__ = ("before", "pending", "wakes")

    def __init__(self, before: _Handler) -> None:
        self.before = before
        self.pending = False
        #: Ends the present waits, the innermost last.
        self.wakes: list[Callable[[], object]] = []

    def __call__(self, _signum: int, _frame: FrameType | None) -> None:
        self.pending = True
        for wake in self.wakes[-1:]:
            wake()


class Held:
    """Defers interrupts while its block runs. Nested blocks share the deferred interrupt."""

    __slots__ = ("_is_outermost", "_recorder")

    def __init__(self) -> None:
        self._recorder: _Recorder | None = None
        self._is_outermost = False

    def __enter__(self) -> Self:
        if may_arrive():
            before = _signal.getsignal(SIGINT)
            if isinstance(before, _Recorder):
                self._recorder = before
            elif callable(before):  # else the signal is ignored, ends the process, or is not Python's
                self._recorder, self._is_outermost = _Recorder(before), True
                _signal.signal(SIGINT, self._recorder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is None or not self._is_outermost:
            return
        if _signal.getsignal(SIGINT) is recorder:  # else another handler, such as Spark's, was set meanwhile
            _signal.signal(SIGINT, recorder.before)
        if recorder.pending:
            recorder.pending = False
            # One that is on its way already may report what became of a write: another one would take its place.
            with suppress(KeyboardInterrupt) if isinstance(error, KeyboardInterrupt) else nullcontext():
                recorder.before(SIGINT, None)

    @property
    def is_interruptible(self) -> bool:
        """Return whether an interrupt may arrive, so that waits must be ready for it."""
        return self._recorder is not None

    @property
    def is_pending(self) -> bool:
        """Return whether an interrupt arrived that was not delivered."""
        return self._recorder is not None and self._recorder.pending

    def deliver(self) -> None:
        """Deliver a pending interrupt; without one nothing happens.

        Raises:
            KeyboardInterrupt: One was pending, unless a custom handler does something else.
        """
        recorder = self._recorder
        if recorder is not None and recorder.pending:
            recorder.pending = False
            recorder.before(SIGINT, None)

    def wait(self, wait: Callable[[], object], wake: Callable[[], object]) -> None:
        """Wait, unless an interrupt is pending; one that arrives meanwhile calls `wake`, which ends the wait.

        Args:
            wait: Returns at once when `wake` was called before.
            wake: Called between any two steps of this thread, perhaps more than once; takes no lock that this thread may
                hold.
        """
        recorder = self._recorder
        if recorder is None:
            wait()
            return
        recorder.wakes.append(wake)
        try:
            if not recorder.pending:
                wait()
        finally:
            recorder.wakes.pop()

    def until_released(self, lock: threading.Lock, wake: Callable[[], object], timeout_s: float | None = None) -> None:
        """Wait for a lock, acquired then, or until the time is up, as `until` waits.

        Args:
            lock: Released by another thread, or by `wake`.
            wake: See `until`.
            timeout_s: None: for ever.
        """
        part_s = threading.TIMEOUT_MAX if self._recorder is None else _WAIT_MAX_S
        self.wait(lambda: _acquire_in_parts(lock, timeout_s, part_s), wake)


#: Used by other threads than the main one. It has no state.
_NEVER: Final = Held()


def may_arrive() -> bool:
    """Return whether interrupts arrive in this thread; in others a `Held` block can be left out, where it is too dear."""
    return get_ident() == main_thread().ident


class Monitor:
    """A lock and its condition, as `threading.Condition`, which interrupts do not break.

    Its block is a `Held` one. An interrupt ends a wait and is delivered there, and the lock is released.
    The lock is not reentrant.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: list[threading.Lock] = []
        #: The block of the thread that holds the lock.
        self._held = _NEVER

    def __enter__(self) -> Self:
        held = Held().__enter__() if may_arrive() else _NEVER
        self._lock.acquire()
        self._held = held
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held = self._held
        self._lock.release()
        if held is not _NEVER:
            held.__exit__(kind, error, trace)

    def notify_all(self) -> None:
        """Wake all waiters. The caller holds the lock."""
        for waiter in self._waiters:
            _release(waiter)
        self._waiters.clear()

    def wait(self, timeout_s: float | None = None) -> None:
        """Release the lock until a notification or the time-out. The caller holds the lock before and after.

        Raises:
            KeyboardInterrupt: The main thread was interrupted.
        """
        held, waiter = self._held, threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        self._lock.release()
        try:
            held.until_released(waiter, lambda: _release(waiter), timeout_s)
        finally:
            self._lock.acquire()
            self._held = held
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        held.deliver()

    def wait_for(self, predicate: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Wait until a predicate is true; return False when the time is up before.

        Raises:
            KeyboardInterrupt: The main thread was interrupted.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not predicate():
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            self.wait(left_s)
        return True


class Flag(threading.Event):
    """An event that interrupts do not break; see `Monitor`."""

    def __init__(self) -> None:
        super().__init__()
        self._monitor = Monitor()
        self._is_set = False

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake all waiters."""
        with self._monitor:
            self._is_set = True
            self._monitor.notify_all()

    def clear(self) -> None:
        """Reset it."""
        with self._monitor:
            self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; return whether it is.

        Raises:
            KeyboardInterrupt: The main thread was interrupted.
        """
        if not self._is_set:
            with self._monitor:
                self._monitor.wait_for(self.is_set, timeout)
        return self._is_set


def import_whole(name: str) -> Any:
    """Import a module and what it needs at one go; an interrupt waits for its end.

    Packages with compiled parts, as numpy, pandas and matplotlib, are not imported again in this process where the first import was
    interrupted: the compiled parts are there, and know of the first.
    """
    with Held():
        return import_module(name)


def join_threads(threads: Iterable[threading.Thread], timeout_s: float | None = None) -> bool:
    """Wait until threads have ended, except for the calling one; return False when the time is up before.

    Raises:
        KeyboardInterrupt: The main thread was interrupted.
    """
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    with Held() as held:
        for thread in threads:
            while thread.is_alive() and thread is not threading.current_thread():
                held.deliver()
                left_s = _JOIN_INTERVAL_S if deadline_s is None else deadline_s - time.monotonic()
                if left_s <= 0:
                    return False
                thread.join(min(left_s, _JOIN_INTERVAL_S))
    return True


@contextmanager
def cancelled_by(event: threading.Event | None, cancel: Callable[[], object]) -> Iterator[None]:
    """While the block runs, call `cancel` when an event is set, and again while it goes on.

    Args:
        event: Anyone's; None: nobody cancels.
        cancel: Makes the block end soon; called in a thread of its own.
    """
    if event is None:
        yield
        return
    done = Flag()

    def watch() -> None:
        pause_s = _LOOK_INTERVAL_S
        while not done.wait(pause_s):
            if event.is_set():
                cancel()
                pause_s = _CANCEL_INTERVAL_S

    thread = threading.Thread(target=watch, name="fluss-cancel", daemon=True)
    with Held():
        thread.start()
    try:
        yield
    finally:
        done.set()
        join_threads([thread])


def _acquire_in_parts(lock: threading.Lock, timeout_s: float | None, part_s: float) -> None:
    """Acquire a lock by waits of so long at most, between which Python looks for signals; give up when the time is up."""
    left_s = math.inf if timeout_s is None else max(0.0, timeout_s)
    deadline_s = time.monotonic() + left_s
    while not lock.acquire(True, min(part_s, left_s)) and left_s > 0:
        left_s = max(0.0, deadline_s - time.monotonic())


def _release(waiter: threading.Lock) -> None:
    try:
        waiter.release()
    except RuntimeError:
        return  # by an interrupt and by a notification, or by two interrupts


def run_interruptibly(work: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Return what work returns, done in a thread of its own when the calling one can be interrupted.

    An interrupt cancels the work, is raised when the work has ended, and a second one at once.

    Args:
        work: Raises when it was cancelled.
        cancel: Makes it end soon. Called again while it goes on.

    Raises:
        KeyboardInterrupt: The main thread was interrupted, whether or not the work was done by then.
    """
    with Held() as held:
        if not held.is_interruptible:
            return work()
        done, returned, raised = Flag(), list[T](), list[BaseException]()

        def run() -> None:
            try:
                returned.append(work())
            except BaseException as error:
                raised.append(error)
            finally:
                done.set()

        context = copy_context()  # what the work shows belongs to the notebook's cell
        threading.Thread(target=context.run, args=(run,), name="fluss-round", daemon=True).start()
        try:
            done.wait()
        except KeyboardInterrupt:
            with suppress(KeyboardInterrupt):
                deadline_s = time.monotonic() + _CANCEL_TIMEOUT_S
                while not done.is_set() and time.monotonic() < deadline_s:
                    cancel()
                    done.wait(_CANCEL_INTERVAL_S)
            raise
        if raised:
            raise raised[0]
        return returned[0]
