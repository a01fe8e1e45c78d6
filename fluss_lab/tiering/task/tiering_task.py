"""The tasks of a round: a split written to the lake, or a bucket's files rewritten. Stateless, in any process.

Everything a task needs is in its bytes; everything it did is in the bytes it returns. It knows no driver, no folder and
no catalog beyond what stands there. What tasks of a table share is their scene: a process that runs many of them reads it
once, and keeps its connection and its lake from one task to the next. Nothing of that decides what is written: a task gives
the same result in a process that begins with it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from fluss_lab.client import Connection, ServerAddress
from fluss_lab.clock import SystemClock
from fluss_lab.errors import FlussError, InternalError, UnsupportedError, error_code, error_from_code
from fluss_lab.failpoints import failpoint
from fluss_lab.lake import LakeStorage, LakeTieringFactory, SupportsMaintenance, WriterInitContext, lake_storage
from fluss_lab.model import TableInfo
from fluss_lab.model.json_codec import Forms, decode, encode
from fluss_lab.tiering.round.split_generator import TieringSplit
from fluss_lab.tiering.task.split_reader import TieringSplitReader

log = logging.getLogger(__name__)

#: Of tasks of all kinds, and of their results. Version 4 has what tasks of a table share apart.
TASK_VERSION: Final = 4
#: Of what the lake's `compact` returns, as a result carries it.
MAINTENANCE_VERSION: Final = 1
#: A write result names a few files with their metrics; 2,000 columns of a file make about 0.5 MB. More is a defect, and
#: would fill the driver.
RESULT_BYTES_MAX: Final = 16 << 20
#: Scenes and lakes that a process keeps, of those used last: a service gives a worker tasks of all its tables, some kB each.
SCENES_KEPT: Final = 64
#: Connections that wait for the next task, of those used last: a worker has a task at a time, of one cluster.
CONNECTIONS_KEPT: Final = 4
#: A server has room for so many clients (``server.connections-max``), workers of other rounds among them: one that has had no
#: task for so long leaves, well within the time for which those that find no room try again.
CONNECTION_IDLE_S: Final = 5.0
#: Errors travel by their codes.
_ERRORS: Final[Forms] = {
    FlussError: (
        lambda error: {"code": error_code(error), "message": str(error)},
        lambda value: error_from_code(value["code"], value["message"]),
    )
}


class TaskScene(msgspec.Struct, frozen=True):
    """What tasks of a table share, in one round and from round to round while nothing of it changes.

    Attributes:
        server: Where the cluster is, with its token.
        client_options: Of the connection.
        table: As planned.
        lake_format: As in ``table.datalake.format``.
        lake_properties: The lake format's configuration.
        lake_table: From `LakeTieringFactory.describe_table`.
    """

    server: ServerAddress
    client_options: Mapping[str, str]
    table: TableInfo
    lake_format: str
    lake_properties: Mapping[str, str]
    lake_table: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.table.path})"

    def to_json(self) -> msgspec.Raw:
        """Return the scene as JSON, to be part of tasks. It holds the token: it is for workers only."""
        return msgspec.Raw(encode(self))


class TieringTask(msgspec.Struct, frozen=True, tag_field="kind", tag="write"):
    """A task that writes: one split, read from the cluster and written to the lake.

    Attributes:
        scene_json: From `TaskScene.to_json`.
        split: Which records.
        round_id: In the name of every file.
        lake_bucket: From `LakeTieringFactory.describe_buckets`; empty where the writer needs nothing.
        alone: Whether no other split of the round is of this bucket.
        deadline_ms: Epoch milliseconds by the worker's clock: a task that begins later writes nothing, and the round goes
            without it; None: it writes whenever it begins. A task that has begun is never cut short.
    """

    scene_json: msgspec.Raw
    split: TieringSplit
    round_id: str
    lake_bucket: Mapping[str, Any] = {}
    alone: bool = True
    deadline_ms: int | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.split})"

    @property
    def index(self) -> int:
        """Return the number of its split, which its `TaskResult` has as `split_index`."""
        return self.split.split_index

    @property
    def scene(self) -> TaskScene:
        """Return what it shares with other tasks.

        Raises:
            CorruptDataError: It is no scene of this release.
        """
        return _scene(bytes(self.scene_json))

    @property
    def table(self) -> TableInfo:
        """Return the table, as planned; see `scene`."""
        return self.scene.table

    def to_bytes(self) -> bytes:
        """Return the task as versioned JSON. It holds the token: it is for workers only."""
        return encode(self, version=TASK_VERSION)


class MaintenanceTask(msgspec.Struct, frozen=True, tag_field="kind", tag="maintain"):
    """A task of maintenance: one bucket's files rewritten. It needs no server: only the lake's files.

    Attributes:
        index: Its position among the tasks of its plan.
        table: As planned.
        lake_format: As in ``table.datalake.format``.
        lake_properties: The lake format's configuration.
        task: From the lake's `CompactionPlan`.
    """

    index: int
    table: TableInfo
    lake_format: str
    lake_properties: Mapping[str, str]
    task: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.table.path}, {self.index})"

    def to_bytes(self) -> bytes:
        """Return the task as versioned JSON. It may hold credentials of the file system: it is for workers only."""
        return encode(self, version=TASK_VERSION)


#: A task of any kind: each says its own.
_TASK: Final[Any] = TieringTask | MaintenanceTask


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


def run_task(data: bytes) -> bytes:
    """Run one task to its end and return its `TaskResult` as bytes.

    It may run in any process that can reach the server and the lake's files, again and again: every attempt writes
    files of its own, and one that fails removes them. An error is part of the result, so that the results of other
    tasks, and thereby their files, stay known.

    Args:
        data: A `TieringTask` or `MaintenanceTask` as bytes.

    Raises:
        CorruptDataError: The bytes are no task of this release.
    """
    task = parse_task(data)
    try:
        result = _write_split(task) if isinstance(task, TieringTask) else _rewrite_bucket(task)
    except FlussError as error:
        result = TaskResult(task.index, error=error)
    except Exception as error:
        what = str(task.split) if isinstance(task, TieringTask) else f"maintenance of {task.table.path}"
        log.exception("tiering task %d, %s, failed", task.index, what)
        result = TaskResult(task.index, error=InternalError(f"{what}: {type(error).__name__}: {error}"))
    return result.to_bytes()


def parse_task(data: bytes) -> TieringTask | MaintenanceTask:
    """Return the task of some bytes; its `index` is what its `TaskResult` has as `split_index`.

    Raises:
        CorruptDataError: They are no task of this release.
    """
    found: TieringTask | MaintenanceTask = decode(_TASK, data, "tiering task", version=TASK_VERSION, peer=True)
    if isinstance(found, TieringTask):
        _scene(bytes(found.scene_json))
    return found


def _write_split(task: TieringTask) -> TaskResult:
    if task.deadline_ms is not None and SystemClock().now_ms() >= task.deadline_ms:
        return TaskResult(task.index, end=task.split.start, start=task.split.start)
    scene, split = task.scene, task.split
    factory = _lake(scene.lake_format, scene.lake_properties).create_lake_tiering_factory()
    context = WriterInitContext(
        scene.table,
        split.table_bucket,
        split.partition_name,
        scene.lake_table,
        task.round_id,
        split.split_index,
        task.lake_bucket,
        task.alone,
    )
    with _connections().lend(scene.server, scene.client_options) as connection:
        connection.remember(scene.table)
        reader = TieringSplitReader(connection, scene.table, split)
        writer = factory.create_lake_writer(context)
        try:
            for records in reader:
                writer.write(records)
            return _result_of(task, factory, reader, writer.complete())
        except BaseException:
            # Its result is lost: no snapshot can ever refer to its files.
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
        reader.rows,
        serializer.version,
        data,
        size_bytes=written.size_bytes,
        start=reader.start,
        events=reader.events,
    )


def _rewrite_bucket(task: MaintenanceTask) -> TaskResult:
    """Return a result whose `write_result` is what the lake's `compact` returned."""
    storage = _lake(task.lake_format, task.lake_properties)
    if not isinstance(storage, SupportsMaintenance):
        raise UnsupportedError(f"lake format {task.lake_format!r}: it offers no maintenance")
    data = storage.compact(task.table, task.task)
    failpoint("maintenance.task.after")
    return TaskResult(task.index, write_version=MAINTENANCE_VERSION, write_result=data)


