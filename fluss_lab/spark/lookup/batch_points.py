"""The moments of which a stream's micro-batches look rows up: one for each micro-batch and table, kept in the checkpoint.

A micro-batch that is run again, also by another process, or is used several times in ``foreachBatch``, has the point that it
had. Whichever task comes first writes it down, before it looks anything up::

    <checkpoint>/lookup_points/<table>/<batch id>       the point, and what the table was

Tasks know query and micro-batch by what Spark's threads hand down to them. The checkpoint's place is added by a listener, which
Spark calls in the query's own thread before its first micro-batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

from fluss_lab.errors import InvalidRequestError, TableNotFoundError, UnsupportedError
from fluss_lab.files import create_atomic, make_folder
from fluss_lab.lookup.lookup_interfaces import LookupFunction
from fluss_lab.lookup.planned_lookup import is_same_table
from fluss_lab.lookup.portable import faults_named
from fluss_lab.model.json_codec import decode, encode
from fluss_lab.spark.lookup.task_folder import remove_folders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

#: What the listener tells a query's tasks.
CHECKPOINT: Final = "fluss_lab.lookup.checkpoint"
RUN: Final = "fluss_lab.lookup.run"
#: What Spark tells them.
BATCH: Final = "streaming.sql.batchId"

POINTS: Final = "lookup_points"
#: Of a file of a point.
FORMAT: Final = 1
#: As many micro-batches as Spark itself keeps the offsets of (``spark.sql.streaming.minBatchesToRetain``).
KEPT_BATCHES: Final = 100
#: A file's name has 255 bytes at most.
_NAME_LENGTH_MAX: Final = 200
_LISTENER: Final = "_fluss_lab_lookups"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch of a streaming query.

    Attributes:
        batch_id: Its number in the query.
        run: The id of the query's run.
        checkpoint: The query's checkpoint.
    """

    batch_id: int
    run: str
    checkpoint: Path


class _Point(msgspec.Struct):
    """A file."""

    point: str
    identity: str


class _Listener(StreamingQueryListener):
    """Has each query's thread hand the place of its checkpoint down to its tasks."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name
        """Set what jobs of this thread, which is the query's own, tell their tasks."""
        query = self._session.streams.get(str(event.id))
        context = self._session.sparkContext
        context.setLocalProperty(CHECKPOINT, query._jsq.streamingQuery().resolvedCheckpointRoot())  # type: ignore[union-attr]
        context.setLocalProperty(RUN, str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's name
        """Do nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  # Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  # Spark's name
        """Remove what tasks left for each other."""
        with suppress(Exception):  # Spark may be ending
            remove_folders(self._session.sparkContext, str(event.runId))


def follow_queries(session: SparkSession) -> None:
    """Have tasks of the streaming queries that this session starts from now on know their checkpoint. Once is enough."""
    if getattr(session, _LISTENER, None) is None:
        listener = _Listener(session)
        session.streams.addListener(listener)
        setattr(session, _LISTENER, listener)


def micro_batch(properties: Mapping[str, str | None], source: str) -> MicroBatch:
    """Return the micro-batch that a task is of.

    Args:
        properties: `CHECKPOINT`, `RUN` and `BATCH`, as the task has them.
        source: Names the table in errors.

    Raises:
        InvalidRequestError: The task is of no micro-batch.
        UnsupportedError: The checkpoint is not on a disk that this machine sees.
    """
    root, run, number = (properties.get(name) for name in (CHECKPOINT, RUN, BATCH))
    if root is None or run is None or number is None:
        raise InvalidRequestError(
            f"lookup join with {source}: expected a micro-batch of a streaming query, found a task of none: start the query by "
            "the session that the join was made in, without a continuous trigger; in foreachBatch use the frame in its own thread"
        )
    return MicroBatch(int(number), run, _local(root, source))


def _local(root: str, source: str) -> Path:
    scheme, colon, rest = root.partition(":")
    is_path = not colon or "/" in scheme
    folder = Path(root) if is_path else Path("/" + unquote(rest).lstrip("/"))
    if not is_path and scheme.lower() != "file":
        found = f"one under {scheme}:"
    elif not folder.is_dir():
        found = f"{folder}, which is no folder here"
    else:
        return folder
    raise UnsupportedError(
        f"lookup join with {source}: the checkpoint keeps which moment each micro-batch reads: expected a checkpoint in a folder "
        f"that all of Spark's tasks see, found {found}; set checkpointLocation to such a folder, or join with as_of="
    )


def kept_point(batch: MicroBatch, source: str, function: LookupFunction) -> str | None:
    """Return the point at which a micro-batch looks rows up: that which it had before, else the present one, from now on.

    Args:
        batch: The micro-batch.
        source: The table's name.
        function: Not open.

    Returns:
        The point; None: the source has no points.

    Raises:
        TableNotFoundError: The query was begun with another table of that name.
        CorruptDataError: The file of the point is damaged.
        FlussError: As the source says.
    """
    identity = function.identity()
    folder = batch.checkpoint / POINTS / _file_name(source)
    path = folder / str(batch.batch_id)
    if (kept := _read(path, source, identity)) is not None:
        return kept
    with faults_named(function, "present_point"):
        present = function.present_point()
    if present is None:
        return None
    make_folder(folder)
    others = sorted(int(each.name) for each in folder.iterdir() if each.name.isdigit())
    if others:
        _read(folder / str(others[-1]), source, identity)
    try:
        create_atomic(path, encode(_Point(present, identity), version=FORMAT))
    except FileExistsError:
        # Another task was first.
        return _read(path, source, identity)
    for each in others:
        if each <= batch.batch_id - KEPT_BATCHES:
            (folder / str(each)).unlink(missing_ok=True)
    return present


def _read(path: Path, source: str, identity: str) -> str | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    found = decode(_Point, data, path, version=FORMAT)
    if not is_same_table(found.identity, identity):
        raise TableNotFoundError(
            f"lookup join with {source}: expected the table that the query began with, {found.identity}, found {identity}: it was "
            "dropped and made again; start a new query, with a new checkpoint"
        )
    return found.point


def _file_name(source: str) -> str:
    name = quote(source, safe="")
    # No name of a file may be "." or "..", or be hidden.
    name = f"%2E{name[1:]}" if name.startswith(".") else name
    return name if len(name) <= _NAME_LENGTH_MAX else hashlib.sha256(name.encode()).hexdigest()
