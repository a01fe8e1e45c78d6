"""The stop of frames: an interrupt of `toArrow` and `toPandas` ends the query with the call."""

from __future__ import annotations

import contextlib
import uuid
from functools import wraps
from typing import Any, Final

from fluss_lab.interrupts import Held, run_interruptibly

#: What both go by.
_FETCH: Final = "_collect_as_arrow"


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
            # Only a thread of our own gets a tag: the caller's keeps what it has.
            if not held.is_interruptible:
                return fetch(frame, *arguments, **options)
            from pyspark.util import inheritable_thread_target

            session = frame.sparkSession
            context, tag = session.sparkContext, f"fluss_lab-fetch-{uuid.uuid4().hex}"

            def work() -> Any:
                context.setInterruptOnCancel(True)
                context.addJobTag(tag)
                return fetch(frame, *arguments, **options)

            def cancel() -> None:
                with contextlib.suppress(Exception):
                    context.cancelJobsWithTag(tag)

            return run_interruptibly(inheritable_thread_target(session)(work), cancel)

    return stoppable
