"""Tiering rounds on a Spark master of its own: a process has one Spark, and the tests' is local. Prints a line a step.

``python -m tests.spark.cluster_rounds <master> <step>...``
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fluss_lab.errors import UnavailableError
from fluss_lab.model import TablePath, make_descriptor
from fluss_lab.spark.session.jvm_launch import is_alive
from fluss_lab.spark.session.spark_session import spark_session
from fluss_lab.spark.tiering.spark_executor import POOL, SparkTieringExecutor
from fluss_lab.testing import EmbeddedCluster, wait_until
from fluss_lab.tiering.round.round_options import TieringOptions
from fluss_lab.tiering.task.round_progress import RoundState
from tests.spark.spark_steps import SparkSteps
from tests.unit.tiering.kit import LAKE, TAKEOVER, Tables

#: Of workers, in their environment: whose they are.
MARK = "FLUSS_LAB_CLUSTER_STEP"
FINE = TieringOptions(split_bytes_min=1)


class Wide(SparkTieringExecutor):
    """Gives the planner more workers than there are, so that it cuts finer."""

    def __init__(self, session: Any, reported: int = 12, pool: str = POOL) -> None:
        super().__init__(session, pool=pool)
        self._reported = reported

    @property
    def parallelism(self) -> int:
        return self._reported


class Steps(SparkSteps):
    """What is done with one cluster's tables."""

    def __init__(self, session: Any, tables: Tables) -> None:
        super().__init__(session)
        self.tables = tables

    @property
    def environment(self) -> dict[str, str]:
        """Return what Spark's workers get; those of another environment are forked from a daemon of their own."""
        environment: dict[str, str] = self.session.sparkContext.environment
        return environment

    def package(self) -> None:
        """Workers run the fluss_lab that the driver sent, also when another one is installed for their Python."""

        def look(_number: int) -> tuple[str, str, bool]:
            import fluss_lab

            folder = os.path.dirname(fluss_lab.__file__)  # inside a zip
            return folder, os.getcwd(), "pyiceberg" in sys.modules

        for folder, work, warm in self.session.sparkContext.parallelize(range(2), 2).map(look).collect():
            archive = os.path.dirname(folder)
            assert os.path.dirname(archive) == work, (folder, work)
            assert archive.endswith(".zip"), folder
            assert warm

    def rounds(self) -> None:
        """A log table in buckets and partitions, two rounds; and a primary-key table."""
        info = self.tables.create("log", buckets=2, partitioned_by=["month"], bucket_key=["id"])
        for month in "ab":
            self.tables.append(info, 500, month)
            states: list[RoundState] = []
            report = self.tables.tier(info, executor=Wide(self.session), options=FINE, progress=states.append)
            assert report.rows == 500
            assert states[-1].rows == 500
            self.tables.check(info)

    def keyed(self) -> None:
        """A primary-key table: two rounds of upserts."""
        schema = {"id": "bigint", "name": "string"}
        path = TablePath("db", "keyed")
        descriptor = make_descriptor(schema, primary_key=["id"], buckets=2, properties=LAKE)
        info = self.tables.connection.admin().create_table(path, descriptor)
        for version in range(2):
            with self.tables.connection.upsert_writer(path) as writer:
                writer.upsert(pa.table({"id": pa.array(range(300)), "name": [f"{version} {n}" for n in range(300)]}))
            report = self.tables.tier(info, executor=SparkTieringExecutor(self.session))
            assert (report.rows, report.events) == (300, 300 * version)
        found = self.tables.lake_rows(info)
        assert sorted(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == [
            (number, f"1 {number}") for number in range(300)
        ]

    def killed_workers(self) -> None:
        """Each worker dies in its second task, halfway: the task is retried, the records come once.

        With three tasks nothing is left to luck: one that has died twice finds only workers that have done nothing yet.
        """
        info = self.tables.create("workers", buckets=1)
        self.tables.append(info, 300)
        self.environment["FLUSS_LAB_FAILPOINTS"] = "tiering.write.after_task=kill@2"
        try:
            report = self.tables.tier(info, executor=Wide(self.session, 3), options=FINE)
        finally:
            self.environment.pop("FLUSS_LAB_FAILPOINTS")
        assert (report.rows, report.splits) == (300, 3)
        self.tables.check(info)
        assert len(self.tables.files(info)) > len(self.tables.referenced(info)), "nobody died"

    def killed_executor(self) -> None:
        """An executor's process is killed while it has tasks: they go elsewhere, the records come once."""
        info = self.tables.create("executor", buckets=1)
        self.tables.append(info, 3_000)
        killed: list[int] = []
        executor = Wide(self.session)

        def kill(state: RoundState) -> None:
            if state.stage == "write" and not killed:
                killed.append(_executors()[0])
                os.kill(killed[0], signal.SIGKILL)

        report = self.tables.tier(
            info, executor=executor, options=TieringOptions(split_bytes_min=1, split_bytes_max=2_000), progress=kill
        )
        assert report.rows == 3_000
        assert killed
        wait_until(lambda: killed[0] not in _executors())
        self.tables.check(info)

    def speculation(self) -> None:
        """A task that hangs is started again elsewhere, and the one that ends first counts."""
        conf = self.session.sparkContext.getConf()
        assert conf.get("spark.speculation") == "true"
        info = self.tables.create("slow", buckets=1)
        self.tables.append(info, 400)
        # Each worker stops in its third task, its file finished. The first that does stays so, the others go on: only a
        # second attempt can end that task.
        mark = f"{id(self)}-{os.getpid()}"
        self.environment.update({"FLUSS_LAB_FAILPOINTS": "tiering.write.after_task=stop@3", MARK: mark})
        over = threading.Event()
        hung: list[int] = []

        def keep_one_stopped() -> None:
            while not over.wait(0.05):
                for worker in _stopped(mark):
                    if not hung:
                        hung.append(worker)
                    elif worker != hung[0]:
                        os.kill(worker, signal.SIGCONT)

        thread = threading.Thread(target=keep_one_stopped)
        thread.start()
        try:
            report = self.tables.tier(info, executor=Wide(self.session), options=FINE)
        finally:
            over.set()
            thread.join()
            self.environment.pop("FLUSS_LAB_FAILPOINTS")
        assert (report.rows, report.splits) == (400, 12)
        assert hung
        wait_until(lambda: not Path(f"/proc/{hung[0]}").exists())  # Spark ends the attempt that lost
        self.tables.check(info)
        assert len(self.tables.files(info)) > len(self.tables.referenced(info)), "no attempt lost"

    def cancelled(self) -> None:
        """Cancelling one round leaves another, of the same Spark, alone."""
        one, two = (self.tables.create(f"beside_{number}", buckets=1) for number in range(2))
        self.tables.append(one, 2_000)
        self.tables.append(two, 200)
        doomed = Wide(self.session, pool="one")
        begun, raised = threading.Event(), list[BaseException]()

        def note(state: RoundState) -> None:
            if state.tasks_done:
                begun.set()

        def tier_one() -> None:
            options = TieringOptions(split_bytes_min=1, split_bytes_max=1_000)
            try:
                self.tables.tier(one, executor=doomed, options=options, progress=note)
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=tier_one)
        thread.start()
        assert begun.wait(60)
        doomed.cancel()
        assert self.tables.tier(two, executor=Wide(self.session, pool="two")).rows == 200
        thread.join()
        assert "cancelled" in str(raised[0])
        self.tables.check(two)
        assert self.tables.tier(one, executor=SparkTieringExecutor(self.session)).rows == 2_000
        self.tables.check(one)

    def dead_jvm(self) -> None:
        """The driver's JVM is killed: the session says so, and the next one is new."""
        info = self.tables.create("reborn", buckets=1)
        self.tables.append(info, 50)
        executor = SparkTieringExecutor(self.session)
        assert executor.is_alive
        gateway = self.session.sparkContext._gateway
        gateway.proc.kill()
        gateway.proc.wait()
        assert not executor.is_alive
        assert not is_alive(self.session)
        with pytest.raises(UnavailableError, match="Spark is gone"):
            self.tables.tier(info, executor=executor)
        self.session = spark_session(master="local[2,3]")
        assert self.tables.tier(info, executor=SparkTieringExecutor(self.session)).rows == 50
        self.tables.check(info)


def _executors() -> list[int]:
    """Return the executors' processes of this process's Spark: those that have the driver's address in their command."""
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    driver = f"{context.getConf().get('spark.driver.host')}:{context.getConf().get('spark.driver.port')}"
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "CoarseGrainedExecutorBackend" in command and driver in command and "bin/java" in command.split("\0")[0]:
            found.append(int(folder.name))
    return sorted(found)


def _stopped(mark: str) -> list[int]:
    """Return the stopped ones among the workers with a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_stopped = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "T"
            if is_stopped and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def main(master: str, steps: list[str]) -> None:
    """Run steps on a master."""
    settings = {
        # As of the driver's JVM in tests: none lives long enough for what the second compiler makes.
        "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
        # Executors that come up a moment later are waited for, so that tasks spread over all of them.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.speculation": "true" if "speculation" in steps else "false",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.speculation.quantile": "0.5",
    }
    with EmbeddedCluster(options=TAKEOVER) as cluster:
        Steps(spark_session(master=master, config=settings), Tables(cluster)).run(steps)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
