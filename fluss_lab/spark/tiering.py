"""Tiering tasks on Spark: one task a split, results as bytes, errors in one line."""

from __future__ import annotations

import contextlib
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from fluss_lab.errors import (
    ConflictError,
    CorruptDataError,
    FlussError,
    InternalError,
    InvalidError,
    NotFoundError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from fluss_lab.tiering.executor import TaskProgress
from fluss_lab.tiering.task import TaskResult, run_task

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: The FAIR pool of tiering jobs: beside a person's own jobs, not before or behind them.
POOL: Final = "fluss_lab_tiering"
#: A Spark task costs some 5 ms of scheduling. Beyond so many a worker, several splits share one.
TASKS_PER_WORKER_MAX: Final = 16
#: How often progress is looked up.
PROGRESS_INTERVAL_S: Final = 0.2
#: Errors that no other attempt would mend.
FINAL_ERRORS: Final = (ConflictError, CorruptDataError, InvalidError, NotFoundError, OffsetOutOfRangeError)

_ATTEMPTS: Final = "fluss_lab.tiering.attempts"
_LOCAL_PROPERTIES: Final = (
    "spark.scheduler.pool",
    "spark.jobGroup.id",
    "spark.job.description",
    "spark.job.interruptOnCancel",
    _ATTEMPTS,
)
#: `spark.task.maxFailures` of a master that is not local.
_ATTEMPTS_DEFAULT: Final = 4
_MESSAGE_LENGTH_MAX: Final = 500


class SparkTieringExecutor:
    """Runs the tasks of one round after another on a Spark session.

    Args:
        session: Where; its workers reach the server and the lake's files.
        pool: Scheduler pool of the jobs.
    """

    def __init__(self, session: SparkSession, *, pool: str = POOL) -> None:
        self._session = session
        self._pool = pool
        self._lock = threading.Lock()
        self._group: str | None = None
        self._cancelled = False

    @property
    def parallelism(self) -> int:
        """Return how many tasks Spark runs at once."""
        return max(1, int(self._session.sparkContext.defaultParallelism))

    def run(self, tasks: Sequence[bytes], progress: TaskProgress | None = None) -> list[bytes]:
        """Run every task in one Spark job and return their results in order.

        A task that fails is tried again as often as the session allows (``local[*,3]``: three times in all); after
        that its error is its result.

        Raises:
            UnavailableError: The job was cancelled, or workers died; the text is Spark's first line.
        """
        context = self._session.sparkContext
        group = f"fluss_lab-tiering-{uuid.uuid4().hex}"
        hands = deal(list(range(len(tasks))), TASKS_PER_WORKER_MAX * self.parallelism)
        with self._lock:
            self._group, self._cancelled = group, False
        try:
            with (
                self._job_properties(context, group, f"tiering: {len(tasks)} splits"),
                _watched(context, group, len(tasks), len(hands), progress),
            ):
                given = context.parallelize([[tasks[index] for index in hand] for hand in hands], len(hands))
                results: list[bytes] = given.mapPartitions(run_partition).collect()
        except FlussError:
            raise
        except Exception as error:
            raise self._translated(error) from None
        except BaseException:  # Ctrl-C in a notebook
            with contextlib.suppress(Exception):
                context.cancelJobGroup(group)
            raise
        finally:
            with self._lock:
                self._group = None
        if len(results) != len(tasks):
            raise InternalError(f"Spark gave {len(results)} results for {len(tasks)} tiering tasks")
        if progress is not None:
            progress(len(tasks), len(tasks))
        return [result for _, result in sorted(zip((index for hand in hands for index in hand), results, strict=True))]

    def cancel(self) -> None:
        """Cancel the job under way, if there is one."""
        with self._lock:
            group, self._cancelled = self._group, True
        if group is not None:
            with contextlib.suppress(Exception):
                self._session.sparkContext.cancelJobGroup(group)

    def _translated(self, error: Exception) -> FlussError:
        if self._cancelled:
            return UnavailableError("the tiering round's Spark job was cancelled")
        return UnavailableError(f"the tiering round's Spark job failed: {one_line(error)}")

    @contextlib.contextmanager
    def _job_properties(self, context: SparkContext, group: str, description: str) -> Iterator[None]:
        """Set what Spark keeps per thread for jobs, and put back what the caller had."""
        before = {name: context.getLocalProperty(name) for name in _LOCAL_PROPERTIES}
        context.setJobGroup(group, description, interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", self._pool)
        context.setLocalProperty(
            _ATTEMPTS, str(attempts_of(str(context.master), context.getConf().get("spark.task.maxFailures")))
        )
        try:
            yield
        finally:
            with contextlib.suppress(Exception):
                for name, value in before.items():
                    context.setLocalProperty(name, value)  # type: ignore[arg-type]


def attempts_of(master: str, configured: str | None) -> int:
    """Return how often Spark tries a task: ``local[N,F]`` says so itself, plain ``local[N]`` tries once."""
    if match := re.fullmatch(r"local\[[^,\]]+,\s*(\d+)\s*\]", master):
        return int(match.group(1))
    if re.fullmatch(r"local(\[[^,\]]+\])?", master):
        return 1
    return int(configured) if configured and configured.isdigit() else _ATTEMPTS_DEFAULT


def deal(tasks: Sequence[int], hands: int) -> list[list[int]]:
    """Return tasks dealt out to at most so many hands, as cards are: the first ones, which are the biggest, apart."""
    count = min(len(tasks), hands)
    return [list(tasks[first::count]) for first in range(count)]


def run_partition(hands: Iterable[list[bytes]]) -> Iterator[bytes]:
    """Run tasks in a Spark worker. An error that may pass is raised while Spark will try again, else it is the result."""
    from pyspark import TaskContext

    context = TaskContext.get()
    attempts = int((context.getLocalProperty(_ATTEMPTS) if context else None) or 1)
    last = context is None or context.attemptNumber() + 1 >= attempts
    yielded = False
    for task in (task for hand in hands for task in hand):
        result = run_task(task)
        error = TaskResult.from_bytes(result).error
        if error is not None and not last and not isinstance(error, FINAL_ERRORS):
            if not yielded:
                raise error
            # Spark would run the whole partition again, and write its finished splits twice.
            result = run_task(task)
        yield result
        yielded = True


def one_line(error: Exception) -> str:
    """Return the line of a Spark error that says what happened, without the stacks of two languages."""
    java = getattr(error, "java_exception", None)
    text = str(error)
    if java is not None:
        with contextlib.suppress(Exception):
            text = str(java.getMessage() or java.toString())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # A worker's Python traceback ends with the error itself; what is Java's begins with "at".
    python = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Interrupt): ", line)]
    line = python[-1] if python else lines[0] if lines else type(error).__name__
    return line if len(line) <= _MESSAGE_LENGTH_MAX else line[:_MESSAGE_LENGTH_MAX] + " ..."


@contextlib.contextmanager
def _watched(
    context: SparkContext, group: str, tasks: int, hands: int, progress: TaskProgress | None
) -> Iterator[None]:
    """Report progress from a thread of its own while the block runs."""
    if progress is None:
        yield
        return
    from pyspark import InheritableThread

    done = threading.Event()

    def watch() -> None:
        last = 0
        while not done.wait(PROGRESS_INTERVAL_S):
            completed = tasks * _completed(context.statusTracker(), group) // max(1, hands)
            if completed > last:
                last = completed
                progress(completed, tasks)

    thread = InheritableThread(target=watch, name="fluss-tiering-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _completed(tracker: Any, group: str) -> int:
    """Return how many Spark tasks of a job group are done; 0 when Spark does not say."""
    completed = 0
    with contextlib.suppress(Exception):
        for job_id in tracker.getJobIdsForGroup(group):
            job = tracker.getJobInfo(job_id)
            for stage_id in job.stageIds if job is not None else ():
                stage = tracker.getStageInfo(stage_id)
                completed += int(stage.numCompletedTasks) if stage is not None else 0
    return completed
