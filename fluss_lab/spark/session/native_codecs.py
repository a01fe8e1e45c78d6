"""The native library by which Spark reads the lake's pages: its JVM unpacks it into a temporary folder when it is first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fluss_lab.errors import StorageError
from fluss_lab.spark.session.worker_placement import runs_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ZSTD: Final = "com.github.luben.zstd.util.Native"
#: Where a context knows that it has it.
_LOADED: Final = "_fluss_lab_codecs_loaded"


def load_codecs(session: SparkSession) -> None:
    """Have a session's JVM unpack and load its codec of pages, if Spark reads on this machine.

    A JVM that finds no room for it in the midst of a query takes the classes which need it for unusable, for as long as it
    lives, whatever room there is later. Asked beforehand it tries again.

    Raises:
        StorageError: It cannot be unpacked.

    Cost: once for each Spark some 10 ms, which its first query would take too.
    """
    from py4j.protocol import Py4JJavaError

    context: Any = session.sparkContext
    if getattr(context, _LOADED, False) or not runs_here(str(context.master)):
        return
    try:
        getattr(context._jvm, _ZSTD).load()
    except Py4JJavaError as error:
        folder = context._jvm.System.getProperty("java.io.tmpdir")
        said = str(error.java_exception.toString()).rpartition("Error: ")[2]
        raise StorageError(
            f"Spark cannot unpack a library that it reads the lake's files with into {folder}: {said}; make room there, or "
            "let TMPDIR name another folder and start Python again"
        ) from error
    setattr(context, _LOADED, True)
