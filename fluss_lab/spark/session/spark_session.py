"""The SparkSession that everything here runs on: on loopback, in UTC, by Arrow, and quiet.

pyspark is imported inside the functions, after a Java was found, so that what is missing is said clearly.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fluss_lab.errors import UnsupportedError
from fluss_lab.spark.session.jvm_launch import discard, is_alive, start_session
from fluss_lab.spark.session.spark_errors import silence_query_loggers
from fluss_lab.spark.session.worker_placement import SparkPlacement, worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: All cores, each task up to three times: plain ``local[*]`` never tries a failed task again.
DEFAULT_MASTER = "local[*,3]"

#: May be set on any session, also one that was not made here.
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

    A Spark on this machine listens on loopback only and writes nothing into the current folder. A process has one Spark:
    a session that is active already, whoever made it, is used again with the runtime settings applied, if it fits. One
    whose JVM has died, or that was stopped, is replaced. A master elsewhere keeps the addresses of its own configuration.

    Args:
        app_name: Its name in Spark's own logs.
        master: Spark's master; default: the active session's, else ``local[*,3]``.
        config: Further Spark settings; they win over ours. ``spark.pyspark.python`` (or ``PYSPARK_PYTHON`` in the
            environment) names the Python of executors on other machines; default: this one's path.
        folder: Where Spark's warehouse goes if a table of Spark's own is made; default: a temporary folder
            that goes with the process.

    Raises:
        JavaNotFoundError: No Java 17 or newer; the text says what to install.
        UnavailableError: The JVM ended while it started, twice; the text has the end of what it said.
        UnsupportedError: An active session has another master or another value of a setting that cannot change
            any more, or is Spark Connect. Stop it first, or ask for nothing that differs.

    Cost: 4 to 10 s when a JVM must start, else milliseconds.
    """
    asked = dict(config or {})
    with _LOCK:
        if (active := _active()) is not None:
            return _reuse(active, master, asked)
        master = master or DEFAULT_MASTER
        placement = SparkPlacement(master, asked, folder)
        environment = placement.environment()  # looks for a Java, before anything of Spark is imported
        settings = _STATIC | _RUNTIME | placement.settings()
        session = start_session(settings | {"spark.master": master, "spark.app.name": app_name}, environment)
        silence_query_loggers()
        return session


def _active() -> SparkSession | None:
    """Return the session of this process, if there is a living one; pyspark is not imported for the question."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    session: SparkSession | None = None
    with suppress(Exception):  # of a JVM that is gone
        session = SparkSession.getActiveSession()
    if session is None:
        # Active is per thread: another thread's session is the builder's default.
        session = getattr(SparkSession, "_instantiatedSession", None)
    if session is None or not hasattr(session, "_jsparkSession") or is_alive(session):
        return session
    discard(session)
    return None


def _reuse(session: SparkSession, master: str | None, asked: dict[str, str]) -> SparkSession:
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
    if (python := worker_python(str(context.master))) is not None:
        # Read whenever a function is sent to the workers; the default is whatever `python3` is on the path.
        context.pythonExec = python
    return session
