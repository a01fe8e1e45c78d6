"""The kinds of tasks: each runs where its JSON says, and answers with a `TaskResult`."""

from __future__ import annotations

import json
from typing import Any

from fluss_lab.errors import CorruptDataError
from fluss_lab.tiering.maintenance import maintenance_task
from fluss_lab.tiering.task import tiering_task
from fluss_lab.tiering.task.tiering_task import KIND, WRITE, TieringTask


def run_task(data: bytes) -> bytes:
    """Run one task to its end and return its `TaskResult` as bytes.

    It may run in any process that can reach the server and the lake's files, again and again: every attempt writes
    files of its own, and one that fails removes them. An error is part of the result, so that the results of other
    tasks, and thereby their files, stay known.

    Args:
        data: A `TieringTask` as bytes.

    Raises:
        CorruptDataError: The bytes are no task of this release.
    """
    value = _maintenance(data)
    result = tiering_task.run(TieringTask.from_bytes(data)) if value is None else maintenance_task.run(value)
    return result.to_bytes()


def task_index(data: bytes) -> int:
    """Return the number of a task of any kind, which its `TaskResult` has as `split_index`.

    Raises:
        CorruptDataError: The bytes are no task of this release.
    """
    value = _maintenance(data)
    return TieringTask.from_bytes(data).split.split_index if value is None else int(value["index"])


def _maintenance(data: bytes) -> dict[str, Any] | None:
    """Return the JSON of a task of maintenance; None for one that writes a split.

    Raises:
        CorruptDataError: No task, or of a kind that this release does not know.
    """
    try:
        value = json.loads(data)
        kind = value.get(KIND, WRITE)  # each kind checks its own version
    except (ValueError, AttributeError) as error:
        raise CorruptDataError(f"tiering task: not the form of a task: {type(error).__name__}") from error
    if kind not in (WRITE, maintenance_task.KIND):
        raise CorruptDataError(f"tiering task: expected kind {WRITE!r} or {maintenance_task.KIND!r}, found {kind!r}")
    return value if kind == maintenance_task.KIND else None
