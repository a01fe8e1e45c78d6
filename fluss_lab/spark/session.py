"""The SparkSession that everything here runs on: on loopback, in UTC, by Arrow, and quiet.

pyspark is imported inside the functions, after a Java was found, so that what is missing is said clearly.
"""

from __future__ import annotations

import atexit
import os
import shutil
import site
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from fluss_lab.errors import UnsupportedError
from fluss_lab.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: All cores, each task up to three times: plain ``local[*]`` never tries a failed task again.
DEFAULT_MASTER = "local[*,3]"

#: May be set on any session, also one that somebody else made.
_RUNTIME = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # mapInArrow goes by position, not by name: a mistake must be an error, not swapped columns.
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    # Columns of lake files go by Iceberg's field ids; files without ids (the user's own) go by name.
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "true",
    # Without it a frame's _repr_html_ is None.
    "spark.sql.repl.eagerEval.enabled": "true",
}

#: Fixed when the context starts, whatever the master.
_STATIC = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    # A long tiering round and a short query share the cores.
    "spark.scheduler.mode": "FAIR",
    "spark.python.worker.reuse": "true",
}

#: Two threads that ask at once get one session.
_LOCK = threading.Lock()


def spark_session(
    app_name: str = "fluss_lab",
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> SparkSession:
    """Return the SparkSession of this process, starting Spark on first use.

    A local Spark listens on loopback only and writes nothing into the current folder. A process has one Spark: a
    session that is active already, whoever made it, is used again with the runtime settings applied, if it fits.
    A master that is not local keeps the addresses and files of its own configuration.

    Args:
        app_name: Its name in Spark's own logs.
        master: Spark's master; default: the active session's, else ``local[*,3]``.
        config: Further Spark settings; they win over ours.
        folder: Where Spark's warehouse goes if somebody makes a table of Spark's own; default: a temporary folder
            that goes with the process.

    Raises:
        JavaNotFoundError: No Java 17 or newer; the text says what to install.
        UnsupportedError: An active session has another master or another value of a setting that cannot change
            any more, or is Spark Connect. Stop it first, or ask for nothing that differs.

    Cost: 4 to 10 s when a JVM must start, else milliseconds.
    """
    asked = dict(config or {})
    with _LOCK:
        if (active := _active()) is not None:
            return _reused(active, master, asked)
        master = master or DEFAULT_MASTER
        settings = _STATIC | _RUNTIME | _placement(master, folder) | asked
        with _environment(_launch_environment(master)):
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.appName(app_name).master(master)
            for key, value in settings.items():
                builder = builder.config(key, value)
            return builder.getOrCreate()


def is_local(master: str) -> bool:
    """Return whether a master runs all of Spark on this machine (``local-cluster`` included)."""
    return master.startswith("local")


def _active() -> SparkSession | None:
    """Return the session of this process, if there is a living one; pyspark is not imported for the question."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        # Active is per thread: another thread's session is the builder's default.
        session = getattr(SparkSession, "_instantiatedSession", None)
    if session is None or not hasattr(session, "_jsparkSession"):
        return session
    stopped = session.sparkContext._jsc is None or session.sparkContext._jsc.sc().isStopped()
    return None if stopped else session


def _reused(session: SparkSession, master: str | None, asked: dict[str, str]) -> SparkSession:
    """Return the active session with the runtime settings applied, or raise UnsupportedError."""
    from pyspark.sql import SparkSession as Classic

    if not isinstance(session, Classic):
        raise UnsupportedError(
            "the active SparkSession is a Spark Connect session; fluss_lab needs a classic one: stop it "
            "(spark.stop()) and ask again"
        )
    context = session.sparkContext
    if master is not None and context.master != master:
        raise UnsupportedError(
            f"a SparkSession with master {context.master} is active, asked for {master}: stop it (spark.stop()) or "
            "ask for no master"
        )
    for key, value in (_RUNTIME | asked).items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
        elif (found := session.conf.get(key, None)) != value:
            raise UnsupportedError(
                f"{key} is {found} in the active SparkSession and cannot change while it runs, asked for {value}: "
                "stop it (spark.stop()) and ask again"
            )
    # Read whenever a function is sent to the workers; the default is whatever `python3` is on the path.
    context.pythonExec = sys.executable
    return session


def _placement(master: str, folder: Path | None) -> dict[str, str]:
    """Return the settings of a Spark on this machine; nothing for a master that is not local."""
    if not is_local(master):
        return {}
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="fluss_lab-spark-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    log_settings = Path(str(resources.files("fluss_lab.spark").joinpath("log4j2.properties")))
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": (folder.absolute() / "spark-warehouse").as_uri(),
        # As a URI: the launcher splits options at spaces.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_settings.as_uri()}",
        # 200 by default, which a few cores only pay for; four tasks a core even out skew.
        "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
        "spark.python.daemon.module": "fluss_lab.spark.daemon",
    }
    source = Path(__file__).parents[2]
    if str(source) not in {*site.getsitepackages(), site.getusersitepackages()}:
        # A checkout: workers find it wherever the driver's current folder is.
        settings["spark.executorEnv.PYTHONPATH"] = str(source)
    return settings


def _launch_environment(master: str) -> dict[str, str | None]:
    """Return the environment variables that Spark's start reads; None stands for one that must be absent."""
    from importlib.util import find_spec

    wanted: dict[str, str | None] = {
        # Workers run what the driver runs, not the first python3 on the path.
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Any of these would make a Spark Connect session.
        "SPARK_REMOTE": None,
        "SPARK_API_MODE": None,
        "SPARK_CONNECT_MODE_ENABLED": None,
    }
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        wanted["JAVA_HOME"] = str(find_java().home)
    if is_local(master):
        # The block manager and the UI follow this one only, not spark.driver.bindAddress.
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
        spec = find_spec("pyspark")
        if spec is not None and spec.submodule_search_locations:
            # Another Spark's jars do not fit this pyspark; and the scripts' own search breaks on paths with spaces.
            wanted["SPARK_HOME"] = next(iter(spec.submodule_search_locations))
    return wanted


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
