"""A lab's Spark: one session for the process, started when it is needed, started again when it has died."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from fluss_lab.client import Connection
from fluss_lab.client.table_listing import lake_tables
from fluss_lab.display import Waiting, is_interactive
from fluss_lab.errors import StorageError, TieringCancelledError
from fluss_lab.interrupts import Held
from fluss_lab.lake import LakeStorage
from fluss_lab.model import TableDescriptor
from fluss_lab.model.config.options import SPARK_CLASS_ARCHIVE, SPARK_MASTER, SPARK_START_EARLY
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.tiering.task.tiering_task import TaskProgress, TieringExecutor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fluss_lab.spark.tiering.spark_executor import SparkTieringExecutor


class LateExecutor:
    """An executor that is made when a round has tasks for it: a table with nothing to tier needs no Spark.

    Args:
        make: Makes it.
    """

    def __init__(self, make: Callable[[], TieringExecutor]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: TieringExecutor | None = None
        self._is_cancelled = False

    @property
    def parallelism(self) -> int:
        """Return how many tasks run at once; before it is made, as many as this machine has cores."""
        return self._made.parallelism if self._made is not None else os.cpu_count() or 1

    @property
    def is_alive(self) -> bool:
        """Return whether a `run` may succeed."""
        return self._made is None or self._made.is_alive

    def run(self, tasks: Sequence[bytes], progress: TaskProgress | None = None) -> list[bytes]:
        """Run every task; the first call makes the executor.

        Raises:
            TieringCancelledError: It was cancelled before there was one.
        """
        if not tasks:
            return []
        made = self._made or self._make()
        with self._lock:
            self._made = made
            if self._is_cancelled:
                self._is_cancelled = False
                raise TieringCancelledError("tiering: the round was cancelled before its tasks began")
        return made.run(tasks, progress)

    def cancel(self) -> None:
        """Make a `run` under way end soon."""
        with self._lock:
            self._is_cancelled = self._made is None
            made = self._made
        if made is not None:
            made.cancel()


class LabSpark:
    """Where a lab computes. Safe for threads.

    Args:
        connection: To the lab's cluster: executors on other machines must reach it.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._master: str | None = SPARK_MASTER.of(connection.options) or None
        self._has_class_archive: bool = SPARK_CLASS_ARCHIVE.of(connection.options)
        self._config: dict[str, str] = {}
        self._session: SparkSession | None = None
        #: The Spark application, and the lake.
        self._checked: tuple[str, dict[str, str]] | None = None
        self._is_expected = False

    def expect(self, descriptor: TableDescriptor) -> None:
        """Begin to start Spark, in the background, if the table is one of the lake; see ``client.spark.start-early``.

        Returns at once. A start that fails is forgotten: the error comes when Spark is asked for.
        """
        if self._is_expected or not descriptor.lake_enabled:
            return
        chosen = SPARK_START_EARLY.of(self._connection.options)
        if chosen == "always" or (chosen == "interactive" and is_interactive()):
            from fluss_lab.spark.session.spark_session import begin_session

            with Held(), suppress(Exception):
                self._is_expected = True
                self._connection.open_resources.add(self, self._leave)
                begin_session(self, self._master, self._config, class_archive=self._has_class_archive)

    def _leave(self) -> None:
        from fluss_lab.spark.session.spark_session import leave_session

        leave_session(self)

    def start(self, master: str | None, config: Mapping[str, str] | None) -> SparkSession:
        """Start Spark with a master and settings, which count from then on; see `Lab.start_spark`."""
        self._connection.check_open("Spark is not started")
        with self._lock:
            before = self._session, self._master, self._config
            self._session = None
            self._master, self._config = master or self._master, dict(config or {})
        try:
            return self.session()
        except BaseException:
            # Kept, they would refuse every later round and query too.
            with self._lock:
                self._session, self._master, self._config = before
            raise

    @property
    def is_started(self) -> bool:
        """Return whether there is a session of this lab; it may have died."""
        return self._session is not None

    def session(self) -> SparkSession:
        """Return the session; one whose JVM died, or that was stopped, is replaced.

        Raises:
            ConnectionClosedError: The lab was closed.
            ResourceExhaustedError: This process has too many files open to ask Spark.
        """
        from fluss_lab.spark.session.jvm_launch import is_alive
        from fluss_lab.spark.session.spark_errors import spark_loss
        from fluss_lab.spark.session.spark_session import activate_where_none_is, spark_session

        self._connection.check_open("Spark is not started")
        with self._lock:
            if self._session is None or not is_alive(self._session):
                with Waiting("starting Spark…"):
                    self._session = spark_session(
                        master=self._master, config=self._config, class_archive=self._has_class_archive
                    )
            with spark_loss(self._session, "Spark"):
                activate_where_none_is(self._session)
            return self._session

    def executor(self, storage: LakeStorage, pool: str) -> SparkTieringExecutor:
        """Return an executor of tiering rounds, after a look at whether the session's executors can do them.

        Args:
            pool: Its FAIR pool; see `SparkTieringExecutor`.

        Raises:
            StorageError: The lab cannot be written; no Spark was started for what would be refused.
            UnsupportedError: The master may run tasks on other machines, and something that they need is missing.
        """
        from fluss_lab.spark.session.jvm_launch import has_jvm
        from fluss_lab.spark.tiering.spark_executor import SparkTieringExecutor

        if not has_jvm():
            self._check_writable()
        session = self.session()
        self._prepare(session, storage)
        return SparkTieringExecutor(session, pool=pool)

    def executors(self, storage: LakeStorage) -> Callable[[], SparkTieringExecutor]:
        """Return what makes executors for rounds that run beside each other: each has a pool of its own, used again."""
        from fluss_lab.spark.tiering.spark_executor import POOL

        pools: WeakValueDictionary[int, SparkTieringExecutor] = WeakValueDictionary()
        lock = threading.Lock()

        def make() -> SparkTieringExecutor:
            with lock:
                free = next(number for number in range(len(pools) + 1) if number not in pools)
                pools[free] = executor = self.executor(storage, f"{POOL}-{free}")
                return executor

        return make

    def _prepare(self, session: SparkSession, storage: LakeStorage) -> None:
        """Do once for each Spark application what executors beside the driver's process need."""
        from fluss_lab.spark.session.worker_placement import ship_package
        from fluss_lab.spark.tiering.cluster_preflight import check_reach, check_store, shared_folders

        context = session.sparkContext
        checked = (str(context.applicationId), dict(storage.properties))
        with self._lock:
            if self._checked == checked:
                return
            ship_package(context)
            master, server = str(context.master), self._connection.address
            check_reach(context, master, server, lambda: shared_folders(storage.local_folder, self._options()))
            paths = (info.path for info in lake_tables(self._connection.admin()))
            check_store(context, master, storage, paths)
            self._checked = checked

    def _check_writable(self) -> None:
        if trouble := self._cluster().write_trouble:
            raise StorageError(f"nothing was begun in the lake: {trouble}")

    def _cluster(self) -> pb.DescribeClusterResponse:
        return self._connection.coordinator().describe_cluster(pb.DescribeClusterRequest())

    def _options(self) -> dict[str, str]:
        described = self._cluster()
        return {entry.key: entry.value for entry in described.options}
