"""Errors of Spark as a notebook shows them: what Spark says, without its plans, its log and the JVM's frames."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from fluss_lab.errors import FlussError, ResourceExhaustedError, StorageError, UnavailableError
from fluss_lab.spark.session.jvm_launch import NO_DESCRIPTOR, is_alive
from fluss_lab.tracebacks import notebook_traceback

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: By these pyspark writes an error that it raises to standard error as well, as a line of JSON with its Python frames.
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_OFF: Final = 100
#: By which a disk refuses a write: full, a quota that is used up, read-only.
_REFUSED: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
_JVM_FRAMES: Final = re.compile(r"\n\s*at [\w.$/<>]+\(.*", re.DOTALL)
_PYTHON_FRAMES: Final = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?P<error>\S.*)", re.MULTILINE
)


def silence_query_loggers() -> None:
    """Have pyspark write errors that it raises nowhere else."""
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS:
        PySparkLogger.getLogger(name).setLevel(_OFF)


@contextmanager
def folded_errors(views: Mapping[str, str] | None = None, missing: Sequence[str] = ()) -> Iterator[None]:
    """Have a notebook show errors of Spark that the block raises as one paragraph; they stay what they are.

    Args:
        views: What temporary views stand for.
        missing: Filled in the block: what is said instead of Spark's advice when there is no such table.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = spark_message(error)
        if is_missing_table(error) and missing:
            text = f"{text.split(' Verify ', 1)[0]} {'; '.join(missing)}"
        elif hasattr(error, "_render_traceback_"):
            raise  # by a block within this one
        for view, name in (views or {}).items():
            text = text.replace(view, name)
        error._render_traceback_ = partial(notebook_traceback, error, text)  # type: ignore[union-attr]
        raise


@contextmanager
def spark_loss(session: SparkSession, what: str) -> Iterator[None]:
    """Have whatever the block raises because its Spark is gone, or cannot be asked, say so.

    py4j has an error of its own for each way in which a JVM can be gone, or passes on the socket's.

    Args:
        session: Which the block uses.
        what: It does.

    Raises:
        UnavailableError: The session's JVM ended, or it was stopped. Any other error passes as it is.
        ResourceExhaustedError: This process has too many files open to ask it.
        StorageError: Its folder for files on this machine took no more.
    """
    try:
        yield
    except FlussError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_DESCRIPTOR:
            raise ResourceExhaustedError(
                f"{what}: {error.strerror}: Spark cannot be asked; close some (connections, scanners), or allow more: ulimit -n"
            ) from error
        if (refusal := disk_refusal(error, session, what)) is not None:
            raise refusal from error
        if is_alive(session):
            raise
        raise UnavailableError(
            f"{what}: its Spark is gone: the JVM ended, or its session was stopped, and with it the frames and views that it had; "
            "make them anew: lab.spark and lab.sql start another one"
        ) from error


def disk_refusal(error: Exception, session: SparkSession, what: str) -> StorageError | None:
    """Return the error to raise where a disk refused a file of pyspark's own; None: it is another error.

    Args:
        error: That what is done with Spark has raised.
        session: Which was used.
        what: It does.
    """
    if not isinstance(error, OSError) or error.errno not in _REFUSED:
        return None
    folder = getattr(session.sparkContext, "_temp_dir", "its folder")
    return StorageError(
        f"{what}: {error.strerror}: Spark writes what it is given into {folder}; make room on that disk, or start Spark anew with "
        "another folder (TMPDIR, SPARK_LOCAL_DIRS)"
    )


def is_missing_table(error: BaseException) -> bool:
    """Return whether Spark knows no table or view of a name."""
    return "[TABLE_OR_VIEW_NOT_FOUND]" in str(error)


def spark_message(error: BaseException) -> str:
    """Return what an error of Spark says, in as few lines as that takes.

    Of an error in a Python worker it is that error alone.
    """
    text = str(error)
    if found := list(_PYTHON_FRAMES.finditer(text)):
        return found[-1]["error"].strip()
    text = _JVM_FRAMES.sub("", text)
    # After the message, a plan: from the line on that begins with its first node.
    return re.split(r";\n'?\w", text, maxsplit=1)[0].strip()
