"""Executors of tiering tasks without Spark, for tests."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from fluss_lab.errors import UnavailableError
from fluss_lab.tiering.task.tiering_task import TaskNews, TaskProgress, TaskResult, parse_task, run_task


class LocalTieringExecutor:
    """Runs tasks in the calling process, one after another or by threads. Passes everything as bytes, as Spark does.

    Args:
        threads: Tasks at a time; 1: in the calling thread.
        parallelism: What the planner counts on; default: `threads`.
    """

    def __init__(self, threads: int = 1, *, parallelism: int | None = None) -> None:
        self._threads = threads
        self._parallelism = parallelism if parallelism is not None else threads
        self._cancelled = threading.Event()

    @property
    def parallelism(self) -> int:
        """Return how many tasks the planner may count on."""
        return self._parallelism

    @property
    def is_alive(self) -> bool:
        """Return True: there is nothing that could die."""
        return True

    def run(self, tasks: Sequence[bytes], progress: TaskProgress | None = None) -> list[bytes]:
        """Run every task; return results in order. After `cancel` the rest of the results are errors."""
        self._cancelled.clear()
        if self._threads == 1:
            results = [self._one(task) for task in tasks]
        else:
            with ThreadPoolExecutor(self._threads, thread_name_prefix="tiering-task") as pool:
                results = list(pool.map(self._one, tasks))
        if progress is not None:
            found = [TaskResult.from_bytes(each) for each in results]
            ended = [
                TaskNews(at, each.rows + each.events, each.size_bytes)
                for at, each in enumerate(found)
                if each.error is None
            ]
            progress(len(results), len(tasks), ended)
        return results

    def cancel(self) -> None:
        """Begin no further task."""
        self._cancelled.set()

    def _one(self, task: bytes) -> bytes:
        if self._cancelled.is_set():
            return TaskResult(parse_task(task).index, error=UnavailableError("tiering tasks: cancelled")).to_bytes()
        return run_task(task)
