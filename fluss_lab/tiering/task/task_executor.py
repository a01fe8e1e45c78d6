"""The interface of executors that run the tasks of a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TaskNews:
    """A task that ended well, as its executor tells while others still run.

    Attributes:
        index: Its position among the tasks given to `TieringExecutor.run`.
        rows: Records that it wrote.
        size_bytes: Bytes of the files that it wrote.
    """

    index: int
    rows: int
    size_bytes: int


class TaskProgress(Protocol):
    """Called now and then while tasks run, from any thread."""

    def __call__(self, done: int, total: int, ended: Sequence[TaskNews] = ()) -> None:
        """Take news.

        Args:
            done: Tasks that ended.
            total: Tasks in all.
            ended: Tasks that ended well since the last call, as far as the executor knows; one may be told twice.
        """


class TieringExecutor(Protocol):
    """Runs tasks of `fluss_lab.tiering.task.task_dispatch.run_task`, anywhere. One round at a time; rounds of other executors beside."""

    @property
    def parallelism(self) -> int:
        """Return how many tasks run at once; splits are cut so that all of them have work."""
        ...

    @property
    def is_alive(self) -> bool:
        """Return whether a `run` may succeed. Once it is False it stays so: whoever needs an executor makes another."""
        ...

    def run(self, tasks: Sequence[bytes], progress: TaskProgress | None = None) -> list[bytes]:
        """Run every task and return what `run_task` returned, in the order of the tasks.

        A task may run more than once (after a failure, or speculatively); exactly one of its results is returned.

        Raises:
            FlussError: The tasks could not be run, or were cancelled; the text is one line.
        """
        ...

    def cancel(self) -> None:
        """Make a `run` under way in another thread end soon, with an error. Nothing runs: nothing happens."""
        ...
