"""The accumulator by which workers report tasks that ended, while others still run.

Spark brings an accumulator's update to the driver with the task that made it, once that has succeeded; updates of failed
and of losing attempts are dropped, or tell the same twice. Keyed by task they count once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.accumulators import Accumulator, AccumulatorParam, _accumulatorRegistry

from fluss_lab.tiering.task.tiering_task import TaskNews

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

#: Task -> rows and bytes.
Ended: TypeAlias = dict[int, tuple[int, int]]


class _Union(AccumulatorParam[Ended]):
    """Joins dicts."""

    def zero(self, value: Ended) -> Ended:
        """Return nothing."""
        del value
        return {}

    def addInPlace(self, value1: Ended, value2: Ended) -> Ended:  # noqa: N802  # Spark's name
        """Return both."""
        value1.update(value2)
        return value1


class News:
    """Collects what workers tell. Give it to the function that they run; `tell` there, `fresh` on the driver."""

    def __init__(self, told: Accumulator[Ended]) -> None:
        self._told = told

    def tell(self, index: int, rows: int, size_bytes: int) -> None:
        """Tell of a task that ended well; called in a worker."""
        self._told.add({index: (rows, size_bytes)})

    def fresh(self, known: set[int]) -> Sequence[TaskNews]:
        """Return the tasks that ended and are not among the known ones, and add them there; called on the driver."""
        # A copy is taken in one step of the interpreter; updates come in another thread.
        ended = {index: each for index, each in dict(self._told.value).items() if index not in known}
        known.update(ended)
        return [TaskNews(index, rows, size_bytes) for index, (rows, size_bytes) in ended.items()]


def _ignore(_request: object, client_address: object) -> None:
    log.debug("no more updates of accumulators from %s", client_address, exc_info=True)


@contextmanager
def listening(context: SparkContext) -> Iterator[News]:
    """Collect news while the block runs; pyspark itself would keep what an accumulator collected for ever."""
    told = context.accumulator({}, _Union())
    # When the JVM dies, the round's error tells it; the thread that waits for updates would print a traceback as well.
    server: Any = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = _ignore
    try:
        yield News(told)
    finally:
        _accumulatorRegistry.pop(told.aid, None)
