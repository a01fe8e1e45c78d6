"""The tails of frames' logs as Parquet files: a small one is read once, here, and then by the JVM in one scan with the lake's files.

Without that, each use of a frame starts workers in Python for the few records that the lake does not have yet. The files
are of this user only. They lie in the folder that Spark has for files of the application, so they go with it, also when
its processes are killed (but the JVM itself, which leaves its own temporary files behind then). Until then a frame, and
whatever is made of it, finds its file: one goes earlier only when no plan in the JVM has it any more. What is no file is read by
tasks: `fluss_lab.spark.source.log_range_source`.
"""

from __future__ import annotations

import os
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from fluss_lab.model.config.options import SPARK_TAIL_FILE_SIZE_MAX
from fluss_lab.read.changelog.offset_ranges import LogRange
from fluss_lab.read.moment.table_state import TableSource
from fluss_lab.read.row_export import ROW_GROUP_ROWS
from fluss_lab.read.union.whole_files import TAIL_RECORDS_MAX, Tails, log_records
from fluss_lab.spark.log_task import in_spark_types, log_batches
from fluss_lab.spark.session.worker_placement import is_one_process
from fluss_lab.spark.source.spark_types import arrow_schema, with_nulls

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T  # noqa: N812

#: Metadata of a field of Spark: by which id its column is found in Parquet.
FIELD_ID: Final = "parquet.field.id"
#: The same of a field of Arrow.
_ARROW_ID: Final = b"PARQUET:field_id"
#: All files of an application: the tails of 16 frames as large as they may be by default, or of hundreds of small ones.
FILES_SIZE_MAX: Final = 1 << 30
#: Where a context's files are kept track of.
_FILES: Final = "_fluss_lab_tail_files"


class TailFile:
    """A Parquet file with the log's part of a frame.

    Attributes:
        path: Where it is.
        fields: Its columns, as Spark finds them.
        size_bytes: How large it is, or may become.
    """

    def __init__(self, path: Path, fields: T.StructType, size_bytes: int) -> None:
        self.path = path
        self.fields = fields
        self.size_bytes = size_bytes
        #: A weak reference of the JVM to what every plan over the file has; None: there is none yet.
        self._plan: Any = None

    @property
    def is_kept(self) -> bool:
        """Return whether a frame was made of it."""
        return self._plan is not None

    @property
    def is_in_use(self) -> bool:
        """Return whether it may be read yet: it is being made, or a plan in the JVM has it."""
        # To ask for what it refers to would give that to this process, which keeps it a little.
        return self._plan is None or not self._plan.refersTo(None)

    def keep_for(self, frame: DataFrame) -> None:
        """Have the file last as long as a plan of the JVM has it.

        Args:
            frame: What ``spark.read.parquet`` gave for the file, maybe with others.
        """
        # All that is made of a frame (views, joins, what is cached) shares the list of its files.
        listed = frame._jdf.queryExecution().analyzed().relation().location()
        jvm = frame.sparkSession.sparkContext._jvm
        assert jvm is not None
        self._plan = jvm.java.lang.ref.WeakReference(listed)

    def write(self, batches: Iterator[pa.RecordBatch], records: int | None) -> bool:
        """Write rows, in Spark's types, as long as they are no more than the file may become.

        Args:
            batches: The rows.
            records: How many rows they are; None: that is not known.

        Returns:
            Whether all of them are in the file.

        Raises:
            OSError: The disk refused.
        """
        import pyarrow.parquet as pq

        types = arrow_schema(self.fields)
        schema = pa.schema(_with_id(field, types.field(n)) for n, field in enumerate(self.fields.fields))
        os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        rows = size = 0
        # Nothing to prune by: the file is small. (And what statistics say of NaN, Spark takes for something else.)
        with (
            pa.OSFile(str(self.path), "wb") as sink,
            pq.ParquetWriter(
                sink, schema, compression="none", use_dictionary=False, write_statistics=False,
                write_page_checksum=True, store_schema=False,
            ) as writer,
        ):  # fmt: skip
            for batch in batches:
                rows, size = rows + batch.num_rows, size + batch.nbytes
                expected = size if records is None else size * records // rows
                if expected > self.size_bytes:
                    return False
                writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema), ROW_GROUP_ROWS)
        self.size_bytes = self.path.stat().st_size
        return True


def _with_id(field: T.StructField, stored: pa.Field) -> pa.Field:
    if FIELD_ID not in field.metadata:
        return stored
    return stored.with_metadata({_ARROW_ID: str(field.metadata[FIELD_ID]).encode()})


