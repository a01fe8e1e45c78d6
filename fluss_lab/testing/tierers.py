"""Tierers in processes of their own, for tests that kill, stop and continue them; executors of tasks without Spark."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.clock import SystemClock
from fluss_lab.errors import FlussError, InternalError, TieringCancelledError, error_code, error_from_code
from fluss_lab.lake import LakeStorage
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.task.tiering_task import (
    TaskNews,
    TaskProgress,
    TaskResult,
    TieringExecutor,
    parse_task,
    run_task,
)

#: Imported once, before any process is forked; a gRPC channel or a thread would not survive the fork, imports do.
PRELOAD: Final = (
    "fluss_lab.testing.tierers",
    "fluss_lab.client.admin",
    "fluss_lab.client.log.range_reader",
    "fluss_lab.tiering.maintenance.automatic_maintenance",
    "fluss_lab.tiering.round.tiering_round",
    "fluss_lab.lake.iceberg.commit.round_commit",
    "fluss_lab.lake.iceberg.write.data_file_writer",
    "pyiceberg.catalog.sql",
    "sqlalchemy.dialects.sqlite",
)
#: The steps of a round between which it may die, in order; those after `lake_commit.after` find its snapshot in the lake.
STEPS: Final = (
    "tiering.heartbeat.after",
    "tiering.plan.after",
    "tiering.write.after_task",
    "tiering.write.after",
    "tiering.lake_commit.before",
    "tiering.lake_commit.after",
    "tiering.fluss_commit.after",
    "tiering.finish.before",
)
#: Steps that only a round after a dead one passes.
RECOVERY_STEPS: Final = ("tiering.fence.after", "tiering.register.after")
#: Environment variable of everything that a tierer starts: the tierer's process id.
MARK: Final = "FLUSS_LAB_TIERER"
#: The longest honest wait: a round on a busy machine takes a second or two.
WAIT_S: Final = 60.0
_LOOK_S: Final = 0.01


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
            return TaskResult(
                parse_task(task).index, error=TieringCancelledError("tiering tasks: cancelled")
            ).to_bytes()
        return run_task(task)


class ClockAhead:
    """The machine's clock, some time ahead: what is too young to be tidied up is old by it."""

    def __init__(self, ahead_ms: int) -> None:
        self._clock = SystemClock()
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        """Return wall time in epoch milliseconds, ahead."""
        return self._clock.now_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        """Return monotonic milliseconds."""
        return self._clock.monotonic_ms()


