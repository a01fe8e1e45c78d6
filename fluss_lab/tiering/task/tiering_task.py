"""A task of a round: one split, read from the cluster and written to the lake. Stateless, in any process.

Everything a task needs is in its bytes; everything it did is in the bytes it returns. It knows no driver, no folder and
no catalog beyond what stands there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.clock import SystemClock
from fluss_lab.errors import FlussError, InternalError, error_code, error_from_code
from fluss_lab.failpoints import failpoint
from fluss_lab.lake import LakeTieringFactory, LakeWriter, WriterInitContext, lake_storage
from fluss_lab.model import TableInfo
from fluss_lab.model.json_codec import Forms, decode, encode
from fluss_lab.tiering.round.splits import TieringSplit
from fluss_lab.tiering.task.split_reader import TieringSplitReader

log = logging.getLogger(__name__)

#: Of tasks of all kinds, and of their results. Version 3 has every value by its fields.
TASK_VERSION: Final = 3
#: A write result names a few files with their metrics; 2,000 columns of a file make about 0.5 MB. More is a defect, and
#: would fill the driver.
RESULT_BYTES_MAX: Final = 16 << 20
#: Errors travel by their codes.
_ERRORS: Final[Forms] = {
    FlussError: (
        lambda error: {"code": error_code(error), "message": str(error)},
        lambda value: error_from_code(value["code"], value["message"]),
    )
}


class TieringTask(msgspec.Struct, frozen=True, tag_field="kind", tag="write"):
    """What one task does.

    Attributes:
        server: Where the cluster is, with its token.
        client_options: Of the connection.
        table: As planned.
        split: Which records.
        lake_format: As in ``table.datalake.format``.
        lake_properties: The lake format's configuration.
        lake_table: From `LakeTieringFactory.describe_table`.
        round_id: In the name of every file.
        lake_bucket: From `LakeTieringFactory.describe_buckets`; empty where the writer needs nothing.
        alone: Whether no other split of the round is of this bucket.
        deadline_ms: Epoch milliseconds by the worker's clock: a task that begins later writes nothing, and the round goes
            without it; None: it writes whenever it begins. A task that has begun is never cut short.
    """

    server: ServerAddress
    client_options: Mapping[str, str]
    table: TableInfo
    split: TieringSplit
    lake_format: str
    lake_properties: Mapping[str, str]
    lake_table: Mapping[str, Any]
    round_id: str
    lake_bucket: Mapping[str, Any] = {}
    alone: bool = True
    deadline_ms: int | None = None

    @property
    def index(self) -> int:
        """Return the number of its split, which its `TaskResult` has as `split_index`."""
        return self.split.split_index

    def to_bytes(self) -> bytes:
        """Return the task as versioned JSON. It holds the token: it is for workers only."""
        return encode(self, version=TASK_VERSION)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one task did, or why it did not.

    Attributes:
        split_index: Of its split.
        end: Records up to here (exclusive) were written; of a split that was left to a later round, where it begins.
        max_timestamp_ms: Timestamp of the last of them; -1 when there is none.
        rows: Rows written: all records of a log table, ``+I`` and ``+U`` of a primary-key table, rows of a snapshot.
        size_bytes: Of the files written.
        write_version: Version of the write result's serializer.
        write_result: Its bytes; empty for a failed task, and for one that wrote nothing because it began too late.
        error: Why the task failed; its files are removed.
        start: First offset written: after the split's own when a ``+U`` there belongs to the split before.
        events: ``-U`` and ``-D`` written.
    """

    split_index: int
    end: int = 0
    max_timestamp_ms: int = -1
    rows: int = 0
    write_version: int = 0
    write_result: bytes = b""
    error: FlussError | None = None
    size_bytes: int = 0
    start: int = 0
    events: int = 0

    def to_bytes(self) -> bytes:
        """Return the result as versioned JSON."""
        return encode(self, version=TASK_VERSION, forms=_ERRORS)

    @staticmethod
    def from_bytes(data: bytes) -> TaskResult:
        """Read what `to_bytes` gave.

        Raises:
            CorruptDataError: Another version, or no result.
        """
        return decode(TaskResult, data, "tiering task result", version=TASK_VERSION, peer=True, forms=_ERRORS)


def run(task: TieringTask) -> TaskResult:
    """Run one task to its end. An error is part of the result; a task that fails leaves no file."""
    try:
        return _begun_too_late(task) or _write(task)
    except FlussError as error:
        return TaskResult(task.split.split_index, error=error)
    except Exception as error:
        log.exception("tiering task of %s failed", task.split)
        text = f"{task.split}: {type(error).__name__}: {error}"
        return TaskResult(task.split.split_index, error=InternalError(text))


def _begun_too_late(task: TieringTask) -> TaskResult | None:
    if task.deadline_ms is None or SystemClock().now_ms() < task.deadline_ms:
        return None
    return TaskResult(task.split.split_index, end=task.split.start, start=task.split.start)


def _write(task: TieringTask) -> TaskResult:
    factory = lake_storage(task.lake_format, task.lake_properties).create_lake_tiering_factory()
    split = task.split
    context = WriterInitContext(
        task.table,
        split.table_bucket,
        split.partition_name,
        task.lake_table,
        task.round_id,
        split.split_index,
        task.lake_bucket,
        task.alone,
    )
    connection = Connection(lambda: task.server, task.client_options)
    try:
        connection.remember(task.table)
        reader = TieringSplitReader(connection, task.table, split)
        writer = factory.create_lake_writer(context)
        try:
            written = _copy(reader, writer)
            return _result_of(task, factory, reader, written)
        except BaseException:
            # Its result goes to nobody: no snapshot can ever refer to its files.
            writer.abort()
            raise
    finally:
        connection.close()


def _copy(reader: TieringSplitReader, writer: LakeWriter[Any]) -> Any:
    """Write what the reader reads and return the write result."""
    for records in reader:
        writer.write(records)
    return writer.complete()


def _result_of(
    task: TieringTask, factory: LakeTieringFactory[Any, Any], reader: TieringSplitReader, written: Any
) -> TaskResult:
    serializer = factory.write_result_serializer()
    data = serializer.serialize(written)
    if len(data) > RESULT_BYTES_MAX:
        raise InternalError(f"{task.split}: a write result of {len(data)} bytes, expected at most {RESULT_BYTES_MAX}")
    failpoint("tiering.write.after_task")
    return TaskResult(
        task.split.split_index,
        reader.position,
        reader.max_timestamp_ms,
        reader.rows,
        serializer.version,
        data,
        size_bytes=written.size_bytes,
        start=reader.start,
        events=reader.events,
    )