class TailFiles:
    """The tail files of one Spark context. Used by any thread.

    Args:
        folder: Of the application, on the driver's machine.
        collect: Has the JVM collect its garbage.
    """

    def __init__(self, folder: Path, collect: Any) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="fluss_lab-tails-", dir=folder))
        self._collect = collect
        self._lock = threading.Lock()
        self._files: list[TailFile] = []
        #: Bytes taken since the JVM was last asked to collect.
        self._taken = FILES_SIZE_MAX

    @contextmanager
    def new(self, fields: T.StructType, size_max: int) -> Iterator[TailFile | None]:
        """Yield a new file, which is removed at the end of the block unless a frame was made of it; None: there is no room.

        Args:
            fields: Its columns.
            size_max: How large it may become.
        """
        file = TailFile(self._folder / f"{uuid.uuid4().hex}.parquet", fields, size_max)
        try:
            yield file if self._take(file) else None
        finally:
            if not file.is_kept:
                self._remove([file])

    def _take(self, file: TailFile) -> bool:
        if not self._has_room(file):
            self._remove_unused()
        if not self._has_room(file) and self._taken >= FILES_SIZE_MAX // 4:
            # Plans that nobody has any more are found when the JVM looks for them. Where that was in vain it is not
            # asked again at every frame.
            self._taken = 0
            self._collect()
            self._remove_unused()
        with self._lock:
            if not self._fits(file):
                return False
            self._files.append(file)
            self._taken += file.size_bytes
            return True

    def _has_room(self, file: TailFile) -> bool:
        with self._lock:
            return self._fits(file)

    def _fits(self, file: TailFile) -> bool:
        return sum(each.size_bytes for each in self._files) + file.size_bytes <= FILES_SIZE_MAX

    def _remove_unused(self) -> None:
        with self._lock:
            files = list(self._files)
        self._remove([each for each in files if not each.is_in_use])

    def _remove(self, files: list[TailFile]) -> None:
        for each in files:
            with suppress(OSError):
                each.path.unlink(missing_ok=True)
        with self._lock:
            self._files = [each for each in self._files if each not in files]


def tail_files(context: SparkContext) -> TailFiles | None:
    """Return the tail files of a context; None: its executors are other processes, or it has no folder for them."""
    if not is_one_process(str(context.master)):
        return None
    found: TailFiles | None = getattr(context, _FILES, None)
    if found is None:
        jvm = context._jvm
        assert jvm is not None
        folder = Path(jvm.org.apache.spark.SparkFiles.getRootDirectory())
        try:
            found = TailFiles(folder, jvm.java.lang.System.gc)
        except OSError:
            return None
        setattr(context, _FILES, found)
    return found


def log_tail(
    session: SparkSession,
    source: TableSource,
    ranges: Sequence[LogRange],
    schema: T.StructType,
    fields: T.StructType,
) -> AbstractContextManager[TailFile | None]:
    """Return a block's file with the records of the log that a frame is made of in the block; None: tasks read them.

    Tasks do where executors are other processes than the driver, where the records are more than the option
    ``client.spark.tail-file-size-max`` and `TAIL_RECORDS_MAX` allow, and where there is no room for the file.

    Args:
        source: The table.
        ranges: Which records.
        schema: The columns wanted.
        fields: The same, as Spark finds them in files.

    Raises:
        FlussError: As `read_range`: the records cannot be read.

    Cost: the records are read and written once; of too many of them the first answer of the server.
    """
    records = sum(each.records for each in ranges)
    batches = log_batches(source.connection, source.info, ranges, schema, ROW_GROUP_ROWS)
    return _written_file(session, source, fields, batches, records, records)


def keyed_tail(
    session: SparkSession, source: TableSource, tails: Tails, schema: T.StructType, fields: T.StructType
) -> AbstractContextManager[TailFile | None]:
    """Return a block's file with the rows of a primary-key table in the log's part of a read; None: tasks read them.

    Args:
        tails: That part, with the columns of the schema.
        fields: May have further columns behind the schema's: they are null.

    All else is as in `log_tail`; what of the rows was kept is not read again, and nothing is where they are too large.
    """
    if tails.expected_bytes > SPARK_TAIL_FILE_SIZE_MAX.of(source.connection.options):
        return nullcontext()
    batches = with_nulls(in_spark_types(tails.rows(), source.info, schema, ROW_GROUP_ROWS), arrow_schema(fields))
    # How many of the records are rows is not known.
    return _written_file(session, source, fields, batches, log_records(tails.plan.parts), None)


def tail_size_max(session: SparkSession, source: TableSource, records: int) -> int:
    """Return how large a file with so many records of the log may become; 0: tasks read them."""
    size_max = SPARK_TAIL_FILE_SIZE_MAX.of(source.connection.options)
    is_written = 0 < records <= TAIL_RECORDS_MAX and size_max and tail_files(session.sparkContext) is not None
    return size_max if is_written else 0


@contextmanager
def _written_file(
    session: SparkSession,
    source: TableSource,
    fields: T.StructType,
    batches: Iterator[pa.RecordBatch],
    records: int,
    rows: int | None,
) -> Iterator[TailFile | None]:
    size_max = tail_size_max(session, source, records)
    files = tail_files(session.sparkContext) if size_max else None
    if files is None:
        yield None
        return
    with files.new(fields, size_max) as file:
        yield file if file is not None and _is_written(file, source, batches, rows) else None


def _is_written(file: TailFile, source: TableSource, batches: Iterator[pa.RecordBatch], records: int | None) -> bool:
    try:
        with source.watch("reading the log of {}"):
            return file.write(batches, records)
    except OSError:
        return False  # tasks need no disk
