"""The errors of frames whose files are gone or cannot be read, which pyspark passes on as traces of Java."""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final

from fluss_lab.spark.session.spark_errors import spark_message
from fluss_lab.tracebacks import notebook_traceback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: What pyspark makes of an error of Java's, one for each class that it knows.
_CONVERT: Final = "_convert_exception"
_SPARKS_OWN: Final = "org.apache.spark.SparkException"
_CONDITION: Final = "[FAILED_READ_FILE"
_GONE: Final = "[FAILED_READ_FILE.FILE_NOT_EXIST]"
_MAKE_ANEW: Final = (
    "A frame reads the files that were there when it was made; since then a compaction and an expiry of snapshots, or another "
    "program, removed this one: make the frame anew, as by lab.sql or to_spark"
)


def name_unread_files() -> None:
    """Have queries raise an error of pyspark's, in a paragraph, where Spark cannot read a file.

    It changes pyspark itself: so do queries of every session. The error is a `Py4JJavaError` too, as it was. Twice is fine.
    """
    from pyspark.errors.exceptions import captured

    convert: Any = getattr(captured, _CONVERT, None)
    if convert is not None and not hasattr(convert, "__wrapped__"):
        setattr(captured, _CONVERT, _knowing_files(convert))


def _knowing_files(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.base import UnknownException
    from pyspark.errors.exceptions.captured import CapturedException

    class FileReadException(CapturedException, Py4JJavaError):  # type: ignore[misc]
        """Spark could not read a file of a frame."""

        def __init__(self, origin: Any) -> None:
            super().__init__(origin=origin)
            self.java_exception = self.exception_cmd = origin
            self.errmsg = str(self)
            self._render_traceback_ = partial(notebook_traceback, self)

        def __str__(self) -> str:
            text = spark_message(Exception(self._desc))
            # Spark's own advice is for tables of its catalog.
            return f"{text.partition(chr(10))[0]} {_MAKE_ANEW}" if _GONE in text else text

    @wraps(convert)
    def convert_file_error(error: Any) -> Any:
        found = convert(error)
        if not isinstance(found, UnknownException):
            return found
        unread = next((each for each in _causes(error) if _CONDITION in (each.getMessage() or "")), None)
        return found if unread is None else FileReadException(unread)

    return convert_file_error


def _causes(error: Any) -> Iterator[Any]:
    """Yield an error of Spark's and those behind it, as far as they are Spark's: where a thread waited for another there are two."""
    while error is not None and error.getClass().getName() == _SPARKS_OWN:
        yield error
        error = error.getCause()
