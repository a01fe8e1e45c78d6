"""Executors of tiering tasks without Spark, for tests."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from fluss_lab.errors import UnavailableError
from fluss_lab.tiering.executor import TaskProgress
from fluss_lab.tiering.task import TaskResult, TieringTask, run_task


class LocalTieringExecutor:
    """Runs tasks in the calling process, one after another or by threads. Passes everything as bytes, as Spark does.

    Args:
        threads: Tasks at a time; 1: in the calling thread.
        parallelism: What the planner is told; default: `threads`.
    """

    def __init__(self, threads: int = 1, *, parallelism: int | None = None) -> None:
        self._threads = threads
        self._parallelism = parallelism if parallelism is not None else threads
        self._cancelled = threading.Event()

    @property
    def parallelism(self) -> int:
        """Return how many tasks the planner may count on."""
        return self._parallelism

    def run(self, tasks: Sequence[bytes], progress: TaskProgress | None = None) -> list[bytes]:
        """Run every task; return results in order. After `cancel` the rest of the results are errors."""
        self._cancelled.clear()
        if self._threads == 1:
            results = [self._one(task) for task in tasks]
        else:
            with ThreadPoolExecutor(self._threads, thread_name_prefix="tiering-task") as pool:
                results = list(pool.map(self._one, tasks))
        if progress is not None:
            progress(len(results), len(tasks))
        return results

    def cancel(self) -> None:
        """Begin no further task."""
        self._cancelled.set()

    def _one(self, task: bytes) -> bytes:
        if self._cancelled.is_set():
            index = TieringTask.from_bytes(task).split.split_index
            return TaskResult(index, error=UnavailableError("tiering tasks: cancelled")).to_bytes()
        return run_task(task)
