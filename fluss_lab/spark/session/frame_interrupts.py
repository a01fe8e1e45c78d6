"""The stop of frames: an interrupt of `toArrow` and `toPandas` ends the query with the call."""

from __future__ import annotations

import _thread
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from fluss_lab.interrupts import Held

if TYPE_CHECKING:
    from pyspark import SparkContext

#: What both go by.
_FETCH: Final = "_collect_as_arrow"
#: Whether Spark interrupts the tasks of a query that is cancelled.
_INTERRUPTED: Final = "spark.job.interruptOnCancel"
#: A query that was just about to begin a job does not notice the first call.
_CANCEL_INTERVAL_S: Final = 0.5


def cancel_stopped_fetches() -> None:
    """Have frames whose rows are fetched end their query when the main thread is interrupted, and raise the interrupt.

    A notebook's stop button tells Spark nothing: pyspark waits until the query has ended by itself, and then raises what its
    broken pipe says. It changes pyspark's own class: frames of every session are stopped so. Twice is fine.
    """
    from pyspark.sql.classic.dataframe import DataFrame

    fetch: Any = getattr(DataFrame, _FETCH, None)
    if fetch is not None and not hasattr(fetch, "__wrapped__"):
        setattr(DataFrame, _FETCH, _stoppable(fetch))


def _stoppable(fetch: Any) -> Any:
    @wraps(fetch)
    def stoppable(frame: Any, *arguments: Any, **options: Any) -> Any:
        with Held() as held:
            if not held.is_interruptible:
                return fetch(frame, *arguments, **options)
            found: list[Any] = []
            context = frame.sparkSession.sparkContext
            with _tagged(context) as tag, _Stop(lambda: context.cancelJobsWithTag(tag)) as stop:
                try:
                    held.wait(lambda: found.append(fetch(frame, *arguments, **options)), stop.begin)
                except Exception:
                    held.deliver()  # it failed because it was stopped
                    raise
            held.deliver()
            return found[0] if found else fetch(frame, *arguments, **options)  # a handler that only takes note

    return stoppable


@contextmanager
def _tagged(context: SparkContext) -> Iterator[str]:
    """Give the jobs that this thread begins in the block a tag of their own, by which they can be cancelled."""
    tag, before = f"fluss_lab-fetch-{uuid.uuid4().hex}", context.getLocalProperty(_INTERRUPTED)
    context.addJobTag(tag)
    context.setInterruptOnCancel(True)
    try:
        yield tag
    finally:
        with suppress(Exception):  # a Spark that is gone: the fetch says so
            context.removeJobTag(tag)
            context.setLocalProperty(_INTERRUPTED, before)  # type: ignore[arg-type]  # None takes it away


class _Stop:
    """Cancels, again and again, from an interrupt until the end of the block. A second interrupt is raised at once."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel
        self._has_begun = False
        self._ended = _thread.allocate_lock()
        self._ended.acquire()

    def __enter__(self) -> _Stop:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.release()

    def begin(self) -> None:
        """Begin to cancel. For a signal's handler: the thread begins without a lock that the interrupted one may hold."""
        if self._has_begun:
            raise KeyboardInterrupt
        self._has_begun = True
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        has_ended = False
        while not has_ended:
            with suppress(Exception):  # a Spark that is gone: the fetch says so
                self._cancel()
            has_ended = self._ended.acquire(timeout=_CANCEL_INTERVAL_S)
