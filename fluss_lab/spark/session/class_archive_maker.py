"""The process that makes an archive of Spark's classes: ``python -m ... FOLDER`` starts a Spark, uses it, and ends it.

What it runs decides which classes are in the archive: a little of each kind of query that the house, and people, run.
It ends with the process that began it, which holds its standard input.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from fluss_lab.spark.session.class_archive import OPTIONS_VARIABLE, ClassArchive, lower_priority
from fluss_lab.spark.session.jvm_launch import start_session
from fluss_lab.spark.session.worker_placement import SparkPlacement, scratch_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MASTER: Final = "local[2]"
#: Twenty seconds on two idle cores; after this it is given up.
_TIMEOUT_S: Final = 600.0
_END_S: Final = 10.0
_QUERIES: Final = (
    "select id % 3 as k, count(*), sum(id), avg(id), max(cast(id as string)) from range(0, 1000, 1, 2) group by 1 order by 1",
    "select a.id, b.s from range(10) a join (select id, cast(id as string) s from range(5)) b using (id) where b.s like '1%'",
    "select id, row_number() over (partition by id % 2 order by id desc) from range(10)",
    "select date_trunc('day', timestamp_seconds(id)), array(id), struct(id, id), cast(id as decimal(10, 2)) from range(3)",
    "select distinct id % 2 from range(10) union select 7 limit 3",
    "show databases",
)


def main(folder: str) -> int:
    """Make the archive of a folder; return the exit code: 0, or 1 for one that could not be made."""
    lower_priority()
    archive = ClassArchive(Path(folder))
    with suppress(BlockingIOError), archive.draft() as path:
        scratch = scratch_folder()
        # Of this process and its JVM: what they leave when they are killed goes with the folder.
        tempfile.tempdir = str(scratch)
        ends = _end_with(sys.stdin.fileno(), archive, path, scratch)
        try:
            _make(archive, path, scratch)
        except Exception:
            if ends.is_set():
                # It failed because its JVM was killed: that it was left is noted, and no failure of its own.
                threading.Event().wait()
            raise
    return 0


def _make(archive: ClassArchive, path: Path, scratch: Path) -> None:
    session = _start(archive, path, scratch)
    for work in _works(session, scratch):
        # What cannot be run here is not in the archive; that is all.
        with suppress(Exception):
            work()
    _end(session)


def _start(archive: ClassArchive, path: Path, scratch: Path) -> SparkSession:
    placement = SparkPlacement(_MASTER, {}, scratch)
    given = os.environ.get(OPTIONS_VARIABLE, "")
    options = f'{given} -XX:ArchiveClassesAtExit="{path}" -Xlog:disable'.strip()
    environment = placement.environment() | {"SPARK_HOME": str(archive.home), OPTIONS_VARIABLE: options}
    settings = placement.settings() | {
        "spark.master": _MASTER,
        "spark.app.name": "fluss_lab-class-archive",
        "spark.ui.enabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.local.dir": str(scratch),
    }
    return start_session(settings, environment)


def _works(session: SparkSession, scratch: Path) -> Iterator[Callable[[], object]]:
    import pyarrow as pa

    from fluss_lab.spark.data_source import FlussDataSource

    for query in _QUERIES:
        yield partial(_run, session, query)
    rows = pa.table({"a": list(range(100)), "b": ["x", "y"] * 50})
    frame = session.createDataFrame(rows)
    files = str(scratch / "files")
    yield lambda: frame.groupBy("b").count().toPandas()
    yield lambda: frame.filter("a > 3").mapInArrow(lambda batches: batches, frame.schema).collect()
    yield lambda: frame.write.partitionBy("b").parquet(files)
    yield lambda: session.read.parquet(files).filter("a > 3 and b = 'x'").select("a").toArrow()
    yield lambda: frame.createOrReplaceTempView("frame")
    yield lambda: session.sql("select b, sum(a) from frame group by b").show()
    yield frame.explain
    # Without a table it fails, after the classes of such sources were loaded.
    yield lambda: session.dataSource.register(FlussDataSource)
    yield lambda: session.read.format("fluss").load()
    yield lambda: _stream(session, files, str(scratch / "checkpoint"))


def _run(session: SparkSession, query: str) -> None:
    session.sql(query).toArrow()


def _count(frame: DataFrame, _: int) -> None:
    frame.count()


def _stream(session: SparkSession, files: str, checkpoint: str) -> None:
    stream = session.readStream.schema(session.read.parquet(files).schema).parquet(files)
    writer = stream.writeStream.foreachBatch(_count).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination(60)


def _end(session: SparkSession) -> None:
    """End Spark and its JVM, which writes the archive then.

    Raises:
        CalledProcessError: The JVM failed.
        TimeoutExpired: It hangs.
    """
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    session.stop()
    with suppress(Exception):
        gateway.shutdown()
    process: subprocess.Popen[bytes] = gateway.proc
    assert process.stdin is not None
    process.stdin.close()
    if code := process.wait(_TIMEOUT_S):
        raise subprocess.CalledProcessError(code, "java")


def _end_with(parent: int, archive: ClassArchive, draft: Path, scratch: Path) -> threading.Event:
    """End this process and its JVM, with all that they wrote, when the parent has gone, or when the time is over.

    Returns:
        What is set before the JVM is killed.
    """
    ends = threading.Event()

    def watch() -> None:
        os.read(parent, 1)
        stop(is_left=True)

    def stop(*, is_left: bool = False) -> None:
        ends.set()
        _kill_children()
        with suppress(OSError):
            archive.note_failure(is_left=is_left)
            draft.unlink(missing_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)
        _kill_children()  # what was just being started
        os._exit(1)

    def refuse(event: str, _: object) -> None:
        # A JVM that starts without the folder for its address waits for ever.
        if event == "subprocess.Popen" and ends.is_set():
            raise RuntimeError("no process is started: this one ends")

    sys.addaudithook(refuse)
    threading.Thread(target=watch, daemon=True).start()
    limit = threading.Timer(_TIMEOUT_S, stop)
    limit.daemon = True
    limit.start()
    return ends


def _kill_children() -> None:
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()
            child.wait(_END_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
