"""Threads for work that is done at the same time, started and waited for without an interrupt breaking their locks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from fluss_lab.interrupts import Flag, Held

R = TypeVar("R")


class Work(Generic[R]):
    """A piece of work that was handed to a pool."""

    __slots__ = ("_done", "_future")

    def __init__(self, future: Future[R]) -> None:
        self._future = future
        self._done = Flag()
        future.add_done_callback(self._set_done)

    def _set_done(self, _future: object) -> None:
        self._done.set()

    def result(self) -> R:
        """Wait for and return what the work returned, or raise what it raised.

        Raises:
            KeyboardInterrupt: The main thread was interrupted.
        """
        self._done.wait()
        with Held():
            return self._future.result(0)


class WorkPool:
    """A pool of threads as `ThreadPoolExecutor`, which interrupts of the main thread do not break; see `interrupts`.

    Args:
        threads: At most so many, each started when there is work for it.
        name: The beginning of their names.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def submit(self, call: Callable[[], R]) -> Work[R]:
        """Hand over work."""
        with Held():
            return Work(self._executor.submit(call))

    def close(self) -> None:
        """Have the threads end after the work under way, which is not waited for; what was not begun is dropped."""
        with Held():
            self._executor.shutdown(wait=False, cancel_futures=True)
