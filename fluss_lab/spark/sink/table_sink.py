"""The sink of frames into tables: ``df.writeStream.format("fluss")``, and ``df.write.format("fluss").mode("append")``.

Log tables get rows appended, primary-key tables upserted. A column ``_change_type`` (or another one, option
``change.column``) says what is done with each row: ``+A +I +U`` write it, ``-D`` deletes the row of its key, ``-U`` is
nothing; so the stream of one table can be written into another. Columns are found by name; nullable ones that the frame
does not have become null, or with the option ``columns`` (a partial update) keep their value.

With the output mode ``complete`` a batch is the whole result: in a primary-key table, which is then the query's own, each
batch upserts its rows and deletes all others; see `fluss_lab.spark.sink.complete_mode`.

A streaming query writes every batch exactly once, whichever process dies when, and however often tasks are run: see
`fluss_lab.spark.sink.exactly_once_commit`. Rows on their way, and the sink's notes, lie in ``_fluss_sink`` of the query's checkpoint (the
option ``checkpointLocation`` must say where that is), or in the folder of the option ``staging``, which driver and
executors must share. Rows of one key arrive in the order that they have within one task, and tasks in their order.

A single write is all or nothing as to its tasks; when the driver dies meanwhile, a part of the rows may be written. A
query of another client may see a part of a batch before the rest: there are no transactions over buckets.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.taskcontext import TaskContext

from fluss_lab.errors import InvalidPropertyError, InvalidRequestError, UnsupportedError
from fluss_lab.failpoints import failpoint
from fluss_lab.files import make_folder, temporary_root
from fluss_lab.model.config.options import REQUEST_SIZE_MAX
from fluss_lab.records.row_sizes import RowLimit
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.spark.sink.complete_mode import check_whole
from fluss_lab.spark.sink.exactly_once_commit import SinkCommit
from fluss_lab.spark.sink.sink_journal import SinkFolder
from fluss_lab.spark.sink.sink_rows import RowForm
from fluss_lab.spark.sink.sink_staging import StagedFile, Stager
from fluss_lab.spark.source import source_options
from fluss_lab.spark.source.source_options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import types as T  # noqa: N812

_KNOWN: Final = frozenset(
    {source_options.CHECKPOINT, source_options.STAGING, source_options.CHANGE_COLUMN, source_options.COLUMNS}
)
_KNOWN_OF_STREAM: Final = _KNOWN | {source_options.QUERY_NAME}
#: In a query's checkpoint.
_FOLDER: Final = "_fluss_sink"
#: How long an abort waits for a commit that has not ended yet.
_ABORT_WAIT_S: Final = 5.0
#: What Spark calls the number of the batch that a task works on.
_BATCH_PROPERTY: Final = "streaming.sql.batchId"
#: The only batch of a write that is no stream.
_SINGLE: Final = 0
#: What Hadoop calls locations that Arrow calls ``s3:``.
_HADOOP_S3: Final = re.compile("^s3[an]:", re.IGNORECASE)


class StagedMessage(WriterCommitMessage):
    """What a task staged, as text."""

    def __init__(self, text: str) -> None:
        self.text = text


class _Staging:
    """What tasks need to stage rows: no address and no token."""

    def __init__(self, options: SourceOptions, schema: T.StructType, overwrite: bool) -> None:
        with options.connect() as connection:
            info = connection.table_info(options.table)
            described = connection.coordinator().describe_cluster(pb.DescribeClusterRequest())
        request_bytes = REQUEST_SIZE_MAX.of({each.key: each.value for each in described.options})
        self._row_limit = RowLimit.of(request_bytes, keyed=not info.is_log_table)
        self.form = RowForm.of(
            info, schema.names, options.text(source_options.CHANGE_COLUMN), options.names(source_options.COLUMNS)
        )
        if overwrite:
            check_whole(self.form)

    def stage(self, folder: SinkFolder, batches: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Write a task's rows into a file."""
        if not folder.staged.is_dir():
            raise InvalidRequestError(
                f"write to {self.form.info.path}: this executor does not see {folder.staged}: give the option "
                f"{source_options.STAGING} with a folder that driver and executors share"
            )
        context = TaskContext.get()
        batch_id = None if context is None else context.getLocalProperty(_BATCH_PROPERTY)
        turn = int(batch_id or _SINGLE) + (0 if context is None else context.partitionId())
        stager = Stager(folder.staged, self.form, int(batch_id or _SINGLE), turn, self._row_limit)
        try:
            for batch in batches:
                stager.add(batch)
            staged = stager.close()
        except BaseException:
            stager.discard()
            raise
        failpoint("sink.stage.after")
        return StagedMessage(staged.to_json())


class FlussStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of one streaming query into one table. Spark calls it; see the module.

    Args:
        options: Of the data source.
        schema: Of the frame.
        overwrite: Whether Spark's output mode is ``complete``.

    Raises:
        InvalidPropertyError: An option that a sink does not have, or no ``checkpointLocation``.
        InvalidSchemaError: The frame does not fit the table.
        UnsupportedError: The output mode is ``complete``, and the table cannot be made equal to a result.
    """

    def __init__(self, options: SourceOptions, schema: T.StructType, overwrite: bool) -> None:
        options.check(_KNOWN_OF_STREAM, "a stream's sink")
        self._options: SourceOptions | None = options
        self._staging = _Staging(options, schema, overwrite)
        self._is_whole = overwrite
        self._checkpoint = options.text(source_options.CHECKPOINT)
        if self._checkpoint is None:
            raise InvalidPropertyError(
                f"write to {options.table}: expected the option checkpointLocation: what makes every batch be written once "
                "belongs to the query's checkpoint, and Spark does not pass a default one to sinks"
            )
        given = options.text(source_options.STAGING)
        path = Path(given).absolute() if given is not None else _local(self._checkpoint) / _FOLDER
        self._folder = SinkFolder(path)
        self._folder.make()

    def __getstate__(self) -> dict[str, Any]:
        # Tasks stage; the process that commits is made afresh.
        return self.__dict__ | {"_options": None}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        return self._staging.stage(self._folder, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Write a batch, or what is left of it; nothing when it is done already."""
        assert self._options is not None
        assert self._checkpoint is not None
        query = query_id(self._checkpoint)
        with self._options.connect() as connection:
            commit = SinkCommit(connection, self._staging.form, self._folder, whole=self._is_whole)
            commit.commit(batchId, _staged_files(messages), query, batch_extent(self._checkpoint, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove what tasks staged of a batch that failed. Spark calls it also when only the commit did."""
        self._folder.abandon([each.name for each in _staged_files(messages)], _ABORT_WAIT_S)


class FlussBatchWriter(DataSourceArrowWriter):
    """Writes one frame into one table. Spark calls it; see the module.

    Args:
        options: Of the data source.
        schema: Of the frame.
        overwrite: Whether the mode is ``overwrite``.

    Raises:
        InvalidPropertyError: An option that a write does not have.
        InvalidSchemaError: The frame does not fit the table.
        UnsupportedError: The mode is ``overwrite``.
    """

    def __init__(self, options: SourceOptions, schema: T.StructType, overwrite: bool) -> None:
        if overwrite:
            raise UnsupportedError(f"write to {options.table}: rows are only added, not overwritten; use mode append")
        options.check(_KNOWN, "a write")
        self._options = options
        self._staging = _Staging(options, schema, overwrite)
        above = options.text(source_options.STAGING) or str(temporary_root())
        self._folder = SinkFolder(Path(above).absolute() / f"fluss-lab-write-{uuid.uuid4().hex}")
        make_folder(self._folder.path)
        self._folder.make()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        return self._staging.stage(self._folder, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Send what the tasks staged."""
        try:
            with self._options.connect() as connection:
                SinkCommit(connection, self._staging.form, self._folder).commit(_SINGLE, _staged_files(messages), "")
        finally:
            shutil.rmtree(self._folder.path, ignore_errors=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what tasks staged; nothing was sent."""
        shutil.rmtree(self._folder.path, ignore_errors=True)


def _staged_files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [StagedFile.from_json(each.text) for each in messages if isinstance(each, StagedMessage)]


def _local(location: str) -> Path:
    """Return a checkpoint's folder.

    Raises:
        InvalidPropertyError: It is not on a file system of this machine.
    """
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return Path(location).absolute()
    if scheme.lower() != "file":
        raise InvalidPropertyError(
            f"checkpointLocation {location}: expected a folder that this machine sees as such; for a checkpoint elsewhere "
            f"give the option {source_options.STAGING} beside it: a folder that driver and executors share"
        )
    return Path("/" + rest.lstrip("/"))


def query_id(location: str) -> str:
    """Return the id of the query that a checkpoint belongs to, as Spark keeps it there.

    Raises:
        InvalidRequestError: It cannot be read.
    """
    try:
        text = _content(location, "metadata")
        return str(json.loads(text)["id"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise InvalidRequestError(
            f"checkpoint {location}: the query's id cannot be read from its file 'metadata' ({error}); without it a sink "
            "cannot distinguish the batches of two queries"
        ) from error


def batch_extent(location: str, batch_id: int) -> str | None:
    """Return what stands for how far a batch goes: Spark notes that before it runs one, and reads it to run it again.

    Returns:
        None when there is no such note.

    Raises:
        InvalidRequestError: It cannot be read.
    """
    name = f"offsets/{batch_id}"
    try:
        return hashlib.sha256(_content(location, name)).hexdigest()
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException) as error:
        raise InvalidRequestError(
            f"checkpoint {location}: how far batch {batch_id} goes cannot be read from its file {name!r} ({error}); without it a "
            "sink cannot distinguish two batches of one number"
        ) from error


def _content(location: str, name: str) -> bytes:
    """Return what a file of a checkpoint has."""
    scheme, colon, _ = location.partition(":")
    if not colon or "/" in scheme or scheme.lower() == "file":
        return (_local(location) / name).read_bytes()
    from pyarrow import fs

    system, path = fs.FileSystem.from_uri(f"{_HADOOP_S3.sub('s3:', location).rstrip('/')}/{name}")
    with system.open_input_stream(path) as stream:
        content: bytes = stream.read()
    return content
