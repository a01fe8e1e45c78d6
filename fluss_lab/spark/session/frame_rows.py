"""All rows of a Spark frame, fetched so that an interrupt ends the query with the call."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

from fluss_lab.interrupts import Held, run_interruptibly

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def fetch_rows(frame: DataFrame) -> pa.Table:
    """Return all rows of a frame.

    Where a cell is stopped, pyspark's own `toArrow` waits until the query has ended by itself, which nobody tells it to,
    and raises the error of its broken pipe instead of the interrupt.

    Raises:
        KeyboardInterrupt: The main thread was interrupted; the query's jobs are cancelled.
        PySparkException: The query failed.
    """
    from pyspark.util import inheritable_thread_target

    session = frame.sparkSession
    context, tag = session.sparkContext, f"fluss_lab-fetch-{uuid.uuid4().hex}"

    def fetch() -> pa.Table:
        context.setInterruptOnCancel(True)
        context.addJobTag(tag)
        return frame.toArrow()

    def cancel() -> None:
        with contextlib.suppress(Exception):
            context.cancelJobsWithTag(tag)

    with Held() as held:
        # Only a thread of our own gets a tag: the caller's keeps what it has.
        if not held.is_interruptible:
            return frame.toArrow()
        return run_interruptibly(inheritable_thread_target(session)(fetch), cancel)
