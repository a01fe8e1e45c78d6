"""A task of a round: one split, read from the cluster and written to the lake. Stateless, in any process.

Everything a task needs is in its bytes; everything it did is in the bytes it returns. It knows no driver, no folder and
no catalog beyond what stands there.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.errors import CorruptDataError, FlussError, InternalError, error_code, error_from_code
from fluss_lab.failpoints import failpoint
from fluss_lab.lake import CommitterInitContext, LakeTieringFactory, LakeWriter, WriterInitContext, lake_storage
from fluss_lab.model import TableInfo
from fluss_lab.tiering.reader import TieringSplitReader
from fluss_lab.tiering.splits import TieringLogSplit, split_from_json

log = logging.getLogger(__name__)

TASK_VERSION: Final = 1
#: A write result names a few files with their metrics; 2,000 columns of a file make about 0.5 MB. More is a defect, and
#: would fill the driver.
RESULT_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class TieringTask:
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
    """

    server: ServerAddress
    client_options: Mapping[str, str]
    table: TableInfo
    split: TieringLogSplit
    lake_format: str
    lake_properties: Mapping[str, str]
    lake_table: Mapping[str, Any]
    round_id: str

    def to_bytes(self) -> bytes:
        """Return the task as versioned JSON. It holds the token: it is for workers only."""
        return json.dumps(
            {
                "version": TASK_VERSION,
                "server": self.server.to_json(),
                "client_options": dict(self.client_options),
                "table": self.table.to_json(),
                "split": self.split.to_json(),
                "lake_format": self.lake_format,
                "lake_properties": dict(self.lake_properties),
                "lake_table": dict(self.lake_table),
                "round_id": self.round_id,
            }
        ).encode()

    @staticmethod
    def from_bytes(data: bytes) -> TieringTask:
        """Read what `to_bytes` gave.

        Raises:
            CorruptDataError: Another version, or no task.
        """
        try:
            value = json.loads(data)
            _check_version(value, "tiering task")
            return TieringTask(
                ServerAddress.from_json(value["server"]),
                {str(key): str(text) for key, text in value["client_options"].items()},
                TableInfo.from_json(value["table"]),
                split_from_json(value["split"]),
                str(value["lake_format"]),
                {str(key): str(text) for key, text in value["lake_properties"].items()},
                value["lake_table"],
                str(value["round_id"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptDataError(f"tiering task: not the form of a task: {type(error).__name__}") from error


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one task did, or why it did not.

    Attributes:
        split_index: Of its split.
        end: Records up to here (exclusive) were written.
        max_timestamp_ms: Timestamp of the last of them; -1 when there is none.
        rows: Records written.
        write_version: Version of the write result's serializer.
        write_result: Its bytes; empty for a failed task.
        error: Why the task failed; its files are removed.
    """

    split_index: int
    end: int = 0
    max_timestamp_ms: int = -1
    rows: int = 0
    write_version: int = 0
    write_result: bytes = b""
    error: FlussError | None = None

    def to_bytes(self) -> bytes:
        """Return the result as versioned JSON."""
        value: dict[str, Any] = {"version": TASK_VERSION, "split_index": self.split_index}
        if self.error is not None:
            value["error"] = {"code": error_code(self.error), "message": str(self.error)}
        else:
            value |= {
                "end": self.end,
                "max_timestamp_ms": self.max_timestamp_ms,
                "rows": self.rows,
                "write_version": self.write_version,
                "write_result": base64.b64encode(self.write_result).decode(),
            }
        return json.dumps(value).encode()

    @staticmethod
    def from_bytes(data: bytes) -> TaskResult:
        """Read what `to_bytes` gave.

        Raises:
            CorruptDataError: Another version, or no result.
        """
        try:
            value = json.loads(data)
            _check_version(value, "tiering task result")
            if (error := value.get("error")) is not None:
                return TaskResult(
                    int(value["split_index"]), error=error_from_code(int(error["code"]), str(error["message"]))
                )
            return TaskResult(
                int(value["split_index"]),
                int(value["end"]),
                int(value["max_timestamp_ms"]),
                int(value["rows"]),
                int(value["write_version"]),
                base64.b64decode(value["write_result"], validate=True),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptDataError(f"tiering task result: not the form of a result: {error!r}") from error


def run_task(data: bytes) -> bytes:
    """Run one task to its end and return its `TaskResult` as bytes.

    It may run in any process that can reach the server and the lake's files, again and again: every attempt writes
    files of its own, and one that fails removes them. An error is part of the result, so that the results of other
    tasks, and thereby their files, stay known.

    Args:
        data: A `TieringTask` as bytes.

    Raises:
        CorruptDataError: The bytes are no task of this release.
    """
    task = TieringTask.from_bytes(data)
    try:
        result = _write(task)
    except FlussError as error:
        result = TaskResult(task.split.split_index, error=error)
    except Exception as error:
        log.exception("tiering task of %s failed", task.split)
        text = f"{task.split}: {type(error).__name__}: {error}"
        result = TaskResult(task.split.split_index, error=InternalError(text))
    return result.to_bytes()


def _write(task: TieringTask) -> TaskResult:
    factory = lake_storage(task.lake_format, task.lake_properties).create_lake_tiering_factory()
    split = task.split
    context = WriterInitContext(
        task.table, split.table_bucket, split.partition_name, task.lake_table, task.round_id, split.split_index
    )
    connection = Connection(lambda: task.server, task.client_options)
    try:
        connection.remember(task.table)
        reader = TieringSplitReader(connection, task.table, split)
        written = _copy(reader, factory.create_lake_writer(context))
    finally:
        connection.close()
    try:
        return _result_of(task, factory, reader, written)
    except BaseException:
        _remove(task, factory, written)
        raise


def _copy(reader: TieringSplitReader, writer: LakeWriter[Any]) -> Any:
    """Write what the reader reads and return the write result; on any failure nothing is left behind."""
    try:
        for records in reader:
            writer.write(records)
        return writer.complete()
    except BaseException:
        writer.abort()
        raise


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
        reader.position - task.split.starting_offset,
        serializer.version,
        data,
    )


def _remove(task: TieringTask, factory: LakeTieringFactory[Any, Any], written: Any) -> None:
    """Remove the finished files of an attempt that fails after all. A worker that cannot leaves them to maintenance."""
    context = CommitterInitContext(task.table, task.round_id)
    with contextlib.suppress(Exception), factory.create_lake_committer(context) as committer:
        committer.abort([written])


def _check_version(value: Mapping[str, Any], what: str) -> None:
    if value["version"] != TASK_VERSION:
        raise CorruptDataError(
            f"{what}: expected version {TASK_VERSION}, found {value['version']!r}; driver and workers run different "
            "releases of fluss_lab"
        )
