"""The launch of Spark's JVM, with a second try, and the check that a session is alive.

pyspark would start the JVM by `fork` with a function to run in the child. In a process that uses gRPC that is a trap: the
child runs gRPC's fork handlers, whose threads are not there, and ends by SIGABRT (pyspark says ``JAVA_GATEWAY_EXITED``)
or hangs for ever; measured with three threads that make calls: 1 of 20 forks died, 2 of 3 runs hung. So the JVM is
started here, by `vfork`, which runs no handlers, and pyspark gets its address, as from ``spark-submit``.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fluss_lab.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: A JVM is there in 2 s on an idle machine, in 45 s on one with ten times the load that it can bear.
START_TIMEOUT_S: Final = 300.0
#: Of what a JVM that ended said: so many lines are in the error.
_LINES_MAX: Final = 20
_LINE_LENGTH_MAX: Final = 500
#: How long the rest of what it said, or its end, may take.
_TAIL_TIMEOUT_S: Final = 5.0
_LOOK_S: Final = 0.02
#: Set by ``spark-submit`` where it starts Python: then the JVM is there already.
_GATEWAY_PORT: Final = "PYSPARK_GATEWAY_PORT"
_GATEWAY_SECRET: Final = "PYSPARK_GATEWAY_SECRET"  # noqa: S105  # a variable's name


def start_session(settings: Mapping[str, str], environment: Mapping[str, str | None]) -> SparkSession:
    """Start Spark and return its session. A JVM that ends while it starts is started once more.

    On a machine that is short of memory or processes a JVM may die at its start, and the next one comes up. A reason
    that stays ends the second one too; what that said is in the error. (The first one's words went to standard error.)

    Args:
        settings: Spark settings, ``spark.master`` and ``spark.app.name`` among them.
        environment: Variables during the start; None stands for one that must be absent.

    Raises:
        UnavailableError: The JVM ended twice, or did not answer in `START_TIMEOUT_S`.
    """
    from pyspark import SparkContext

    with _environment(environment):
        if SparkContext._gateway is None and _GATEWAY_PORT not in os.environ:
            _connect(_start(settings))
        return _session(settings)


@dataclass(frozen=True, slots=True)
class _Jvm:
    """A JVM that waits for pyspark."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str


def _start(settings: Mapping[str, str]) -> _Jvm:
    try:
        return _launch(settings, None)
    except _EndedError as ended:
        log.warning("Spark's JVM %s while it started; it is started once more", ended)
    ear = _Ear()
    try:
        return _launch(settings, ear.descriptor)
    except _EndedError as ended:
        ear.close()
        raise UnavailableError(
            f"Spark's JVM {ended} while it started, twice. Is there memory left (spark.driver.memory), and may this user "
            f"start another process? It said:\n{ear.last()}"
        ) from None
    finally:
        ear.close()


def _launch(settings: Mapping[str, str], stderr: int | None) -> _Jvm:
    """Start a JVM as pyspark does, less the fork, and return it when it listens."""
    from pyspark.find_spark_home import _find_spark_home

    command = [str(Path(_find_spark_home()) / "bin" / "spark-submit")]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    with tempfile.TemporaryDirectory(prefix="fluss_lab-jvm-") as folder:
        address = Path(folder) / "connection"
        environment = {**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address)}
        # Standard input is a pipe, by whose end the JVM ends with this process. A session of its own: Ctrl-C is not for it.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=stderr, env=environment, start_new_session=True
        )
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not address.is_file():
            if (code := process.poll()) is not None:
                _close(process)
                raise _EndedError(f"ended with {code}")
            if time.monotonic() > deadline_s:
                process.kill()
                _close(process)
                raise UnavailableError(f"Spark's JVM did not answer in {START_TIMEOUT_S:.0f} s; it was ended")
            time.sleep(_LOOK_S)
        return _Jvm(process, *_connection(address.read_bytes()))


class _EndedError(Exception):
    """A JVM ended while it started."""


def _connection(data: bytes) -> tuple[int, str]:
    """Return port and secret, as the JVM wrote them: a number of four bytes, a length of four, the text."""
    return int.from_bytes(data[:4], "big"), data[8 : 8 + int.from_bytes(data[4:8], "big")].decode()


def _connect(jvm: _Jvm) -> None:
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
    """Return whether a session's context runs and its JVM answers. Cost: a call of the JVM, some 0.3 ms."""
    context: Any = session.sparkContext
    if context._jsc is None:
        return False
    try:
        return not context._jsc.sc().isStopped()
    except Exception:  # py4j has a class of error for each way in which a JVM can be gone
        return False


def discard(session: SparkSession) -> None:
    """Forget a session that is dead, so that the next one can start. A JVM that still answers is used again."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as Classic

    context: Any = session.sparkContext
    gateway: Any = SparkContext._gateway
    if _answers(gateway):
        with suppress(Exception):
            session.stop()
    else:
        context._jsc = None  # or its `stop` would call the JVM, and warn
        with suppress(Exception):
            context.stop()
        SparkContext._gateway = SparkContext._jvm = None
        with suppress(Exception):
            gateway.shutdown()
        _close(getattr(gateway, "proc", None))
    Classic._instantiatedSession = Classic._activeSession = None


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
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


class _Ear:
    """A pipe whose every line goes on to standard error, and whose last lines are kept."""

    def __init__(self) -> None:
        reading, self.descriptor = os.pipe()
        self._lines: deque[str] = deque(maxlen=_LINES_MAX)
        self._thread = threading.Thread(target=self._listen, args=(reading,), name="fluss-spark-stderr", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close this process's end of what is written to; the JVM has its own. Twice is fine."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def last(self) -> str:
        """Return the last lines, once the JVM has ended."""
        self._thread.join(_TAIL_TIMEOUT_S)
        return "\n".join(f"  {line}" for line in self._lines) or "  (nothing)"

    def _listen(self, reading: int) -> None:
        with os.fdopen(reading, "rb") as pipe:
            for line in pipe:
                self._lines.append(line.decode(errors="replace").rstrip()[:_LINE_LENGTH_MAX])
                with suppress(OSError):
                    os.write(2, line)


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