class TiererProcess:
    """One round of one table in a process of its own, which a failpoint may kill or stop.

    Args:
        address: Of the cluster, as `fluss_lab.client.ServerAddress.to_json` gives it.
        failpoints: Name to action, armed in the process only.
        options: Of `fluss_lab.tiering.round.round_options.TieringOptions`, by name.
        spark: Whether the tasks run on a Spark of the process's own, which ends with it; else in the process.
        action: What it does: ``round``, or by hand ``compact``, ``expire`` or ``orphans``.
        ahead_ms: How far the clock is ahead by which the latter two measure ages.
    """

    def __init__(
        self,
        address: str,
        table_id: int,
        *,
        failpoints: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        spark: bool = False,
        action: str = "round",
        ahead_ms: int = 0,
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOAD))
        self._pipe, theirs = context.Pipe(duplex=False)
        task = {
            "address": address,
            "table_id": table_id,
            "failpoints": dict(failpoints or {}),
            "options": dict(options or {}),
            "spark": spark,
            "action": action,
            "ahead_ms": ahead_ms,
        }
        self._process: BaseProcess = context.Process(target=_main, args=(json.dumps(task), theirs), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Return the process's id."""
        assert self._process.pid is not None
        return self._process.pid

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """Return the exit code: 0 after a round, 1 after an error, minus the signal's number after a kill."""
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            raise AssertionError(f"tierer {self.pid}: still running after {timeout_s} s")
        return self._process.exitcode

    def wait_until_stopped(self) -> None:
        """Return when a failpoint has stopped the process."""
        deadline_s = time.monotonic() + WAIT_S
        pause = threading.Event()
        while (state := _state(self.pid)) != "T":
            if self._process.exitcode is not None or time.monotonic() > deadline_s:
                raise AssertionError(
                    f"tierer {self.pid}: expected it to stop, found state {state!r}, {self._outcome()}"
                )
            pause.wait(_LOOK_S)

    def stops(self) -> bool:
        """Wait until a failpoint has stopped the process, or it has ended; return which."""
        deadline_s = time.monotonic() + WAIT_S
        pause = threading.Event()
        while _state(self.pid) != "T":
            if self._process.exitcode is not None:
                return False
            if time.monotonic() > deadline_s:
                raise AssertionError(f"tierer {self.pid}: neither stopped nor ended in {WAIT_S} s")
            pause.wait(_LOOK_S)
        return True

    def resume(self) -> None:
        """Let a stopped process go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the process at once, stopped or not."""
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join(WAIT_S)

    def report(self) -> dict[str, Any] | None:
        """Return what the round reported, once it has ended.

        Raises:
            FlussError: What the round raised.
        """
        outcome = self._outcome()
        if outcome is None:
            raise AssertionError(f"tierer {self.pid}: it died without a word")
        if "error" in outcome:
            raise error_from_code(*outcome["error"])
        report: dict[str, Any] | None = outcome["report"]
        return report

    def _outcome(self) -> dict[str, Any] | None:
        try:
            return json.loads(self._pipe.recv_bytes()) if self._pipe.poll() else None
        except EOFError:
            return None


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def _main(text: str, pipe: Pipe) -> None:
    from fluss_lab import failpoints

    task = json.loads(text)
    # What it starts (a JVM) can be distinguished from everything else that runs.
    os.environ[MARK] = str(os.getpid())
    for name, action in task["failpoints"].items():
        failpoints.arm(name, action)
    server = ServerAddress.from_json(task["address"])
    code = 0
    with Connection(lambda: server) as connection:
        try:
            outcome: dict[str, Any] = {"report": _act(connection, task)}
        except FlussError as error:
            outcome, code = {"error": [error_code(error), str(error)]}, 1
        except Exception as error:
            internal = InternalError(f"{type(error).__name__}: {error}")
            outcome, code = {"error": [error_code(internal), str(internal)]}, 1
    pipe.send_bytes(json.dumps(outcome).encode())
    pipe.close()
    # Neither exit handlers of the test process nor lingering gRPC threads: the round is over.
    os._exit(code)


def _act(connection: Connection, task: Mapping[str, Any]) -> dict[str, Any] | None:
    from fluss_lab.tiering.round.tiering_round import run_round

    storage = connection.lake_storage()
    assert storage is not None, "the cluster has no lake"
    options = TieringOptions(**task["options"])
    executor = _executor(task["spark"])
    if task["action"] == "round":
        report = run_round(connection, storage, executor, table_id=task["table_id"], options=options)
        return None if report is None else report.to_dict()
    maintain_by_hand(
        connection, storage, executor, task["action"], task["table_id"], ahead_ms=task["ahead_ms"], options=options
    )
    return None


def maintain_by_hand(
    connection: Connection,
    storage: LakeStorage,
    executor: TieringExecutor,
    action: str,
    table_id: int,
    *,
    ahead_ms: int = 0,
    options: TieringOptions | None = None,
) -> object:
    """Compact a table, expire its snapshots but the newest, or remove its orphan files; return the report.

    Args:
        connection: To the cluster.
        executor: Where files are rewritten.
        action: ``compact``, ``expire`` or ``orphans``.
        ahead_ms: How far the clock is ahead by which ages are measured.
        options: Heartbeats, as for a round.
    """
    from fluss_lab.tiering.maintenance.automatic_maintenance import TableMaintenance
    from fluss_lab.tiering.maintenance.manual_maintenance import maintain

    actions: dict[str, Callable[[TableMaintenance], object]] = {
        "compact": lambda maintenance: maintenance.compact(force=True),
        "expire": lambda maintenance: maintenance.expire(older_than_ms=0, keep=1),
        "orphans": lambda maintenance: maintenance.remove_orphans(older_than_ms=0),
    }
    clock = ClockAhead(ahead_ms)
    return maintain(connection, storage, executor, actions[action], table_id=table_id, options=options, clock=clock)


def _executor(spark: bool) -> TieringExecutor:
    if spark:
        from fluss_lab.spark.session.spark_session import spark_session
        from fluss_lab.spark.tiering.spark_executor import SparkTieringExecutor

        return SparkTieringExecutor(spark_session(master="local[2,3]"))
    return LocalTieringExecutor()
