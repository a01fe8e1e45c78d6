"""A task of maintenance: one bucket's files rewritten, in any process. Travels and answers as tasks of writing do."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fluss_lab.errors import CorruptDataError, FlussError, InternalError, UnsupportedError
from fluss_lab.failpoints import failpoint
from fluss_lab.lake import SupportsMaintenance, lake_storage
from fluss_lab.model import TableInfo
from fluss_lab.tiering.task.tiering_task import TaskResult

log = logging.getLogger(__name__)

#: Of a task's JSON: what `task_dispatch` knows it by.
KIND: Final = "maintain"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class MaintenanceTask:
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
        return json.dumps(
            {
                "kind": KIND,
                "version": VERSION,
                "index": self.index,
                "table": self.table.to_json(),
                "lake_format": self.lake_format,
                "lake_properties": dict(self.lake_properties),
                "task": dict(self.task),
            }
        ).encode()

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> MaintenanceTask:
        """Read the JSON of `to_bytes`.

        Raises:
            CorruptDataError: Another version, or no such task.
        """
        try:
            if value["kind"] != KIND or value["version"] != VERSION:
                raise CorruptDataError(
                    f"maintenance task: expected version {VERSION}, found {value['version']!r}; driver and workers run "
                    "different releases of fluss_lab"
                )
            return MaintenanceTask(
                int(value["index"]),
                TableInfo.from_json(value["table"]),
                str(value["lake_format"]),
                {str(key): str(text) for key, text in value["lake_properties"].items()},
                value["task"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptDataError(f"maintenance task: not the form of one: {error!r}") from error


def run(value: Mapping[str, Any]) -> TaskResult:
    """Run one task to its end. An error is part of the result; a task that fails leaves no file.

    Args:
        value: The JSON of a `MaintenanceTask`.

    Returns:
        `TaskResult.split_index` is the task's index, `TaskResult.write_result` what the lake's `compact` returned.

    Raises:
        CorruptDataError: It is no task of this release.
    """
    task = MaintenanceTask.from_json(value)
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