# -- what a process keeps from task to task ----------------------------------------------------------------------------


@lru_cache(SCENES_KEPT)
def _scene(data: bytes) -> TaskScene:
    return decode(TaskScene, data, "the scene of a tiering task", peer=True)


def _lake(lake_format: str, properties: Mapping[str, str]) -> LakeStorage:
    return _kept_lake(lake_format, tuple(sorted(properties.items())))


@lru_cache(SCENES_KEPT)
def _kept_lake(lake_format: str, properties: tuple[tuple[str, str], ...]) -> LakeStorage:
    return lake_storage(lake_format, dict(properties))


#: A server's address, with its token, and the client's options.
_Peer: TypeAlias = tuple[ServerAddress, tuple[tuple[str, str], ...]]


class TaskConnections:
    """Connections that tasks of this process have one after another. Safe in any thread: a task has its own while it runs.

    What a connection knows of leaders may be outdated by then, as in any connection: servers refuse what is wrong, and they
    are looked up again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Those that no task has now, the one used last at the end.
        self._idle: list[tuple[_Peer, Connection]] = []

    @contextmanager
    def lend(self, server: ServerAddress, options: Mapping[str, str]) -> Iterator[Connection]:
        """Lend a connection to a cluster while the block runs: one that waits, or a new one. After an error it is closed."""
        peer: _Peer = (server, tuple(sorted(options.items())))
        with self._lock:
            # The one used last, so that those which are not needed any more grow old.
            at = next((at for at in reversed(range(len(self._idle))) if self._idle[at][0] == peer), None)
            kept = None if at is None else self._idle.pop(at)[1]
        connection = kept or Connection(lambda: server, options, idle_s=CONNECTION_IDLE_S)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append((peer, connection))
            over = [each for _, each in self._idle[:-CONNECTIONS_KEPT]]
            del self._idle[:-CONNECTIONS_KEPT]
        for each in over:
            each.close()


@cache
def _connections() -> TaskConnections:
    return TaskConnections()


@dataclass(frozen=True, slots=True)
class TaskNews:
    """A task that ended well, as its executor reports while others still run.

    Attributes:
        index: Its position among the tasks given to `TieringExecutor.run`.
        rows: Records that it wrote.
        size_bytes: Bytes of the files that it wrote.
    """

    index: int
    rows: int
    size_bytes: int


class TaskProgress(Protocol):
    """Called now and then while tasks run, from any thread."""

    def __call__(self, done: int, total: int, ended: Sequence[TaskNews] = ()) -> None:
        """Take news.

        Args:
            done: Tasks that ended.
            total: Tasks in all.
            ended: Tasks that ended well since the last call, as far as the executor knows; one may come twice.
        """


class TieringExecutor(Protocol):
    """Runs tasks of `fluss_lab.tiering.task.tiering_task.run_task`, anywhere. One round at a time; rounds of other executors beside."""

    @property
    def parallelism(self) -> int:
        """Return how many tasks run at once; splits are cut so that all of them have work."""
        ...

    @property
    def is_alive(self) -> bool:
        """Return whether a `run` may succeed. Once it is False it stays so: whoever needs an executor makes another."""
        ...

    def run(self, tasks: Sequence[bytes], progress: TaskProgress | None = None) -> list[bytes]:
        """Run every task and return what `run_task` returned, in the order of the tasks.

        A task may run more than once (after a failure, or speculatively); exactly one of its results is returned.

        Raises:
            FlussError: The tasks could not be run, or were cancelled; the text is one line.
        """
        ...

    def cancel(self) -> None:
        """Make a `run` under way in another thread end soon, with an error. Nothing runs: nothing happens."""
        ...
