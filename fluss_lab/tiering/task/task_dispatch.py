"""The kinds of tasks: each runs where its JSON says, and answers with a `TaskResult`."""

from __future__ import annotations

from typing import Any, Final

from fluss_lab.model.json_codec import decode
from fluss_lab.tiering.maintenance import maintenance_task
from fluss_lab.tiering.maintenance.maintenance_task import MaintenanceTask
from fluss_lab.tiering.task import tiering_task
from fluss_lab.tiering.task.tiering_task import TASK_VERSION, TieringTask

#: A task of any kind: each says its own.
_TASK: Final[Any] = TieringTask | MaintenanceTask


def run_task(data: bytes) -> bytes:
    """Run one task to its end and return its `TaskResult` as bytes.

    It may run in any process that can reach the server and the lake's files, again and again: every attempt writes
    files of its own, and one that fails removes them. An error is part of the result, so that the results of other
    tasks, and thereby their files, stay known.

    Args:
        data: A `TieringTask` or `MaintenanceTask` as bytes.

    Raises:
        CorruptDataError: The bytes are no task of this release.
    """
    task = parse_task(data)
    result = tiering_task.run(task) if isinstance(task, TieringTask) else maintenance_task.run(task)
    return result.to_bytes()


def parse_task(data: bytes) -> TieringTask | MaintenanceTask:
    """Return the task of some bytes; its `index` is what its `TaskResult` has as `split_index`.

    Raises:
        CorruptDataError: They are no task of this release.
    """
    found: TieringTask | MaintenanceTask = decode(_TASK, data, "tiering task", version=TASK_VERSION, peer=True)
    return found
