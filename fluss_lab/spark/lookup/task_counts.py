"""The counts of the tasks of lookup joins, brought to the driver as they end."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam

#: Of a task's attempt, and the number by which its rows were distributed.
TaskKey: TypeAlias = tuple[int, int]
#: Of a stream that runs for days, the last ones.
COUNTS_MAX: Final = 10_000


class _Newest(AccumulatorParam[dict[TaskKey, dict[str, Any]]]):
    """Joins dicts; the oldest entries beyond a limit go."""

    def zero(self, value: dict[TaskKey, dict[str, Any]]) -> dict[TaskKey, dict[str, Any]]:
        """Return nothing."""
        del value
        return {}

    def addInPlace(  # noqa: N802  # Spark's name
        self, value1: dict[TaskKey, dict[str, Any]], value2: dict[TaskKey, dict[str, Any]]
    ) -> dict[TaskKey, dict[str, Any]]:
        """Return both."""
        value1.update(value2)
        while len(value1) > COUNTS_MAX:
            value1.pop(next(iter(value1)))
        return value1


class TaskCounts:
    """The counts of tasks that ended well: `add` in tasks, `rows` on the driver.

    Args:
        context: Of the session whose tasks count.
    """

    def __init__(self, context: SparkContext) -> None:
        self._counts: Accumulator[dict[TaskKey, dict[str, Any]]] = context.accumulator({}, _Newest())

    def add(self, key: TaskKey, counts: dict[str, Any]) -> None:
        """Add what a task counted."""
        self._counts.add({key: counts})

    def rows(self) -> list[dict[str, Any]]:
        """Return what each task counted, in the order in which they ended."""
        # A copy is taken in one step of the interpreter; updates come in another thread.
        return list(dict(self._counts.value).values())
