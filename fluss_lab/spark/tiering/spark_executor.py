"""The executor of tiering tasks on Spark: one task a split, results as bytes, errors in one line.

A round is one Spark job with a job group and, while it runs, a thread of its own. Rounds of several tables run beside each
other in one Spark application, each in the FAIR pool of its executor: tasks of all of them get their turn, a long round
holds up none, and failing or cancelling one leaves the others alone.

Spark runs a task again that failed, whose worker or executor died, or (speculatively) that is slow. It takes one result
of each, and only files named there are committed: an attempt that lost, or died before it could clean up, leaves files
that nothing refers to, which maintenance removes.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.accumulators import Accumulator, AccumulatorParam, _accumulatorRegistry

from fluss_lab.errors import (
    ConflictError,
    CorruptDataError,
    FlussError,
    InternalError,
    InvalidError,
    NotFoundError,
    OffsetOutOfRangeError,
    TieringCancelledError,
    UnavailableError,
    UnsupportedError,
)
from fluss_lab.spark.session.jvm_launch import is_alive
from fluss_lab.spark.session.spark_errors import disk_refusal
from fluss_lab.spark.session.worker_placement import attempts_of, release
from fluss_lab.tiering.task.tiering_task import TaskNews, TaskProgress, TaskResult, run_task

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


log = logging.getLogger(__name__)

#: The FAIR pool of tiering jobs: beside a person's own jobs, not before or behind them.
POOL: Final = "fluss_lab_tiering"
#: A Spark task costs some 5 ms of scheduling. Beyond so many a worker, several splits share one.
TASKS_PER_WORKER_MAX: Final = 16
#: How often progress is looked up: a person sees it move, and it costs a look at a dict.
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
_MESSAGE_LENGTH_MAX: Final = 500

#: How the error of workers with another release begins in Python's traceback.
_RELEASE_ERROR: Final = f"{UnsupportedError.__module__}.{UnsupportedError.__name__}: "
#: Task -> rows and bytes.
_Ended: TypeAlias = dict[int, tuple[int, int]]


class SparkTieringExecutor:
    """Runs the tasks of one round after another on a Spark session. Other threads may `cancel`, and look at it.

    Args:
        session: Where; its workers reach the server and the lake's files, see `fluss_lab.spark.tiering.cluster_preflight`.
        pool: FAIR pool of the jobs. Executors that work at the same time should have one each: within a pool, jobs that
            came first go first.
    """

    def __init__(self, session: SparkSession, *, pool: str = POOL) -> None:
        self._session = session
        self._pool = pool
        self._lock = threading.Lock()
        self._group: str | None = None
        self._cancelled = False

    @property
    def parallelism(self) -> int:
        """Return how many tasks Spark runs at once, with the executors that it has now.

        Raises:
            UnavailableError: Spark is gone.
        """
        try:
            return max(1, int(self._session.sparkContext.defaultParallelism))
        except Exception as error:  # py4j raises what its socket raises
            raise self._translate(error) from None

    @property
    def is_alive(self) -> bool:
        """Return whether Spark runs: its context was not stopped, and its JVM answers."""
        return is_alive(self._session)

    def run(self, tasks: Sequence[bytes], progress: TaskProgress | None = None) -> list[bytes]:
        """Run every task in one Spark job and return their results in order.

        A task that fails is tried again as often as the session allows (``local[*,3]``: three times in all); after
        that its error is its result. Progress is reported when a Spark task ends, with all splits that it had.

        Raises:
            TieringCancelledError: The job was cancelled.
            UnavailableError: Workers died; the text is Spark's first line.
            UnsupportedError: Workers have another release of fluss_lab.
            StorageError: Spark's folder for files on this machine takes no more.
        """
        context = self._session.sparkContext
        group = f"fluss_lab-tiering-{uuid.uuid4().hex}"
        hands = deal(list(range(len(tasks))), TASKS_PER_WORKER_MAX * self.parallelism)
        with self._lock:
            self._group, self._cancelled = group, False
        try:
            with (
                _accumulator(context) as reports,
                self._job_properties(context, group, f"tiering: {len(tasks)} splits"),
                _report_progress(reports, len(tasks), progress),
            ):
                given = context.parallelize([[(at, tasks[at]) for at in hand] for hand in hands], len(hands))
                work = partial(run_partition, expected=release(), reports=reports)
                results: list[tuple[int, bytes]] = given.mapPartitions(work).collect()
        except FlussError:
            raise
        except Exception as error:
            raise self._translate(error) from None
        except BaseException:  # Ctrl-C in a notebook
            _cancel(context, group)
            raise
        finally:
            with self._lock:
                self._group = None
        by_index = dict(results)
        if len(results) != len(tasks) or len(by_index) != len(tasks):
            raise InternalError(f"Spark gave {len(results)} results for {len(tasks)} tiering tasks")
        return [by_index[index] for index in range(len(tasks))]

    def cancel(self) -> None:
        """Cancel the job under way, if there is one; also one that is about to start."""
        with self._lock:
            group, self._cancelled = self._group, True
        if group is not None:
            _cancel(self._session.sparkContext, group)

    def _translate(self, error: Exception) -> FlussError:
        if self._cancelled:
            return TieringCancelledError("the tiering round's Spark job was cancelled")
        if not self.is_alive:
            return UnavailableError("the tiering round's Spark is gone: its JVM ended, or its session was stopped")
        if (refusal := disk_refusal(error, self._session, "the tiering round's Spark job failed")) is not None:
            return refusal
        text = one_line(error)
        if text.startswith(_RELEASE_ERROR):
            return UnsupportedError(text.removeprefix(_RELEASE_ERROR))
        return UnavailableError(f"the tiering round's Spark job failed: {text}")

    @contextlib.contextmanager
    def _job_properties(self, context: SparkContext, group: str, description: str) -> Iterator[None]:
        """Set what Spark keeps per thread for jobs, and put back what the caller had."""
        before = {name: context.getLocalProperty(name) for name in _LOCAL_PROPERTIES}
        context.setJobGroup(group, description, interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", self._pool)
        # Not the context's own settings: pyspark copies all of them, one call of the JVM each, 15 ms.
        attempts = attempts_of(str(context.master), self._session.conf.get("spark.task.maxFailures", None))
        context.setLocalProperty(_ATTEMPTS, str(attempts))
        try:
            yield
        finally:
            with contextlib.suppress(Exception):
                for name, value in before.items():
                    context.setLocalProperty(name, value)  # type: ignore[arg-type]


def _cancel(context: Any, group: str) -> None:
    """Cancel a job group: its job under way, or the one that its thread is going to submit."""
    with contextlib.suppress(Exception):
        context._jsc.sc().cancelJobGroupAndFutureJobs(group)


def deal(tasks: Sequence[int], hands: int) -> list[list[int]]:
    """Return tasks dealt out to at most so many hands, as cards are: the first ones, which are the biggest, apart."""
    count = min(len(tasks), hands)
    return [list(tasks[first::count]) for first in range(count)]


def run_partition(
    hands: Iterable[list[tuple[int, bytes]]], *, expected: str, reports: TaskAccumulator | None = None
) -> Iterator[tuple[int, bytes]]:
    """Run tasks in a Spark worker. An error that may pass is raised while Spark will try again, else it is the result.

    Args:
        hands: Tasks with their positions among all.
        expected: The driver's release.
        reports: Where tasks that ended well are reported.
    """
    from pyspark import TaskContext

    if (found := release()) != expected:
        raise UnsupportedError(
            f"fluss_lab {found} ({__file__}) in the executors' Python, {expected} on the driver: install the same release"
        )
    context = TaskContext.get()
    attempts = int((context.getLocalProperty(_ATTEMPTS) if context else None) or 1)
    last = context is None or context.attemptNumber() + 1 >= attempts
    yielded = False
    for index, task in (each for hand in hands for each in hand):
        data = run_task(task)
        result = TaskResult.from_bytes(data)
        if result.error is not None and not last and not isinstance(result.error, FINAL_ERRORS):
            if not yielded:
                raise result.error
            # Spark would run the whole partition again, and write its finished splits twice.
            data = run_task(task)
            result = TaskResult.from_bytes(data)
        if reports is not None and result.error is None:
            reports.add(index, result.rows + result.events, result.size_bytes)
        yield index, data
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
    line = line if len(line) <= _MESSAGE_LENGTH_MAX else line[:_MESSAGE_LENGTH_MAX] + " ..."
    if "Cannot run program" in line:
        line += "; set spark.pyspark.python (or PYSPARK_PYTHON) to a Python that the executors have"
    return line


@contextlib.contextmanager
def _report_progress(reports: TaskAccumulator, total: int, progress: TaskProgress | None) -> Iterator[None]:
    """Report progress from a thread of its own while the block runs, and the rest after it ended well."""
    if progress is None:
        yield
        return
    done, known = threading.Event(), set[int]()

    def watch() -> None:
        while not done.wait(PROGRESS_INTERVAL_S):
            if ended := reports.fresh(known):
                progress(len(known), total, ended)

    thread = threading.Thread(target=watch, name="fluss-tiering-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    progress(total, total, reports.fresh(known))


# -- reports of tasks that ended -----------------------------------------------------------------------------------------


class _Union(AccumulatorParam[_Ended]):
    """Joins dicts."""

    def zero(self, value: _Ended) -> _Ended:
        """Return nothing."""
        del value
        return {}

    def addInPlace(self, value1: _Ended, value2: _Ended) -> _Ended:  # noqa: N802  # Spark's name
        """Return both."""
        value1.update(value2)
        return value1


class TaskAccumulator:
    """The accumulator by which workers report tasks that ended, while others still run: `add` there, `fresh` on the driver.

    Spark brings an accumulator's update to the driver with the task that made it, once that has succeeded; updates of
    failed and of losing attempts are dropped, or come twice. Keyed by task they count once.
    """

    def __init__(self, ended: Accumulator[_Ended]) -> None:
        self._ended = ended

    def add(self, index: int, rows: int, size_bytes: int) -> None:
        """Report a task that ended well; called in a worker."""
        self._ended.add({index: (rows, size_bytes)})

    def fresh(self, known: set[int]) -> Sequence[TaskNews]:
        """Return the tasks that ended and are not among the known ones, and add them there; called on the driver."""
        # A copy is taken in one step of the interpreter; updates come in another thread.
        ended = {index: each for index, each in dict(self._ended.value).items() if index not in known}
        known.update(ended)
        return [TaskNews(index, rows, size_bytes) for index, (rows, size_bytes) in ended.items()]


def _ignore(_request: object, client_address: object) -> None:
    log.debug("no more updates of accumulators from %s", client_address, exc_info=True)


@contextlib.contextmanager
def _accumulator(context: SparkContext) -> Iterator[TaskAccumulator]:
    """Collect reports while the block runs; pyspark itself would keep what an accumulator collected for ever."""
    ended = context.accumulator({}, _Union())
    # When the JVM dies, the round's error says so; the thread that waits for updates would print a traceback as well.
    server: Any = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = _ignore
    try:
        yield TaskAccumulator(ended)
    finally:
        _accumulatorRegistry.pop(ended.aid, None)
