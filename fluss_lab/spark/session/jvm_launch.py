"""The launch of Spark's JVM, with a second try, and the check that a session is alive.

pyspark would start the JVM by `fork` with a function to run in the child. In a process that uses gRPC that is a trap: the
child runs gRPC's fork handlers, whose threads are not there, and ends by SIGABRT (pyspark says ``JAVA_GATEWAY_EXITED``)
or hangs for ever; measured with three threads that make calls: 1 of 20 forks died, 2 of 3 runs hung. So the JVM is
started here, by `vfork`, which runs no handlers, and pyspark gets its address, as from ``spark-submit``.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fluss_lab.errors import UnavailableError
from fluss_lab.interrupts import Held
from fluss_lab.spark.session.class_archive import OPTIONS_VARIABLE, archive_of
from fluss_lab.spark.session.jvm_surroundings import decisive_variables, submit_arguments
from fluss_lab.spark.session.worker_placement import spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: A JVM is there in 2 s on an idle machine, in 45 s on one with ten times the load that it can bear.
START_TIMEOUT_S: Final = 300.0
#: Of what a JVM that ended said: so many lines are in the error, and as many of the first ones, where a usage or a trace follows.
_LINES_MAX: Final = 20
_FIRST_LINES_MAX: Final = 2
_LINE_LENGTH_MAX: Final = 500
#: How long the rest of what it said, or its end, may take.
_TAIL_TIMEOUT_S: Final = 5.0
_LOOK_S: Final = 0.02
#: Of an error where this process, or this machine, has as many files open as it may.
NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
#: Set by ``spark-submit`` where it starts Python: then the JVM is there already.
_GATEWAY_PORT: Final = "PYSPARK_GATEWAY_PORT"
_GATEWAY_SECRET: Final = "PYSPARK_GATEWAY_SECRET"  # noqa: S105  # a variable's name
#: Of Spark's session in the JVM; asked for by its whole name it takes one call.
SESSION_CLASS: Final = "org.apache.spark.sql.classic.SparkSession"
#: What a session, and the first read or round on it, imports.
_IMPORTED: Final = (
    "pyspark.sql",
    "py4j.clientserver",
    "fluss_lab.spark.data_source",
    "fluss_lab.spark.source.table_frame",
    "fluss_lab.spark.source.log_range_source",
    "fluss_lab.spark.tiering.spark_executor",
    "fluss_lab.lake.iceberg.read.row_source",
    "fluss_lab.lake.iceberg.commit.round_commit",
)


def start_session(
    settings: Mapping[str, str], environment: Mapping[str, str | None], jvm: Jvm | None = None
) -> SparkSession:
    """Start Spark and return its session. A JVM that ends while it starts is started once more.

    On a machine that is short of memory or processes a JVM may die at its start, and the next one comes up. A reason
    that stays ends the second one too; what that said is in the error. (The first one's words went to standard error.)

    Args:
        settings: Spark settings, ``spark.master`` and ``spark.app.name`` among them.
        environment: Variables during the start; None stands for one that must be absent.
        jvm: One that was launched with these already, to be used if pyspark has none.

    Raises:
        UnavailableError: The JVM ended twice, or while its session was made, or did not answer in `START_TIMEOUT_S`.
        InvalidPropertyError: The arguments for ``spark-submit`` in the environment cannot be used.
    """
    if not has_jvm():
        jvm = jvm or _start(settings, environment)
    from pyspark import SparkContext

    with _environment(environment):
        if SparkContext._gateway is None and jvm is not None:
            _connect(jvm)
        try:
            return _session(settings)
        except Exception as error:
            if _answers(gateway := SparkContext._gateway):
                raise
            # pyspark keeps the context that it was making where its JVM does not answer, and would use it again.
            SparkContext._active_spark_context = None
            _forget_gateway()
            code = getattr(getattr(gateway, "proc", None), "returncode", None)
            raise UnavailableError(
                f"Spark's JVM ended{'' if code is None else f' with {code}'} while its session was made; what it said is on standard "
                f"error.{decisive_variables(os.environ)}"
            ) from error


def has_jvm() -> bool:
    """Return whether pyspark has a JVM, or will be given one, so that none is to be started; pyspark is not imported."""
    if _GATEWAY_PORT in os.environ:
        return True
    context = sys.modules.get("pyspark.core.context")
    return getattr(getattr(context, "SparkContext", None), "_gateway", None) is not None


def import_pyspark() -> None:
    """Import what a session needs: a second or two, best spent while the JVM starts, in which it takes none from it.

    A person's cell may import pyspark at the same time. Whoever is in the midst of it is waited for: an import of a part of
    it would wait for the whole, whose own import of that part Python would then fail as circular.
    """
    for name in ("pyspark", *_IMPORTED) if "pyspark" in sys.modules else _IMPORTED:
        # What fails to import fails where it is used, with its message.
        with suppress(Exception):
            import_module(name)


@dataclass(frozen=True, slots=True)
class Jvm:
    """A JVM that waits for pyspark.

    Attributes:
        process: Its process, at first Spark's scripts. It ends when its standard input does.
        port: Of its gateway, on loopback.
        secret: What a client of the gateway must know.
    """

    process: subprocess.Popen[bytes]
    port: int
    secret: str = field(repr=False)


def _start(settings: Mapping[str, str], environment: Mapping[str, str | None]) -> Jvm:
    try:
        return launch(settings, environment)
    except EndedError as ended:
        log.warning("Spark's JVM %s while it started; it is started once more", ended)
    if (archive := archive_of(environment)) is not None and OPTIONS_VARIABLE in environment:
        archive.drop()
        environment = {name: value for name, value in environment.items() if name != OPTIONS_VARIABLE}
    ear = Ear(2)
    try:
        return launch(settings, environment, stderr=ear.descriptor)
    except EndedError as ended:
        ear.close()
        raise UnavailableError(
            f"Spark's JVM {ended} while it started, twice. Is there memory left (spark.driver.memory), and may this user "
            f"start another process?{decisive_variables(os.environ)} It said:\n{ear.last()}"
        ) from None
    finally:
        ear.close()


def launch(
    settings: Mapping[str, str],
    environment: Mapping[str, str | None],
    *,
    stdout: int | None = None,
    stderr: int | None = None,
    started: Callable[[subprocess.Popen[bytes]], None] | None = None,
) -> Jvm:
    """Start a JVM as pyspark does, less the fork, and return it when it listens; this process imports pyspark meanwhile.

    Args:
        settings, environment: As `start_session` has them.
        stdout, stderr: Descriptors for what it says; None: this process's own.
        started: Called with its process at once.

    Raises:
        EndedError: It ended before it listened.
        UnavailableError: It did not answer in `START_TIMEOUT_S`; it was ended.
        KeyboardInterrupt: The main thread was interrupted; it was ended.
    """
    variables = {**os.environ, **environment, "SPARK_CONNECT_MODE": "0"}
    command = [str(Path(variables.get("SPARK_HOME") or spark_home() or "") / "bin" / "spark-submit")]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    command += submit_arguments(os.environ, settings)
    with tempfile.TemporaryDirectory(prefix="fluss_lab-jvm-") as folder:
        address = Path(folder) / "connection"
        variables["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(address)
        # Standard input is a pipe, by whose end the JVM ends with this process. A session of its own: Ctrl-C is not for it.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, start_new_session=True,
            env={name: value for name, value in variables.items() if value is not None},
        )  # fmt: skip
        try:
            if started is not None:
                started(process)
            import_pyspark()
            _wait_for(address, process)
        except BaseException:
            # Its folder goes now. One that went on, after an interrupt, would print a trace for want of it, and never come to
            # read its standard input, by whose end it ends: threads of its gateway would keep it for ever.
            with Held():
                end(process)
            raise
        return Jvm(process, *_connection(address.read_bytes()))


def _wait_for(address: Path, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while not address.is_file():
        if (code := process.poll()) is not None:
            raise EndedError(f"ended with {code}")
        if time.monotonic() > deadline_s:
            raise UnavailableError(f"Spark's JVM did not answer in {START_TIMEOUT_S:.0f} s; it was ended")
        time.sleep(_LOOK_S)


class EndedError(Exception):
    """A JVM ended while it started."""


def end(process: subprocess.Popen[bytes]) -> None:
    """End a JVM that nothing uses, with what it left in temporary folders, and return when it is gone."""
    if process.poll() is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGTERM)  # with the scripts that start it
        with suppress(subprocess.TimeoutExpired):
            process.wait(_TAIL_TIMEOUT_S)
        if process.poll() is None:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
    _close(process)


def _connection(data: bytes) -> tuple[int, str]:
    """Return port and secret, as the JVM wrote them: a number of four bytes, a length of four, the text."""
    return int.from_bytes(data[:4], "big"), data[8 : 8 + int.from_bytes(data[4:8], "big")].decode()


def _connect(jvm: Jvm) -> None:
    """Make a JVM pyspark's own."""
    from pyspark import SparkContext

    try:
        with _environment({_GATEWAY_PORT: str(jvm.port), _GATEWAY_SECRET: jvm.secret}):
            SparkContext._ensure_initialized()
    except BaseException:
        jvm.process.kill()
        _close(jvm.process)
        raise
    gateway: Any = SparkContext._gateway
    gateway.proc = jvm.process


def is_alive(session: SparkSession) -> bool:
    """Return whether a session's context runs and its JVM answers, as far as it can be asked.

    Cost: a call of the JVM, some 0.3 ms.
    """
    context: Any = session.sparkContext
    if context._jsc is None:
        return False
    try:
        return not context._jsc.sc().isStopped()
    except OSError as error:
        # Without a free descriptor it cannot be asked: what runs in it is not to be ended for that.
        return error.errno in NO_DESCRIPTOR
    except Exception:  # py4j has a class of error for each way in which a JVM can be gone
        return False


def discard(session: SparkSession) -> None:
    """Forget a session that is dead, so that the next one can start. A JVM that still answers is used again."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as Classic

    context: Any = session.sparkContext
    if _answers(SparkContext._gateway):
        with suppress(Exception):
            session.stop()
    else:
        context._jsc = None  # or its `stop` would call the JVM, and warn
        with suppress(Exception):
            context.stop()
        _forget_gateway()
    Classic._instantiatedSession = Classic._activeSession = None


def abandon(jvm: Jvm) -> None:
    """End a JVM that could not be used, and have pyspark forget it."""
    from pyspark import SparkContext

    if getattr(SparkContext._gateway, "proc", None) is jvm.process:
        SparkContext._active_spark_context = None
        _forget_gateway()
    end(jvm.process)


def _forget_gateway() -> None:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    with suppress(Exception):
        gateway.shutdown()
    _close(getattr(gateway, "proc", None))


def _answers(gateway: Any) -> bool:
    try:
        gateway.jvm.System.nanoTime()
    except Exception:
        return False
    return True


def _close(process: Any) -> None:
    """Take the exit code of a JVM that has ended, and close its standard input: the end of one that hangs."""
    if process is not None:
        with suppress(OSError):
            process.stdin.close()
        with suppress(Exception):
            process.wait(_TAIL_TIMEOUT_S)


def _session(settings: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        jvm: Any = SparkContext._jvm
        begun = getattr(jvm, SESSION_CLASS).getDefaultSession() if jvm is not None else None
        if begun is not None and begun.isDefined() and not begun.get().sparkContext().isStopped():
            # By an early start, with these settings.
            SparkContext(
                conf=SparkConf(_jvm=jvm), jsc=jvm.JavaSparkContext.fromSparkContext(begun.get().sparkContext())
            )
    builder: Any = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


class Ear:
    """A pipe whose every line goes on to a descriptor of this process, and whose last lines are kept.

    Args:
        target: The descriptor.
        is_silent: Whether lines are only kept, until `speak`.
    """

    def __init__(self, target: int, *, is_silent: bool = False) -> None:
        reading, self.descriptor = os.pipe()
        self._target = target
        self._lock = threading.Lock()
        self._is_silent = is_silent
        self._first: list[bytes] = []
        self._lines: deque[bytes] = deque(maxlen=_LINES_MAX)
        self._thread = threading.Thread(target=self._listen, args=(reading,), name="fluss-spark-output", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close this process's end of what is written to; the JVM has its own. Twice is fine."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def speak(self) -> None:
        """Pass on what was kept, and every line from now on."""
        with self._lock:
            kept, self._is_silent = list(self._lines) if self._is_silent else [], False
            for line in kept:
                self._pass_on(line)

    def last(self) -> str:
        """Return the last lines, once the JVM has ended; and the first ones, where these are not among them."""
        self._thread.join(_TAIL_TIMEOUT_S)
        last = list(self._lines)
        is_cut = len(last) == _LINES_MAX and self._first != last[: len(self._first)]
        said = [*self._first, b"...", *last[_FIRST_LINES_MAX:]] if is_cut else last
        lines = [line.decode(errors="replace").rstrip()[:_LINE_LENGTH_MAX] for line in said]
        return "\n".join(f"  {line}" for line in lines) or "  (nothing)"

    def _listen(self, reading: int) -> None:
        with os.fdopen(reading, "rb") as pipe:
            for line in pipe:
                with self._lock:
                    if len(self._first) < _FIRST_LINES_MAX:
                        self._first.append(line)
                    self._lines.append(line)
                    if not self._is_silent:
                        self._pass_on(line)

    def _pass_on(self, line: bytes) -> None:
        with suppress(OSError):
            os.write(self._target, line)


@contextmanager
def _environment(wanted: Mapping[str, str | None]) -> Iterator[None]:
    """Change the environment while a JVM starts (it keeps its copy), then put back what was there."""
    before = {name: os.environ.get(name) for name in wanted}
    _set_environment(wanted)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
