"""The SparkSession that everything here runs on: on loopback, in UTC, by Arrow, and quiet.

pyspark is imported inside the functions, after a Java was found, so that what is missing is said clearly.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import ResourceExhaustedError, UnsupportedError
from fluss_lab.model.config.config_chain import RUN_VARIABLE
from fluss_lab.spark.session.class_archive import archive_of
from fluss_lab.spark.session.early_spark import EarlySpark, Plan
from fluss_lab.spark.session.file_errors import name_unread_files
from fluss_lab.spark.session.frame_interrupts import cancel_stopped_fetches
from fluss_lab.spark.session.jvm_launch import SESSION_CLASS, Jvm, abandon, discard, has_jvm, is_alive, start_session
from fluss_lab.spark.session.jvm_surroundings import (
    ARGUMENTS,
    check_local_dirs,
    check_open_files,
    check_temporary_files,
    check_threads,
    check_user,
)
from fluss_lab.spark.session.spark_errors import silence_query_loggers
from fluss_lab.spark.session.stream_display import show_streams_by_columns
from fluss_lab.spark.session.worker_placement import (
    SparkPlacement,
    is_one_process,
    runs_here,
    spark_home,
    worker_python,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: Whether each thread of Python has a thread of the JVM: pyspark's default, and what an early start expects.
_PINNED: Final = "PYSPARK_PIN_THREAD"
#: All cores, each task up to three times: plain ``local[*]`` never tries a failed task again.
DEFAULT_MASTER = "local[*,3]"

#: Columns of lake files go by Iceberg's field ids; files without ids (the user's own) go by name.
FIELD_IDS: Final = {
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "true",
}

#: Rules of the optimizer that a session leaves out. This one fails ("key not found") where a correlated subquery is a column of a
#: union, which frames of primary-key tables are; columns are pruned without it too.
_EXCLUDED_RULES: Final = "spark.sql.optimizer.excludedRules"
_FAILING_RULE: Final = "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughUnion"

#: May be set on any session, also one that was not made here.
_RUNTIME = {
    **FIELD_IDS,
    "spark.sql.session.timeZone": "UTC",
    # What a filter compares with is handed to the reader of files as java.sql.Date and Timestamp otherwise, which have no
    # 5 to 14 October 1582: `= date'1582-10-10'` asked files for the 15th, and found nothing.
    "spark.sql.datetime.java8API.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # mapInArrow goes by position, not by name: a mistake must be an error, not swapped columns.
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    # Without it a frame's _repr_html_ is None.
    "spark.sql.repl.eagerEval.enabled": "true",
    _EXCLUDED_RULES: _FAILING_RULE,
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

#: Of 200 shuffle partitions, Spark's default, a few cores have only the cost; so many a core even out skew.
_SHUFFLE_PARTITIONS_A_CORE: Final = 4

_APP_NAME: Final = "fluss_lab"
#: Two threads that ask at once get one session.
_LOCK: Final = threading.Lock()
#: What has begun before a session was asked for.
_EARLY: Final = EarlySpark()


def begin_session(
    owner: object,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    *,
    class_archive: bool = True,
) -> None:
    """Begin to start, in a thread, what `spark_session` will be asked for; returns at once, and never fails.

    It does nothing where the process has a JVM already, for masters that give executors on other machines or processes, and
    where ``PYSPARK_SUBMIT_ARGS`` is set, which could name such a master to ``spark-submit``.

    Args:
        owner: Who may ask, until it calls `leave_session`.
        master, config, class_archive: As `spark_session` will have them; with others what has begun is of no use, and ended.
    """
    master, asked = master or DEFAULT_MASTER, dict(config or {})
    if is_one_process(master) and not has_jvm() and not _is_configured_otherwise():
        _EARLY.begin(
            owner, (master, asked), lambda: session_plan(_APP_NAME, master, asked, None, class_archive=class_archive)
        )


def _is_configured_otherwise() -> bool:
    return ARGUMENTS in os.environ or os.environ.get(_PINNED, "true").lower() != "true"


def leave_session(owner: object) -> None:
    """End what was begun for an owner, unless a session has come of it or another owner is left."""
    _EARLY.leave(owner)


def spark_session(
    app_name: str = _APP_NAME,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    folder: Path | None = None,
    *,
    class_archive: bool = True,
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
        class_archive: Whether a JVM in one process with Spark's executors maps its classes from a file of the user's
            cache, and whether that is made, in the background, where there is none. See `class_archive`.

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
            _EARLY.discard()
            return _reuse(active, master, asked)
        master = master or DEFAULT_MASTER
        session = _take_session(master, asked) if (app_name, folder) == (_APP_NAME, None) else None
        if session is None:
            _EARLY.discard()
            session = _start(session_plan(app_name, master, asked, folder, class_archive=class_archive))
        silence_query_loggers()
        show_streams_by_columns()
        cancel_stopped_fetches()
        name_unread_files()
        return session


def _take_session(master: str, asked: dict[str, str]) -> SparkSession | None:
    """Return the session of what has begun already; None: nothing has that serves."""
    if has_jvm() or (early := _EARLY.take((master, asked))) is None:
        return None
    jvm, plan = early
    try:
        return _start(plan, jvm)
    except Exception as error:
        log.info("Spark's JVM, which was started early, cannot be used; another one is started: %s", error)
        abandon(jvm)
        return None


def _start(plan: Plan, jvm: Jvm | None = None) -> SparkSession:
    session = start_session(*plan, jvm)
    if (archive := archive_of(plan[1])) is not None and RUN_VARIABLE not in os.environ:
        with suppress(ResourceExhaustedError):  # for a JVM beside this one
            check_threads()
            archive.begin()
    return session


def session_plan(
    app_name: str, master: str, asked: dict[str, str], folder: Path | None, *, class_archive: bool = True
) -> Plan:
    """Return settings and environment of a Spark that is going to start.

    Raises:
        JavaNotFoundError: There is no Java 17 or newer.
        StorageError: None of Spark's folders for files on this machine can be written, or no temporary files.
        ResourceExhaustedError: A JVM may not open the files, or start the threads, that it must.
        UnsupportedError: This user has no name.
    """
    check_user()
    check_temporary_files()
    check_threads()
    check_open_files(Path(home) if (home := os.environ.get("SPARK_HOME")) else spark_home())
    placement = SparkPlacement(master, asked, folder, has_archive=class_archive)
    environment = placement.environment()  # looks for a Java, before anything of Spark is imported
    settings = _STATIC | _RUNTIME
    if runs_here(master):
        check_local_dirs(os.environ, asked)
        settings |= {"spark.sql.shuffle.partitions": str(_SHUFFLE_PARTITIONS_A_CORE * (os.cpu_count() or 1))}
    settings |= placement.settings()
    return settings | {"spark.master": master, "spark.app.name": app_name}, environment


@contextmanager
def as_active(session: SparkSession) -> Iterator[None]:
    """Have a session be the active one, of the JVM's thread and by pyspark's own note, while the block runs."""
    owner, kind = type(session), getattr(session._jvm, SESSION_CLASS)
    before, before_here = kind.getActiveSession(), owner._activeSession
    kind.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        owner._activeSession = before_here
        if before.isDefined():
            kind.setActiveSession(before.get())
        else:
            kind.clearActiveSession()


def activate_where_none_is(session: SparkSession) -> None:
    """Have a session be the active one of the JVM's thread, if that has none.

    Spark looks there for the source by which a frame is written or streamed. Each thread of Python has one of the JVM, which
    begins without; and so does the one that takes its place after an interrupt cut a call off.

    Cost: two calls of the JVM, some 0.5 ms.
    """
    kind = getattr(session._jvm, SESSION_CLASS)
    if not kind.getActiveSession().isDefined():
        kind.setActiveSession(session._jsparkSession)


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
    left_out = (session.conf.get(_EXCLUDED_RULES, "") or "").split(",")
    rules = {_EXCLUDED_RULES: ",".join(dict.fromkeys(filter(None, (*left_out, _FAILING_RULE))))}
    for key, value in (_RUNTIME | rules | asked).items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
        elif (found := session.conf.get(key, None)) != value:
            raise UnsupportedError(
                f"{key} is {found} in the active SparkSession and cannot change while it runs, asked for {value}: "
                "stop it (spark.stop()) and ask again"
            )
    show_streams_by_columns()
    cancel_stopped_fetches()
    name_unread_files()
    if (python := worker_python(str(context.master))) is not None:
        # Read whenever a function is sent to the workers; the default is whatever `python3` is on the path.
        context.pythonExec = python
    return session
