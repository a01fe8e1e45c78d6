"""The daemon that forks Spark's Python workers, with the imports of their tasks done, so that tasks start warm.

Spark starts it as ``python -m fluss_lab.spark.session.worker_daemon <worker module>`` (``spark.python.daemon.module``), ends idle
workers after a minute, and forks new ones for the next tiering round. Measured with two workers that use Arrow,
gRPC and pyiceberg, CPU seconds of the Python side against Spark's own daemon: first jobs 1.4 to 3.6, a job of two
tiny tasks 0.04 to 0.13, a later round with new workers 0.5 to 1.5.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final, TextIO

#: What tasks import. Imported only, never called: channels and threads would not survive the fork.
_WARM = (
    "pyspark.worker",
    "pyarrow.dataset",
    "pandas",
    "grpc",
    "fluss_lab.tiering.task.tiering_task",
    "fluss_lab.lake.iceberg.read.row_source",
    "fluss_lab.lake.iceberg.write.data_file_writer",
    "fluss_lab.spark.source.batch_reader",
    "fluss_lab.spark.log_task",
)

#: How Python speaks of a file that was opened by its descriptor, or a socket in the user's folder, and not closed.
UNCLOSED: Final = r"unclosed (file <_io\.Buffered(Reader|Writer) name=\d+>|<socket\.socket [^>]*laddr=/[^>]*\.sock>)"
#: What a worker meets where Spark does not listen any more.
_HUNG_UP: Final = (BrokenPipeError, ConnectionResetError)


def main() -> None:
    """Import, then serve forks until Spark closes standard input."""
    # What is imported is there until the end: no search for garbage needs to pass through it (an eighth of the imports).
    gc.disable()
    sys.path[:] = without_zips(sys.path)
    # Arrow's jemalloc would start a thread on import; the default pool is another one.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    # The planner's one-off workers (data source creation and the like) get daemons of their own: nothing for them.
    if sys.argv[1:2] in ([], ["pyspark.worker"]):
        for name in _WARM:
            # What fails to import must fail in the task that needs it, with its message, not here.
            with suppress(Exception):
                importlib.import_module(name)
    # Not above: it must come from the path without archives.
    from pyspark import daemon

    # Of those that pyspark's daemon and workers leave to the end of their processes; a task's own files have paths as names.
    warnings.filterwarnings("ignore", UNCLOSED, ResourceWarning)
    daemon.worker = ends_quietly(daemon.worker)
    vars(daemon).update(traceback=QuietTraces(), print=print_words)

    # Workers collect garbage after every task. What is loaded by now never is any, and looking through it took longer
    # than a small task; it also stays in pages that the workers share.
    gc.collect()
    gc.freeze()
    gc.enable()
    daemon.manager()


def ends_quietly(worker: Callable[..., int]) -> Callable[..., int]:
    """Return a worker that ends without a trace on the screen when Spark has hung up: of a LIMIT it does not want the rest."""

    def run(*arguments: object) -> int:
        try:
            return worker(*arguments)
        except _HUNG_UP:
            return 1

    return run


class QuietTraces:
    """`traceback` as pyspark's daemon needs it, which says nothing where Spark has hung up: its JVM is ending, or ended."""

    @staticmethod
    def format_exc() -> str:
        """Return the trace of the error under way; an empty text where Spark has hung up."""
        return "" if _has_hung_up() else traceback.format_exc()

    @staticmethod
    def print_exc() -> None:
        """Print that trace."""
        if not _has_hung_up():
            traceback.print_exc()


def print_words(*words: object, file: TextIO | None = None) -> None:
    """Print what pyspark's daemon says, unless Spark has hung up."""
    if not _has_hung_up():
        print(*words, file=file)


def _has_hung_up() -> bool:
    return isinstance(sys.exception(), _HUNG_UP)


def without_zips(path: list[str]) -> list[str]:
    """Return a module search path without the archives of pyspark and py4j, where the packages are there too.

    Spark puts ``pyspark.zip`` of its home first, and a zip has no compiled modules: every daemon and every worker
    would compile pyspark again: 1.2 of 2.0 CPU seconds until the second job.
    """
    archives = {
        entry for entry in path if entry.endswith(".zip") and Path(entry).parent.parts[-2:] == ("python", "lib")
    }
    rest = [entry for entry in path if entry not in archives]
    spec = PathFinder.find_spec("pyspark", rest)
    if spec is None or spec.origin is None or PathFinder.find_spec("py4j", rest) is None:
        return path
    # Only the archives that belong to the package found: any other pyspark is there on purpose.
    own = (Path(spec.origin).parent / "python" / "lib").resolve()
    # A home may be a folder of links to the package, and may have none.
    kept = {entry for entry in archives if Path(entry).exists() and Path(entry).resolve().parent != own}
    return [entry for entry in path if entry not in archives or entry in kept]


if __name__ == "__main__":
    main()
