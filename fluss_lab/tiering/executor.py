"""Where the tasks of a round run: the seam between tiering and whatever computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

#: Called with tasks done and tasks in all.
TaskProgress = Callable[[int, int], None]


class TieringExecutor(Protocol):
    """Runs tasks of `fluss_lab.tiering.task.run_task`, anywhere. One round at a time; rounds of other executors beside."""

    @property
    def parallelism(self) -> int:
        """Return how many tasks run at once; splits are cut so that all of them have work."""
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
