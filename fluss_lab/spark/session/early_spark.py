"""A Spark that starts before it is asked for, in a thread, and that nobody notices until it is used.

It is a JVM of its own with a running context, of which pyspark in this process knows nothing: a session that the user makes
meanwhile is the user's alone. Whoever asks for the session waits for it and makes it pyspark's. It says nothing before, and
a start that fails is forgotten: who asks starts Spark anew, and gets the error that stays.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeAlias
from weakref import WeakSet

from fluss_lab.interrupts import Flag, Held, Monitor
from fluss_lab.spark.session.jvm_launch import START_TIMEOUT_S, Ear, Jvm, end, launch

log = logging.getLogger(__name__)

#: Settings, and variables of the environment; see `jvm_launch.start_session`.
Plan: TypeAlias = tuple[Mapping[str, str], Mapping[str, str | None]]


#: A variable that appears when pyspark is imported, which a start does meanwhile.
_SET_BY_PYSPARK: Final = "GRPC_VERBOSITY"
#: Has the JVM load what queries of any kind need: a parser, plans, generated code, a shuffle.
_FIRST_QUERY: Final = "select id % 3 as k, count(*), sum(id) from range(0, 100, 1, 2) group by 1 order by 1"


class EarlySpark:
    """The one start before its time that a process may have. Safe for threads; a forked child has none.

    Labs that may need it own it together: with the last of them it ends, unless it was taken.
    """

    def __init__(self) -> None:
        self._monitor = Monitor()
        self._start: _Start | None = None
        self._owners: WeakSet[object] = WeakSet()
        self._watches_forks = False

    def begin(self, owner: object, key: object, plan: Callable[[], Plan]) -> None:
        """Begin, unless something has begun; returns at once.

        Args:
            owner: Who may need it, until it calls `leave`.
            key: What is started; `take` names it again.
            plan: Returns how; called in the thread.
        """
        with self._monitor:
            self._owners.add(owner)
            if self._start is not None:
                return
            if not self._watches_forks:
                os.register_at_fork(after_in_child=self._forget)
                self._watches_forks = True
            self._start = _Start(key, plan)
            self._start.thread.start()

    def take(self, key: object) -> tuple[Jvm, Plan] | None:
        """Wait for what has begun, and return it for good; None: nothing, or nothing that serves, which is ended.

        It does not serve when it is not what is asked for now, or when the environment or the current folder, which Spark
        takes over at its start, have changed since.

        Raises:
            KeyboardInterrupt: The main thread was interrupted; the start goes on.
        """
        start = self._start
        if start is None:
            return None
        serves = start.fits(key) and start.ready.wait(START_TIMEOUT_S)
        with self._monitor:
            if self._start is not start:
                return None  # its owners left meanwhile
            self._start = None
            self._owners.clear()
        taken = start.use() if serves else None
        if taken is None:
            start.cancel()
        return taken

    def leave(self, owner: object) -> None:
        """End what has begun, if it was not taken and no other owner is left; returns when its JVM is gone."""
        with self._monitor:
            self._owners.discard(owner)
            if self._owners or self._start is None:
                return
            start, self._start = self._start, None
        start.cancel()

    def discard(self) -> None:
        """End what has begun, if it was not taken: nobody will need it."""
        with self._monitor:
            start, self._start = self._start, None
            self._owners.clear()
        if start is not None:
            start.cancel()

    def _forget(self) -> None:
        """In a forked child: the thread is not there, and the JVM is the parent's."""
        if self._start is not None:
            self._start.let_go()
        self._monitor, self._start = Monitor(), None
        self._owners = WeakSet()


class _Start:
    """One start."""

    def __init__(self, key: object, plan: Callable[[], Plan]) -> None:
        self._key = key
        self._plan = plan
        self._planned: Plan | None = None
        self._surroundings = _surroundings()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False
        self._jvm: Jvm | None = None
        self._ears: list[Ear] = []
        #: Set when it can be used, or has failed.
        self.ready = Flag()
        self.thread = threading.Thread(target=self._run, name="fluss-spark-early", daemon=True)

    def fits(self, key: object) -> bool:
        """Return whether it is what is asked for now, where it was begun."""
        return self._key == key and self._surroundings == _surroundings()

    def use(self) -> tuple[Jvm, Plan] | None:
        """Return it, with what it has said so far passed on; None: it has failed."""
        if self._jvm is None or self._planned is None or self._jvm.process.poll() is not None:
            return None
        for ear in self._ears:
            ear.speak()
        return self._jvm, self._planned

    def cancel(self) -> None:
        """End it."""
        with Held():
            with self._lock:
                self._is_cancelled, process = True, self._process
            if process is not None:
                end(process)

    def let_go(self) -> None:
        """Close a forked child's copy of the JVM's standard input, or the JVM would live as long as the child."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
            self._process.returncode = 0  # as far as the child is concerned

    def _run(self) -> None:
        try:
            self._planned = settings, environment = self._plan()
            self._ears = [Ear(1, is_silent=True), Ear(2, is_silent=True)]
            try:
                out, err = (ear.descriptor for ear in self._ears)
                jvm = launch(settings, environment, stdout=out, stderr=err, started=self._hold)
            finally:
                for ear in self._ears:
                    ear.close()
            with _gateway(jvm) as gateway:
                session = _make_session(gateway)
                self._jvm = jvm
                self.ready.set()
                session.sql(_FIRST_QUERY).collectAsList()
        except Exception as error:
            log.debug("Spark's early start failed: %s", error)
            if self._jvm is None:
                self.cancel()
        finally:
            self.ready.set()

    def _hold(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._process, is_cancelled = process, self._is_cancelled
        if is_cancelled:
            end(process)


def _surroundings() -> tuple[dict[str, str], str]:
    """Return what a process takes over from the one that starts it."""
    folder = ""
    with suppress(OSError):  # removed
        folder = os.getcwd()
    return {name: value for name, value in os.environ.items() if name != _SET_BY_PYSPARK}, folder


@contextmanager
def _gateway(jvm: Jvm) -> Iterator[Any]:
    """Yield a gateway of the thread's own to a JVM, beside the one that pyspark may open meanwhile."""
    from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER, ClientServer, JavaParameters, PythonParameters

    gateway = ClientServer(
        JavaParameters(port=jvm.port, auth_token=jvm.secret, auto_convert=True, enable_memory_management=False),
        PythonParameters(port=0, eager_load=False),
    )
    client = gateway._gateway_client
    client.send_command = partial(_send, client)
    try:
        yield gateway
    finally:
        gateway.close(keep_callback_server=True)
        client.finalizer_deque.appendleft(SHUTDOWN_FINALIZER_WORKER)


def _send(client: Any, command: str, retry: bool = True, binary: bool = False) -> Any:
    """Send a command as py4j does, which writes to the root logger, and so to standard error, when the JVM ends meanwhile."""
    del retry
    connection = client._get_connection()
    response = connection.send_command(command)
    client._give_back_connection(connection)
    return (response, client._create_connection_guard(connection)) if binary else response


def _make_session(gateway: Any) -> Any:
    """Make the JVM's context and session as pyspark would: the settings are in its system properties."""
    from pyspark.core.context import DEFAULT_CONFIGS

    spark = gateway.jvm.org.apache.spark
    conf = spark.SparkConf()
    for key, value in DEFAULT_CONFIGS.items():
        conf.setIfMissing(key, str(value))
    spark.api.java.JavaSparkContext(conf)
    return spark.sql.classic.SparkSession.builder().getOrCreate()
