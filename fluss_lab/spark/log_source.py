"""The data source of the log's part of frames, as Spark's planning processes load it.

Spark starts a process of Python to make the source and another to plan its read, before any task. What they need is decided
when the frame is made and in the options; so this module imports nothing that only tasks need, which took either half a
second of CPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import types as T  # noqa: N812

#: The name under which the source is registered with a session.
FORMAT: Final = "fluss_lab_log"
#: Options: what all tasks share, and what each of them reads, both as JSON; and the token, which Spark shows nowhere by this name.
PLAN: Final = "plan"
TASKS: Final = "tasks"
TOKEN: Final = "token"  # noqa: S105  # a name


class LogSource(DataSource):
    """The data source; made by `fluss_lab.spark.source.log_range_source` only."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._plan = options.get(PLAN, "")
        self._tasks = options.get(TASKS, "[]")
        self._token = options.get(TOKEN, "")

    @classmethod
    def name(cls) -> str:
        """Return the name it is registered under."""
        return FORMAT

    def reader(self, schema: T.StructType) -> DataSourceReader:
        """Return the reader of the plan given in the options."""
        return LogReader(self._plan, self._tasks, self._token, schema)


class LogPartition(InputPartition):
    """What one task reads, as JSON."""

    def __init__(self, task: str) -> None:
        super().__init__(task)
        self.task = task


class LogReader(DataSourceReader):
    """Reads a plan's tasks from the server."""

    def __init__(self, plan: str, tasks: str, token: str, schema: T.StructType) -> None:
        self._plan = plan
        self._tasks = tasks
        self._token = token
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return one partition a task."""
        return [LogPartition(task) for task in json.loads(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, in Spark's Arrow types."""
        from fluss_lab.spark.log_task import read_task

        assert isinstance(partition, LogPartition)
        return read_task(self._plan, partition.task, self._token, self._schema)
