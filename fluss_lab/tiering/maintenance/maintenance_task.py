"""A task of maintenance: one bucket's files rewritten, in any process. Travels and answers as tasks of writing do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from fluss_lab.errors import FlussError, InternalError, UnsupportedError
from fluss_lab.failpoints import failpoint
from fluss_lab.lake import SupportsMaintenance, lake_storage
from fluss_lab.model import TableInfo
from fluss_lab.model.json_codec import encode
from fluss_lab.tiering.task.tiering_task import TASK_VERSION, TaskResult

log = logging.getLogger(__name__)

VERSION: Final = 1


class MaintenanceTask(msgspec.Struct, frozen=True, tag_field="kind", tag="maintain"):
    """What one task does. It needs no server: only the lake's files.

    Attributes:
        index: Its position among the tasks of its plan.
        table: As planned.
        lake_format: As in ``table.datalake.format``.
        lake_properties: The lake format's configuration.
        task: From the lake's `CompactionPlan`.
    """

    index: int
    table: TableInfo
    lake_format: str
    lake_properties: Mapping[str, str]
    task: Mapping[str, Any]

    def to_bytes(self) -> bytes:
        """Return the task as versioned JSON. It may hold credentials of the file system: it is for workers only."""
        return encode(self, version=TASK_VERSION)


def run(task: MaintenanceTask) -> TaskResult:
    """Run one task to its end. An error is part of the result; a task that fails leaves no file.

    Returns:
        `TaskResult.split_index` is the task's index, `TaskResult.write_result` what the lake's `compact` returned.
    """
    try:
        storage = lake_storage(task.lake_format, task.lake_properties)
        if not isinstance(storage, SupportsMaintenance):
            raise UnsupportedError(f"lake format {task.lake_format!r}: it offers no maintenance")
        data = storage.compact(task.table, task.task)
        failpoint("maintenance.task.after")
        return TaskResult(task.index, write_version=VERSION, write_result=data)
    except FlussError as error:
        return TaskResult(task.index, error=error)
    except Exception as error:
        log.exception("maintenance task %d of %s failed", task.index, task.table.path)
        text = f"{task.table.path}: {type(error).__name__}: {error}"
        return TaskResult(task.index, error=InternalError(text))
